"""Maximum likelihood of whole logs: `fit` against a direct search by scipy, over likelihoods from their definitions.

Nothing here knows of EM, powers by halves, sweeps back or expected jumps: paths of arms are simulated, rows are left
out or irregular, and the likelihood of every pair of rows is a product of matrices, or a matrix exponential.
"""

from collections import Counter

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize

from tests.fitting.flat import fit

COLUMNS = {"arm": "arm", "time": "time", "state": "state", "action": "action"}
ACTIONS = ("no", "do")


def with_gaps(rng, carry):
    """Rows of arms of which four in ten are missing, and moves (state, action, steps, next state)."""
    truth = np.array([[[0.75, 0.25], [0.1, 0.9]], [[0.9, 0.1], [0.6, 0.4]]])  # (action, state, next_state)
    rows, moves = [], Counter()
    for arm in range(25):
        state, action, last = 0, 0, None
        for time in range(30):
            if time == 0 or rng.random() < 0.6:
                action = int(rng.random() < 0.4)
                if last is not None:
                    moves[*last[1:], time - last[0], state] += 1
                last = time, state, action
                rows.append({"arm": arm, "time": time, "state": "AB"[state], "action": ACTIONS[action]})
            elif not carry:
                action = 0
            state = int(rng.random() < truth[action, state, 1])
    return rows, moves


@pytest.mark.parametrize("carry", [False, True])
def test_missed_steps(carry):
    rows, moves = with_gaps(np.random.default_rng(3), carry)
    fitted = fit(rows, **COLUMNS, idle="no", prior=0, carry_action=carry)

    def transitions(logits):
        leave = 1 / (1 + np.exp(-logits.reshape(2, 2)))  # (action, state) to come to B
        return np.stack([1 - leave, leave], axis=-1)

    def loss(logits):
        p, total = transitions(logits), 0.0
        for (state, action, steps, after), number in moves.items():
            missed = np.linalg.matrix_power(p[action if carry else 0], steps - 1)
            total -= number * np.log((p[action] @ missed)[state, after])
        return total

    found = minimize(loss, np.zeros(4), tol=1e-10)
    direct = transitions(found.x).transpose(1, 0, 2)
    np.testing.assert_allclose(fitted.posterior.mean[0], direct, atol=1e-4)
    assert fitted.log_likelihood == pytest.approx(-found.fun, abs=1e-5)


STEP = 4.0
RATES = np.array([[0.1, 0.02, 0.03, 0.1], [0.05, 0.01, 0.3, 0.02]])
"""(action, jump) well to ill and to dead, ill to well and to dead."""


def generators(rates):
    """(action, state, state)."""
    q = np.zeros((2, 3, 3))
    q[:, [0, 0, 1, 1], [1, 2, 0, 2]] = rates
    return q - np.einsum("aij,ik->aik", q, np.eye(3))


def until(rng, q, state, begin, end):
    """Where an arm is at the end, or dead at the time of its death; rates are constant."""
    while state != 2:
        begin += rng.exponential(-1 / q[state, state])
        if begin >= end:
            return state, end
        state = int(rng.choice(3, p=np.maximum(q[state], 0) / -q[state, state]))
    return state, begin


def visits(rng):
    """Rows at irregular times, deaths at their own, and moves (state, action, time, next state)."""
    q, rows, moves = generators(RATES), [], []
    for arm in range(60):
        time, state = 0.0, int(rng.integers(2))
        while state != 2 and time < 60:
            action = int(rng.random() < 0.4)
            rows.append({"arm": arm, "time": time, "state": "abd"[state], "action": ACTIONS[action]})
            pause = rng.integers(2, 20) / 2
            after, end = until(rng, q[action], state, 0.0, min(pause, STEP))
            if after != 2 and end < pause:
                after, end = until(rng, q[0], after, end, pause)
            moves.append((state, action, end, after))
            time, state = time + end, after
        rows.append({"arm": arm, "time": time, "state": "abd"[state], "action": "no"})
    return rows, moves


