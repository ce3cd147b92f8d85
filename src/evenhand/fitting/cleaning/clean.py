"""Clean records by rules: propose them, apply them, and count what each of them did.

    tables   columns get their roles, times are parsed, rows without an arm or a time are left out
    names    spelling of arms, states, actions, types and groups; entries that mean that nothing was observed
    times    outliers are left out, dates move to the grid
    rows     duplicates, ties, and intervals (start, stop), which become changes
    arms     tables are joined by arm and time; an arm has one type
    states   blank states, derived columns

Rules are proposed stage by stage: each looks at what the stages before have left. A later import with the same rules
gives the same table, and reports what they do not cover.

Intervals become changes: a row at its start has the state (or `from`), and a row at its stop the state `to`, or a blank
one, from which on nothing is known until the next row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, TableError, UnknownNameError
from evenhand.fitting.cleaning.columns_guess import parse_times, propose_table
from evenhand.fitting.cleaning.raw_table import Finding, RawTable, read_raw, two
from evenhand.fitting.cleaning.rules import DAYS, ROLES, Rules, TableRules, read_rules
from evenhand.fitting.cleaning.spelling import NOT_OBSERVED, folded, spelling
from evenhand.fitting.columns import MISSING, cut
from evenhand.fitting.ties import resolve_ties
from evenhand.model.io import write_atomically

if TYPE_CHECKING:
    import polars

NAMES = ("state", "action", "type", "group")
"""Roles whose spelling is checked; of arms only the case."""

GRID_SHARE = 0.9
"""Share of dates on one day of the week or month from which on the others are off the grid."""

FEWEST_ROWS = 3
"""A state with fewer rows, none of them the last of its arm, is likely an error."""

FAR = 10.0
"""Distance of an outlier from the middle half of all times, in lengths of that half."""


@dataclass(frozen=True, eq=False)
class CleanedRecords(Shown):
    """Records after cleaning, the rules, and what they did."""

    frame: "polars.DataFrame" = field(repr=False)
    """Columns arm, time, state and, if there are any, action, type, group and others."""

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
        """Whether a proposed rule changes or leaves out rows."""
        return self.is_proposal and bool(self.effects)

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

    def to_frame(self) -> "polars.DataFrame":
        """Return the clean records."""
        return self.frame

    def save(self, path: str | Path) -> None:
        """Write the clean records.

        Args:
            path: a file `.csv` or `.parquet`.
        """
        import io

        body = io.BytesIO()
        if Path(path).suffix.lower() == ".parquet":
            self.frame.write_parquet(body)
        else:
            self.frame.write_csv(body)
        write_atomically(Path(path), body.getvalue())


def clean_records(
    records: Any, rules: Rules | str | Path | None = None, columns: Mapping[str, str] | None = None
) -> CleanedRecords:
    """Clean records of arms: spelling, blanks, duplicates, ties, dates, and tables that belong together.

    Args:
        records: a file name (CSV, Excel, Parquet, JSON), a frame, or a list of these, which are joined.
        rules: rules, or the name of a file of rules; proposed by default.
        columns: column of each role (arm, time, state, action, type, group, stop, from, to) that should not be guessed.

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
    if len({table.name for table in tables}) < len(tables):
        raise InvalidInputError("records: tables must have different file names", argument="records")
    given = dict(columns or {})
    for role in given:
        if role not in ROLES:
            raise UnknownNameError("role", role, ROLES)
    missing = [name for name in given.values() if not any(name in table.frame.columns for table in tables)]
    if missing:
        known = [name for table in tables for name in table.frame.columns]
        raise UnknownNameError("column", missing[0], known)
    found = read_rules(rules) if isinstance(rules, (str, Path)) else rules
    return _Cleaning(tables, found, given).result()


