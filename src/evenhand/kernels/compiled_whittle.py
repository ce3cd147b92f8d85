"""Compiled kernels for Whittle indices: the mathematics and the NumPy twin are in `whittle_pivots`.

Pivots are collected: after k of them the tableau is X - sum_j column_j row_j, of which only the pivot's row and column
are needed at once. A full block is carried out as one matrix product. With blocks of 1 this is the plain pivot, which
is best for small arms.
"""

import numpy as np

from evenhand.kernels.compiled_fluid import in_parallel
from evenhand.kernels.jit import njit
from evenhand.kernels.threads import ALONE_BELOW
from evenhand.kernels.whittle_pivots import CROWDED, DONE, FIRM, FLAT, PASSIVE, SPLIT, STUCK, TIE, Sweeps, probe
from evenhand.typing import Floats, Ints

BLOCK = 32
"""Pivots carried out together in a large arm."""

LARGE = 64
"""States from which an arm is large: blocks pay, and the linear algebra has threads of its own."""


def sweep_arms(
    transitions: Floats,
    rewards: Floats,
    initial: Floats,
    num_states: Ints,
    factor: float,
    total: float,
    allowed: float,
    met: Sweeps,
) -> None:
    """Sweep every arm (whittle_pivots.sweep_arms) into `met`."""
    # Large arms are swept one after the other: their linear algebra has threads of its own.
    # Nor is little work in all worth threads.
    alone = num_states.max() >= LARGE or (num_states.astype(np.float64) ** 3).sum() < ALONE_BELOW
    given = (transitions, rewards, initial, num_states, float(factor), float(total), float(allowed))
    in_parallel(_sweep_some, 1 if alone else len(num_states), (*given, probe(rewards.shape[1]), *met))


# -- the sweep --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _sweep_some(
    task,
    tasks,
    transitions,
    rewards,
    initial,
    num_states,
    factor,
    total,
    allowed,
    z,
    num_pivots,
    charges,
    switched,
    indices,
    regained,
    witnesses,
    errors,
    status,
):
    for arm in range(task, len(num_states), tasks):
        n = num_states[arm]
        num_pivots[arm], regained[arm], errors[arm], status[arm] = _sweep(
            transitions[arm, :n, :, :n],
            rewards[arm, :n],
            initial[arm, :n],
            factor,
            total,
            allowed,
            z[:n],
            charges[arm],
            switched[arm],
            indices[arm, :n],
            witnesses[arm],
        )


@njit(cache=True)
def _sweep(transitions, rewards, initial, factor, total, allowed, z, charges, switched, seen, witness):
    n = len(initial)
    shift = (rewards.max() + rewards.min()) / 2
    spread = rewards.max() - rewards.min()
    active = np.ones(n, dtype=np.bool_)
    x, a, b = np.empty((n + 1, n)), np.empty(n + 1), np.empty(n + 1)
    _build(transitions, rewards, initial, factor, total, shift, active, x, a, b)
    goal, image = _probed(transitions, factor, z)
    norm = _norm(x)
    # Relative to the largest numbers that rewards and slopes could make in this arm.
    tie, flat = TIE * spread * norm, min(FLAT * norm, 0.01 / total)
    least = PASSIVE * spread * norm
    block = BLOCK if n >= LARGE else 1
    columns, rows = np.empty((block, n + 1)), np.empty((block, n))
    column, row = np.empty(n + 1), np.empty(n)
    held, pivots, left, lost, error, charge, fresh = 0, 0, n, -1, 0.0, -np.inf, True
    while left > 0:
        s, reached = _next_switch(active, a, b, charge, flat)
        if s < 0 or pivots == len(charges):
            return pivots, lost, error, STUCK if s < 0 else CROWDED
        # Of states that meet at one charge, one whose switch does not split the arm.
        if factor == 1:
            s = _first_firm(active, a, b, reached, charge, flat, tie, x, columns, rows, held, s)
        _line_of(x, columns, rows, held, s, column, row)
        # A poor row does not justify a pivot: build afresh, and look again for the next switch.
        if not fresh and _noise(s, rewards, shift, spread, active, row, a, b, goal, image) > allowed:
            _build(transitions, rewards, initial, factor, total, shift, active, x, a, b)
            held, fresh = 0, True
            continue
        charge = reached
        lost, wrong = _look(active, a, b, charge, tie, least, seen, lost, witness)
        if spread > 0:
            error = max(error, wrong / (spread * norm))
        # Tied before and switching now, but for rounding: the pivot's charge is more exact.
        if active[s] and (charge - seen[s]) * b[s] <= tie:
            seen[s] = charge
        charges[pivots], switched[pivots] = charge, s
        if factor == 1 and (1 + column[s] if active[s] else 1 - column[s]) <= FIRM:
            return pivots, lost, error, SPLIT
        # Row s of A becomes that of the other action, so (A z)[s] changes by D z.
        image[s] += goal[s] if active[s] else -goal[s]
        _pivot(s, active, column, row, a, b, columns[held], rows[held])
        held, fresh = held + 1, False
        # A full block is carried out as one matrix product.
        if held == block:
            _carry_out(x, columns, rows)
            held = 0
        left += 1 if active[s] else -1
        pivots += 1
    return pivots, lost, max(error, abs(b[n]) / total), DONE


