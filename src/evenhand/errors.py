"""Exceptions and warnings of the library. Each carries a stable `code`.

::

    EvenhandError
    ├── InvalidInputError (also ValueError)     invalid input; the command line exits with 2
    │   ├── ModelError                          all faults of a model, each with its place
    │   │   └── TableError                      all faults of a table of arms, each with its row
    │   ├── UnknownNameError                    unknown problem, policy or parameter; suggests the nearest name
    │   ├── OutOfDomainError                    a welfare is undefined at these values
    │   ├── NotApplicableError                  this method or policy does not apply to this problem
    │   ├── InfeasibleError                     constraints, such as floors, that contradict each other
    │   ├── NotFoundError                       a programme has no such plan, arm or refit
    │   ├── PolicyError                         a policy violates its contract, or its file is invalid
    │   └── ConflictError                       a programme has changed since; lists the changes
    ├── TooLargeError                           refused before any work because it would not fit; states the size
    ├── UnavailableError                        a database is unreachable, busy or full; nothing was changed
    ├── NotConvergedError                       an iteration ended without its certificate
    ├── ContradictionError                      a result exceeds its proved bound: an error of this library
    ├── ClusterError                            workers are unreachable, or fail repeatedly
    ├── CancelledError                          the caller cancelled the work
    └── MissingExtraError (also ImportError)    an optional package is missing; states the pip command

    NormalisationWarning (a UserWarning)        probabilities that nearly sum to 1 were divided by their sum

Example:
    >>> import evenhand as eh
    >>> try:
    ...     eh.parse_welfare("gni:2", num_arms=3)
    ... except eh.errors.EvenhandError as error:
    ...     print(error.code)
    unknown-name
"""

import copyreg
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to this one; None if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return near[0] if near else None


class EvenhandError(Exception):
    """Base class of the errors of this library."""

    code = "error"
    """Stable name of the kind of error, in kebab-case; a raise site may state a narrower one."""

    argument = ""
    """Argument the error is about, if it is about one."""

    def __init__(self, *parts: object, code: str = "", argument: str = "") -> None:
        super().__init__(*parts)
        if code:
            self.code = code
        if argument:
            self.argument = argument

    def __reduce__(self) -> tuple[object, ...]:
        # Without __init__, whose arguments are not those of the exception: errors of workers are pickled.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Fault:
    """One fault of an input."""

    place: str
    """Place as in the file: `arms[2].transitions[0][1]`; empty for the whole."""

    message: str
    """Description of the fault."""

    line: int | None = None
    """Line of the file, from 1, if known."""

    words: str = ""
    """Place by the names of the model, `arm "Ford", state "poor"`; empty if it has none."""

    stands_for: int = 1
    """Number of faults it represents: 314 for `... and 314 more`."""

    code: str = "invalid"
    """Stable name of the kind of fault, in kebab-case."""

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        if self.words:
            return f"{self.words}{line}: {self.message}"
        return f"{self.place}: {self.message}{line}" if self.place else self.message + line

    def within(self, outer: str) -> "Fault":
        """Return the same fault with its place inside another, e.g. `within("arms[2]")`."""
        joint = "" if not self.place or self.place.startswith("[") else "."
        return replace(self, place=f"{outer}{joint}{self.place}", words="")


def shortened(faults: Sequence[Fault], shown: int, number: int | None = None) -> list[Fault]:
    """Return the first of many faults, followed by one that counts the rest.

    Args:
        faults: all faults, or at least as many as are shown.
        shown: number of faults to list.
        number: total number of faults; by default that of the faults given.
    """
    total = sum(fault.stands_for for fault in faults) if number is None else number
    first = list(faults[:shown])
    left = total - sum(fault.stands_for for fault in first)
    return [*first, Fault("", f"... and {left:,} more", stands_for=left, code="more")] if left > 0 else first


class InvalidInputError(EvenhandError, ValueError):
    """Invalid input. Several faults are listed in `faults`."""

    code = "invalid-input"
    faults: tuple[Fault, ...] = ()


