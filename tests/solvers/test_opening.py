"""Budgets in each of the first steps: the program written down once more, and the optimum as its judge."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import NotConvergedError
from evenhand.model import Arm, CoupledMDP, Discounted, Opening
from evenhand.planning import relax, tightest
from evenhand.solvers import ProgramSizes, action_values, solve_opening
from evenhand.solvers.fluid import model_of, solve_model

from ..conftest import random_arm
from .test_fluid_objective import SoftMinimum


def fleet(budget=(1, 2), counts=(3, 2), discount=0.9):
    """Everything is new at the start, wears, and then wants the same few resources at once."""
    arms = []
    for wear, mending in ((0.6, 0.9), (0.8, 0.7)):
        rows = np.zeros((3, 3, 3))
        for state in range(3):
            rows[state, 0, state] = 1 - wear
            rows[state, 0, min(state + 1, 2)] += wear
            rows[state, 1, state] = 1 - mending
            rows[state, 1, max(state - 1, 0)] += mending
            rows[state, 2, 0] = 1
        arms.append(Arm(rows, [[3, 2, 1], [2, 1, 0], [0, -1, -1]], [[0, 0], [0, 1], [1, 1]], [1, 0, 0]))
    return CoupledMDP(arms, list(budget), discount, counts=list(counts))


def positive(problem, **more):
    """The same with rewards of which power means are defined."""
    arms = [Arm(arm.transitions, arm.rewards + 4, arm.usage, arm.initial) for arm in problem.arms]
    return CoupledMDP(arms, problem.budget, problem.discount, counts=problem.counts, **more)


def whole_program(problem, steps, horizon=600):
    """Maximin of the types' values; the flow of every step of a long time is written out, then cut off.

    The budget holds in each of the first steps, and over all others together; nothing of the library is used.
    """
    types, factor = problem.types, problem.discount
    T, S, A, K = types.usage.shape
    pairs = T * S * A
    leave, arrive = np.zeros((T * S, pairs)), np.zeros((T * S, pairs))
    for pair, (t, s, a) in enumerate(np.ndindex(T, S, A)):
        leave[t * S + s, pair] = 1
        arrive[t * S : (t + 1) * S, pair] = types.transitions[t, s, a]
    counts = np.asarray(problem.type_counts, dtype=float)
    columns = pairs * horizon + 1
    flow, start = np.zeros((T * S * horizon, columns)), np.zeros(T * S * horizon)
    start[: T * S] = types.initial.reshape(-1)
    use = np.zeros((K * (steps + 1), columns))
    limit = np.zeros(K * (steps + 1))
    values = np.zeros((T, columns))
    values[:, -1] = 1
    spend = (counts[:, None, None, None] * types.usage).reshape(pairs, K).T
    for step in range(horizon):
        at = slice(step * pairs, (step + 1) * pairs)
        flow[step * T * S : (step + 1) * T * S, at] = leave
        if step + 1 < horizon:
            flow[(step + 1) * T * S : (step + 2) * T * S, at] = -arrive
        row = slice(K * min(step, steps), K * (min(step, steps) + 1))
        use[row, at] += factor**step * spend
        limit[row] += factor**step * problem.budget
        for t in range(T):
            own = np.zeros((T, S, A))
            own[t] = types.rewards[t]
            values[t, at] -= factor**step * own.reshape(-1)
    gains = np.zeros(columns)
    gains[-1] = -1
    bounds = [(0, None)] * (columns - 1) + [(None, None)]
    found = linprog(gains, np.vstack([use, values]), np.append(limit, np.zeros(T)), flow, start, bounds=bounds)
    return -found.fun


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_program_written_out_step_by_step_has_the_same_optimum(steps):
    problem = fleet(discount=0.6)
    found = solve_opening(problem, "maximin", relax(problem, "maximin"), 1e-9, openings=(steps,))
    assert found.upper_bound == pytest.approx(whole_program(problem, steps, 40), rel=1e-6)
    assert found.welfare == pytest.approx(found.upper_bound, rel=1e-6)
    assert found.prices.shape == (steps + 1, 2) and found.by_step


WELFARES = ["utilitarian", "gini:2", "maximin", "leximin", "alpha:1", "alpha:2", SoftMinimum(0.5)]


@pytest.mark.parametrize("welfare", WELFARES, ids=lambda welfare: getattr(welfare, "name", welfare))
@pytest.mark.parametrize("over", ["arms", "groups"])
def test_the_bound_lies_between_the_optimum_and_that_of_the_plain_relaxation(welfare, over):
    problem = positive(fleet((1, 1), (3, 3)), groups=["a", "b"], over=over)
    best, plain = eh.solve(problem, welfare).welfare, relax(problem, welfare).upper_bound
    bound = tightest(problem, welfare).upper_bound
    assert best <= bound * (1 + 1e-7)
    assert bound < plain - 0.2 * (plain - best)


@given(st.integers(0, 2**32 - 1))
def test_no_policy_is_better_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    usage = [[0, 0], [1, 0], [1, 2]]
    arms = [random_arm(int(rng.integers(2**31)), int(rng.integers(2, 4)), usage, sparse=True) for _ in range(2)]
    problem = CoupledMDP(arms, [1, int(rng.integers(1, 3))], float(rng.uniform(0, 0.95)), counts=[2, 1])
    welfare = ["utilitarian", "gini:1.5", "maximin", "alpha:2"][int(rng.integers(4))]
    best, plain = eh.solve(problem, welfare, "joint"), relax(problem, welfare)
    opening = solve_opening(problem, welfare, plain, 1e-7)
    size = abs(plain.upper_bound)
    assert best.welfare - 1e-6 * size <= opening.upper_bound <= plain.upper_bound + 1e-4 * size


@pytest.mark.parametrize("welfare", ["gini:2", "maximin", "leximin", "alpha:2"])
def test_many_members_are_bounded_at_the_weights_of_the_plain_relaxation(welfare):
    """As if the rows of ranks, or the programs one after the other, were too large."""
    problem = positive(fleet((2, 2)))
    plain = relax(problem, welfare)
    whole = solve_opening(problem, welfare, plain).upper_bound
    none = ProgramSizes(rank_rows_by_step=0, stages_by_step=0, columns_of_cuts=0, rank_rows_of_opening=0)
    weighted = solve_opening(problem, welfare, plain, sizes=none).upper_bound
    assert whole * (1 - 1e-6) <= weighted <= plain.upper_bound - 0.2 * (plain.upper_bound - whole)
    assert eh.solve(problem, welfare).welfare <= weighted * (1 + 1e-7)


def test_a_welfare_of_a_users_own_takes_the_steps_that_fit():
    problem, welfare = positive(fleet((1, 1), (3, 3))), SoftMinimum(0.5)
    plain = relax(problem, welfare)
    found = solve_opening(problem, welfare, plain, sizes=ProgramSizes(columns_by_step=5 * 18))
    assert len(found.prices) == 5 and found.upper_bound < plain.upper_bound


def test_floors_hold_in_the_opening_too():
    problem = fleet((1, 2))
    floored = CoupledMDP(problem.arms, problem.budget, 0.9, counts=problem.counts, floors=[0.3, 0.0])
    plain = relax(floored, "maximin")
    found = solve_opening(floored, "maximin", plain)
    assert found.served[0] >= 0.3 - 1e-6
    assert eh.solve(floored, "maximin").welfare <= found.upper_bound * (1 + 1e-7)
    assert found.upper_bound <= plain.upper_bound * (1 + 1e-6)


def test_it_is_for_discounted_problems_of_a_size_that_fits():
    problem = fleet()
    plain = relax(problem, "maximin")
    for criterion in ("average", "finite:5"):
        other = problem.with_criterion(criterion)
        assert solve_opening(other, "maximin", relax(other, "maximin")) is None
    assert solve_opening(problem, "maximin", plain, sizes=ProgramSizes(columns_by_step=30)) is None


def test_what_does_not_end_leaves_the_plain_bound(monkeypatch):
    from evenhand.planning import relaxation as relaxed

    def fail(*_):
        raise NotConvergedError("not today")

    problem = fleet()
    plain = relax(problem, "gini:3")
    monkeypatch.setattr(relaxed, "solve_opening", fail)
    assert tightest(problem, "gini:3", plain).upper_bound == plain.upper_bound


@pytest.mark.slow
def test_plans_and_comparisons_show_the_tighter_bound(effort):
    effort(optimum_states=0)
    problem = fleet((1, 3), (9, 8))
    plain = relax(problem, "gini:2").upper_bound
    assert eh.solve(problem, "gini:2", "fluid", rng=0).upper_bound < plain * (1 - 1e-3)
    shown = eh.compare(problem, ["never-act"], "gini:2", num_episodes=10)
    assert shown.bound_name == "fluid bound" and shown.upper_bound < plain * (1 - 1e-3)


def test_an_opening_weighs_time_as_the_discount_does():
    opening, plain = Opening(0.9, 5), Discounted(0.9)
    assert opening.num_steps == 6 and opening.lasts and not plain.lasts
    weights = opening.time_weights(6)
    np.testing.assert_allclose(weights[:5], plain.time_weights(5))
    assert weights.sum() == pytest.approx(plain.total) == opening.total


def test_action_values_by_steps_are_those_of_the_discounted_arm_where_prices_do_not_change():
    problem = fleet()
    ones, prices = np.ones(2), np.array([0.3, 0.2])
    plain = action_values(problem.types, ones, prices, problem.criterion)
    by_step = action_values(problem.types, ones, np.tile(prices, (4, 1)), Opening(0.9, 3))
    np.testing.assert_allclose(by_step, np.repeat(plain[:, None], 4, axis=1), rtol=1e-9)
    dear = np.vstack([prices, 50 + prices, prices, prices])  # nobody acts at the second step, and all know it before
    changed = action_values(problem.types, ones, dear, Opening(0.9, 3))
    np.testing.assert_allclose(changed[:, 2:], by_step[:, 2:], rtol=1e-9)
    assert (changed[:, 0] < by_step[:, 0] - 1e-3).any() and (changed[:, 1].argmax(axis=-1) == 0).all()


def test_many_arms_of_a_finite_horizon_are_bounded_step_by_step():
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=120).with_criterion("finite:20")
    plain, found = relax(problem, "utilitarian"), tightest(problem, "utilitarian")
    assert not plain.by_step
    assert found.by_step
    sizes = ProgramSizes(columns_by_step=10**6)
    by_program = solve_model(model_of(problem), "utilitarian", sizes=sizes)
    assert found.upper_bound == pytest.approx(by_program.upper_bound, rel=1e-6)
    assert found.upper_bound < plain.upper_bound * 0.9999
