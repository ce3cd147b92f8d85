"""Repeated programs by the dual simplex method: optima of SciPy, in any order, with little or much memory."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from evenhand.errors import InfeasibleError
from evenhand.solvers import highs
from evenhand.solvers.highs import LinearProgram, RepeatedProgram

STATES, ACTIONS, STEPS = 4, 2, 5


def flow_program(rng: np.random.Generator, spends_all: bool) -> LinearProgram:
    """A few steps of arms with random moves, and a budget of 30 at each step."""
    moves = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS)).reshape(-1, STATES)
    leave = np.repeat(np.eye(STATES), ACTIONS, axis=1)
    steps = np.eye(STEPS)
    flow = np.kron(steps, leave) - np.kron(np.eye(STEPS, k=-1), moves.T)
    use = np.kron(steps, np.tile([0.0, 1.0], STATES)[None])
    limits = np.full(STEPS, 30.0)
    zeros = np.zeros(len(flow))
    return LinearProgram(
        rng.random(flow.shape[1]),
        sparse.csr_array(np.vstack([flow, use])),
        np.concatenate([zeros, limits if spends_all else np.full(STEPS, -np.inf)]),
        np.concatenate([zeros, limits]),
    )


def best_of(program: LinearProgram, right: np.ndarray) -> float:
    rows, lower, upper = program.matrix.toarray(), np.array(program.row_lower), np.array(program.row_upper)
    lower[: len(right)] = upper[: len(right)] = right
    equal = lower == upper
    found = linprog(-program.gains, rows[~equal], upper[~equal], rows[equal], upper[equal])
    return -float(found.fun)


@pytest.mark.parametrize("memory", [1e8, 1.0], ids=["all pivots stored", "none stored"])
@pytest.mark.parametrize("spends_all", [False, True])
def test_optima_are_those_of_scipy_and_depend_on_the_right_hand_side_alone(monkeypatch, spends_all, memory):
    monkeypatch.setattr(highs, "MOST_REMEMBERED", memory)
    rng = np.random.default_rng(3)
    program = flow_program(rng, spends_all)
    starts = rng.multinomial(100, np.full(STATES, 1 / STATES), size=40).astype(float)
    starts[::4] = rng.multinomial(100, [0.9, 0.1, 0.0, 0.0], size=10)
    repeated, backwards = RepeatedProgram(program, starts[0]), RepeatedProgram(program, starts[0])
    found = [repeated.solve(start) for start in starts]
    again = [backwards.solve(start) for start in starts[::-1]][::-1]
    assert np.array_equal(found, again)
    assert (np.array(found) >= -1e-7).all()
    values = np.array(found) @ program.gains
    assert values == pytest.approx([best_of(program, start) for start in starts], rel=1e-9)
    assert (repeated._root[-1].stored[0] > 1) == (memory > 1)


def test_contradictory_constraints_are_refused():
    program = flow_program(np.random.default_rng(0), spends_all=True)
    repeated = RepeatedProgram(program, np.full(STATES, 25.0))
    with pytest.raises(InfeasibleError):
        repeated.solve(np.array([5.0, 5.0, 5.0, 5.0]))
