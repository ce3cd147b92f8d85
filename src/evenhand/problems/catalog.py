"""The built-in problems by name, and their parameters as text.

A factory is the only description of its problem: names, types and defaults of the parameters come from its
signature, choices from its Literal annotations, and the help from the Args of its docstring.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from evenhand.checks import Faults
from evenhand.display import argument_helps
from evenhand.errors import ModelError, TooLargeError, UnknownNameError, nearest
from evenhand.model.coupled import CoupledMDP
from evenhand.problems.crew_and_parts import crew_maintenance
from evenhand.problems.health_outreach import health_outreach
from evenhand.problems.literature import (
    bayesian_bandit,
    eight_states,
    equitable,
    non_indexable,
    non_sa,
    three_machines,
    three_states,
)
from evenhand.problems.machine_replacement import heterogeneous_machine_replacement, machine_replacement
from evenhand.problems.random_arms import random_coupled

_WORDS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter of a problem."""

    name: str
    """As in Python, with underscores."""

    type: type
    """int, float, bool or str: what a value is."""

    default: object
    """Default value."""

    choices: tuple[object, ...]
    """The only possible values, or empty."""

    optional: bool
    """True if it may be none."""

    help: str
    """One line on what it means."""

    def read(self, value: object) -> object:
        """Turn text into a value; what cannot be read comes back as it is, for the factory to report."""
        if not isinstance(value, str):
            return value
        text = value.strip()
        if self.optional and text.lower() == "none":
            return None
        if self.choices:
            return next((choice for choice in self.choices if str(choice) == text), value)
        if self.type is bool:
            return _WORDS.get(text.lower(), value)
        return _number(text, self.type, value) if self.type in (int, float) else value


@dataclass(frozen=True)
class Entry:
    """One built-in problem."""

    name: str
    """Name on the command line."""

    factory: Callable[..., CoupledMDP]
    """Function that builds it; checks its own parameters and reports all their faults at once."""

    @property
    def summary(self) -> str:
        """One line on what the problem is."""
        return (inspect.getdoc(self.factory) or "").partition("\n")[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of the factory's signature."""
        hints, helps = get_type_hints(self.factory), argument_helps(self.factory)
        return tuple(
            Parameter(name, *_kind(hints[name], argument.default), help=helps.get(name, ""))
            for name, argument in inspect.signature(self.factory).parameters.items()
        )


CATALOG: tuple[Entry, ...] = (
    Entry("machine-replacement", machine_replacement),
    Entry("heterogeneous-machine-replacement", heterogeneous_machine_replacement),
    Entry("random", random_coupled),
    Entry("health-outreach", health_outreach),
    Entry("crew-maintenance", crew_maintenance),
    Entry("three-states", three_states),
    Entry("eight-states", eight_states),
    Entry("non-sa", non_sa),
    Entry("non-indexable", non_indexable),
    Entry("equitable", equitable),
    Entry("three-machines", three_machines),
    Entry("bayesian-bandit", bayesian_bandit),
)
"""Every built-in problem, in the order in which they are listed."""


def names() -> tuple[str, ...]:
    """The names of the built-in problems.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.names()[0]
        'machine-replacement'
    """
    return tuple(entry.name for entry in CATALOG)


def find(name: str) -> Entry:
    """The built-in problem of this name; raises UnknownNameError with the nearest one if there is none.

    Args:
        name: which problem.

    Example:
        >>> import evenhand as eh
        >>> [parameter.name for parameter in eh.problems.find("machine-replacement").parameters][:2]
        ['num_arms', 'num_states']
    """
    for entry in CATALOG:
        if entry.name == name:
            return entry
    raise UnknownNameError("problem", name, names())


def build(name: str, parameters: Mapping[str, object] | None = None) -> CoupledMDP:
    """Build a built-in problem.

    Args:
        name: which problem, e.g. `machine-replacement`.
        parameters: values by name, as text or as they are; `num_arms` and `num-arms` are the same name.

    Raises:
        UnknownNameError: the problem is unknown.
        ModelError: some parameters are unknown, of the wrong type or out of range; lists all of them.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.build("machine-replacement", {"num-arms": "4", "budget": 2})
        CoupledMDP(4 arms, identical, 1 resource, discount 0.95)
    """
    entry = find(name)
    faults = Faults()
    values = _read(entry, parameters or {}, faults)
    if not faults:
        return entry.factory(**values)
    try:
        entry.factory(**values)
    except ModelError as error:  # what is wrong with the known parameters belongs in the same list
        faults.found.extend(error.faults)
    except TooLargeError:
        pass
    raise ModelError(faults.found, entry.name)


def _read(entry: Entry, parameters: Mapping[str, object], faults: Faults) -> dict[str, object]:
    """Values by the factory's names; unknown and doubled names become faults."""
    known = {parameter.name: parameter for parameter in entry.parameters}
    values: dict[str, object] = {}
    for written, value in parameters.items():
        name = written.strip().replace("-", "_")
        if name not in known:
            faults.add(written, _unknown(name, entry, known))
        elif name in values:
            faults.add(written, "is given twice")
        else:
            values[name] = known[name].read(value)
    return values


def _unknown(name: str, entry: Entry, known: Mapping[str, Parameter]) -> str:
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
    return f"{entry.name} has no such parameter; {hint}"


def _number(text: str, kind: type, otherwise: object) -> object:
    """A number of the kind; `1e6` is a whole number too."""
    try:
        if kind is int and re.fullmatch(r"[+-]?\d+(_\d+)*", text):
            return int(text)
        number = float(text)
    except ValueError:
        return otherwise
    if kind is float:
        return number
    return int(number) if number.is_integer() and abs(number) < 2**53 else otherwise


def _kind(annotation: Any, default: object) -> tuple[type, object, tuple[object, ...], bool]:
    """(type, default, choices, optional) of a parameter with this annotation."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    (kind,) = (option for option in options if option is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return type(choices[0]) if choices else kind, default, choices, len(options) > 1
