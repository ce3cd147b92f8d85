"""Masters: the best mixture of known vectors, and a support of the welfare there.

    max W(V theta)   over theta in the simplex,   S theta >= f   where there are floors.

    rank-weighted W   the linear program  max sum_i k_i lambda_i + sum_t c_t nu_t,
                      lambda_i + nu_t <= w_i (V theta)_t   (w_i the distinct rank weights, k_i ranks have each);
                      with the multipliers Q of its rows, g_t = sum_i w_i Q_it, made an exact member of the
                      permutahedron of w by projection, so that the bound holds whatever the solver's rounding; c = 0
    power mean W      a smooth concave program on the simplex, by a barrier method (`smooth`); c = 0
    any other W       cutting planes  max z,  z <= W(v_k) + g_k.(V theta - v_k),  g_k a supergradient at v_k;
                      with the multipliers mu of the cuts, g = sum mu_k g_k and c = sum mu_k (W(v_k) - g_k.v_k)

Floors are rows with multipliers phi. A rank-weighted welfare whose program
would have too many rows is left to `proximal`. Linear programs are refined (`refinement`): a multiplier that is out by
the tolerance of the solver would price the same policy again and again.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy import sparse

from evenhand.errors import InvalidInput, OutOfDomain
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare
from evenhand.solvers._highs import LinearProgram
from evenhand.solvers.mixtures.proximal import ProximalMaster
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Support, on_simplex
from evenhand.solvers.mixtures.smooth import SmoothMaster
from evenhand.solvers.permutahedron import project_types
from evenhand.solvers.refinement import solve_precisely
from evenhand.typing import Floats, Ints

MOST_CUTS = 500
"""Cutting planes that one master adds before it goes on with what it has."""

MOST_ROWS = 400
"""Rows up to which a rank-weighted welfare is one linear program."""

MOST_RANKED = 10**6
"""Members up to which rank weights are written out."""


class Master(Protocol):
    """Finds the best mixture of known vectors."""

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """(policy,) shares of the (objective, policy) vectors, and a support of the welfare there."""
        ...


def master_of(welfare: Welfare, counts: Ints, floors: Floats, feasible: Floats, precision: float) -> Master:
    """The master that knows most of the welfare.

    Args:
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        floors: (floor,) the least that the other objectives must reach.
        feasible: (policy,) shares that keep the floors, in the domain of the welfare.
        precision: the relative gap at which cutting planes stop.
    """
    if isinstance(welfare, RankWeighted) and _num_rows(welfare, counts) <= MOST_ROWS:
        return _RankMaster(welfare, counts, floors)
    if isinstance(welfare, RankWeighted):
        return ProximalMaster(welfare, counts, floors, feasible, precision)
    if isinstance(welfare, PowerMean):
        return SmoothMaster(welfare, counts, floors, feasible, precision)
    return _CutMaster(welfare, counts, floors, feasible, precision)


def _num_rows(welfare: RankWeighted, counts: Ints) -> float:
    number = int(counts.sum())
    if number > MOST_RANKED:
        return np.inf
    return len(_distinct_weights(welfare.rank_weights(number))[0]) * len(counts)


# -- rank-weighted welfare --------------------------------------------------------------------------------------------


@dataclass
class _RankMaster:
    """One linear program."""

    welfare: RankWeighted
    counts: Ints
    floors: Floats

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and a support from the multipliers of the ranks."""
        weights = self.welfare.rank_weights(int(self.counts.sum()))
        levels, ranks = _distinct_weights(weights)
        M, num_vectors = len(self.counts), matrix.shape[1]
        # Rows: a rank weight and a member each, then the floors, then the simplex. Columns: theta, lambda, nu.
        rows = len(levels) * M
        level_of_row, type_of_row = np.divmod(np.arange(rows), M)
        columns = num_vectors + len(levels) + M
        scale = max(float(np.abs(matrix[:M]).max()), 1e-300)
        program = np.zeros((rows + len(self.floors) + 1, columns))
        program[:rows, :num_vectors] = -levels[level_of_row, None] * (matrix[:M] / scale)[type_of_row]
        program[np.arange(rows), num_vectors + level_of_row] = 1.0
        program[np.arange(rows), num_vectors + len(levels) + type_of_row] = 1.0
        program[rows:-1, :num_vectors] = matrix[M:]
        program[-1, :num_vectors] = 1.0
        free = np.array([np.full(columns - num_vectors, -np.inf), np.full(columns - num_vectors, np.inf)])
        free[:, -1] = 0.0  # lambda + c, nu - c is the same solution: one of them is pinned
        solution = solve_precisely(
            LinearProgram(
                gains=np.concatenate([np.zeros(num_vectors), ranks, self.counts]),
                matrix=sparse.csc_array(program),
                row_lower=np.concatenate([np.full(rows, -np.inf), self.floors - FLOOR_SLACK, [1.0]]),
                row_upper=np.concatenate([np.zeros(rows), np.full(len(self.floors), np.inf), [1.0]]),
                lower=np.concatenate([np.zeros(num_vectors), free[0]]),
                upper=np.concatenate([np.full(num_vectors, np.inf), free[1]]),
            )
        )
        # (rank weight, member) how many ranks of each weight go to whom; the mean weight is a supergradient.
        mass = np.maximum(solution.duals[:rows], 0.0).reshape(len(levels), M)
        of_types = self.counts * project_types(levels @ mass / self.counts, self.counts, self.welfare)
        # Rows of floors are >= rows, and values were divided by the scale.
        prices = scale * np.maximum(-solution.duals[rows:-1], 0.0)
        return on_simplex(solution.primal[:num_vectors]), Support(np.concatenate([of_types, prices]), 0.0)


