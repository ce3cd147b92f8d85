"""The commands. Each imports what it computes with when it runs, so that --help is quick."""

from importlib import import_module

import click

from evenhand._version import __version__
from evenhand.cli.commands.programme import programme
from evenhand.cli.commands.serve import token
from evenhand.cli.completion import Commands

COMMANDS = ["problems", "check", "solve", "indices", "compare", "fairness", "train", "evaluate"]
COMMANDS += ["import_records", "fit", "backtest", "act", "show", "serve"]
"""Modules of `evenhand.cli.commands`, in the order of the help; each has a `command`."""

HELP = """\
Fair resource allocation in weakly coupled Markov decision processes.

Many arms (machines, patients, cells), each with states of its own, compete at every step for a few scarce
resources. evenhand finds policies that are fair to all of them, bounds how good any policy can be, and compares them.

\b
Try:
  evenhand problems
  evenhand solve machine-replacement -p num_arms=5
  evenhand compare machine-replacement -p num_arms=5
  evenhand check my-model.toml
  evenhand compare my-model.toml --welfare maximin --report report.html
  evenhand fairness my-model.toml --report fairness.html
  evenhand train machine-replacement -p num_arms=10 --out policy.zip
"""


@click.group(
    cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="evenhand")
def application() -> None:
    """The commands."""


for name in COMMANDS:
    application.add_command(import_module(f"evenhand.cli.commands.{name}").command)
application.add_command(token)
application.add_command(programme)
