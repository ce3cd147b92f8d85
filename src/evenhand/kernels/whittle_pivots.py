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

`compiled_whittle` does the same with pivots collected in blocks and carried out as one matrix product.
"""

from typing import NamedTuple

import numpy as np

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

DONE, CROWDED, STUCK, SPLIT = 0, 1, 2, 3
"""Ends of a sweep: at all-passive; with more pivots than there was room for; without a state to switch; at a switch
that splits the arm into several closed classes (it is noted in `switched`, after the last pivot)."""


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
        """Nothing met yet, with room for so many pivots an arm."""
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


def probe(num_states: int) -> Floats:
    """(state,) the fixed vector z of the row check: well spread, without structure that a tableau could share."""
    return np.asarray(np.arange(1, num_states + 1) * 0.6180339887498949 % 1.0 - 0.5)


# -- the tableau ------------------------------------------------------------------------------------------------------


class Tableau:
    """[X | a | b] over a row for the initial law, of one arm and one policy."""

    def __init__(self, transitions: Floats, rewards: Floats, initial: Floats, factor: float, total: float) -> None:
        """Stand at the policy that is active everywhere.

        Args:
            transitions: (state, action, next_state), passive first.
            rewards: (state, action).
            initial: (state,) law of the first state; 0 for an average.
            factor: what the next step counts for, gamma.
            total: the weight of all steps.
        """
        # Constants change no advantage; without them the rewards round less.
        self.shift = (rewards.max() + rewards.min()) / 2
        self.transitions, self.rewards = transitions, rewards - self.shift
        self.factor, self.total = factor, total
        n = len(initial)
        self.states, self.active = np.arange(n), np.ones(n, dtype=np.bool_)
        self.gain = np.append(self.rewards[:, 1] - self.rewards[:, 0], 0.0)
        self.effect = factor * (transitions[:, 1] - transitions[:, 0])
        # The last row is that of the law: m' (A + gamma 1 w') = initial' + gamma total w'.
        self.left = np.vstack([self.effect, initial + factor * total / n])
        self.probe = probe(n)
        # The row check: X (A z) must be D z. A z follows the policy, D z does not depend on it.
        self.goal = self.effect @ self.probe
        self.image = self.probe - factor * transitions[:, 1] @ self.probe
        self.rebuild()

    def rebuild(self) -> None:
        """Everything afresh from the policy."""
        n, chosen = len(self.states), self.active.astype(np.int64)
        # A + gamma 1 w' with w uniform: regular for gamma = 1 too, unless the policy splits the arm.
        system = np.eye(n) - self.factor * self.transitions[self.states, chosen] + self.factor / n
        self.X: Floats = np.linalg.solve(system.T, self.left.T).T.astype(np.float64, copy=False)
        self.a = self.gain + self.X @ self.rewards[self.states, chosen]
        self.b = np.append(np.ones(n), 0.0) + self.X @ chosen

    def pivots(self) -> Floats:
        """(state,) what switching each state divides by."""
        diagonal = self.X[self.states, self.states]
        return np.where(self.active, 1 + diagonal, 1 - diagonal)

    def switch(self, s: int) -> None:
        """Pivot on a state."""
        # Active becomes passive with sign 1, passive active with -1 (see the file's head).
        sign = 1.0 if self.active[s] else -1.0
        pivot = 1 + sign * self.X[s, s]
        column, row = sign * self.X[:, s] / pivot, self.X[s].copy()
        a, b = self.a[s], self.b[s]
        self.X -= np.outer(column, row)
        self.a -= column * a
        self.b -= column * b
        # The pivot's own row is divided, not reduced: T[s] - sign T[s, s] T[s] / pivot = T[s] / pivot.
        self.a[s], self.b[s] = a / pivot, b / pivot
        self.active[s] = not self.active[s]
        # Row s of A is now that of the other action, so (A z)[s] changes by D z.
        self.image[s] += sign * self.goal[s]

    def norm(self) -> float:
        """1 + the largest row sum of |X|: how much rewards count at most."""
        return 1 + float(np.abs(self.X[:-1]).sum(axis=1).max())

    def noise(self, s: int, spread: float) -> float:
        """The relative error of a row, `spread` being the size of the rewards."""
        row, chosen = self.X[s], self.active.astype(np.int64)
        error = max(abs(row @ self.image - self.goal[s]), abs(1 + row @ chosen - self.b[s]))
        if spread:
            a = self.gain[s] + row @ self.rewards[self.states, chosen]
            error = max(error, abs(a - self.a[s]) / spread)
        return float(error / (1 + np.abs(row).sum()))

    @property
    def use(self) -> float:
        """Activity of the policy over time."""
        return float(self.b[-1])


# -- sweeps -----------------------------------------------------------------------------------------------------------


def sweep_arms(
    transitions: Floats,
    rewards: Floats,
    initial: Floats,
    num_states: Ints,
    factor: float,
    total: float,
    room: int,
    allowed: float,
) -> Sweeps:
    """Sweep every arm, in NumPy.

    Args:
        transitions: (arm, state, action, next_state) probabilities, passive first.
        rewards: (arm, state, action) rewards.
        initial: (arm, state) laws of the first states; 0 for an average.
        num_states: (arm,) how many states are real; the rest is padding.
        factor: what the next step counts for; 1 only for an average or for arms that end.
        total: the weight of all steps.
        room: most pivots an arm.
        allowed: relative error of a row above which the tableau is built afresh.
    """
    met = Sweeps.empty(len(rewards), rewards.shape[1], room)
    for arm, n in enumerate(num_states):
        tableau = Tableau(transitions[arm, :n, :, :n], rewards[arm, :n], initial[arm, :n], factor, total)
        _sweep(arm, tableau, met, allowed)
    return met


def _sweep(arm: int, tableau: Tableau, met: Sweeps, allowed: float) -> None:
    room, n = met.charges.shape[1], len(tableau.states)
    spread, norm = float(np.ptp(tableau.rewards)), tableau.norm()
    # Relative to the largest numbers that rewards and slopes could make in this arm.
    tie, flat = TIE * spread * norm, min(FLAT * norm, 0.01 / tableau.total)
    least = PASSIVE * spread * norm
    seen = met.indices[arm, :n]
    charge, pivots, error, fresh = -np.inf, 0, 0.0, True
    while tableau.active.any():
        s, reached = _next_switch(tableau, charge, flat, tie)
        if s < 0 or pivots == room:
            met.status[arm] = STUCK if s < 0 else CROWDED
            break
        # A poor row does not justify a pivot: build afresh, and look again for the next switch.
        if not fresh and tableau.noise(s, spread) > allowed:
            tableau.rebuild()
            fresh = True
            continue
        charge = reached
        advantage = (tableau.a - charge * tableau.b)[:-1]
        # How wrong a sign is at a charge where by theory none is.
        wrong = float(np.where(tableau.active, -advantage, advantage).max())
        error = max(error, wrong / (spread * norm)) if spread else error
        _look(arm, met, seen, tableau.active, advantage, charge, tie, least)
        # Passive by a tie at an earlier charge, and but for rounding at this one, which is more exact.
        if tableau.active[s] and (charge - seen[s]) * tableau.b[s] <= tie:
            seen[s] = charge
        met.charges[arm, pivots], met.switched[arm, pivots] = charge, s
        if tableau.factor == 1 and tableau.pivots()[s] <= FIRM:
            met.status[arm] = SPLIT
            break
        tableau.switch(s)
        fresh = False
        pivots += 1
    met.num_pivots[arm], met.errors[arm] = pivots, max(error, abs(tableau.use) / tableau.total)


def _next_switch(tableau: Tableau, charge: float, flat: float, tie: float) -> tuple[int, float]:
    """The state whose advantage reaches 0 next, and the charge at which it does; -1 if there is none."""
    a, b = tableau.a[:-1], tableau.b[:-1]
    # Only advantages that move towards 0 from their side reach it.
    moving = np.where(tableau.active, b, -b) > flat
    if not moving.any():
        return -1, charge
    # A charge before the present one is rounding: charges never fall.
    reach = np.where(moving, np.maximum(a / np.where(moving, b, 1.0), charge), np.inf)
    s = int(np.argmin(reach))
    if tableau.factor == 1:
        # States that reach 0 at the same charge but for a tie; the first whose switch does not split the arm.
        tied = moving & (np.where(moving, reach - reach[s], 0.0) * np.abs(b) <= tie)
        firm = tied & (tableau.pivots() > FIRM)
        return int(np.argmax(firm if firm.any() else tied)), float(reach[s])
    return s, float(reach[s])


def _look(
    arm: int, met: Sweeps, seen: Floats, active: Bools, advantage: Floats, charge: float, tie: float, least: float
) -> None:
    """Note the states for which passive is optimal now, and whether one of them was so before and has ceased to be."""
    back = active & ~np.isnan(seen) & (advantage > tie)
    if met.regained[arm] < 0 and back.any():
        s = int(np.argmax(back))
        met.regained[arm], met.witnesses[arm] = s, (seen[s], charge)
    seen[np.isnan(seen) & (advantage <= least)] = charge


def sweep_arms_fast(
    transitions: Floats,
    rewards: Floats,
    initial: Floats,
    num_states: Ints,
    factor: float,
    total: float,
    room: int,
    allowed: float,
) -> Sweeps:
    """`sweep_arms`, compiled: the same up to rounding, and up to the order of switches at one charge."""
    from evenhand.kernels import compiled_whittle

    met = Sweeps.empty(len(rewards), rewards.shape[1], room)
    compiled_whittle.sweep_arms(transitions, rewards, initial, num_states, factor, total, allowed, met)
    return met
