"""Logs in any order, of any form, with faults in any row."""

import csv
import gzip
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, MissingExtraError, TableError
from evenhand.fitting import NOTHING, Log, count_moves
from tests.fitting.flat import read_log

from ..conftest import mentions

COLUMNS = {"arm": "van", "time": "week", "state": "condition", "action": "action"}
HEAD = ("van", "week", "condition", "action", "make")
SOUND = [
    ("van1", "1", "good", "none", "Ford"),
    ("van1", "2", "fair", "overhaul", "Ford"),
    ("van1", "3", "good", "", "Ford"),
    ("van2", "1", "poor", "none", "VW"),
    ("van2", "3", "poor", "overhaul", "VW"),
    ("van2", "4", "good", "none", "VW"),
    ("van3", "2", "fair", "none", "VW"),
]


def as_csv(rows: Sequence[Sequence[str]], head: Sequence[str] = HEAD, mark: str = ",") -> io.BytesIO:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=mark, lineterminator="\n")
    writer.writerows([head, *rows])
    return io.BytesIO(text.getvalue().encode())


def read(rows: Any, **options: Any) -> Log:
    source = as_csv(rows) if isinstance(rows, list) and not isinstance(rows[0], dict) else rows
    return read_log(source, **COLUMNS, **options)


def faults_of(rows: Any, **options: Any) -> list[str]:
    with pytest.raises(TableError) as raised:
        read(rows, **options)
    return [str(fault) for fault in raised.value.faults]


def named_moves(log: Log) -> Counter[tuple[str, ...]]:
    """Moves by names, independent of the numbering of states and arms."""
    moves = count_moves(log)
    found: Counter[tuple[str, ...]] = Counter()
    for t, s, a, s2 in np.argwhere(moves.counts).tolist():
        found[log.types[t], log.states[s], log.actions[a], log.states[s2], "1"] = int(moves.counts[t, s, a, s2])
    gaps = moves.gaps
    for t, s, a, s2, time, number in zip(
        gaps.type, gaps.state, gaps.action, gaps.next_state, gaps.time, gaps.number, strict=True
    ):
        found[log.types[t], log.states[s], log.actions[a], log.states[s2], f"{time:g}"] = int(number)
    return found


def moves_by_hand(rows: Sequence[Sequence[str]], step: int = 1) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for arm in {row[0] for row in rows}:
        own = sorted((row for row in rows if row[0] == arm), key=lambda row: int(row[1]))
        for row, later in pairwise(own):
            found[row[4], row[2], row[3], later[2], f"{(int(later[1]) - int(row[1])) / step:g}"] += 1
    return found


def test_a_log_is_sorted_and_coded() -> None:
    log = read([SOUND[i] for i in (2, 3, 0, 6, 5, 1, 4)], type="make", states="good,fair,poor")
    assert (log.states, log.actions, log.types) == (("good", "fair", "poor"), ("none", "overhaul"), ("Ford", "VW"))
    assert [log.arms[i] for i in log.arm] == ["van1"] * 3 + ["van2"] * 3 + ["van3"]
    assert log.time.tolist() == [0, 1, 2, 0, 2, 3, 1]
    assert log.row.tolist() == [2, 5, 0, 1, 6, 4, 3]
    assert log.action.tolist() == [0, 1, NOTHING, 0, 1, 0, 0]
    assert [log.types[log.type_of[log.arms.index(arm)]] for arm in ("van1", "van2", "van3")] == ["Ford", "VW", "VW"]
    assert named_moves(log) == moves_by_hand(SOUND)
    assert any(mentions("1 row")(note) or "rows were sorted" in note for note in log.notes)
    assert any(mentions("1 arm")(note) for note in log.notes)
    assert log.is_last.tolist() == [False, False, True, False, False, True, True]


def test_sorted_rows_get_no_note() -> None:
    by_time = sorted(SOUND, key=lambda row: row[1])
    assert not any("sorted" in note for rows in (SOUND, by_time) for note in read(rows).notes)


