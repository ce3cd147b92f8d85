"""Times of records: their forms, the grid of days they are on, and their texts.

Dates and moments are parsed to moments, numbers to floats; months, quarters and weeks of ISO 8601 stay texts.
"""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.fitting.cleaning.raw_table import Journal
from evenhand.typing import Floats

if TYPE_CHECKING:
    import polars

DATES = (
    "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
"""Forms of dates; a clock time may follow."""

OTHER_ORDER = {"%d/%m/%Y": "%m/%d/%Y", "%m/%d/%Y": "%d/%m/%Y", "%d/%m/%y": "%m/%d/%y", "%m/%d/%y": "%d/%m/%y"}
"""The same form with day and month swapped."""

CLOCKS = ("", " %H:%M", " %H:%M:%S%.f", "T%H:%M", "T%H:%M:%S%.f")

PERIOD = r"^\d{4}-(0[1-9]|1[0-2]|Q[1-4]|W[0-5]\d)$"

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

EXCEL_EPOCH, EXCEL_DAYS = "1899-12-30", (20_000, 80_000)
"""Day 0 of a spreadsheet, and the days (1954 to 2119) that numbers in a column of dates are taken for."""

DAY = 86_400_000_000
"""Microseconds."""


def parse_times(texts: "polars.Series", forms: tuple[str, ...], decimal_comma: bool = False) -> "polars.Series":
    """Return times as moments, or as numbers, or as texts of periods; null if invalid.

    Args:
        texts: the column.
        forms: tried in this order: `number`, `excel`, `period`, `iso`, or forms of dates.
        decimal_comma: whether numbers have a decimal comma.
    """
    import polars

    if forms[:1] == ("period",):
        return texts.set(~texts.str.contains(PERIOD).fill_null(True), None)
    plain = texts.str.replace(",", ".", literal=True) if decimal_comma else texts
    numbers = plain.cast(polars.Float64, strict=False)
    numbers = numbers.set(~numbers.is_finite().fill_null(True), None)
    if forms[:1] == ("number",):
        return numbers
    found = polars.Series(texts.name, [None] * len(texts), dtype=polars.Datetime("us"))
    zoned = r"^\d{4}-\d{2}-\d{2}[T ].*(Z|[+-]\d{2}:?\d{2})$"
    if forms and texts.str.contains(zoned).any():  # in universal time
        iso = texts.str.replace(" ", "T", literal=True).str.replace(r"Z$", "+00:00")
        iso = iso.str.replace(r"T(\d{2}:\d{2})([+-])", "T${1}:00${2}")
        found = iso.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", strict=False, time_unit="us").dt.replace_time_zone(None)
    epoch = polars.Series([EXCEL_EPOCH]).str.to_datetime(time_unit="us").to_physical()[0]
    for form in ("%Y-%m-%d" if form == "iso" else form for form in forms):
        for clock in CLOCKS:
            if form == "excel":
                days = numbers.set(~numbers.is_between(*EXCEL_DAYS).fill_null(False), None)
                parsed = ((days * DAY).round().cast(polars.Int64) + epoch).cast(polars.Datetime("us"))
            else:
                parsed = texts.str.to_datetime(form + clock, strict=False, time_unit="us", exact=True)
                parsed = parsed.set((parsed.dt.year() < 1000).fill_null(False), None)  # of two digits, read as four
            found = found.zip_with(found.is_not_null(), parsed)
    return found


def propose_forms(texts: "polars.Series", decimal_comma: bool, name: str, journal: Journal) -> tuple[str, ...]:
    """Return the forms of a column of times.

    Args:
        texts: the column.
        decimal_comma: whether numbers have a decimal comma.
        name: of the column.
        journal: collects what is odd about them.
    """
    distinct = texts.drop_nulls().unique().sort()

    def share(forms: tuple[str, ...]) -> float:
        """Share of the texts that have one of these forms."""
        return 1 - parse_times(distinct, forms, decimal_comma).null_count() / max(len(distinct), 1)

    if share(("number",)) > 0.5:
        numbers = parse_times(distinct, ("number",), decimal_comma).drop_nulls()
        if share(("%Y%m%d",)) > 0.9:
            return ("%Y%m%d",)
        if not (re.search("date|day", name, re.I) and numbers.is_between(*EXCEL_DAYS).all()):
            return ("number",)
        journal.found("excel-dates", "time", len(texts), "dates are numbers of a spreadsheet", distinct)
        return ("excel",)
    if share(("period",)) > 0.5:
        return ("period",)
    parsed = {form: parse_times(distinct, (form,)) for form in DATES}
    forms: list[str] = []
    left = np.ones(len(distinct), dtype=np.bool_)
    while left.any():
        known = {form: parsed[form].is_not_null().to_numpy() & left for form in DATES}
        # Of forms that fit as many, the one whose dates are at the fewest different distances.
        form = max(DATES, key=lambda each: (known[each].sum(), -parsed[each].sort().diff().n_unique()))
        if not known[form].any():
            break
        if OTHER_ORDER.get(form) not in forms:  # one file has one order of day and month
            forms.append(form)
        left &= ~known[form]
    if forms and left.any() and (excel := parse_times(distinct, ("excel",)).is_not_null().to_numpy() & left).any():
        forms.append("excel")
        journal.found(
            "excel-dates", "time", int(excel.sum()), "dates are numbers of a spreadsheet", distinct.filter(excel)
        )
    first = forms[0] if forms else ""
    swapped = OTHER_ORDER.get(first)
    if swapped and parsed[first].null_count() == parsed[swapped].null_count():
        message = f"dates can be read as {first} or {swapped}; {first} is taken, which makes pauses as regular or more"
        journal.found("day-or-month", "time", len(texts), message, distinct)
    if len(forms) > 1:
        others = distinct.filter(parsed[first].is_null())
        message = f"dates are in several forms: {', '.join(forms)}"
        journal.found("date-forms", "time", int(texts.is_in(others.to_list()).sum()), message, others)
    return tuple(forms)


def find_range(times: "polars.Series", far: float = 10.0, fewest: int = 50) -> tuple[str, str] | None:
    """Return the earliest and latest time that are not far from the others; None if none is far.

    Args:
        times: all times.
        far: distance of an outlier from the middle half of all times, in lengths of that half.
        fewest: number of times below which none is far.
    """
    import polars

    if times.dtype == polars.String or len(times) < fewest:
        return None
    numbers = as_numbers(times)
    first, third = np.quantile(numbers, (0.25, 0.75))
    reach = far * (third - first)
    inside = times.filter(polars.Series((numbers >= first - reach) & (numbers <= third + reach)))
    if third == first or len(inside) == len(times):
        return None
    ends = time_texts(polars.Series([inside.min(), inside.max()], dtype=times.dtype))
    return ends[0], ends[1]


def is_within(times: "polars.Series", earliest: str, latest: str) -> "polars.Series":
    """(row,) whether a time is in a range; an empty end is open."""
    import polars

    inside = polars.Series([True]).new_from_index(0, len(times))
    for limit, is_low in ((earliest, True), (latest, False)):
        if limit:
            form = "number" if times.dtype == polars.Float64 else "period" if times.dtype == polars.String else "iso"
            value = parse_times(polars.Series([limit]), (form,))[0]
            if value is None:
                message = f"rows: invalid time {limit!r}; expected an ISO date or a number"
                raise InvalidInputError(message, argument="rules")
            if not is_low and form == "iso" and len(limit) == 10:  # the whole day
                value += timedelta(days=1, microseconds=-1)
            inside &= (times >= value) if is_low else (times <= value)
    return inside


def find_grid(times: "polars.Series", share: float = 0.9) -> tuple[str, "polars.Series"]:
    """Return the day of the week or month that nearly all dates are on, and the dates that are not on it.

    Args:
        times: all times.
        share: least share of the dates on that day.
    """
    import polars

    if isinstance(times.dtype, polars.Datetime) and len(times):
        for kind, day in (("week", times.dt.weekday()), ("month", times.dt.day())):
            common, number = day.value_counts(sort=True).row(0)
            if number == len(times):
                break
            if number >= share * len(times) and (kind == "week" or common <= 28):
                return DAYS[common - 1] if kind == "week" else f"day {common}", times.filter(day != common)
    return "", times.clear()


def to_grid(times: "polars.Series", grid: str) -> "polars.Series":
    """Return dates moved to the nearest day of the grid, without clock times; other times as they are.

    Args:
        times: the times.
        grid: `monday`, or `day 1` of the month; empty for none.
    """
    import polars

    if not grid or not isinstance(times.dtype, polars.Datetime):
        return times
    date = polars.col("date")
    if grid in DAYS:
        ahead = (DAYS.index(grid) + 1 - date.dt.weekday().cast(polars.Int64)) % 7
        moved = date + polars.duration(days=polars.when(ahead > 3).then(ahead - 7).otherwise(ahead))
    else:
        here = date.dt.month_start() + polars.duration(days=int(grid.split()[1]) - 1)
        before, after = here.dt.offset_by("-1mo"), here.dt.offset_by("1mo")
        late, early = (here - date) > (date - before), (date - here) > (after - date)
        moved = polars.when(late).then(before).when(early).then(after).otherwise(here)
    return times.dt.truncate("1d").to_frame("date").select(moved.alias(times.name)).to_series()


def as_numbers(times: "polars.Series") -> Floats:
    """(row,) numbers, microseconds of moments, or ranks of periods."""
    import polars

    if times.dtype == polars.String:
        return times.rank("dense").to_numpy().astype(np.float64)
    return times.to_physical().to_numpy().astype(np.float64)


def from_numbers(numbers: Floats, dtype: Any) -> "polars.Series":
    """Return times of a kind from numbers."""
    import polars

    if dtype == polars.Float64:
        return polars.Series("time", numbers)
    return polars.Series("time", np.rint(numbers).astype(np.int64)).cast(dtype)


def tick_of(times: "polars.Series") -> float:
    """Shift of a tied row: 1 among integers, else a thousandth; a day of dates, a minute of moments."""
    import polars

    if times.dtype == polars.Float64:
        return 1.0 if (times == times.round()).all() else 1e-3
    return float(DAY) if (times == times.dt.truncate("1d")).all() else DAY / 1440


def time_texts(times: "polars.Series") -> "polars.Series":
    """Return times in ISO 8601, and whole numbers without a decimal point."""
    import polars

    if times.dtype == polars.Float64:
        whole = bool(((times == times.round()) & (times.abs() < 2**53)).all())
        return (times.cast(polars.Int64) if whole else times).cast(polars.String)
    if times.dtype == polars.String:
        return times
    is_dates = bool((times == times.dt.truncate("1d")).all())
    return times.dt.strftime("%Y-%m-%d" if is_dates else "%Y-%m-%dT%H:%M:%S")
