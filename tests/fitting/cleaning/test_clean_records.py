"""Cleaning of records: what is found, what each rule does, and that the same rules give the same table."""

import gzip
import json
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from evenhand.errors import InvalidInputError, TableError, UnknownNameError
from evenhand.fitting.cleaning import Rules, clean_records, read_rules
from evenhand.fitting.cleaning.spelling import edit_distance, spelling
from tests.fitting.cleaning.clinic import STATES, messy_clinic


def kinds(findings):
    return {finding.kind: finding.count for finding in findings}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    path = tmp_path_factory.mktemp("clinic") / "clinic.csv"
    made = messy_clinic()
    path.write_text(made.text, encoding="utf-8")
    return path, made


def rows_of(cleaned, *columns):
    return cleaned.frame.select(columns).rows()


# The messy clinic


def test_a_messy_clinic_gets_its_names_dates_and_rows_right(clinic):
    path, made = clinic
    cleaned = clean_records(path)
    assert cleaned.num_rows == made.num_rows
    assert set(cleaned.frame["state"].drop_nulls()) == set(STATES)
    assert set(cleaned.frame["group"]) == {"Hill", "Lake", "Port"}
    assert cleaned.frame["arm"].n_unique() == 120
    assert cleaned.frame.select("arm", "time").is_unique().all()
    assert {date.fromisoformat(text).weekday() for text in cleaned.frame["time"].unique()} == {0}


def test_transitions_of_a_clean_clinic_are_those_of_the_truth(clinic):
    path, made = clinic
    frame = clean_records(path).frame
    counts = np.zeros_like(made.counts)
    code = {name: number for number, name in enumerate(STATES)}
    action = {"none": 0, "call": 1, "visit": 2}
    rows = frame.select("arm", "state", "action").rows()
    for (arm, state, chosen), (other, after, _) in pairwise(rows):
        if arm == other and state is not None and after is not None:
            counts[code[state], action[chosen], code[after]] += 1
    # A dated tie that was moved onto the next row's week may cost a pair; nothing else may.
    assert np.abs(counts - made.counts).sum() <= 4
    assert counts.sum() >= made.counts.sum() - 4


def test_every_kind_of_oddity_is_found_with_its_count(clinic):
    found = kinds(clean_records(clinic[0]).findings)
    assert found["titles"] == 1
    assert found["odd-state"] == 1
    assert found.keys() >= {
        "arm-case", "not-observed", "spelling", "off-grid", "duplicates", "ties", "no-group", "decimal-comma",
    }  # fmt: skip


def test_rows_that_disappear_are_counted(clinic):
    cleaned = clean_records(clinic[0])
    lost = ("no-arm", "no-time", "duplicates", "ties", "far-times")
    left_out = sum(effect.count for effect in cleaned.effects if effect.kind in lost)
    assert cleaned.num_rows - len(cleaned.frame) == left_out


def test_stored_rules_reproduce_the_table(clinic, tmp_path):
    proposed = clean_records(clinic[0])
    proposed.rules.save(tmp_path / "rules.toml", "a title\nof two lines")
    assert read_rules(tmp_path / "rules.toml") == proposed.rules
    again = clean_records(clinic[0], tmp_path / "rules.toml")
    assert again.frame.equals(proposed.frame)
    assert not again.is_proposal
    assert kinds(again.effects) == kinds(proposed.effects)
    # Blank states are facts, not faults: they alone are reported again.
    assert kinds(again.findings).keys() <= {"titles", "blank-states"}


def test_rules_that_do_not_cover_new_rows_leave_findings(clinic, tmp_path):
    rules = clean_records(clinic[0]).rules
    text = clinic[1].text + "P003;30/06/2025;Hill;stoppped;none;60,0\n"
    (tmp_path / "clinic.csv").write_text(text)
    found = clean_records(tmp_path / "clinic.csv", rules)
    assert kinds(found.findings)["spelling"] == 1


# Files


