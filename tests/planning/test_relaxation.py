"""What is remembered of a relaxation, its policies under every criterion, and mixtures that keep the floors."""

from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InfeasibleError
from evenhand.evaluation import check_policy, mean_by_type, simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import Arm, CoupledMDP, MixturePolicy, TimeVaryingPolicy, Utilitarian
from evenhand.planning import budget_worth, fluid_policy, relax
from evenhand.planning import relaxation as module
from evenhand.policies import OccupancyPriority, never_act, worst_first

from ..conftest import mentions, slow_after
from ..oracles.relaxation import fluid_policies

CRITERIA = ["discounted", "average", "finite:6"]


@pytest.fixture(autouse=True)
def short_averages(monkeypatch):
    """These arms forget their start within a few steps."""
    monkeypatch.setattr("evenhand.model.criterion.USUAL_AVERAGE_HORIZON", 100)


class Mean:
    """The mean under a name that another welfare has."""

    name = "maximin"

    def __call__(self, values, counts=None):
        return np.average(values, weights=counts, axis=-1)

    def supergradient(self, values, counts=None):
        counts = np.ones(np.shape(values)[-1]) if counts is None else np.asarray(counts)
        return counts / counts.sum()

    def check_domain(self, values):
        pass


def machines(num_arms=6, budget=2, floors=None, criterion="discounted", discount=0.9):
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=num_arms, budget=budget)
    return CoupledMDP(problem.arms, problem.budget, discount, floors=floors, criterion=criterion)


class TestRelax:
    def test_a_relaxation_is_remembered_by_the_objects_themselves(self):
        problem = machines()
        own = Mean()
        first = relax(problem, own)
        assert relax(problem, own) is first
        assert relax(problem, Mean()) is not first
        assert first.welfare == pytest.approx(relax(problem, "utilitarian").welfare, rel=1e-4)
        assert first.welfare > relax(problem, "maximin").welfare + 0.1  # the name says something else
        assert relax(problem, "gini:2") is relax(problem, "gini:2")
        assert relax(problem, "gini:2") is not relax(problem, "gini:3")
        assert relax(machines(), own) is not first

    def test_only_the_policy_that_is_asked_for_is_built(self, monkeypatch):
        built = []
        for name in ("fair_index", "occupancy_priority", "Resolving"):
            real = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *a, name=name, real=real, **k: built.append(name) or real(*a, **k))
        fluid_policy(machines(), Utilitarian(), "fair-index")
        assert built == ["fair_index"]


@pytest.mark.parametrize("criterion", CRITERIA)
class TestPolicies:
    def test_they_are_feasible_and_near_the_bound(self, criterion):
        problem = machines(12, 3, criterion=criterion)
        found = relax(problem, "utilitarian")
        policies = fluid_policies(problem, found)
        assert set(policies) == {"occupancy-priority", "fair-index", "re-solving"}
        idle = play(problem, never_act(problem), 60, 1)[2].mean()
        for policy in policies.values():
            check_policy(problem, policy)
            got = play(problem, policy, 60, 1)[2].mean()
            assert got > idle + 0.85 * (found.upper_bound - idle)
            assert got <= found.upper_bound * 1.02

    def test_a_finite_horizon_has_a_table_a_step(self, criterion):
        problem = machines(criterion=criterion)
        policy = fluid_policy(problem, "gini:2", "fair-index")
        assert isinstance(policy, TimeVaryingPolicy) == criterion.startswith("finite")

    def test_open_welfare_and_groups(self, criterion):
        problem = machines(criterion=criterion)
        grouped = CoupledMDP(
            problem.arms, problem.budget, 0.9, groups=["a", "b", "a", "", "b", "a"], criterion=criterion, over="groups"
        )
        for policy in fluid_policies(grouped, relax(grouped, Mean())).values():
            check_policy(grouped, policy)


class TestLastSteps:
    def test_nothing_is_invested_at_the_end_of_a_finite_horizon(self):
        """Mending costs now and pays later: the first step mends whoever is broken, the last nobody."""
        moves = [[[0.8, 0.2], [0.8, 0.2]], [[0.0, 1.0], [1.0, 0.0]]]
        arm = Arm(moves, [[1.0, 0.5], [0.0, -0.1]], [[0], [1]])
        problem = CoupledMDP([arm], [3.0], 0.9, [3], criterion="finite:5")
        policy = fluid_policy(problem, "utilitarian", "fair-index")
        broken = np.ones((1, 3), dtype=np.int32)
        assert policy.parts[0].act(broken, np.random.default_rng(0)).tolist() == [[1, 1, 1]]
        assert policy.parts[-1].act(broken, np.random.default_rng(0)).tolist() == [[0, 0, 0]]


def two_arms(floors, criterion):
    """One resource for two arms, one of which gains ten times as much."""
    arms = [Arm(np.ones((1, 2, 1)), [[1.0, 1.0 + gain]], [[0], [1]]) for gain in (1.0, 0.1)]
    return CoupledMDP(arms, [1.0], 0.9, floors=floors, criterion=criterion)


