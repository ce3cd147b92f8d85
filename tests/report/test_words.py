"""Numbers and sentences of reports."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.display import counted
from evenhand.model import Arm, CoupledMDP, parse_welfare
from evenhand.report import format, quantile, summarise, welfare_meaning

from ..conftest import mentions


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (13.767, "13.77"),
        (0.0, "0"),
        (-2.5, "-2.500"),
        (12345.678, "12346"),
        (0.00123456, "0.001235"),
        (4.15e-6, "4.150 × 10⁻⁶"),
        (-3e12, "-3.000 × 10¹²"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_have_about_four_digits(value: float, text: str) -> None:
    assert format.number(value) == text


@given(st.floats(-1e15, 1e15, allow_nan=False))
def test_a_number_reads_back_to_three_digits(value: float) -> None:
    text = format.number(value)
    mantissa, _, power = text.partition(" × 10")
    exponent = int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))) if power else 0
    assert float(mantissa) * 10.0**exponent == pytest.approx(value, rel=1e-3)


def test_a_rounded_zero_has_no_sign() -> None:
    assert format.fixed(-0.0004, 2) == "0.00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.012, "12 ms"),
        (0.5, "500 ms"),
        (9.96, "10.0 s"),
        (59.6, "59.6 s"),
        (1200, "20 min"),
        (9000, "2 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format.duration(seconds).replace("\u00a0", " ") == text


def test_lists_and_counts() -> None:
    assert format.listed(["a"]) == "a"
    assert format.listed(["a", "b"]) == "a and b"
    assert format.listed(["a", "b", "c"], "or") == "a, b or c"
    assert [counted(n, "policy", "policies") for n in (1, 2000)] == ["1 policy", "2,000 policies"]
    assert [format.spelled(n) for n in (0, 12, 13)] == ["no", "twelve", "13"]
    assert format.shortened("a\nlong name", 7) == "a long…"


def arm(reward: float, name: str = "", states: tuple[str, ...] = ()) -> Arm:
    return Arm(np.ones((1, 2, 1)), [[reward, reward]], [[0.0], [1.0]], name=name, states=states)


def test_the_description_of_a_problem() -> None:
    usage = [[[0.0, 0.0], [2.0, 0.5]], [[0.0, 0.0], [2.0, 1.0]]]
    pump = Arm(
        np.full((2, 2, 2), 0.5), np.zeros((2, 2)), usage, name="pump", states=("dry", "wet"), actions=("rest", "run")
    )
    problem = CoupledMDP([pump], budget=np.array([4.0, 2.5]), discount=0.9, counts=np.array([1200]))
    found = summarise(problem)
    facts = dict(found.facts)
    assert found.title == "1,200 arms"
    assert found.tables[0].rows[0].name == "pump"
    assert mentions(2, "dry", "wet")(facts["states"])
    assert mentions("rest", "run", "uses 2", "resource 0", 0.5, 1, "resource 1")(facts["actions"])
    assert mentions(4)(facts["budget: resource 0"])
    assert mentions(2.5)(facts["budget: resource 1"])
    assert mentions("counts", 0.9)(facts["value of an arm"])


def test_names_are_used_and_unnamed_actions_are_numbered_from_zero() -> None:
    usage = [[[0.0, 0.0], [1.0, 2.0]]]
    nameless = Arm(np.ones((1, 2, 1)), np.zeros((1, 2)), usage)
    problem = CoupledMDP([nameless], [1.0, 3.0], 0.9, counts=[2], resources=("vans", "hours"))
    found = summarise(problem)
    facts = dict(found.facts)
    assert (found.title, found.aside) == ("2 arms", "all identical")
    assert mentions("action 0", "action 1", "uses 1", "vans", 2, "hours")(facts["actions"])
    assert mentions(1)(facts["budget: vans"]) and mentions(3)(facts["budget: hours"])
    one = CoupledMDP([arm(1)], [2.0], 0.9, counts=[3], resources=("vans",))
    assert mentions(2)(dict(summarise(one).facts)["budget: vans"])


@pytest.mark.parametrize(
    ("name", "num_arms", "part"),
    [
        ("gini:2", 3, "each next half as much."),
        ("gini:3", 100, "3 times less."),
        ("gini:0.5,0.3,0.2", 3, "each rank has its given weight."),
        ("gini:1", 5, "all arms have the same weight"),
        ("utilitarian", 5, "plain mean"),
        ("maximin", 5, "the others do not count"),
        ("maximin:0.01", 5, "counts 0.01 times as much"),
        ("leximin", 5, "the second worst decides"),
        ("nash", 5, "alpha (here 1)"),
    ],
)
def test_every_welfare_is_explained(name: str, num_arms: int, part: str) -> None:
    text = welfare_meaning(parse_welfare(name, num_arms)).replace("\u00a0", " ")
    assert part in text
    assert text.endswith("simply their value.")


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=6), st.floats(0, 1))
def test_a_quantile_of_groups_is_that_of_the_arms(groups: list[tuple[int, int]], share: float) -> None:
    values = np.array([value for value, _ in groups], dtype=np.float64)
    counts = np.array([count for _, count in groups])
    arms = np.repeat(values, counts)
    found = quantile(values, counts, share)
    assert (arms <= found).sum() >= share * len(arms)
    assert (arms < found).sum() <= share * len(arms)