def test_the_same_table_in_every_form(tmp_path):
    import openpyxl

    rows = [("v1", "2026-01-05", "good"), ("v1", "2026-01-12", "poor"), ("v2", "2026-01-05", "good")]
    heads = ("van", "date", "state")
    expected = clean_records([dict(zip(heads, row, strict=True)) for row in rows]).frame
    lines = {separator: "\n".join(separator.join(row) for row in (heads, *rows)) for separator in ",;\t|"}
    for number, text in enumerate(lines.values()):
        (tmp_path / f"t{number}.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(lines[";"].encode("utf-16")))
    (tmp_path / "t.json").write_text(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
    pl.DataFrame(rows, schema=list(heads), orient="row").write_parquet(tmp_path / "t.parquet")
    book = openpyxl.Workbook()
    book.active.append(["Vans of the depot"])
    book.active.append([])
    for row in (heads, *((van, date.fromisoformat(day), state) for van, day, state in rows)):
        book.active.append(list(row))
    book.save(tmp_path / "t.xlsx")
    for file in sorted(tmp_path.iterdir()):
        assert clean_records(file).frame.equals(expected), file.name


def test_text_that_is_not_utf8_is_read_and_reported(tmp_path):
    (tmp_path / "a.csv").write_bytes("id,week,state\né1,1,à\né1,2,b\n".encode("cp1252"))
    cleaned = clean_records(tmp_path / "a.csv")
    assert rows_of(cleaned, "arm", "state") == [("é1", "à"), ("é1", "b")]
    assert "encoding" in kinds(cleaned.findings)


def test_lines_too_long_or_short_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text("id,week,state,note\n1,1,a,x\n1,2,a,x,y\n1,3,b\n1,4,b,\n")
    cleaned = clean_records(tmp_path / "a.csv")
    assert rows_of(cleaned, "time", "state") == [("1", "a"), ("3", "b"), ("4", "b")]
    assert kinds(cleaned.findings)["long-lines"] == 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"id,week,state\n", b"\x00\x01\x02"])
def test_a_file_without_a_table_is_refused(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(TableError):
        clean_records(tmp_path / "a.csv")


# Times


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (("31/01/2026", "07/02/2026"), "%d/%m/%Y"),
        (("01/31/2026", "02/07/2026"), "%m/%d/%Y"),
        (("31.01.2026", "07.02.2026"), "%d.%m.%Y"),
        (("20260131", "20260207"), "%Y%m%d"),
        (("31 Jan 2026", "7 Feb 2026"), "%d %b %Y"),
        (("2026-01-31 00:00:00", "2026-02-07 00:00:00"), "%Y-%m-%d"),
        (("46053", "46060"), "excel"),
    ],
)
def test_forms_of_dates(texts, form):
    cleaned = clean_records({"id": ["a", "a"], "date": list(texts), "state": ["x", "y"]})
    assert cleaned.rules.tables[0].times == (form,)
    assert cleaned.frame["time"].to_list() == ["2026-01-31", "2026-02-07"]


def test_ambiguous_dates_are_reported_and_read_so_that_pauses_are_regular():
    texts = ["01/05/2026", "01/12/2026", "02/02/2026", "02/09/2026"]  # Mondays, month first
    cleaned = clean_records({"id": ["a"] * 4, "date": texts, "state": list("xyxy")})
    assert "day-or-month" in kinds(cleaned.findings)
    assert cleaned.frame["time"][0] == "2026-01-05"


def test_months_and_weeks_stay_as_they_are():
    cleaned = clean_records({"id": ["a", "a"], "month": ["2026-02", "2026-01"], "state": ["x", "y"]})
    assert cleaned.frame["time"].to_list() == ["2026-01", "2026-02"]


def test_a_time_far_from_all_others_is_left_out():
    times = [f"2026-01-{day:02d}" for day in range(1, 29)] * 2
    times[5] = "2062-01-06"
    arms = ["a"] * 28 + ["b"] * 28
    cleaned = clean_records({"id": arms, "date": times, "state": ["x", "y"] * 28})
    assert kinds(cleaned.effects)["far-times"] == 1
    assert max(cleaned.frame["time"]) == "2026-01-28"


