"""The commands: their names, and what each does. A command is imported when it is used, so that --help is quick."""

from importlib import import_module

import click

from evenhand._version import __version__
from evenhand.cli.completion import Commands

COMMANDS = {
    "act": "Decide the present step, arm by arm, with a reason for each.",
    "backtest": "Play the policy of the records in LOG in the MODEL that was fitted to them, and compare it with the "
    "records.",
    "check": "Summarise MODEL, and report what looks odd.",
    "compare": "Play every policy that applies to MODEL, side by side.",
    "evaluate": "Evaluate POLICY on MODEL, arm by arm.",
    "fairness": "Compute the price of fairness: the best plan for each welfare, under all welfares.",
    "fit": "Fit a model to LOG: a table with one row per arm and time.",
    "import": "Clean RECORDS, one or several tables, into a log that `evenhand fit` reads.",
    "indices": "Whittle indices and the indexability verdict of each type of arm of MODEL.",
    "problems": "List the built-in problems and their parameters, or one problem in detail.",
    "programme": "Run a programme: a roster, what is observed, what is decided and done, in a database.",
    "serve": "Serve PROGRAMME: its API, and a page for planners at /.",
    "show": "Describe a saved PLAN: the order of service by type, state and action.",
    "solve": "Find the best policy for MODEL, with a certificate: welfare, upper bound, gap.",
    "token": "Create, rotate, revoke and list the holders of a token FILE, also while servers use it.",
    "train": "Learn a policy for MODEL by trial and error, with count-proportion deep RL.",
}
"""First sentence of the help of each command; its module in `commands` has its name and a `command`."""

MODULES, GROUPS = {"import": "import_records", "token": "serve"}, ("programme", "token")
"""Modules with other names, and commands that are groups, which their modules have under their own names."""

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


class Application(Commands):
    """All commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module = import_module(f"evenhand.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
            self.add_command(getattr(module, cmd_name if cmd_name in GROUPS else "command"), cmd_name)
        return super().get_command(ctx, cmd_name)

    def listed_help(self, ctx: click.Context, name: str) -> str:
        """Return the line of a command in the list."""
        return COMMANDS[name]


@click.group(
    cls=Application, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="evenhand")
def application() -> None:
    """The commands."""