class _Cleaning:
    """The stages of one import."""

    def __init__(self, tables: Sequence[RawTable], rules: Rules | None, given: Mapping[str, str]) -> None:
        self.tables, self.given = tables, given
        self.proposing = rules is None
        self.rules = rules or Rules()
        self.findings = [finding for table in tables for finding in table.findings]
        self.effects: list[Finding] = []
        self.arm_names: dict[str, str] = {}
        self.is_events = False

    def result(self) -> CleanedRecords:
        import polars

        if self.proposing:
            proposals = [propose_table(table, self.given, len(self.tables) == 1) for table in self.tables]
            self.rules = replace(self.rules, tables=tuple(rules for rules, _ in proposals))
            self.findings += [finding for _, findings in proposals for finding in findings]
        matched = self._match_tables()
        parts = [self._with_roles(raw, rules) for raw, rules in matched]
        self._names(parts)
        parts = [self._renamed(part) for part in parts]
        timed = [part for part in parts if "time" in part.columns]
        kinds = {str(part["time"].dtype) for part in timed}
        if len(kinds) != 1:
            raise TableError(
                [Fault("time", "tables must have times of one kind: dates, numbers or periods")], "records"
            )
        self._times(timed)
        rules = [rules for (_, rules), part in zip(matched, parts, strict=True) if "time" in part.columns]
        timed = [self._events(self._moved(part), table) for part, table in zip(timed, rules, strict=True)]
        timed = [self._one_per_time(part) for part in timed]
        frame = self._joined(timed, [part for part in parts if "time" not in part.columns])
        frame = self._types(frame)
        frame = self._states(frame)
        order = [role for role in ("arm", "time", *NAMES) if role in frame.columns]
        others = [column for column in frame.columns if column not in order]
        frame = frame.select(*order, *others).with_columns(_time_texts(frame["time"]))
        if "state" in frame.columns and frame["state"].null_count() == len(frame):
            raise TableError([Fault("state", "no row has a state")], "records")
        return CleanedRecords(
            frame=frame.select(polars.all().name.keep()),
            rules=self.rules,
            findings=tuple(self.findings),
            effects=tuple(self.effects),
            num_rows=sum(len(table.frame) for table in self.tables),
            is_proposal=self.proposing,
            layout="events" if self.is_events else "",
        )

    def found(self, kind: str, column: str, rows: "polars.DataFrame | int", message: str, examples: Any = ()) -> None:
        """Add a finding, unless no row has it."""
        count = rows if isinstance(rows, int) else len(rows)
        if count:
            self.findings.append(Finding(kind, column, count, message, two(examples)))

    def did(self, kind: str, column: str, count: int, message: str, examples: Any = ()) -> None:
        """Count the effect of a rule, unless it has none."""
        if count:
            self.effects.append(Finding(kind, column, count, message, two(examples)))

    # Tables

    def _match_tables(self) -> list[tuple[RawTable, TableRules]]:
        """Each table with its rules, by file name, or by order if all names differ; in the order of the rules."""
        by_name = {table.name: table for table in self.tables}
        rules = self.rules.tables
        if all(rule.file in by_name for rule in rules) and len(rules) == len(self.tables):
            return [(by_name[rule.file], rule) for rule in rules]
        if len(rules) == len(self.tables) and not any(rule.file in by_name for rule in rules):
            return list(zip(self.tables, rules, strict=True))
        names = ", ".join(rule.file for rule in rules)
        raise InvalidInputError(f"the rules are for {names}; got {', '.join(by_name)}", argument="rules")

    def _with_roles(self, raw: RawTable, rules: TableRules) -> "polars.DataFrame":
        import polars

        lacking = [column for column in rules.columns.values() if column not in raw.frame.columns]
        if lacking:
            listed = ", ".join(raw.frame.columns)
            faults = [Fault("", f"missing column {column}. The columns are: {listed}") for column in lacking]
            raise TableError(faults, raw.name)
        # Other columns keep their names, unless these are roles.
        roles = {column: role for role, column in rules.columns.items()}
        taken = {*roles.values(), *rules.constant}
        names = {c: roles.get(c, f"{c} (other)" if c in taken else c) for c in raw.frame.columns}
        frame = raw.frame.rename(names)
        if rules.decimal_comma:
            number = r"^([-+]?\d+),(\d+)$"
            frame = frame.with_columns(polars.exclude("arm", "time", "stop").str.replace(number, "${1}.${2}"))
        frame = frame.with_columns(polars.lit(value).alias(role) for role, value in rules.constant.items())
        missing = polars.col("arm").is_null() | polars.col("arm").str.to_lowercase().is_in(list(MISSING))
        self.did(
            "no-arm", "arm", int(frame.select(missing).sum().item()), f"rows of {raw.name} without an arm left out"
        )
        frame = frame.filter(~missing)
        for role in ("time", "stop"):
            if role in frame.columns:
                texts = frame[role]
                parsed = parse_times(texts, rules.times or ("iso",), rules.decimal_comma)
                if role == "time":
                    wrong = frame.filter(parsed.is_null())[role]
                    message = f"rows of {raw.name} without a valid time left out"
                    self.did("no-time", "time", len(wrong), message, wrong.fill_null("(blank)"))
                frame = frame.with_columns(parsed.alias(role))
        return frame.filter(polars.col("time").is_not_null()) if "time" in frame.columns else frame

    # Names

    def _names(self, parts: Sequence["polars.DataFrame"]) -> None:
        """Find variants of names; propose their spelling."""
        import polars

        proposed: dict[str, dict[str, str]] = {}
        for role in ("arm", *NAMES):
            columns = [part[name] for part in parts for name in _columns_of(role) if name in part.columns]
            if not columns:
                continue
            entries = polars.concat([column.alias(role) for column in columns]).drop_nulls()
            current = self.rules.rename.get(role, {})
            entries = entries.replace(current).drop_nulls()
            entries = entries.filter(entries != "")
            counts = dict(entries.value_counts(sort=True, name="rows").rows())
            if role == "arm":
                self._arm_names(counts)
                continue
            if _is_mostly_numbers(counts):
                variants = {}
            else:
                blank = {name: "" for name in counts if name.lower() in MISSING or name.lower() in NOT_OBSERVED}
                blank = {} if role == "action" else blank
                self._found_names("not-observed", role, blank, counts, "mean that nothing was observed")
                variants = spelling({name: count for name, count in counts.items() if name not in blank})
                self._found_names("spelling", role, variants, counts, "are spelling variants")
                if role == "state":
                    odd = self._odd_states(parts, {n: c for n, c in counts.items() if n not in blank | variants})
                    self._found_names("odd-state", role, odd, counts, "are rare and never the last; not observed")
                    variants = variants | odd
                variants = blank | variants
            if variants:
                proposed[role] = dict(sorted(variants.items(), key=lambda item: (item[1], item[0])))
        if self.proposing:
            self.rules = replace(self.rules, rename=proposed)

    def _arm_names(self, counts: Mapping[str, int]) -> None:
        """Find names of arms that differ only in case or spaces; the most frequent spelling of each counts."""
        by_key: dict[str, list[str]] = {}
        for name in counts:
            by_key.setdefault(" ".join(name.split()).casefold(), []).append(name)
        proper = {name: max(names, key=lambda each: counts[each]) for names in by_key.values() for name in names}
        variants = {name: new for name, new in proper.items() if name != new}
        if self.rules.arms == "keep":
            self._found_names("arm-case", "arm", variants, counts, "differ only in case or spaces, and are one arm")
        if self.proposing and variants:
            self.rules = replace(self.rules, arms="fold")
        self.arm_names = variants if self.rules.arms == "fold" else {}

    def _found_names(
        self, kind: str, role: str, names: Mapping[str, str], counts: Mapping[str, int], message: str
    ) -> None:
        examples = [f"{old} → {new or 'blank'}" for old, new in names.items()]
        plural = "names of arms" if role == "arm" else f"{role}s"
        self.found(kind, role, sum(counts[name] for name in names), f"{plural} {message}", examples)

    def _odd_states(self, parts: Sequence["polars.DataFrame"], counts: Mapping[str, int]) -> dict[str, str]:
        """States of very few rows that do not end the records of an arm."""
        import polars

        rare = [name for name, count in counts.items() if count < FEWEST_ROWS]
        if not rare or len(counts) - len(rare) < 2 or sum(counts.values()) < 50 * len(counts):
            return {}
        ends: set[str] = set()
        for part in parts:
            if "time" in part.columns and "state" in part.columns:
                last = part.sort("time", maintain_order=True).group_by("arm").agg(polars.col("state").last())
                ends |= set(last["state"].drop_nulls().to_list())
        return {name: "" for name in rare if name not in ends}

    def _renamed(self, part: "polars.DataFrame") -> "polars.DataFrame":
        import polars

        for role, names in {"arm": self.arm_names, **self.rules.rename}.items():
            for column in _columns_of(role):
                if column in part.columns and names:
                    before = part[column]
                    after = before.replace(names)
                    changed = (before != after).fill_null(False)
                    examples = [
                        f"{old} → {names[old] or 'blank'}" for old in before.filter(changed).unique(maintain_order=True)
                    ]
                    self.did("rename", role, int(changed.sum()), f"{role}s renamed", examples)
                    part = part.with_columns(after.replace("", None).alias(column))
        return part.filter(polars.col("arm").is_not_null())

    # Times

    def _times(self, timed: Sequence["polars.DataFrame"]) -> None:
        """Find outliers and dates off the grid; propose a range and a grid."""
        import polars

        times = polars.concat([part["time"] for part in timed])
        if times.dtype == polars.String:
            return
        numbers = times.to_physical().cast(polars.Float64).to_numpy()
        inside = np.ones(len(numbers), dtype=np.bool_)
        if len(numbers) >= 50:
            first, third = np.quantile(numbers, (0.25, 0.75))
            reach = FAR * (third - first) if third > first else np.inf
            inside = (numbers >= first - reach) & (numbers <= third + reach)
        for bound in ("earliest", "latest"):
            if limit := getattr(self.rules, bound):
                value = _as_number(limit, times.dtype)
                inside &= (numbers >= value) if bound == "earliest" else (numbers <= value)
        kept = times.filter(polars.Series(inside))
        if self.proposing and not inside.all():
            far = _time_texts(times.filter(polars.Series(~inside)))
            self.found("far-times", "time", int((~inside).sum()), "times are far from all others; left out", far)
            low_text, high_text = _time_texts(polars.Series([kept.min(), kept.max()], dtype=times.dtype)).to_list()
            self.rules = replace(self.rules, earliest=low_text, latest=high_text)
        if times.dtype == polars.Float64 or self.rules.grid:
            return
        grid, off = _grid_of(kept)
        if grid:
            shown = [f"{text} ({day})" for text, day in zip(_time_texts(off), off.dt.strftime("%A"), strict=True)]
            what = f"dates are off the grid (the others are on {'a ' + grid.title() if grid in DAYS else grid})"
            self.found("off-grid", "time", len(off), f"{what}; moved to the nearest", shown)
            if self.proposing:
                self.rules = replace(self.rules, grid=grid)

    def _moved(self, part: "polars.DataFrame") -> "polars.DataFrame":
        """Rows within the range, on the grid."""
        import polars

        if part["time"].dtype == polars.String:
            return part
        for bound in ("earliest", "latest"):
            if limit := getattr(self.rules, bound):
                value = _as_number(limit, part["time"].dtype)
                number = part["time"].to_physical().cast(polars.Float64)
                outside = number < value if bound == "earliest" else number > value
                self.did("far-times", "time", int(outside.sum()), f"rows outside {bound} = {limit} left out")
                part = part.filter(~outside)
        if not self.rules.grid or part["time"].dtype == polars.Float64:
            return part
        for role in ("time", "stop"):
            if role in part.columns:
                moved = _to_grid(part[role], self.rules.grid)
                changed = (moved != part[role]).fill_null(False)
                pairs = zip(_time_texts(part[role].filter(changed)), _time_texts(moved.filter(changed)), strict=True)
                examples = [f"{old} → {new}" for old, new in pairs]
                self.did("grid", role, int(changed.sum()), f"dates moved to {self.rules.grid}", examples)
                part = part.with_columns(moved.alias(role))
        return part

    # Rows

    def _events(self, part: "polars.DataFrame", rules: TableRules) -> "polars.DataFrame":
        """Intervals and changes (from, to) as rows at which the state changes."""
        import polars

        if "to" not in part.columns and "stop" not in part.columns:
            return part
        self.is_events = True
        from_to = "to" in part.columns
        if "stop" not in part.columns:
            changes = part.with_columns(polars.col("to").alias("state")).drop("from", "to")
            if rules.origin is None:
                return changes
            first = part.sort("time", maintain_order=True).unique("arm", keep="first", maintain_order=True)
            start = parse_times(polars.Series([rules.origin]), rules.times or ("iso",), rules.decimal_comma)[0]
            begin = first.with_columns(
                polars.lit(start, dtype=part["time"].dtype).alias("time"), polars.col("from").alias("state")
            )
            return polars.concat([begin.drop("from", "to"), changes], how="diagonal")
        wrong = (part["stop"] < part["time"]).fill_null(False)
        self.did("stop-before-start", "stop", int(wrong.sum()), "intervals that stop before they start left out")
        part = part.filter(~wrong)
        state = polars.col("from") if from_to else polars.col("state")
        begin = part.with_columns(state.alias("state")).drop("stop", "from", "to", strict=False)
        after = polars.col("to") if from_to else polars.lit(None, dtype=polars.String)
        ends = part.filter(polars.col("stop").is_not_null()).select(
            "arm", polars.col("stop").alias("time"), after.alias("state"), *(["type"] if "type" in part.columns else [])
        )
        # The next interval of the arm says what the state is from there on.
        ends = ends.join(begin.select("arm", "time"), on=["arm", "time"], how="anti").unique(maintain_order=True)
        return polars.concat([begin, ends], how="diagonal")

    def _one_per_time(self, part: "polars.DataFrame") -> "polars.DataFrame":
        """Rows without duplicates, and ties."""
        import polars

        again = ~part.select(polars.struct(polars.all()).is_first_distinct()).to_series()
        if again.any():
            doubled = part.filter(again)
            examples = [
                f"{arm} at {time}" for arm, time in zip(doubled["arm"], _time_texts(doubled["time"]), strict=True)
            ]
            if self.proposing:
                self.found("duplicates", "", len(doubled), "rows are written twice; one is enough", examples)
            if self.rules.duplicates == "drop":
                self.did("duplicates", "", len(doubled), "duplicates left out", examples)
                part = part.filter(~again)
        # A row without a state gives way to one that has it.
        blank_first = (
            [polars.col("state").is_not_null()] if "state" in part.columns and self.rules.ties != "first" else []
        )
        part = part.sort("arm", "time", *blank_first, maintain_order=True)
        tied = part.select("arm", "time").is_duplicated()
        if not tied.any():
            return part
        rows = part.filter(tied)
        examples = [f"{arm} at {time}" for arm, time in zip(rows["arm"], _time_texts(rows["time"]), strict=True)]
        if self.rules.ties == "keep":
            self.found("ties", "", len(rows), "rows of an arm are at one time; the last one counts", examples)
        if self.proposing:
            self.rules = replace(self.rules, ties="last")
        arm = part["arm"].rank("dense").to_numpy().astype(np.int64)
        times = part["time"]
        if times.dtype == polars.String and self.rules.ties == "shift":
            raise InvalidInputError("ties: months and weeks cannot be shifted; use first or last", argument="ties")
        numbers = times.rank("dense").to_numpy() if times.dtype == polars.String else times.to_physical().to_numpy()
        tick = _tick_of(times)
        remain, moved = resolve_ties(arm, numbers.astype(np.float64), self.rules.ties, tick)
        self.did(
            "ties", "", int((~remain).sum()), f"rows left out at the time of another ({self.rules.ties})", examples
        )
        shifted = int((moved != numbers).sum())
        self.did("ties", "time", shifted, "rows shifted after another of the same time", examples)
        if shifted:
            new = (
                polars.Series("time", moved).cast(times.dtype)
                if times.dtype == polars.Float64
                else polars.Series("time", np.rint(moved).astype(np.int64)).cast(times.dtype)
            )
            part = part.with_columns(new)
        return part.filter(polars.Series(remain))

    # Arms

    def _joined(self, timed: Sequence["polars.DataFrame"], fixed: Sequence["polars.DataFrame"]) -> "polars.DataFrame":
        """One row per arm and time. Later tables override earlier ones; tables without times apply to all rows."""
        import polars

        frame = timed[0]
        for part in timed[1:]:
            both = [column for column in part.columns if column in frame.columns and column not in ("arm", "time")]
            joined = frame.join(
                part, on=["arm", "time"], how="full", coalesce=True, suffix=" (new)", maintain_order="left_right"
            )
            newest = [polars.coalesce(f"{column} (new)", column).alias(column) for column in both]
            frame = joined.with_columns(newest).drop([f"{column} (new)" for column in both])
        for part in fixed:
            one = part.unique("arm", keep="last", maintain_order=True)
            self.did("repeated-arm", "arm", len(part) - len(one), "rows of a table without times: the last one counts")
            own = [column for column in one.columns if column == "arm" or column not in frame.columns]
            shared = [column for column in one.columns if column not in own]
            frame = frame.join(one.select(own), on="arm", how="left", maintain_order="left")
            for column in shared:
                known = one.select("arm", polars.col(column).alias("stated"))
                frame = (
                    frame.join(known, on="arm", how="left", maintain_order="left")
                    .with_columns(polars.coalesce(column, "stated").alias(column))
                    .drop("stated")
                )
        first = frame.select("arm").unique(maintain_order=True).with_row_index("place")
        return frame.join(first, on="arm", how="left").sort("place", "time", maintain_order=True).drop("place")

    def _types(self, frame: "polars.DataFrame") -> "polars.DataFrame":
        """Give every arm one type."""
        import polars

        if "group" in frame.columns and 0 < frame["group"].null_count() < len(frame):
            blank = frame.filter(polars.col("group").is_null())
            if self.rules.types == "keep":
                self.found(
                    "no-group", "group", blank, "rows have no group; that of the row before counts", blank["arm"]
                )
                self.rules = replace(self.rules, types="most frequent") if self.proposing else self.rules
            if self.rules.types != "keep":
                group = polars.col("group")
                frame = frame.with_columns(group.forward_fill().backward_fill().over("arm"))
                filled = len(blank) - frame["group"].null_count()
                self.did("groups", "group", filled, "blank groups taken from the arm's other rows", blank["arm"])
        if "type" not in frame.columns:
            return frame
        counts = (
            frame.drop_nulls("type")
            .group_by("arm", maintain_order=True)
            .agg(
                polars.col("type").mode(maintain_order=True).first().alias("most"),
                polars.col("type").last().alias("last"),
                polars.col("type").n_unique().alias("number"),
            )
        )
        several = counts.filter(polars.col("number") > 1)
        blank = frame.filter(polars.col("type").is_null() & polars.col("arm").is_in(counts["arm"].to_list()))
        none = frame.filter(~polars.col("arm").is_in(counts["arm"].to_list()))
        if self.rules.types == "keep":
            self.found(
                "several-types", "type", several, "arms have several types; the most frequent counts", several["arm"]
            )
            self.found("no-type", "type", blank, "rows have no type; that of the arm's other rows counts", blank["arm"])
            if self.proposing and (len(several) or len(blank)):
                self.rules = replace(self.rules, types="most frequent")
        self.found(
            "arm-without-type",
            "type",
            none["arm"].n_unique() if len(none) else 0,
            'arms have no type; called "unknown"',
            none["arm"],
        )
        if self.rules.types == "keep":
            return frame
        own = counts.select("arm", polars.col("most" if self.rules.types == "most frequent" else "last").alias("own"))
        joined = frame.join(own, on="arm", how="left", maintain_order="left").with_columns(
            polars.col("own").fill_null("unknown")
        )
        changed = joined.filter(polars.col("own").ne_missing(polars.col("type")))
        self.did("types", "type", len(changed), f"types set to the arm's {self.rules.types}", changed["arm"])
        return joined.with_columns(polars.col("own").alias("type")).drop("own")

    # States

    def _states(self, frame: "polars.DataFrame") -> "polars.DataFrame":
        """Blank states, derived columns, and states made of several columns."""
        import polars

        if "state" in frame.columns:
            blank = frame["state"].is_null()
            if not self.is_events:
                self.found(
                    "blank-states",
                    "state",
                    int(blank.sum()),
                    "states are blank: not observed then",
                    frame.filter(blank)["arm"],
                )
            if self.rules.blank_states == "last":
                frame = frame.with_columns(polars.col("state").forward_fill().over("arm"))
                filled = int(blank.sum()) - frame["state"].null_count()
                self.did("blank-states", "state", filled, "blank states taken from the row before")
            elif self.rules.blank_states == "drop":
                self.did("blank-states", "state", int(blank.sum()), "rows without a state left out")
                frame = frame.filter(~blank)
        for derived in self.rules.derived:
            frame = frame.with_columns(_derive(frame, derived))
        if not self.rules.state_columns:
            return frame
        lacking = [column for column in self.rules.state_columns if column not in frame.columns]
        if lacking:
            raise InvalidInputError(f"state.columns: unknown column {lacking[0]!r}", argument="rules")
        parts = polars.concat_str(*self.rules.state_columns, separator=" / ")
        first = polars.col(self.rules.state_columns[0])
        divided = polars.when(first.is_in(list(self.rules.whole_states))).then(first).otherwise(parts)
        self.did("derived", "state", len(frame), f"states made of {', '.join(self.rules.state_columns)}")
        return frame.with_columns(divided.alias("state"))