def test_days_move_to_the_nearest_day_of_the_month():
    dates = [f"2026-{month:02d}-01" for month in range(1, 11)] + ["2026-10-30"]
    cleaned = clean_records({"id": ["a"] * 11, "date": dates, "state": ["x", "y"] * 5 + ["x"]})
    assert cleaned.rules.grid == "day 1"
    assert cleaned.frame["time"].to_list()[-1] == "2026-11-01"


def test_ties_by_every_rule():
    rows = {"id": ["a"] * 4, "week": [1, 1, 2, 3], "state": ["x", "y", "x", "z"]}
    tables = clean_records(rows).rules.tables
    found = {
        ties: rows_of(clean_records(rows, Rules(tables, ties=ties)), "time", "state")
        for ties in ("last", "first", "shift")
    }
    assert found["last"] == [("1", "y"), ("2", "x"), ("3", "z")]
    assert found["first"] == [("1", "x"), ("2", "x"), ("3", "z")]
    assert found["shift"] == [("1", "x"), ("2", "y"), ("3", "x"), ("4", "z")]


def test_a_row_without_a_state_gives_way_to_one_that_has_it():
    rows = {"id": ["a", "a", "a"], "week": [1, 1, 2], "state": ["x", "?", "y"]}
    assert rows_of(clean_records(rows), "time", "state") == [("1", "x"), ("2", "y")]


# Names


def test_misspellings_need_a_common_neighbour_with_the_same_digits():
    counts = {
        "stopped": 100,
        "stoped": 2,
        "active": 80,
        "inactive": 3,
        "stage1": 90,
        "stage2": 1,
        "good": 70,
        "goof": 9,
    }
    assert spelling(counts) == {"stoped": "stopped"}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("", "abc", 3), ("abcd", "abdc", 1), ("kitten", "sitting", 3), ("shaky", "shakey", 1)],
)
def test_edit_distance(one, other, expected):
    assert edit_distance(one, other) == expected == edit_distance(other, one)


def test_years_of_two_digits_and_numbers_of_a_spreadsheet_among_dates():
    cleaned = clean_records({"id": ["a"] * 3, "date": ["01.01.24", "08.01.24", "45306"], "state": list("xyx")})
    assert cleaned.frame["time"].to_list() == ["2024-01-01", "2024-01-08", "2024-01-15"]


def test_merged_cells_are_filled_down():
    rows = {"id": ["a", "", "", "b", "", ""], "week": [1, 2, 3] * 2, "state": list("xyxyxy")}
    cleaned = clean_records(rows)
    assert cleaned.frame["arm"].to_list() == ["a"] * 3 + ["b"] * 3
    assert kinds(cleaned.effects)["merged-cells"] == 4


def test_sheets_that_are_not_read_are_findings(tmp_path):
    import openpyxl

    book = openpyxl.Workbook()
    book.create_sheet("data")
    for row in (["id", "week", "state"], ["a", 1, "x"], ["a", 2, "y"]):
        book["data"].append(row)
    book.create_sheet("more").append(["note"])
    book.save(tmp_path / "a.xlsx")
    cleaned = clean_records(tmp_path / "a.xlsx")
    assert len(cleaned.frame) == 2 and kinds(cleaned.findings)["sheets"] == 1 and cleaned.needs_decisions


def test_overlaps_contradictions_and_unused_rules_are_findings():
    overlap = {"id": ["a", "a"], "start": [0, 3], "stop": [5, 8], "state": ["well", "ill"]}
    assert kinds(clean_records(overlap).findings)["overlaps"] == 1
    changes = {"id": ["a", "a"], "time": [1, 2], "from": ["up", "up"], "to": ["down", "down"]}
    found = clean_records(changes)
    assert kinds(found.findings)["contradicting-changes"] == 1
    rules = Rules(found.rules.tables, rename={"state": {"dwn": "down"}})
    assert "unused-rule" in kinds(clean_records(changes, rules).findings)


