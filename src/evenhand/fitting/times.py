"""Times of records as whole ticks, and what a step is.

    whole      1, 2, 3                        a tick is 1
    number     0.5, 1.25                      ticks are the numbers themselves
    month      2026-05, 2026-Q2, 202605       a tick is a calendar month; so are dates that are all on one day of their
                                              months, or all on the last
    week       2026-W05                       a tick is a week
    day        2026-05-31, 31.05.2026,        a tick is a day; so are moments that are all at one time of the day, where
               31/05/2026                     clocks go on or back an hour
    instant    2026-05-31T14:00+02:00         a tick is a microsecond of universal time

Dates with strokes are read as day/month/year, or as month/day/year, where only one of the two can be: some day of the
column is after the twelfth. Where both can be, the user is asked.

A step is what the user says, else the greatest that all pauses between rows of an arm are whole multiples of. Where
hardly any pause is that short (dates as they happened to fall), times have no step: that is told, and the user asked.
"""

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evenhand.errors import InvalidInput
from evenhand.fitting.columns import MISSING, LogFaults, as_texts, with_points
from evenhand.typing import Array, Bools, Floats

if TYPE_CHECKING:
    import polars

Kind = Literal["whole", "number", "month", "week", "day", "instant"]

SAMPLE = 1000
"""Texts that are looked at to see how times are written."""

OFTEN = 0.05
"""The share of pauses that a step has to be for dates, moments and broken numbers to count as regular."""

FARTHEST = 2**61
"""A whole number further from 0 is no time: differences would leave what integers hold."""

FARTHEST_BROKEN = 4e12
"""The same of broken numbers, whose differences are counted in millionths."""

MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}

EXAMPLES = {
    "whole": "whole numbers",
    "number": "numbers",
    "month": "months such as 2026-05",
    "week": "weeks such as 2026-W05",
    "day": "dates such as 2026-05-31",
    "instant": "moments such as 2026-05-31T14:00",
}


STROKES = ("day /", "day month/")
"""Ways to write dates that look the same."""

