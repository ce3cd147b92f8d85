"""The price of fairness: the best plan for each welfare, weighed by all, and never worse than another's."""

import re
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.evaluation import gini_coefficient
from evenhand.model import Arm, CoupledMDP, Objective
from evenhand.planning import Samples
from evenhand.planning import price_of_fairness as module
from evenhand.report import fairness_report
from evenhand.report import page as page_of

from ..conftest import mentions

IDEAS = ["gini:half=0.75", "gini:2", "alpha:1", "maximin", "leximin"]


def outreach():
    return eh.problems.health_outreach(num_arms=6, num_states=2, num_groups=3, budget=1)


def clinics():
    """Three groups, and people of two kinds in the first."""
    people = outreach()
    arms = [people.arms[0], people.arms[1], people.arms[2], people.arms[2]]
    return eh.CoupledMDP(arms, [1], 0.95, counts=[1, 2, 1, 2], groups=["hill", "lake", "hill", "port"])


@pytest.fixture(scope="module")
def found():
    return eh.price_of_fairness(outreach(), IDEAS)


def test_without_a_word_these_are_the_ideas(found):
    assert found.left_out == {}
    assert (found.who, found.counts) == ("type", {"group 1": 2, "group 2": 2, "group 3": 2})
    machines = eh.price_of_fairness(eh.problems.machine_replacement(num_arms=2))
    assert [row.welfare for row in machines.rows] == [
        "utilitarian",
        "gini:2",
        "gini:half=0.6",
        "gini:half=0.75",
        "maximin",
    ]
    assert [row.welfare for row in eh.price_of_fairness(clinics()).rows][3:] == ["maximin", "maximin over groups"]


def test_every_plan_is_weighed_by_every_welfare(found):
    problem = outreach()
    for row in found.rows:
        alone = eh.solve(problem, row.welfare)
        assert row.by[row.welfare] == pytest.approx(alone.welfare, rel=1e-6)
        assert row.exact and row.is_proved and set(row.by_stderr.values()) == {0.0}
        values = np.array(list(row.values.values()))
        for name, welfare in row.by.items():
            assert welfare == pytest.approx(eh.parse_welfare(name, 6)(values, [2, 2, 2])), (row.welfare, name)
        assert (row.mean, row.worst) == (pytest.approx(values.mean()), values.min())
        assert row.gini_coefficient == pytest.approx(gini_coefficient(values))


def test_no_plan_is_better_in_the_column_of_another(found):
    for column in found.rows:
        best = max(row.by[column.welfare] for row in found.rows)
        assert column.by[column.welfare] >= best * (1 - 1e-6)


def test_prices_gains_and_losses_are_from_the_best_mean(found):
    first, *others = found.rows
    assert first.price == 0 and set(first.gains.values()) == {0.0}
    for row in others:
        assert row.price == pytest.approx((first.mean - row.mean) / first.mean)
        assert row.gains == pytest.approx({name: row.values[name] - first.values[name] for name in row.values})
    leximin = others[-1]
    assert leximin.gains["group 1"] < 0 < min(leximin.gains["group 2"], leximin.gains["group 3"])


def test_a_welfare_may_be_over_groups_beside_others_over_arms():
    problem = clinics()
    found = eh.price_of_fairness(problem, ["maximin", "maximin over groups"])
    mean, arms, groups = found.rows
    assert groups.welfare == "maximin over groups"
    alone = eh.solve(problem, "maximin", over="groups")
    assert groups.by["maximin over groups"] == pytest.approx(alone.welfare, rel=1e-6)
    assert min(groups.groups.values()) == pytest.approx(alone.welfare, rel=1e-6)
    assert groups.by["maximin"] == pytest.approx(groups.worst) and groups.worst <= arms.worst + 1e-9
    for row in found.rows:
        values = row.solution.values
        assert row.mean_of_arms == pytest.approx(values.mean()) == pytest.approx(row.mean)
        people = np.array(["hill", "lake", "lake", "hill", "port", "port"])
        assert row.groups == pytest.approx({name: values[people == name].mean() for name in ("hill", "lake", "port")})
        for ways, sign in ((row.gaining, 1), (row.losing, -1)):
            moved = sign * (values - mean.solution.values) > 1e-6 * np.abs(values)
            assert ways == {name: int(moved[people == name].sum()) for name in ("hill", "lake", "port")}
    with pytest.raises(InvalidInputError):
        eh.price_of_fairness(problem, ["maximin over clinics"])


