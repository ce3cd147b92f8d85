"""Proposed roles of columns, and forms of times."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.errors import Fault, TableError
from evenhand.fitting.cleaning.raw_table import Finding, RawTable, two
from evenhand.fitting.cleaning.rules import ROLES, TableRules

if TYPE_CHECKING:
    import polars

_WORDS = """
    arm     arm id ids patient person subject client beneficiary machine unit vehicle van bus truck asset engine pump
            device serial component customer user participant ptnum pid sid bridge turbine name
    time    time date datetime timestamp week day month year visit years days period t start tstart begin since entry
    stop    stop end until tstop finish exit ended
    state   state status condition health stage level grade rating outcome result category failure fault score
    from    from
    to      to
    action  action actions treatment intervention service contact repair maintenance done maint activity rx
    type    type make model kind class manufacturer variety family
    group   group clinic ward region district site depot centre center village hospital location team
"""
WORDS = {role: words for role, *words in map(str.split, re.sub(r"\n {12}", " ", _WORDS).strip().splitlines())}
"""Words in the names of columns; earlier ones count more."""

DATES = (
    "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
"""Forms of dates; a clock time may follow."""

CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")

PERIOD = r"^\d{4}-(0[1-9]|1[0-2]|Q[1-4]|W[0-5]\d)$"
"""Months, quarters and weeks of ISO 8601, which stay as they are."""

EXCEL_EPOCH, EXCEL_DAYS = "1899-12-30", (20_000, 80_000)
"""Day 0 of a spreadsheet, and the days (1954 to 2119) that numbers in a column of dates are taken for."""


def propose_table(raw: RawTable, given: Mapping[str, str], is_only: bool) -> tuple[TableRules, list[Finding]]:
    """Return the roles of a table's columns, and what was guessed.

    Args:
        raw: the table.
        given: columns of roles that are known; those that the table lacks are ignored.
        is_only: whether there is no other table.
    """
    columns = {role: column for role, column in given.items() if column in raw.frame.columns}
    guessed = _guess_roles(raw.frame, columns)
    columns = {role: (columns | guessed)[role] for role in ROLES if role in columns | guessed}
    if "from" not in columns or "to" not in columns:
        columns = {role: column for role, column in columns.items() if role not in ("from", "to")}
    else:
        columns.pop("state", None)
    findings = []
    if guessed := {role: column for role, column in guessed.items() if role in columns}:
        pairs = ", ".join(f"{role} = {column!r}" for role, column in guessed.items())
        findings.append(Finding("columns", "", 0, f"columns of {raw.name} were taken by their names: {pairs}"))
    needed = ["arm", *(["time"] if is_only else []), *(["state"] if is_only and "to" not in columns else [])]
    if faults := [
        Fault(role, f"no column found; the columns are {', '.join(raw.frame.columns)}")
        for role in needed
        if role not in columns
    ]:
        raise TableError(faults, raw.name)
    constant = {}
    if "time" in columns and not {"state", "action", "to"} & set(columns):
        stem = Path(raw.name).stem
        constant = {
            "action" if re.search("maint|service|repair|treat|visit|action|contact", stem, re.I) else "state": stem
        }
        findings.append(Finding("constant", "", len(raw.frame), f"every row of {raw.name} means {constant}"))
    decimal_comma = any(_is_decimal_comma(raw.frame[column]) for column in raw.frame.columns)
    if decimal_comma:
        findings.append(Finding("decimal-comma", "", 0, f"numbers of {raw.name} have a decimal comma"))
    rules = TableRules(raw.name, columns, (), decimal_comma, constant)
    if "time" in columns:
        texts = raw.frame[columns["time"]]
        forms, more = propose_times(texts, decimal_comma, columns["time"])
        rules, findings = TableRules(raw.name, columns, forms, decimal_comma, constant), [*findings, *more]
    return rules, findings


def _guess_roles(frame: "polars.DataFrame", known: Mapping[str, str]) -> dict[str, str]:
    """Best column of each role that is not known, by the words in its name."""
    scores = []
    for place, column in enumerate(frame.columns):
        words = re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[a-z])(?=id$)", " ", column).lower())
        for role, names in WORDS.items():
            best = min((names.index(word) for word in words if word in names), default=None)
            if best is not None:  # a name of one word, and an early word, count most
                scores.append((len(words) > 1, best, place, role, column))
    found: dict[str, str] = {}
    for *_, role, column in sorted(scores):
        if role not in known and role not in found and column not in {*known.values(), *found.values()}:
            found[role] = column
    return found


def _is_decimal_comma(column: "polars.Series") -> bool:
    texts = column.drop_nulls().unique()
    number = texts.str.contains(r"^[-+]?\d+,\d+$")
    return bool(number.sum() > 0 and (number | texts.str.contains(r"^[-+]?\d+$")).mean() > 0.9)  # type: ignore[operator]


def propose_times(texts: "polars.Series", decimal_comma: bool, name: str) -> tuple[tuple[str, ...], list[Finding]]:
    """Return the forms of a column of times, and what is odd about them.

    Args:
        texts: the column.
        decimal_comma: whether numbers have a decimal comma.
        name: of the column.
    """
    distinct = texts.drop_nulls().unique().sort()
    numbers = parse_times(distinct, ("number",), decimal_comma)
    if numbers.is_not_null().mean() > 0.5:  # type: ignore[operator]
        compact = parse_times(distinct, ("%Y%m%d",))
        if compact.is_not_null().mean() > 0.9:  # type: ignore[operator]
            return ("%Y%m%d",), []
        is_date = "date" in name.lower() and numbers.drop_nulls().is_between(*EXCEL_DAYS).all()
        if is_date:
            return ("excel",), [Finding("excel-dates", "time", len(texts), "dates are numbers of a spreadsheet")]
        return ("number",), []
    if distinct.str.contains(PERIOD).mean() > 0.5:  # type: ignore[operator]
        return ("period",), []
    parsed = {form: parse_times(distinct, (form,)) for form in DATES}
    forms: list[str] = []
    left = distinct
    while len(left):
        number = {form: int(parse_times(left, (form,)).is_not_null().sum()) for form in DATES}
        form = max(DATES, key=lambda each: (number[each], -parsed[each].diff().drop_nulls().n_unique()))
        if not number[form]:
            break
        swapped = _other_order(form)
        if swapped not in forms:  # one file, one order of day and month
            forms.append(form)
        left = left.filter(parse_times(left, (form,)).is_null())
    findings = []
    first = forms[0] if forms else ""
    if (swapped := _other_order(first)) and parsed[first].null_count() == parsed[swapped].null_count():
        message = f"dates can be read as {first} or {swapped}; {first} makes the pauses more regular"
        findings.append(Finding("day-or-month", "time", len(texts), message, two(distinct)))
    if len(forms) > 1:
        message = f"dates are written in several forms: {', '.join(forms)}"
        other = distinct.filter(parsed[first].is_null())
        findings.append(Finding("date-forms", "time", int(texts.is_in(other).sum()), message, two(other)))
    return tuple(forms), findings


def _other_order(form: str) -> str:
    """The same form with day and month swapped, if that is a form of dates too."""
    swapped = {"%d/%m/%Y": "%m/%d/%Y", "%d/%m/%y": "%m/%d/%y"}
    return (swapped | {new: old for old, new in swapped.items()}).get(form, "")


def parse_times(texts: "polars.Series", forms: tuple[str, ...], decimal_comma: bool = False) -> "polars.Series":
    """Return times as moments, or as numbers, or as texts of periods; null if invalid.

    Args:
        texts: the column.
        forms: tried in this order: `number`, `excel`, `period`, or forms of dates.
        decimal_comma: whether numbers have a decimal comma.
    """
    import polars

    if forms[:1] == ("period",):
        return texts.set(~texts.str.contains(PERIOD).fill_null(True), None)
    if forms[:1] in (("number",), ("excel",)):
        plain = texts.str.replace(",", ".", literal=True) if decimal_comma else texts
        numbers = plain.cast(polars.Float64, strict=False)
        numbers = numbers.set(~numbers.is_finite().fill_null(True), None)
        if forms[0] == "number":
            return numbers
        ticks = (numbers * 86_400_000_000).round().cast(polars.Int64)
        epoch = polars.Series([EXCEL_EPOCH]).str.to_datetime(time_unit="us")
        moments: polars.Series = (ticks + epoch.to_physical()[0]).cast(polars.Datetime("us"))
        return moments
    found = polars.Series(texts.name, [None] * len(texts), dtype=polars.Datetime("us"))
    for form in forms:
        date = "%Y-%m-%d" if form == "iso" else form
        for clock in CLOCKS:
            if found.null_count() == 0:
                return found
            parsed = texts.str.to_datetime(date + clock, strict=False, time_unit="us", exact=True)
            found = found.zip_with(found.is_not_null(), parsed)
    return found