# -- any other welfare ------------------------------------------------------------------------------------------------


@dataclass
class _CutMaster:
    """Cutting planes, which are kept from round to round: they hold for every vector."""

    welfare: Welfare
    counts: Ints
    floors: Floats
    best: Floats
    precision: float
    cuts: list[tuple[Floats, float]] = field(default_factory=list)

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the mean of the cuts that hold there."""
        members = matrix[: len(self.counts)]
        # Vectors that came since have no share yet.
        self.best = np.pad(self.best, (0, matrix.shape[1] - len(self.best)))
        value = self._cut(members @ self.best)
        for _ in range(MOST_CUTS):
            level, shares, support = self._program(matrix)
            # Relative to the level; where that is nearly 0, to the values.
            if level - value <= self.precision * max(abs(level), 1e-6 * float(np.abs(members).max())):
                break
            # A cut half-way keeps clear of corners where the welfare is steep or not defined at all.
            for part in (0.5, 1.0):
                tried = (1 - part) * self.best + part * shares
                if (found := self._try(members @ tried)) > value:
                    self.best, value = tried, found
        return self.best, support

    def _cut(self, values: Floats) -> float:
        """Add the cut at some values, and return their welfare."""
        value = float(self.welfare(values, self.counts))
        slope = np.asarray(self.welfare.supergradient(values, self.counts), dtype=np.float64)
        if slope.shape != values.shape or not (np.isfinite(slope).all() and np.isfinite(value)):
            raise InvalidInput(
                f"welfare {self.welfare.name}: expected a number, and a supergradient of {len(values)} finite weights, "
                f"got {value} and an array of shape {slope.shape}"
            )
        self.cuts.append((slope, value - float(slope @ values)))
        return value

    def _try(self, values: Floats) -> float:
        try:
            return self._cut(values)
        except OutOfDomain:
            return -np.inf

    def _program(self, matrix: Floats) -> tuple[float, Floats, Support]:
        """The best shares under the cuts so far."""
        slopes = np.array([slope for slope, _ in self.cuts])
        constants = np.array([constant for _, constant in self.cuts])
        M, K, F = len(self.counts), len(self.cuts), len(self.floors)
        # Constants of cuts may be larger than values, where the welfare is steep.
        scale = max(float(np.abs(matrix[:M]).max()), float(np.abs(constants).max()), 1e-300)
        program = np.zeros((K + F + 1, matrix.shape[1] + 1))
        program[:K, :-1], program[:K, -1] = -(slopes @ matrix[:M]) / scale, 1.0
        program[K:-1, :-1] = matrix[M:]
        program[-1, :-1] = 1.0
        solution = solve_precisely(
            LinearProgram(
                gains=np.append(np.zeros(matrix.shape[1]), 1.0),
                matrix=sparse.csc_array(program),
                row_lower=np.concatenate([np.full(K, -np.inf), self.floors - FLOOR_SLACK, [1.0]]),
                row_upper=np.concatenate([constants / scale, np.full(F, np.inf), [1.0]]),
                lower=np.append(np.zeros(matrix.shape[1]), -np.inf),
                upper=np.full(matrix.shape[1] + 1, np.inf),
            )
        )
        # Multipliers of the cuts: a convex combination of cuts is a cut.
        mu = on_simplex(solution.duals[:K])
        prices = scale * np.maximum(-solution.duals[K:-1], 0.0)
        support = Support(np.concatenate([mu @ slopes, prices]), float(mu @ constants))
        return float(solution.primal[-1]) * scale, on_simplex(solution.primal[:-1]), support


def _distinct_weights(weights: Floats) -> tuple[Floats, Floats]:
    """The distinct rank weights, largest first, and how many ranks have each; what is lost in rounding counts as 0."""
    clean = np.where(weights < 1e-18, 0.0, weights)
    levels, ranks = np.unique(clean, return_counts=True)
    return levels[::-1].copy(), ranks[::-1].astype(np.float64)