@given(st.data())
def test_moves_are_those_counted_by_hand_whatever_the_order(data: st.DataObject) -> None:
    arms = data.draw(st.lists(st.sampled_from(["a", "b2", "b10", "ç d"]), min_size=1, max_size=4, unique=True))
    rows = []
    for arm in arms:
        times = data.draw(st.lists(st.integers(-5, 12), min_size=2, max_size=6, unique=True))
        kind = data.draw(st.sampled_from(["x", "y"]))
        rows += [
            (
                arm,
                str(time),
                data.draw(st.sampled_from(["1", "2", "10"])),
                data.draw(st.sampled_from(["idle", "go"])),
                kind,
            )
            for time in times
        ]
    rows = data.draw(st.permutations(rows))
    idle = None if any(row[3] == "idle" for row in rows) else "go"
    log = read(rows, type="make", idle=idle)
    pauses = np.concatenate([np.diff(sorted(int(row[1]) for row in rows if row[0] == arm)) for arm in arms])
    step = int(np.gcd.reduce(pauses))
    assert log.step == step
    assert named_moves(log) == moves_by_hand(rows, step)
    assert list(log.states) == sorted(log.states, key=int)


# Faults

WRONG = st.sampled_from(["no arm", "no time", "bad time", "unknown state", "no action", "twice", "type"])


@given(st.lists(st.tuples(st.integers(0, 29), WRONG), min_size=1, max_size=8, unique_by=lambda wrong: wrong[0]))
def test_every_fault_is_reported_with_its_line(wrongs: list[tuple[int, str]]) -> None:
    rows = [[f"v{i // 6}", str(i % 6), "good", "none", "Ford"] for i in range(30)]
    rows += [["w", str(i), "good", "overhaul", "VW"] for i in range(3)]
    expected: set[tuple[str, str]] = set()
    twice, of_two_types = [], set()
    for place, wrong in wrongs:
        line = f"line {place + 2}"
        if wrong in ("no arm", "no time"):
            rows[place][("no arm", "no time").index(wrong)] = ""
            expected.add((line, f"has {wrong}"))
        elif wrong == "bad time":
            rows[place][1] = "Monday"
            expected.add((line, "invalid time 'Monday'"))
        elif wrong == "unknown state":
            rows[place][2] = "god"
            expected.add((line, 'unknown state "god". Did you mean "good"?'))
        elif wrong == "twice":
            twice.append([*rows[place]])
            expected.add((f"line {len(rows) + len(twice) + 1}", f'arm "{rows[place][0]}" is also in {line}'))
        elif wrong == "no action" and place % 6 != 5:
            rows[place][3] = ""
            expected.add((line, "has no action"))
        elif wrong == "type" and place % 6 not in (0, 5) and place - place % 6 not in {p for p, _ in wrongs}:
            rows[place][4] = "VW"
            of_two_types.add(f"v{place // 6}")
    rows += twice
    lost = {place // 6 for place, wrong in wrongs if wrong in ("no arm", "no time", "bad time")}
    if not expected and not of_two_types:
        read([*rows], type="make", states="good,fair")
        return
    told = faults_of([*rows], type="make", states="good,fair")
    for line, words in expected:
        number = int(line.split()[1]) - 2
        if words.startswith(("has no action", "arm")) and number < 30 and number // 6 in lost:
            continue  # rows without arm or time are in no order, and may move who is last
        assert any(one.startswith(f"{line}: {words}") for one in told), (line, words, told)
    # Types are one fault, which counts the arms.
    [*types] = [one for one in told if "several types" in one]
    assert len(types) <= 1 and len(told) <= len(expected) + len(lost) + len(types)
    if of_two_types and not lost:
        assert types[0].startswith(f"{len(of_two_types)} arm")


def test_only_so_many_faults_are_shown_and_the_others_counted() -> None:
    rows = [("v", str(i), "bad", "none", "F") for i in range(2000)]
    told = faults_of(rows, states="good,fair")
    assert mentions("line 2")(told[0]) and len(told) == 31
    assert mentions("1,970")(told[-1])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the table is empty"),
        ("\n \n", "the table is empty"),
        ("van,week,condition,action\n", "there are no rows in it"),
        ("van,week,conditon,action\na,1,x,none\n", "Did you mean conditon?"),
        ("van,week,condition,condition,action\na,1,x,y,none\n", "there are several columns condition"),
        ("van,week,condition,action\na,1,x,none\na,2,x,none,7\n", "line 3: has 5 entries"),
        ("van,week,condition,action\na,1,x,none\nb,1,x,none\n", "no arm has two rows"),
        ("van,week,condition,action\na,1,x,go\na,2,x,run\n", "idle action"),
        ("van,week,condition,action\na,1,x,no\na,2,x,none\n", "idle action"),
        ("van,week,condition,action\na,1,x,\na,2,x,\n", "line 2: has no action"),
        ("van,week,condition,action\na,2026-01-01T10:00,x,no\na,2026-01-02T11:00Z,x,no\n", "time zone"),
    ],
)
def test_what_cannot_be_a_log(text: str, told: str) -> None:
    assert any(told in fault for fault in faults_of(io.BytesIO(text.encode())))


