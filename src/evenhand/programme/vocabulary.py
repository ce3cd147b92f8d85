"""The words and the calendar of a programme: patient for arm, clinic for group, "week of 29 June" for step 3.

The library has its own terms; page, reports, tables and commands of a programme use its vocabulary.
"""

import re
from calendar import monthrange
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any, Self, TypeVar

from sqlalchemy import Connection

from evenhand.errors import EvenhandError, Fault, InvalidInputError, UnknownNameError
from evenhand.model.io import text_table
from evenhand.model.labels import singular
from evenhand.programme.ledger import Result
from evenhand.programme.settings import setting
from evenhand.report.format import listed
from evenhand.report.summary import Cell, Figure, Section, Summary, Table, TableRow

E = TypeVar("E", bound=EvenhandError)
S = TypeVar("S", bound=Summary | Section | Table | Figure)

PERIODS = {"day": (0, 1), "week": (0, 7), "month": (1, 0), "quarter": (3, 0), "year": (12, 0)}
"""Lengths of a step in the calendar: months and days."""

COLUMNS = ("arm", "type", "group", "state", "step", "action", "reward", "next_state", "why")
"""Columns of the tables of a programme."""

NOUNS = ("arm", "group", "step")
"""Terms of the library that a programme has its own nouns for."""

_TERMS = r"""
    (?P<in>(?<!\w)[Aa]t\ (?=(the|an?|one|that)\ (\w+\ )?step\b)|(?<=steps\ )at\ (?=which))
    |(?<=left\ too\ few\ )(?P<short>\w[^;,]*)
    |(?<![\w\-./])(?:
    (?P<first>[Ss]teps\ (?P<from>-?\d+)\ to\ (?P<to>-?\d+))
    |(?P<at>[Aa]t\ )?(?P<one>[Ss]tep)\ (?P<number>-?\d+)
    |(?P<when>[Aa]t\ (?P<which>this|every|each)\ step)
    |(?:(?P<article>[Aa]n?)\ )?(?!KEPT)(?P<noun>[Aa]rms?|[Gg]roups?|[Ss]teps?)
    )(?![\w\[(=]|[-./]\w)
"""
"""The library's terms in a text, outside of names and paths."""

_DRAWN = r'(?<=aria-label=")[^"]*|[^<>]+(?=</text>)'
"""Texts of a drawing."""


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
        return f"{number:,.10g} {self.one if number == 1 else self.many}"


def _plural(one: str) -> str:
    if one.endswith(("s", "x", "ch", "sh")):
        return one + "es"
    return one[:-1] + "ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else one + "s"


