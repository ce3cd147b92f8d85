"""Clean records by rules: propose them, apply them, and count what each of them did.

    tables   columns get their roles, times are parsed, rows without an arm or a time are left out
    names    spelling of arms, states, actions, types and groups; entries that mean that nothing was observed
    times    outliers are left out, dates move to the grid
    rows     intervals become changes; duplicates and ties
    arms     tables are joined by arm and time; an arm has one type
    states   blank states, derived columns

Rules are proposed stage by stage, from what the stages before have left. The same rules give the same table again, and
what they do not cover is reported.

Intervals become changes: a row at the start has the state (or `from`), and a row at the stop the state `to`, or a blank
one, from which on nothing is known until the next row. If there is a `status`, a change happened only if it is 1: one
row per possible change, as in survival analysis.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, TableError, UnknownNameError
from evenhand.fitting.cleaning import clock
from evenhand.fitting.cleaning.derived_states import with_derived_states
from evenhand.fitting.cleaning.raw_table import Finding, Journal, RawTable, read_raw
from evenhand.fitting.cleaning.roles import propose_table
from evenhand.fitting.cleaning.rules import ROLES, Rules, TableRules, read_rules
from evenhand.fitting.cleaning.spelling import case_variants, not_observed, odd_names, spelling
from evenhand.fitting.table_reader import MISSING
from evenhand.fitting.times import resolve_ties
from evenhand.model.io import write_atomically
from evenhand.model.io.text_table import csv_text

if TYPE_CHECKING:
    import polars

NAMES = ("state", "action", "type", "group")
"""Roles whose spelling is checked; of arms only the case."""

PLACE, NEW = "\0place", "\0new"
"""Column of places, for sorting; and suffix of columns of a later table."""

ENDED = "\0ended"
"""State at the end of an interval after which nothing is known; blank in the end."""


@dataclass(frozen=True, eq=False)
class CleanedRecords(Shown):
    """Records after cleaning, the rules, and what they did."""

    frame: "polars.DataFrame" = field(repr=False)
    """Columns arm, time, state and, if there are any, action, type, group and others; all texts."""

    rules: Rules
    """The rules, given or proposed."""

    findings: tuple[Finding, ...]
    """Oddities of the records, each with its proposed rule; if rules were given, those that they do not cover."""

    effects: tuple[Finding, ...]
    """Number of rows that each rule changed or left out."""

    num_rows: int
    """Number of rows in the records."""

    is_proposal: bool
    """Whether the rules were proposed."""

    layout: str
    """`events` if the rows are changes, made of intervals; else empty."""

    def __repr__(self) -> str:
        return f"CleanedRecords({counted(self.num_rows, 'row')} read, {counted(len(self.frame), 'row')} clean)"

    @property
    def needs_decisions(self) -> bool:
        """Whether a proposed rule changes or leaves out rows, or a reading of the records is a guess."""
        guesses = any(finding.kind in ("constant", "day-or-month", "sheets") for finding in self.findings)
        return self.is_proposal and (bool(self.effects) or guesses)

    @property
    def span(self) -> str:
        """Earliest and latest time."""
        times = self.frame["time"].unique().to_list()
        with suppress(ValueError):
            times.sort(key=float)
            return f"{times[0]} to {times[-1]}"
        return f"{min(times)} to {max(times)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "rows_read": self.num_rows,
            "rows": len(self.frame),
            "arms": self.frame["arm"].n_unique(),
            "columns": self.frame.columns,
            "layout": self.layout or None,
            "findings": [finding.to_dict() for finding in self.findings],
            "effects": [effect.to_dict() for effect in self.effects],
        }

    def save(self, path: str | Path) -> None:
        """Write the clean records.

        Args:
            path: a file `.csv` or `.parquet`.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".csv", ".parquet"):
            raise InvalidInputError(f"{path}: expected a file .csv or .parquet", argument="out")
        body = io.BytesIO()
        if suffix == ".parquet":
            self.frame.write_parquet(body)
        else:
            body.write(csv_text([self.frame.columns, *self.frame.iter_rows()]).encode())
        write_atomically(Path(path), body.getvalue())


