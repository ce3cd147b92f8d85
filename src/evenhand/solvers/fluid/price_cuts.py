"""Cuts of the dual search, which are best responses to prices, and the master program over them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.solvers.fluid.blocks import Mixture, Rule
from evenhand.solvers.highs import LinearProgram, solve_program
from evenhand.typing import Floats


@dataclass(frozen=True, eq=False)
class Cut:
    """Best response to some prices."""

    prices: Floats
    """(resource,) the prices."""

    total: Floats
    """(resource,) use of all arms."""

    utility: float
    """F of their values; minus infinity outside the domain."""

    welfare: float
    """W of their values."""

    rate: float
    """The derivative dW/dF there."""

    rule: Rule
    """The response, on the frontiers of its prices."""


def mixture_of(cuts: Sequence[Cut], shares: Floats) -> Mixture:
    """Return the mixture of the rules of cuts with a positive share."""
    return tuple((float(share), cut.rule) for cut, share in zip(cuts, shares, strict=True) if share > 0)


class PriceCuts:
    """Responses so far, and the master program over them."""

    def __init__(self, allowance: Floats, cuts: list[Cut]) -> None:
        """Begin with some cuts.

        Args:
            allowance: (resource,) the budget of all steps.
            cuts: first responses.
        """
        self.allowance = allowance
        self.cuts = cuts
        self.idle = [0] * len(cuts)
        self.most = 20 + 15 * len(allowance)
        self.cap = 1.0

    def add(self, cut: Cut) -> None:
        """Add a cut; of too many, drop the one without a share for longest."""
        if len(self.cuts) >= self.most:
            oldest = int(np.argmax(self.idle))
            del self.cuts[oldest], self.idle[oldest]
        self.cuts.append(cut)
        self.idle.append(0)

    def master(self) -> tuple[Floats, Floats, bool]:
        """Return the best shares of the cuts, the prices, and whether no mixture is within the allowance yet."""
        utilities = np.array([cut.utility for cut in self.cuts])
        # Utilities count from the largest, in units of their spread, so that the cap means the same for all problems.
        spread = float(np.ptp(utilities)) or max(1.0, float(abs(utilities[0])))
        scale = np.where(self.allowance > 0, self.allowance, 1.0)
        rows, columns = len(scale), len(self.cuts)
        matrix = np.zeros((rows + 1, columns + rows))
        matrix[:rows, :columns] = np.column_stack([cut.total for cut in self.cuts]) / scale[:, None]
        # A column per resource for shortage, at the price `cap`: by duality no price is above it.
        matrix[:rows, columns:] = -np.eye(rows)
        matrix[rows, :columns] = 1.0
        # If a cut fits alone there is no shortage, and prices have no cap.
        feasible = (matrix[:rows, :columns] <= 1).all(axis=0).any()
        optimum = solve_program(
            LinearProgram(
                gains=np.concatenate([(utilities - utilities.max()) / spread, np.full(rows, -self.cap)]),
                matrix=sparse.csc_array(matrix),
                row_lower=np.append(np.full(rows, -np.inf), 1.0),
                row_upper=np.ones(rows + 1),
                upper=np.concatenate([np.ones(columns), np.full(rows, 0.0 if feasible else np.inf)]),
            )
        )
        shares = np.maximum(optimum.primal[:columns], 0.0)
        # Shares that small are rounding errors of the solver.
        shares[shares < 1e-12] = 0.0
        shares /= shares.sum()
        self.idle = [0 if share > 0 else age + 1 for share, age in zip(shares, self.idle, strict=True)]
        missing = bool((optimum.primal[columns:] > 1e-7).any())
        # The cap was too low to remove shortage: raise it.
        if missing:
            self.cap *= 4.0
        return shares, np.maximum(optimum.duals[:rows], 0.0) * spread / scale, missing