def _derive(frame: "polars.DataFrame", derived: Any) -> "polars.Series":
    """A derived column, cut into bins; null if unknown."""
    import polars

    if derived.column:
        if derived.column not in frame.columns:
            raise InvalidInputError(f"derived {derived.name!r}: unknown column {derived.column!r}", argument="rules")
        texts = frame[derived.column]
        numbers = texts.cast(polars.Float64, strict=False)
        names = texts.filter(numbers.is_null())  # named states beside numbers stay as they are
        values = numbers.fill_null(float("nan")).to_numpy()
    else:
        event = derived.since or derived.count
        names = None
        unknown = [column for column in event if column not in frame.columns]
        if unknown:
            raise InvalidInputError(f"derived {derived.name!r}: unknown column {unknown[0]!r}", argument="rules")
        happened = polars.all_horizontal(*((polars.col(column) == value) for column, value in event.items()))
        marked = frame.select("arm", "time", happened.fill_null(False).alias("event"))
        if derived.count:
            before = polars.col("event").cast(polars.Int64).cum_sum().over("arm") - polars.col("event").cast(
                polars.Int64
            )
            values = marked.select(before).to_series().to_numpy().astype(np.float64)
        else:
            values = _time_since(marked)
    coded = cut(values, list(derived.cuts)) if len(derived.cuts) > 1 else cut(values, [derived.cuts[0], np.inf])
    labels = np.array([*coded.names, None], dtype=object)[coded.codes]
    labels = np.array(
        [
            None if label is None else label.replace(f"{derived.cuts[0]:g}–inf", f"{derived.cuts[0]:g} and more")
            for label in labels
        ],
        dtype=object,
    )
    found = polars.Series(derived.name, labels.tolist(), dtype=polars.String)
    return found if names is None else found.zip_with(found.is_not_null(), texts.alias(derived.name))