def test_text_that_is_not_utf8_is_reported_by_line() -> None:
    assert faults_of(io.BytesIO("van,week,condition,action\né,1,x,none\n".encode("latin-1")))[0].startswith("line 2")
    assert faults_of(io.BytesIO("vän,week,condition,action\n".encode("latin-1")))[0].startswith("line 1")


def test_missing_actions_are_the_idle_action_of_a_new_name() -> None:
    rows = [("a", "1", "x", "", "F"), ("a", "2", "y", "go", "F"), ("a", "3", "x", "", "F")]
    log = read(rows, idle="rest")
    assert log.actions == ("rest", "go") and log.action.tolist() == [0, 1, 0]
    assert mentions("go")(faults_of(rows[1:], idle="goo")[0])


def test_a_fault_of_very_many_rows_is_one() -> None:
    rows = [("a", str(week), "x", "", "F") for week in range(60)]
    with pytest.raises(TableError) as raised:
        read([*rows, ("a", "60", "x", "go", "F")])
    grouped = [fault for fault in raised.value.faults if fault.place.startswith("line 2 ")]
    assert [fault.stands_for for fault in grouped] == [60]
    assert len(raised.value.faults) <= 3


def test_idle_is_what_uses_nothing() -> None:
    frame = {"van": ["a"] * 3, "week": [1, 2, 3], "condition": [0, 1, 0], "action": ["A", "B", "C"], "hours": [2, 0, 1]}
    log = read(frame, used="hours")
    assert log.actions == ("B", "A", "C") and log.resources == ("hours",)
    assert log.used is not None and log.used[:, 0].tolist() == [2, 0, 1]
    with pytest.raises(TableError, check=mentions("negative")):
        read({**frame, "hours": [2, 0, -1]}, used="hours")


def test_rewards_are_numbers_or_missing() -> None:
    rows = [("a", "1", "x", "no", "2.5"), ("a", "2", "x", "no", "NA"), ("a", "3", "x", "no", "")]
    reward = read(rows, reward="make").reward
    assert reward is not None and reward[0] == 2.5 and np.isnan(reward[1:]).all()
    told = faults_of([*rows, ("a", "4", "x", "no", "much"), ("a", "5", "x", "no", "inf")], reward="make")
    assert told == ["line 5: reward 'much' is not a number", "line 6: reward is not a finite number"]


def test_measurements_want_bins() -> None:
    rows = [("a", str(i), str(i * 0.37), "no", "") for i in range(2500)]
    assert "2,500 states" in faults_of(rows)[0]
    assert read(rows, bins=100).states[0] == "0–100"
    assert faults_of([*rows, ("a", "3000", "new", "no", "")], bins=100) == ["line 2502: state 'new' is not a number"]
    with pytest.raises(InvalidInputError, check=mentions("states")):
        read(rows, bins=100, states="a,b")


# Forms


