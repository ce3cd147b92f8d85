"""The sweep over charges in NumPy, one arm and one pivot at a time (`evenhand.kernels.whittle_pivots`)."""

import numpy as np

from evenhand.kernels import Sweeps
from evenhand.kernels import whittle_pivots as kernel
from evenhand.typing import Bools, Floats, Ints

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
        self.probe = kernel.probe(n)
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
    tie, flat = kernel.TIE * spread * norm, min(kernel.FLAT * norm, 0.01 / tableau.total)
    least = kernel.PASSIVE * spread * norm
    seen = met.indices[arm, :n]
    charge, pivots, error, fresh = -np.inf, 0, 0.0, True
    while tableau.active.any():
        s, reached = _next_switch(tableau, charge, flat, tie)
        if s < 0 or pivots == room:
            met.status[arm] = kernel.STUCK if s < 0 else kernel.CROWDED
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
        if tableau.factor == 1 and tableau.pivots()[s] <= kernel.FIRM:
            met.status[arm] = kernel.SPLIT
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
        firm = tied & (tableau.pivots() > kernel.FIRM)
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
