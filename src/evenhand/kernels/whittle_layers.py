"""Whittle indices of two-action arms by time to go: backward induction for all charges at once.

With tau steps to go and a charge c for each active step of the rest,

    advantage_tau(s, c) = r(s, 1) - r(s, 0) - c + gamma sum_s' (P_1 - P_0)(s, s') V_{tau-1}(s', c)
    V_tau(s, c)         = r(s, 0) + gamma sum_s' P_0(s, s') V_{tau-1}(s', c) + max(advantage_tau(s, c), 0),    V_0 = 0.

V_tau is piecewise linear in c, and all its kinks are zeros of advantages of tau or fewer steps to go. So a layer is
known from its values at the K charges where kinks are: one product with P_0 and P_1 - P_0, then the zeros between
neighbouring charges become charges too. To the left of all kinks all states are active, to the right none: there all
states have the same slope and advantages fall by 1. P_1 - P_0 does not see constants, so values are stored relative to
their mean over states: they stay as small as the arm forgets where it was, however long the horizon.

The index of a state with tau steps to go is the least charge at which its advantage is not positive. The arm is
indexable if and only if no advantage_tau(s, .) is positive beyond a charge at which it was not: seen at all kinks, it
is seen everywhere.

Complexity. An indexable arm has one zero a state and layer, so K <= tau S: O(T^2 S^3) for T layers in place of the
O(T^3 S^3) of the unrolled arm. Zeros that rounding does not tell from a known charge are left out; once the indices
have converged in tau no charge is added, and a layer costs O(K S^2).

Accuracy. A layer multiplies errors by gamma at most: max and averages over next states are not expansive. With `size`
the largest number of a layer and eps the spacing of doubles at 1, it adds less than (4 S + 20) eps size to that of
V_tau: three products of S terms, a mean, and 4 eps size for zeros that were left out. An advantage has at most twice
the error of the values, e, which moves an index by e / b, where b is the slope of the advantage at the index. `errors`
has e relative to the largest size; advantages below e, or below TIE size, count as 0.

A layer is a table with one row per charge: the charge, the advantage of each state, and the idle value of each state.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import in_parts, njit
from evenhand.kernels.whittle_pivots import TIE
from evenhand.typing import Bools, Floats, Indices, Ints

EPSILON = float(np.finfo(np.float64).eps)
"""The spacing of doubles at 1."""

BLUR = 4 * EPSILON
"""Advantages below this, relative to the size of the layer, give no new charge."""


class Layers(NamedTuple):
    """Results per arm."""

    indices: Floats
    """(arm, step, state) least charge at which passive is optimal; the last step has one step to go."""

    regained: Indices
    """(arm, 2) the step and state, nearest to the end, in which active became strictly better again; else -1."""

    witnesses: Floats
    """(arm, 2) charges at which this state was best passive, and later strictly best active."""

    errors: Floats
    """(arm,) bound on the error of an advantage, relative to the largest number met."""

    crowded: Bools
    """(arm,) whether there were more charges than room."""

    @classmethod
    def empty(cls, num_arms: int, num_steps: int, num_states: int) -> "Layers":
        """Nothing found yet."""
        return cls(
            indices=np.full((num_arms, num_steps, num_states), np.nan),
            regained=np.full((num_arms, 2), -1, dtype=np.int32),
            witnesses=np.full((num_arms, 2), np.nan),
            errors=np.zeros(num_arms),
            crowded=np.zeros(num_arms, dtype=np.bool_),
        )


# -- layers -----------------------------------------------------------------------------------------------------------


def index_layers(tables: tuple[Floats, Floats, Ints], factor: float, num_steps: int, room: int) -> Layers:
    """The indices of every arm at every step.

    Args:
        tables: (arm, state, action, next_state) transitions, passive first; (arm, state, action) rewards; and (arm,)
            numbers of real states.
        factor: weight of the next step, gamma.
        num_steps: number of steps.
        room: most charges per state and step.
    """
    found = Layers.empty(len(tables[1]), num_steps, tables[1].shape[1])
    work = float(num_steps**2 * (tables[2].astype(np.float64) ** 3).sum())
    in_parts(_walk, work, tables, float(factor), num_steps, room, found)
    return found


@njit
def _walk(part, parts, tables, factor, num_steps, room, found):
    for arm in range(part, len(tables[2]), parts):
        n = tables[2][arm]
        transitions, rewards = tables[0][arm], tables[1][arm]
        high, low, base, gain = -np.inf, np.inf, 0.0, 0.0
        for s in range(n):
            high, low = max(high, rewards[s, 0], rewards[s, 1]), min(low, rewards[s, 0], rewards[s, 1])
            base += rewards[s, 0] / n
            gain += (rewards[s, 1] - rewards[s, 0]) / n
        # V_0 = 0 has no kinks: any one charge will do.
        charges, values = np.full(1, gain), np.zeros((1, n))
        error, largest = 0.0, 0.0
        for step in range(num_steps - 1, -1, -1):
            layer = np.empty((len(charges), 1 + 2 * n))
            for k in range(len(charges)):
                layer[k, 0] = charges[k]
                for s in range(n):
                    passive, active = 0.0, 0.0
                    for j in range(n):
                        passive += transitions[s, 0, j] * values[k, j]
                        active += transitions[s, 1, j] * values[k, j]
                    layer[k, 1 + s] = rewards[s, 1] - rewards[s, 0] - charges[k] + factor * (active - passive)
                    layer[k, 1 + n + s] = rewards[s, 0] - base + factor * passive
            layer = _reach_out(layer)
            # The size of the layer, and the bound on rounding of the file's head; twice, since an advantage is a
            # difference of values.
            size = max(high - low, abs(layer[0, 0]), abs(layer[-1, 0]))
            for k in range(len(values)):
                for s in range(n):
                    size = max(size, abs(values[k, s]))
            error, largest = factor * error + (4 * n + 20) * EPSILON * size, max(largest, size)
            _read_off(arm, step, layer, max(TIE * size, 2 * error), found)
            layer = _add_zeros(layer, BLUR * size)
            if len(layer) > room * n * num_steps:
                found.crowded[arm] = True
                break
            # V = idle + max(advantage, 0), relative to its mean over states; exact, since all kinks are among the rows.
            charges, values = layer[:, 0].copy(), np.empty((len(layer), n))
            for k in range(len(layer)):
                total = 0.0
                for s in range(n):
                    values[k, s] = layer[k, 1 + n + s] + max(layer[k, 1 + s], 0.0)
                    total += values[k, s]
                for s in range(n):
                    values[k, s] -= total / n
        found.errors[arm] = 2 * error / largest if largest > 0 else 0.0


@njit
def _reach_out(layer):
    """The layer with a row more at each end, if necessary, beyond which no advantage changes its sign."""
    n, rows = layer.shape[1] // 2, len(layer)
    # Beyond the ends all advantages fall by 1 per unit of charge, so this is how far the last sign change is.
    down, up = 0.0, 0.0
    for s in range(1, n + 1):
        down, up = max(down, -layer[0, s]), max(up, layer[rows - 1, s])
    first, total = int(down > 0), rows + int(down > 0) + int(up > 0)
    wide = np.empty((total, layer.shape[1]))
    for row in range(total):
        source = min(max(row - first, 0), rows - 1)
        shift = -down if row < first else up if row - first == rows else 0.0
        for i in range(layer.shape[1]):
            wide[row, i] = layer[source, i] + (shift if i == 0 else -shift if i <= n else 0.0)
    return wide


# -- indices ----------------------------------------------------------------------------------------------------------


@njit
def _read_off(arm, step, layer, tie, found):
    """Indices of a layer, and whether some state regains."""
    indices, regained, witness = found.indices[arm, step], found.regained[arm], found.witnesses[arm]
    for s in range(layer.shape[1] // 2):
        k, tied = _first_zero(layer, 1 + s, tie)
        _, zero = _first_zero(layer, 1 + s, 0.0)
        # A range of ties begins where the advantage is as good as 0; but for rounding alone 0 itself is more exact.
        indices[s] = zero if zero - tied <= 4 * tie else tied
        if regained[1] >= 0:
            continue
        # A state that regains is reported once, the first of the step nearest to the end.
        for later in range(k + 1, len(layer)):
            if layer[later, 1 + s] > 2 * tie:
                regained[0], regained[1] = step, s
                witness[0], witness[1] = indices[s], layer[later, 0]
                break


@njit
def _first_zero(layer, column, tie):
    """The first row with an advantage of at most `tie`, and the charge at which 0 is reached before it."""
    k = 0
    while k < len(layer) - 1 and layer[k, column] > tie:
        k += 1
    if k == 0 or layer[k - 1, column] <= layer[k, column]:
        return k, layer[k, 0]
    share = layer[k - 1, column] / (layer[k - 1, column] - layer[k, column])
    return k, layer[k - 1, 0] + min(max(share, 0.0), 1.0) * (layer[k, 0] - layer[k - 1, 0])


# -- zeros ------------------------------------------------------------------------------------------------------------


@njit
def _add_zeros(layer, blur):
    """The layer with a row more at each zero of an advantage; all is linear between rows."""
    rows, n = len(layer), layer.shape[1] // 2
    # Count first: once the indices have converged there are no new charges.
    number = 0
    for i in range(rows - 1):
        for s in range(1, n + 1):
            number += _crosses(layer[i, s], layer[i + 1, s], blur)
    if number == 0:
        return layer
    wide, shares, filled = np.empty((rows + number, layer.shape[1])), np.empty(n + 1), 0
    for i in range(rows):
        for j in range(layer.shape[1]):
            wide[filled, j] = layer[i, j]
        filled += 1
        if i == rows - 1:
            break
        for s in range(1, n + 1):
            left, right = layer[i, s], layer[i + 1, s]
            shares[s] = left / (left - right) if _crosses(left, right, blur) else np.inf
        before = 0.0
        while True:
            # The first zero that is not treated yet; of equals the first state.
            s = 1
            for other in range(2, n + 1):
                s = other if shares[other] < shares[s] else s
            share = shares[s]
            if share == np.inf:
                break
            shares[s] = np.inf
            zero = layer[i, 0] + share * (layer[i + 1, 0] - layer[i, 0])
            # An advantage that is mere rounding at the charge before: that charge is the zero already.
            there = layer[i, s] + before * (layer[i + 1, s] - layer[i, s])
            if abs(there) > blur and wide[filled - 1, 0] < zero < layer[i + 1, 0]:
                for j in range(layer.shape[1]):
                    wide[filled, j] = layer[i, j] + share * (layer[i + 1, j] - layer[i, j])
                wide[filled, s] = 0.0
                before, filled = share, filled + 1
    return wide[:filled]


@njit
def _crosses(left, right, blur):
    """True if an advantage passes through 0 by more than rounding."""
    return (left > blur and right < -blur) or (left < -blur and right > blur)