class ModelError(InvalidInputError):
    """Invalid model, with all its faults in `faults`."""

    code = "invalid-model"

    def __init__(self, faults: Sequence[Fault], source: str = "", *, code: str = "", argument: str = "") -> None:
        self.faults = tuple(faults)
        self.source = source
        number = sum(fault.stands_for for fault in self.faults)
        count = f"{number:,} fault{'s' if number != 1 else ''}"
        title = f"{source}: {count}" if source else f"the model has {count}"
        message = "\n".join([title, *(f"  {fault}" for fault in self.faults)])
        super().__init__(message, code=code, argument=argument)


class TableError(ModelError):
    """Invalid table of arms, with all its faults in `faults`."""

    code = "invalid-table"


class UnknownNameError(InvalidInputError):
    """Unknown name, with the nearest known ones."""

    code = "unknown-name"

    def __init__(self, kind: str, name: str, known: Iterable[str], more: str = "") -> None:
        names = sorted(known)
        near = nearest(name, names)
        hint = f"Did you mean '{near}'? " if near else ""
        message = f"unknown {kind} '{name}'. {hint}Known: {', '.join(names) or 'none'}.{more}"
        super().__init__(message, argument=kind)


class OutOfDomainError(InvalidInputError):
    """Welfare that is undefined at these values."""

    code = "out-of-domain"


class NotApplicableError(InvalidInputError):
    """Method or policy that does not apply to this problem."""

    code = "not-applicable"


class InfeasibleError(InvalidInputError):
    """Contradictory constraints: of a linear program, or floors beyond the budget."""

    code = "infeasible"


class PolicyError(InvalidInputError):
    """Policy that violates its contract: wrong shape, unknown action, or more than the budget."""

    code = "invalid-policy"


class NotFoundError(InvalidInputError):
    """Unknown name or number in a programme."""

    code = "not-found"


class ConflictError(InvalidInputError):
    """Request made for an earlier state of a programme, with all changes in `faults`."""

    code = "conflict"

    def __init__(self, title: str, faults: Sequence[Fault] = (), *, code: str = "") -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([title, *(f"  {fault}" for fault in self.faults)]), code=code)


class UnavailableError(EvenhandError):
    """Database that does not respond. Nothing was changed; the request may be repeated."""

    code = "unavailable"


class TooLargeError(EvenhandError):
    """Problem that would not fit, refused before any work."""

    code = "too-large"


class NotConvergedError(EvenhandError):
    """No certificate within the limits; no partial result is returned."""

    code = "not-converged"


class ContradictionError(EvenhandError):
    """Welfare above its proved bound by more than chance and rounding explain."""

    code = "contradiction"


class ClusterError(EvenhandError):
    """Work on other processes or machines that cannot continue; no partial result is returned."""

    code = "cluster-error"


class CancelledError(EvenhandError):
    """Work cancelled by its caller."""

    code = "cancelled"


class MissingExtraError(EvenhandError, ImportError):
    """Missing optional package."""

    code = "missing-extra"

    def __init__(self, feature: str, extra: str = "", package: str = "") -> None:
        needed = f"the extra {extra} of evenhand" if extra else "an optional package"
        super().__init__(f"{feature} needs {needed}: pip install {_requirements(extra) if extra else package}")


def _requirements(extra: str) -> str:
    """Return what an extra requires, by the metadata of the installation, so that no index must have evenhand."""
    from importlib import metadata  # takes long to load

    marked = re.compile(rf"([^;]+?)\s*;\s*extra == ['\"]{extra}['\"]")
    try:
        found = [match[1] for line in metadata.requires("evenhand") or () if (match := marked.fullmatch(line))]
    except metadata.PackageNotFoundError:  # the sources are on the path, and evenhand is not installed
        found = []
    return " ".join(f"'{name}'" for name in found) or f"'.[{extra}]'  (in its sources)"


class NormalisationWarning(UserWarning):
    """Rows of probabilities that nearly summed to 1, as thirds written 0.3333333, and were divided by their sums."""

    def __init__(self, rows: Sequence[Fault], source: str = "") -> None:
        self.rows = tuple(rows)
        number, more = (f"{len(rows)} rows", f"; and {len(rows) - 1} more") if len(rows) > 1 else ("one row", "")
        message = f"{number} of probabilities did not quite sum to 1, divided by the sum: {rows[0]}{more}"
        super().__init__(f"{source}: {message}" if source else message)
