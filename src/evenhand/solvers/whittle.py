"""Whittle indices of two-action arms, with a verdict on indexability, and what activity is worth.

    V_c(s) = max_{a in {0, 1}} [ r(s, a) - c a + gamma sum_s' P(s' | s, a) V_c(s') ]

The charge c is paid for each step of activity; a subsidy for passivity is the same. An arm is *indexable* if a state in
which passive (0) is optimal at some charge has it optimal at every higher charge. The index of a state is then the
least charge at which passive is optimal: up to it active is optimal, from it on passive, and there both are equally
good. Where both stay equally good for a range of charges, the index is its lower end.

The optimal policy is followed through *all* charges (`kernels.whittle_pivots`): each of the finitely many policies met
is optimal between two neighbouring charges, by the signs of all advantages at both, and advantages are linear between.
Indexability is read off this complete list. So the verdict is proved for the numbers of the arm as doubles compute
them: a state that returns to active with an advantage below TIE = 1e-12, relative to the largest that rewards could
make, counts as tied. If the arm is not indexable, a state and two charges are the witnesses. O(S^3) an indexable arm.

The same list is the frontier of value against use from an initial law: the policies are its vertices, and the charge
at which one gives way to the next is the slope between them, whether or not the arm is indexable (a linear program
over occupancies with one price). It is concave, from all-active, use 1/(1 - gamma), to all-passive, use 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.checks import Faults, check_distributions, check_finite, check_fraction, check_shape
from evenhand.errors import InvalidInput, NotConverged
from evenhand.kernels import whittle_pivots
from evenhand.kernels.whittle_pivots import CROWDED, DONE, Sweeps
from evenhand.typing import Array, ArrayLike, Bools, Floats, Indices, Ints

COMPILE_FROM = 1e8
"""Elementary operations (`_work`) from which compiled code is taken."""

CARE = (1e-14, 0.0)
"""Relative errors of a row that make a tableau be built afresh: usually, and where that was not accurate."""

ACCURATE, SOUND = 1e-11, 1e-8
"""Relative errors of a sweep: above the first it is done again with care, above the second it is refused."""

MOST_PIVOTS = 1000
"""Pivots a state after which a sweep is given up. An indexable arm needs one, ties aside."""


@dataclass(frozen=True)
class WhittleResult:
    """Whittle indices of a batch of arms."""

    indices: Floats
    """(arm, state) index of each state; nan where the arm is not indexable or the state is padding."""

    indexable: Bools
    """(arm,) the verdict."""

    regained: Indices
    """(arm,) a state in which active became strictly better again; -1 for indexable arms."""

    witnesses: Floats
    """(arm, 2) a charge at which passive is optimal in that state, and a higher one at which it is not; else nan."""

    def explain(self, arm: int) -> str:
        """The verdict on an arm in words."""
        if self.indexable[arm]:
            return "indexable: where passive is optimal, it is optimal at every higher charge"
        low, high = self.witnesses[arm]
        return (
            f"not indexable: in state {self.regained[arm]} passive is optimal at charge {low:.10g}, "
            f"but active is strictly better at {high:.10g}"
        )


@dataclass(frozen=True)
class ActivityFrontiers:
    """What activity is worth to each arm: vertices of concave curves, arm after arm."""

    offsets: Ints
    """(arm + 1,) vertices of an arm are offsets[arm] to offsets[arm + 1]; use falls along them."""

    uses: Floats
    """(vertex,) discounted number of active steps."""

    values: Floats
    """(vertex,) discounted rewards, the best with that use; charges are not counted."""

    charges: Floats
    """(vertex,) from this charge on the vertex is optimal, to the charge of the next; -inf for the first.

    Equals the slope between the vertex and the one before, unless both have the same use.
    """

    switched: Indices
    """(vertex,) the state in which its policy differs from the one before; -1 for the first, active everywhere."""

    num_states: Ints
    """(arm,)"""

    def vertices(self, arm: int) -> slice:
        """Where the vertices of an arm are."""
        return slice(int(self.offsets[arm]), int(self.offsets[arm + 1]))

    def policies(self, arm: int) -> Bools:
        """(vertex, state) where each vertex of an arm is active."""
        switched = self.switched[self.vertices(arm)][1:]
        flips = np.zeros((len(switched) + 1, self.num_states[arm]), dtype=np.int64)
        flips[np.arange(1, len(flips)), switched] = 1
        return np.asarray(flips.cumsum(axis=0) % 2 == 0)


def whittle_indices(
    transitions: ArrayLike, rewards: ArrayLike, discount: float, num_states: ArrayLike | None = None
) -> WhittleResult:
    """The Whittle index of every state of every arm.

    Args:
        transitions: (arm, state, action, next_state) probabilities; action 0 is passive, 1 active.
        rewards: (arm, state, action) rewards.
        discount: from 0 to below 1.
        num_states: (arm,) how many states are real, the first ones; all when absent.
    """
    arms = _Arms(transitions, rewards, discount, None, num_states)
    met = _sweep(arms)
    indexable = met.regained < 0
    return WhittleResult(
        indices=np.where(indexable[:, None], met.indices, np.nan),
        indexable=indexable,
        regained=met.regained,
        witnesses=met.witnesses,
    )


def value_frontiers(
    transitions: ArrayLike,
    rewards: ArrayLike,
    discount: float,
    initial: ArrayLike | None = None,
    num_states: ArrayLike | None = None,
) -> ActivityFrontiers:
    """The best value of every arm for each use.

    Args:
        transitions: (arm, state, action, next_state) probabilities; action 0 is passive, 1 active.
        rewards: (arm, state, action) rewards.
        discount: from 0 to below 1.
        initial: (arm, state) laws of the first states; uniform when absent.
        num_states: (arm,) how many states are real, the first ones; all when absent.
    """
    arms = _Arms(transitions, rewards, discount, initial, num_states)
    met = _sweep(arms)
    filled = np.arange(met.uses.shape[1]) <= met.num_pivots[:, None]
    rows = np.arange(len(met.uses))
    met.uses[:, 0], met.uses[rows, met.num_pivots] = 1 / (1 - arms.discount), 0.0
    return ActivityFrontiers(
        offsets=np.append(0, np.cumsum(met.num_pivots + 1)),
        uses=met.uses[filled],
        values=met.values[filled],
        charges=np.insert(met.charges, 0, -np.inf, axis=1)[filled],
        switched=np.insert(met.switched, 0, -1, axis=1)[filled],
        num_states=arms.num_states,
    )


class _Arms:
    """Arguments, checked; every fault is told at once."""

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike,
        discount: float,
        initial: ArrayLike | None,
        num_states: ArrayLike | None,
    ) -> None:
        self.rewards: Floats = np.ascontiguousarray(rewards, dtype=np.float64)
        check_shape(self.rewards, {"arm": None, "state": None, "action": 2}, "rewards")
        num_arms, most = self.rewards.shape[:2]
        self.num_states = _check_sizes(num_states, num_arms, most)
        self.transitions: Floats = np.ascontiguousarray(transitions, dtype=np.float64)
        check_shape(self.transitions, {"arm": num_arms, "state": most, "action": 2, "next_state": most}, "transitions")
        self.discount = check_fraction(discount, "discount", below_one=True)
        real = np.arange(most) < self.num_states[:, None]
        uniform = real / np.maximum(self.num_states, 1)[:, None]
        self.initial: Floats = np.ascontiguousarray(uniform if initial is None else initial, dtype=np.float64)
        check_shape(self.initial, {"arm": num_arms, "state": most}, "initial")
        self._check_numbers(real)

    def _check_numbers(self, real: Bools) -> None:
        faults, first = Faults(), np.arange(real.shape[1]) == 0
        rows = np.where(real[:, :, None, None], self.transitions, first)
        check_distributions(rows, "transitions", faults)
        check_finite(np.where(real[..., None], self.rewards, 0.0), "rewards", faults)
        check_distributions(self.initial, "initial", faults)
        faults.raise_if_any("arms")
        if (rows * ~real[:, None, None, :]).any() or (self.initial * ~real).any():
            raise InvalidInput("num_states: some probability leads beyond the states of an arm")
        # The tableau trusts that rows sum to 1 to the last digit, not only to the last that was written down.
        self.transitions = rows / rows.sum(axis=-1, keepdims=True)
        self.initial = self.initial / self.initial.sum(axis=-1, keepdims=True)

    def take(self, arms: Ints) -> tuple[Floats, Floats, Floats, Ints, float]:
        """Some of the arms, as the kernels want them."""
        return self.transitions[arms], self.rewards[arms], self.initial[arms], self.num_states[arms], self.discount


def _check_sizes(num_states: ArrayLike | None, num_arms: int, most: int) -> Ints:
    sizes = np.full(num_arms, most) if num_states is None else np.asarray(num_states)
    check_shape(sizes, {"arm": num_arms}, "num_states")
    if sizes.dtype.kind not in "iu" or (sizes < 1).any() or (sizes > most).any():
        raise InvalidInput(f"num_states: expected whole numbers from 1 to {most}, the states of the other arguments")
    return sizes.astype(np.int64)


def _work(num_states: Ints) -> float:
    """Elementary operations of the sweeps in NumPy, where each pivot has a cost of its own."""
    sizes = num_states.astype(np.float64)
    return float((sizes * (20_000 + sizes**2)).sum())


def _sweep(arms: _Arms) -> Sweeps:
    """Sweep all arms; again, with more room or more care, those that need it."""
    everyone = np.arange(len(arms.num_states))
    if not len(everyone):
        return Sweeps.empty(0, arms.rewards.shape[1], 0)
    kernel = whittle_pivots.sweep_arms_fast if _work(arms.num_states) >= COMPILE_FROM else whittle_pivots.sweep_arms
    met = _with_room(kernel, arms, everyone, CARE[0])
    poor = np.flatnonzero((met.errors > ACCURATE) | (met.status != DONE))
    if len(poor):
        met = _replace(met, poor, _with_room(kernel, arms, poor, CARE[1]))
    bad = np.flatnonzero((met.errors > SOUND) | (met.status != DONE))
    if len(bad):
        raise NotConverged(f"arm {bad[0]}: rounding outweighs its advantages (relative error {met.errors[bad[0]]:.2g})")
    return met


def _with_room(kernel: Callable[..., Sweeps], arms: _Arms, chosen: Ints, allowed: float) -> Sweeps:
    """Sweep the chosen arms, giving those that are not indexable as much room as they take."""
    room = int(arms.num_states.max()) + 8
    met = kernel(*arms.take(chosen), room, allowed)
    while (crowded := np.flatnonzero(met.status == CROWDED)).size:
        if room > MOST_PIVOTS * arms.num_states.max():
            raise NotConverged(f"arm {chosen[crowded[0]]}: the optimal policy changed more than {room} times")
        room *= 8
        met = _replace(met, crowded, kernel(*arms.take(chosen[crowded]), room, allowed))
    return met


def _replace(met: Sweeps, rows: Ints, by: Sweeps) -> Sweeps:
    """The sweeps with some of them replaced, widened where they need it."""
    return Sweeps(*(_replace_rows(np.asarray(old), rows, np.asarray(new)) for old, new in zip(met, by, strict=True)))


def _replace_rows(old: Array, rows: Ints, new: Array) -> Array:
    if old.ndim == 2:
        width = max(old.shape[1], new.shape[1])
        old, new = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (old, new))
    result = old.copy()
    result[rows] = new
    return result
