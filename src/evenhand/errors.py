"""What can go wrong, as a tree.

EvenhandError
├── InvalidInput (also ValueError)   the user's input is wrong; the command line exits with 2
│   ├── ModelError                   a model's faults, all of them, each with its place
│   │   └── TableError               those of a table of arms, each with its row
│   ├── UnknownName                  no such problem, policy, parameter; says what was probably meant
│   ├── OutOfDomain                  a welfare asked of values outside its domain
│   ├── NotApplicable                this method or policy does not apply to this problem
│   ├── Infeasible                   constraints, such as floors, that cannot all be met
│   ├── Missing                      a programme has no such plan, arm or refit
│   ├── PolicyError                  a policy acted outside the rules, or its file is not sound
│   └── Conflict                     a programme has moved on since; says what changed
├── TooLarge                         it would not fit; says how large, and what to use instead
├── Unavailable                      a database cannot be reached, is busy, or has no room; nothing was changed
├── NotConverged                     an iteration ended without its certificate
├── Contradiction                    a result lies beyond its own proof: an error of this library, to be reported
├── ClusterError                     workers cannot be reached, run another version, or die again and again
├── Cancelled                        the work was cancelled by who asked for it
└── MissingExtra (also ImportError)  an optional package is absent; says how to install it

And what is told, though it goes on:

Normalised (a UserWarning)           probabilities that nearly sum to 1 were divided by their sum
CompiledAnew (a UserWarning)         code compiled earlier cannot be used, or what is compiled cannot be kept
OneThread (a UserWarning)            this version of Numba can be used by one thread only
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return near[0] if near else None


class EvenhandError(Exception):
    """Everything this library raises on purpose."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input."""

    place: str
    """Where, in the words of the file: `arms[2].transitions[0][1]`; empty for the whole."""

    message: str
    """What is wrong there."""

    line: int | None = None
    """The line of the file, counted from 1, where that is known."""

    words: str = ""
    """The place by the names of the model, `arm "Ford", state "poor"`; empty where it has none."""

    stands_for: int = 1
    """How many faults it tells of: `... and 314 more` tells of 314."""

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        if self.words:
            return f"{self.words}{line}: {self.message}"
        return f"{self.place}: {self.message}{line}" if self.place else self.message + line

    def within(self, outer: str) -> "Fault":
        """The same fault seen from the outside, e.g. `within("arms[2]")`."""
        joint = "" if not self.place or self.place.startswith("[") else "."
        return replace(self, place=f"{outer}{joint}{self.place}", words="")


def shortened(faults: Sequence[Fault], shown: int, number: int | None = None) -> list[Fault]:
    """The first of very many faults, and one that tells how many more there are.

    Args:
        faults: all of them, or as many as there is any use for.
        shown: how many are told one by one.
        number: how many there are in all; those that are given when absent.
    """
    total = sum(fault.stands_for for fault in faults) if number is None else number
    told = list(faults[:shown])
    left = total - sum(fault.stands_for for fault in told)
    return [*told, Fault("", f"... and {left:,} more", stands_for=left)] if left > 0 else told


class InvalidInput(EvenhandError, ValueError):
    """The input is wrong, and the message says how. Where that is several things, they are in `faults`, too."""

    faults: tuple[Fault, ...] = ()


class ModelError(InvalidInput):
    """A model is not sound. All its faults are in `faults`."""

    def __init__(self, faults: Sequence[Fault], source: str = "") -> None:
        self.faults = tuple(faults)
        self.source = source
        number = sum(fault.stands_for for fault in self.faults)
        count = f"{number:,} fault{'s' if number != 1 else ''}"
        title = f"{source}: {count}" if source else f"the model has {count}"
        super().__init__("\n".join([title, *(f"  {fault}" for fault in self.faults)]))


class TableError(ModelError):
    """A table of arms is not sound. All its faults are in `faults`."""


class UnknownName(InvalidInput):
    """A name nobody knows, with the nearest known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], more: str = "") -> None:
        names = sorted(known)
        near = nearest(name, names)
        hint = f"Did you mean '{near}'? " if near else ""
        super().__init__(f"unknown {kind} '{name}'. {hint}Known: {', '.join(names) or 'none'}.{more}")


class OutOfDomain(InvalidInput):
    """A welfare is not defined at these values."""


class NotApplicable(InvalidInput):
    """A method or policy that cannot treat this problem."""


class Infeasible(InvalidInput):
    """Constraints that contradict each other: of a linear program, or floors that the budget does not reach."""


class PolicyError(InvalidInput):
    """A policy broke the rules: wrong shape, no such action, or more than the budget."""


class Missing(InvalidInput):
    """A programme has nothing of this name or number."""


class Conflict(InvalidInput):
    """A programme is no longer what the request was made for. All that changed is in `faults`."""

    def __init__(self, title: str, faults: Sequence[Fault] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([title, *(f"  {fault}" for fault in self.faults)]))


class Unavailable(EvenhandError):
    """A programme's database does not answer now. What was asked for has not been done; it may be asked again."""


class TooLarge(EvenhandError):
    """Refused before any work, because it would not fit."""


class NotConverged(EvenhandError):
    """No certificate within the limits; nothing half-done is returned."""


class Contradiction(EvenhandError):
    """A welfare lies above its proved bound by more than chance and rounding explain: one of the two is wrong."""


class ClusterError(EvenhandError):
    """Work on other processes or machines cannot go on; nothing half-done is returned."""


class Cancelled(EvenhandError):
    """The work was cancelled by who asked for it."""


class MissingExtra(EvenhandError, ImportError):
    """An optional package is needed here."""

    def __init__(self, feature: str, extra: str = "", package: str = "") -> None:
        command = f"pip install 'evenhand[{extra}]'" if extra else f"pip install {package}"
        super().__init__(f"{feature} needs an optional package: {command}")


class Normalised(UserWarning):
    """Rows of probabilities did not quite sum to 1, as thirds written 0.3333333, and were divided by their sums."""

    def __init__(self, rows: Sequence[Fault], source: str = "") -> None:
        self.rows = tuple(rows)
        several = len(rows) > 1
        number, done = (
            (f"{len(rows)} rows", "were divided by their sums") if several else ("one row", "was divided by its sum")
        )
        more = f"; and {len(rows) - 1} more" if several else ""
        told = f"{number} of probabilities did not quite sum to 1, and {done}: {rows[0]}{more}"
        super().__init__(f"{source}: {told}" if source else told)


class OneThread(UserWarning):
    """Compiled loops use one thread, since this version of Numba is not known here. Results are the same."""


class CompiledAnew(UserWarning):
    """Compiled code is made again: what was kept is damaged, or there is no place to keep it. Results are the same."""
