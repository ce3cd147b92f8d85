"""Arguments of commands as problems, budgets, tables and policies. Heavy modules are imported in the functions."""

import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from evenhand.cli.refusals import OptionError
from evenhand.errors import (
    Fault,
    InvalidInputError,
    ModelError,
    NormalisationWarning,
    NotApplicableError,
    PolicyError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from evenhand.model import CoupledMDP, Policy, StatefulPolicy
    from evenhand.model.io import Format, Loaded
    from evenhand.model.io.text_table import Table, TableFormat
    from evenhand.model.parquet import StoredArms

DASH = "-"
"""Standard input in the place of a file."""

SUFFIXES = (".toml", ".json", ".npz", ".parquet")
"""Suffixes of model files."""

TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".ods")
"""Suffixes of tables."""

_STANDARD_INPUT = "evenhand.standard_input"
"""Key of the context for the argument that reads standard input: it can be read only once."""


@dataclass(frozen=True)
class ModelSource:
    """MODEL and the options that change it, as they were typed."""

    model: str
    """Name of a file or of a built-in problem, or `-`."""

    parameters: tuple[str, ...] = ()
    """KEY=VALUE texts, of a built-in problem."""

    format: "Format | None" = None
    """Kind of file; by default from its name."""

    budgets: tuple[str, ...] = ()
    """Budgets in place of the model's."""

    spend: str | None = None
    """Rule of spending in place of the model's."""

    initial: str | None = None
    """Table of initial states."""

    criterion: str | None = None
    """Criterion in place of the model's."""

    over: Any = None
    """Members of welfare in place of the model's."""

    @property
    def title(self) -> str:
        """Name of the model in titles."""
        return called(self.model)

    def load(self) -> "Loaded":
        """Read the model as it is stored, without the options that change it; with its normalised rows."""
        from evenhand.model.io import FORMATS, Loaded, load_noting
        from evenhand.problems import catalog

        model, names = self.model, catalog.names()
        if not model:
            raise OptionError("MODEL", "expected a model file or the name of a problem, got nothing")
        if model in names:
            if self.format is not None:
                raise InvalidInputError(f"--format is the kind of a model file; {model} is a built-in problem")
            return Loaded(catalog.build(model, read_parameters(self.parameters)), name=model)
        exists = Path(model).exists()
        if self.format is None and not exists and model != DASH and not model.endswith(SUFFIXES):
            there = [model + suffix for suffix in SUFFIXES if Path(model + suffix).is_file()]
            files = f"There is a file {there[0]}." if there else f"Or give a file ({', '.join(SUFFIXES)})."
            raise InvalidInputError(f"{UnknownNameError('problem', model, names)} {files}")
        if self.format is None and exists and Path(model).suffix.lower() in TABLES:
            fault = (
                f"{model}: a table, not a model ({', '.join(SUFFIXES)}). To fit a model to records of arms over time:"
            )
            columns = "--arm COLUMN --time COLUMN --state COLUMN --action COLUMN"
            raise InvalidInputError(f"{fault} evenhand fit {model} {columns} --out MODEL.toml")
        if self.parameters:
            raise InvalidInputError("-p sets parameters of built-in problems; edit the model file instead")
        source = standard_input("MODEL", self.format, FORMATS) if model == DASH else model
        return load_noting(source, self.format, self.criterion)

    def changed(self, loaded: "CoupledMDP") -> "list[CoupledMDP]":
        """Return a loaded problem with each budget, the initial states, the criterion and the members of welfare."""
        problem = start_at(loaded, self.initial).with_criterion(self.criterion, self.over)
        problem = problem if self.spend is None else problem.with_spend("at most")  # until the budget is known
        return [self._spending(one) for one in self._budgeted(problem)]

    def _spending(self, problem: "CoupledMDP") -> "CoupledMDP":
        """Return a problem with the rule of spending that was given, one for all resources or one each."""
        if self.spend is None:
            return problem
        rules = [rule.strip() for rule in self.spend.split(",")]
        try:
            return problem.with_spend(rules[0] if len(rules) == 1 else rules)
        except ModelError as error:
            raise ModelError(error.faults, f"--spend {self.spend}", argument="spend") from None

    def _budgeted(self, problem: "CoupledMDP") -> "list[CoupledMDP]":
        """Return a problem with each budget."""
        if not self.budgets:
            return [problem]
        from evenhand.model.labels import as_key

        own = ("budget", *map(as_key, problem.resource_names))
        if twice := [key for key in read_parameters(self.parameters) if as_key(key) in own]:
            raise OptionError("--budget", f"the budget is also given by -p {twice[0]}=...; give it once")
        found = []
        for text in self.budgets:
            try:
                found.append(problem.with_budget(read_amounts(text)))
            except ModelError as error:
                raise ModelError(error.faults, f"--budget {text}", argument="budget") from None
        return found

    def read_all(self) -> "list[CoupledMDP]":
        """Read the model with each budget; with its own by default. Normalised rows are reported."""
        loaded = self.load()
        if loaded.rows:
            more = "; evenhand check lists them" if len(loaded.rows) > 1 else ""
            click.echo(f"note: {NormalisationWarning(loaded.rows, loaded.name)}{more}", err=True)
        return self.changed(loaded.problem)

    def read(self) -> "CoupledMDP":
        """Read the model, for a command that takes one budget."""
        self.refuse_several()
        return self.read_all()[0]

    def refuse_several(self, options: Mapping[str, object] | None = None) -> None:
        """Refuse several budgets, or with several budgets the options that apply to one.

        Args:
            options: values by option, None if one was not given; by default several budgets themselves are refused.
        """
        if len(self.budgets) < 2:
            return
        if options is None:
            raise OptionError("--budget", "expected one; `evenhand solve` and `evenhand compare` take several")
        refuse_options(f"goes with one --budget, got {len(self.budgets)}", options)

    def opened(self, table: str | None = None) -> "StoredArms | None":
        """Return the opened model if MODEL is in Parquet and is treated block by block; None to read it into memory.

        Args:
            table: a file for results per row, which are those of blocks.
        """
        from evenhand.model.io import is_stored

        if not is_stored(self.model):
            return None
        from evenhand.model.parquet import IN_MEMORY_ROWS, open_arms

        by_row = table is not None and (Path(table).suffix.lower() == ".parquet" or Path(table).is_dir())
        arms = open_arms(self.model, 0 if by_row else IN_MEMORY_ROWS)
        if not arms.is_large:
            return None
        self.refuse_several()
        if self.spend is not None:
            raise OptionError("--spend", "a large model in Parquet spends at most its budget")
        if self.initial is not None:
            raise OptionError("--initial", "for a large model in Parquet write the column initial instead")
        arms = arms.with_criterion(self.criterion, self.over)
        return arms.with_budget(read_amounts(self.budgets[0])) if self.budgets else arms

    def posterior(self) -> str:
        """Return the model file whose posterior is stored beside it; raise OptionError if there is none."""
        from evenhand.fitting.posterior_files import HOW_TO_FIT, posterior_path
        from evenhand.problems import catalog

        if self.model in catalog.names():
            raise OptionError("--draws", f"{self.model} is a built-in problem without a posterior; give a fitted model")
        if self.model == DASH:
            raise OptionError("--draws", "standard input has no posterior; it is stored in a file beside the model")
        if not (beside := posterior_path(self.model)).exists():
            raise OptionError("--draws", f"the posterior {beside} does not exist. {HOW_TO_FIT}")
        return self.model

    def setting(self, problem: "CoupledMDP | StoredArms") -> str:
        """Return the continuation of a title: criterion, members of welfare and budget if they are unusual."""
        from evenhand.report.models import budget_text, setting

        return setting(problem) + (f", budget {budget_text(problem.named_budget)}" if self.budgets else "")

    def words(self, welfare: str | None = None, budgets: bool = True) -> list[str]:
        """Return MODEL and its options as words of a command line.

        Args:
            welfare: welfare to add.
            budgets: whether to add the budgets.
        """
        found = [self.model, *(word for parameter in self.parameters for word in ("-p", parameter))]
        options = {"--welfare": welfare, "--format": self.format, "--criterion": self.criterion, "--over": self.over}
        options |= {"--spend": self.spend}
        found += [word for option, value in options.items() if value is not None for word in (option, value)]
        return found + [word for text in self.budgets if budgets for word in ("--budget", text)]


