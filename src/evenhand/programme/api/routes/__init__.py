"""The API, one file a noun: each endpoint is one call into the library."""
