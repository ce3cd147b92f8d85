"""What cells compute, against what is known."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.experiments import cells
from evenhand.experiments.cells import KINDS
from evenhand.experiments.outcomes import TimingValues

MACHINES = {"problem": "machine-replacement", "parameters": {"num_arms": 3}}


def test_every_kind_is_described():
    for kind in KINDS:
        assert f"\n    {kind} " in cells.__doc__


def test_optimum_is_the_published_one():
    found = cells.optimum(**MACHINES).values
    assert found.welfare == pytest.approx(14.0793, abs=5e-5)
    assert found.welfare <= found.upper_bound + 1e-9
    assert found.states == 10


def test_fluid_is_above_the_optimum():
    assert cells.fluid(**MACHINES).values.upper_bound > 14.0793


def test_whittle_of_the_paper_is_what_the_paper_prints_and_the_exact_one_is_optimal():
    paper = cells.named_policy(**MACHINES, policy="whittle-paper", seed=1).values
    assert paper.plug_in == pytest.approx(13.75, abs=4 * paper.plug_in_stderr)
    exact = cells.named_policy(**MACHINES, policy="whittle", num_episodes=10).values
    assert exact.exact
    assert exact.stderr == 0
    assert exact.welfare == pytest.approx(14.0793, abs=5e-5)


def test_the_plug_in_figure_is_the_gini_of_the_means():
    problem = eh.problems.machine_replacement(num_arms=3)
    returns = eh.simulate(problem, eh.policies.random_feasible(problem), 50, 300, 5).returns
    by_hand = float(np.array([4, 2, 1]) / 7 @ np.sort(returns.mean(axis=0)))
    found = cells.named_policy(**MACHINES, policy="random", num_episodes=50, seed=5).values
    assert found.plug_in == pytest.approx(by_hand, abs=1e-12)
    assert found.plug_in < found.mean + 1


def test_a_policy_that_is_not_for_the_problem_says_why():
    found = cells.named_policy(problem="crew-maintenance", parameters={"num_types": 1}, policy="whittle").values
    assert found.applies is False
    assert "resource" in found.reason


@pytest.mark.slow
def test_training_is_evaluated_on_other_sizes():
    pytest.importorskip("stable_baselines3")
    sizes = [{"num_arms": 3, "budget": 1}, {"num_arms": 5, "budget": 2}]
    found = cells.train(**MACHINES, steps=4000, evaluations=2, num_episodes=20, evaluate=sizes).values
    first, second = found.evaluations
    assert (second.num_arms, second.budget) == (5, 2)
    assert found.score == pytest.approx(first.welfare)  # both exact, on the same problem
    assert found.score == max(score for _, score in found.curve)
    optimum = cells.optimum(problem="machine-replacement", parameters={"num_arms": 5, "budget": 2}).values.welfare
    assert 0 < second.welfare <= optimum + 1e-6


@pytest.mark.parametrize("who", ["whittle-evaluation", "cp-drl-evaluation", "cp-drl-training"])
def test_times_are_measured(who):
    if who == "cp-drl-training":
        pytest.importorskip("stable_baselines3")
    found = cells.timing(**MACHINES, who=who, num_episodes=20, horizon=200, repeats=1)
    assert found.values == TimingValues(episodes=20, horizon=200, repeats=1)
    assert found.timings["per_episode"] > 0


@pytest.mark.parametrize(("program", "size"), [("gini", (36, 114)), ("count", (10, 40))])
def test_programs_have_the_published_sizes_and_optimum(program, size):
    parameters = {"num_arms": 3, "operating_cost": "quadratic"}
    found = cells.lp(problem="machine-replacement", parameters=parameters, program=program, repeats=2)
    assert (found.values.paper_constraints, found.values.paper_variables) == size
    assert found.values.constraints == size[0]
    assert found.values.welfare == pytest.approx(16.0969, abs=5e-5)
    parts = [found.timings[stage] for stage in ("data", "build", "solve", "extract")]
    assert found.timings["total"] == pytest.approx(sum(parts))


def test_fairness_helps_the_worst_and_costs_the_mean():
    parameters = {"num_arms": 3, "num_states": 2, "num_groups": 3, "budget": 1}
    measures = ["utilitarian", "maximin"]
    blind, fair = (
        cells.fairness(problem="health-outreach", parameters=parameters, welfare=welfare, measures=measures).values
        for welfare in measures
    )
    assert blind.exact
    assert fair.worst > blind.worst + 0.01
    assert fair.mean < blind.mean - 0.01
    for found in (blind, fair):
        values = np.repeat([group.value for group in found.groups], [group.count for group in found.groups])
        assert found.measures == pytest.approx({"utilitarian": values.mean(), "maximin": values.min()})