def test_a_table_of_arms_without_rows_and_its_years():
    visits = pl.DataFrame({"van": ["a", "a"], "week": [1, 2], "state": ["x", "y"]})
    vans = pl.DataFrame({"van": ["a", "b"], "make": ["F", "V"], "Year": [2001, 2002]})
    cleaned = clean_records([visits, vans])
    assert rows_of(cleaned, "arm", "time", "type", "Year") == [("a", "1", "F", "2001"), ("a", "2", "F", "2001")]
    assert kinds(cleaned.findings)["arms-without-rows"] == 1


def test_an_arm_of_several_types_has_the_most_frequent():
    rows = {"id": ["a"] * 4 + ["b"], "week": [1, 2, 3, 4, 1], "state": list("xyxyx"), "make": ["F", "F", "V", "", ""]}
    cleaned = clean_records(rows)
    assert cleaned.frame["type"].to_list() == ["F"] * 4 + ["unknown"]
    assert {"several-types", "no-type", "arm-without-type"} <= kinds(cleaned.findings).keys()


# Layouts and tables


def test_intervals_become_changes_and_gaps_are_unknown():
    rows = {
        "id": ["a", "a", "a", "b"],
        "start": [0, 4, 9, 1],
        "stop": [4, 7, 12, 5],
        "state": ["well", "ill", "well", "well"],
    }
    cleaned = clean_records(rows)
    assert cleaned.layout == "events"
    assert rows_of(cleaned, "arm", "time", "state") == [
        ("a", "0", "well"), ("a", "4", "ill"), ("a", "7", None), ("a", "9", "well"), ("a", "12", None),
        ("b", "1", "well"), ("b", "5", None),
    ]  # fmt: skip


def test_transitions_from_and_to_with_start_and_stop():
    rows = {"id": ["a", "a"], "start": [0, 4], "stop": [4, 9], "from": ["well", "ill"], "to": ["ill", "dead"]}
    cleaned = clean_records(rows)
    assert rows_of(cleaned, "time", "state") == [("0", "well"), ("4", "ill"), ("9", "dead")]


def test_possible_changes_with_a_status_are_one_row_each():
    """The long format of survival analysis: a row per possible transition, of which at most one happened."""
    rows = {
        "id": [1, 1, 1, 1, 2, 2],
        "from": [1, 1, 2, 2, 1, 1],
        "to": [2, 3, 1, 3, 2, 3],
        "Tstart": [0, 0, 151, 151, 0, 0],
        "Tstop": [151, 151, 421, 421, 30, 30],
        "status": [1, 0, 0, 1, 0, 0],
    }
    cleaned = clean_records(rows)
    assert rows_of(cleaned, "arm", "time", "state") == [
        ("1", "0", "1"), ("1", "151", "2"), ("1", "421", "3"), ("2", "0", "1"), ("2", "30", None),
    ]  # fmt: skip
    assert kinds(cleaned.effects)["status"] == 4


def test_columns_that_have_the_names_of_other_roles_are_passed_on():
    cleaned = clean_records({"id": ["x"] * 3, "time": [0, 5, 6], "state": list("wiw"), "to": ["Bob", "Ann", "Al"]})
    assert cleaned.frame["state"].to_list() == list("wiw") and cleaned.layout == ""
    assert cleaned.frame["to (other)"].to_list() == ["Bob", "Ann", "Al"]
    stays = clean_records(
        {"id": ["x", "x"], "start": [0, 5], "stop": [5, 8], "state": ["w", "i"], "status": ["ok", "ok"]}
    )
    assert rows_of(stays, "time", "state") == [("0", "w"), ("5", "i"), ("8", None)]


def test_an_action_within_a_stay_has_its_state():
    stays = pl.DataFrame({"id": ["x"] * 2, "start": [0, 10], "stop": [10, 20], "state": ["w", "i"]})
    actions = pl.DataFrame({"id": ["x", "x"], "time": [4, 25], "action": ["fix", "late"]})
    assert rows_of(clean_records([stays, actions]), "time", "state", "action") == [
        ("0", "w", None), ("4", "w", "fix"), ("10", "i", None), ("20", None, None), ("25", None, "late"),
    ]  # fmt: skip


