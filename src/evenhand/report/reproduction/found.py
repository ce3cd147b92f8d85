"""The cells of a target, each with what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.errors import InvalidInput
from evenhand.experiments.outcomes import NotForProblem, Outcome
from evenhand.experiments.records import Record, Run, outcome_of
from evenhand.experiments.spec import Cell, Planned, Target
from evenhand.report.reproduction.sheets import NOT_FOR_IT, NOT_RUN


@dataclass(frozen=True)
class Found:
    """A cell of a target, and what came of it."""

    planned: Planned
    seconds: float = 0.0
    """How long it took."""
    outcome: Outcome | None = None
    """None where there is none: it was not run, failed, or its record cannot be read."""
    trouble: str | None = NOT_RUN
    """Why it has no figures; None if it has."""

    @property
    def was_run(self) -> bool:
        """Whether there is a record of it."""
        return self.trouble != NOT_RUN

    @property
    def failed(self) -> bool:
        """Whether it was run and nothing came of it."""
        return self.was_run and self.outcome is None

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.planned.cell.kind

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.planned.cell.settings

    def timing(self, name: str) -> float | None:
        """Its seconds of this name; None where there are none."""
        return None if self.outcome is None else self.outcome.timings.get(name)


def found_cells(target: Target, run: Run) -> tuple[Found, ...]:
    """The cells of a target with their records: as the manifest names them, for files of targets change after a run."""
    plan = target.plan(bool(run.manifest.get("quick")))
    named = (run.manifest.get("targets") or {}).get(target.name)
    if named is None:
        return tuple(Found(planned) for planned in plan)
    planned_as = {(planned.method, planned.instance, planned.seed): planned.cell for planned in plan}
    return tuple(_found(target.name, label, run, planned_as) for label in named)


def _found(
    target: str, label: Mapping[str, Any], run: Run, planned_as: Mapping[tuple[str, str, int | None], Cell]
) -> Found:
    method, instance = str(label.get("method")), str(label.get("instance"))
    record = run.records.get(str(label.get("id")))
    if record is None:
        cell = planned_as.get((method, instance, label.get("seed")), Cell("named-policy", {}))
        return Found(Planned(cell, target, method, instance))
    cell = Cell(str(record.get("kind")), dict(record.get("settings") or {}))
    outcome, trouble = _read(record)
    return Found(Planned(cell, target, method, instance), float(record.get("seconds") or 0.0), outcome, trouble)


def _read(record: Record) -> tuple[Outcome | None, str | None]:
    """What a record holds, and why it has no figures."""
    if record.get("status") != "done":
        return None, str(record.get("error") or "no reason was recorded")
    try:
        outcome = outcome_of(record)
    except InvalidInput as error:
        return None, f"its record cannot be read: {error}"
    values = outcome.values
    return outcome, f"{NOT_FOR_IT}: {values.reason}" if isinstance(values, NotForProblem) else None