def has_own_heads(table: text_table.Table) -> bool:
    """Return whether a table has columns beside those of the library, or dates for steps."""
    return not set(table.columns) <= set(COLUMNS) or any("-" in text for text in table.columns.get("step", ()))


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
    names: tuple[str, ...] = field(default=(), compare=False)
    """Names of arms, groups and the model that contain a term of the library, and stay as they are."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Vocabulary":
        """Read texts, as typed or stored.

        Args:
            given: fields by name; resources as a table of texts.

        Raises:
            InvalidInputError: with every fault.
        """
        faults: list[Fault] = []
        known = {one.name for one in fields(cls)} - {"names"}
        faults += [Fault(name, f"expected one of {', '.join(sorted(known))}") for name in given if name not in known]

        def noun(name: str, value: object) -> Noun:
            """Read a noun; add a fault for an invalid one."""
            text = value.strip() if isinstance(value, str) else ""
            if not text.strip(",") or len(text) > 80 or not text.isprintable():
                faults.append(Fault(name, f"expected a word of up to 80 characters, got {str(value)[:50]!r}"))
            return Noun.of(text or name)

        found: dict[str, Any] = {name: noun(name, given[name]) for name in NOUNS if given.get(name)}
        if given.get("value"):
            found["value"] = noun("value", given["value"]).one
        resources = given.get("resources") or {}
        found["resources"] = {name: noun(f"resources, {name}", text) for name, text in dict(resources).items()}
        if given.get("period"):
            found["period"] = given["period"]
            if given["period"] not in PERIODS:
                faults.append(Fault("period", f"expected one of {', '.join(PERIODS)}, got {given['period']!r}"))
            elif given.get("step") in (None, "", "step"):
                found["step"] = Noun.of(given["period"])
        if given.get("start"):
            try:
                found["start"] = date.fromisoformat(str(given["start"]))
            except ValueError:
                faults.append(Fault("start", f"expected a date such as 2026-06-29, got {str(given['start'])[:50]!r}"))
        if bool(given.get("start")) != bool(given.get("period")):
            faults.append(Fault("calendar", "start and period belong together: give both or neither"))
        taken = {"condition": ""} | {name: name for name in COLUMNS}
        for name in NOUNS:
            word = (found[name].one if name in found else name).casefold()
            if taken.setdefault(word, name) != name:
                faults.append(Fault(name, f"the word {word!r} has another meaning in tables; choose a different one"))
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
        return self.resources.get(name) or Noun(singular(name) or name, name)

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

    def last_day(self, step: int) -> date | None:
        """Return the last day of a step."""
        after = self.day(step + 1)
        return None if after is None else after - timedelta(days=1)

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

    def the(self, step: int) -> str:
        """Return the name of a step within a sentence: "step 3", "the week of 29 June 2026"."""
        name = self.name(step)
        return f"the {name}" if name.startswith(f"{self.step.one} of ") else name

    @property
    def _in(self) -> str:
        """Preposition of a step: "at step 3", "in week 3", "on 29 June 2026"."""
        return "at" if self.step.one == "step" else "on" if "day" in (self.period, self.step.one) else "in"

    def at(self, step: int) -> str:
        """Return the time of an event: "at step 3", "in the week of 29 June 2026"."""
        return f"{self._in} {self.the(step)}"

    @property
    def now(self) -> str:
        """Return "at this step", or "this week"."""
        return ("at " if self._in == "at" else "") + f"this {self.step.one}"

    def tick(self, step: float) -> str:
        """Return a short name of a step for an axis: "3", or "29 Jun"."""
        day = self.day(int(step)) if step == int(step) else None
        if day is None:
            return f"{step:g}" if self.start is None else ""
        return f"{day:%Y}" if self.period == "year" else f"{day.day} {day:%b}"

    def share(self, budget: Mapping[str, float]) -> str:
        """Return amounts with their nouns: "9 visits and 14 calls"."""
        return listed([self.resource(name).counted(amount) for name, amount in budget.items()])

    def find_step(self, text: str) -> int:
        """Return the step that was typed: its number, or a day in it such as 2026-06-29.

        Raises:
            InvalidInputError: it is neither, or before the first.
        """
        if text.isascii() and text.isdecimal() and len(text) < 11:
            return int(text)
        try:
            step = self.step_on(date.fromisoformat(text))
        except ValueError:
            step = None
        if step is None:
            since = "" if self.start is None else f" or a date from {self.start.isoformat()} on"
            raise InvalidInputError(f"{self.step.one}: expected a whole number from 0{since}, got {text[:40]!r}")
        return step

    def head(self, column: str) -> str:
        """Return the head of a column in files of the programme: "patient" for arm."""
        if self.is_plain:
            return column
        own = {name: getattr(self, name).one for name in NOUNS} | {"state": "condition"}
        own |= {f"{name}s": getattr(self, name).many for name in NOUNS}
        return "_".join(own.get(part, part) for part in column.split("_"))

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of a file with the heads of the programme, and dates for steps."""
        steps = [name for name in row if name in ("joined", "left") or name.endswith("step")]
        days = {name: self.day(row[name]) for name in steps if row[name] is not None}
        said = {"reason": self.say(row.get("reason") or "")}
        return {self.head(name): days.get(name) or said.get(name) or value for name, value in row.items()}

    def columns(self, table: text_table.Table) -> text_table.Table:
        """Return a table with the library's names of columns, and numbers of steps for dates.

        Args:
            table: its columns are named by the library's terms or by the programme's own.
        """
        own = {"condition": "state", "next condition": "next_state"}
        for name in NOUNS:
            noun: Noun = getattr(self, name)
            own |= dict.fromkeys((noun.one.casefold(), noun.many.casefold()), name)
        names = {head: head if head in COLUMNS else own.get(head.replace("_", " "), head) for head in table.columns}
        renamed = {name if name == head or name not in table.columns else head: head for head, name in names.items()}
        found = {name: table.columns[head] for name, head in renamed.items()}
        if "step" in found:
            found["step"] = [self._number(text) for text in found["step"]]
        return replace(table, columns=found)

    def _number(self, text: str) -> str:
        try:
            return str(self.find_step(text)) if "-" in text else text
        except InvalidInputError:
            return text

    def check_resources(self, names: Collection[str]) -> "Vocabulary":
        """Return the same words; refuse those of resources that a model does not have."""
        if unknown := [name for name in self.resources if name not in names]:
            raise UnknownNameError("resource", unknown[0], names)
        return self

    def with_names(self, names: Iterable[str]) -> "Vocabulary":
        """Return the same words with those of some names that contain a term of the library."""
        nouns = [getattr(self, name) for name in NOUNS] + list(self.resources.values())
        said = {self.value, *(word for noun in nouns for word in (noun.one, noun.many))}
        own = {name for name in (*names, *said) if re.search(rf"\b({'|'.join(NOUNS)})s?\b", name, re.IGNORECASE)}
        own -= {word for name in NOUNS for word in (name, f"{name}s")}
        return replace(self, names=tuple(sorted(own, key=lambda name: (-len(name), name))))

    # The library's texts in the programme's words

    @cached_property
    def is_plain(self) -> bool:
        """Whether the words are the library's own, without a calendar."""
        return replace(self, value="value", resources={}) == Vocabulary()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        stems = dict.fromkeys(re.sub(r"\d+", r"\\d+", re.escape(name)) for name in self.names)  # lift 1, lift 2, ...
        kept = "|".join([r'(?<!\w)"[^"]*"', r"(?<!\w)'[^']*'(?!\w)", *(rf"(?<!\w){stem}(?!\w)" for stem in stems)])
        return re.compile(f"(?P<kept>{kept})|{_TERMS.replace('KEPT', kept)}", re.VERBOSE)

    def say(self, text: str) -> str:
        """Return a text of the library in the words of the programme; quoted names and `names` stay as they are."""
        if self.is_plain:
            return text
        if text not in self._said:
            self._said[text] = self._pattern.sub(self._term, text)
        return self._said[text]

    @cached_property
    def _said(self) -> dict[str, str]:
        return {}  # reasons of many arms are the same

    def _term(self, found: re.Match[str]) -> str:
        text = found[0]
        if found["kept"]:
            return text
        if found["short"]:
            return " and ".join(self.resource(name).many for name in text.split(" and "))
        if found["first"]:
            own = f"{self.the(int(found['from']))} to {self.the(int(found['to']))}"
        elif found["number"]:
            own = self.at(int(found["number"])) if found["at"] else self.the(int(found["number"]))
        elif found["when"]:
            own = f"{found['which']} {self.step.one}"
        elif found["in"]:
            own = f"{self._in} "
        else:
            term = found["noun"].casefold()
            noun: Noun = getattr(self, term.removesuffix("s"))
            own = noun.many if term.endswith("s") else noun.one
            article = "an" if own[:1].casefold() in "aeiou" else "a"
            own = f"{article} {own}" if found["article"] else own
        return own[:1].upper() + own[1:] if text[0].isupper() else own

    def reworded(self, error: E) -> E:
        """Return an error with its message and faults in the words of the programme."""
        error.args = tuple(self._wrong(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, InvalidInputError):
            error.faults = tuple(replace(fault, message=self._wrong(fault.message)) for fault in error.faults)
        return error

    def _wrong(self, message: str) -> str:
        """Return a message in the words of the programme, with its heads of columns."""
        return self.say(re.sub(r"(?<=missing column )\w+", lambda found: self.head(found[0]), message))

    def summary(self, found: S) -> S:
        """Return a summary or a part of it in the words of the programme; cells and names of rows stay."""
        if self.is_plain:
            return found
        changes = {one.name: self._part(getattr(found, one.name)) for one in fields(found)}
        if isinstance(found, Table):
            changes["rows"] = tuple(self._row(row, [head.text for head in found.heads]) for row in found.rows)
        return replace(found, **changes)

    def _part(self, part: Any) -> Any:
        if isinstance(part, str):
            is_drawn = part.startswith("<svg")
            return re.sub(_DRAWN, lambda text: self.say(text[0]), part) if is_drawn else self.say(part)
        if isinstance(part, (tuple, list)):
            return type(part)(map(self._part, part))
        if isinstance(part, Cell):
            return replace(part, text=self.head(self.say(part.text)))
        return self.summary(part) if isinstance(part, (Section, Table, Figure)) else part

    def _row(self, row: TableRow, heads: Sequence[str]) -> TableRow:
        def named(head: str, text: str) -> str:
            """Return a cell in the words of the programme."""
            if head == "step" and text.isascii() and text.removeprefix("-").isdecimal():
                return self.name(int(text))
            return self.say(text) if head == "reason" else text

        cells = zip(heads[1:], row.cells, strict=True)
        own = tuple(replace(cell, text=named(head, cell.text)) for head, cell in cells)
        return replace(row, name=named(heads[0], row.name), cells=own)

    def step_of(self, text: str) -> int | None:
        """Return the step of a date, time, week, month or quarter as text, perhaps before 0.

        None if it is invalid, or without a calendar.
        """
        if period := re.fullmatch(r"(\d{4})-(?:(\d{2})|Q([1-4]))", text):
            text = f"{period[1]}-{period[2] or f'{3 * int(period[3]) - 2:02}'}-01"
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
