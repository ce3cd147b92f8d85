r"""What the report says of the paper, as data: its claims, how each is checked, and the words of the page.

`paper/report/claims.toml`:

```toml
[names]                           # what rows of a target are called beside those of others
table-1 = "Exponential"

[[claims]]                        # the paper's; [[findings]] are ours
title = "CP-DRL comes close to the optimum"
targets = ["table-1", "table-2"]  # where it is shown, and whose sheets are looked at
unit = "size"                     # what a place is called; "cell" when absent
each = "{at} {value:decimals3}"   # how one place is told in {each}, {sentences} and {failing}; "{at}" when absent
evidence = [                      # parts of the text, in order
  "It is within {limit:plain}\u00a0% of the optimum {in_cells}; the largest loss is {largest:percent} ({largest.at})",
  ", in the paper's own figures {paper.largest:percent}",
  { holds = ".", fails = ", alas." },
]

[claims.measure]
kind = "loss"                     # of measures.py, with the settings of that kind
of = "CP-DRL"
against = "OPT"
at_most = 2.0                     # what is required, see below

[claims.also.paper]               # further measures for the text: {paper.largest}; at the same places as the first
kind = "loss"
of = "CP-DRL"
against = "OPT"
whose = "paper"
```

Required may be, at every place, `at_least`, `at_most`, `more_than`, `less_than` (several at once too); or of all places
together `falling = true` (each less than the one before) or `lowest = NAME` (that place has the least).

The text may use {in_cells} (`in all eight cells`, `in 3 of 8 cells`), {limit} (where there is one), {first}, {last},
{smallest} and {largest} with `.at` and the details of the kind, {span} (from smallest to largest, with signs), {each}
(all places in one list), {sentences} and {failing} (the places that fail). Of `also` there are {NAME.in_cells} and
{NAME.limit} where something is required of it, and no lists of places. A part of the text is left out where its `also`
found nothing, or where it tells {failing} and nothing fails. After a colon stands how a number is told; see TOLD in
wording.py.

`paper/report/words.toml` has the paper's title and authors, what it is about, and the words that need explaining.
"""

import inspect
import string
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from evenhand.errors import Fault, ModelError, UnknownName
from evenhand.report.reproduction.measures import KINDS, Line, Names
from evenhand.report.reproduction.wording import TOLD

FOLDER, CLAIMS, WORDS = "report", "claims.toml", "words.toml"
LIMITS = ("at_least", "at_most", "more_than", "less_than")
TOGETHER = ("falling", "lowest")
WHOSE = ("ours", "paper", "protocol")
ENDS = ("first", "last", "smallest", "largest")
"""Places that a text can tell."""

LISTS = ("each", "sentences", "failing")
"""Places told one by one; of the first measure only."""


Part: TypeAlias = str | Mapping[str, str]
"""A part of a text; a table has one for where the claim holds and one for where it fails."""


@dataclass(frozen=True)
class Measure:
    """What is measured, and what is required of it."""

    kind: str
    settings: Mapping[str, Any]
    required: Mapping[str, Any]


@dataclass(frozen=True)
class Statement:
    """A claim, and how it is checked."""

    title: str
    targets: tuple[str, ...]
    measure: Measure
    also: Mapping[str, Measure]
    evidence: tuple[Part, ...]
    each: str
    unit: str


@dataclass(frozen=True)
class Words:
    """What the page says of the paper."""

    title: str = ""
    authors: str = ""
    about: str = ""
    terms: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Statements:
    """All that is said of the paper."""

    claims: tuple[Statement, ...] = ()
    """The paper's, in its order."""
    findings: tuple[Statement, ...] = ()
    """Ours."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Target to what its rows are called beside those of others."""
    words: Words = field(default_factory=Words)


def read_statements(paper: Path) -> Statements:
    """What the report says of the paper; nothing where there are no such files.

    Args:
        paper: the folder of the targets.

    Raises:
        ModelError: a file is faulty; has all its faults.
    """
    # Both files are optional: a report without claims still has its tables.
    claims, words = (paper / FOLDER / name for name in (CLAIMS, WORDS))
    found = _read_claims(claims) if claims.exists() else Statements()
    return replace(found, words=_read_words(words)) if words.exists() else found