def _time_since(marked: "polars.DataFrame") -> Any:
    """(row,) time since the last event before the row, or since the arm's first row; in days if times are dates."""
    import polars

    if marked["time"].dtype == polars.String:
        raise InvalidInputError("derived: time since an event needs dates or numbers", argument="rules")
    number = marked["time"].to_physical().cast(polars.Float64)
    number = number / 86_400e6 if marked["time"].dtype != polars.Float64 else number
    table = marked.with_columns(number.alias("number"))
    at = polars.when("event").then("number").shift(1).over("arm").forward_fill().over("arm")
    first = polars.col("number").first().over("arm")
    return table.select(polars.col("number") - at.fill_null(first)).to_series().to_numpy()


def _columns_of(role: str) -> tuple[str, ...]:
    return ("state", "from", "to") if role == "state" else (role,)


def _is_mostly_numbers(counts: Mapping[str, int]) -> bool:
    numbers = sum(rows for name, rows in counts.items() if folded(name).replace(" ", "").isdigit())
    return 2 * numbers > sum(counts.values()) and len(counts) > 2


def _grid_of(times: "polars.Series") -> tuple[str, "polars.Series"]:
    """Day of the week or month that nearly all dates are on, and the dates that are not."""
    for grid, day in (("week", times.dt.weekday()), ("day", times.dt.day())):
        common, number = day.value_counts(sort=True).row(0)
        if GRID_SHARE * len(times) <= number < len(times) and (grid == "week" or common <= 28):
            return (DAYS[common - 1] if grid == "week" else f"day {common}"), times.filter(day != common)
        if number == len(times):
            return "", times.clear()
    return "", times.clear()


