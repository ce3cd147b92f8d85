"""The page of a reproduction: what holds, then every table and figure with ours beside the paper's.

Here everything is put into words; `templates/reproduction.html` sets it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand._version import __version__
from evenhand.report import words
from evenhand.report.rendering import render
from evenhand.report.reproduction.claims import Claim, Verdict
from evenhand.report.reproduction.drawings import Drawings
from evenhand.report.reproduction.report import Part, Report, target_command
from evenhand.report.reproduction.sheets import (
    MINUS,
    SPREAD,
    Entry,
    Grid,
    Line,
    Sheet,
    grid,
    lines_of,
    place_text,
    remarks,
    signed,
)

TITLE = "The paper, reproduced"
MANY = 8
"""Columns from which a table is set in small type."""


@dataclass(frozen=True)
class Badge:
    """How a verdict is shown."""

    css: str
    text: str


BADGES: dict[Verdict, Badge] = {
    "holds": Badge("holds", "✓ holds"),
    "holds in part": Badge("part", "◐ in part"),
    "does not hold": Badge("fails", "✗ does not hold"),
    "not run": Badge("none", "– not run"),
}


def report_page(report: Report, drawings: Mapping[str, Drawings]) -> str:
    """The page of a report, with the figures of `draw_report`."""
    targets = [(part.target.name, _contents_words(part)) for part in report.parts]
    return render(
        "reproduction.html",
        title=TITLE,
        lead=[_lead(report), *filter(None, [report.words.about])],
        quick=report.quick,
        missing=_missing_words(report),
        cards=_cards(report),
        claimed=_with_badges(report.claims),
        found=_with_badges(report.findings),
        contents=targets,
        shown=[name for name, _ in targets],
        targets=[_target(part, report, drawings[part.target.name]) for part in report.parts],
        terms=list(report.words.terms.items()),
        making=_making(report),
    )


# The head of the page


def _lead(report: Report) -> str:
    # The page speaks of what is on it, which may be a part of the paper.
    parts = words.counted(len(report.parts), "table or figure", "tables, figures and open questions")
    version = report.run.manifest.get("evenhand", __version__)
    paper = f" of the paper “{report.words.title}” ({report.words.authors})" if report.words.title else ""
    return (
        f"{words.capitalised(parts)}{paper}, computed again with evenhand {version} "
        "and set beside the published numbers."
    )


def _missing_words(report: Report) -> str:
    """How many cells failed, and how many were not run; a cell of several targets counts once."""
    # By content: cells of several targets are one cell.
    cells = {cell.kind + repr(cell.settings): cell for part in report.parts for cell in part.cells}
    failed = sum(cell.failed for cell in cells.values())
    absent = sum(not cell.was_run for cell in cells.values())
    told = ((failed, "failed"), (absent, "not run"))
    return words.listed([f"{words.counted(count, 'cell')} {what}" for count, what in told if count])


def _cards(report: Report) -> list[tuple[str, str, str]]:
    """Term, figure and a remark."""
    # What was not run is neither for nor against.
    checked = [claim.verdict for claim in report.claims if claim.verdict != "not run"]
    rest = len(report.claims) - len(checked)
    # Cells of all targets, each once.
    done = sum(record.get("status") == "done" for record in report.run.records.values())
    return [
        (
            "Claims that hold",
            f"{checked.count('holds')} of {len(checked)}",
            f"{rest} not run" if rest else "of the paper's claims",
        ),
        ("In part", str(checked.count("holds in part")), "for some sizes or costs"),
        ("Do not hold", str(checked.count("does not hold")), "explained below"),
        ("Cells computed", f"{done:,}", f"in {words.duration(_all_seconds(report))} of computing"),
    ]


def _all_seconds(report: Report) -> float:
    return sum(float(record.get("seconds") or 0.0) for record in report.run.records.values())


def _with_badges(claims: Sequence[Claim]) -> list[tuple[Claim, Badge]]:
    return [(claim, BADGES[claim.verdict]) for claim in claims]


def _contents_words(part: Part) -> str:
    return f"{words.capitalised(part.target.source)}: {part.target.title}"


# One target


@dataclass(frozen=True)
class Reading:
    """How a method was read, and how far its figures are from the paper's."""

    method: str
    text: str
    apart: str


@dataclass(frozen=True)
class TargetView:
    """A target as the template tells it."""

    name: str
    title: str
    source: str
    about: str
    pictures: tuple[str, ...]
    caption: str
    sheets: tuple["SheetView", ...]
    readings_title: str
    readings: tuple[Reading, ...]
    command: str
    made: str
    """How many cells, and how long they took."""
    data: str
    """The CSV in base 64."""