def called(name: str) -> str:
    """Return the name of an argument in titles."""
    return "standard input" if name == DASH else name


def standard_input(argument: str, format: str | None, formats: Sequence[str]) -> BinaryIO:
    """Return standard input as a binary stream.

    Args:
        argument: the argument in whose place it is read, as the help calls it: MODEL, STATES.
        format: value of --format.
        formats: possible formats.

    Raises:
        OptionError: the format is missing, nothing is piped in, or another argument reads it already.
    """
    if format is None:
        raise OptionError(argument, f"for - (standard input) give --format {' or --format '.join(formats)}")
    if format not in formats:
        raise OptionError("--format", f"{argument} may be {', '.join(formats)}; got {format!r}")
    if sys.stdin is None or sys.stdin.closed:
        raise OptionError(argument, "- is standard input, and there is none")
    if sys.stdin.isatty():
        hint = f"give the name of a file, or pipe one: evenhand ... - --format {format} < FILE"
        raise OptionError(argument, f"- is standard input, and nothing is piped into it; {hint}")
    context = click.get_current_context(silent=True)
    if context is not None and (taken := context.meta.setdefault(_STANDARD_INPUT, argument)) != argument:
        raise OptionError(argument, f"- is standard input, which {taken} takes already; only one of them can")
    return sys.stdin.buffer


