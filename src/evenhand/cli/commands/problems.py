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
def command(name: str | None, parameters: tuple[str, ...], out: str | None, run: RunOptions) -> None:
    """List the built-in problems and their parameters, or one problem in detail."""
    if (name is None and (parameters or out is not None)) or (parameters and out is None):
        raise InvalidInputError(
            "-p and --out go together, with the name of a problem: evenhand problems NAME -p KEY=VALUE --out FILE"
        )
    from evenhand.cli.console import print_json
    from evenhand.model.io import save
    from evenhand.problems import catalog

    entries = [catalog.find(name)] if name else list(catalog.CATALOG)
    if name and out is not None:
        save(catalog.build(name, read_parameters(parameters)), out)
    if run.as_json:
        print_json({"problems": [_as_dict(entry) for entry in entries], "written": out})
    elif out:
        click.echo(f"written to {out}; try: evenhand compare {shlex.quote(out)}")
    else:
        for entry in entries:
            _show(entry)
        click.echo("Use one as MODEL:  evenhand compare machine-replacement -p num_arms=5 -p budget=1")


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

    rows = [
        (
            parameter.name,
            "-" if parameter.default is None else str(parameter.default),
            " | ".join(str(choice) for choice in parameter.choices) or _type_name(parameter),
            parameter.help,
        )
        for parameter in entry.parameters
    ]
    columns = [("parameter", "left"), ("default", "left"), ("values", "left"), ("meaning", "left")]
    print_table(f"{entry.name}: {entry.summary}", columns, rows)
