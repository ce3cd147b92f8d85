"""`evenhand indices`: the JSON, the table, and what is refused."""

import pytest

MACHINES = ["machine-replacement", "-p", "num_arms=5"]

FORK = """
discount = 0.9
budget = [1]

[[arms]]
name = "lamp"
count = 3
transitions = [[[1.0], [1.0]]]
rewards = [[0.0, 0.25]]
usage = [[0], [1]]

[[arms]]
name = "fork"
states = ["left", "middle", "right"]
transitions = [[[1, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]]
rewards = [[0, 1], [0, 2], [0, 0]]
usage = [[0], [1]]
"""
"""Two types, the second of which is not indexable."""


@pytest.fixture
def fork(folder):
    file = folder / "fork.toml"
    file.write_text(FORK)
    return file


@pytest.mark.parametrize(
    ("preset", "expected"),
    [("exponential-rccc", [-0.6767, 0.2923, 5.0112]), ("quadratic-rccc", [-1.0, -0.3056, 3.4271])],
)
def test_json_is_the_contract(preset, expected, evenhand):
    found = evenhand("indices", *MACHINES, "-p", f"preset={preset}", "--json").json
    assert set(found) == {"arms"}
    (arm,) = found["arms"]
    assert {"name", "count", "indexable", "indices"} <= set(arm)
    assert (arm["name"], arm["count"], arm["indexable"]) == ("machine", 5, True)
    assert arm["indices"] == pytest.approx(expected, abs=5e-5)
    assert arm["reason"] is None


def test_one_entry_a_type(small, evenhand):
    found = evenhand("indices", small, "--json").json["arms"]
    assert [(arm["name"], arm["count"]) for arm in found] == [("machine", 2), ("pump", 1)]
    assert all(len(arm["indices"]) == 2 for arm in found)


def test_the_table(evenhand):
    shown = evenhand("indices", *MACHINES)
    assert (shown.code, shown.err) == (0, "")
    assert "Whittle indices of machine-replacement" in shown.out
    (line,) = (line for line in shown.out.splitlines() if line.split()[:2] == ["0", "machine"])
    assert line.split()[2:4] == ["5", "yes"]
    assert "age 1: -0.6767, age 2: 0.2923, age 3: 5.0112" in line


def test_a_type_that_is_not_indexable(fork, evenhand):
    lamp, other = evenhand("indices", fork, "--json").json["arms"]
    assert lamp["indexable"]
    assert lamp["indices"] == pytest.approx([0.25])
    assert not other["indexable"]
    assert other["indices"] is None
    assert other["reason"] == (
        "not indexable: in state 1 passive is optimal at charge -7, but active is strictly better at 1"
    )


def test_its_table_says_why(fork, evenhand):
    shown = evenhand("indices", fork)
    assert shown.code == 0
    (line,) = (line for line in shown.out.splitlines() if line.split()[:2] == ["1", "fork"])
    assert line.split()[3] == "no"
    assert "type 1: not indexable: in state 1 passive is optimal at charge -7" in shown.out
    assert "type 0" not in shown.out
    assert "not indexable" not in evenhand("indices", fork, "--quiet").out


def test_many_types(evenhand):
    model = ["heterogeneous-machine-replacement", "-p", "num_arms=60"]
    assert "... 10 more types; --json has all of them" in evenhand("indices", *model).out
    assert len(evenhand("indices", *model, "--json").json["arms"]) == 60


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_three_actions_are_refused(options, evenhand):
    refusal = evenhand("indices", "crew-maintenance", *options).refusal
    assert refusal == "error: Whittle indices are for arms with two actions; type 0 has 3\n"
