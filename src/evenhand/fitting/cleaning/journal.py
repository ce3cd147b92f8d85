"""Findings in records, and effects of rules on them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One kind of oddity in the records, or the effect of one rule."""

    kind: str
    """Stable name, in kebab-case."""

    column: str
    """Role of the column: `state`; empty for rows or the whole table."""

    count: int
    """Number of rows."""

    message: str
    """Description, without the number of rows."""

    examples: tuple[str, ...] = ()
    """Two of them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.__dict__, "examples": list(self.examples)}


@dataclass
class Journal:
    """Findings and effects in the order of their stages; those without rows are left out."""

    findings: list[Finding] = field(default_factory=list)
    effects: list[Finding] = field(default_factory=list)

    def found(self, kind: str, column: str, count: int, message: str, examples: Iterable[Any] = ()) -> None:
        """Add an oddity."""
        if count:
            self.findings.append(Finding(kind, column, count, message, two(examples)))

    def noted(self, kind: str, message: str) -> None:
        """Add an oddity of a whole table."""
        self.findings.append(Finding(kind, "", 0, message))

    def did(self, kind: str, column: str, count: int, message: str, examples: Iterable[Any] = ()) -> None:
        """Add the effect of a rule."""
        if count:
            self.effects.append(Finding(kind, column, count, message, two(examples)))


def two(examples: Iterable[Any]) -> tuple[str, ...]:
    """Return the first two different examples."""
    return tuple(list(dict.fromkeys(map(str, examples)))[:2])
