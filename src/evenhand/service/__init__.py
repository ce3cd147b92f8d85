"""Serving a programme: its API, and its page for planners.

Thin: no mathematics; each endpoint is one call into the library. Needs the extra `service`. Nothing is imported here,
so that who asks for help does not wait for a web framework.
"""