def _to_grid(times: "polars.Series", grid: str) -> "polars.Series":
    """Times moved to the nearest day of the grid, without their clock times."""
    import polars

    date = polars.col("date")
    if grid in DAYS:
        ahead = (DAYS.index(grid) + 1 - date.dt.weekday().cast(polars.Int64)) % 7
        days = polars.when(ahead > 3).then(ahead - 7).otherwise(ahead)
        moved = date + polars.duration(days=days)
    else:
        here = date.dt.month_start() + polars.duration(days=int(grid.split()[1]) - 1)
        before, after = here.dt.offset_by("-1mo"), here.dt.offset_by("1mo")
        late, early = (here - date) > (date - before), (date - here) > (after - date)
        moved = polars.when(late).then(before).when(early).then(after).otherwise(here)
    return times.dt.truncate("1d").to_frame("date").select(moved.alias(times.name)).to_series()


def _tick_of(times: "polars.Series") -> float:
    """Shift of a tied row: a day, a minute if there are clock times, 1 among integers, else a thousandth of a unit."""
    import polars

    if times.dtype == polars.Float64:
        return 1.0 if (times == times.round()).all() else 1e-3
    if times.dtype == polars.String:
        return 1.0
    return 86_400e6 if (times == times.dt.truncate("1d")).all() else 60e6


def _time_texts(times: "polars.Series") -> "polars.Series":
    """Times in ISO 8601, whole numbers without a decimal point."""
    import polars

    if times.dtype == polars.String:
        return times
    if times.dtype == polars.Float64:
        if (times == times.round()).all():
            return times.cast(polars.Int64).cast(polars.String)
        return times.cast(polars.String)
    is_dates = (times == times.dt.truncate("1d")).all()
    return times.dt.strftime("%Y-%m-%d" if is_dates else "%Y-%m-%dT%H:%M:%S")


def _as_number(limit: str, dtype: Any) -> float:
    """A limit of times as the physical number of a column."""
    import polars

    parsed = parse_times(polars.Series([limit]), ("number",) if dtype == polars.Float64 else ("iso",))
    if parsed[0] is None:
        raise InvalidInputError(f"rows: invalid time {limit!r}; expected an ISO date or a number", argument="rules")
    return float(parsed.to_physical()[0])
