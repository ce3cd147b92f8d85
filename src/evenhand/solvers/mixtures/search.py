"""The state of column generation: vectors found so far, the best bound, and the gap between.

A support (g, phi, c) of the welfare has W(v) <= g.v + c for all v, and prices phi >= 0 of the floors f; where no policy
has more than b of g.V + phi.S, no policy that keeps the floors has more welfare than b - phi.f + c. Points between two
supports are supports.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evenhand.solvers.mixtures.oracle import Oracle
from evenhand.typing import Floats, Ints

MOST_ROUNDS = 2000
"""Times the oracle is asked after which column generation ends with the gap that is left."""

FLOOR_SLACK = 1e-9
"""How far below its floor a fixed value may fall, relative to how large it can be, at first."""


@dataclass
class Mixture:
    """A mixture of the priced policies, in the order of pricing."""

    shares: Floats
    """(policy,) the share of each priced policy."""

    values: Floats
    """(objective,) values of the mixture; those with floors come last."""

    welfare: float
    """The welfare of its members."""

    upper_bound: float
    """No policy has more welfare."""

    rounds: int = 0
    """Times the oracle was asked."""


class Support(NamedTuple):
    """An affine bound on the welfare, and prices of the floors."""

    weights: Floats
    """(objective,) weights g of the members, then prices phi of the floors."""

    constant: float
    """c."""

    def towards(self, other: "Support", share: float) -> "Support":
        """A point between: again a bound."""
        mix = (1 - share) * self.weights + share * other.weights
        return Support(mix, (1 - share) * self.constant + share * other.constant)


@dataclass
class Search:
    """Vectors found so far, and the best bound."""

    oracle: Oracle
    tolerance: float
    progress: Callable[[int, float], None] | None
    counts: Ints
    floors: Floats
    vectors: list[Floats] = field(default_factory=list)
    upper_bound: float = np.inf
    rounding: float = 0.0
    rounds: int = 0

    def add(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """Ask the oracle, keep its vectors, and return the best of them with the bound on the weighted sum."""
        priced = self.oracle(weights, tolerance)
        self.rounds += 1
        self.rounding = priced.rounding
        self.vectors.extend(priced.vectors.T)
        return priced.vectors[:, (weights @ priced.vectors).argmax()], priced.bound

    @property
    def is_over(self) -> bool:
        """Whether the oracle was asked as often as it may be."""
        return self.rounds >= MOST_ROUNDS

    def bound(self, support: Support, most: float) -> float:
        """The bound on welfare of a support whose weighted sum is at most `most`."""
        return most - float(support.weights[len(self.counts) :] @ self.floors) + support.constant

    def gap(self, value: float, bound: float, rounding: float, rows: Ints) -> float:
        """How far the value may be from the best, relative to the bound; where that is nearly 0, to the values seen.

        Args:
            value: what was reached.
            bound: what cannot be exceeded.
            rounding: what rounding may have done to the bound.
            rows: the objectives that the value is made of: shares of time are of another size than rewards.
        """
        difference = bound - value
        # Differences within a few roundings of the bound are none.
        return difference / self.scale(bound, rows) if difference > 8 * rounding else 0.0

    def scale(self, value: float, rows: Ints) -> float:
        """What differences from a value are measured by: itself, or where it is nearly 0, the values seen."""
        return max(abs(value), 1e-6 * float(np.abs(self.vectors[0][rows]).max()), 1e-300)

    def tell(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(self.rounds, gap)

    def members(self, values: Floats) -> Floats:
        """(member, ...) what welfare weighs."""
        return values[: len(self.counts)]

    @cached_property
    def units(self) -> Floats:
        """(objective,) how large each objective can be; that of the largest member where it is 0 whatever is done."""
        units = self.oracle.units
        return np.where(units > 0, units, units[: len(self.counts)].max() or 1.0)

    @property
    def matrix(self) -> Floats:
        """(objective, policy) the vectors side by side."""
        return np.column_stack(self.vectors)


def on_simplex(shares: Floats) -> Floats:
    """(policy,) shares without what rounding did to them."""
    clean = np.maximum(shares, 0.0)
    return np.asarray(clean / clean.sum())
