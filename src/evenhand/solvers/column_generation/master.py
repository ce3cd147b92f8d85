"""Master problem and oracle of column generation.

The master: the best mixture of known vectors, and a support of the welfare there.

    max W(V theta)   subject to   theta in the simplex,   S theta >= f   (floors)

by cuts of the welfare (`welfare_cuts`): with the tangents at the points so far,

    max sum_b z_b    subject to    z_b <= c_bk + s_bk.V theta,    sum theta = 1,    S theta >= f.

Every program gives new points: its own theta, and the best point between it and the best one so far. The search ends
when the program's optimum exceeds the welfare by no more than the precision. The multipliers of the cuts make a support
of the welfare, those of the floors their prices phi. Cuts hold for every vector, so they stay when vectors are added.

The oracle returns, for given weights, policies that do well by the weighted sum, and a bound on every policy:

    exact dynamic programming    `solvers.pricing.TabularPricing`: one best policy, and a bound as tight as required
    weighted index policies      in `planning`: several policies that need no joint table, and the bound of the
                                 relaxation at these weights, which no policy need attain
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy import sparse

from evenhand.errors import NotConvergedError, OutOfDomainError
from evenhand.model.welfare import Welfare
from evenhand.solvers.highs import LinearProgram, solve_program
from evenhand.solvers.welfare_cuts import Cuts, Support, best_between, pieces_of
from evenhand.typing import Floats, Ints

MAX_ROUNDS = 500
"""Programs of one call after which the best mixture so far is returned."""

FLOOR_SLACK = 1e-9
"""Distance by which a mixture may fall below a floor, relative to the size of the objective."""

LP_TOLERANCE = 1e-10
"""Feasibility tolerance of the master programs: multipliers must distinguish nearly equal policies."""


STEEPEST = 1e7
"""Ratio of the largest entries of a cut to those of the median cut up to which it enters a program."""


# -- the oracle, and the result ---------------------------------------------------------------------------------------


class Priced(NamedTuple):
    """Policies found for some weights."""

    vectors: Floats
    """(objective, policy) values of one policy or of several, which the oracle stores in this order."""

    bound: float
    """Upper bound on the weighted sum of every policy."""

    rounding: float = 0.0
    """Rounding error of the bound: no gap is closed beyond a few times this."""


class Oracle(Protocol):
    """Maximises a weighted sum over all policies and stores the policies it returned."""

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """Return policies that do well by the weighted sum, and a bound on that of every policy.

        Args:
            weights: (objective,) of the members of welfare, then of the objectives with floors.
            tolerance: distance of an exact oracle from the best weighted sum, relative to the bound.
        """
        ...

    @property
    def units(self) -> Floats:
        """(objective,) largest possible magnitude of each objective."""
        ...


@dataclass
class Mixture:
    """A mixture of the priced policies, in the order of pricing."""

    shares: Floats
    """(policy,) share of each priced policy."""

    values: Floats
    """(objective,) values of the mixture; those with floors come last."""

    welfare: float
    """Welfare of its members."""

    upper_bound: float
    """Upper bound on the welfare of every policy."""

    rounds: int = 0
    """Calls of the oracle."""


# -- the master problem -----------------------------------------------------------------------------------------------


@dataclass
class Master:
    """The best mixture of vectors that may grow in number."""

    welfare: Welfare
    counts: Ints
    """(member,) multiplicity of each of the first objectives."""
    floors: Floats
    """(floor,) lower bounds of the other objectives."""
    best: Floats
    """(policy,) shares that meet the floors and are in the domain of the welfare."""
    precision: float
    """Relative gap at which cuts stop."""
    cuts: Cuts | None = None

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """Return (policy,) shares of the (objective, policy) vectors, and a support of the welfare there."""
        members = matrix[: len(self.counts)]
        # Vectors that are new have no share yet.
        self.best = np.pad(self.best, (0, matrix.shape[1] - len(self.best)))
        if self.cuts is None:
            reference = float(self.counts @ (members @ self.best) / self.counts.sum()) or 1.0
            self.cuts = Cuts(pieces_of(self.welfare, self.counts, abs(reference)), members @ self.best)
        smallest = 1e-6 * float(np.abs(members).max())
        support: Support | None = None
        for _ in range(MAX_ROUNDS):
            try:
                shares, multipliers, prices = self._program(matrix)
            except NotConvergedError:  # beyond the digits of floating point
                if support is None:
                    raise
                break
            slope, rate = self.cuts.support(multipliers)
            support = Support(np.append(slope.weights, rate * prices), slope.constant)
            bound = (support.weights @ matrix).max() + slope.constant - float(rate * prices @ self.floors)
            value = self._value(members @ self.best)
            if bound - value <= self.precision * max(abs(bound), smallest):
                break
            self._move(members @ self.best, members @ shares, shares)
        assert support is not None
        return self.best, support

    def _value(self, values: Floats) -> float:
        try:
            return float(self.welfare(values, self.counts))
        except OutOfDomainError:
            return -np.inf

    def _move(self, near: Floats, far: Floats, shares: Floats) -> None:
        """Add cuts at the program's point and at the best one between it and the best so far, and move there."""
        assert self.cuts is not None
        share = best_between(lambda share: self._value((1 - share) * near + share * far))
        if share < 1:
            self.cuts.add(far, near)
        # Half-way at least, or a step of no length would add no cut.
        cut_at = share if share > 0 else 0.5
        while not self.cuts.add((1 - cut_at) * near + cut_at * far, near):
            cut_at /= 2
        self.best = (1 - share) * self.best + share * shares

    def _program(self, matrix: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the shares that are best under the cuts so far, the multipliers of the cuts, and prices of floors."""
        assert self.cuts is not None
        cuts, M, F, num_vectors = self.cuts, len(self.counts), len(self.floors), matrix.shape[1]
        heights = cuts.heights(matrix[:M] @ self.best)
        # Shares sum to 1, so that constants are part of the gains; rows are scaled to entries of at most 1.
        gains = cuts.slopes @ matrix[:M] + (cuts.constants - heights[cuts.piece])[:, None]
        largest, least = np.abs(gains).max(axis=1), np.full(cuts.num_pieces, np.inf)
        np.minimum.at(least, cuts.piece, largest)
        # Gains that small are rounding errors: a single vector has none.
        rounding = 1e-9 * float((np.abs(cuts.slopes) @ np.abs(matrix[:M]).max(axis=1)).min())
        unit = max(float(np.median(largest)), float(least.max()) / STEEPEST, rounding, 1e-300)
        # HiGHS drops entries below 1e-9: steeper cuts are left out, and each piece has one that is not.
        used = np.flatnonzero(largest <= 2 * STEEPEST * unit)
        size, K = np.maximum(largest[used] / unit, 1.0), len(used)
        program = np.zeros((K + F + 1, num_vectors + cuts.num_pieces))
        program[:K, :num_vectors] = -gains[used] / unit / size[:, None]
        program[np.arange(K), num_vectors + cuts.piece[used]] = 1.0 / size
        program[K:-1, :num_vectors] = matrix[M:]
        program[-1, :num_vectors] = 1.0
        solution = solve_program(
            LinearProgram(
                gains=np.append(np.zeros(num_vectors), np.ones(cuts.num_pieces)),
                matrix=sparse.csc_array(program),
                row_lower=np.concatenate([np.full(K, -np.inf), self.floors - FLOOR_SLACK, [1.0]]),
                row_upper=np.concatenate([np.zeros(K), np.full(F, np.inf), [1.0]]),
                lower=np.append(np.zeros(num_vectors), np.full(cuts.num_pieces, -np.inf)),
            ),
            tolerance=LP_TOLERANCE,
        )
        multipliers = np.zeros(len(gains))
        multipliers[used] = solution.duals[:K] / size
        prices = unit * np.maximum(-solution.duals[K:-1], 0.0)
        return on_simplex(solution.primal[:num_vectors]), multipliers, prices


def on_simplex(shares: Floats) -> Floats:
    """(policy,) shares without rounding errors: not negative, sum 1."""
    clean = np.maximum(shares, 0.0)
    return np.asarray(clean / clean.sum())