def read_states(name: str, format: "TableFormat | None" = None, argument: str = "TABLE") -> "Table":
    """Read a table of texts from a file or standard input.

    Args:
        name: name of a file, or `-`.
        format: its format; by default from its name.
        argument: the argument, as the help calls it.
    """
    from evenhand.model.io.text_table import FORMATS, read_table

    return read_table(standard_input(argument, format, FORMATS) if name == DASH else name, format)


def start_at(problem: "CoupledMDP", initial: str | None) -> "CoupledMDP":
    """Return the problem with the initial states of a table, if there is one; other numbers of arms are reported."""
    if initial is None:
        return problem
    started = problem.with_initial_states(read_states(initial, "csv" if initial == DASH else None, "STATES"))
    before, after = _arms_by_name(problem), _arms_by_name(started)
    changes = [f"{after[name]} {name}, {count} in the model" for name, count in before.items() if after[name] != count]
    if changes:
        click.echo(f"note: {called(initial)} has {'; '.join(changes)}", err=True)
    return started


def _arms_by_name(problem: "CoupledMDP") -> Counter[str]:
    numbers: Counter[str] = Counter()
    names = [label[0] for label in problem.tables.labels] or [""] * len(problem.counts)
    for name, count in zip(names, problem.counts.tolist(), strict=True):
        numbers[name or "arms"] += count
    return numbers


def read_amounts(text: str) -> Any:
    """Read `4,4` or `bays=4`; what is not a number stays text, for the problem to refuse."""
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


def read_parameters(parameters: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a dictionary."""
    if broken := [text for text in parameters if "=" not in text]:
        raise OptionError("-p", f"expected KEY=VALUE, got {', '.join(map(repr, broken))}")
    pairs = [text.split("=", 1) for text in parameters]
    keys = [key.strip().replace("-", "_") for key, _ in pairs]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise OptionError("-p", f"given twice: {', '.join(twice)}")
    return {key.strip(): value.strip() for key, value in pairs}


def check_target(path: str | None, option: str, folders: bool = False) -> None:
    """Refuse, before any work, a file that could not be written.

    Args:
        path: name of the file, or None.
        option: the option.
        folders: whether an existing folder is a target too.
    """
    if path is None or (folders and Path(path).is_dir()):
        return
    if not path or Path(path).is_dir():
        raise OptionError(option, f"expected the name of a file, got {path or 'nothing'}")
    if not Path(path).resolve().parent.is_dir():
        raise OptionError(option, f"the folder of {path} does not exist")


def refuse_options(reason: str, options: Mapping[str, object]) -> None:
    """Refuse options that do not apply.

    Args:
        reason: the reason.
        options: values by option; None if an option was not given.
    """
    for option, value in options.items():
        if value is not None:
            raise OptionError(option, reason)


def read_names(policies: str) -> list[str]:
    """Return names of policies, separated by commas; all unknown ones are reported."""
    from evenhand.planning.policy_registry import find_policy, is_file

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


def read_policy(policy: str, problem: "CoupledMDP", welfare: str | None) -> "Policy | StatefulPolicy":
    """Return a saved or a named policy."""
    from evenhand.planning.plan import load_policy
    from evenhand.planning.plan_file import OtherDynamicsWarning
    from evenhand.planning.policy_registry import find_policy, is_file

    if not is_file(policy):
        return find_policy(policy).build(problem, welfare)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OtherDynamicsWarning)
        found = _load_fitting(policy, problem) if problem.arm_names else load_policy(Path(policy), problem)
    for warning in caught:
        click.echo(f"warning: {policy}: {warning.message}", err=True)
    _report_numbers(policy, found, problem)
    return found


def _report_numbers(file: str, found: "Policy | StatefulPolicy", problem: "CoupledMDP") -> None:
    """Report that a network on counts is used with other numbers than those that it was made for."""
    from evenhand.planning.plan_file import read_contents

    if getattr(found, "any_number", False) is not True:
        return
    try:
        made_for = read_contents(file).problem
    except PolicyError:  # it was trained on a simulator, and carries no problem
        return
    amounts = zip(problem.resource_names, problem.budget.tolist(), made_for.budget.tolist(), strict=True)
    numbers = [("arms", problem.num_arms, made_for.num_arms), *((f"of {name}", *both) for name, *both in amounts)]
    changes = [f"{now:.10g} {what}, made for {then:.10g}" for what, now, then in numbers if now != then]
    if changes:
        click.echo(f"note: {file}: a network on counts plays any number of arms; here {'; '.join(changes)}", err=True)


def _load_fitting(policy: str, problem: "CoupledMDP") -> "Policy | StatefulPolicy":
    """Return a saved policy for the arms of a table: made for just these, or for the same kinds of arms elsewhere."""
    from evenhand.planning.plan import load_plan, load_policy

    with suppress(PolicyError):
        return load_policy(Path(policy), problem)
    try:
        return load_plan(policy).fitted(problem)
    except NotApplicableError as error:
        hint = "Give the name of a policy, or a plan made with the same --initial"
        raise NotApplicableError(f"{error}. {hint}") from None
