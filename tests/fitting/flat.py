"""`fit` and `read_log` with all options by keyword: most tests vary one or two of them."""

from dataclasses import fields
from typing import Any

import evenhand as eh
from evenhand.fitting import FitResult, Log, LogOptions, ModelOptions
from evenhand.fitting import read_log as read_records


def _grouped(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


def fit(log: Any, **options: Any) -> FitResult:
    """Fit a model."""
    records, model = _grouped(LogOptions, options), _grouped(ModelOptions, options)
    return eh.fit(log, **options, records=records, model=model)


def read_log(source: Any, **options: Any) -> Log:
    """Read a log."""
    return read_records(source, records=_grouped(LogOptions, options), **options)
