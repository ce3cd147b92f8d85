"""The command line: thin, no mathematics; each command is one call into the library.

main (exit codes), group (the list of commands), commands (one module per command), options (what they share),
arguments (models, tables and policies as they are typed), console (tables, JSON), progress, refusals (errors).
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.cli.main import main

if TYPE_CHECKING:
    from evenhand.cli.arguments import standard_input
    from evenhand.cli.commands.train import read_settings
    from evenhand.cli.console import print_summary
    from evenhand.cli.group import application
    from evenhand.cli.main import run

__getattr__, __dir__ = attach(__name__, __file__)

__all__ = ["main"]
