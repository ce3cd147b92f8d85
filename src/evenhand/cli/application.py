"""The commands. Each imports what it needs when it runs, so that --help is quick."""

from typing import Any

import click

from evenhand._version import __version__
from evenhand.cli.options import common, model_argument, playing, welfare_option

WHAT_IT_IS = """\
Fair resource allocation in weakly coupled Markov decision processes.

Many arms (machines, patients, cells), each with states of its own, compete at every step for a few scarce
resources. evenhand finds policies that are fair to all of them, says how good they are, and compares them.

\b
Try:
  evenhand problems
  evenhand solve machine-replacement -p num_arms=5
  evenhand compare machine-replacement -p num_arms=5
  evenhand compare my-model.toml --welfare maximin --report report.html
"""


@click.group(help=WHAT_IT_IS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="evenhand")
def application() -> None:
    """The commands."""


@application.command()
@click.argument("name", required=False)
@click.option("-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of the problem, with --out.")
@click.option("--out", metavar="FILE", help="Write the problem as a model file (.toml, .json or .npz) to start from.")
@common(seeded=False)
def problems(**options: Any) -> None:
    """List the built-in problems and their parameters, or one problem in detail."""
    from evenhand.cli.commands.problems import run

    run(**options)


@application.command()
@model_argument
@welfare_option
@click.option(
    "--method",
    default="auto",
    show_default=True,
    metavar="M",
    help="counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid.",
)
@click.option("--tolerance", default=1e-8, show_default=True, type=float, help="Relative gap to stop at.")
@click.option("--out", metavar="POLICY", help="Save the policy; `evenhand evaluate MODEL POLICY` plays it.")
@common()
def solve(**options: Any) -> None:
    """Find the best policy for MODEL, with a certificate: welfare, upper bound, gap.

    MODEL is a model file (.toml, .json, .npz) or a built-in problem (see `evenhand problems`).
    """
    from evenhand.cli.commands.solve import run

    run(**options)


@application.command()
@model_argument
@common(seeded=False)
def indices(**options: Any) -> None:
    """Whittle indices and the indexability verdict of each type of arm of MODEL.

    For arms with an idle and one active action. The verdict is a proof, not an assumption.
    """
    from evenhand.cli.commands.indices import run

    run(**options)


@application.command()
@model_argument
@click.option("--policies", metavar="A,B,...", help="Only these, by name or saved file; all that apply when absent.")
@welfare_option
@playing
@click.option("--report", metavar="FILE.html", help="Also write the comparison as a page with figures.")
@common()
def compare(**options: Any) -> None:
    """Play every policy that applies to MODEL, side by side.

    MODEL is a model file (.toml, .json, .npz) or a built-in problem (see `evenhand problems`). Policies are evaluated
    exactly where that is possible, else simulated, all of them in the same world.
    """
    from evenhand.cli.commands.compare import run

    run(**options)


@application.command()
@model_argument
@click.argument("policy")
@welfare_option
@playing
@common()
def evaluate(**options: Any) -> None:
    """Tell what POLICY is worth on MODEL, arm by arm.

    POLICY is the name of a policy (`evenhand compare` shows them), or a file saved by `evenhand solve --out`.
    """
    from evenhand.cli.commands.evaluate import run

    run(**options)