def test_orders_between_inspections_belong_to_the_inspection_before(tmp_path):
    mondays = [f"2024-01-{day:02d}" for day in (1, 8, 15, 22, 29)]
    inspections = pl.DataFrame(
        {"machine": ["m"] * 5, "inspected": mondays, "condition": ["good", "bad", "good", "bad", "bad"]}
    )
    orders = pl.DataFrame({"machine": ["m"], "completed": ["2024-01-12"], "job": ["repair"]})
    cleaned = clean_records([inspections, orders])
    assert cleaned.frame["action"].to_list() == [None, "repair", None, None, None]
    assert cleaned.rules.tables[1].columns == {"arm": "machine", "time": "completed", "action": "job"}


def test_an_end_within_another_stay_ends_nothing():
    rows = {"id": ["a", "a"], "start": [0, 4], "stop": [5, 7], "state": ["well", "ill"], "age": [50, 50]}
    cleaned = clean_records(rows)
    assert rows_of(cleaned, "time", "state", "age") == [("0", "well", "50"), ("4", "ill", "50"), ("7", None, "50")]


def test_an_event_column_is_a_status():
    rows = {"id": [1, 1], "from": ["w", "w"], "to": ["i", "d"], "start": [0, 0], "stop": [4, 4], "event": [0, 1]}
    assert rows_of(clean_records(rows), "time", "state") == [("0", "w"), ("4", "d")]


def test_stays_without_length_are_changes_or_left_out():
    plain = {"id": ["x"] * 3, "start": [0, 5, 9], "stop": [5, 5, 12], "state": ["w", "i", "w"]}
    cleaned = clean_records(plain)
    assert rows_of(cleaned, "time", "state") == [("0", "w"), ("5", None), ("9", "w"), ("12", None)]
    assert kinds(cleaned.effects)["no-length"] == 1
    dies = {"id": ["x"] * 2, "start": [0, 5], "stop": [5, 5], "from": ["w", "i"], "to": ["i", "dead"]}
    assert rows_of(clean_records(dies), "time", "state") == [("0", "w"), ("5", "dead")]


def test_stops_of_another_form_are_read_or_counted():
    rows = {
        "id": ["x"] * 2,
        "start": ["2026-01-01", "2026-01-10"],
        "stop": ["05/01/2026", "20/01/2026"],
        "state": ["w", "i"],
    }
    assert [time for time, _ in rows_of(clean_records(rows), "time", "state")] == [
        "2026-01-01", "2026-01-05", "2026-01-10", "2026-01-20",
    ]  # fmt: skip
    rows["stop"] = ["2026-01-05", "8?"]
    assert kinds(clean_records(rows).effects)["no-stop"] == 1


@pytest.mark.parametrize(
    "times",
    [
        ["2026-01-05T03:00:00Z", "2026-01-05T05:30:00+02:00"],
        ["2026-01-05T03:00:00.000", "2026-01-05T03:30:00.000"],
        [datetime(2026, 1, 5, 3), datetime(2026, 1, 5, 3, 30)],
        [datetime(2026, 1, 5, 3, tzinfo=UTC), datetime(2026, 1, 5, 3, 30, tzinfo=UTC)],
    ],
)
def test_moments_with_zones_fractions_and_of_frames(times):
    cleaned = clean_records(
        pl.DataFrame({"id": ["a", "a"], "when": times, "state": ["x", "y"]}), columns={"time": "when"}
    )
    assert cleaned.frame["time"].to_list() == ["2026-01-05T03:00:00", "2026-01-05T03:30:00"]


def test_changes_from_and_to_begin_at_the_origin():
    rows = {"id": ["a", "a", "b"], "time": [4, 9, 3], "from": ["well", "ill", "well"], "to": ["ill", "dead", "dead"]}
    rules = clean_records(rows).rules
    from dataclasses import replace

    origin = Rules((replace(rules.tables[0], origin="0"),))
    found = rows_of(clean_records(rows, origin), "arm", "time", "state")
    assert found == [("a", "0", "well"), ("a", "4", "ill"), ("a", "9", "dead"), ("b", "0", "well"), ("b", "3", "dead")]