def clean_records(
    records: Any, rules: Rules | str | Path | None = None, columns: Mapping[str, str] | None = None
) -> CleanedRecords:
    """Clean records of arms: spelling, blanks, duplicates, ties, dates, and tables that belong together.

    Args:
        records: a file name (CSV, Excel, Parquet, JSON), a frame, or a list of these, which are joined.
        rules: rules, or the name of a file of rules; proposed by default.
        columns: column of each role (arm, time, state, action, type, group, stop, from, to) that is not to be guessed.

    Raises:
        TableError: the records cannot be read as a table, or the rules are invalid.

    Example:
        >>> import evenhand as eh
        >>> rows = [{"id": "a1", "week": 1, "state": "good"}, {"id": "A1", "week": 2, "state": "Good"}]
        >>> eh.clean_records(rows).frame.rows()
        [('a1', '1', 'good'), ('a1', '2', 'good')]
    """
    is_list = isinstance(records, (list, tuple)) and not all(isinstance(row, Mapping) for row in records)
    sources = list(records) if is_list else [records]
    tables = [read_raw(source, f"table {number}") for number, source in enumerate(sources, 1)]
    if len({table.name for table in tables}) < len(tables):  # of equal file names, with their folders
        tables = [
            replace(table, name=str(source)) if isinstance(source, (str, Path)) else table
            for table, source in zip(tables, sources, strict=True)
        ]
    if rules is not None and columns:
        raise InvalidInputError("columns: the rules name the columns; edit them there", argument="columns")
    known = {name for table in tables for name in table.frame.columns}
    for role, column in (columns or {}).items():
        if role not in ROLES:
            raise UnknownNameError("role", role, ROLES)
        if column not in known:
            raise UnknownNameError("column", column, known)
    given = read_rules(rules) if isinstance(rules, (str, Path)) else rules
    journal = Journal([finding for table in tables for finding in table.findings])
    if given is None:
        one = len(tables) == 1
        proposed = Rules(tuple(propose_table(table, columns or {}, one, journal) for table in tables))
    return _Cleaning(tables, given or proposed, given is None, journal).result()


