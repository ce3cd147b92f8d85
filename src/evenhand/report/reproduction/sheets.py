"""Sheets: figures of ours beside published ones, and what is said of each.

A sheet is a grid. A place in it (a row, a column) has up to four lines, of which only those that say something are
shown: the paper's figure, ours, ours measured as the paper measured, and how far they are apart. `formats` and the page
set a sheet as Markdown, LaTeX, CSV and HTML; they take every text from here.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evenhand.report.words import UNKNOWN, duration, listed, number, number_text

Key: TypeAlias = int | float | str
Style: TypeAlias = Literal["welfare", "count", "seconds", "duration"]
Measure: TypeAlias = Literal["difference", "ratio"]

MINUS, NEARLY, SPREAD = "−", "≈", "±"
NOTHING = 1e-9
"""A spread below which figures are equal but for rounding: those of a policy that is computed exactly."""

WORDS_OF_KEYS = {"num_arms": "N", "budget_share": "b/N", "budget": "b"}
"""How a key of a row is told to people."""


# Entries and sheets


@dataclass(frozen=True)
class Entry:
    """One figure of ours, beside the published one where there is one."""

    at: tuple[tuple[str, Key], ...]
    """The row: names and values, e.g. (("num_arms", 3),)."""
    column: str
    """The column: what was measured or who played."""
    paper: float | None = None
    """The published figure."""
    paper_spread: float | None = None
    """What the paper prints after ±."""
    values: tuple[float, ...] = ()
    """(seed,) our figures."""
    plug_in: tuple[float, ...] = ()
    """(seed,) our figures, measured by the paper's protocol."""
    exact: bool = True
    """Whether our figures are free of chance, given the policy."""
    stderr: float = 0.0
    """The largest standard error of our simulated figures."""
    deviation: float | None = None
    """What was measured in place of a spread over seeds: over repeats."""
    troubles: tuple[str, ...] = ()
    """Why figures are missing: one reason a cell that failed or was not run."""

    @property
    def ours(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds, or over repeats; None where there is one figure."""
        # Over seeds where there are several; else what was measured over repeats.
        return statistics.stdev(self.values) if len(self.values) > 1 else self.deviation

    @property
    def protocol(self) -> float | None:
        """The mean over seeds, measured by the paper's protocol."""
        return statistics.fmean(self.plug_in) if self.plug_in else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def ratio(self) -> float | None:
        """The paper's over ours."""
        # Faster or smaller by this factor.
        return None if self.ours is None or self.paper is None or self.ours == 0 else self.paper / self.ours

    @property
    def row(self) -> str:
        """The row in words: `N = 3`."""
        return row_name(self.at)


@dataclass(frozen=True)
class Sheet:
    """A grid of figures with a caption."""

    name: str
    """Short and unique within its target; the first column of the CSV."""
    caption: str
    entries: tuple[Entry, ...]
    style: Style = "welfare"
    measure: Measure = "difference"
    decimals: int = 2
    # The default shows all; a comparison of sheets does not look at it.
    shown: Callable[[Entry], bool] = field(default=lambda entry: True, compare=False)
    """Which entries people see; all are in the CSV. Curves have too many points for a table."""

    @property
    def visible(self) -> tuple[Entry, ...]:
        """The entries that people see."""
        return tuple(filter(self.shown, self.entries))

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in the order they came."""
        return list(dict.fromkeys(entry.row for entry in self.visible))

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order they came."""
        return list(dict.fromkeys(entry.column for entry in self.visible))


def row_name(at: Sequence[tuple[str, Key]]) -> str:
    """`N = 3, b/N = 0.5`; texts are told as they are, and an instance only where nothing else tells the row."""
    parts = []
    # The instance is in every row; it is told only where there is nothing else.
    for key, value in [pair for pair in at if pair[0] != "instance"] or at:
        text = value if isinstance(value, str) else f"{value:,g}"
        parts.append(f"{WORDS_OF_KEYS[key]} = {text}" if key in WORDS_OF_KEYS else _plain(key, value, text))
    return ", ".join(parts)


def _plain(key: str, value: Key, text: str) -> str:
    return text if isinstance(value, str) else f"{key.replace('_', ' ')} {text}"


def loss(value: float, optimum: float) -> float:
    """How far a welfare is below the optimum, in per cent of it."""
    return 100 * (optimum - value) / abs(optimum)


# The lines of a place


@dataclass(frozen=True)
class Line:
    """One of the lines of a place in a sheet."""

    name: str
    kind: str
    """paper, ours, protocol or apart."""
    figure: Callable[[Entry], float | None]
    text: Callable[[Entry, Sheet], str]

    def says_something(self, entries: Iterable[Entry]) -> bool:
        """Whether any of these entries has such a figure; ours are always told, if only as missing."""
        # A row without a figure of ours says that it is missing.
        return self.kind == "ours" or any(self.figure(entry) is not None for entry in entries)


def lines_of(sheet: Sheet, row: str | None = None) -> list[Line]:
    """The lines that say something in this sheet, or in one row of it."""
    lines = [
        Line("paper", "paper", lambda entry: entry.paper, _paper),
        Line("ours", "ours", lambda entry: entry.ours, _ours),
        Line("ours (plug-in)", "protocol", lambda entry: entry.protocol, _protocol),
        Line("ours − paper", "apart", lambda entry: entry.difference, _apart)
        if sheet.measure == "difference"
        else Line("paper ÷ ours", "apart", lambda entry: entry.ratio, _apart),
    ]
    # Lines are judged within the row: a paper's figure may be there for some sizes only.
    own = [entry for entry in sheet.visible if row is None or entry.row == row]
    return [line for line in lines if line.says_something(own)]


def figure_text(value: float | None, sheet: Sheet) -> str:
    """A figure in the sheet's style."""
    if value is None:
        return UNKNOWN
    if sheet.style == "duration":
        # Below a tenth of a second `duration` would round to milliseconds.
        return duration(value) if value >= 0.0995 else _short(value)
    return f"{value:,.0f}" if sheet.style == "count" else number_text(value, sheet.decimals)


def _short(seconds: float) -> str:
    """A time below a tenth of a second: milli- or microseconds, two digits."""
    if seconds >= 9.95e-4:
        return f"{number(1e3 * seconds, 2)}\u00a0ms"
    return f"{number(1e6 * seconds, 2)}\u00a0µs"


def _spread_text(spread: float | None, sheet: Sheet) -> str:
    """`± 0.01`; nothing for what is too small to be told."""
    if spread is None or spread < NOTHING or sheet.style == "count":
        return ""
    return f" {SPREAD}\u00a0{figure_text(spread, sheet)}"


def _paper(entry: Entry, sheet: Sheet) -> str:
    spread = entry.paper_spread
    told = "" if spread is None else f" {SPREAD}\u00a0{number_text(spread, 2)}"  # as the paper prints it, 0.00 too
    return figure_text(entry.paper, sheet) + told


def _ours(entry: Entry, sheet: Sheet) -> str:
    if entry.ours is None:
        return missing_word(entry)
    # Only welfare is marked as simulated: times are always measured.
    sign = "" if entry.exact or sheet.style != "welfare" else f"{NEARLY}\u00a0"
    return sign + figure_text(entry.ours, sheet) + _spread_text(entry.spread, sheet)


def missing_word(entry: Entry) -> str:
    """What stands in the place of a figure that is not there."""
    if not entry.troubles:
        return UNKNOWN
    # Not run is no failure, and neither is a policy that is not for the problem.
    if all(reason == NOT_RUN for reason in entry.troubles):
        return NOT_RUN
    return "–" if all(reason.startswith(NOT_FOR_IT) for reason in entry.troubles) else "failed"


NOT_RUN = "not run"
"""The trouble of a cell that has no record."""

NOT_FOR_IT = "does not apply"
"""How the trouble of a policy begins that is not for the problem."""


def _protocol(entry: Entry, sheet: Sheet) -> str:
    spread = statistics.stdev(entry.plug_in) if len(entry.plug_in) > 1 else None
    return figure_text(entry.protocol, sheet) + _spread_text(spread, sheet) if entry.plug_in else ""


def _apart(entry: Entry, sheet: Sheet) -> str:
    if sheet.measure == "ratio":
        return "" if entry.ratio is None else f"{number(entry.ratio, 2)}\u00a0×"
    return "" if entry.difference is None else signed(entry.difference, sheet)


def signed(difference: float, sheet: Sheet) -> str:
    """A difference with its sign; a rounded zero has none."""
    text = figure_text(abs(difference), sheet)
    text = text if difference >= 0 else f"{MINUS}{text}"
    # A zero that comes of rounding has no sign.
    if not text.strip(f"{MINUS}0.,"):
        return text.lstrip(MINUS)
    return text if text.startswith(MINUS) else f"+{text}"


def remarks(sheet: Sheet) -> list[str]:
    """What must be known to read the sheet: simulated figures, and every figure that is missing with its reason."""
    notes = []
    if sheet.style == "welfare" and any(not entry.exact and entry.values for entry in sheet.visible):
        error = max(entry.stderr for entry in sheet.visible)
        known = f" (standard error at most {number(error, 2)})" if error else ""
        notes.append(f"{NEARLY} marks figures that are simulated{known}; our others are computed exactly.")
    # Of exact policies all seeds agree: no spread is worth a word.
    if any((entry.spread or 0.0) >= NOTHING and len(entry.values) > 1 for entry in sheet.visible):
        notes.append(f"{SPREAD} after our figures is the standard deviation over seeds.")
    if any(entry.deviation for entry in sheet.visible):
        notes.append(f"{SPREAD} after our figures is the standard deviation over repeats.")
    return notes + [f"{where}: {why}" for where, why in troubles(sheet)]


def troubles(sheet: Sheet) -> list[tuple[str, str]]:
    """Where figures are missing and why; entries that miss for the same reason are told together."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in sheet.entries:
        for reason in dict.fromkeys(entry.troubles):
            # Of several seeds some may have failed: told with their number.
            count = entry.troubles.count(reason)
            # Seeds that worked and seeds that did not.
            total = count + len(entry.values)
            extent = "" if count == total else f" ({count} of {total} seeds)"
            by_reason.setdefault((entry.column + extent, reason), []).append(entry.row)
    return [
        (f"{column} at {listed(list(dict.fromkeys(rows)))}", _reason(reason))
        for (column, reason), rows in by_reason.items()
    ]


def _reason(reason: str) -> str:
    return reason if reason.startswith((NOT_RUN, NOT_FOR_IT)) else f"failed: {reason}"


Grid: TypeAlias = Mapping[tuple[str, str], Entry]


def grid(sheet: Sheet) -> dict[tuple[str, str], Entry]:
    """The visible entries by row and column."""
    return {(entry.row, entry.column): entry for entry in sheet.visible}


def place_text(places: Grid, row: str, column: str, line: Line, sheet: Sheet) -> str:
    """The text of a line at a place; empty where the sheet has no such entry."""
    entry = places.get((row, column))
    return "" if entry is None else line.text(entry, sheet)
