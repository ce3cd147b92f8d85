"""Times of records as integer ticks, and the length of a step.

    integer    1, 2, 3                        a tick is 1
    number     0.5, 1.25                      ticks are the numbers themselves
    month      2026-05, 2026-Q2               a tick is a calendar month; also dates that are all on one day of their
                                              months, or all on the last
    week       2026-W05                       a tick is a week
    day        2026-05-31                     a tick is a day; also moments that are all at one time of the day, since
                                              clocks change
    instant    2026-05-31T14:00+02:00         a tick is a microsecond of universal time

All times of a column have one form. The step is given, or the greatest common divisor of all pauses between rows of an
arm. If hardly any pause is that short (dates as they happen to fall), the step must be given.
"""

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.fitting.table_reader import RowFaults, clean_texts
from evenhand.typing import Array, Bools

if TYPE_CHECKING:
    import polars

Kind = Literal["integer", "number", "month", "week", "day", "instant"]

MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}

LONG_UNITS = {"week": 7, "month": 30.436875, "quarter": 91.310625, "year": 365.2425}
"""Days of longer units."""

FORMS: dict[Kind, tuple[str, dict[str, float]]] = {
    "integer": ("integers", {"": 1}),
    "number": ("numbers", {"": 1}),
    "month": ("months such as 2026-05", {"": 1, "month": 1, "quarter": 3, "year": 12}),
    "week": ("weeks such as 2026-W05", {"": 1, "week": 1}),
    "day": ("dates such as 2026-05-31", {"": 1, "day": 1, **LONG_UNITS}),
    "instant": (
        "moments such as 2026-05-31T14:00",
        MICROSECONDS | {unit: days * MICROSECONDS["day"] for unit, days in LONG_UNITS.items()},
    ),
}
"""Description of each form, and ticks of each unit that a step may be given in."""

MOMENT = r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2}(?:\.\d{1,6})?)?\s*(Z|[+-]\d{2}:?\d{2})?$"


class Times(NamedTuple):
    """A column of times."""

    kind: Kind
    """Their form, which sets the length of a tick."""

    ticks: Array
    """(row,) integers, unless the kind is `number`; 0 if missing."""

    known: Bools
    """(row,) whether there is one."""


class Step(NamedTuple):
    """Length of a step."""

    ticks: float
    """Its number of ticks."""

    regular: bool
    """True if all pauses are whole steps."""

    unit: str
    """Unit it is reported in."""

    per_unit: float
    """Ticks per unit."""

    def __str__(self) -> str:
        length = self.ticks / self.per_unit
        if self.unit == "step":
            return f"{length:g} in the numbers of the time column"
        return f"1 {self.unit}" if length == 1 else f"{length:g} {self.unit}s"


def read_times(series: "polars.Series", faults: RowFaults) -> Times:
    """Parse a column of times.

    Args:
        series: the column.
        faults: collects rows without a valid time.
    """
    import polars

    kind: Kind = "instant"
    expected = "a time that is not too large"
    if series.dtype.is_float():
        series = series.fill_nan(None)
    if series.dtype == polars.Date:
        kind, ticks = _of_dates(series)
    elif series.dtype == polars.Datetime:
        zoned = getattr(series.dtype, "time_zone", None) is not None
        universal = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else series
        kind, ticks = _of_moments(series.dt.replace_time_zone(None), universal)
    elif series.dtype.is_temporal():
        ticks = series.cast(polars.Duration("us")).cast(polars.Int64)
    elif series.dtype.is_numeric():
        kind, ticks = "integer", _parse(series, "integer")
        if not (series.dtype.is_integer() or (ticks == series).fill_null(series.is_null()).all()):
            kind, ticks = "number", _parse(series, "number")
    else:
        # The form that most texts have; of two that fit as many, the first.
        series = clean_texts(series)
        distinct = series.drop_nulls().unique()
        fitting = {form: _parse(distinct, form).is_not_null().sum() for form in FORMS}
        kind = max(FORMS, key=lambda form: fitting[form])
        examples = [FORMS[kind][0]] if fitting[kind] else [example for example, _ in FORMS.values()]
        expected = f"{', or '.join(examples)}, as in the other rows"
        ticks = _parse(series, kind)
        if kind == "day":
            kind, ticks = _of_dates(ticks)
        elif kind == "instant":
            kind, ticks = _of_moments(ticks, _universal(series, ticks, faults))
    known, missing = ticks.is_not_null().to_numpy(), series.is_null().to_numpy()
    faults.flag(missing, "has no time")
    faults.flag(~known & ~missing, lambda place: f"invalid time {series[place]!r}; expected {expected}")
    return Times(kind, ticks.fill_null(0).to_numpy(), known)


