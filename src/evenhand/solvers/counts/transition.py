"""Transition operators of arms at their base, on lattices of any number of them.

The expectation over their next counts is the symmetric power of the matrix of base rows: sweeps over lines if the
matrix is a product of splits, else a table of distributions (`kernels.splits` has the mathematics of both). Each bounds
its error relative to the largest value: cut tails, rounding, and the difference of the product from the matrix.
"""

import numpy as np

from evenhand.kernels.lattice import lattice_below, lattice_index, lattice_points
from evenhand.kernels.splits import TAIL, Split, binomial_bands, lattice_lines, product_error
from evenhand.solvers.counts.post_decision import Slots
from evenhand.typing import Floats, Ints

UNIT = 2.0**-53
"""Relative error of one rounding."""


class Sweeps:
    """The base rows as splits."""

    def __init__(self, slots: Slots, splits: tuple[list[Split], Ints], levels: range) -> None:
        steps, self.ends = splits
        bands = [binomial_bands(slots.num_arms, p) for _, _, p in steps]
        self.sweeps = {}
        self.relabelled = {}
        for left in (slots.num_arms - t for t in levels):
            lines = {(i, j): lattice_lines(left, slots.num_states, i, j) for i, j, _ in steps}
            self.sweeps[left] = [(lines[i, j], band) for (i, j, _), band in zip(steps, bands, strict=True)]
            if (self.ends != np.arange(slots.num_states)).any():
                points = lattice_points(left, slots.num_states)
                self.relabelled[left] = lattice_index(points[:, np.argsort(self.ends)])
        self.error = sum(
            2 * TAIL + (3 * slots.num_arms + int(np.diff(band.starts).max())) * UNIT for band in bands
        ) + slots.num_arms * product_error(slots.base_rows, steps, self.ends)

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        from evenhand.kernels.lattice_sweeps import sweep_lines

        if self.relabelled:
            functions = functions[:, self.relabelled[left]]
        functions = np.ascontiguousarray(functions)
        for lines, band in reversed(self.sweeps[left]):
            functions = sweep_lines(functions, lines, band)
        return np.asarray(functions)


class Laws:
    """The base rows as tables of distributions."""

    def __init__(self, slots: Slots, levels: range) -> None:
        from evenhand.kernels.lattice_sweeps import grow_law

        self.laws: dict[int, Floats] = {}
        law = np.ones((1, 1))
        for n in range(slots.num_arms + 1):
            if n:
                points = lattice_points(n, slots.num_states)
                below = lattice_below(n, slots.num_states)
                leaving = (points > 0).argmax(axis=1).astype(np.int32)
                parent = below[np.arange(len(points)), leaving]
                law = grow_law(law, slots.base_rows, leaving, parent, below)
            if slots.num_arms - n in levels:
                self.laws[n] = law
        self.error = (slots.num_arms * (slots.num_states + 1) + len(law)) * UNIT

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        return np.asarray(functions @ self.laws[left].T)

    def some(self, functions: Floats, left: int, point: Ints, config: Ints) -> Floats:
        """(pair,) expectations at chosen points of chosen functions."""
        from evenhand.kernels.lattice_sweeps import dot_rows

        return np.asarray(dot_rows(self.laws[left], functions, point, config))
