"""What service can do for single arms, against every policy tried one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import Arm, CoupledMDP
from evenhand.solvers import best_values, reached, worth_of_service


def value_of(arm, policy, criterion, discount):
    """The value of one stationary policy from the first states; of the average by the limit of a lazy chain."""
    rows = np.arange(arm.num_states)
    chain, rewards = arm.transitions[rows, policy], arm.rewards[rows, policy]
    if criterion == "discounted":
        return arm.initial @ np.linalg.solve(np.eye(len(rows)) - discount * chain, rewards)
    lazy = (np.eye(len(rows)) + chain) / 2
    for _ in range(40):
        lazy = lazy @ lazy
        lazy /= lazy.sum(axis=1, keepdims=True)
    return arm.initial @ lazy @ rewards


def in_time(arm, allowed, steps, discount):
    """The best value over some steps, by trying every action at every step."""

    def best(state, left):
        if left == 0:
            return 0.0
        return max(
            arm.rewards[state, a]
            + discount * sum(p * best(j, left - 1) for j, p in enumerate(arm.transitions[state, a]) if p > 0)
            for a in np.flatnonzero(allowed[state])
        )

    return sum(p * best(s, steps) for s, p in enumerate(arm.initial) if p > 0)


def brute(arm, allowed, criterion, discount):
    if criterion.startswith("finite"):
        return in_time(arm, allowed, int(criterion[7:]), discount)
    choices = product(*(np.flatnonzero(row) for row in allowed))
    return max(value_of(arm, np.array(policy), criterion, discount) for policy in choices)


@st.composite
def arms(draw):
    """Arms of which some leave states for good, so that long-run means depend on the start."""
    s, a = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    moves = rng.dirichlet(np.full(s, 0.4), size=(s, a))
    if draw(st.booleans()):
        moves = np.round(moves)
        moves = np.where(moves.sum(axis=-1, keepdims=True) == 1, moves, np.eye(s)[0])
    usage = rng.integers(0, 3, size=(s, a, 1)).astype(float)
    usage[:, 0] = 0
    return Arm(moves, rng.integers(0, 4, size=(s, a)), usage, initial=np.eye(s)[draw(st.integers(0, s - 1))])


@given(first=arms(), second=arms(), criterion=st.sampled_from(["discounted", "average", "finite:1", "finite:4"]))
def test_the_worth_of_service_is_that_of_the_best_of_all_policies(first, second, criterion):
    problem = CoupledMDP([first, second], [1], 0.9, criterion=criterion)
    worth = worth_of_service(problem)
    for t, arm in enumerate(problem.types):
        free = (arm.usage <= 1).all(axis=-1)
        idle = (arm.usage == 0).all(axis=-1)
        expected = brute(arm, free, criterion, 0.9) - brute(arm, idle, criterion, 0.9)
        assert worth[t] == pytest.approx(expected, abs=1e-7)


def test_means_that_depend_on_the_start():
    """Two states that are never left: service would help in the other one."""
    stay = [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]
    arm = Arm(stay, [[1, 1], [0, 5]], [[0], [1]], initial=[0.75, 0.25])
    problem = CoupledMDP([arm], [1], 1.0, criterion="average")
    assert worth_of_service(problem) == pytest.approx([0.25 * 5])
    only = Arm(stay, [[1, 1], [0, 5]], [[0], [1]], initial=[1, 0])
    assert worth_of_service(CoupledMDP([only], [1], 1.0, criterion="average")) == pytest.approx([0.0], abs=1e-9)


def test_what_can_be_afforded_and_reached():
    line = [[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 0]] * 3, [[0, 0, 1]] * 3]
    arm = Arm(line, np.zeros((3, 3)), [[0], [1], [2]], initial=[1, 0, 0])
    problem = CoupledMDP([arm], [1], 0.9)
    can = problem.types.valid
    assert can[0].tolist() == [[True, True, False]] * 3
    assert reached(problem.types, can, problem.criterion)[0].tolist() == [True, True, False]
    rich = problem.with_budget([2])
    assert reached(rich.types, rich.types.valid, rich.criterion)[0].tolist() == [True, True, True]
    for steps, last in ((1, [True, False, False]), (2, [True, True, True])):
        short = rich.with_criterion(f"finite:{steps}")
        assert reached(short.types, short.types.valid, short.criterion)[0].tolist() == last


def test_budgets_have_room_for_rounding():
    arm = Arm(np.ones((1, 2, 1)), [[0, 1]], [[0], [0.1 + 0.2]])
    assert CoupledMDP([arm], [0.3], 0.9).types.valid.all()


def test_values_beyond_the_limits_are_nan():
    limits = {"most_steps": 3, "most_programs": 0}
    stay = Arm([[[1, 0]], [[0, 1]]], [[1], [0]], [[0]])
    assert np.isnan(best_values(*_asked(stay, "finite:4"), **limits)).all()
    assert not np.isnan(best_values(*_asked(stay, "finite:3"), **limits)).any()
    assert np.isnan(best_values(*_asked(stay, "average"), **limits)).all()


def _asked(arm, criterion):
    problem = CoupledMDP([arm], [1], 1.0, criterion=criterion)
    return problem.types, problem.types.valid, problem.criterion