def test_four_tables_are_joined_by_arm_and_time(tmp_path):
    files = {
        "telemetry.csv": (
            "machineID,datetime,status\n1,2026-01-01,ok\n1,2026-01-02,ok\n1,2026-01-03,worn\n2,2026-01-01,ok\n"
        ),
        "failures.csv": "machineID,datetime\n1,2026-01-03\n",
        "maint.csv": "machineID,datetime\n1,2026-01-02\n2,2026-01-02\n",
        "machines.csv": "machineID,model,age\n1,m1,7\n2,m2,3\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    cleaned = clean_records([tmp_path / name for name in files])
    assert rows_of(cleaned, "arm", "time", "state", "action", "type") == [
        ("1", "2026-01-01", "ok", None, "m1"),
        ("1", "2026-01-02", "ok", "maint", "m1"),
        ("1", "2026-01-03", "failures", None, "m1"),
        ("2", "2026-01-01", "ok", "maint", "m2"),  # moved from the day after, at which no state is known
    ]
    effects = kinds(cleaned.effects)
    assert effects["actions"] == 1 and effects["overrides"] == 1
    assert cleaned.needs_decisions


def test_derived_states(tmp_path):
    (tmp_path / "rules.toml").write_text(
        """
        [[tables]]
        file = "table 1"
        arm = "van"
        time = "week"
        state = "condition"
        action = "done"
        times = ["number"]
        [[derived]]
        name = "age"
        since = {action = "service"}
        cuts = [2, 3]
        [[derived]]
        name = "failures"
        count = {state = "failed"}
        cuts = [1]
        [[derived]]
        name = "mileage"
        column = "km"
        cuts = [100, 200]
        [state]
        columns = ["state", "age"]
        whole = ["failed"]
        """
    )
    rows = {
        "van": ["a"] * 6,
        "week": [1, 2, 3, 4, 5, 6],
        "condition": ["good", "good", "failed", "good", "good", "good"],
        "done": ["", "", "service", "", "", ""],
        "km": [50, 150, "broken", 250, "", 120],
    }
    frame = clean_records(rows, tmp_path / "rules.toml").frame
    # Since the first row, then since the service of week 3.
    assert frame["age"].to_list() == ["below 2", "below 2", "2–3", "below 2", "2–3", "3 and more"]
    assert frame["failures"].to_list() == ["below 1"] * 3 + ["1 and more"] * 3
    assert frame["mileage"].to_list() == ["below 100", "100–200", "broken", "200 and more", None, "100–200"]
    assert frame["state"].to_list() == ["good / below 2"] * 2 + ["failed"] + [
        "good / below 2",
        "good / 2–3",
        "good / 3 and more",
    ]


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (("visit_id", "patient_id", "visit date", "status"), {"arm": "patient_id", "time": "visit date"}),
        (("PTNUM", "age", "years", "sex", "state", "statemax"), {"arm": "PTNUM", "time": "years", "state": "state"}),
        (("datetime", "machineID", "errorID", "state"), {"arm": "machineID", "time": "datetime"}),
        (("ptnum", "months", "state"), {"arm": "ptnum", "time": "months"}),
        (("Bridge", "Inspection Date", "Rating"), {"arm": "Bridge", "time": "Inspection Date", "state": "Rating"}),
    ],
)
def test_roles_by_the_words_in_names(names, roles):
    cleaned = clean_records({name: [1, 2] for name in names})
    columns = cleaned.rules.tables[0].columns
    assert {role: columns[role] for role in roles} == roles


# Faults