def _read_claims(path: Path) -> Statements:
    # All faults of a file, then one error.
    reader = _Reader(path)
    reader.know(reader.document, ("names", "claims", "findings"), "")
    claims, findings = (tuple(reader.statements(key)) for key in ("claims", "findings"))
    found = Statements(claims, findings, reader.texts("names"))
    reader.finish()
    return found


def _read_words(path: Path) -> Words:
    reader = _Reader(path)
    reader.know(reader.document, ("title", "authors", "about", "terms"), "")
    title, authors, about = (reader.text(reader.document, key, key) for key in ("title", "authors", "about"))
    found = Words(title, authors, about, reader.texts("terms"))
    reader.finish()
    return found


# -- reading with all faults -----------------------------------------------------------------------------------------


class _Reader:
    """Reads a document and gathers what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path, self.faults = path, list[Fault]()
        try:
            self.document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise ModelError([Fault("", str(error))], str(path)) from None

    def finish(self) -> None:
        """Refuse the document if it has faults."""
        if self.faults:
            raise ModelError(self.faults, str(self.path))

    def fault(self, place: str, message: str) -> None:
        """Note one fault."""
        self.faults.append(Fault(place, message))

    def know(self, table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
        """Refuse keys that nobody knows."""
        for key in table:
            if key not in known:
                self.fault(f"{place}.{key}".lstrip("."), str(UnknownName("key", key, known)))

    def text(self, table: Mapping[str, Any], key: str, place: str, default: str | None = None) -> str:
        """A text; one that must be there has no default."""
        value = table.get(key, default)
        if not isinstance(value, str) or not value:
            # A default stands in only for what is absent; what is there must be a text.
            self.fault(place, f"expected a text, got {'nothing' if value is None else repr(value)}")
            return ""
        return value

    def table(self, table: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
        """A table, empty when absent."""
        value = table.get(key, {})
        if not isinstance(value, dict):
            self.fault(place, f"expected a table, got {value!r}")
            return {}
        return value

    def texts(self, key: str) -> dict[str, str]:
        """A table of texts."""
        table = self.table(self.document, key, key)
        return {name: self.text(table, name, f"{key}.{name}") for name in table}

    def statements(self, key: str) -> Iterator[Statement]:
        """The blocks of this name."""
        blocks = self.document.get(key, [])
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            self.fault(key, f"expected blocks [[{key}]], got {blocks!r}")
            return
        for number, block in enumerate(blocks):
            yield self.statement(block, f"{key}[{number}]")

    def statement(self, block: Mapping[str, Any], place: str) -> Statement:
        """One claim."""
        self.know(block, ("title", "targets", "unit", "each", "evidence", "measure", "also"), place)
        also = self.table(block, "also", f"{place}.also")
        found = Statement(
            title=self.text(block, "title", f"{place}.title"),
            targets=self.listed(block.get("targets"), f"{place}.targets"),
            measure=self.measure(self.table(block, "measure", f"{place}.measure"), f"{place}.measure"),
            # Every further measure is read as the first one is.
            also={name: self.measure(self.table(also, name, place), f"{place}.also.{name}") for name in also},
            evidence=tuple(self.parts(block.get("evidence"), f"{place}.evidence")),
            each=self.text(block, "each", f"{place}.each", "{at}"),
            unit=self.text(block, "unit", f"{place}.unit", "cell"),
        )
        # A claim that cannot fail is none.
        if not found.measure.required:
            self.fault(f"{place}.measure", f"requires nothing: expected one of {', '.join((*LIMITS, *TOGETHER))}")
        self.check_texts(found, place)
        return found

    def listed(self, value: Any, place: str) -> tuple[str, ...]:
        """A list of texts that is not empty."""
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            self.fault(place, f"expected a list of texts, got {'nothing' if value is None else repr(value)}")
            return ()
        return tuple(value)

    def parts(self, value: Any, place: str) -> Iterator[Part]:
        """The parts of a text."""
        if not isinstance(value, list) or not value:
            self.fault(place, f"expected a list of texts, got {'nothing' if value is None else repr(value)}")
            return
        for number, part in enumerate(value):
            # Two texts, for where the claim holds and where it fails; nothing else.
            fits = isinstance(part, dict) and part.keys() == {"holds", "fails"} and all(map(_is_text, part.values()))
            if fits or _is_text(part):
                yield part
            else:
                self.fault(
                    f"{place}[{number}]", f"expected a text, or one where it holds and one where it fails: {part!r}"
                )

    def measure(self, table: Mapping[str, Any], place: str) -> Measure:
        """A measure whose settings are all there and sound."""
        kind = self.text(table, "kind", f"{place}.kind")
        # What is required stands beside the settings of the kind, under names that no kind uses.
        required = {key: value for key, value in table.items() if key in (*LIMITS, *TOGETHER)}
        settings = {key: value for key, value in table.items() if key != "kind" and key not in required}
        for key, value in required.items():
            fits = {"falling": value is True, "lowest": _is_text(value)}.get(key, _is_number(value))
            if not fits:
                self.fault(f"{place}.{key}", f"expected {_EXPECTED.get(key, 'a number')}, got {value!r}")
        # Settings can be checked only against a kind that is known.
        if kind in KINDS:
            self.check_settings(kind, settings, place)
        elif kind:
            self.fault(f"{place}.kind", str(UnknownName("kind", kind, KINDS)))
        return Measure(kind, settings, required)

    def check_settings(self, kind: str, settings: Mapping[str, Any], place: str) -> None:
        """Refuse settings that the kind does not have, or of another type."""
        # Without the scene: settings are what the file gives.
        known = dict(list(inspect.signature(KINDS[kind].measure).parameters.items())[1:])
        self.know(settings, list(known), place)
        for name, one in known.items():
            if name not in settings:
                if one.default is inspect.Parameter.empty:
                    self.fault(place, f"{name} is missing: {kind} needs it")
            # A setting that is there must fit its annotation.
            elif not _fits(one.annotation, settings[name]) or (name == "whose" and settings[name] not in WHOSE):
                self.fault(f"{place}.{name}", f"does not fit {kind}: {settings[name]!r}")

    def check_texts(self, found: Statement, place: str) -> None:
        """Refuse a text that asks for what is never known."""
        # What may be asked for: facts of the measure, and of the further ones under their names.
        facts = set(_facts(found.measure, "")).union(*(_facts(one, f"{name}.") for name, one in found.also.items()))
        for part in found.evidence:
            for text in [part] if isinstance(part, str) else part.values():
                self.check_text(text, facts, f"{place}.evidence")
        self.check_text(found.each, {"at", "value", *_details(found.measure)}, f"{place}.each")

    def check_text(self, text: str, facts: set[str], place: str) -> None:
        """Refuse unknown names and formats in braces."""
        try:
            # Literal text has no name.
            asked = [(name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name is not None]
        except ValueError as error:
            self.fault(place, f"{error}: {text!r}")
            return
        for name, spec in asked:
            if name not in facts:
                self.fault(place, str(UnknownName("fact", name, sorted(facts))))
            if spec not in TOLD:
                self.fault(place, str(UnknownName("format", spec or "", TOLD)))


_EXPECTED = {"falling": "true", "lowest": "a text"}


def _details(measure: Measure) -> tuple[str, ...]:
    return KINDS[measure.kind].details if measure.kind in KINDS else ()


def _facts(measure: Measure, prefix: str) -> Iterator[str]:
    """The names of what is known of a measure; those that are known of the first one only have no prefix."""
    # Lists are of the first measure only.
    yield from (prefix + name for name in ("span", *ENDS, *(() if prefix else LISTS)))
    yield from (f"{prefix}{end}.{detail}" for end in ENDS for detail in ("at", *_details(measure)))
    if measure.required:
        yield f"{prefix}in_cells"
    # Of several limits none is the limit.
    if len(measure.required.keys() & set(LIMITS)) == 1:
        yield f"{prefix}limit"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(annotation: Any, value: Any) -> bool:
    """Whether a setting is what the kind's signature says: a text, several, or a row of a sheet."""
    several = isinstance(value, list) and bool(value) and all(map(_is_text, value))
    if annotation is Line:
        return (
            isinstance(value, dict)
            and value.keys() == {"target", "sheet", "row"}
            and all(map(_is_text, value.values()))
        )
    if annotation is str:
        return _is_text(value)
    return several or (annotation is Names and _is_text(value))