def _universal(texts: "polars.Series", wall: "polars.Series", faults: RowFaults) -> "polars.Series":
    """Universal time of moments; some with a time zone among others without one are faults."""
    zone, known = texts.str.extract(MOMENT, 4), wall.is_not_null()
    zoned = zone.is_not_null() & known
    if 0 < (number := zoned.sum()) < known.sum():
        fewer, which = (zoned, "a time zone; others have none") if 2 * number <= len(texts) else (~zoned & known, "")
        faults.flag(fewer.to_numpy(), f"has {which or 'no time zone; others have one'}")
    whole = wall.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f") + zone.str.replace("Z", "+00:00").fill_null("+00:00")
    universal = whole.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False)
    return universal.dt.replace_time_zone(None)


def _parse(values: "polars.Series", kind: Kind) -> "polars.Series":
    """Integers, numbers, dates or moments of a form; null if invalid, or if differences do not fit in 64 bits."""
    import polars

    if kind == "integer":
        whole = values.cast(polars.Int64, strict=False)
        return whole.set(~whole.is_between(-(2**61), 2**61).fill_null(True), None)
    if kind == "number":  # differences are compared in millionths
        numbers = values.cast(polars.Float64, strict=False)
        return numbers.set(~(numbers.abs() <= 4e12).fill_null(True), None)
    if kind == "month":
        form = r"^(\d{4})-(?:(0[1-9]|1[0-2])|Q([1-4]))$"
        year, month, quarter = (values.str.extract(form, part).cast(polars.Int64) for part in (1, 2, 3))
        return year * 12 + (month - 1).fill_null((quarter - 1) * 3)
    if kind == "week":
        mondays = (values.str.replace("-W", "W", literal=True) + "-1").str.to_date("%GW%V-%u", strict=False)
        return (mondays.cast(polars.Int32).cast(polars.Int64) - 4) // 7  # 1970 begins on a Thursday
    if kind == "day":
        return values.str.to_date("%Y-%m-%d", strict=False)
    day, clock, seconds = (values.str.extract(MOMENT, part) for part in (1, 2, 3))
    texts = day + "T" + clock + seconds.fill_null(":00")
    return texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")


def _of_dates(dates: "polars.Series") -> tuple[Kind, "polars.Series"]:
    """Months if all dates are on one day of theirs, or all on the last; else days."""
    import polars

    last_day = (dates.dt.offset_by("1d").dt.day() == 1).fill_null(True).all()
    months = dates.dt.year().cast(polars.Int64) * 12 + dates.dt.month().cast(polars.Int64) - 1
    if (dates.dt.day().drop_nulls().n_unique() == 1 or last_day) and months.drop_nulls().n_unique() > 1:
        return "month", months
    return "day", dates.cast(polars.Int32).cast(polars.Int64)


def _of_moments(wall: "polars.Series", universal: "polars.Series") -> tuple[Kind, "polars.Series"]:
    """Days if the wall clock shows one time of the day, else instants."""
    import polars

    if wall.dt.time().drop_nulls().n_unique() <= 1:
        return _of_dates(wall.dt.date())
    return "instant", universal.cast(polars.Datetime("us")).cast(polars.Int64)


# Steps