def test_a_table_without_a_state_is_refused_with_its_columns():
    with pytest.raises(TableError) as caught:
        clean_records({"id": [1, 1], "week": [1, 2], "colour": ["a", "b"]})
    assert [fault.place for fault in caught.value.faults] == ["state"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            """
            [[tables]]
            tiem = "week"
            times = 3
            [rows]
            ties = "newest"
            grid = "someday"
            [rename.state]
            a = 3
            [[derived]]
            cuts = ["x"]
            [state]
            columns = "state"
            """,
            ["tables[0].tiem", "tables[0].times", "rows.ties", "rows.grid", "rename.state.a", "derived[0].cuts[0]",
             "state.columns"],
        ),
        ('[[tables]]\nfile = "a"\n[[derived]]\nname = "x"\ncuts = [3, 1]',
         ["tables[0].arm", "derived[0]", "derived[0].cuts"]),
        ("[rows]", ["tables"]),
        ("tables = 3", ["tables"]),
        ("[rows", [""]),
    ],
)  # fmt: skip
def test_every_fault_of_the_rules_is_reported(tmp_path, text, places):
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(TableError) as caught:
        read_rules(tmp_path / "rules.toml")
    assert [fault.place for fault in caught.value.faults] == places


@pytest.mark.parametrize("columns", [{"arm": "nope"}, {"armed": "id"}])
def test_unknown_columns_and_roles_are_refused(columns):
    with pytest.raises(UnknownNameError):
        clean_records({"id": [1, 1], "week": [1, 2], "state": ["a", "b"]}, columns=columns)


def test_rules_of_other_files_are_refused(tmp_path):
    rules = clean_records({"id": [1, 1], "week": [1, 2], "state": ["a", "b"]}).rules
    (tmp_path / "a.csv").write_text("id,week,state\n1,1,a\n")
    with pytest.raises(InvalidInputError) as caught:
        clean_records([tmp_path / "a.csv", pl.DataFrame({"id": [1]})], rules)
    assert caught.value.argument == "rules"


# Anything at all

ENTRIES = {
    "id": ["a", "A", "b", "", "c1", " a "],
    "date": ["2026-01-05", "05/01/2026", "12/01/2026", "", "x", "2026-13-45", "46000", "3.5", "2026-W05", "2026-05"],
    "state": ["good", "Good", "poor", "?", "", "5", "7,5"],
    "action": ["none", "mend", "", "visit"],
    "type": ["x", "X", "y", ""],
    "clinic": ["n", "s", ""],
    "stop": ["2026-02-01", "", "2025-01-01", "x", "4"],
    "from": ["good", ""],
    "to": ["poor", "", "good"],
    "weight": ["1,5", "2.5", "", "x"],
}


@pytest.mark.parametrize("seed", range(60))
def test_any_table_is_cleaned_reproducibly_or_refused(tmp_path, seed):
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.permutation(list(ENTRIES))[: rng.integers(3, 11)]]
    names = list(dict.fromkeys(["id", "date", "state", *names] if rng.random() < 0.7 else names))
    mark = str(rng.choice([",", ";", "\t", "|"]))
    rows = [[str(rng.choice(ENTRIES[name])).replace(mark, "") for name in names] for _ in range(rng.integers(0, 40))]
    lines = [mark.join(row) for row in [names, *rows]]
    if rng.random() < 0.2:
        lines.insert(int(rng.integers(len(lines) + 1)), "junk" + mark * int(rng.integers(15)) + "x")
    data = "\n".join(lines).encode(str(rng.choice(["utf-8", "utf-16", "latin-1"])))
    data = data[: rng.integers(len(data) + 1)] + rng.bytes(20) if rng.random() < 0.1 else data
    (tmp_path / "a.csv").write_bytes(data)
    try:
        cleaned = clean_records(tmp_path / "a.csv")
    except InvalidInputError as refused:
        assert str(refused)
        return
    cleaned.rules.save(tmp_path / "rules.toml")
    assert clean_records(tmp_path / "a.csv", tmp_path / "rules.toml").frame.equals(cleaned.frame)
    if not cleaned.layout:
        kinds_lost = ("no-arm", "no-time", "duplicates", "far-times")
        lost = sum(e.count for e in cleaned.effects if e.kind in kinds_lost or (e.kind == "ties" and not e.column))
        assert cleaned.num_rows - len(cleaned.frame) == lost


@pytest.mark.parametrize("far", ["XFD1048576", "ZZ8000", "C9"])
def test_cells_far_from_the_table_are_refused_or_without_an_arm(tmp_path, far):
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["id", "week", "state"])
    book.active[far] = "x"
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(TableError):
        clean_records(tmp_path / "a.xlsx")