# -- the tableau ------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _build(transitions, rewards, initial, factor, total, shift, active, x, a, b):
    """The tableau of a policy, afresh (Tableau.rebuild)."""
    n = len(initial)
    system, right = np.empty((n, n)), np.empty((n, n + 1))
    # Transposed: X (A + gamma 1 w') = D is solved for columns.
    for i in range(n):
        chosen = 1 if active[i] else 0
        for j in range(n):
            system[j, i] = factor / n - factor * transitions[i, chosen, j]
            right[j, i] = factor * (transitions[i, 1, j] - transitions[i, 0, j])
        system[i, i] += 1
        right[i, n] = initial[i] + factor * total / n
    if n < LARGE:
        _eliminate(system, right)
        _transpose(right, x)
    else:
        _transpose(np.linalg.solve(system, right), x)
    for i in range(n):
        a[i], b[i] = _dot(rewards, shift, active, x[i])
        a[i] += rewards[i, 1] - rewards[i, 0]
        b[i] += 1
    a[n], b[n] = _dot(rewards, shift, active, x[n])


@njit(cache=True)
def _dot(rewards, shift, active, row):
    """A row of X times the rewards and the activity of the policy."""
    reward, activity = 0.0, 0.0
    for j in range(len(active)):
        if active[j]:
            reward += row[j] * (rewards[j, 1] - shift)
            activity += row[j]
        else:
            reward += row[j] * (rewards[j, 0] - shift)
    return reward, activity


@njit(cache=True)
def _probed(transitions, factor, z):
    """D z, and A z of the policy that is active everywhere."""
    n = len(z)
    goal, image = np.empty(n), np.empty(n)
    for i in range(n):
        passive, active = 0.0, 0.0
        for j in range(n):
            passive += transitions[i, 0, j] * z[j]
            active += transitions[i, 1, j] * z[j]
        goal[i], image[i] = factor * (active - passive), z[i] - factor * active
    return goal, image


@njit(cache=True)
def _noise(s, rewards, shift, spread, active, row, a, b, goal, image):
    """The relative error of a row (Tableau.noise)."""
    reward, activity = _dot(rewards, shift, active, row)
    total, size = -goal[s], 1.0
    for j in range(len(row)):
        total += row[j] * image[j]
        size += abs(row[j])
    error = max(abs(total), abs(1 + activity - b[s]))
    if spread > 0:
        error = max(error, abs(rewards[s, 1] - rewards[s, 0] + reward - a[s]) / spread)
    return error / size


@njit(cache=True)
def _transpose(source, target):
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            target[i, j] = source[j, i]


# -- small linear algebra ---------------------------------------------------------------------------------------------


