"""Arguments of commands as problems, budgets and policies. Heavy modules are imported where they are used."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.errors import (
    Fault,
    InvalidInputError,
    ModelError,
    NormalisationWarning,
    NotApplicableError,
    PolicyError,
    UnknownNameError,
)
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import FORMATS, Format, Loaded, load_noting
from evenhand.planning.policy_registry import find_policy, is_file
from evenhand.problems import catalog

if TYPE_CHECKING:
    from evenhand.model.policy import Policy, StatefulPolicy

SUFFIXES = (".toml", ".json", ".npz", ".parquet")


def read_problem(
    model: str,
    parameters: Sequence[str],
    format: Format | None = None,
    budgets: Sequence[str] = (),
    criterion: str | None = None,
    initial: str | None = None,
) -> CoupledMDP:
    """A model file, standard input, or a built-in problem with its parameters; with another budget, where one is given.

    Args:
        model: the name of a file or of a problem, or `-`.
        parameters: KEY=VALUE texts, of a built-in problem.
        format: kind of file; by default from its name.
        budgets: a budget as text, or none.
        criterion: what the model will be solved under, if not its own; it need not have a discount then.
        initial: a table of where the arms are, or none.
    """
    refuse_several(budgets)
    return read_problems(model, parameters, format, budgets, criterion, initial)[0]


def posterior_of(model: str) -> str:
    """Return the model file whose posterior is stored beside it; raise OptionError if there is none.

    Args:
        model: MODEL as it was typed.
    """
    from evenhand.fitting.posterior_files import HOW_TO_FIT, posterior_path

    if model in catalog.names():
        raise OptionError("--draws", f"{model} is a built-in problem without a posterior; draws need a fitted model")
    if model == DASH:
        raise OptionError("--draws", "standard input has no posterior; it is stored in a file beside a fitted model")
    if not (beside := posterior_path(model)).exists():
        raise OptionError("--draws", f"the posterior {beside} does not exist. {HOW_TO_FIT}")
    return model


def refuse_several(budgets: Sequence[str]) -> None:
    """Refuse more budgets than one, where a command answers for one."""
    if len(budgets) > 1:
        raise OptionError("--budget", "this command takes one; `evenhand solve` and `evenhand compare` take several")


def read_problems(
    model: str,
    parameters: Sequence[str],
    format: Format | None,
    budgets: Sequence[str],
    criterion: str | None = None,
    initial: str | None = None,
) -> list[CoupledMDP]:
    """The same model with each of some budgets; with its own by default. Rows that were normalised are reported."""
    loaded = read_noting(model, parameters, format, criterion)
    if loaded.rows:
        more = "; evenhand check lists them" if len(loaded.rows) > 1 else ""
        click.echo(f"note: {NormalisationWarning(loaded.rows, loaded.name)}{more}", err=True)
    return with_budgets(start_at(loaded.problem, initial), parameters, budgets)


def with_budgets(problem: CoupledMDP, parameters: Sequence[str], budgets: Sequence[str]) -> list[CoupledMDP]:
    """The same problem with each of some budgets, given as text; with its own where none is given."""
    if not budgets:
        return [problem]
    from evenhand.model.labels import as_key

    own = ("budget", *map(as_key, problem.resource_names))
    twice = [key for key in read_parameters(parameters) if as_key(key) in own]
    if twice:
        raise OptionError("--budget", f"the budget is also given by -p {twice[0]}=...; give it once")
    found = []
    for text in budgets:
        try:
            found.append(problem.with_budget(read_amounts(text)))
        except ModelError as error:
            raise ModelError(error.faults, f"--budget {text}", argument="budget") from None
    return found


TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".ods")
"""What tables are usually called."""


def read_amounts(text: str) -> Any:
    """`4,4`, or `bays=4`; what is not a number stays text, for the problem to refuse."""
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return [_number(part) for part in parts]
    pairs = [part.rpartition("=") for part in parts]
    keys = [key.strip() for key, _, _ in pairs]
    if not all(keys) or len(set(keys)) < len(keys):
        wanted = "expected NUMBER,NUMBER or NAME=NUMBER,NAME=NUMBER, each name once"
        raise OptionError("--budget", f"{wanted}, got {text!r}")
    return {key: _number(value.strip()) for key, (_, _, value) in zip(keys, pairs, strict=True)}


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def read_noting(model: str, parameters: Sequence[str], format: Format | None, criterion: str | None) -> Loaded:
    """A problem, and what is known of its file."""
    if not model:
        raise OptionError("MODEL", "expected a model file or the name of a problem, got nothing")
    if model in catalog.names():
        if format is not None:
            raise InvalidInputError(f"--format says what kind of file MODEL is; {model} is a built-in problem")
        return Loaded(catalog.build(model, read_parameters(parameters)), name=model)
    known = format is not None or model.endswith(SUFFIXES) or model == DASH
    if not known and not Path(model).exists():
        there = [model + suffix for suffix in SUFFIXES if Path(model + suffix).is_file()]
        files = f"There is a file {there[0]}." if there else f"Or give a file ({', '.join(SUFFIXES)})."
        raise InvalidInputError(f"{UnknownNameError('problem', model, catalog.names())} {files}")
    if format is None and Path(model).suffix.lower() in TABLES and Path(model).exists():
        raise InvalidInputError(
            f"{model}: is a table, and no model (.toml, .json, .npz). Of records of arms over time a model is "
            f"made by evenhand fit {model} --arm COLUMN --time COLUMN --state COLUMN --action COLUMN --out MODEL.toml"
        )
    if parameters:
        raise InvalidInputError("-p sets parameters of built-in problems; edit the model file instead")
    source = standard_input("MODEL", format, FORMATS) if model == DASH else model
    return load_noting(source, format, criterion)


def start_at(problem: CoupledMDP, initial: str | None) -> CoupledMDP:
    """Return the problem with the initial states of a table, if there is one; other numbers of arms are reported."""
    if initial is None:
        return problem
    from evenhand.model.io.text_table import FORMATS, read_table  # here, for most commands read no table

    table = read_table(standard_input("STATES", "csv", FORMATS) if initial == DASH else initial)
    started = problem.with_initial_states(table)
    before, after = _arms_by_name(problem), _arms_by_name(started)
    changes = [f"{after[name]} {name}, {count} in the model" for name, count in before.items() if after[name] != count]
    if changes:
        click.echo(f"note: {called(initial)} has {'; '.join(changes)}", err=True)
    return started


def _arms_by_name(problem: CoupledMDP) -> Counter[str]:
    numbers: Counter[str] = Counter()
    for block, count in enumerate(problem.counts.tolist()):
        name = problem.tables.labels[block][0] if problem.tables.labels else ""
        numbers[name or "arms"] += count
    return numbers


def called(model: str) -> str:
    """Return the name of MODEL in titles."""
    return "standard input" if model == DASH else model


def read_names(policies: str) -> list[str]:
    """Return names of policies, separated by commas; all unknown ones are reported."""
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise OptionError("--policies", "expected names separated by commas, got none")
    faults = []
    for name in names:
        try:
            if not is_file(name):
                find_policy(name)
        except UnknownNameError as error:
            faults.append(Fault("", str(error)))
    if faults:
        raise ModelError(faults, "--policies")
    return names


def check_target(path: str | None, option: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if not path or Path(path).is_dir():
        raise OptionError(option, f"expected the name of a file, got {path or 'nothing'}")
    if not Path(path).resolve().parent.is_dir():
        raise OptionError(option, f"the folder of {path} does not exist")


def read_parameters(parameters: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary."""
    broken = [text for text in parameters if "=" not in text]
    if broken:
        raise OptionError("-p", f"expected KEY=VALUE, got {', '.join(map(repr, broken))}")
    pairs = [text.split("=", 1) for text in parameters]
    keys = [key.strip().replace("-", "_") for key, _ in pairs]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise OptionError("-p", f"given twice: {', '.join(twice)}")
    return {key.strip(): value.strip() for key, value in pairs}