@pytest.mark.slow
def test_irregular_times_with_exact_deaths():
    """An action acts for a step, then arms are idle; a death has the density of dying then, not a chance to be dead."""
    rows, moves = visits(np.random.default_rng(5))
    fitted = fit(rows, **COLUMNS, idle="no", prior=0, step=STEP, exact="d", absorbing="d", states="a,b,d")

    def loss(logs):
        q, total = generators(np.exp(logs).reshape(2, 4)), 0.0
        first = [expm(own * STEP) for own in q]
        kept = {}
        for state, action, time, after in moves:
            if (action, time) not in kept:
                late = time > STEP
                kept[action, time] = first[action] @ expm(q[0] * (time - STEP)) if late else expm(q[action] * time)
            there = kept[action, time][state]
            dying = q[0 if time > STEP else action][:2, 2]
            total -= np.log(there[:2] @ dying if after == 2 else there[after])
        return total

    found = minimize(loss, np.log(RATES).ravel(), method="L-BFGS-B", options={"ftol": 1e-13, "gtol": 1e-7})
    direct = np.stack([expm(q * STEP) for q in generators(np.exp(found.x).reshape(2, 4))], axis=1)
    np.testing.assert_allclose(fitted.posterior.mean[0], direct, atol=1e-4)
    assert fitted.log_likelihood == pytest.approx(-found.fun, abs=1e-4)


# Exact states that can be left

LEAVING = np.array([[[0, 0.15, 0.1], [0.2, 0, 0.1], [0.1, 0.3, 0]], [[0, 0.05, 0.2], [0.4, 0, 0.1], [0.5, 0.1, 0]]])
"""(action, state, next_state) rates."""


def entries_and_visits(rng, exact):
    """Rows at irregular times and at every entry into an exact state, and moves (state, action, time, next state)."""
    rows, moves = [], []
    for arm in range(12):
        time, state = 0.0, int(rng.integers(3))
        while time < 40:
            action, visit, now, after = int(rng.random() < 0.4), rng.uniform(1, 10), 0.0, state
            rows.append({"arm": arm, "time": time, "state": "abc"[state], "action": ACTIONS[action]})
            while now < visit:
                rates, limit = (LEAVING[action], min(STEP, visit)) if now < STEP else (LEAVING[0], visit)
                jump = now + rng.exponential(1 / rates[after].sum())
                now = min(jump, limit)
                if jump < limit:
                    after = int(rng.choice(3, p=rates[after] / rates[after].sum()))
                    if after in exact:
                        break
            moves.append((state, action, now, after))
            time, state = time + now, after
        rows.append({"arm": arm, "time": time, "state": "abc"[state], "action": "no"})
    return rows, moves


@pytest.mark.parametrize("exact", [(2,), (0, 2), (0, 1, 2)])
def test_exact_states_that_can_be_left(exact):
    """No path between two rows enters an exact state: its entries would be rows."""
    rows, moves = entries_and_visits(np.random.default_rng(6), exact)
    names = ["abc"[state] for state in exact]
    fitted = fit(rows, **COLUMNS, idle="no", prior=0, step=STEP, exact=names, states="a,b,c")
    state, action, time, after = (np.array(column) for column in zip(*moves, strict=True))
    entered = np.isin(after, exact) & (after != state)
    jumps = ~np.eye(3, dtype=bool)
    place = np.arange(len(time))

    def loss(logs):
        q = np.zeros((2, 3, 3))
        q[:, jumps] = np.exp(logs).reshape(2, -1)
        between = q - np.einsum("aij,ik->aik", q, np.eye(3))
        for end in exact:
            between[:, np.arange(3) != end, end] = 0.0
        first = expm(between[action] * np.minimum(time, STEP)[:, None, None])
        there = (first @ expm(between[0] * np.maximum(time - STEP, 0.0)[:, None, None]))[place, state]
        into = q[np.where(time > STEP, 0, action), :, after]
        return -np.log(np.where(entered, (there * into).sum(axis=1), there[place, after])).sum()

    found = minimize(loss, np.log(LEAVING[:, jumps]).ravel(), method="L-BFGS-B", options={"ftol": 1e-13, "gtol": 1e-7})
    q = np.zeros((2, 3, 3))
    q[:, jumps] = np.exp(found.x).reshape(2, -1)
    direct = np.stack([expm(STEP * (own - np.diag(own.sum(axis=1)))) for own in q], axis=1)
    np.testing.assert_allclose(fitted.posterior.mean[0], direct, atol=2e-4)
    assert fitted.log_likelihood == pytest.approx(-found.fun, abs=1e-4)
