"""Dominated allocations of identical arms, by the marginal value of serving one arm.

Let n_s arms of state s be unserved in allocation a. Each rule changes one or two arms and keeps the others, whose next
counts y are those of N - 1 or N - 2 arms, so that the change of the Bellman operator at V is at least

    serve one more arm by cell k      g_k + gamma min_y D_k V(y),        D_k V(y) = sum_j (R_k - B_s)(j) V(y + e_j)
    serve it in place of a cell l     g_k - g_l + gamma min_y sum_ij (B_t(i) R_k(j) - R_l(i) B_s(j)) V(y + e_i + e_j)
    serve it by k, not by l           g_k - g_l + gamma min_y (D_k V - D_l V)(y),        for cells of one state
    serve one arm of cell l less      - g_l - gamma max_y D_l V(y)

with R the rows of cells, B those of unserved arms, g their gains, s and t the states of k and l. If a change is
positive and the budget allows it, a is not best wherever an arm of state s is unserved. So a is needed on a *face* of
the lattice alone, where n_s = 0. No rule changes the use of a resource that must be spent.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.lattice import lattice_index, lattice_points
from evenhand.solvers.counts.post_decision import Slots
from evenhand.typing import Bools, Floats, Ints

Rule = tuple[int, int]
"""A cell to serve one more arm by, and the cell to take it from; -1 for none."""


class Dominated(NamedTuple):
    """The points where allocations are dominated."""

    faces: Ints
    """(allocation,) bit s is set if it is dominated wherever an arm of state s is unserved."""

    nowhere: Bools
    """(allocation,) dominated at every point."""

    margins: Floats
    """(allocation,) by how much the dominating ones are better, at least."""


class Dominance:
    """The rules for a list of allocations."""

    def __init__(self, slots: Slots, allocations: Ints) -> None:
        """Find out which changes the budget allows.

        Args:
            slots: of the arms.
            allocations: (allocation, cell) the list.
        """
        self.slots, rows = slots, np.concatenate([slots.base_rows, slots.extra_rows])
        self.sources, self.rows, S = slots.cells[:, 0], rows[slots.landings], slots.num_states
        self.all_served = allocations.sum(axis=1) == slots.num_arms
        room = slots.limit * (1 - 1e-12) - allocations @ slots.needs
        exact = slots.least > 0
        spared = (slots.needs[:, exact] == 0).all(axis=1)
        self.serves = allocations > 0
        self.can_add = (slots.needs[:, None] <= room).all(axis=2) & spared[:, None]
        self.can_drop = self.serves & spared
        swaps = slots.needs[:, None] - slots.needs
        self.can_swap = {
            (k, other): self.serves[:, other] & (swaps[k, other] <= room).all(axis=1)
            for k, other in np.argwhere((swaps[..., exact] == 0).all(axis=2)).tolist()
            if k != other
        }
        # Arms that land on the slot of a state hide whether an arm of it is unserved.
        self.hidden = np.isin(self.sources, slots.landings)
        identity = np.eye(S, dtype=np.int64)
        self.pairs = np.argwhere(np.triu(np.ones((S, S))))
        self.one = np.array([lattice_index(lattice_points(slots.num_arms - 1, S) + unit) for unit in identity])
        self.two = self.one[self.pairs[:, 0], :1]  # one arm: none can be served in place of another
        if slots.num_arms > 1:
            others = lattice_points(slots.num_arms - 2, S)
            self.two = np.array([lattice_index(others + identity[i] + identity[j]) for i, j in self.pairs])

    def margins(self, value: Floats, factor: float, share: float = 0.0) -> dict[Rule, float]:
        """By how much each rule improves an allocation at least, at a value function.

        Args:
            value: (count state,) value function.
            factor: discount.
            share: of the next counts that are left out, those of the least improvement; with 0 it is proved.
        """
        slots, base, margins = self.slots, self.slots.base_rows[self.sources], dict[Rule, float]()
        marginal = (self.rows - base) @ value[self.one]
        moves = np.einsum("li,kj->klij", base, self.rows) - np.einsum("li,kj->klij", self.rows, base)
        moves = moves + np.swapaxes(moves, 2, 3)
        i, j = self.pairs.T
        weights = moves[:, :, i, j] / np.where(i == j, 2.0, 1.0)
        following = value[self.two]
        for k, gain in enumerate(slots.gains.tolist()):
            margins[-1, k] = -gain - factor * float(np.quantile(marginal[k], 1 - share))
            if not self.hidden[k]:
                margins[k, -1] = gain + factor * float(np.quantile(marginal[k], share))
        for (k, other), possible in self.can_swap.items():
            gain = float(slots.gains[k] - slots.gains[other])
            if self.sources[k] == self.sources[other]:
                margins[k, other] = gain + factor * float(np.quantile(marginal[k] - marginal[other], share))
            elif not self.hidden[k] and possible.any():
                margins[k, other] = gain + factor * float(np.quantile(weights[k, other] @ following, share))
        return margins

    def find(self, margins: dict[Rule, float], least: float) -> Dominated:
        """Dominated points.

        Args:
            margins: by how much each rule improves an allocation at least.
            least: margin from which an allocation counts as dominated.
        """
        faces = np.zeros(len(self.serves), dtype=np.int64)
        nowhere, lowest = np.zeros(len(faces), dtype=np.bool_), np.full(len(faces), np.inf)
        for (k, other), margin in margins.items():
            if margin <= least:
                continue
            able = self.can_swap.get((k, other), self.can_add[k])
            where = self.can_drop[:, other] if k < 0 else able
            lowest[where] = np.minimum(lowest[where], margin)
            if k < 0 or (other >= 0 and self.sources[k] == self.sources[other]):
                nowhere |= where
            else:
                faces[where] |= 1 << self.sources[k]
        nowhere |= (faces == (1 << self.slots.num_states) - 1) & ~self.all_served
        return Dominated(faces, nowhere, lowest)
