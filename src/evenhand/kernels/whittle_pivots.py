"""Follow the optimal policy of a two-action arm while the charge for being active rises from -inf to +inf.

A policy is the set of its active states. With A = I - gamma P_policy and D = gamma (P_1 - P_0), the advantage of being
active over being passive is, at charge c, linear in c as long as the policy stays:

    advantage(c) = a - c b,       a = r_1 - r_0 + X r_policy,       b = 1 + X 1_active,       X = D A^-1.

The policy is optimal at c if and only if no active state has a negative and no passive state a positive advantage.
All-active is optimal up to the least a (there b = 1), all-passive in the end (there b = 1 too). Between them the policy
is optimal up to the next c at which the advantage of some state reaches 0 from its side; that state s is switched. A
switch is a rank-one change of A, hence a pivot of the tableau [X | a | b], with sign = 1 if s becomes passive, else -1:

    T  <-  T - sign T[:, s] T[s, :] / (1 + sign X[s, s]).

1 + sign X[s, s] is a ratio of determinants of I - gamma P, so it is positive, and b[s] keeps its sign. One more row
m = initial' A^-1 (discounted visits) pivots by the same rule; its last entries m.r_policy and m.1_active are the value
and the use of the policy. Each pivot lowers the use from some state and raises it from none, so no policy comes twice,
also where several states meet at one charge: the sweep ends, after one pivot a state if the arm is indexable. O(S^2) a
pivot, no grid and no bisection (Gast, Gaujal, Khun, "Testing indexability and computing Whittle and Gittins index in
subcubic time", 2023; Nino-Mora, "A fast-pivoting algorithm for Whittle's restless bandit index", 2020).

The optimal advantages are continuous and piecewise linear in c, with kinks only at the charges of pivots. So an arm is
indexable (where passive is optimal it stays so at every higher charge) if and only if no state has advantage <= 0 at
one such charge and > 0 at a later one. The sweep looks at all states at all these charges.

Accuracy. D does not see constants, so X = D (A + gamma 1 w')^-1 for any distribution w; with w uniform, the matrix
stays well conditioned for gamma near 1 unless the arm falls apart. Before each pivot its row is checked, in O(S):
X[s] (A z) = D[s] z for a fixed vector z, and a[s], b[s] against X[s]. A tableau that fails is built afresh. A residual
d = X[s] A - D[s] moves the charge c = a[s] / b[s] by |d|_1 |A^-1 (r_policy - c 1_active)|_inf / b[s] at most.

The average (factor gamma = 1, total 1). With w uniform, I - P + 1 w' is invertible if and only if P has a single closed
class of states, and then X, a and b are the limits of the discounted ones: advantages in terms of the bias. The long
run forgets the start, so m solves m' (I - P + 1 w') = w', the stationary law. 1 + sign X[s, s], a ratio of determinants
still, is 0 if and only if the switch splits the arm into several closed classes: it is above FIRM, or the sweep
ends as SPLIT. Of states that meet at one charge the first is taken whose switch does not split the arm, so that nothing
hangs on the last bit of a charge. Where all-passive splits the arm, the last switch would have b[s] = 1 + X[s, s] = 0,
so it is never made: the sweep is STUCK. Each pivot lowers the mean use or, where the state is visited no more in the
long run, the use on the way there; so again no policy comes twice.

A finite horizon is the arm unrolled in time, with rows of 0 at the last step. D 1 = 0 holds there too, and D A^-1 1 = 0
because all states of one step have equally many steps ahead. So the same formulas hold, with m' (A + gamma 1 w') =
initial' + gamma total w', where total is the weight of all steps: 1/(1 - gamma) without an end.

Pivots are held back: after k of them the tableau is X - sum_j column_j row_j, of which a pivot needs one row and one
column. After BLOCK pivots they are carried out as one matrix product. That, and building tableaus, is done by NumPy for
many arms at once; the loop over pivots is compiled.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import njit
from evenhand.parallel import in_order, single_threaded_blas
from evenhand.typing import Bools, Floats, Indices, Ints

TIE = 1e-12
"""Advantages below this, relative to the largest that rewards could make, count as 0."""

PASSIVE = 1e-14
"""Advantages up to this, on the same scale, are none: so far rounding may have moved an exact tie. It is far below TIE,
for near a discount of 1 true advantages are as small as that, and who still has one is not passive."""

FLAT = 1e-13
"""Slopes b below this, relative to the norm of the tableau, count as 0."""

FIRM = 1e-11
"""Pivots of an average below this count as 0: the switch splits the arm."""

ACCURATE = 1e-11
"""Relative error of a sweep above which it is repeated with a tableau built afresh before nearly every pivot."""

BLOCK = 32
"""Pivots that are carried out together."""

CHUNK = 1 << 16
"""Entries of the tableaus that a thread works on at a time."""

DONE, CROWDED, STUCK, SPLIT, STALE, FULL = range(6)
"""Ends of a sweep: at all-passive; with more pivots than were allowed; without a state to switch; at a switch that
splits the arm into several closed classes (it is noted in `switched`, after the last pivot). STALE: the tableau must be
built afresh. FULL: pivots that are held back must be carried out."""


class Sweeps(NamedTuple):
    """Results of the sweeps, per arm; rows are filled up to `num_pivots`."""

    num_pivots: Ints
    """(arm,)"""

    charges: Floats
    """(arm, pivot) when a state was switched, never falling."""

    switched: Indices
    """(arm, pivot) which one."""

    indices: Floats
    """(arm, state) least charge at which passive was optimal."""

    regained: Indices
    """(arm,) a state that became strictly better off active after passive had been optimal, or -1."""

    witnesses: Floats
    """(arm, 2) charges at which this state was best passive, and later strictly best active."""

    errors: Floats
    """(arm,) how wrong the sign of an advantage was at most, relative to the largest advantage that rewards could make,
    and how far from 0 the use of all-passive came out, relative to all-active."""

    status: Ints
    """(arm,) DONE, CROWDED, STUCK or SPLIT."""

    @classmethod
    def empty(cls, num_arms: int, num_states: int, room: int) -> "Sweeps":
        """No pivots yet, and room for some per arm."""
        return cls(
            num_pivots=np.zeros(num_arms, dtype=np.int64),
            charges=np.full((num_arms, room), np.nan),
            switched=np.full((num_arms, room), -1, dtype=np.int32),
            indices=np.full((num_arms, num_states), np.nan),
            regained=np.full(num_arms, -1, dtype=np.int32),
            witnesses=np.full((num_arms, 2), np.nan),
            errors=np.zeros(num_arms),
            status=np.full(num_arms, DONE, dtype=np.int64),
        )

    def widened(self, room: int) -> "Sweeps":
        """The same with room for more pivots."""
        more = ((0, 0), (0, room - self.charges.shape[1]))
        return self._replace(
            charges=np.pad(self.charges, more, constant_values=np.nan),
            switched=np.pad(self.switched, more, constant_values=-1),
        )


def probe(num_states: int) -> Floats:
    """(state,) the fixed vector z of the row check: well spread, without structure that a tableau could share."""
    return np.asarray(np.arange(1, num_states + 1) * 0.6180339887498949 % 1.0 - 0.5)


class _Arms(NamedTuple):
    """Arms of a chunk."""

    transitions: Floats
    """(arm, state, action, next_state)"""

    rewards: Floats
    """(arm, state, action), relative to the middle of their range: constants change no advantage."""

    initial: Floats
    """(arm, state)"""

    num_states: Ints
    """(arm,)"""

    spread: Floats
    """(arm,) range of the rewards."""

    factor: float
    total: float


class _Tableau(NamedTuple):
    """[X | a | b] over a row for the initial distribution, per arm; and the pivots that are held back."""

    x: Floats
    a: Floats
    b: Floats
    active: Bools
    """(arm, state) the policy."""
    goal: Floats
    """(arm, state) D z."""
    image: Floats
    """(arm, state) A z."""
    norm: Floats
    """(arm,) 1 + the largest row sum of |X| at all-active: the most that rewards can count."""
    fresh: Bools
    """(arm,) whether there was no pivot since the tableau was built."""
    columns: Floats
    """(arm, pivot, state + 1)"""
    rows: Floats
    """(arm, pivot, state)"""


def sweep_arms(
    tables: tuple[Floats, Floats, Floats, Ints],
    factor: float,
    total: float,
    most_pivots: int,
    allowed: tuple[float, ...] = (1e-14, 0.0),
) -> Sweeps:
    """Sweep every arm.

    Args:
        tables: (arm, state, action, next_state) transitions, passive first; (arm, state, action) rewards; (arm, state)
            distributions of the first states, 0 for an average; and (arm,) numbers of real states.
        factor: weight of the next step; 1 only for an average or for arms that end.
        total: weight of all steps.
        most_pivots: pivots per state after which a sweep ends as CROWDED.
        allowed: relative errors of a row above which the tableau is built afresh: at first, and then for arms whose
            sweep was not accurate.
    """
    transitions, rewards, initial, sizes = tables
    num_arms, num_states = rewards.shape[:2]
    real = (np.arange(num_states) < sizes[:, None])[..., None]
    high = np.where(real, rewards, -np.inf).max(axis=(1, 2), initial=-np.inf)
    low = np.where(real, rewards, np.inf).min(axis=(1, 2), initial=np.inf)
    centred, spread = np.where(real, rewards - ((high + low) / 2)[:, None, None], 0.0), high - low
    size = max(1, CHUNK // (num_states * num_states))

    def sweep(start: int) -> Sweeps:
        part = slice(start, start + size)
        given = np.ascontiguousarray(transitions[part]), centred[part], initial[part], sizes[part], spread[part]
        return _sweep_chunk(_Arms(*given, float(factor), float(total)), most_pivots * num_states, allowed)

    with single_threaded_blas():
        found = list(in_order(sweep, range(0, num_arms, size), 1 if num_arms <= size else None))
    room = max((part.charges.shape[1] for part in found), default=0)
    parts = [part.widened(room) for part in found] or [Sweeps.empty(0, num_states, 0)]
    return Sweeps(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _sweep_chunk(arms: _Arms, most_pivots: int, allowed: tuple[float, ...]) -> Sweeps:
    num_arms, num_states = arms.rewards.shape[:2]
    # An indexable arm has one pivot per state, and ties a few more.
    met = Sweeps.empty(num_arms, num_states, min(num_states + 8, most_pivots))
    tableau = _begin(arms)
    chosen = np.arange(num_arms)
    for error in allowed:
        tableau.active[chosen], met.num_pivots[chosen], met.errors[chosen] = True, 0, 0.0
        met.indices[chosen], met.regained[chosen], met.witnesses[chosen] = np.nan, -1, np.nan
        _build(arms, tableau, chosen)
        tableau.norm[chosen] = 1 + np.abs(tableau.x[chosen, :num_states]).sum(axis=2).max(axis=1, initial=0.0)
        ahead = chosen
        while len(ahead):
            _sweep(ahead, arms, tableau, met, error)
            crowded = met.status[ahead] == CROWDED
            room = met.charges.shape[1]
            if crowded.any() and room < most_pivots:
                met = met.widened(min(8 * room, most_pivots))
                met.status[ahead[crowded]] = STALE
            full, stale = (ahead[met.status[ahead] == status] for status in (FULL, STALE))
            tableau.x[full] -= tableau.columns[full].swapaxes(1, 2) @ tableau.rows[full]
            _build(arms, tableau, stale)
            ahead = np.concatenate([full, stale])
        chosen = np.flatnonzero((met.errors > ACCURATE) | (met.status != DONE))
    return met


# -- the tableau ------------------------------------------------------------------------------------------------------


def _begin(arms: _Arms) -> _Tableau:
    """Room for tableaus, and what does not change with the policy."""
    num_arms, n = arms.rewards.shape[:2]
    block = min(BLOCK, n + 8)
    return _Tableau(
        x=np.empty((num_arms, n + 1, n)),
        a=np.empty((num_arms, n + 1)),
        b=np.empty((num_arms, n + 1)),
        active=np.ones((num_arms, n), dtype=np.bool_),
        goal=arms.factor * (arms.transitions[:, :, 1] - arms.transitions[:, :, 0]) @ probe(n),
        image=np.empty((num_arms, n)),
        norm=np.empty(num_arms),
        fresh=np.ones(num_arms, dtype=np.bool_),
        columns=np.zeros((num_arms, block, n + 1)),
        rows=np.zeros((num_arms, block, n)),
    )


def _build(arms: _Arms, tableau: _Tableau, chosen: Ints) -> None:
    """Build the tableaus of some arms from their policies."""
    n, factor = arms.rewards.shape[1], arms.factor
    active = tableau.active[chosen].astype(np.int64)
    transitions, rewards = arms.transitions[chosen], arms.rewards[chosen]
    moves = np.take_along_axis(transitions, active[:, :, None, None], axis=2)[:, :, 0]
    paid = np.take_along_axis(rewards, active[:, :, None], axis=2)[:, :, 0]
    # w is uniform on the real states; no state leads to padding, so columns of padding are 0.
    sizes = arms.num_states[chosen][:, None]
    uniform = (np.arange(n) < sizes) / sizes
    system = np.eye(n) - factor * moves + factor * uniform[:, None, :]
    left = np.empty((len(chosen), n + 1, n))
    left[:, :n] = factor * (transitions[:, :, 1] - transitions[:, :, 0])
    left[:, n] = arms.initial[chosen] + factor * arms.total * uniform
    x = np.linalg.solve(system.swapaxes(1, 2), left.swapaxes(1, 2)).swapaxes(1, 2)
    tableau.x[chosen] = x
    tableau.a[chosen] = (x @ paid[..., None])[..., 0]
    tableau.a[chosen, :n] += rewards[..., 1] - rewards[..., 0]
    tableau.b[chosen] = (x @ active[..., None])[..., 0]
    tableau.b[chosen, :n] += 1
    tableau.fresh[chosen] = True
    tableau.image[chosen] = probe(n) - factor * (moves @ probe(n))


# -- the sweep --------------------------------------------------------------------------------------------------------


@njit
def _sweep(chosen, arms, tableau, met, allowed):
    """Pivot until all states are passive, or the tableau must be built afresh; arms go on from their last pivot."""
    for arm in chosen:
        n = arms.num_states[arm]
        x, a, b, active = tableau.x[arm], tableau.a[arm], tableau.b[arm], tableau.active[arm]
        goal, image, seen = tableau.goal[arm], tableau.image[arm], met.indices[arm]
        columns, rows, last = tableau.columns[arm], tableau.rows[arm], len(a) - 1
        size = arms.spread[arm] * tableau.norm[arm]
        # Relative to the largest numbers that rewards and slopes could make in this arm.
        tie, flat, least = TIE * size, min(FLAT * tableau.norm[arm], 0.01 / arms.total), PASSIVE * size
        pivots, error, held = met.num_pivots[arm], met.errors[arm], np.int64(0)
        charge = met.charges[arm, pivots - 1] if pivots > 0 else -np.inf
        status = DONE
        while True:
            left = 0
            for s in range(n):
                left += active[s]
            if left == 0:
                error = max(error, abs(b[last]) / arms.total)
                break
            s, reached = _next_switch(n, active, a, b, charge, flat)
            if s < 0:
                status = STUCK
                break
            # Of states that meet at one charge, one whose switch does not split the arm.
            if arms.factor == 1:
                s = _first_firm(n, arm, tableau, held, (charge, reached, flat, tie), s)
            if held == len(rows) or pivots == met.charges.shape[1]:
                status = FULL if held == len(rows) else CROWDED
                break
            column, row = columns[held], rows[held]
            _line(s, x, columns, rows, held)
            # A poor row does not justify a pivot: build afresh, and look again for the next switch.
            if (
                not tableau.fresh[arm]
                and _noise(n, s, arms.rewards[arm], arms.spread[arm], tableau, arm, row) > allowed
            ):
                status = STALE
                break
            charge = reached
            # How wrong a sign is at a charge at which by theory none is; where passive is optimal, and is no longer.
            for j in range(n):
                advantage = a[j] - charge * b[j]
                if size > 0:
                    error = max(error, (-advantage if active[j] else advantage) / size)
                if np.isnan(seen[j]):
                    if advantage <= least:
                        seen[j] = charge
                elif met.regained[arm] < 0 and active[j] and advantage > tie:
                    met.regained[arm] = j
                    met.witnesses[arm, 0], met.witnesses[arm, 1] = seen[j], charge
            # Tied before and switching now, but for rounding: the pivot's charge is more exact.
            if active[s] and (charge - seen[s]) * b[s] <= tie:
                seen[s] = charge
            met.charges[arm, pivots], met.switched[arm, pivots] = charge, s
            sign = 1.0 if active[s] else -1.0
            pivot = 1 + sign * column[s]
            if arms.factor == 1 and pivot <= FIRM:
                status = SPLIT
                break
            # Row s of A becomes that of the other action, so (A z)[s] changes by D z.
            image[s] += sign * goal[s]
            # X stays as it is; a and b are needed at once and updated. The pivot's own row is divided, not reduced.
            old_a, old_b = a[s], b[s]
            for i in range(last + 1):
                column[i] *= sign / pivot
                a[i] -= column[i] * old_a
                b[i] -= column[i] * old_b
            a[s], b[s] = old_a / pivot, old_b / pivot
            active[s] = not active[s]
            tableau.fresh[arm] = False
            held += 1
            pivots += 1
        met.num_pivots[arm], met.errors[arm], met.status[arm] = pivots, error, status


@njit
def _next_switch(n, active, a, b, charge, flat):
    """The state whose advantage reaches 0 next, and the charge at which it does; -1 if there is none."""
    best, best_charge = -1, np.inf
    for s in range(n):
        # Only advantages that move towards 0 from their side reach it. A charge before the present one is rounding.
        if (b[s] if active[s] else -b[s]) > flat:
            reach = max(a[s] / b[s], charge)
            if reach < best_charge:
                best, best_charge = s, reach
    return best, best_charge


@njit
def _first_firm(n, arm, tableau, held, limits, first):
    """Of the states that meet at a charge, the first whose switch does not split the arm, else the first."""
    charge, reached, flat, tie = limits
    active, a, b = tableau.active[arm], tableau.a[arm], tableau.b[arm]
    tied = -1
    for s in range(n):
        slope = b[s] if active[s] else -b[s]
        if slope > flat and (max(a[s] / b[s], charge) - reached) * slope <= tie:
            diagonal = tableau.x[arm, s, s]
            for k in range(held):
                diagonal -= tableau.columns[arm, k, s] * tableau.rows[arm, k, s]
            if (1 + diagonal if active[s] else 1 - diagonal) > FIRM:
                return s
            tied = s if tied < 0 else tied
    return tied if tied >= 0 else first


@njit
def _line(s, x, columns, rows, held):
    """Write the column and the row of a state, less the pivots that are held back, behind these."""
    column, row = columns[held], rows[held]
    for i in range(len(column)):
        column[i] = x[i, s]
    for j in range(len(row)):
        row[j] = x[s, j]
    for k in range(held):
        of_row, of_column = rows[k, s], columns[k, s]
        for i in range(len(column)):
            column[i] -= of_row * columns[k, i]
        for j in range(len(row)):
            row[j] -= of_column * rows[k, j]


@njit
def _noise(n, s, rewards, spread, tableau, arm, row):
    """The relative error of a row."""
    active, image = tableau.active[arm], tableau.image[arm]
    total, size, reward, activity = -tableau.goal[arm, s], 1.0, 0.0, 1.0
    for j in range(n):
        total += row[j] * image[j]
        size += abs(row[j])
        reward += row[j] * (rewards[j, 1] if active[j] else rewards[j, 0])
        activity += row[j] if active[j] else 0.0
    error = max(abs(total), abs(activity - tableau.b[arm, s]))
    if spread > 0:
        error = max(error, abs(rewards[s, 1] - rewards[s, 0] + reward - tableau.a[arm, s]) / spread)
    return error / size
