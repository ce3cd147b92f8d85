"""What a record must hold, for every kind of cell; and what is told where it does not."""

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from evenhand.errors import InvalidInput, UnknownName
from evenhand.experiments.cells import KINDS
from evenhand.experiments.outcomes import VALUES, NotForProblem, OptimumValues, TrainValues, read_outcome
from evenhand.experiments.records import outcome_of
from evenhand.model.files import as_json

RECORDS = Path(__file__).parents[2] / "paper" / "records" / "records.jsonl"
OPTIMUM = {"welfare": 1.5, "upper_bound": None, "states": 6, "method": "counts"}
FIGURES = {
    "welfare": 1,
    "exact": False,
    "stderr": 0.1,
    "plug_in": 1.0,
    "plug_in_stderr": None,
    "mean": 1.0,
    "worst": 0.5,
}


@pytest.fixture(scope="module")
def records():
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def test_every_kind_has_a_schema():
    assert VALUES.keys() == KINDS.keys()


def test_every_committed_record_is_read_and_nothing_of_it_is_lost(records):
    for record in records:
        outcome = outcome_of(record)
        assert as_json(asdict(outcome.values)) == record["values"]
        assert outcome.timings == record["timings"]
    assert {record["kind"] for record in records} == VALUES.keys()


def test_every_field_that_a_record_lacks_is_told(records):
    for kind, schema in VALUES.items():
        record = next(each for each in records if each["kind"] == kind and each["values"].get("applies", True))
        for name in (field.name for field in fields(schema) if field.name != "applies"):
            values = {key: value for key, value in record["values"].items() if key != name}
            with pytest.raises(InvalidInput, match=rf"values\.{name}: expected .*, got nothing"):
                read_outcome(kind, values, record["timings"])
        for name in schema.TIMED:
            timings = {key: value for key, value in record["timings"].items() if key != name}
            with pytest.raises(InvalidInput, match=rf"timings\.{name}: expected a number, got nothing"):
                read_outcome(kind, record["values"], timings)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"welfare": "1.5"}, "values.welfare: expected a number, got '1.5'"),
        ({"welfare": True}, "values.welfare: expected a number, got True"),
        ({"states": 2.5}, "values.states: expected a whole number, got 2.5"),
        ({"states": None}, "values.states: expected a whole number, got None"),
        ({"method": 3}, "values.method: expected a text, got 3"),
    ],
)
def test_another_type_is_told(change, told):
    with pytest.raises(InvalidInput) as refusal:
        read_outcome("optimum", OPTIMUM | change, {"total": 1.0})
    assert str(refusal.value) == told


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidInput) as refusal:
        read_outcome("optimum", {"welfare": "x", "method": "counts"}, {"total": "soon"})
    assert [part.partition(":")[0] for part in str(refusal.value).split("; ")] == [
        "values.welfare", "values.upper_bound", "values.states", "timings.total",
    ]  # fmt: skip


@pytest.mark.parametrize("values", [None, [], "x", 3])
def test_what_is_no_table_is_told(values):
    with pytest.raises(InvalidInput, match="values: expected a table"):
        read_outcome("optimum", values, {"total": 1.0})


def test_lists_and_tables_inside_are_checked():
    size = {"num_arms": 3, "budget": [1, 2.5], **FIGURES}
    values = {"score": 1.0, "exact": True, "curve": [[300, None], [600, 2]], "steps": 600, "evaluations": [size]}
    found = read_outcome("train", values, {"train": 1.0, "evaluate": 1.0}).values
    assert isinstance(found, TrainValues)
    assert (found.curve, found.evaluations[0].budget) == (((300, None), (600, 2.0)), (1.0, 2.5))
    spoilt = values | {"curve": [[300], [600, "x"]], "evaluations": [size | {"exact": 1}, 7]}
    with pytest.raises(InvalidInput) as refusal:
        read_outcome("train", spoilt, {"train": 1.0, "evaluate": 1.0})
    assert [part.partition(":")[0] for part in str(refusal.value).split("; ")] == [
        "values.curve[0]", "values.curve[1][1]", "values.evaluations[0].exact", "values.evaluations[1]",
    ]  # fmt: skip


def test_a_policy_that_does_not_apply_needs_its_reason_only():
    assert read_outcome("named-policy", {"applies": False, "reason": "why"}, {}).values == NotForProblem(reason="why")
    with pytest.raises(InvalidInput, match=r"values\.reason"):
        read_outcome("named-policy", {"applies": False}, {})


def test_what_is_not_declared_is_passed_over():
    found = read_outcome("optimum", OPTIMUM | {"colour": "blue"}, {"total": 1.0, "lunch": 2.0})
    assert found.values == OptimumValues(**OPTIMUM)
    assert found.timings == {"total": 1.0, "lunch": 2.0}


def test_an_unknown_kind_is_told_with_the_nearest():
    with pytest.raises(UnknownName, match="optimum"):
        read_outcome("optimun", OPTIMUM, {})