class _Cleaning:
    """The stages of one import; each may propose its rules."""

    def __init__(self, tables: Sequence[RawTable], rules: Rules, proposing: bool, journal: Journal) -> None:
        self.tables, self.rules, self.proposing, self.journal = tables, rules, proposing, journal
        self.is_events = False

    def result(self) -> CleanedRecords:
        """Run all stages."""
        pairs = self._matched_tables()
        parts = self._renamed([self._with_roles(raw, rules) for raw, rules in pairs])
        timed = [(part, rules) for part, (_, rules) in zip(parts, pairs, strict=True) if "time" in part.columns]
        if len({str(part["time"].dtype) for part, _ in timed}) != 1:
            listed = ", ".join(f"{rules.file} has {rules.times or 'none'}" for _, rules in pairs)
            message = f"tables must have times of one kind, dates, numbers or periods: {listed}"
            raise TableError([Fault("time", message)], "the records")
        moved = self._moved([part for part, _ in timed])
        rows = [self._one_per_time(self._events(part, rules)) for part, (_, rules) in zip(moved, timed, strict=True)]
        frame = self._joined(rows, [part for part in parts if "time" not in part.columns])
        frame = self._with_states(self._with_types(frame))
        order = [role for role in ("arm", "time", *NAMES) if role in frame.columns]
        frame = frame.select(*order, *(column for column in frame.columns if column not in order))
        if "state" not in frame.columns or frame["state"].null_count() == len(frame):
            raise TableError([Fault("state", "no row has a state")], "the records")
        num_rows = sum(len(part) for part, _ in timed)
        if 2 * len(frame) < num_rows and len(timed) == 1 and not self.is_events:
            self.journal.found("most-rows", "", num_rows - len(frame), "most rows were left out; check the rules")
        return CleanedRecords(
            frame=frame.with_columns(clock.time_texts(frame["time"])),
            rules=self.rules,
            findings=tuple(self.journal.findings),
            effects=tuple(self.journal.effects),
            num_rows=sum(len(table.frame) for table in self.tables),
            is_proposal=self.proposing,
            layout="events" if self.is_events else "",
        )

    def _propose(self, **rules: Any) -> None:
        """Set rules, unless rules were given."""
        if self.proposing:
            self.rules = replace(self.rules, **rules)

    # Tables

    def _matched_tables(self) -> list[tuple[RawTable, TableRules]]:
        """Each table with its rules, by file name, or by order if no name is known; in the order of the rules."""
        by_name = {table.name: table for table in self.tables}
        files = [rules.file for rules in self.rules.tables]
        if sorted(files) == sorted(by_name):
            return [(by_name[rules.file], rules) for rules in self.rules.tables]
        if len(files) == len(by_name) and not set(files) & by_name.keys():
            return list(zip(self.tables, self.rules.tables, strict=True))
        message = f"the rules are for {', '.join(files)}; got {', '.join(by_name)}"
        raise InvalidInputError(message, argument="rules")

    def _with_roles(self, raw: RawTable, rules: TableRules) -> "polars.DataFrame":
        """Columns under the names of their roles, times parsed; without rows that lack an arm or a time."""
        import polars

        listed = ", ".join(raw.frame.columns)
        lacking = [column for column in rules.columns.values() if column not in raw.frame.columns]
        if lacking:
            faults = [Fault("", f"missing column {column}. The columns are: {listed}") for column in lacking]
            raise TableError(faults, raw.name)
        roles = {column: role for role, column in rules.columns.items()}
        # Other columns have their own names, unless these are roles.
        frame = raw.frame.rename(lambda name: roles.get(name, f"{name} (other)" if name in ROLES else name))
        if rules.decimal_comma:
            others = polars.exclude("arm", "time", "stop")
            frame = frame.with_columns(others.str.replace(r"^([-+]?\d+),(\d+)$", "${1}.${2}"))
        frame = frame.with_columns(polars.lit(value).alias(role) for role, value in rules.constant.items())
        if rules.fill_down:
            blanks = frame["arm"].null_count()
            frame = frame.with_columns(polars.col("arm").forward_fill())
            filled = blanks - frame["arm"].null_count()
            self.journal.did("merged-cells", "arm", filled, f"blank arms of {raw.name} taken from the row above")
        blank = frame["arm"].is_null() | frame["arm"].str.to_lowercase().is_in(list(MISSING))
        self.journal.did("no-arm", "arm", int(blank.sum()), f"rows of {raw.name} without an arm left out")
        frame = frame.filter(~blank)
        if not len(frame):
            raise TableError([Fault("arm", "no row has an arm")], raw.name)
        for role in ("time", "stop"):
            if role in frame.columns:
                texts, forms = frame[role], rules.times or ("iso",)
                frame = frame.with_columns(clock.parse_times(texts, forms, rules.decimal_comma).alias(role))
                # A blank stop is a stay that goes on.
                wrong = frame[role].is_null() & (texts.is_not_null() if role == "stop" else True)
                shown = texts.filter(wrong).fill_null("(blank)")
                message = f"rows of {raw.name} without a valid {role} left out"
                self.journal.did(f"no-{role}", role, int(wrong.sum()), message, shown)
                frame = frame.filter(~wrong)
                if role == "time" and wrong.all():
                    known = "a known form of dates" if forms == ("iso",) else f"the form {' or '.join(forms)}"
                    advice = "Write dates as 2026-05-31, months as 2026-05"
                    fault = Fault("times", f"no entry has {known}; the first is {texts[0]!r}. {advice}")
                    raise TableError([fault], raw.name)
        return frame

    # Names

    def _renamed(self, parts: list["polars.DataFrame"]) -> list["polars.DataFrame"]:
        """Tables with their names spelt alike."""
        import polars

        proposed: dict[str, dict[str, str]] = {}
        arms: dict[str, str] = {}
        for role in ("arm", *NAMES):
            columns = [part[name].alias(role) for part in parts for name in _columns_of(role) if name in part.columns]
            if not columns:
                continue
            entries = polars.concat(columns).drop_nulls().replace(self.rules.rename.get(role, {}))
            counts = dict(entries.filter(entries != "").value_counts(sort=True, name="rows").rows())
            if role == "arm":
                arms = case_variants(counts)
                if self.rules.arms == "keep":
                    self._found_names("arm-case", role, arms, counts, "differ only in case or spaces, and are one arm")
                if arms:
                    self._propose(arms="fold")
            else:
                blank = not_observed(counts)
                known = {name: count for name, count in counts.items() if name not in blank}
                variants = spelling(known)
                ends = self._last_states(parts) if role == "state" else set(counts)
                odd = odd_names({name: count for name, count in known.items() if name not in variants}, ends)
                self._found_names("not-observed", role, blank, counts, "mean that nothing was observed")
                self._found_names("spelling", role, variants, counts, "are spelling variants")
                self._found_names("odd-state", role, odd, counts, "are rare and never an arm's last; not observed")
                proposed[role] = blank | odd | dict(sorted(variants.items(), key=lambda pair: pair[1]))
        self._propose(rename={role: names for role, names in proposed.items() if names})
        for role, spelt in self.rules.rename.items():
            columns = [part[column] for part in parts for column in _columns_of(role) if column in part.columns]
            present = {name for column in columns for name in column.unique()}
            if unused := [name for name in spelt if name not in present]:
                listed = ", ".join(map(repr, unused[:5]))
                self.journal.noted("unused-rule", f"rename.{role} names {listed}, which no row has")
        names = dict(self.rules.rename)
        if self.rules.arms == "fold":  # after the rules for single names
            own = names.get("arm", {})
            names["arm"] = {name: arms.get(new, new) for name, new in ({name: name for name in arms} | own).items()}
        return [self._with_names(part, names) for part in parts]

    def _found_names(
        self, kind: str, role: str, names: Mapping[str, str], counts: Mapping[str, int], message: str
    ) -> None:
        rows = sum(counts[name] for name in names)
        self.journal.found(
            kind, role, rows, f"{role}s {message}", (f"{old} → {new or 'blank'}" for old, new in names.items())
        )

    def _last_states(self, parts: Sequence["polars.DataFrame"]) -> set[str]:
        """States that end the records of an arm, as a death does."""
        import polars

        ends: set[str] = set()
        for part in parts:
            if "time" in part.columns and (column := next((n for n in ("to", "state") if n in part.columns), "")):
                last = part.sort("time", maintain_order=True).group_by("arm").agg(polars.col(column).last())
                ends |= set(last[column].drop_nulls())
        return ends

    def _with_names(self, part: "polars.DataFrame", names: Mapping[str, Mapping[str, str]]) -> "polars.DataFrame":
        for role, spelt in names.items():
            for column in _columns_of(role):
                if column in part.columns and spelt:
                    before = part[column]
                    after = before.replace(dict(spelt))
                    changed = before.filter((before != after).fill_null(False))
                    examples = (f"{old} → {spelt[old] or 'blank'}" for old in changed.unique(maintain_order=True))
                    self.journal.did("rename", role, len(changed), f"{role}s renamed", examples)
                    part = part.with_columns(after.replace("", None))
        return part.drop_nulls("arm")

    # Times

    def _moved(self, parts: list["polars.DataFrame"]) -> list["polars.DataFrame"]:
        """Rows within the range of times, on the grid."""
        import polars

        # Dates of tables without states, such as work orders, are on no grid: they belong to the row before.
        stated = [part for part in parts if {"state", "to"} & set(part.columns)] or parts
        times = polars.concat([part["time"] for part in stated])
        if self.proposing and (ends := clock.find_range(times)):
            self._propose(earliest=ends[0], latest=ends[1])
            far = times.filter(~clock.is_within(times, *ends))
            message = "times are far from all others, and left out"
            self.journal.found("far-times", "time", len(far), message, clock.time_texts(far))
        limits = self.rules.earliest, self.rules.latest
        grid, off = clock.find_grid(times.filter(clock.is_within(times, *limits)))
        if grid and not self.rules.grid:
            where = f"a {grid.title()}" if grid in clock.DAYS else f"{grid} of the month"
            days = zip(clock.time_texts(off), off.dt.strftime("%A"), strict=True)
            message = f"dates are not on {where}, as the others are; moved to the nearest"
            self.journal.found("off-grid", "time", len(off), message, (f"{text} ({day})" for text, day in days))
            self._propose(grid=grid)
        grids = [self.rules.grid if any(part is one for one in stated) else "" for part in parts]
        return [self._on_grid(part, limits, own) for part, own in zip(parts, grids, strict=True)]

    def _on_grid(self, part: "polars.DataFrame", limits: tuple[str, str], grid: str) -> "polars.DataFrame":
        inside = clock.is_within(part["time"], *limits)
        shown = clock.time_texts(part["time"].filter(~inside))
        self.journal.did("far-times", "time", int((~inside).sum()), "rows with times out of range left out", shown)
        part = part.filter(inside)
        for role in ("time", "stop"):
            if role in part.columns:
                before, after = part[role], clock.to_grid(part[role], grid)
                changed = (before != after).fill_null(False)
                pairs = zip(*(clock.time_texts(column.filter(changed)) for column in (before, after)), strict=True)
                examples = (f"{old} → {new}" for old, new in pairs)
                self.journal.did("grid", role, int(changed.sum()), f"dates moved to {grid}", examples)
                part = part.with_columns(after)
        return part

    # Rows

    def _events(self, part: "polars.DataFrame", rules: TableRules) -> "polars.DataFrame":
        """Intervals and changes (from, to) as rows at which the state changes; other tables as they are."""
        import polars

        if "to" not in part.columns and "stop" not in part.columns:
            return part
        self.is_events = True
        if "status" in part.columns:
            happened = part["status"].str.to_lowercase().is_in(["1", "1.0", "true", "yes"]).fill_null(False)
            part = part.with_columns(polars.when(happened).then(polars.col("to")))
            self.journal.did("status", "to", int((~happened).sum()), "changes that did not happen, by their status")
        if {"from", "to"} <= set(part.columns):
            changes = part.filter(polars.col("to").is_not_null()).sort("arm", "time", maintain_order=True)
            before = polars.col("to").shift(1).over("arm")
            other = changes.filter((before != polars.col("from")).fill_null(False))
            message = "changes begin in another state than the one before ended in"
            self.journal.found("contradicting-changes", "from", len(other), message, _places(other))
        if "stop" in part.columns:
            return self._from_intervals(part)
        changes = part.with_columns(polars.col("to").alias("state")).drop("from", "to", "status", strict=False)
        if rules.origin is None:
            return changes
        origin = clock.parse_times(polars.Series([rules.origin]), rules.times or ("iso",), rules.decimal_comma)[0]
        if origin is None or "from" not in part.columns:
            message = f"{rules.file}: origin needs a valid time and the states before changes (from)"
            raise InvalidInputError(message, argument="rules")
        first = part.sort("time", maintain_order=True).unique("arm", keep="first", maintain_order=True)
        start = first.with_columns(polars.col("from").alias("state"), time=polars.lit(origin, dtype=part["time"].dtype))
        return polars.concat([start.select(changes.columns), changes])

    def _from_intervals(self, part: "polars.DataFrame") -> "polars.DataFrame":
        """Stays as rows at their starts and stops."""
        import polars

        has_to = "to" in part.columns
        wrong = (part["stop"] < part["time"]).fill_null(False)
        self.journal.did(
            "stop-before-start", "stop", int(wrong.sum()), "intervals that stop before they start left out"
        )
        # A stay without length is a change to its next state, if there is one.
        moment = (part["stop"] == part["time"]).fill_null(False)
        empty = moment & part["to"].is_null() if has_to else moment
        self.journal.did("no-length", "stop", int(empty.sum()), "intervals without length left out")
        begins = "from" if "from" in part.columns else "state"
        shown = (
            polars.when(moment).then(polars.col("to")).otherwise(polars.col(begins)) if has_to else polars.col(begins)
        )
        part = part.with_columns(shown.alias("state"), moment=moment).filter(~wrong & ~empty)
        ordered = part.sort("arm", "time", maintain_order=True).unique(["arm", "time", "stop"], maintain_order=True)
        overlap = ordered.filter((polars.col("stop") > polars.col("time").shift(-1).over("arm")).fill_null(False))
        message = "intervals overlap the next one of their arm, which counts from its start on"
        self.journal.found("overlaps", "stop", len(overlap), message, _places(overlap))
        # Of rows at one time, a change counts after the stay that began then.
        begin = part.sort("moment", maintain_order=True).drop("stop", "from", "to", "status", "moment", strict=False)
        after = polars.col("to").fill_null(ENDED) if has_to else polars.lit(ENDED)
        own = ("time", "stop", "state", "from", "to", "status", "action", "moment")
        shared = [column for column in part.columns if column not in own]
        stays = part.filter(~polars.col("moment")).drop_nulls("stop")
        # An end within another stay of the arm ends nothing.
        spans = part.select("arm", other=polars.col("time"), until=polars.col("stop"))
        within = stays.join(spans, on="arm").filter(
            (polars.col("other") < polars.col("stop")) & (polars.col("stop") < polars.col("until"))
        )
        stays = stays.join(within.select("arm", "stop").unique(), on=["arm", "stop"], how="anti", maintain_order="left")
        end = stays.select(*shared, polars.col("stop").alias("time"), after.alias("state"))
        # The next interval of the arm says what the state is from there on; a known state counts before an end.
        end = end.join(begin, on=["arm", "time"], how="anti").unique(maintain_order=True)
        known = end.filter(polars.col("state") != ENDED)
        end = polars.concat(
            [known, end.filter(polars.col("state") == ENDED).join(known, on=["arm", "time"], how="anti")]
        )
        return polars.concat([begin, end], how="diagonal")

    def _one_per_time(self, part: "polars.DataFrame") -> "polars.DataFrame":
        """Rows without duplicates, and without ties."""
        import polars

        part = part.with_columns(polars.int_range(polars.len()).alias(PLACE))
        again = ~part.select(polars.struct(polars.exclude(PLACE)).is_first_distinct()).to_series()
        examples = _places(part.filter(again))
        if self.proposing:
            self.journal.found("duplicates", "", int(again.sum()), "rows are written twice; one is enough", examples)
        if self.rules.duplicates == "drop":
            self.journal.did("duplicates", "", int(again.sum()), "duplicates left out", examples)
            part = part.filter(~again)
        part = part.sort("arm", "time", PLACE).drop(PLACE)
        tied = part.filter(part.select("arm", "time").is_duplicated())
        if tied.is_empty():
            return part
        if self.rules.ties == "keep":
            self.journal.found("ties", "", len(tied), "rows of an arm are at one time; the last counts", _places(tied))
            self._propose(ties="last")
        if self.rules.ties != "keep" and "state" in part.columns:
            has_state = polars.col("state").is_not_null()
            blank = part.filter(~has_state & has_state.any().over("arm", "time"))
            message = "rows without a state at the time of one that has it left out"
            self.journal.did("ties", "", len(blank), message, _places(blank))
            part = part.filter(has_state | ~has_state.any().over("arm", "time"))
        numbers, times = clock.as_numbers(part["time"]), part["time"]
        if self.rules.ties == "shift" and times.dtype == polars.String:
            raise InvalidInputError("ties: months and weeks cannot be shifted; use first or last", argument="ties")
        tick = clock.tick_of(times) if self.rules.ties == "shift" else 0.0
        arm = part["arm"].rank("dense").to_numpy().astype(np.int64)
        remain, moved = resolve_ties(arm, numbers, self.rules.ties, tick)
        self.journal.did(
            "ties", "", int((~remain).sum()), f"rows at the time of another left out ({self.rules.ties})", _places(tied)
        )
        if shifted := int((moved != numbers).sum()):
            self.journal.did("ties", "time", shifted, "rows shifted after another of the same time", _places(tied))
            part = part.with_columns(clock.from_numbers(moved, times.dtype))
        return part.filter(polars.Series(remain))

    # Arms

    def _joined(self, timed: list["polars.DataFrame"], fixed: list["polars.DataFrame"]) -> "polars.DataFrame":
        """One row per arm and time. Later tables override earlier ones; tables without times apply to all rows."""
        import polars

        if (
            len(timed) > 1
            and self.rules.ties == "keep"
            and any(part.select("arm", "time").is_duplicated().any() for part in timed)
        ):
            raise InvalidInputError("ties: first, last or shift is needed before tables are joined", argument="rules")
        frame = timed[0]
        for part in timed[1:]:
            joined = frame.join(part, on=["arm", "time"], how="full", coalesce=True, suffix=NEW)
            both = [column for column in frame.columns if column + NEW in joined.columns]
            for column in both:
                other = joined.filter((polars.col(column) != polars.col(column + NEW)).fill_null(False))
                self.journal.did(
                    "overrides", column, len(other), f"{column}s replaced by those of a later table", _places(other)
                )
            newest = [polars.coalesce(column + NEW, column).alias(column) for column in both]
            frame = joined.with_columns(newest).drop(column + NEW for column in both)
        for part in fixed:
            one = part.unique("arm", keep="last", maintain_order=True)
            self.journal.did(
                "repeated-arm", "arm", len(part) - len(one), "rows of a table without times: the last counts"
            )
            absent = one.join(frame, on="arm", how="anti")["arm"]
            self.journal.found(
                "arms-without-rows", "arm", len(absent), "arms of a table without times have no rows", absent
            )
            joined = frame.join(one, on="arm", how="left", suffix=NEW)
            both = [column for column in frame.columns if column + NEW in joined.columns]
            stated = [polars.coalesce(column, column + NEW).alias(column) for column in both]
            frame = joined.with_columns(stated).drop(column + NEW for column in both)
        first = timed[0].select("arm").unique(maintain_order=True).with_row_index(PLACE)
        frame = frame.join(first, on="arm", how="left").sort(PLACE, "arm", "time", nulls_last=True).drop(PLACE)
        if self.is_events and "state" in frame.columns:  # a state lasts until the next change, also at an action
            state = polars.col("state").forward_fill().over("arm") if len(timed) > 1 else polars.col("state")
            frame = frame.with_columns(state.replace(ENDED, None))
        joins_actions = len(timed) > 1 and {"state", "action"} <= set(frame.columns) and not self.is_events
        return self._with_actions(frame) if joins_actions else frame

    def _with_actions(self, frame: "polars.DataFrame") -> "polars.DataFrame":
        """Actions between two observations, moved to the row before: there the action acts until the next one."""
        import polars

        is_stray = polars.col("state").is_null() & polars.col("action").is_not_null()
        stray = frame.filter(is_stray)
        if self.rules.actions == "keep":
            message = "actions are at times without a state; they belong to the row before"
            self.journal.found("stray-actions", "action", len(stray), message, _places(stray))
            if len(stray):
                self._propose(actions="previous")
        if self.rules.actions == "keep" or stray.is_empty():
            return frame
        # The last stray action before the next observation, at the observation before it.
        spell = polars.col("state").is_not_null().cum_sum().over("arm").alias("\0spell")
        own = frame.with_columns(spell)
        last = (
            own.filter(is_stray & (polars.col("\0spell") > 0))
            .group_by("arm", "\0spell")
            .agg(polars.col("action").last())
        )
        moved = own.join(last, on=["arm", "\0spell"], how="left", suffix=NEW, maintain_order="left")
        is_observed = polars.col("state").is_not_null()
        action = polars.when(is_observed).then(polars.coalesce("action" + NEW, "action")).otherwise("action")
        kept = moved.with_columns(action.alias("action")).filter(~(is_stray & (polars.col("\0spell") > 0)))
        self.journal.did("actions", "action", len(moved) - len(kept), "actions moved to the row before", _places(stray))
        return kept.drop("\0spell", "action" + NEW)

    def _with_types(self, frame: "polars.DataFrame") -> "polars.DataFrame":
        """Rows with the one type of their arm, and blank groups filled."""
        import polars

        for role in ("type", "group"):
            if role not in frame.columns:
                continue
            name = polars.col(role)
            blank = frame.filter(name.is_null())["arm"]
            number = frame.group_by("arm", maintain_order=True).agg(name.drop_nulls().n_unique())
            none = number.filter(name == 0)["arm"]
            several = number.filter(name > (1 if role == "type" else np.inf))["arm"]
            if self.rules.types == "keep":
                message = f"rows have no {role}; that of the arm's other rows counts"
                self.journal.found(f"no-{role}", role, len(blank), message, blank)
                self.journal.found(
                    "several-types", role, len(several), "arms have several types; the most frequent counts", several
                )
                message = f'arms have no {role} in any row; it is called "unknown"'
                self.journal.found(f"arm-without-{role}", role, len(none), message, none)
                if len(blank) or len(several):
                    self._propose(types="most frequent")
            if self.rules.types == "keep":
                continue
            filled = name.forward_fill().backward_fill()
            if role == "type":
                most = name.drop_nulls().mode(maintain_order=True).first()
                filled = most if self.rules.types == "most frequent" else name.drop_nulls().last()
            after = frame.select(filled.over("arm").fill_null("unknown").alias(role)).to_series()
            changed = frame["arm"].filter(after.ne_missing(frame[role]))
            self.journal.did(f"{role}s", role, len(changed), f"{role}s taken from the arm's other rows", changed)
            frame = frame.with_columns(after)
        return frame

    # States

    def _with_states(self, frame: "polars.DataFrame") -> "polars.DataFrame":
        """Blank states by their rule, and derived states."""
        import polars

        if "state" in frame.columns and not self.is_events:
            blank = frame.filter(polars.col("state").is_null())["arm"]
            if self.rules.blank_states == "keep":
                self.journal.found("blank-states", "state", len(blank), "states are blank: not observed then", blank)
            elif self.rules.blank_states == "last":
                frame = frame.with_columns(polars.col("state").forward_fill().over("arm"))
                filled = len(blank) - frame["state"].null_count()
                self.journal.did("blank-states", "state", filled, "blank states taken from the row before", blank)
            else:
                self.journal.did("blank-states", "state", len(blank), "rows without a state left out", blank)
                frame = frame.drop_nulls("state")
        return with_derived_states(frame, self.rules)


def _columns_of(role: str) -> tuple[str, ...]:
    return ("state", "from", "to") if role == "state" else (role,)


def _places(rows: "polars.DataFrame") -> list[str]:
    """`van1 at 2026-01-05` for the first rows."""
    first = rows.head(9)
    return [f"{arm} at {time}" for arm, time in zip(first["arm"], clock.time_texts(first["time"]), strict=True)]