@pytest.mark.parametrize("limit", [0.0, 0.02, 0.1, 1.0])
def test_the_recommended_row_is_the_fairest_within_the_price_limit(limit):
    found = eh.price_of_fairness(clinics(), price_limit=limit)
    best = max(row.mean_of_arms for row in found.rows)
    cheap = [row for row in found.rows if row.mean_of_arms >= best * (1 - limit) - 1e-12]
    chosen = next(row for row in found.rows if row.welfare == found.recommended.welfare)
    assert chosen in cheap
    worst = {row.welfare: min(row.groups.values()) for row in cheap}
    assert worst[chosen.welfare] >= max(worst.values()) * (1 - 1e-3)
    assert found.recommended.worst == worst[chosen.welfare]
    assert found.recommended.gaining == sum(chosen.gaining.values())
    told = found.to_dict()["recommended"]
    assert told["welfare"] == chosen.welfare and "worst-off group" in told["reason"]
    assert "worst-off clinic" in found.recommended.reason("patient", "patients", "clinic")
    assert told["reason"] in found._repr_html_().replace("\u00a0", " ")
    with pytest.raises(InvalidInputError):
        eh.price_of_fairness(clinics(), price_limit=-limit - 0.1)


@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_the_best_by_its_own_welfare_however_hasty_the_search(seed):
    rng = np.random.default_rng(seed)
    arms = [
        eh.Arm(rng.dirichlet(np.ones(3), size=(3, 2)), rng.random((3, 2)), usage=[[0], [1]], initial=[1, 0, 0])
        for _ in range(3)
    ]
    problem = eh.CoupledMDP(arms, [4], 0.7, [5, 5, 5], groups=["north", "south", "north"])
    found = eh.price_of_fairness(problem, method=eh.SolveMethod("fluid", seconds=1e-2))
    assert len(found.rows) == 5
    for column in found.rows:
        for row in found.rows:
            error = np.hypot(row.by_stderr[column.welfare], column.by_stderr[column.welfare])
            assert row.by[column.welfare] <= column.by[column.welfare] + error


def test_asked_for_the_mean_is_always_there_and_comes_first():
    found = eh.price_of_fairness(outreach(), ["maximin", eh.Utilitarian(), "maximin"])
    assert [row.welfare for row in found.rows] == ["utilitarian", "maximin"]
    assert [row.welfare for row in eh.price_of_fairness(outreach(), "maximin").rows] == ["utilitarian", "maximin"]
    with pytest.raises(InvalidInputError, check=mentions("welfares")):
        eh.price_of_fairness(outreach(), [])
    with pytest.raises(InvalidInputError, check=mentions("maximin")):
        eh.price_of_fairness(outreach(), ["maximn"])


def test_over_groups_the_values_are_those_of_groups():
    problem = outreach()
    grouped = eh.CoupledMDP(
        problem.arms, problem.budget, 0.95, counts=problem.counts, groups=["north", "south", "north"]
    )
    found = eh.price_of_fairness(grouped, ["maximin"], over="groups")
    assert (found.who, found.counts) == ("group", {"north": 4, "south": 2})
    row = found.rows[1]
    best = eh.solve(grouped, "maximin", over="groups")
    assert row.values == pytest.approx(best.groups)
    assert row.worst == pytest.approx(min(best.groups.values()))
    assert repr(found).startswith("PriceOfFairness(2 welfares on 2 groups of 6 arms, ")
    assert "2 welfares on 2 groups of 6 arms" in found._repr_html_()
    over_arms = eh.price_of_fairness(grouped, ["maximin"])  # then groups are told beside the types
    assert over_arms.group_sizes == {"north": 4, "south": 2}
    for told in over_arms.rows:
        values = list(told.solution.values)
        assert told.groups == pytest.approx({"north": np.mean(values[:2] + values[4:]), "south": np.mean(values[2:4])})
    page = page_of(fairness_report(over_arms))
    assert "value of an arm of each type" in page
    assert "value of each group, the mean of its arms" in page
    assert "value of an arm of each type" not in page_of(fairness_report(found))


