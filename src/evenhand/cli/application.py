"""The commands. Each imports what it needs when it runs, so that --help is quick."""

from typing import Any

import click

from evenhand._version import __version__
from evenhand.cli.groups import Commands
from evenhand.cli.options import (
    backend_option,
    budget_option,
    common,
    criterion_option,
    draws_option,
    fitting,
    initial_option,
    model_argument,
    over_option,
    playing,
    reading,
    training_settings,
    welfare_option,
)
from evenhand.cli.programmes import programme

WHAT_IT_IS = """\
Fair resource allocation in weakly coupled Markov decision processes.

Many arms (machines, patients, cells), each with states of its own, compete at every step for a few scarce
resources. evenhand finds policies that are fair to all of them, says how good they are, and compares them.

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
    cls=Commands, help=WHAT_IT_IS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="evenhand")
def application() -> None:
    """The commands."""


@application.command()
@click.argument("name", required=False)
@click.option("-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of the problem, with --out.")
@click.option("--out", metavar="FILE", help="Write it as a model file (.toml, .json, .npz, .parquet) to start from.")
@common(seeded=False)
def problems(**options: Any) -> None:
    """List the built-in problems and their parameters, or one problem in detail."""
    from evenhand.cli.commands.problems import run

    run(**options)


@application.command()
@model_argument
@budget_option()
@initial_option
@welfare_option
@criterion_option
@over_option
@backend_option("blocks of a large model in Parquet are computed")
@common(seeded=False)
def check(**options: Any) -> None:
    """Summarise MODEL, and report what looks odd.

    MODEL is a model file (.toml, .json, .npz, .parquet) or a built-in problem. Faults end with exit code 2, all of
    them with their place. Oddities are notes: names that are there twice, actions that no budget allows, states
    that are never reached, arms that gain nothing by being served, budgets that never bind, floors that cannot be met,
    ...
    """
    from evenhand.cli.commands.check import run

    run(**options)


@application.command()
@model_argument
@budget_option(several=True)
@initial_option
@welfare_option
@criterion_option
@over_option
@click.option(
    "--method",
    default="auto",
    show_default=True,
    metavar="M",
    help="counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid.",
)
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    metavar="POLICY",
    help="Let this policy (saved or named) compete with those of the method fluid; repeatable.",
)
@click.option(
    "--tolerance", type=float, help="Relative gap to stop at; by default 1e-8, for a large model in Parquet 1e-4."
)
@click.option(
    "--seconds",
    type=float,
    metavar="S",
    help="Time limit of the method fluid; by default until nothing is gained.",
)
@click.option(
    "--redraw-every",
    type=int,
    metavar="K",
    help="Draw the policy of a mixture anew every K steps, not once at the start; both are reported.",
)
@draws_option
@click.option(
    "--robust",
    type=float,
    metavar="Q",
    help="Of a fitted model: maximise the mean of the worst share Q of the scenarios (0.1), and report its cost. "
    "Takes the time of many plans, on top of --seconds.",
)
@backend_option("policies are simulated, draws evaluated, and blocks of a large model in Parquet solved")
@click.option("--out", metavar="POLICY", help="Save the policy; `evenhand evaluate MODEL POLICY` plays it.")
@common()
def solve(**options: Any) -> None:
    """Find the best policy for MODEL, with a certificate: welfare, upper bound, gap.

    MODEL is a model file (.toml, .json, .npz, .parquet) or a built-in problem (see `evenhand problems`). With several
    --budget, a table: the welfare under each, and what the step from one to the next is worth. Of a model in
    Parquet with more than 100,000 rows, or with --out FILE.parquet, the fair relaxation is solved: its bound, and a
    plan in Parquet.
    """
    from evenhand.cli.commands.solve import run

    run(**options)


@application.command()
@model_argument
@budget_option()
@criterion_option
@backend_option("blocks of a large model in Parquet are computed")
@click.option(
    "--out", metavar="FILE.parquet", help="Of a model in Parquet: write the indices, row by row; also a plan for act."
)
@common(seeded=False)
def indices(**options: Any) -> None:
    """Whittle indices and the indexability verdict of each type of arm of MODEL.

    For arms with an idle and one active action. The verdict is a proof, not an assumption. Under finite:T every step
    has indices of its own.
    """
    from evenhand.cli.commands.indices import run

    run(**options)


@application.command()
@model_argument
@budget_option(several=True)
@initial_option
@click.option("--policies", metavar="A,B,...", help="Only these, by name or saved file; by default all that apply.")
@welfare_option
@criterion_option
@over_option
@playing
@draws_option
@backend_option("policies are simulated and draws evaluated")
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
@budget_option()
@initial_option
@click.option(
    "--welfare",
    "welfares",
    multiple=True,
    metavar="W",
    help="A welfare, as in solve; repeatable. The mean is always included. By default: utilitarian, the model's "
    "own, gini:2, alpha:1, maximin and leximin.",
)
@criterion_option
@over_option
@click.option("--method", default="auto", show_default=True, metavar="M", help="How plans are found, as in solve.")
@click.option("--seconds", type=float, metavar="S", help="Time limit of all plans together.")
@click.option("--report", metavar="FILE.html", help="Also write it as a page with figures.")
@click.option("--out", metavar="FOLDER", help="Save the plan for each welfare as a file of this folder.")
@common()
def fairness(**options: Any) -> None:
    """Compute the price of fairness: the best plan for each welfare, under all welfares.

    MODEL is a model file (.toml, .json, .npz) or a built-in problem (see `evenhand problems`).
    """
    from evenhand.cli.commands.fairness import run

    run(**options)


@application.command()
@model_argument
@training_settings
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train N times, with the seeds from --seed on; the best network in a held-out evaluation is saved.",
)
@backend_option("the runs of --seeds execute")
@click.option("--out", metavar="POLICY", help="Save the policy; training can then be resumed, too.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted run with the same --out stopped.")
@click.option("--tensorboard", metavar="FOLDER", help="Write TensorBoard's logs there.")
@common(seeded=False)
def train(**options: Any) -> None:
    """Learn a policy for MODEL by trial and error, with count-proportion deep RL.

    For identical arms and discounted rewards. The learner sees only what it plays, never the model's matrices; they
    select the network, if that can be done exactly. The trained policy plays any number of such
    arms with any budget, and needs no torch. With --seeds, a table of all runs. Needs the extra "rl".
    """
    from evenhand.cli.commands.train import run

    run(**options)


@application.command()
@model_argument
@initial_option
@click.argument("policy")
@budget_option()
@welfare_option
@criterion_option
@over_option
@playing
@draws_option
@backend_option("draws are evaluated, and blocks of a large model in Parquet simulated")
@click.option(
    "--values", metavar="FILE.parquet", help="Of a model in Parquet: write the value of each row, with its error."
)
@common()
def evaluate(**options: Any) -> None:
    """Evaluate POLICY on MODEL, arm by arm.

    POLICY is the name of a policy (`evenhand compare` shows them), or a file saved by `evenhand solve --out` or
    `evenhand train --out`.
    """
    from evenhand.cli.commands.evaluate import run

    run(**options)


@application.command()
@click.argument("log")
@fitting
@click.option("--format", type=click.Choice(["csv", "parquet", "json"]), help="What LOG is; needed for -.")
@click.option(
    "--out", metavar="MODEL", help="Write the model (.toml, .json, .npz, .parquet), and what is known of it beside it."
)
@click.option("--report", metavar="FILE.html", help="Also write what the records say as a page with figures.")
@common()
def fit(**options: Any) -> None:
    """Fit a model to LOG: a table with one row an arm and time.

    A row says: at this time this arm was in this state and then got this action; the next row of the arm says where it
    came. LOG is CSV, Parquet, JSON, or - for standard input. All faults are reported with their lines and exit code 2,
    and nothing is written. Needs the extra "data".
    """
    from evenhand.cli.commands.fit import run

    run(**options)


@application.command()
@model_argument
@click.argument("log")
@reading
@budget_option()
@click.option("--policies", metavar="A,B,...", help="What to set beside the records: names, or files of saved plans.")
@welfare_option
@click.option(
    "--criterion", metavar="C", help="Criterion for --policies; by default over the longest record of an arm."
)
@over_option
@click.option(
    "--level", default=0.95, show_default=True, type=float, metavar="P", help="The probability of the intervals."
)
@click.option(
    "--episodes", default=1000, show_default=True, type=click.IntRange(min=1), help="Episodes to play of --policies."
)
@common()
def backtest(**options: Any) -> None:
    """Play the policy of the records in LOG in the MODEL that was fitted to them, and compare it with the records.

    The policy is the shares of actions by type and state, the same at all times. Arms follow it from where they were
    first seen, for as long as they were. A model that the records speak against shows here.
    """
    from evenhand.cli.commands.backtest import run

    run(**options)


@application.command()
@click.argument("plan")
@click.argument("states")
@click.option("--format", type=click.Choice(["csv", "parquet", "json"]), help="What STATES is; needed for -.")
@click.option("--budget", metavar="B,B,...", help="Budget of today; by default that of the plan.")
@click.option(
    "--step", default=0, show_default=True, type=click.IntRange(min=0), help="The step, of a plan made for T steps."
)
@click.option("--part", type=click.IntRange(min=1), help="Part of a mixture; by default drawn by the seed.")
@click.option("--out", metavar="FILE.csv", help="Also write the actions as a table.")
@backend_option("blocks of a large model in Parquet are computed")
@common()
def act(**options: Any) -> None:
    """Decide the present step, arm by arm, with a reason for each.

    PLAN is a file saved by `evenhand solve --out` or `evenhand train --out`. STATES is a table with the columns arm,
    type and state, in any order: CSV, Parquet, JSON, or - for standard input. By a plan for a model in Parquet
    (`evenhand indices --out`) STATES is Parquet in the order of the arms, and the actions go to --out.
    """
    from evenhand.cli.commands.act import run

    run(**options)


@application.command()
@click.argument("plan")
@click.option(
    "--step", default=0, show_default=True, type=click.IntRange(min=0), help="The step, of a plan made for T steps."
)
@common(seeded=False)
def show(**options: Any) -> None:
    """Describe a saved PLAN: the order of service by type, state and action.

    And the dual price of each resource. PLAN is a file saved by `evenhand solve --out` or `evenhand
    train --out`.
    """
    from evenhand.cli.commands.show import run

    run(**options)


@application.command()
@click.argument("programme", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; any other needs --token-file.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes one that is free."
)
@click.option("--token-file", metavar="FILE", help="Let only those in who have a token of this file.")
@click.option("--make-token", type=click.Choice(["read", "write"]), help="Add a token to --token-file, and show it.")
@click.option("--token-name", default="planner", show_default=True, metavar="NAME", help="Who will hold --make-token.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="A name by which browsers know the server; repeatable."
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe a reverse proxy's X-Forwarded-For; repeatable.",
)
@click.option(
    "--rate", default=200.0, show_default=True, type=click.FloatRange(min=0.1), help="Requests a second for a client."
)
@click.option("--keep", metavar="FILE", help="Keep the programme of `evenhand serve demo` in this file.")
@common(seeded=False)
def serve(**options: Any) -> None:
    """Serve PROGRAMME: its API, and a page for planners at /.

    PROGRAMME is the file or the address (postgresql://...) of a programme, or demo for one with made-up data. Only this
    machine can reach it, unless --host says else, which needs --token-file. Needs the extra "service".
    """
    from evenhand.cli.commands.serve import run

    run(**options)


application.add_command(programme)
