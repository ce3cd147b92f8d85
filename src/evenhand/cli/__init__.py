"""The command line: thin, no mathematics; each command is one call into the library.

main (exit codes), application (the commands), options (what they share), console (tables, progress, JSON).
"""

from evenhand.cli.main import main

__all__ = ["main"]