def test_a_page_over_few_groups_speaks_of_groups():
    people = outreach()
    groups = ["Hill", "Dale", "Coast"]
    grouped = CoupledMDP(people.arms, people.budget, 0.95, counts=people.counts, groups=groups, over="groups")
    page = page_of(fairness_report(eh.price_of_fairness(grouped, ["gini:half=0.75"]))).replace("\u00a0", " ")
    assert "worst tenth" not in page
    lead = re.search(r"<header.*?</header>", page, re.S).group()
    assert " an arm" not in lead
    assert re.search(r"\w+ (gains|loses) most \([\d.]+\), and one other group\.", lead)


def test_a_gain_that_is_rounded_to_nothing_has_no_sign(found):
    names = list(found.counts)
    moved = zip(names, (1e-12, -1e-12, 0.5), strict=True)
    tiny = replace(found.rows[1], values={name: found.rows[0].values[name] + by for name, by in moved})
    text = replace(found, rows=(found.rows[0], tiny))._repr_html_()
    assert "(+0.0" not in text and "(−0.0" not in text and "(+0.5" in text
    assert "−0.0000" not in text


def test_arms_of_one_type_that_fare_differently_are_told_by_their_mean():
    found = eh.price_of_fairness(outreach(), ["maximin"], method="joint")
    assert set(found.rows[0].values) == {"group 1", "group 2", "group 3"}
    assert found.rows[1].by["maximin"] == pytest.approx(6.9838, abs=1e-4)


def test_what_has_no_plan_is_left_out_with_the_reason():
    loss = Arm([[[1.0], [1.0]]], [[-1.0, -0.5]], [[0], [1]])
    found = eh.price_of_fairness(eh.CoupledMDP([loss, loss], [1], 0.9), ["alpha:1", "maximin"])
    assert [row.welfare for row in found.rows] == ["utilitarian", "maximin"]
    assert list(found.left_out) == ["alpha:1"]
    assert "positive" in found.left_out["alpha:1"]


def test_types_of_one_name_are_told_apart():
    arms = [Arm([[[1.0], [1.0]]], [[0.0, gain]], [[0], [1]], name="pump") for gain in (1.0, 2.0)]
    names = list(eh.price_of_fairness(eh.CoupledMDP(arms, [1], 0.9), ["maximin"]).counts)
    assert len(set(names)) == 2 and all(name.startswith("pump") for name in names)
    nameless = [Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0], [1]])] * 2
    assert list(eh.price_of_fairness(eh.CoupledMDP(nameless, [1], 0.9), ["maximin"]).counts) == ["type 0"]


def test_the_page_lists_the_choices_of_types_that_differ_in_them(tmp_path):
    pump = Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0], [1]], name="pump", actions=["wait", "mend"])
    valve = Arm([[[1.0]] * 3], [[0.0, 1.0, 2.0]], [[0], [1], [1]], name="valve", actions=["wait", "turn", "swap"])
    eh.price_of_fairness(eh.CoupledMDP([pump, valve], [1], 0.9), ["maximin"]).report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "3: wait (uses nothing), turn (uses 1), swap (uses 1)" in page


@pytest.fixture
def unlucky(monkeypatch):
    """As if plans were found by playing, and that for gini:2 was a bad one: that of the mean."""
    search = module.solve

    def solve(problem, welfare, *arguments, **options):
        found = search(problem, welfare.name.replace("gini:2", "utilitarian"), *arguments, **options)
        noise = np.random.default_rng(0).normal(0, 1e-3, size=(50, 3))
        returns = found.unit_values + noise - noise.mean(axis=0)
        objective = Objective.of_types(problem, welfare)
        samples = Samples(np.ones(1), (returns,), np.zeros(3))
        return replace(found, objective=objective, welfare=objective(found.unit_values), samples=samples)

    monkeypatch.setattr(module, "solve", solve)


