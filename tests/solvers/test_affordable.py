"""Actions that no budget allows, and budgets of which only a part can be used: in no bound, price or policy."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model import Arm, ArmTables, Average, CoupledMDP, Discounted, usable_amount
from evenhand.solvers import solve_blocks, solve_fluid, solve_opening
from evenhand.solvers.single_arm import SingleArms

from ..conftest import mentions
from ..oracles.problems import seeded_problem
from ..oracles.product_space_lp import read_problem

TEMPTING = 50.0
"""The reward of actions that no policy can choose."""


def with_dear_actions(problem, rng):
    """The same problem in which every arm has one more action, far too good and beyond the budget."""
    arms = []
    for arm in problem.tables:
        s, k = arm.num_states, problem.num_resources
        use = np.zeros((s, 1, k))
        use[:, 0, int(rng.integers(k))] = problem.budget.max() + 1
        rows = np.eye(s)[rng.integers(s, size=s)][:, None]
        parts = (
            np.concatenate([arm.transitions, rows], axis=1),
            np.concatenate([arm.rewards, np.full((s, 1), TEMPTING)], axis=1),
            np.concatenate([arm.usage, use], axis=1),
        )
        arms.append(Arm(*parts, initial=arm.initial))
    return replace(problem, arms=arms)


def dear_arm():
    """Three units are needed in every state, for a reward of 1."""
    return Arm(np.eye(2)[[[0, 1], [0, 1]]], [[0, 1], [0, 1]], [[0], [3]], initial=[1, 0])


class TestTheCasesOfTheReport:
    def test_nothing_can_be_bought(self):
        problem = CoupledMDP([dear_arm()], [2], 0.9, [3])
        for method in ("fluid", "whittle", "counts", "joint", "auto"):
            found = eh.solve(problem, "utilitarian", method)
            assert found.welfare == pytest.approx(0, abs=1e-9) and found.upper_bound == pytest.approx(0, abs=1e-9)

    def test_visits_beyond_the_budget(self):
        problem = eh.problems.health_outreach(num_arms=12, num_states=3, num_groups=3, budget=2)
        relaxed = solve_fluid(problem, "gini:half=0.75", 1e-6)
        assert relaxed.upper_bound == pytest.approx(8.9668, abs=1e-4)
        tighter = solve_opening(problem, "gini:half=0.75", relaxed)
        assert 8.7704 <= tighter.upper_bound <= relaxed.upper_bound

    @pytest.mark.parametrize("budget, usable", [(1.1, 1), (0.9, 0), (2.9999, 2), (3, 3)])
    def test_whole_units(self, budget, usable):
        arm = Arm(np.eye(2)[[[0, 1], [0, 1]]], [[0, 1], [0, 1]], [[0], [1]], initial=[1, 0])
        found, rounded = (solve_fluid(CoupledMDP([arm], [b], 0.9, [5]), "gini:2", 1e-8) for b in (budget, usable))
        assert found.upper_bound == pytest.approx(rounded.upper_bound, abs=1e-9)
        assert found.welfare == pytest.approx(rounded.welfare, abs=1e-9)


def test_what_can_be_used_is_the_largest_sum_of_uses_on_a_common_step():
    """Against all sums of up to so many uses; a step that is not reached leaves room, never takes it."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        step = float(rng.choice([1, 2, 0.5, 0.1, 0.25, 1 / 3, 0.7]))
        uses = np.unique(step * rng.integers(1, 5, int(rng.integers(1, 4))))
        budget = float(rng.uniform(0, 8) * step)
        uses = uses[uses <= budget]
        sums = {0.0}
        for _ in range(9):
            sums |= {round(have + use, 9) for have in sums for use in uses.tolist() if have + use <= budget + 1e-9}
        found = usable_amount(budget, np.append(0.0, uses))
        assert max(sums) - 1e-8 <= found <= budget
        if len(uses) == 1:
            assert found == pytest.approx(max(sums), abs=1e-8)
    assert usable_amount(0.3, np.array([0.0, 0.1])) == pytest.approx(0.3)
    assert usable_amount(7.3, np.array([0.0, 1.0, np.sqrt(2)])) == 7.3


@pytest.mark.parametrize("criterion", ["discounted", "finite:3", "average"])
@pytest.mark.parametrize("seed", range(12))
def test_as_if_the_action_did_not_exist(seed, criterion):
    rng = np.random.default_rng(seed)
    problem = seeded_problem(seed, groups=False).with_criterion(criterion)
    dear = with_dear_actions(problem, rng)
    welfare = ["utilitarian", "gini:2", "maximin"][seed % 3]
    try:
        plain = solve_fluid(problem, welfare, 1e-7)
    except NotApplicableError:
        with pytest.raises(NotApplicableError):
            solve_fluid(dear, welfare, 1e-7)
        return
    found = solve_fluid(dear, welfare, 1e-7)
    assert found.upper_bound == pytest.approx(plain.upper_bound, rel=1e-6, abs=1e-7)
    assert not found.occupancy[..., ~dear.types.valid.any(axis=(0, 1))].any()
    best = read_problem(dear, criterion).best(welfare).welfare
    assert found.upper_bound >= best - 1e-7 * max(1, abs(best))


@pytest.mark.parametrize("seed", range(6))
def test_exact_methods_are_those_of_the_product_space(seed):
    dear = with_dear_actions(seeded_problem(seed, most_arms=3, groups=False, floors=False), np.random.default_rng(seed))
    best = read_problem(dear).best("gini:2").welfare
    for method in ("auto", "joint-lp", "counts"):
        assert eh.solve(dear, "gini:2", method).welfare == pytest.approx(best, rel=1e-5, abs=1e-6)