def read_policy(policy: str, problem: CoupledMDP, welfare: str | None) -> "Policy | StatefulPolicy":
    """A saved policy, or one that has a name."""
    from evenhand.planning.plan import load_policy
    from evenhand.planning.plan_file import OtherDynamicsWarning

    if is_file(policy):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", OtherDynamicsWarning)
            found = _load_fitting(policy, problem) if problem.arm_names else load_policy(Path(policy), problem)
        for warning in caught:
            click.echo(f"warning: {policy}: {warning.message}", err=True)
        _report_numbers(policy, found, problem)
        return found
    return find_policy(policy).build(problem, welfare)


def _report_numbers(file: str, found: "Policy | StatefulPolicy", problem: CoupledMDP) -> None:
    """Report that a network on counts is used with other numbers than those that it was made for."""
    from evenhand.planning.plan_file import read_contents

    if getattr(found, "any_number", False) is not True:
        return
    try:
        made_for = read_contents(file).problem
    except PolicyError:  # it was trained on a simulator, and carries no problem
        return
    changes = (
        [f"{problem.num_arms} arms, made for {made_for.num_arms}"] if problem.num_arms != made_for.num_arms else []
    )
    amounts = zip(problem.resource_names, problem.budget.tolist(), made_for.budget.tolist(), strict=True)
    changes += [f"{now:.10g} of {name}, made for {then:.10g}" for name, now, then in amounts if now != then]
    if changes:
        click.echo(f"note: {file}: a network on counts plays any number of arms; here {'; '.join(changes)}", err=True)


def _load_fitting(policy: str, problem: CoupledMDP) -> "Policy | StatefulPolicy":
    """A saved policy on the arms of a table: made for just these, or for the same kinds of arms elsewhere."""
    from evenhand.planning.plan import load_plan, load_policy

    try:
        return load_policy(Path(policy), problem)
    except PolicyError:
        pass
    try:
        return load_plan(policy).fitted(problem)
    except NotApplicableError as error:
        raise NotApplicableError(
            f"{error}. Give the name of a policy, or a plan made with the same --initial"
        ) from None


def budget_suffix(problem: CoupledMDP, budgets: Sequence[str]) -> str:
    """Return the continuation of a title if the budget is not the model's own."""
    from evenhand.report.results import budget_text

    return "" if not budgets else f", budget {budget_text(problem.named_budget)}"


def refuse_with_several(budgets: Sequence[str], options: Mapping[str, object]) -> None:
    """Refuse options that apply to a single budget only.

    Args:
        budgets: values of --budget.
        options: values by option; None if an option was not given.
    """
    for option, value in options.items():
        if len(budgets) > 1 and value is not None:
            raise OptionError(option, f"goes with one --budget, and here are {len(budgets)}")