def test_a_better_plan_of_another_is_taken_over(unlucky):
    found = eh.price_of_fairness(outreach(), ["gini:2", "maximin", "leximin"])
    mean, gini, maximin, leximin = found.rows
    assert [row.plan_of for row in found.rows] == ["utilitarian", "maximin", "maximin", "leximin"]
    assert gini.values == maximin.values
    assert gini.by["gini:2"] == maximin.by["gini:2"] > mean.by["gini:2"]
    plan = gini.solution
    assert plan.objective.welfare.name == "gini:2"
    assert plan.policy is maximin.solution.policy
    assert plan.welfare == gini.by["gini:2"]
    assert "plan for maximin" in plan.reason
    assert not gini.exact and 0 < gini.by_stderr["gini:2"] < 1e-2
    assert all(0 < error < 1e-2 for error in gini.values_stderr.values())
    assert not leximin.is_proved


def test_a_level_of_leximin_is_not_given_for_a_trifle(unlucky):
    """Maximin may have a hair more for the worst-off: the plan for leximin stays."""
    found = eh.price_of_fairness(outreach(), ["maximin", "leximin"])
    assert found.rows[2].plan_of == "leximin"


@pytest.mark.slow
def test_plans_by_playing():
    problem = eh.problems.health_outreach(num_arms=24, budget=4)
    found = eh.price_of_fairness(problem, ["gini:2", "maximin", "leximin"], eh.SolveMethod(seconds=20))
    for column in found.rows:
        for row in found.rows:
            error = np.hypot(row.by_stderr[column.welfare], column.by_stderr[column.welfare])
            assert row.by[column.welfare] <= column.by[column.welfare] + 3 * error, (row.welfare, column.welfare)
            assert row.by[column.welfare] <= column.solution.upper_bound + 3 * row.by_stderr[column.welfare]


def test_in_a_notebook(found, tmp_path):
    assert repr(found) == "PriceOfFairness(6 welfares on 6 arms, up to 6.6 % of the mean for gini:2)"
    html = found._repr_html_()
    assert "Price of fairness" in html and "leximin" in html and "group 3" in html
    for library in ("pandas", "polars"):
        pytest.importorskip(library)
        frame = found.to_frame(library)
        assert list(frame["welfare"]) == ["utilitarian", *IDEAS]
        assert list(frame["by gini:2"]) == [row.by["gini:2"] for row in found.rows]
        assert list(frame["value: group 1"]) == [row.values["group 1"] for row in found.rows]
    for kind in ("values", "trade"):
        assert found.plot(kind).axes
    with pytest.raises(InvalidInputError, check=mentions("values", "trade")):
        found.plot("pie")
    found.report(tmp_path / "page.html", title="Ours")
    assert "<h1>Ours</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("error", "within"), [(0.001, False), (0.2, True)])
def test_a_price_within_the_error_is_reported_as_such(error, within):
    found = eh.price_of_fairness(outreach(), ["maximin"])
    rows = [replace(row, values_stderr=dict.fromkeys(row.values, error)) for row in found.rows]
    rows[1] = replace(rows[1], mean=rows[0].mean - 0.05, price=0.05 / rows[0].mean)
    altered = replace(found, rows=tuple(rows))
    assert altered.is_dearer(altered.rows[1]) != within
    assert ("within the error" in page_of(fairness_report(altered))) == within
    assert "within the error" not in page_of(fairness_report(found))


@pytest.mark.parametrize("over", ["arms", "groups"])
def test_the_part_of_values_beyond_the_horizon_is_in_their_errors(over):
    """In those of units and in those of members."""
    arms = [Arm(np.ones((1, 2, 1)), [[0.0, reward]], [[0], [1]]) for reward in (1.0, 2.0, 3.0)]
    problem = CoupledMDP(arms, [1], 0.9, counts=[2, 1, 1], groups=["a", "b", "b"], over=over)
    rng = np.random.default_rng(0)
    samples = Samples(np.array([0.5, 0.5]), (rng.random((9, 3)), rng.random((9, 3))), np.array([0.1, 0.2, 0.5]))
    objective = Objective.of_types(problem, "gini:2")
    errors, units = samples.errors(objective.members), samples.errors()
    assert (errors > objective.members(samples.beyond)).all() and (units > samples.beyond).all()
    if over == "arms":
        np.testing.assert_allclose(errors, units)