def frames() -> dict[str, Any]:
    columns = {name: [row[place] or None for row in SOUND] for place, name in enumerate(HEAD)}
    numbers: dict[str, list[Any]] = {**columns, "week": [int(week or 0) for week in columns["week"]]}
    return {
        "columns": numbers,
        "rows": [dict(zip(HEAD, row, strict=True)) for row in SOUND],
        "polars": polars.DataFrame(numbers),
        "lazy": polars.LazyFrame(numbers),
        "pandas": pandas.DataFrame(numbers),
        "pandas with floats": pandas.DataFrame({**numbers, "week": [float(week) for week in numbers["week"]]}),
        "pandas with objects": pandas.DataFrame(numbers, dtype=object),
        "pyarrow": pyarrow.table(numbers),
        "semicolons": as_csv(SOUND, mark=";"),
        "tabs": as_csv(SOUND, mark="\t"),
        "spaces": as_csv(SOUND, head=(" van", "week ", "condition", "action", "make")),
    }


@pytest.mark.parametrize("form", frames())
def test_every_source_gives_the_same_log(form: str) -> None:
    log = read(frames()[form], type="make")
    assert named_moves(log) == moves_by_hand(SOUND)
    assert log.arms == ("van1", "van2", "van3")


def test_files_give_the_same_log(tmp_path: Path) -> None:
    frame = polars.DataFrame([dict(zip(HEAD, row, strict=True)) for row in SOUND])
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    frame.write_csv(tmp_path / "log.tsv", separator="\t")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress((tmp_path / "log.csv").read_bytes()))
    (tmp_path / "log.json").write_text(json.dumps(frame.to_dicts()))
    (tmp_path / "odd [1]*.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "log.csv").read_bytes())
    for file in tmp_path.iterdir():
        assert named_moves(read(file, type="make")) == moves_by_hand(SOUND), file
    assert named_moves(read(str(tmp_path / "log.tsv"), type="make")) == moves_by_hand(SOUND)
    with pytest.raises(InvalidInputError, check=mentions("log.csv")):
        read(tmp_path / "logg.csv")
    with pytest.raises(TableError, check=mentions("PARQUET")):
        read(tmp_path / "log.csv", format="parquet")
    with pytest.raises(InvalidInputError, check=mentions("pandas")):
        read(7)


def test_an_order_of_categories_is_the_order_of_states() -> None:
    columns: Mapping[str, Any] = frames()["columns"]
    order = ["poor", "fair", "good"]
    ordered = pandas.DataFrame(columns)
    ordered["condition"] = pandas.Categorical(ordered["condition"], order, ordered=True)
    enum = polars.DataFrame(columns).with_columns(polars.col("condition").cast(polars.Enum(order)))
    assert read(ordered).states == read(enum).states == tuple(order)


def test_dates_of_frames_are_times() -> None:
    columns: Mapping[str, Any] = {**frames()["columns"], "week": [f"2026-0{week}-01" for week in "1231342"]}
    for zone in (None, "Europe/Berlin"):
        frame = pandas.DataFrame(columns)
        frame["week"] = pandas.to_datetime(frame["week"]).dt.tz_localize(zone)
        log = read(frame, type="make")
        assert (log.unit, log.step) == ("month", 1)
        assert named_moves(log) == moves_by_hand(SOUND)


def test_mixed_time_zones_of_a_frame_are_faults() -> None:
    columns: Mapping[str, Any] = {**frames()["columns"]}
    frame = pandas.DataFrame(columns)
    stamps = [pandas.Timestamp(f"2026-01-0{i + 1}T0{i}:00", tz="UTC" if i != 3 else None) for i in range(7)]
    frame["week"] = pandas.Series(stamps, dtype=object)
    assert faults_of(frame, type="make") == ["row 4: has no time zone; others have one"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, check=mentions("extra data", "'polars")):
        read([*SOUND])


@pytest.mark.slow
def test_a_million_arms_of_two_rows() -> None:
    number = 1_000_000
    frame = polars.DataFrame(
        {
            "van": np.tile(np.arange(number), 2),  # all of the first rows come before all of the second
            "week": np.repeat([0, 1], number),
            "condition": np.concatenate([np.zeros(number, dtype=int), np.arange(number) % 3]),
            "action": np.zeros(2 * number, dtype=int),
        }
    )
    log = read(frame)
    assert count_moves(log).counts[0, 0, 0].tolist() == [333334, 333333, 333333]
    assert len(log.arms) == number


# Anything at all

ODD: dict[str, list[Any]] = {
    "van": ["a", "b", 1, 2.0, None, float("nan"), "", " a ", True, 10**19],
    "week": [0, 1, 5, 40, None, "", "x", 1.5, float("nan"), float("inf"), -1, 2**63, -(2**63), "2026-01-01", "2026-W05",
             "2026-05", "31.05.2026", 20260531, "2026-05-31T14:00+02:00", "2026-05-31T14:00", date(2026, 1, 2),
             datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC), 1e300, Decimal("1.5"), True],
    "condition": ["good", "poor", 1, None, "nan", float("nan"), "good ", True, 3.5, "état", "a,b", 2**63, float("inf")],
    "action": ["none", "mend", None, "", 0, 1, float("nan"), "idle", "NONE"],
    "make": ["Ford", "VW", None, 1, "Ford "],
}  # fmt: skip


