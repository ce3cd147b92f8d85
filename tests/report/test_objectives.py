"""What the page says of criteria, groups and floors."""

import html
import re

import numpy as np
import pytest

from evenhand.evaluation import evaluate
from evenhand.model import CoupledMDP, Gini, Leximin, read_welfare
from evenhand.planning import Comparison, Row, find_policy
from evenhand.problems import machine_replacement
from evenhand.report import (
    comparison_report,
    number,
    page,
    spread_plot,
    summarise,
    truncation_entries,
    weights_of_time,
    welfare_meaning,
)

from ..conftest import mentions

PAGE = {"num_episodes": 20, "rng": 0, "method": "monte-carlo"}


@pytest.fixture
def towns(build_arm):
    """Two towns of different machines, one of which must be served now and then."""
    arms = [build_arm(seed, 2, [[0], [1]]) for seed in (0, 1)]
    return CoupledMDP(arms, [1], 0.8, [2, 1], groups=["north", "south <b>"], floors=[0.0, 0.25], over="groups")


def side_by_side(problem, *policies):
    """Simulated rows, best first, without a bound: what is tested here is what is said of them."""
    rows = [Row(name, evaluate(problem, find_policy(name).build(problem), **PAGE)) for name in policies]
    rows.sort(key=lambda row: -row.evaluation.welfare)
    return Comparison(read_welfare(problem, "gini:2"), tuple(rows), {}, None, "", problem)


def shown(comparison):
    """The page as a person reads it."""
    text = page(comparison_report(comparison))
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split()), text


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        ("discounted", "0.95 of one now"),
        ("average", "in the long run"),
        ("finite:12", "12 steps, each step counting 0.95"),
    ],
)
def test_values_are_explained_by_their_criterion(criterion, said):
    problem = machine_replacement(num_arms=3).with_criterion(criterion)
    assert any(said in meaning for _, meaning in summarise(problem).facts)


def test_without_a_discount_all_steps_count_alike():
    machine = machine_replacement(num_arms=1).arms[0]
    problem = CoupledMDP([machine], [1], 1.0, [2], criterion="finite:3")
    meaning = dict(summarise(problem).facts)["value of an arm"]
    assert meaning.endswith("3 steps") and "discount" not in meaning
    assert weights_of_time(problem) == ""


@pytest.mark.parametrize(("criterion", "term"), [("discounted", "Truncation"), ("average", "Long run")])
def test_what_a_simulation_leaves_out(criterion, term):
    found = side_by_side(machine_replacement(num_arms=2).with_criterion(criterion), "random")
    assert truncation_entries([row.evaluation for row in found.rows])[0][0] == term


def test_a_finite_horizon_leaves_nothing_out():
    found = side_by_side(machine_replacement(num_arms=2).with_criterion("finite:4"), "random")
    assert truncation_entries([row.evaluation for row in found.rows]) == []


class TestGroups:
    def test_a_figure_of_arms_has_figures_of_arms(self, build_arm):
        """Over groups the evaluation's own worst and mean are those of groups."""
        arms = [build_arm(seed, 2, [[0], [1]]) for seed in (0, 1, 2)]
        problem = CoupledMDP(arms, [1], 0.8, [2, 1, 1], groups=["north", "north", "south"], over="groups")
        found = side_by_side(problem, "never-act")
        evaluation = found.rows[0].evaluation
        values = evaluation.values
        assert evaluation.worst > values.min() + 1e-3 and abs(evaluation.mean - values.mean()) > 1e-3
        low, high, mean = (number(float(value)) for value in (values.min(), values.max(), values.mean()))
        assert f"never-act from {low} to {high}, mean {mean}" in spread_plot(found).label

    def test_the_worst_off_group_is_named(self, towns):
        found = side_by_side(towns, "random", "never-act")
        groups = found.rows[0].evaluation.groups
        text = " ".join(comparison_report(found).lead)
        assert f"is the group {min(groups, key=groups.get)}, with" in text
        assert "worst-off arm" not in text and "arm counts" not in text

    def test_welfare_is_explained_over_groups(self):
        text = welfare_meaning(Gini.geometric(2), "group")
        assert "groups are sorted" in text and "arm" not in text
        assert "worst-off group" in welfare_meaning(Leximin(), "group")

    def test_the_page_has_the_value_of_each_group(self, towns):
        found = side_by_side(towns, "random", "never-act")
        text, page = shown(found)
        assert "worst group" in text and mentions("2 groups")(text)
        assert "south &lt;b&gt;" in page and "south <b>" not in page
        table = text[text.index("Value of a group") :]
        for row in found.rows:
            assert f"{row.policy} {' '.join(f'{value:.4f}' for value in row.evaluation.groups.values())}" in table

    def test_over_arms_there_is_no_such_table(self, towns):
        text, _ = shown(side_by_side(towns.with_criterion(over="arms"), "random", "never-act"))
        assert "Value of a" not in text and "worst arm" in text


class TestFloors:
    def test_missed_floors_are_reported(self, towns):
        text, _ = shown(side_by_side(towns, "equal-resources", "never-act"))
        assert re.search(r"Floor missed: never-act: type 1 is served 0.0.% of the time, and must be 25.0.%", text)

    def test_no_note_if_every_floor_is_met(self, towns):
        text, _ = shown(side_by_side(towns, "equal-resources"))
        assert "Floor missed" not in text and text.count("25.0 %") == 1
        free = CoupledMDP(towns.arms, towns.budget, 0.8, towns.counts)
        assert not any(head.text == "floor" for head in summarise(free).tables[0].heads)


def test_an_unknown_cut_off_does_not_hide_a_difference():
    """Chance alone decides whether two averages can be told apart."""
    problem = machine_replacement(num_arms=3).with_criterion("average")
    found = side_by_side(problem, "oldest-first", "never-act")
    assert isinstance(found.rows[0], Row) and np.isfinite(found.rows[0].evaluation.welfare_stderr)
    text = " ".join(comparison_report(found).lead)
    assert "error of the simulation" not in text
