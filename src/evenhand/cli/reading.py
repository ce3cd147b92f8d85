"""From what a user typed to a problem."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import click

from evenhand.cli.standard_input import DASH, standard_input
from evenhand.errors import Fault, InvalidInput, Normalised, UnknownName
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import FORMATS, Format, load_noting
from evenhand.model.policy import Policy, Starting
from evenhand.problems import catalog

SUFFIXES = (".toml", ".json", ".npz")


def read_problem(
    model: str,
    parameters: Sequence[str],
    format: Format | None = None,
    criterion: str | None = None,
    over: str | None = None,
) -> CoupledMDP:
    """A model file, standard input, or a built-in problem with its parameters; what was normalised is told.

    Args:
        model: the name of a file or of a problem, or `-`.
        parameters: KEY=VALUE texts, of a built-in problem.
        format: what kind of file it is; by its name when absent.
        criterion: in the place of the model's own.
        over: in the place of the model's own.
    """
    problem, rows = read_noting(model, parameters, format, criterion)
    if rows:
        told = Normalised(rows, called(model))
        click.echo(f"note: {told}{'; evenhand check lists them' if len(rows) > 1 else ''}", err=True)
    return problem.under(criterion, over)


def read_noting(
    model: str, parameters: Sequence[str], format: Format | None, criterion: str | None
) -> tuple[CoupledMDP, list[Fault]]:
    """A problem, and the rows of its file that were normalised."""
    if not model:
        raise InvalidInput("MODEL: expected a model file or the name of a problem, got nothing")
    if model in catalog.names():
        if format is not None:
            raise InvalidInput(f"--format says what kind of file MODEL is; {model} is a built-in problem")
        return catalog.build(model, read_parameters(parameters)), []
    known = format is not None or model.endswith(SUFFIXES) or model == DASH
    if not known and not Path(model).exists():
        there = [model + suffix for suffix in SUFFIXES if Path(model + suffix).is_file()]
        files = f"There is a file {there[0]}." if there else f"Or give a file ({', '.join(SUFFIXES)})."
        raise InvalidInput(f"{UnknownName('problem', model, catalog.names())} {files}")
    if parameters:
        raise InvalidInput("-p sets parameters of built-in problems; edit the model file instead")
    source = standard_input("MODEL", format, FORMATS) if model == DASH else model
    return load_noting(source, format, criterion)


def called(model: str) -> str:
    """What titles call MODEL."""
    return "standard input" if model == DASH else model


def read_names(policies: str) -> list[str]:
    """Names of policies, separated by commas; every unknown one is told."""
    from evenhand.planning.roster import find_policy  # here, for commands that read no policy start in half the time

    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise InvalidInput("--policies: expected names separated by commas, got none")
    faults = []
    for name in names:
        try:
            if not is_file(name):
                find_policy(name)
        except UnknownName as error:
            faults.append(str(error))
    if faults:
        raise InvalidInput("--policies: " + "\n  ".join(faults))
    return names


def is_file(policy: str) -> bool:
    """Whether this means a saved policy rather than the name of one."""
    return Path(policy).exists() or bool(Path(policy).suffix) or "/" in policy


def check_target(path: str | None, option: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if not path or Path(path).is_dir():
        raise InvalidInput(f"{option}: expected the name of a file, got {path or 'nothing'}")
    if not Path(path).resolve().parent.is_dir():
        raise InvalidInput(f"{option}: the folder of {path} does not exist")


def read_parameters(parameters: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary."""
    broken = [text for text in parameters if "=" not in text]
    if broken:
        raise InvalidInput(f"-p: expected KEY=VALUE, got {', '.join(map(repr, broken))}")
    pairs = [text.split("=", 1) for text in parameters]
    keys = [key.strip().replace("-", "_") for key, _ in pairs]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise InvalidInput(f"-p: given twice: {', '.join(twice)}")
    return {key.strip(): value.strip() for key, value in pairs}


def read_policy(policy: str, problem: CoupledMDP, welfare: str) -> Policy | Starting:
    """A saved policy, or one that has a name."""
    from evenhand.planning.networks import OtherDynamics
    from evenhand.planning.roster import find_policy
    from evenhand.planning.saved import load_policy

    if is_file(policy):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", OtherDynamics)
            found = load_policy(Path(policy), problem)
        for warning in told:
            click.echo(f"warning: {policy}: {warning.message}", err=True)
        return found
    return find_policy(policy).build(problem, welfare)
