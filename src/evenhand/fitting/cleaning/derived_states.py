"""States derived from the history of an arm: time since an event, number of past events, numbers cut into bins."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.fitting.cleaning import clock
from evenhand.fitting.cleaning.rules import Derived, Rules
from evenhand.typing import Floats

if TYPE_CHECKING:
    import polars


def with_derived_states(frame: "polars.DataFrame", rules: Rules) -> "polars.DataFrame":
    """Return the records with their derived columns, and states that are made of several columns.

    Args:
        frame: rows sorted by arm and time.
        rules: derived columns, and columns that the state is made of.

    Raises:
        InvalidInputError: a column is unknown.
    """
    import polars

    for derived in rules.derived:
        _check_columns([derived.column] if derived.column else [*derived.since, *derived.count], frame, derived.name)
        frame = frame.with_columns(_cut(frame, derived))
    if not rules.state_columns:
        return frame
    _check_columns(rules.state_columns, frame, "state")
    first = polars.col(rules.state_columns[0])
    whole = first.is_in(list(rules.whole_states))
    divided = polars.concat_str(*rules.state_columns, separator=" / ")
    return frame.with_columns(polars.when(whole).then(first).otherwise(divided).alias("state"))


def _check_columns(columns: "tuple[str, ...] | list[str]", frame: "polars.DataFrame", name: str) -> None:
    for column in columns:
        if column not in frame.columns:
            known = ", ".join(frame.columns)
            raise InvalidInputError(f"{name}: unknown column {column!r}; the columns are {known}", argument="rules")


def _cut(frame: "polars.DataFrame", derived: Derived) -> "polars.Series":
    """Names of bins; null if unknown. Names among numbers of a column stay as they are."""
    import polars

    values = _values(frame, derived)
    shown = [f"{cut:.12g}" for cut in derived.cuts]
    names = [
        f"below {shown[0]}",
        *(f"{low}–{high}" for low, high in pairwise(shown)),
        f"{shown[-1]} and more",
    ]
    places = np.searchsorted(derived.cuts, values, side="right")
    labels = [names[place] if known else None for place, known in zip(places, np.isfinite(values), strict=True)]
    found = polars.Series(derived.name, labels, dtype=polars.String)
    return found.zip_with(found.is_not_null(), frame[derived.column].alias(derived.name)) if derived.column else found


def _values(frame: "polars.DataFrame", derived: Derived) -> Floats:
    """(row,) numbers; NaN if unknown. Times are in days, or in the unit of their numbers."""
    import polars

    if derived.column:
        numbers = frame[derived.column].cast(polars.Float64, strict=False)
        return numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    happened = polars.all_horizontal(
        polars.col(name).cast(polars.String) == value for name, value in (derived.since | derived.count).items()
    )
    marked = frame.select("arm", event=happened.fill_null(False))
    if derived.count:
        event = polars.col("event").cast(polars.Float64)
        return marked.select((event.cum_sum() - event).over("arm")).to_series().to_numpy()
    if frame["time"].dtype == polars.String:
        raise InvalidInputError(f"{derived.name}: time since an event needs dates or numbers", argument="rules")
    unit = 1.0 if frame["time"].dtype == polars.Float64 else clock.DAY
    marked = marked.with_columns(time=polars.Series(clock.as_numbers(frame["time"]) / unit))
    last = polars.when("event").then("time").shift(1).forward_fill().fill_null(polars.col("time").first())
    return marked.select(polars.col("time") - last.over("arm")).to_series().to_numpy()