FORMS = (
    "whole numbers, numbers, dates (2026-05-31, 31.05.2026, 31/05/2026, 20260531), moments (2026-05-31T14:00, perhaps "
    "with a zone, +02:00), months (2026-05, 2026-Q2, 202605) or weeks (2026-W05), all written alike"
)
"""What can be read."""


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times."""

    kind: Kind
    """How they are written, and so what a tick is."""

    ticks: Array
    """(row,) whole numbers, but for kind `number`; 0 where there is none."""

    known: Bools
    """(row,) whether there is one."""

    notes: tuple[str, ...] = field(default=())
    """What was decided, in words."""


@dataclass(frozen=True)
class Step:
    """How long a step is."""

    ticks: float
    """How many."""

    regular: bool
    """Whether all pauses are whole steps."""

    unit: str
    """What people count it in."""

    per_unit: float
    """Ticks of a unit."""

    def __str__(self) -> str:
        length = self.ticks / self.per_unit
        if self.unit == "step":
            return f"{length:g} in the numbers of the time column"
        return f"1 {self.unit}" if length == 1 else f"{length:g} {self.unit}s"


# Reading


def read_times(series: "polars.Series", faults: LogFaults) -> Times:
    """A column of times.

    Args:
        series: the column.
        faults: hears of rows without a time, and of times that are not like the others.
    """
    import polars

    kind = series.dtype
    if kind.is_float():
        return _told(_of_numbers(series.fill_nan(None)), series.fill_nan(None), faults)
    if kind.is_integer():
        whole = series.cast(polars.Int64, strict=False)
        return _told(_of_whole(whole.set(~_near(whole), None)), series, faults)
    if kind == polars.Date:
        read = _of_days(series)
    elif kind == polars.Datetime:
        read = _of_moments(series)
    elif kind == polars.Duration:
        read = _as_times("instant", series.dt.total_microseconds())
    else:
        return _of_texts(as_texts(series).str.strip_chars(), faults)
    faults.flag(~read.known, "has no time")
    return read


def _told(read: Times, series: "polars.Series", faults: LogFaults) -> Times:
    """The same times of a column of numbers; those that are missing or too large are told."""
    missing = series.is_null().to_numpy()
    faults.flag(missing, "has no time")
    faults.flag(~read.known & ~missing, lambda place: f"{series[place]} is too large for a time")
    return read


def _near(whole: "polars.Series") -> "polars.Series":
    """Whether whole numbers are small enough for the difference of any two to be one, too."""
    return whole.is_between(-FARTHEST, FARTHEST).fill_null(True)


def _as_times(kind: Kind, ticks: "polars.Series", *notes: str) -> Times:
    known: Bools = ticks.is_not_null().to_numpy()
    return Times(kind, ticks.fill_null(0).to_numpy(), known, notes)


def _of_numbers(series: "polars.Series") -> Times:
    import polars

    numbers = series.cast(polars.Float64)
    numbers = numbers.set(~numbers.is_finite(), None)
    whole = numbers.cast(polars.Int64, strict=False)
    whole = whole.set(~_near(whole), None)
    if (whole == numbers).fill_null(numbers.is_null()).all():
        return _of_whole(whole)
    return _as_times("number", numbers.set((numbers.abs() > FARTHEST_BROKEN).fill_null(False), None))


def _of_whole(series: "polars.Series") -> Times:
    """Whole numbers, unless every one of them is a date or a month without its dashes."""
    low, high = series.min(), series.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return _as_times("whole", series)
    if low >= 1900_01_01 and high <= 2100_12_31:
        days = _days(as_texts(series), "%Y%m%d")
        if (days.is_null() == series.is_null()).all():
            read = _of_days(days)
            return Times(read.kind, read.ticks, read.known, ("times such as 20260131 are read as dates", *read.notes))
    if low >= 1900_01 and high <= 2100_12 and (series % 100).is_between(1, 12).fill_null(True).all():
        months = series // 100 * 12 + series % 100 - 1
        return _as_times("month", months, "times such as 202601 are read as months")
    return _as_times("whole", series)


def _of_days(dates: "polars.Series") -> Times:
    import polars

    days = dates.dt.day()
    one_day = days.n_unique() == 1 + bool(days.null_count())
    last_day = (dates.dt.offset_by("1d").dt.day() == 1).fill_null(True).all()
    months = dates.dt.year().cast(polars.Int64) * 12 + dates.dt.month().cast(polars.Int64) - 1
    if (one_day or last_day) and months.drop_nulls().n_unique() > 1:
        return _as_times("month", months)
    return _as_times("day", dates.cast(polars.Int32).cast(polars.Int64))


def _of_moments(moments: "polars.Series") -> Times:
    """Moments, whose clock on the wall tells whether they are dates."""
    import polars

    wall = moments.dt.replace_time_zone(None).cast(polars.Datetime("us"))
    zoned = getattr(moments.dtype, "time_zone", None) is not None
    absolute = moments.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else moments
    return _of_walls(wall, absolute.cast(polars.Datetime("us")))


def _of_walls(wall: "polars.Series", absolute: "polars.Series") -> Times:
    import polars

    if wall.dt.time().drop_nulls().n_unique() <= 1:
        return _of_days(wall.dt.date())
    return _as_times("instant", absolute.cast(polars.Int64))


# Texts


def _of_texts(texts: "polars.Series", faults: LogFaults) -> Times:
    """Texts, all of the kind that most of the first are of."""
    texts = texts.set(texts.str.to_lowercase().is_in(list(MISSING)), None)
    texts = with_points(texts, "time", faults)
    sample = texts.drop_nulls().head(SAMPLE)
    read = {kind: parse(sample).is_not_null().sum() for kind, parse in _PARSERS.items()}
    best = max(read, key=lambda kind: read[kind])
    if best in STROKES:  # one date far below may tell
        best = max(STROKES, key=lambda kind: _PARSERS[kind](texts).is_not_null().sum())
    parsed = _PARSERS[best](texts)
    if best == "whole" and (parsed.is_null() & texts.is_not_null()).any():
        broken = _PARSERS["number"](texts)  # whole numbers first and broken ones later are numbers
        if broken.null_count() < parsed.null_count():
            best, parsed = "number", broken
    faults.flag(texts.is_null().to_numpy(), "has no time")
    wrong = (parsed.is_null() & texts.is_not_null()).to_numpy()
    known_as = "quarters such as 2026-Q2" if best == "quarter" else EXAMPLES.get(best.partition(" ")[0], "")
    told = f"like the others ({known_as})" if read[best] else "that can be read"
    faults.flag(wrong, lambda place: no_such_day(str(texts[place])) or f"{texts[place]!r} is no time {told}")
    if not read[best] and wrong.any():
        faults.add(f"times may be {FORMS}")
    if best in STROKES:
        _refuse_two_meanings(texts, faults)
    return _of_parsed(best, texts, parsed, faults)


def _refuse_two_meanings(texts: "polars.Series", faults: LogFaults) -> None:
    """Note it as a fault where day and month may change places in every date of a column."""
    days, months = (_PARSERS[kind](texts) for kind in STROKES)
    if days.null_count() == months.null_count() and (days != months).any():
        first = texts.filter((days != months).fill_null(False))[0]
        faults.add(
            f"is the day first in {first}, or the month? No date of the column tells. Write 2026-05-31 or 31.05.2026"
        )


def no_such_day(text: str) -> str:
    """What to say of a date that no calendar has; nothing of any other text.

    Args:
        text: what was written.
    """
    year_first = re.match(r"(\d{4})-(\d{2})-(\d{2})(?!\d)", text)
    day_first = re.match(r"(\d{1,2})[./](\d{1,2})[./](\d{4})(?!\d)", text)
    match = year_first or day_first
    if match is None:
        return ""
    year, month, day = map(int, match.groups() if year_first else match.groups()[::-1])
    if not (1 <= month <= 12 and year >= 1 and day >= 1 and day > (last := calendar.monthrange(year, month)[1])):
        return ""
    return f"there is no day {text}: {calendar.month_name[month]} {year} has {last} days"


def _of_parsed(name: str, texts: "polars.Series", parsed: "polars.Series", faults: LogFaults) -> Times:
    if name in ("whole", "number"):
        return {"whole": _of_whole, "number": _of_numbers}[name](parsed)
    if name.startswith("day"):
        return _of_days(parsed)
    if name == "instant":
        return _of_zoned(texts, parsed, faults)
    return _as_times("week" if name == "week" else "month", parsed)


def _of_zoned(texts: "polars.Series", wall: "polars.Series", faults: LogFaults) -> Times:
    """Moments with their zones; all of them have one, or none."""
    import polars

    zone = texts.str.extract(_MOMENT, 3)
    zoned = zone.is_not_null() & wall.is_not_null()
    if 0 < (number := zoned.sum()) < wall.is_not_null().sum():
        fewer = zoned if 2 * number <= len(wall) else ~zoned & wall.is_not_null()
        which = "has a time zone, and others have none" if 2 * number <= len(wall) else "has no time zone; others do"
        faults.flag(fewer.to_numpy(), which)
    minutes = zone.str.slice(1, 2).cast(polars.Int64, strict=False).fill_null(0) * 60
    minutes = minutes + zone.str.slice(-2, 2).cast(polars.Int64, strict=False).fill_null(0)
    sign = 1 - 2 * zone.str.starts_with("-").fill_null(False).cast(polars.Int64)
    late = (minutes * sign * 60_000_000).cast(polars.Duration("us"))
    return _of_walls(wall, wall - late)


_MOMENT = r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s*(Z|[+-]\d{2}:?\d{2})?$"


def _whole(texts: "polars.Series") -> "polars.Series":
    import polars

    whole = texts.cast(polars.Int64, strict=False)
    return whole.set(~_near(whole), None)


def _number(texts: "polars.Series") -> "polars.Series":
    import polars

    numbers = texts.cast(polars.Float64, strict=False)
    return numbers.set((~(numbers.abs() <= FARTHEST_BROKEN)).fill_null(False), None)


def _days(texts: "polars.Series", form: str) -> "polars.Series":
    return texts.str.to_date(form, strict=False, exact=True)


def _months(texts: "polars.Series") -> "polars.Series":
    import polars

    parts = texts.str.extract(r"^(\d{4})-(?:0[1-9]|1[0-2])$", 1), texts.str.extract(r"^\d{4}-(\d{2})$", 1)
    year, month = (part.cast(polars.Int64, strict=False) for part in parts)
    return year * 12 + month - 1


def _quarters(texts: "polars.Series") -> "polars.Series":
    import polars

    parts = texts.str.extract(r"^(\d{4})-?Q[1-4]$", 1), texts.str.extract(r"^\d{4}-?Q(\d)$", 1)
    year, quarter = (part.cast(polars.Int64, strict=False) for part in parts)
    return year * 12 + (quarter - 1) * 3


def _weeks(texts: "polars.Series") -> "polars.Series":
    import polars

    days = _days(texts.str.replace("-W", "W", literal=True) + "-1", "%GW%V-%u").cast(polars.Int32)
    return (days.cast(polars.Int64) - 4) // 7  # weeks begin on a Monday, and 1970 on a Thursday


def _moments(texts: "polars.Series") -> "polars.Series":
    day, clock = texts.str.extract(_MOMENT, 1), texts.str.extract(_MOMENT, 2)
    whole = clock + (clock.str.len_chars() == 5).replace_strict({True: ":00", False: ""}, default="")
    return (day + "T" + whole).str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")


_PARSERS: dict[str, Callable[..., Any]] = {
    "whole": _whole,
    "number": _number,
    "month": _months,
    "quarter": _quarters,
    "week": _weeks,
    "day": lambda texts: _days(texts, "%Y-%m-%d"),
    "day .": lambda texts: _days(texts, "%d.%m.%Y"),
    "day /": lambda texts: _days(texts, "%d/%m/%Y"),
    "day month/": lambda texts: _days(texts, "%m/%d/%Y"),
    "instant": _moments,
}
"""How times may be written; of two that read as many, the first is taken."""


# Steps


def find_step(kind: Kind, pauses: Array, given: str | float | None = None) -> Step:
    """How long a step is.

    Args:
        kind: of the times.
        pauses: (move,) ticks between rows of an arm, none of them 0.
        given: what the user says: a number, or `7 days`, `month`, `12 hours`.

    Raises:
        InvalidInput: the user's step makes no sense, or is needed.
    """
    if given is not None:
        return _given_step(kind, pauses, given)
    if not len(pauses):
        return _step(kind, 1.0, True)
    ticks = _common(pauses) if kind == "number" else float(np.gcd.reduce(pauses))
    often = float(np.mean(np.abs(pauses / ticks - 1) < 1e-6))
    if kind in ("day", "instant", "number") and often < OFTEN:
        _ask(kind, pauses)
    return _step(kind, ticks, True)


def _ask(kind: Kind, pauses: Array) -> None:
    unit, per_unit = _unit_of(kind, float(np.median(pauses)))
    low, mid, high = np.quantile(pauses, (0.05, 0.5, 0.95)) / per_unit
    told = f"9 of 10 pauses are of {low:.4g} to {high:.4g}, half of them of at most {mid:.4g}"
    length = np.format_float_positional(float(f"{mid:.2g}"), trim="-")
    if kind != "number":
        told, length = f"{told} {unit}s", f"'{max(round(mid), 1)} {unit}s'"
    raise InvalidInput(
        f"the times of an arm are not whole steps apart: {told}. Say how long a step of the model is: --step {length}"
    )


def _common(pauses: Floats) -> float:
    """The greatest step of broken numbers: the shortest pause, if it is one; else in millionths."""
    least = float(pauses.min())
    times = np.rint(pauses / least)
    if np.allclose(pauses, times * least, rtol=1e-6, atol=0):
        return float((pauses / times).mean())
    return float(np.gcd.reduce(np.maximum(np.rint(pauses * 1e6), 1).astype(np.int64))) / 1e6


_WORDS = {
    "second": ("s", "sec", "second"),
    "minute": ("min", "minute"),
    "hour": ("h", "hour"),
    "day": ("d", "day"),
    "week": ("w", "week"),
    "month": ("month",),
    "quarter": ("quarter",),
    "year": ("y", "year"),
}

_LENGTHS: dict[Kind, dict[str, float]] = {
    "whole": {"": 1},
    "number": {"": 1},
    "month": {"": 1, "month": 1, "quarter": 3, "year": 12},
    "week": {"": 1, "week": 1},
    "day": {"": 1, "day": 1, "week": 7, "month": 30.436875, "quarter": 91.310625, "year": 365.2425},
    "instant": MICROSECONDS | {"week": 7 * MICROSECONDS["day"], "month": 30.436875 * MICROSECONDS["day"]},
}
"""Ticks of each unit that a step may be said in."""


def _given_step(kind: Kind, pauses: Array, given: str | float) -> Step:
    number, word = _read_step(given)
    lengths = _LENGTHS[kind]
    if word not in lengths:
        known = ", ".join(unit for unit in lengths if unit) or "a number alone"
        told = f"with its unit, one of {known}" if word == "" else f"in {known}" if lengths != {"": 1} else known
        raise InvalidInput(f"--step {given}: the times are {EXAMPLES[kind]}; expected a step {told}")
    ticks = number * lengths[word]
    times = np.rint(pauses / ticks)
    regular = bool(np.allclose(pauses, times * ticks, rtol=1e-6, atol=0))
    return _step(kind, ticks, regular)


def _read_step(given: str | float) -> tuple[float, str]:
    found = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)?\s*([A-Za-z]*)\s*", str(given))
    number = float(found[1] or 1) if found else 0.0
    word = found[2].lower() if found else ""
    units = [unit for unit, words in _WORDS.items() if word in words or word.removesuffix("s") in words]
    if not found or (not found[1] and not word) or not np.isfinite(number) or number <= 0 or (word and not units):
        raise InvalidInput(f"--step: expected a length such as 1, 7 days, month or 12 hours, got {given!r}")
    return number, units[0] if word else ""


def _step(kind: Kind, ticks: float, regular: bool) -> Step:
    unit, per_unit = _unit_of(kind, ticks)
    return Step(ticks, regular, unit, per_unit)


def _unit_of(kind: Kind, ticks: float) -> tuple[str, float]:
    """What people count such a length in, and how many ticks that is."""
    if kind == "instant":
        return next(((unit, size) for unit, size in MICROSECONDS.items() if ticks % size == 0), ("second", 1_000_000))
    return {"whole": "step", "number": "step"}.get(kind, kind), 1.0
