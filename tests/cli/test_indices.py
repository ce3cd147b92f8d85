"""`evenhand indices`: the JSON, the table, and what is refused."""

import pytest

from ..conftest import mentions

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
    assert set(found) == {"criterion", "arms"}
    assert found["criterion"] == "discounted"
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
    assert mentions("indices")(shown.out)
    (line,) = (line for line in shown.out.splitlines() if line.split()[:2] == ["0", "machine"])
    assert line.split()[2:4] == ["5", "yes"]
    assert mentions("age 1", "-0.6767", "age 2", 0.2923, "age 3", 5.0112)(line)


def test_a_type_that_is_not_indexable(fork, evenhand):
    lamp, other = evenhand("indices", fork, "--json").json["arms"]
    assert lamp["indexable"]
    assert lamp["indices"] == pytest.approx([0.25])
    assert not other["indexable"]
    assert other["indices"] is None
    assert mentions("1 passive", "-7", 1)(other["reason"])


def test_its_table_says_why(fork, evenhand):
    shown = evenhand("indices", fork)
    assert shown.code == 0
    (line,) = (line for line in shown.out.splitlines() if line.split()[:2] == ["1", "fork"])
    assert line.split()[3] == "no"
    assert mentions("type 1", "1 passive", "-7")(shown.out)
    assert "type 0" not in shown.out
    assert evenhand("indices", fork, "--quiet").out == shown.out  # quiet is about progress


def test_many_types(evenhand):
    model = ["heterogeneous-machine-replacement", "-p", "num_arms=60"]
    assert mentions(10)(evenhand("indices", *model).out)
    assert len(evenhand("indices", *model, "--json").json["arms"]) == 60


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_three_actions_are_refused(options, evenhand):
    refusal = evenhand("indices", "crew-maintenance", *options).refusal
    assert mentions("indices", "type 0", 3)(refusal)


class TestCriteria:
    def test_average(self, evenhand):
        found = evenhand("indices", *MACHINES, "--criterion", "average", "--json").json
        near = evenhand("indices", *MACHINES, "-p", "discount=0.9999999", "--json").json
        assert found["criterion"] == "average"
        assert found["arms"][0]["indices"] == pytest.approx(near["arms"][0]["indices"], rel=1e-5)

    def test_finite_has_a_list_for_each_step(self, evenhand):
        found = evenhand("indices", *MACHINES, "--criterion", "finite:4", "--json").json
        (arm,) = found["arms"]
        assert found["criterion"] == "finite:4"
        assert [len(step) for step in arm["indices"]] == [3, 3, 3, 3]
        assert arm["indices"][3] == pytest.approx([-0.6767, -0.4441, 0.1880], abs=5e-5)  # reward differences

    def test_the_table_of_many_steps_has_the_first_the_middle_and_the_last(self, evenhand):
        shown = evenhand("indices", *MACHINES, "--criterion", "finite:50").out
        assert mentions("indices", "finite:50")(shown)
        rows = [line.split("age 1")[0].split() for line in shown.splitlines() if "age 1" in line]
        assert [row[-2:] for row in rows] == [
            ["0", "50"],
            ["1", "49"],
            ["25", "25"],
            ["47", "3"],
            ["48", "2"],
            ["49", "1"],
        ]

    def test_an_average_that_depends_on_the_start_is_undefined(self, fork, evenhand):
        lamp, other = evenhand("indices", fork, "--criterion", "average", "--json").json["arms"]
        assert lamp["indices"] == pytest.approx([0.25])
        assert other["indexable"] is None and other["indices"] is None
        assert mentions("state 0", "state 2")(other["reason"])
        shown = evenhand("indices", fork, "--criterion", "average").out
        assert "undefined" in shown and mentions("type 1")(shown)

    def test_an_unknown_criterion(self, evenhand):
        assert "criterion" in evenhand("indices", *MACHINES, "--criterion", "averge").refusal
