"""REPRODUCE: specs (TOML), cells that run and resume, records."""