@pytest.fixture
def few_episodes(effort):
    """Plans are looked for and reported on few episodes."""
    effort(arm_steps=1e5, report_steps=4e5, inequality_steps=1e4)


def play(problem, policy, num_episodes, rng):
    """(type,) shares of time served, their errors, and values."""
    rollout = simulate(problem, policy, num_episodes, min(problem.criterion.judging_steps(), 300), rng)
    served = mean_by_type(problem, rollout.served)
    return served.mean(axis=0), standard_errors(served), mean_by_type(problem, rollout.returns).mean(axis=0)


@pytest.mark.parametrize("criterion", slow_after(1, CRITERIA))
class TestFloors:
    def test_a_floor_is_met_by_mixing_what_an_index_cannot(self, criterion, few_episodes):
        problem = two_arms([0.2, 0.3], criterion)
        assert play(problem, worst_first(problem), 20, 0)[0][1] == 0  # by index only the first is served
        policy = eh.solve(problem, "utilitarian", "fluid").policy
        served, error, values = play(problem, policy, 400, 7)
        assert (served >= np.array([0.2, 0.3]) - 4 * error).all()
        best = (0.7 * 1.0 + 0.3 * 0.1 + 2) / 2 * problem.criterion.total
        assert relax(problem, "utilitarian").upper_bound == pytest.approx(best, rel=1e-4)
        assert values.mean() == pytest.approx(best, rel=0.05)

    @pytest.mark.parametrize("num_arms", [4, 6])
    @pytest.mark.slow
    def test_many_machines(self, num_arms, criterion, few_episodes):
        floors = np.where(np.arange(num_arms) < num_arms // 2, 0.25, 0.0)
        problem = machines(num_arms, 2, floors, criterion)
        policy = eh.solve(problem, "gini:1.5", "fluid").policy
        check_policy(problem, policy)
        served, error, values = play(problem, policy, 300, 3)
        assert (served >= floors - 4 * error).all()
        bound = relax(problem, "gini:1.5").upper_bound
        assert 0.8 * bound < eh.Gini.geometric(num_arms, 1.5)(values) < 1.03 * bound

    def test_floors_out_of_reach_are_refused(self, criterion):
        with pytest.raises(InfeasibleError, check=mentions(0.5)):
            eh.solve(two_arms([0.6, 0.6], criterion), "utilitarian", "fluid")


def test_a_mixture_within_floors_treats_equal_arms_alike(few_episodes):
    problem = two_arms([0.2, 0.3], "discounted")
    policy = eh.solve(problem, "utilitarian", "fluid").policy
    assert isinstance(policy, (MixturePolicy, OccupancyPriority))
    assert policy.exchangeable


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_worth_of_a_budget_is_what_more_of_it_brings(criterion):
    problem = machines(12, 1, criterion=criterion)
    problem = replace(problem, budget=1000 * problem.budget, counts=1000 * problem.counts)
    more = replace(problem, budget=problem.budget + 1)
    slope = relax(more, "utilitarian", 1e-9).welfare - relax(problem, "utilitarian", 1e-9).welfare
    assert slope > 0
    assert budget_worth(problem, relax(problem, "utilitarian", 1e-9))[0] == pytest.approx(slope, rel=1e-3)


class TestNeverWorse:
    """With floors, a policy that keeps them as it is must not be beaten by the mixture."""

    @pytest.mark.slow
    def test_small_floors_cost_little(self):
        free = machines(12, 3, discount=0.8)
        floored = CoupledMDP(free.arms, free.budget, 0.8, floors=[0.01] * 12)
        found, best = (eh.solve(problem, "gini:2", "fluid") for problem in (floored, free))
        cost = best.upper_bound - found.upper_bound  # what they cost at the least
        error = 4 * np.hypot(found.welfare_stderr, best.welfare_stderr)
        assert found.welfare >= best.welfare - cost - error - 1e-3

    @pytest.mark.slow
    def test_a_candidate_that_keeps_them_competes(self):
        problem = CoupledMDP(machines(5, 2).arms, [2.0], 0.9, floors=[0.05] * 5)
        exact = eh.solve(problem, "maximin", "joint")
        found = eh.solve(problem, "maximin", eh.SolveMethod(candidates={"best": exact.policy}))
        assert found.welfare >= exact.welfare - 4 * found.welfare_stderr - 1e-6

    @pytest.mark.slow
    def test_floors_that_take_the_whole_budget_are_met_by_turns(self):
        problem = CoupledMDP(machines(4, 1).arms, [1.0], 1.0, floors=[0.25] * 4, criterion="finite:8")
        found = eh.solve(problem, "gini:2", "fluid")
        turns = eh.evaluate(problem, eh.policies.RoundRobin(problem), "gini:2", rng=0)
        assert found.welfare >= turns.welfare - 4 * np.hypot(found.welfare_stderr, turns.welfare_stderr)