@njit(cache=True)
def _eliminate(system, right):
    """Solve a small system in place, with row exchanges."""
    n = len(system)
    for k in range(n):
        # With exchanges: the uniform law that is added takes the dominance of the diagonal away.
        best = k
        for i in range(k + 1, n):
            if abs(system[i, k]) > abs(system[best, k]):
                best = i
        if best != k:
            for j in range(k, n):
                system[k, j], system[best, j] = system[best, j], system[k, j]
            for j in range(right.shape[1]):
                right[k, j], right[best, j] = right[best, j], right[k, j]
        for i in range(k + 1, n):
            factor = system[i, k] / system[k, k]
            if factor != 0:
                for j in range(k + 1, n):
                    system[i, j] -= factor * system[k, j]
                for j in range(right.shape[1]):
                    right[i, j] -= factor * right[k, j]
    for k in range(n - 1, -1, -1):
        for i in range(k + 1, n):
            factor = system[k, i]
            for j in range(right.shape[1]):
                right[k, j] -= factor * right[i, j]
        for j in range(right.shape[1]):
            right[k, j] /= system[k, k]


@njit(cache=True)
def _norm(x):
    largest = 0.0
    for i in range(x.shape[1]):
        largest = max(largest, np.abs(x[i]).sum())
    return 1 + largest


# -- which switch -----------------------------------------------------------------------------------------------------


@njit(cache=True)
def _next_switch(active, a, b, charge, flat):
    """The state whose advantage reaches 0 next (whittle_pivots._next_switch)."""
    best, best_charge = -1, np.inf
    for s in range(len(active)):
        if (b[s] if active[s] else -b[s]) > flat:
            reach = max(a[s] / b[s], charge)
            if reach < best_charge:
                best, best_charge = s, reach
    return best, best_charge


@njit(cache=True)
def _first_firm(active, a, b, reached, charge, flat, tie, x, columns, rows, held, first):
    """Of the states that meet at a charge, the first whose switch does not split the arm, else the first."""
    tied = -1
    for s in range(len(active)):
        slope = b[s] if active[s] else -b[s]
        if slope > flat and (max(a[s] / b[s], charge) - reached) * slope <= tie:
            # The diagonal entry as it would be if what is held were carried out.
            diagonal = x[s, s]
            for k in range(held):
                diagonal -= columns[k, s] * rows[k, s]
            if (1 + diagonal if active[s] else 1 - diagonal) > FIRM:
                return s
            tied = s if tied < 0 else tied
    return tied if tied >= 0 else first


@njit(cache=True)
def _look(active, a, b, charge, tie, least, seen, lost, witness):
    """Note where passive is optimal, and where it no longer is (whittle_pivots._look); the worst wrong sign."""
    worst = -np.inf
    for s in range(len(active)):
        advantage = a[s] - charge * b[s]
        worst = max(worst, -advantage if active[s] else advantage)
        if np.isnan(seen[s]):
            if advantage <= least:
                seen[s] = charge
        elif lost < 0 and active[s] and advantage > tie:
            lost = s
            witness[0], witness[1] = seen[s], charge
    return lost, worst


# -- pivots, held and carried out -------------------------------------------------------------------------------------


@njit(cache=True)
def _line_of(x, columns, rows, held, s, column, row):
    """Column and row of a state in the tableau, with what is held back."""
    n = len(row)
    column[:] = x[:, s]
    row[:] = x[s]
    for k in range(held):
        factor = rows[k, s]
        for i in range(n + 1):
            column[i] -= factor * columns[k, i]
        factor = columns[k, s]
        for j in range(n):
            row[j] -= factor * rows[k, j]


@njit(cache=True)
def _pivot(s, active, column, row, a, b, kept_column, kept_row):
    """Switch a state; the change of X is stored for later (Tableau.switch)."""
    sign = 1.0 if active[s] else -1.0
    pivot = 1 + sign * column[s]
    old_a, old_b = a[s], b[s]
    # Column and row are stored, X stays as it is; a and b are needed at once and updated.
    for i in range(len(column)):
        kept_column[i] = sign * column[i] / pivot
        a[i] -= kept_column[i] * old_a
        b[i] -= kept_column[i] * old_b
    a[s], b[s] = old_a / pivot, old_b / pivot
    kept_row[:] = row
    active[s] = not active[s]


@njit(cache=True)
def _carry_out(x, columns, rows):
    """X less the held columns times the held rows."""
    if len(columns) > 1:
        x -= np.dot(columns.T, rows)
        return
    for i in range(x.shape[0]):
        factor = columns[0, i]
        for j in range(x.shape[1]):
            x[i, j] -= factor * rows[0, j]
