"""Compiled kernels for Whittle indices by time to go: the mathematics and the NumPy twin are in `whittle_layers`.

A layer is a table over charges: the charge, and the advantage and the idle value of each state.
"""

import numpy as np

from evenhand.kernels.compiled_fluid import in_parallel
from evenhand.kernels.jit import njit
from evenhand.kernels.whittle_layers import BLUR, EPSILON, Layers
from evenhand.kernels.whittle_pivots import CROWDED, DONE, TIE
from evenhand.typing import Floats, Ints


def index_layers(
    transitions: Floats, rewards: Floats, num_states: Ints, factor: float, num_steps: int, room: int, found: Layers
) -> None:
    """The indices of every arm at every step (whittle_layers.index_layers) into `found`."""
    given = (transitions, rewards, num_states, float(factor), num_steps, room)
    in_parallel(_walk_some, len(num_states), (*given, *found))


# -- layers -----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _walk_some(
    task,
    tasks,
    transitions,
    rewards,
    num_states,
    factor,
    num_steps,
    room,
    indices,
    regained,
    witnesses,
    errors,
    status,
):
    for arm in range(task, len(num_states), tasks):
        n = num_states[arm]
        errors[arm], status[arm] = _walk(
            transitions[arm, :n, :, :n],
            rewards[arm, :n],
            factor,
            num_steps,
            room,
            indices[arm, :, :n],
            regained[arm],
            witnesses[arm],
        )


@njit(cache=True)
def _walk(transitions, rewards, factor, num_steps, room, indices, regained, witness):
    n = len(rewards)
    spread, base = rewards.max() - rewards.min(), rewards[:, 0].mean()
    charges, values = np.empty(1), np.zeros((1, n))
    charges[0] = (rewards[:, 1] - rewards[:, 0]).mean()
    error, largest = 0.0, 0.0
    for step in range(num_steps - 1, -1, -1):
        # One layer, as in `whittle_layers._walk`: products, ends, indices, zeros, values.
        table = _layer(transitions, rewards, base, factor, charges, values)
        charges, advantages, idle = _reach_out(charges, table[0], table[1])
        size = _largest(spread, values, charges)
        error, largest = factor * error + (4 * n + 20) * EPSILON * size, max(largest, size)
        _read_off(step, charges, advantages, max(TIE * size, 2 * error), indices[step], regained, witness)
        charges, advantages, idle = _add_zeros(charges, advantages, idle, BLUR * size)
        if len(charges) > room * n * num_steps:
            return 0.0, CROWDED
        values = _best(advantages, idle)
    return (2 * error / largest if largest > 0 else 0.0), DONE


@njit(cache=True)
def _layer(transitions, rewards, base, factor, charges, values):
    """(2, charge, state) advantages and idle values, one step further from the end."""
    n = len(rewards)
    table = np.empty((2, len(charges), n))
    for k in range(len(charges)):
        for s in range(n):
            passive, active = 0.0, 0.0
            for j in range(n):
                passive += transitions[s, 0, j] * values[k, j]
                active += transitions[s, 1, j] * values[k, j]
            table[0, k, s] = rewards[s, 1] - rewards[s, 0] - charges[k] + factor * (active - passive)
            table[1, k, s] = rewards[s, 0] - base + factor * passive
    return table


@njit(cache=True)
def _best(advantages, idle):
    """Values relative to their mean over states."""
    values = np.empty(idle.shape)
    for k in range(len(values)):
        total = 0.0
        for s in range(values.shape[1]):
            values[k, s] = idle[k, s] + max(advantages[k, s], 0.0)
            total += values[k, s]
        for s in range(values.shape[1]):
            values[k, s] -= total / values.shape[1]
    return values


@njit(cache=True)
def _largest(spread, values, charges):
    """The size of a layer."""
    size = max(spread, abs(charges[0]), abs(charges[-1]))
    for k in range(values.shape[0]):
        for s in range(values.shape[1]):
            size = max(size, abs(values[k, s]))
    return size


# -- charges ----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _put(table, row, charges, advantages, idle, low, share):
    """Write what lies at a share of the way from one row to the next; share 0 for the row itself."""
    high = low + 1 if share > 0 else low
    table[0][row] = charges[low] + share * (charges[high] - charges[low])
    for s in range(advantages.shape[1]):
        table[1][row, s] = advantages[low, s] + share * (advantages[high, s] - advantages[low, s])
        table[2][row, s] = idle[low, s] + share * (idle[high, s] - idle[low, s])