def find_step(kind: Kind, pauses: Array, given: str | float | None = None) -> Step:
    """Length of a step.

    Args:
        kind: of the times.
        pauses: (move,) ticks between rows of an arm, none of them 0.
        given: the user's step: a number, or `7 days`, `month`, `12 hours`.

    Raises:
        InvalidInputError: the given step is invalid, or one must be given.
    """
    if given is not None:
        ticks = _given_ticks(kind, given)
        regular = bool(np.allclose(pauses, np.rint(pauses / ticks) * ticks, rtol=1e-6, atol=0))
        return Step(ticks, regular, *_unit_of(kind, ticks))
    if not len(pauses):
        return Step(1.0, True, *_unit_of(kind, 1.0))
    if kind == "number":
        # The shortest pause if it divides all, else the greatest common divisor in millionths.
        times = np.rint(pauses / pauses.min())
        ticks = float((pauses / times).mean())
        if not np.allclose(pauses, times * pauses.min(), rtol=1e-6, atol=0):
            ticks = float(np.gcd.reduce(np.maximum(np.rint(pauses * 1e6), 1).astype(np.int64))) / 1e6
    else:
        ticks = float(np.gcd.reduce(pauses))
    # One pause in twenty must be one step, unless times are counted in steps anyway.
    if kind in ("day", "instant", "number") and np.mean(np.abs(pauses / ticks - 1) < 1e-6) < 0.05:
        unit, per_unit = _unit_of(kind, float(np.median(pauses)))
        low, mid, high = np.quantile(pauses, (0.05, 0.5, 0.95)) / per_unit
        length = f"{max(round(mid), 1)} {unit}s" if kind != "number" else f"{mid:.2g}"
        pauses_of = f"9 of 10 pauses are of {low:.4g} to {high:.4g}{'' if kind == 'number' else f' {unit}s'}"
        hint = f"with a median of {mid:.4g}. Give the length of a step of the plan, such as {length}"
        message = f"step: the times of an arm are not whole steps apart: {pauses_of}, {hint}"
        raise InvalidInputError(message, argument="step")
    return Step(ticks, True, *_unit_of(kind, ticks))


def _given_ticks(kind: Kind, given: str | float) -> float:
    found = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)?\s*([A-Za-z]*)\s*", str(given))
    number = float(found[1] or 1) if found and (found[1] or found[2]) else 0.0
    if found is None or not 0 < number < np.inf:
        raise InvalidInputError(f"step: expected a length such as 1, 7 days, month or 12 hours, got {given!r}")
    word = found[2].lower().removesuffix("s")
    example, units = FORMS[kind]
    if word not in units:
        expected = f"a length in {', '.join(filter(None, units))}" if len(units) > 1 else "a number without a unit"
        raise InvalidInputError(f"step: times are {example}; expected {expected}, got {given!r}")
    return number * units[word]


def _unit_of(kind: Kind, ticks: float) -> tuple[str, float]:
    """Unit in which such a length is reported, and its number of ticks."""
    if kind == "instant":
        return next(((unit, size) for unit, size in MICROSECONDS.items() if ticks % size == 0), ("second", 1_000_000))
    return "step" if kind in ("integer", "number") else kind, 1.0


# Ties


def resolve_ties(arm: Array, ticks: Array, ties: str, tick: float = 1.0) -> tuple[Bools, Array]:
    """Return which rows remain, and their times.

    Args:
        arm: (row,) arm of each; sorted.
        ticks: (row,) times, sorted within an arm; of equal times in the order of the records.
        ties: `last` or `first` of equal times remains; `shift` moves each row to at least one tick after the row
            before; `keep` changes nothing.
        tick: shift of a row.
    """
    same = (arm[1:] == arm[:-1]) & (ticks[1:] == ticks[:-1])
    everything = np.ones(len(arm), dtype=np.bool_)
    if ties == "last":
        return np.append(~same, True)[: len(arm)], ticks
    if ties == "first":
        return np.append(True, ~same)[: len(arm)], ticks
    if ties == "shift" and same.any():
        # Within an arm, t'_i = max(t_i, t'_{i-1} + tick); then t'_i - i tick is the running maximum of t_i - i tick.
        slack = ticks - tick * np.arange(len(ticks))
        starts = np.flatnonzero(np.append(True, arm[1:] != arm[:-1]))
        for low, high in zip(starts, np.append(starts[1:], len(arm)), strict=True):
            slack[low:high] = np.maximum.accumulate(slack[low:high])
        return everything, slack + tick * np.arange(len(ticks))
    return everything, ticks
