"""Post-decision states of identical arms: how many are in each slot.

In each state one idle action is the *base*. An arm left at its base is in the slot of its state. An arm that gets
another *cell* (s, a) lands in the slot of the state whose base row is the same, or else in an extra slot for its row.
Cells that cannot matter are left out: those that no budget affords, and those that are dominated by a cell of the same
state and row with no larger usage and no smaller reward.

Under the criterion `average` the long run must not depend on the start. The graph of one arm decides the plainest case:
if the affordable actions together leave more than one closed class, an arm stays for ever in the one it started in.
"""

from typing import NamedTuple

import numpy as np

from evenhand.errors import NotApplicableError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.closed_classes import closed_classes, never_splits
from evenhand.typing import Bools, Floats, Ints

SAME_ROW = 4e-16
"""Rows this near in every entry are the same row; counted as an error of the law."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

INSTEAD_OF_AVERAGE = "Use the criterion discounted with a discount near 1, or finite:T."


class TypeTables(NamedTuple):
    """The tables of an arm of one type, the number of such arms, and the budget."""

    transitions: Floats
    """(state, action, next_state) probabilities."""

    rewards: Floats
    """(state, action) rewards of an arm."""

    usage: Floats
    """(state, action, resource) usage."""

    served: Floats
    """(state, action) 1 where the action serves the arm, else 0."""

    valid: Bools
    """(state, action) which actions there are."""

    initial: Floats
    """(state,) distribution of the first state."""

    num_arms: int

    limit: Floats
    """(resource,) the budget, with its room for rounding."""

    @property
    def affordable(self) -> Bools:
        """(state, action) actions that the budget allows."""
        return np.asarray((self.usage <= self.limit).all(axis=2) & self.valid)


class Pay(NamedTuple):
    """Rewards in terms of slots, as a share of the mean over all arms."""

    base: Floats
    """(state,) for an arm left at its base."""

    gains: Floats
    """(cell,) reward of a cell beyond that."""

    most: float
    """Bound on the magnitude of the mean reward."""


class Slots(NamedTuple):
    """The arms in terms of slots: which cells matter, and where their arms land."""

    num_arms: int

    base: Ints
    """(state,) the idle action."""

    base_rows: Floats
    """(state, next_state) how arms at their base move."""

    extra_rows: Floats
    """(extra, next_state) how arms in extra slots move."""

    cells: Ints
    """(cell, 2) state and action."""

    needs: Floats
    """(cell, resource) usage of one arm."""

    landings: Ints
    """(cell,) the slot where its arms land."""

    limit: Floats
    """(resource,) the budget."""

    @property
    def num_states(self) -> int:
        """Number of states of an arm."""
        return len(self.base)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_tables(problem: CoupledMDP) -> list[TypeTables]:
    """The tables of each type, without padding."""
    types, found = problem.types, []
    for t, (S, A) in enumerate(zip(types.num_states, types.num_actions, strict=True)):
        tables = types.transitions[t, :S, :A, :S], types.rewards[t, :S, :A], types.usage[t, :S, :A]
        served, valid = types.served[t, :S, :A].astype(np.float64), types.valid[t, :S, :A]
        number = int(problem.type_counts[t])
        found.append(TypeTables(*tables, served, valid, types.initial[t, :S], number, problem.budget_limit))
    return found


def read_slots(arm: TypeTables) -> Slots:
    """Read the tables of an arm that has an idle action in every state."""
    base = _best_free(arm, np.asarray((arm.usage == 0).all(axis=2)))
    base_rows = arm.transitions[np.arange(len(base)), base]
    # Cells off base that are affordable and not dominated by a cell of the same state and row.
    useful = [(s, a) for s, a in np.argwhere(arm.affordable) if a != base[s] and not _is_dominated(arm, s, a)]
    cells = np.array(useful, dtype=np.int64).reshape(-1, 2)
    landings, extra_rows = _land(arm.transitions, cells, base_rows)
    return Slots(
        num_arms=arm.num_arms,
        base=base,
        base_rows=base_rows,
        extra_rows=extra_rows,
        cells=cells,
        needs=arm.usage[cells[:, 0], cells[:, 1]],
        landings=landings,
        limit=arm.limit,
    )


def read_pay(rewards: Floats, slots: Slots) -> Pay:
    """(state, action) rewards at the base and beyond it."""
    s, a = slots.cells.T
    at_base = rewards[np.arange(slots.num_states), slots.base]
    gains = (rewards[s, a] - at_base[s]) / slots.num_arms
    # A mean over N arms: max|at_base| at the most at their base, and each of the N may add a gain.
    most = float(np.abs(at_base).max() + slots.num_arms * np.abs(gains).max(initial=0.0))
    return Pay(at_base / slots.num_arms, gains, most)


def check_one_class(arm: TypeTables, criterion: Criterion) -> None:
    """Refuse averages of arms whose affordable actions leave more than one closed class of states."""
    if not criterion.is_stationary or criterion.contracts:
        return
    moves = ((arm.transitions > 0) & arm.affordable[:, :, None]).any(axis=1)
    closed = [states.tolist() for states in closed_classes(np.asarray(moves, dtype=np.float64))]
    if len(closed) > 1:
        raise NotApplicableError(
            f"the criterion average asks for one long run, and an arm has {len(closed)} groups of states that no "
            f"action leaves (such as the states {closed[0][:5]} and {closed[1][:5]}): its mean reward depends on "
            f"where it starts. {INSTEAD_OF_AVERAGE}"
        )


def surely_one_long_run(arm: TypeTables) -> bool:
    """Return True if any number of such arms surely have one closed class, so that the start does not matter.

    Sufficient: under every policy an arm reaches some common state, and it may stay where it is at any time.
    """
    affordable = arm.affordable
    first = arm.transitions[np.arange(len(affordable)), affordable.argmax(axis=1)]
    rows = np.where(affordable[:, :, None], arm.transitions, first[:, None])
    waits = (np.einsum("sas->sa", rows) > 0).all()
    return bool(waits and never_splits(rows[None], np.array([len(rows)]))[0])


def _same(left: Floats, right: Floats) -> bool:
    return bool(np.abs(left - right).max() <= SAME_ROW)


def _best_free(arm: TypeTables, free: Bools) -> Ints:
    """(state,) the first idle action, or one with the same row and a better reward."""
    base = free.argmax(axis=1)
    for s, first in enumerate(base):
        alike = [a for a in np.flatnonzero(free[s]) if _same(arm.transitions[s, a], arm.transitions[s, first])]
        # Same row, same use: the better reward is never worse. The first of equals, as `max` has it.
        base[s] = max(alike, key=lambda a: arm.rewards[s, a])
    return np.asarray(base, dtype=np.int64)


def _is_dominated(arm: TypeTables, s: np.int64, a: np.int64) -> bool:
    """Return True if another action of the state has the same row, no larger usage and no smaller reward."""
    usage, rewards = arm.usage[s], arm.rewards[s]
    rivals = (b for b in range(len(rewards)) if b != a and _same(arm.transitions[s, a], arm.transitions[s, b]))
    return any(
        (usage[b] <= usage[a]).all()
        and rewards[b] >= rewards[a]
        and (b < a or rewards[b] > rewards[a] or (usage[b] < usage[a]).any())  # of equals the first stays
        for b in rivals
    )


def _land(transitions: Floats, cells: Ints, base_rows: Floats) -> tuple[Ints, Floats]:
    """(cell,) the slot of each cell, and the (extra, next_state) rows of slots beyond the states."""
    rows = list(base_rows)
    landings = []
    # Base rows come first: landing on the lattice costs nothing, an extra slot makes outcomes more.
    for s, a in cells:
        alike = (slot for slot, row in enumerate(rows) if _same(row, transitions[s, a]))
        slot = next(alike, len(rows))
        if slot == len(rows):
            rows.append(transitions[s, a])
        landings.append(slot)
    extra = np.array(rows[len(base_rows) :]).reshape(-1, base_rows.shape[1])
    return np.array(landings, dtype=np.int64), extra
