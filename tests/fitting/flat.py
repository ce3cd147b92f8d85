"""`fit` and `read_log` with all options by keyword, as most tests vary one or two; and problems of posterior draws."""

from dataclasses import fields, replace
from typing import Any

import evenhand as eh
from evenhand.fitting import FitResult, Log, LogOptions, ModelOptions, Named, matched
from evenhand.fitting import read_log as read_records


def _grouped(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


def fit(log: Any, **options: Any) -> FitResult:
    """Fit a model."""
    records, model = _grouped(LogOptions, options), _grouped(ModelOptions, options)
    return eh.fit(log, **options, records=records, model=model)


def read_log(source: Any, **options: Any) -> Log:
    """Read a log."""
    records = _grouped(LogOptions, options)
    columns = {role: options.pop(role) for role in ("arm", "time", "state", "action", "type") if role in options}
    return read_records(source, columns, records, **options)


def drawn_problems(problem: eh.CoupledMDP, named: Named, num_draws: int, rng: int = 0) -> list[eh.CoupledMDP]:
    """The problem with drawn transitions."""
    uncertain = matched(named, problem)
    rows = [uncertain.placed(named.posterior.one(rng, number)) for number in range(num_draws)]
    return [replace(problem, arms=replace(problem.tables, transitions=one)) for one in rows]