def _target(part: Part, report: Report, drawn: Drawings) -> TargetView:
    target = part.target
    # Cells that were really run, of those planned.
    count = sum(cell.was_run for cell in part.cells)
    return TargetView(
        name=target.name,
        title=target.title,
        source=target.source,
        about=target.about,
        pictures=drawn.inline,
        caption=drawn.caption,
        # A sheet of nothing but curves has a figure and no table.
        sheets=tuple(view_sheet(sheet) for sheet in part.sheets if sheet.visible),
        readings_title="How to read the differences" if target.published else "What was run",
        readings=tuple(Reading(method, text, _apart(part, method)) for method, text in target.readings.items()),
        command=target_command(target.name, report),
        made=f"{words.counted(count, 'cell')}, {words.duration(part.seconds)} of computing",
        data=base64.b64encode(part.csv.encode("utf-8", errors="replace")).decode("ascii"),
    )


def _apart(part: Part, method: str) -> str:
    """`−0.01 to +0.02`; empty where nothing was published."""
    found = [entry.difference for entry in _welfare_entries(part) if entry.column == method]
    known = [difference for difference in found if difference is not None]
    if not known:
        return ""
    # Equal ends are told once.
    return " to ".join(dict.fromkeys(signed(end, part.sheets[0]) for end in (min(known), max(known))))


def _welfare_entries(part: Part) -> list[Entry]:
    return [entry for sheet in part.sheets if sheet.name == "welfare" for entry in sheet.visible]


# One sheet


@dataclass(frozen=True)
class CellView:
    """A figure, what stands after ±, and how it is coloured."""

    figure: str
    spread: str
    css: str


@dataclass(frozen=True)
class LineView:
    """A line of figures."""

    head: str
    kind: str
    cells: tuple[CellView, ...]


@dataclass(frozen=True)
class GroupView:
    """The lines of a row; its title is empty where one line is all there is."""

    title: str
    lines: tuple[LineView, ...]


@dataclass(frozen=True)
class SheetView:
    """A sheet as the template tells it."""

    caption: str
    columns: tuple[str, ...]
    is_dense: bool
    groups: tuple[GroupView, ...]
    remarks: tuple[str, ...]


def view_sheet(sheet: Sheet) -> SheetView:
    """A sheet as texts in their places."""
    places, single = grid(sheet), len(lines_of(sheet)) == 1
    groups = tuple(_group(row, sheet, single, places) for row in sheet.rows)
    columns = tuple(sheet.columns)
    return SheetView(sheet.caption, columns, len(columns) > MANY, groups, tuple(remarks(sheet)))


def _group(row: str, sheet: Sheet, single: bool, places: Grid) -> GroupView:
    lines = tuple(
        # With one line a row the row's name is its head.
        LineView(row if single else line.name, line.kind, _cells(row, sheet, line, places))
        for line in lines_of(sheet, row)
    )
    # One line: it carries the name of the row itself.
    return GroupView("" if single else row, lines[:1] if single else lines)


def _cells(row: str, sheet: Sheet, line: Line, places: Grid) -> tuple[CellView, ...]:
    texts = [place_text(places, row, column, line, sheet) for column in sheet.columns]
    # The spread is set smaller than the figure.
    parts = [text.partition(f" {SPREAD}") for text in texts]
    return tuple(
        CellView(figure, sign + spread, _css(text, line))
        for text, (figure, sign, spread) in zip(texts, parts, strict=True)
    )


def _css(text: str, line: Line) -> str:
    # Words in the place of figures are set apart.
    if text in ("failed", "not run"):
        return "missing"
    if line.kind != "apart":
        return ""
    return "less" if text.startswith(MINUS) else "more" if text.startswith("+") else ""


# The end of the page


def _making(report: Report) -> list[tuple[str, str]]:
    manifest = report.run.manifest
    # Manifests of old may lack some of it.
    machine, versions = manifest.get("machine") or {}, manifest.get("versions") or {}
    command = manifest.get("command")
    return [
        ("Command", str(command) if command else words.UNKNOWN),
        ("Kind of run", "quick: sizes are reduced" if report.quick else "full"),
        ("Time", _time_words(report)),
        ("Machine", _machine_words(machine)),
        ("Versions", ", ".join([f"evenhand {manifest.get('evenhand', '?')}", *_version_words(versions)])),
        (
            "Seeds",
            "They are in the target's file. The same seed gives the same figures; results do not depend on the number "
            "of jobs, times do vary.",
        ),
    ]


def _time_words(report: Report) -> str:
    manifest = report.run.manifest
    told = f"{words.duration(_all_seconds(report))} of computing, all cells one after the other"
    if manifest.get("jobs"):
        told += f"; run by {words.counted(int(manifest['jobs']), 'job')}"
    return told + (f", ended {manifest['ended']}." if manifest.get("ended") else ".")


def _machine_words(machine: Mapping[str, Any]) -> str:
    memory = machine.get("memory_bytes")
    parts = [
        str(machine.get("cpu") or "unknown processor"),
        words.counted(int(machine["cores"]), "core") if machine.get("cores") else "",
        f"{float(memory) / 2**30:.0f} GiB of memory" if memory else "",
        str(machine.get("system") or ""),
    ]
    return ", ".join(filter(None, parts))


def _version_words(versions: Mapping[str, Any]) -> list[str]:
    return [f"{package} {version}" for package, version in versions.items() if version]