@njit(cache=True)
def _move(table, row, by):
    """Shift a row beyond the last kink: advantages fall by 1 there."""
    table[0][row] += by
    for s in range(table[1].shape[1]):
        table[1][row, s] -= by


@njit(cache=True)
def _reach_out(charges, advantages, idle):
    """Charges beyond which no advantage changes its sign (whittle_layers._reach_out)."""
    down, up, k = 0.0, 0.0, len(charges)
    for s in range(advantages.shape[1]):
        down, up = max(down, -advantages[0, s]), max(up, advantages[k - 1, s])
    # A row more at each end that is reached out to; they begin as copies of the last rows.
    first = 1 if down > 0 else 0
    total = first + k + (1 if up > 0 else 0)
    wide = (np.empty(total), np.empty((total, advantages.shape[1])), np.empty((total, advantages.shape[1])))
    for row in range(total):
        _put(wide, row, charges, advantages, idle, min(max(row - first, 0), k - 1), 0.0)
    if down > 0:
        _move(wide, 0, -down)
    if up > 0:
        _move(wide, total - 1, up)
    return wide


# -- indices ----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _read_off(step, charges, advantages, tie, indices, regained, witness):
    """Indices of a layer, and whether some state regains (whittle_layers._read_off)."""
    for s in range(advantages.shape[1]):
        k, tied = _first_zero(charges, advantages[:, s], tie)
        _, zero = _first_zero(charges, advantages[:, s], 0.0)
        indices[s] = zero if zero - tied <= 4 * tie else tied
        if regained[1] >= 0:
            continue
        # A state that regains is reported once, the first of the step nearest to the end.
        for later in range(k + 1, len(charges)):
            if advantages[later, s] > 2 * tie:
                regained[0], regained[1] = step, s
                witness[0], witness[1] = indices[s], charges[later]
                break


@njit(cache=True)
def _first_zero(charges, advantages, tie):
    """The first charge at or below `tie`, and where 0 is reached before it (whittle_layers._first_zeros)."""
    k = 0
    while k < len(charges) - 1 and advantages[k] > tie:
        k += 1
    if k == 0 or advantages[k - 1] <= advantages[k]:
        return k, charges[k]
    share = min(max(advantages[k - 1] / (advantages[k - 1] - advantages[k]), 0.0), 1.0)
    return k, charges[k - 1] + share * (charges[k] - charges[k - 1])


# -- zeros ------------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _add_zeros(charges, advantages, idle, blur):
    """A charge more at each zero of an advantage (whittle_layers._add_zeros)."""
    k, n = advantages.shape
    # Count first: once the indices have converged there are no new charges.
    number = 0
    for i in range(k - 1):
        for s in range(n):
            number += _crosses(advantages[i, s], advantages[i + 1, s], blur)
    if number == 0:
        return charges, advantages, idle
    wide = (np.empty(k + number), np.empty((k + number, n)), np.empty((k + number, n)))
    shares, filled = np.empty(n), 0
    for i in range(k):
        _put(wide, filled, charges, advantages, idle, i, 0.0)
        filled += 1
        if i < k - 1:
            filled = _zeros_between(i, charges, advantages, idle, blur, shares, wide, filled)
    return wide[0][:filled], wide[1][:filled], wide[2][:filled]


@njit(cache=True)
def _zeros_between(i, charges, advantages, idle, blur, shares, wide, filled):
    """Append the zeros of an interval in order, but for those that rounding does not tell from the one before."""
    n = len(shares)
    for s in range(n):
        left, right = advantages[i, s], advantages[i + 1, s]
        shares[s] = left / (left - right) if _crosses(left, right, blur) else np.inf
    before = 0.0
    while True:
        s = 0
        # The first zero that is not treated yet; of equals the first state.
        for other in range(1, n):
            s = other if shares[other] < shares[s] else s
        share = shares[s]
        if share == np.inf:
            return filled
        shares[s] = np.inf
        zero = charges[i] + share * (charges[i + 1] - charges[i])
        # What the advantage is at the charge before it: if only rounding, that charge is the zero already.
        there = advantages[i, s] + before * (advantages[i + 1, s] - advantages[i, s])
        if abs(there) > blur and wide[0][filled - 1] < zero < charges[i + 1]:
            _put(wide, filled, charges, advantages, idle, i, share)
            wide[1][filled, s] = 0.0
            before, filled = share, filled + 1


@njit(cache=True)
def _crosses(left, right, blur):
    """True if an advantage passes through 0 by more than rounding."""
    return (left > blur and right < -blur) or (left < -blur and right > blur)
