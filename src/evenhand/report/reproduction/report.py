"""A run as data: what holds, and every table with ours beside the paper's.

From a run's folder (records.jsonl, manifest.json), its targets and what the paper says; nothing is computed anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evenhand.experiments.records import Run, read_run
from evenhand.experiments.spec import Target
from evenhand.report.reproduction.claims import Claim, judge
from evenhand.report.reproduction.drawings import Drawings, draw_target
from evenhand.report.reproduction.formats import csv_text
from evenhand.report.reproduction.found import Found, found_cells
from evenhand.report.reproduction.gathering import target_sheets
from evenhand.report.reproduction.sheets import Sheet
from evenhand.report.reproduction.statements import Statements, Words


@dataclass(frozen=True)
class Part:
    """One target: its cells and its sheets."""

    target: Target
    cells: tuple[Found, ...]
    sheets: tuple[Sheet, ...]

    @cached_property
    def csv(self) -> str:
        """All its figures, unrounded."""
        return csv_text(self.sheets)

    @property
    def seconds(self) -> float:
        """How long its cells took, one after the other."""
        return sum(cell.seconds for cell in self.cells)


@dataclass(frozen=True)
class Report:
    """All that is told."""

    run: Run
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    """The paper's."""
    findings: tuple[Claim, ...]
    """Ours."""
    words: Words
    """What is said of the paper."""

    @property
    def quick(self) -> bool:
        """Whether sizes are reduced."""
        return bool(self.run.manifest.get("quick"))


def read_report(folder: Path, targets: Sequence[Target], statements: Statements) -> Report:
    """Read a run and put all of it in its place.

    Args:
        folder: of the run.
        targets: what to report on, in this order.
        statements: what is said of the paper, and checked.
    """
    run = read_run(folder)
    parts = tuple(_part(target, run) for target in targets)
    sheets = {part.target.name: part.sheets for part in parts}
    claims, findings = (
        tuple(judge(statement, sheets, statements.names) for statement in said)
        for said in (statements.claims, statements.findings)
    )
    return Report(run, parts, claims, findings, statements.words)


def _part(target: Target, run: Run) -> Part:
    cells = found_cells(target, run)
    return Part(target, cells, target_sheets(target, cells))


def draw_report(report: Report) -> dict[str, Drawings]:
    """The figures of all targets, by name."""
    return {part.target.name: draw_target(part.target, part.sheets) for part in report.parts}


def target_command(name: str, report: Report) -> str:
    """The command for one target alone."""
    return f"evenhand reproduce {name}" + (" --quick" if report.quick else "")
