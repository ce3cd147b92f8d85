"""Proposed roles of the columns of a table, by the words in their names."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.errors import Fault, InvalidInputError, TableError
from evenhand.fitting.cleaning.clock import DATES, parse_times, propose_forms
from evenhand.fitting.cleaning.raw_table import Journal, RawTable
from evenhand.fitting.cleaning.rules import ROLES, TableRules

if TYPE_CHECKING:
    import polars

_WORDS = """
    arm     arm id patient person subject client beneficiary machine unit vehicle van bus truck asset engine pump
            device serial component customer user participant ptnum pid sid bridge turbine name
    time    time date datetime timestamp week day month year visit period t start tstart begin since entry inspected
            completed performed recorded observed visited reported
    stop    stop end until tstop finish exit ended
    state   state status condition health stage level grade rating outcome result category failure fault score
    from    from
    to      to
    action  action treatment intervention service contact repair maintenance done maint activity rx job task work order
            procedure operation
    type    type make model kind class manufacturer variety family
    group   group clinic ward region district site depot centre center village hospital location team
"""
WORDS = {role: words for role, *words in map(str.split, re.sub(r"\n {12}", " ", _WORDS).strip().splitlines())}
"""Words in the names of columns; earlier ones count more."""

STATUS = re.compile("status|event|happened|occurred|observed|indicator", re.IGNORECASE)
"""Names of columns that may say if a change happened."""

FAILURES = re.compile("fail|fault|death|dead|break|event|error", re.IGNORECASE)
"""Names of tables whose rows are states, if they have a time and neither a state nor an action; others are actions."""


def propose_table(raw: RawTable, given: Mapping[str, str], is_only: bool, journal: Journal) -> TableRules:
    """Return the roles of a table's columns.

    Args:
        raw: the table.
        given: columns of roles that are known; those that the table lacks are ignored.
        is_only: whether there is no other table.
        journal: collects what was guessed.

    Raises:
        TableError: a column that is needed was not found.
    """
    import polars

    known = {role: column for role, column in given.items() if column in raw.frame.columns}
    if len(set(known.values())) < len(known):
        raise InvalidInputError("columns: a column can have one role only", argument="columns")
    guessed = guess_roles(raw.frame.columns, known)
    both = known | guessed
    unused = {"from", "to", "status"}
    if {"from", "to"} <= both.keys():
        # A column of 0 and 1 beside the states of a change says whether it happened.
        unused = {"state"}
        flags = {"0", "1", "0.0", "1.0"}
        named = [both.get("state", both["to"]), *(name for name in raw.frame.columns if STATUS.fullmatch(name))]
        found = [name for name in named if set(raw.frame[name].drop_nulls()) <= flags]
        if "status" not in both and found:
            both["status"] = guessed["status"] = found[0]
    if "time" not in both and (
        dates := [name for name in raw.frame.columns if name not in both.values() and _is_dates(raw.frame[name])]
    ):
        both["time"] = guessed["time"] = dates[0]
    columns = {role: both[role] for role in ROLES if role in both and role not in unused}
    if pairs := [f"{role} = {column!r}" for role, column in columns.items() if role in guessed]:
        journal.noted("columns", f"columns of {raw.name} were taken by their names: {', '.join(pairs)}")
    needed = ("arm", "time", "to" if "to" in columns else "state") if is_only else ("arm",)
    listed = ", ".join(raw.frame.columns)
    missing = [role for role in needed if role not in columns]
    if faults := [Fault(role, f"no column found; name it with --{role}, one of {listed}") for role in missing]:
        raise TableError(faults, raw.name)
    decimal_comma = any(_has_decimal_comma(column) for column in raw.frame)
    forms: tuple[str, ...] = ()
    if "time" in columns:
        texts = [raw.frame[columns[role]].alias("time") for role in ("time", "stop") if role in columns]
        forms = propose_forms(polars.concat(texts), decimal_comma, columns["time"], journal)
    arms = raw.frame[columns["arm"]].drop_nulls()
    says_nothing = not {"state", "action", "to"} & columns.keys()
    # A list of arms, one row each, has no times: a year in it is a property of the arm.
    if not is_only and says_nothing and forms == ("number",) and arms.n_unique() == len(arms) > 1:
        del columns["time"]
    constant = {}
    if "time" in columns and says_nothing:
        stem = Path(raw.name).stem
        constant = {"state" if FAILURES.search(stem) else "action": stem}
        message = f"every row of {raw.name} has the {' '.join(constant)} {stem!r}"
        journal.found("constant", "", len(raw.frame), message)
    fill_down = len(arms) < 0.8 * len(raw.frame) and raw.frame[columns["arm"]][0] is not None
    if fill_down:
        message = f"arms of {raw.name} are blank, as in merged cells; that of the row above counts"
        journal.found("merged-cells", "arm", len(raw.frame) - len(arms), message)
    if decimal_comma:
        journal.noted("decimal-comma", f"numbers of {raw.name} have a decimal comma")
    return TableRules(raw.name, columns, forms, decimal_comma, fill_down, constant)


def guess_roles(names: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """Best column of each role that is not known: names of no other words, and early words, count most."""
    scores = []
    for place, name in enumerate(names):
        words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[a-z])(?=id$)", " ", name).lower())
        for role, good in WORDS.items():
            found = [good.index(one) for word in words for one in (word, word.removesuffix("s")) if one in good]
            if found:
                scores.append((len(words) - len(found), min(found), place, role, name))
    guessed: dict[str, str] = {}
    for *_, role, name in sorted(scores):
        if role not in {*known, *guessed} and name not in {*known.values(), *guessed.values()}:
            guessed[role] = name
    return guessed


def _is_dates(column: "polars.Series") -> bool:
    texts = column.drop_nulls().unique().head(1000)
    return len(texts) > 1 and max(len(parse_times(texts, (form,)).drop_nulls()) for form in DATES) > 0.9 * len(texts)


def _has_decimal_comma(column: "polars.Series") -> bool:
    texts = column.drop_nulls().unique()
    with_comma = texts.str.contains(r"^[-+]?\d+,\d+$")
    numbers = with_comma | texts.str.contains(r"^[-+]?\d+$")
    return bool(with_comma.any()) and int(numbers.sum()) > 0.9 * len(texts)
