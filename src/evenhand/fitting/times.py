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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.fitting.columns import MISSING, LogFaults, as_texts
from evenhand.typing import Array, Bools, Floats

if TYPE_CHECKING:
    import polars

Kind = Literal["integer", "number", "month", "week", "day", "instant"]

MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}

EXAMPLES: dict[Kind, str] = {
    "integer": "integers",
    "number": "numbers",
    "month": "months such as 2026-05",
    "week": "weeks such as 2026-W05",
    "day": "dates such as 2026-05-31",
    "instant": "moments such as 2026-05-31T14:00",
}


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times."""

    kind: Kind
    """Their form, which sets the length of a tick."""

    ticks: Array
    """(row,) integers, unless the kind is `number`; 0 if missing."""

    known: Bools
    """(row,) whether there is one."""


@dataclass(frozen=True)
class Step:
    """Length of a step."""

    ticks: float
    """Its number of ticks."""

    regular: bool
    """Whether all pauses are whole steps."""

    unit: str
    """Unit it is reported in."""

    per_unit: float
    """Ticks per unit."""

    def __str__(self) -> str:
        length = self.ticks / self.per_unit
        if self.unit == "step":
            return f"{length:g} in the numbers of the time column"
        return f"1 {self.unit}" if length == 1 else f"{length:g} {self.unit}s"


def read_times(series: "polars.Series", faults: LogFaults) -> Times:
    """Parse a column of times.

    Args:
        series: the column.
        faults: collects rows without a valid time.
    """
    import polars

    if not (series.dtype.is_numeric() or series.dtype.is_temporal()):
        return _from_texts(as_texts(series).str.strip_chars(), faults)
    series = series.fill_nan(None) if series.dtype.is_float() else series
    if series.dtype == polars.Date:
        read = _from_days(series)
    elif series.dtype == polars.Datetime:
        zoned = getattr(series.dtype, "time_zone", None) is not None
        universal = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else series
        read = _from_moments(series.dt.replace_time_zone(None), universal)
    elif series.dtype.is_numeric():
        whole = _integers(series)
        is_whole = (whole == series).fill_null(series.is_null()).all() or series.dtype.is_integer()
        read = _times("integer", whole) if is_whole else _times("number", _numbers(series))
    else:
        read = _times("instant", series.cast(polars.Duration("us")).cast(polars.Int64))
    missing = series.is_null().to_numpy()
    faults.flag(missing, "has no time")
    faults.flag(~read.known & ~missing, lambda place: f"{series[place]} is too large for a time")
    return read


def _times(kind: Kind, ticks: "polars.Series") -> Times:
    known: Bools = ticks.is_not_null().to_numpy()
    return Times(kind, ticks.fill_null(0).to_numpy(), known)


def _integers(series: "polars.Series") -> "polars.Series":
    """Integers whose differences fit in 64 bits; null otherwise."""
    import polars

    whole = series.cast(polars.Int64, strict=False)
    return whole.set(~whole.is_between(-(2**61), 2**61).fill_null(True), None)


def _numbers(series: "polars.Series") -> "polars.Series":
    """Numbers whose differences fit in 64 bits as millionths; null otherwise."""
    import polars

    numbers = series.cast(polars.Float64, strict=False)
    return numbers.set(~(numbers.abs() <= 4e12).fill_null(True), None)


def _from_days(dates: "polars.Series") -> Times:
    import polars

    days = dates.dt.day().drop_nulls()
    last_day = (dates.dt.offset_by("1d").dt.day() == 1).fill_null(True).all()
    months = dates.dt.year().cast(polars.Int64) * 12 + dates.dt.month().cast(polars.Int64) - 1
    if (days.n_unique() == 1 or last_day) and months.drop_nulls().n_unique() > 1:
        return _times("month", months)
    return _times("day", dates.cast(polars.Int32).cast(polars.Int64))


def _from_moments(wall: "polars.Series", universal: "polars.Series") -> Times:
    """Days if the wall clock shows one time of the day, else instants."""
    import polars

    if wall.dt.time().drop_nulls().n_unique() <= 1:
        return _from_days(wall.dt.date())
    return _times("instant", universal.cast(polars.Datetime("us")).cast(polars.Int64))


# Texts


def _from_texts(texts: "polars.Series", faults: LogFaults) -> Times:
    """Times of the form that most texts have."""
    texts = texts.set(texts.str.to_lowercase().is_in(list(MISSING)), None)
    distinct = texts.drop_nulls().unique()
    read = {kind: parse(distinct).is_not_null().sum() for kind, parse in _PARSERS.items()}
    kind = max(read, key=lambda form: read[form])
    parsed = _PARSERS[kind](texts)
    faults.flag(texts.is_null().to_numpy(), "has no time")
    expected = EXAMPLES[kind] if read[kind] else ", or ".join(EXAMPLES.values())
    wrong = (parsed.is_null() & texts.is_not_null()).to_numpy()
    faults.flag(wrong, lambda place: f"invalid time {texts[place]!r}; expected {expected}, as in the other rows")
    if kind == "day":
        return _from_days(parsed)
    return _from_zoned(texts, parsed, faults) if kind == "instant" else _times(kind, parsed)


def _from_zoned(texts: "polars.Series", wall: "polars.Series", faults: LogFaults) -> Times:
    """Moments with their time zones: all have one, or none."""
    import polars

    zone = texts.str.extract(_MOMENT, 3)
    zoned = zone.is_not_null() & wall.is_not_null()
    if 0 < (number := zoned.sum()) < wall.is_not_null().sum():
        fewer = zoned if 2 * number <= len(wall) else ~zoned & wall.is_not_null()
        which = "has a time zone; others have none" if 2 * number <= len(wall) else "has no time zone; others have one"
        faults.flag(fewer.to_numpy(), which)
    minutes = zone.str.slice(1, 2).cast(polars.Int64, strict=False).fill_null(0) * 60
    minutes = minutes + zone.str.slice(-2, 2).cast(polars.Int64, strict=False).fill_null(0)
    sign = 1 - 2 * zone.str.starts_with("-").fill_null(False).cast(polars.Int64)
    return _from_moments(wall, wall - (minutes * sign * 60_000_000).cast(polars.Duration("us")))


_MOMENT = r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s*(Z|[+-]\d{2}:?\d{2})?$"


def _months(texts: "polars.Series") -> "polars.Series":
    import polars

    year, month, quarter = (
        texts.str.extract(r"^(\d{4})-(?:(0[1-9]|1[0-2])|Q([1-4]))$", part).cast(polars.Int64) for part in (1, 2, 3)
    )
    return year * 12 + (month - 1).fill_null((quarter - 1) * 3)


def _weeks(texts: "polars.Series") -> "polars.Series":
    import polars

    days = (texts.str.replace("-W", "W", literal=True) + "-1").str.to_date("%GW%V-%u", strict=False).cast(polars.Int32)
    return (days.cast(polars.Int64) - 4) // 7  # weeks begin on a Monday, and 1970 on a Thursday


def _moments(texts: "polars.Series") -> "polars.Series":
    import polars

    day, clock = texts.str.extract(_MOMENT, 1), texts.str.extract(_MOMENT, 2)
    seconds = (clock.str.len_chars() == 5).replace_strict(
        {True: ":00", False: ""}, default="", return_dtype=polars.String
    )
    return (day + "T" + clock + seconds).str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")


_PARSERS: dict[Kind, Callable[..., Any]] = {
    "integer": _integers,
    "number": _numbers,
    "month": _months,
    "week": _weeks,
    "day": lambda texts: texts.str.to_date("%Y-%m-%d", strict=False),
    "instant": _moments,
}
"""Forms of times; of two that read as many, the first is taken."""


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
        return _given_step(kind, pauses, given)
    if not len(pauses):
        return _step(kind, 1.0, True)
    ticks = _common(pauses) if kind == "number" else float(np.gcd.reduce(pauses))
    # One pause in twenty must be one step, unless times are counted in steps anyway.
    if kind in ("day", "instant", "number") and np.mean(np.abs(pauses / ticks - 1) < 1e-6) < 0.05:
        unit, per_unit = _unit_of(kind, float(np.median(pauses)))
        low, mid, high = np.quantile(pauses, (0.05, 0.5, 0.95)) / per_unit
        length = f"'{max(round(mid), 1)} {unit}s'" if kind != "number" else f"{float(f'{mid:.2g}')!r}"
        raise InvalidInputError(
            f"the times of an arm are not whole steps apart: 9 of 10 pauses are of {low:.4g} to {high:.4g}"
            f"{'' if kind == 'number' else f' {unit}s'}, with a median of {mid:.4g}. Give the length of a step, such "
            f"as step={length}"
        )
    return _step(kind, ticks, True)


def _common(pauses: Floats) -> float:
    """Greatest common divisor of numbers: the shortest pause if it divides all, else in millionths."""
    least = float(pauses.min())
    times = np.rint(pauses / least)
    if np.allclose(pauses, times * least, rtol=1e-6, atol=0):
        return float((pauses / times).mean())
    return float(np.gcd.reduce(np.maximum(np.rint(pauses * 1e6), 1).astype(np.int64))) / 1e6


_ABBREVIATIONS = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day", "w": "week", "y": "year"}

_LENGTHS: dict[Kind, dict[str, float]] = {
    "integer": {"": 1},
    "number": {"": 1},
    "month": {"": 1, "month": 1, "quarter": 3, "year": 12},
    "week": {"": 1, "week": 1},
    "day": {"": 1, "day": 1, "week": 7, "month": 30.436875, "quarter": 91.310625, "year": 365.2425},
    "instant": MICROSECONDS | {"week": 7 * MICROSECONDS["day"], "month": 30.436875 * MICROSECONDS["day"]},
}
"""Ticks of each unit that a step may be given in."""


def _given_step(kind: Kind, pauses: Array, given: str | float) -> Step:
    found = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)?\s*([A-Za-z]*)\s*", str(given))
    number = float(found[1] or 1) if found and (found[1] or found[2]) else 0.0
    if found is None or not 0 < number < np.inf:
        raise InvalidInputError(f"step: expected a length such as 1, 7 days, month or 12 hours, got {given!r}")
    word = found[2].lower()
    word = _ABBREVIATIONS.get(word, word.removesuffix("s"))
    lengths = _LENGTHS[kind]
    if word not in lengths:
        units = ", ".join(unit for unit in lengths if unit)
        expected = f"a length in {units}" if units else "a number without a unit"
        raise InvalidInputError(f"step: times are {EXAMPLES[kind]}; expected {expected}, got {given!r}")
    ticks = number * lengths[word]
    times = np.rint(pauses / ticks)
    return _step(kind, ticks, bool(np.allclose(pauses, times * ticks, rtol=1e-6, atol=0)))


def _step(kind: Kind, ticks: float, regular: bool) -> Step:
    unit, per_unit = _unit_of(kind, ticks)
    return Step(ticks, regular, unit, per_unit)


def _unit_of(kind: Kind, ticks: float) -> tuple[str, float]:
    """Unit in which such a length is reported, and its number of ticks."""
    if kind == "instant":
        return next(((unit, size) for unit, size in MICROSECONDS.items() if ticks % size == 0), ("second", 1_000_000))
    return {"integer": "step", "number": "step"}.get(kind, kind), 1.0
