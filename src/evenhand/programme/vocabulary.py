"""The words and the calendar of a programme: patient for arm, clinic for group, "week of 29 June" for step 3.

The library has its own terms; page, reports, tables and commands of a programme use its vocabulary.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, timedelta
from typing import Any, Self

from sqlalchemy import Connection

from evenhand.errors import Fault, InvalidInputError
from evenhand.programme.ledger import Result
from evenhand.programme.settings import setting

PERIODS = {"day": (0, 1), "week": (0, 7), "month": (1, 0), "quarter": (3, 0), "year": (12, 0)}
"""Lengths of a step in the calendar: months and days."""


@dataclass(frozen=True)
class Noun:
    """A noun in singular and plural."""

    one: str
    many: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Read "patient", or "person, people" if the plural is irregular."""
        one, _, many = (part.strip() for part in text.partition(","))
        return cls(one, many or _plural(one))

    def __str__(self) -> str:
        return self.one if self.many == _plural(self.one) else f"{self.one}, {self.many}"

    def counted(self, number: float) -> str:
        """Return a number with the noun: "1 patient", "3 patients"."""
        return f"{number:,g} {self.one if number == 1 else self.many}"


def _plural(one: str) -> str:
    if one.endswith(("s", "x", "ch", "sh")):
        return one + "es"
    return one[:-1] + "ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else one + "s"


@dataclass(frozen=True)
class Vocabulary(Result):
    """Words and calendar of a programme."""

    arm: Noun = Noun("arm", "arms")
    group: Noun = Noun("group", "groups")
    step: Noun = Noun("step", "steps")
    value: str = "value"
    """Meaning of a reward, for example "weeks on treatment"."""
    resources: dict[str, Noun] = field(default_factory=dict)
    """Nouns by the name of the resource in the model; by default the name itself."""
    start: date | None = None
    """First day of step 0; None without a calendar."""
    period: str | None = None
    """Length of a step in the calendar, one of `PERIODS`."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Vocabulary":
        """Read texts, as typed or stored.

        Args:
            given: fields by name; resources as a table of texts.

        Raises:
            InvalidInputError: with every fault.
        """
        faults: list[Fault] = []
        known = {one.name for one in fields(cls)}
        faults += [Fault(name, f"expected one of {', '.join(sorted(known))}") for name in given if name not in known]

        def noun(name: str, value: object) -> Noun:
            text = value.strip() if isinstance(value, str) else ""
            if not text.strip(",") or len(text) > 80 or not text.isprintable():
                faults.append(Fault(name, f"expected a word of up to 80 characters, got {str(value)[:50]!r}"))
            return Noun.of(text or name)

        found: dict[str, Any] = {name: noun(name, given[name]) for name in ("arm", "group", "step") if given.get(name)}
        if given.get("value"):
            found["value"] = noun("value", given["value"]).one
        resources = given.get("resources") or {}
        found["resources"] = {name: noun(f"resources, {name}", text) for name, text in dict(resources).items()}
        if given.get("period"):
            found["period"] = given["period"]
            if given["period"] not in PERIODS:
                faults.append(Fault("period", f"expected one of {', '.join(PERIODS)}, got {given['period']!r}"))
            elif not given.get("step"):
                found["step"] = Noun.of(given["period"])
        if given.get("start"):
            try:
                found["start"] = date.fromisoformat(str(given["start"]))
            except ValueError:
                faults.append(Fault("start", f"expected a date such as 2026-06-29, got {str(given['start'])[:50]!r}"))
        if bool(given.get("start")) != bool(given.get("period")):
            faults.append(Fault("calendar", "start and period belong together: give both or neither"))
        if faults:
            refusal = InvalidInputError("\n".join(["words:", *(f"  {fault}" for fault in faults)]))
            refusal.faults = tuple(faults)
            raise refusal
        return replace(cls(), **found)

    def to_dict(self) -> dict[str, Any]:
        """Texts that `read` accepts."""
        own = {name: str(getattr(self, name)) for name in ("arm", "group", "step", "value")}
        resources = {name: str(noun) for name, noun in self.resources.items()}
        start = None if self.start is None else self.start.isoformat()
        return own | {"resources": resources, "start": start, "period": self.period}

    def resource(self, name: str) -> Noun:
        """Return the noun of a resource of the model."""
        return self.resources.get(name) or Noun(name, name)

    def day(self, step: int) -> date | None:
        """Return the first day of a step, before 0 of the history; None without a calendar, or beyond its ends."""
        if self.start is None or self.period is None:
            return None
        months, days = (step * size for size in PERIODS[self.period])
        year, month = divmod(self.start.month - 1 + months, 12)
        first, last = (date.min - self.start).days, (date.max - self.start).days
        if not date.min.year <= self.start.year + year <= date.max.year or not first <= days <= last:
            return None
        last = monthrange(self.start.year + year, month + 1)[1]
        moved = self.start.replace(year=self.start.year + year, month=month + 1, day=min(self.start.day, last))
        return moved + timedelta(days=days)

    def name(self, step: int) -> str:
        """Return the name of a step: "step 3", "week of 29 June 2026", "June 2026"."""
        day = self.day(step)
        if day is None:
            return f"{self.step.one} {step}"
        if self.period == "year" and day.day == day.month == 1:
            return str(day.year)
        if self.period == "month" and day.day == 1:
            return f"{day:%B %Y}"
        written = f"{day.day} {day:%B %Y}"
        return written if self.period == "day" else f"{self.step.one} of {written}"

    def step_of(self, text: str) -> int | None:
        """Return the step of a date or time as text, perhaps before 0; None if invalid, or without a calendar."""
        try:
            return self.step_on(date.fromisoformat(text[:10]), past=True)
        except ValueError:
            return None

    def step_on(self, day: date, past: bool = False) -> int | None:
        """Return the step that contains a day; None without a calendar, or before its start unless `past`."""
        if self.start is None or self.period is None or (day < self.start and not past):
            return None
        months, days = PERIODS[self.period]
        if days:
            return (day - self.start).days // days
        step = ((day.year - self.start.year) * 12 + day.month - self.start.month) // months
        begin = self.day(step)
        return step if begin is not None and begin <= day else step - 1


def vocabulary_of(tx: Connection) -> Vocabulary:
    """Return the words and the calendar of a programme."""
    return Vocabulary.read(setting(tx, "words", 0) or {})
