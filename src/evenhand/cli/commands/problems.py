"""`evenhand problems`."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import read_parameters
from evenhand.cli.options import RunOptions, option, run_options
from evenhand.errors import InvalidInputError

if TYPE_CHECKING:
    from evenhand.problems import catalog


@click.command("problems")
@click.argument("name", required=False)
@option("-p parameters", "KEY=VALUE", "A parameter of the problem, with --out.", multiple=True)
@option("--out", "FILE", "Write it as a model file (.toml, .json, .npz, .parquet) to start from.")
@run_options(seeded=False)
def command(name: str | None, parameters: tuple[str, ...], run: RunOptions) -> None:
    """List the built-in problems and their parameters, or one problem in detail."""
    out = run.out
    if (name is None and (parameters or out is not None)) or (parameters and out is None):
        usage = "evenhand problems NAME -p KEY=VALUE --out FILE"
        raise InvalidInputError(f"-p and --out go together, with the name of a problem: {usage}")
    from evenhand.model.io import save
    from evenhand.problems import catalog

    entries = [catalog.find(name)] if name else list(catalog.CATALOG)
    if name and out is not None:
        save(catalog.build(name, read_parameters(parameters)), out)
    for entry in [] if run.as_json or out else entries:
        _show(entry)
    use = "Use one as MODEL:  evenhand compare machine-replacement -p num_arms=5 -p budget=1"
    written = f"written to {out}; try: evenhand compare {shlex.quote(out)}" if out else use
    run.say({"problems": [_as_dict(entry) for entry in entries], "written": out}, written)


def _as_dict(entry: "catalog.Entry") -> dict[str, Any]:
    parameters = [
        {
            "name": parameter.name,
            "type": _type_name(parameter),
            "default": parameter.default,
            "choices": list(parameter.choices),
            "help": parameter.help,
        }
        for parameter in entry.parameters
    ]
    return {"name": entry.name, "summary": entry.summary, "parameters": parameters}


def _type_name(parameter: "catalog.Parameter") -> str:
    return str(getattr(parameter.type, "__name__", parameter.type))


def _show(entry: "catalog.Entry") -> None:
    from evenhand.cli.console import print_table
    from evenhand.report.summary import table

    rows = []
    for parameter in entry.parameters:
        values = " | ".join(map(str, parameter.choices)) or _type_name(parameter)
        rows.append(
            [parameter.name, "-" if parameter.default is None else str(parameter.default), values, parameter.help]
        )
    heads = ["parameter", "default", "values", "meaning"]
    print_table(table("", heads, rows, text=heads), f"{entry.name}: {entry.summary}")
