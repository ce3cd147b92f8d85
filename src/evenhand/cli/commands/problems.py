"""`evenhand problems`."""

import shlex
from typing import Any

import click

from evenhand.cli.console import print_json, print_table
from evenhand.cli.reading import read_parameters
from evenhand.errors import InvalidInputError
from evenhand.model.io import save
from evenhand.problems import catalog


def run(name: str | None, parameters: tuple[str, ...], out: str | None, as_json: bool, quiet: bool) -> None:
    """List problems, show one, or write one as a model file."""
    if (name is None and (parameters or out is not None)) or (parameters and out is None):
        raise InvalidInputError(
            "-p and --out go together, with the name of a problem: evenhand problems NAME -p KEY=VALUE --out FILE"
        )
    entries = [catalog.find(name)] if name else list(catalog.CATALOG)
    written = None
    if name and out is not None:
        save(catalog.build(name, read_parameters(parameters)), out)
        written = out
    if as_json:
        print_json({"problems": [_as_dict(entry) for entry in entries], "written": written})
    elif written:
        click.echo(f"written to {written}; try: evenhand compare {shlex.quote(written)}")
    else:
        for entry in entries:
            _show(entry)
        click.echo("Use one as MODEL:  evenhand compare machine-replacement -p num_arms=5 -p budget=1")


def _as_dict(entry: catalog.Entry) -> dict[str, Any]:
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


def _type_name(parameter: catalog.Parameter) -> str:
    return str(getattr(parameter.type, "__name__", parameter.type))


def _show(entry: catalog.Entry) -> None:
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