@given(st.data())
def test_any_table_is_a_sound_log_or_refused_with_rows(data: st.DataObject) -> None:
    """Duplicates, missing times, mixed kinds, NaN, zones: a log that says what came, or faults in words."""
    number = data.draw(st.integers(1, 12))
    columns: dict[str, list[Any]] = {
        "van": ["ab"[i % 2] for i in range(number)],
        "week": [i // 2 for i in range(number)],
        "condition": data.draw(st.lists(st.sampled_from(["good", "poor"]), min_size=number, max_size=number)),
        "action": ["none"] * number,
        "make": ["Ford"] * number,
    }
    odd = data.draw(st.lists(st.tuples(st.sampled_from(list(ODD)), st.integers(0, number - 1)), max_size=5))
    for name, place in odd:
        columns[name][place] = data.draw(st.sampled_from(ODD[name]))
    as_rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    csv_rows = [tuple("" if entry is None else str(entry) for entry in row.values()) for row in as_rows]
    form = data.draw(st.sampled_from([columns, as_rows, as_csv(csv_rows)]))
    try:
        log = read(form, type="make")
    except InvalidInputError as refused:
        told = getattr(refused, "faults", ())
        assert 0 < len(told) <= 33 if told else str(refused)
        assert all(re.fullmatch(r"|(row|line) \d+", fault.place) for fault in told)
        return
    blank = ("", "nan")
    observed = [place for place, entry in enumerate(columns["condition"]) if str(entry or "").strip() not in blank]
    assert sorted(log.row.tolist()) == observed
    same = log.has_next[:-1]
    assert (np.diff(log.time)[same] > 0).all() and (log.action[:-1][same] >= 0).all()
    assert (log.state >= 0).all() and log.state.max() < len(log.states)


def semicolons(*entries: str) -> io.BytesIO:
    rows = [f"a;{week};s{week % 2};none;{entry}" for week, entry in enumerate(entries)]
    return io.BytesIO("\n".join(["arm;week;state;action;worth", *rows]).encode())


def read_worth(source: Any) -> Log:
    return read_log(source, arm="arm", time="week", state="state", action="action", reward="worth")


def test_decimal_commas_are_refused_with_a_hint() -> None:
    with pytest.raises(TableError, check=mentions(0.5)) as caught:
        read_worth(semicolons("0,5", "1", "", "-2,25"))
    assert [fault.place for fault in caught.value.faults] == ["line 2", "line 5"]


def test_all_faults_are_counted_in_the_title() -> None:
    rows = "".join(f"a,{week},good,none,x\n" for week in range(344))
    with pytest.raises(TableError, check=mentions(344)) as caught:
        read_worth(io.BytesIO(b"arm,week,state,action,worth\n" + rows.encode()))
    assert mentions(314)(str(caught.value.faults[-1]))


def test_rows_without_a_state_are_missed_steps() -> None:
    """The pair around a blank row is a gap of two steps, unless an action was given in it."""
    rows = [
        ("a", "1", "good", "none", "F"), ("a", "2", "", "none", "F"), ("a", "3", "poor", "mend", "F"),
        ("a", "4", "good", "none", "F"), ("a", "5", "?", "mend", "F"), ("a", "6", "good", "none", "F"),
        ("a", "7", "good", "none", "F"), ("b", "1", "", "none", "F"), ("b", "2", "good", "none", "F"),
        ("c", "1", "n/a", "none", "F"),
    ]  # fmt: skip
    log = read([("a", "5", "", *row[3:]) if row[2] == "?" else row for row in rows])
    assert log.arms == ("a", "b")
    assert log.state.tolist() == [0, 1, 0, 0, 0, 0]
    moves = count_moves(log)
    assert moves.counts.sum() == 2  # poor to good under mend, good to good
    assert moves.gaps.time.tolist() == [2.0] and moves.gaps.number.tolist() == [1]
    carried = read([("a", "1", "good", "mend", "F"), ("a", "2", "", "mend", "F"), ("a", "3", "poor", "", "F"),
                    ("b", "1", "good", "none", "F"), ("b", "2", "good", "", "F")], carry_action=True)  # fmt: skip
    assert count_moves(carried, carry_action=True).gaps.number.tolist() == [1]


@pytest.mark.parametrize(("ties", "states"), [("last", ["fair", "good"]), ("first", ["good", "good"])])
def test_ties_by_their_rule(ties: str, states: list[str]) -> None:
    rows = [("a", "1", "good", "none", "F"), ("a", "1", "fair", "none", "F"), ("a", "2", "good", "none", "F")]
    log = read(rows, ties=ties)
    assert [log.states[code] for code in log.state] == states
    assert any("1 row" in note for note in log.notes)


def test_shifted_ties_follow_each_other() -> None:
    rows = [("a", "0.5", "good", "none", "F"), ("a", "0.5", "fair", "none", "F"), ("a", "2.25", "good", "none", "F")]
    log = read(rows, ties="shift", step=1)
    assert log.time.tolist() == pytest.approx([0.0, 1e-3, 1.75])


def test_intervals_are_changes_with_known_ends() -> None:
    table = {
        "van": ["a", "a", "a", "b"],
        "start": [0, 4, 9, 1],
        "stop": [4, 7, 12.5, None],
        "condition": ["good", "poor", "good", "good"],
    }
    log = read_log(table, arm="van", time="start", state="condition", stop="stop", step=1)
    assert log.time.tolist() == [0.0, 4.0, 7.0, 9.0, 12.5, 1.0]
    assert [log.states[code] for code in log.state] == ["good", "poor", "poor", "good", "good", "good"]
    assert log.has_next.tolist() == [True, True, False, True, False, False]
    entered = read_log({**table, "to": ["poor", "good", "poor", ""]}, arm="van", time="start", state="condition",
                       stop="stop", to="to", step=1)  # fmt: skip
    assert [entered.states[code] for code in entered.state] == ["good", "poor", "good", "good", "poor", "good"]
    assert entered.has_next.tolist() == [True, True, True, True, False, False]


def test_intervals_that_overlap_or_end_early_are_faults() -> None:
    table = {"van": ["a", "a", "b"], "start": [0, 3, 5], "stop": [4, 7, 2], "condition": ["good", "poor", "good"]}
    with pytest.raises(TableError) as caught:
        read_log(table, arm="van", time="start", state="condition", stop="stop", step=1)
    assert [fault.place for fault in caught.value.faults] == ["row 1", "row 3"]


@pytest.mark.parametrize("text", [b'{"arm": 1}', b"[1, 2]", b'"rows"', b'[{"arm": 1}, 3]', b'{"arm": {"0": 1}}'])
def test_json_that_is_not_a_table_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "log.json").write_bytes(text)
    with pytest.raises(TableError) as caught:
        read_worth(tmp_path / "log.json")
    assert "log.json" in str(caught.value)