class TestAnotherBudget:
    """What is possible is derived for every budget anew."""

    problem = CoupledMDP([dear_arm()], [2], 0.9, [3])

    def test_more_and_less(self):
        more = self.problem.with_budget(3)
        assert more.types.valid.all() and not more.with_budget(2.5).types.valid[..., 1].any()
        assert solve_fluid(more, "utilitarian", 1e-8).upper_bound == pytest.approx(10 / 3)
        assert solve_fluid(more.with_budget(2.5), "utilitarian").upper_bound == pytest.approx(0, abs=1e-12)
        assert self.problem.signature == more.with_budget(2).signature

    def test_types_of_one_problem_in_another(self):
        again = CoupledMDP(self.problem.types, [3], 0.9, [3])
        assert again.types.valid.all() and again == self.problem.with_budget(3)

    def test_a_plan_for_more_is_played_with_less(self, tmp_path):
        more = self.problem.with_budget(3)
        path = tmp_path / "plan.zip"
        eh.save_policy(more, eh.solve(more, "utilitarian", "fluid").policy, path)
        plan = eh.load_plan(path)
        assert plan.act([0, 0, 0], 0).used == {"resource 0": 3.0}
        assert plan.act([0, 0, 0], 0, budget=[2]).used == {"resource 0": 0.0}

    def test_a_policy_that_breaks_the_budget_is_refused_as_before(self):
        class Reckless:
            exchangeable = False

            def act(self, states, rng):
                return np.ones_like(states)

        with pytest.raises(PolicyError, check=mentions(9, "resource 0", 2)):
            eh.evaluate(self.problem, Reckless(), "utilitarian", num_episodes=2, horizon=3)


class TestShards:
    def test_the_bound_is_that_of_the_problem_in_memory(self, tmp_path):
        rng = np.random.default_rng(3)
        problem = with_dear_actions(eh.problems.random_coupled(num_arms=9, num_types=9, budget=2), rng)
        problem = problem.with_budget(problem.budget * 1.3)
        whole = solve_fluid(problem, "gini:2", 1e-6)
        assert (problem.usable_budget < problem.budget).any()
        eh.save(problem, tmp_path / "arms.parquet")
        table = eh.open_arms(tmp_path / "arms.parquet")
        found = solve_blocks(table, "gini:2", tolerance=1e-6)
        assert found.upper_bound == pytest.approx(whole.upper_bound, rel=1e-5)


class TestWhittle:
    def test_the_action_that_is_left(self):
        problem = eh.problems.health_outreach(num_arms=6, num_states=3, num_groups=2, budget=2)
        two = replace(problem, arms=[replace_actions(arm) for arm in problem.tables])
        np.testing.assert_allclose(eh.indices(problem).indices, eh.indices(two).indices)
        with pytest.raises(NotApplicableError):
            eh.indices(problem.with_budget(3))

    def test_states_in_which_only_idling_is_possible_have_no_index(self):
        moves = [[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]]
        usage = [[[0], [5]], [[0], [1]]]
        problem = CoupledMDP([Arm(moves, [[1, 9], [0, 0]], usage)], [1], 0.9, [2])
        found = eh.indices(problem).indices[0]
        # Idling in state 0, the charge c at which V(1) = 0 both ways: acting leads to state 0 at once.
        value = [1 / (1 - 0.45), 0.0]  # V(0) = 1 + 0.9 (V(0) + V(1)) / 2, V(1) = 0
        assert np.isnan(found[0]) and found[1] == pytest.approx(0.9 * value[0])
        assert eh.policies.whittle(problem).act([0, 1], 0).tolist() == [0, 1]


def replace_actions(arm):
    """The arm with its first two actions."""
    return Arm(arm.transitions[:, :2], arm.rewards[:, :2], arm.usage[:, :2], initial=arm.initial)


@pytest.mark.parametrize("criterion", [Discounted(0.95), Average()])
@pytest.mark.parametrize("spread, price", [(1, 0.01), (9, 0.1)])
@pytest.mark.parametrize("forbidden", [7.0, 1e12])
def test_the_use_of_a_forbidden_action_does_not_blur_the_best_policy(criterion, spread, price, forbidden):
    """A fit forbids an action by a use of 1e12; small advantages of the others still count, against every policy."""
    rng = np.random.default_rng(4)
    drawn = {size: rng.dirichlet([size] * 3, (3, 3)) for size in (1, 9)}
    moves, rewards = drawn[spread], [[1, 1, 1], [0.4, 0.4, 0.4], [0, 0, 0]]
    use = np.array([[0, 0], [0, 1], [1, 0]]) * np.ones((3, 1, 1))
    use[0, 2] = forbidden
    arm = Arm(moves, rewards, use, initial=[1, 0, 0])
    types, prices = ArmTables.stack([arm]).within(np.array([4.0, 6.0])), np.full(2, price)
    gains = np.asarray(rewards, dtype=float) - use @ prices
    found = SingleArms(types, types.valid, arm.initial[None], criterion).best(np.array([0]), gains[None])
    best = -np.inf
    for choice in product(range(3), repeat=3):
        if choice[0] == 2:
            continue
        chain, gain = moves[range(3), choice], gains[range(3), choice]
        if criterion.is_average:
            law = np.linalg.lstsq(np.vstack([chain.T - np.eye(3), np.ones(3)]), [0, 0, 0, 1], rcond=None)[0]
            best = max(best, float(law @ gain))
        else:
            best = max(best, float(np.linalg.solve(np.eye(3) - 0.95 * chain, gain)[0]))
    assert found.bound[0] == pytest.approx(best, abs=1e-9)
