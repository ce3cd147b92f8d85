"""Mixture of policies with the best conditional value at risk (CVaR) of its welfare over scenarios.

Policies k have values V_d[:, k] in scenario d. With shares theta the welfare is W(V_d theta), and the objective is

    tail_q(w) = max_z  z - 1/(q D) sum_d (z - w_d)_+         w_d = W(V_d theta)                  (Rockafellar, Uryasev)

the mean of the lowest q D scenarios, one of them in part: a concave function of theta, since W is concave and the tail
is concave and monotone. It is maximised by cutting planes, a bundle per scenario:

    max  z - 1/(q D) sum_d u_d
    s.t. z - u_d - g.V_d theta <= W(v) - g.v      for each cut of d: v a point V_d theta' and g a supergradient there
         u_d >= 0,   theta in the simplex

The optimum of the program is an upper bound, the best evaluated point a lower one; a rank-weighted welfare has finitely
many pieces and is attained exactly. The multipliers of the cuts of d sum to pi_d, 0 <= pi_d <= 1/(q D), sum_d pi_d = 1:
another policy helps if it has a larger sum_d pi_d g_d.V_d. For q = 1 the tail is the mean.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.errors import OutOfDomainError
from evenhand.model.welfare import Welfare
from evenhand.solvers.highs import LinearProgram, solve_program
from evenhand.typing import Floats, Ints

MAX_ROUNDS = 60
"""Rounds of cutting planes after which the best point so far is returned."""


def tail_weights(number: int, share: float) -> Floats:
    """Return the (rank,) weights of so many samples in the mean of the lowest share, the lowest first."""
    return np.asarray(np.clip(share * number - np.arange(number), 0.0, 1.0) / (share * number))


def tail_mean(samples: Floats, share: float) -> float:
    """Return the mean of the lowest share, above 0 and at most 1, of (sample,) numbers."""
    return float(np.sort(samples) @ tail_weights(len(samples), share))


class TailOptimum(NamedTuple):
    """Best mixture: (policy,) shares, its tail mean, an upper bound over all mixtures, (scenario,) dual weights."""

    shares: Floats
    value: float
    bound: float
    weights: Floats


def best_tail(values: Floats, welfare: Welfare, counts: Ints, share: float, precision: float = 1e-6) -> TailOptimum:
    """Maximise the mean welfare of the worst scenarios over mixtures.

    Args:
        values: (scenario, member, policy) values.
        welfare: the welfare.
        counts: (member,) multiplicities.
        share: share of the scenarios, above 0 and at most 1.
        precision: gap at which to stop, relative to the largest value.

    Raises:
        OutOfDomainError: no policy is in the domain of the welfare in every scenario.
    """
    values = np.asarray(values, dtype=np.float64)
    scale = float(np.abs(values).max()) or 1.0
    cuts = _Cuts(values, welfare, counts, share, scale)
    vertices = np.eye(values.shape[2])
    tails = np.array([cuts.add(shares) for shares in vertices])
    if tails.max() > -np.inf:
        # Rounded: of equal policies the first is taken, independent of the last bit.
        first = int(np.argmax(np.round(tails / scale, 12)))
        shares, best = vertices[first], float(tails[first])
    else:  # a mixture may be in the domain although no policy alone is
        shares = np.full(len(vertices), 1 / len(vertices))
        if (best := cuts.add(shares)) == -np.inf:
            raise OutOfDomainError(f"no policy is in the domain of the welfare {welfare.name} in every scenario")
    bound, weights = np.inf, np.full(len(values), 1 / len(values))
    for _ in range(MAX_ROUNDS):
        bound, optimum, weights = cuts.solve()
        if bound - best <= precision * scale:
            break
        for step in (0.5, 1.0):  # the half step avoids corners where the welfare is steep
            point = (1 - step) * shares + step * optimum
            if (tail := cuts.add(point)) > best:
                shares, best = point, tail
    return TailOptimum(shares, best, max(bound, best), weights)


class _Cuts:
    """Cutting planes of the welfare in every scenario."""

    def __init__(self, values: Floats, welfare: Welfare, counts: Ints, share: float, scale: float) -> None:
        self.values, self.welfare, self.counts, self.share, self.scale = values, welfare, counts, share, scale
        # One row per cut: scenario number, slope per policy and constant, the last two divided by the scale.
        self.rows: list[Floats] = []

    def add(self, shares: Floats) -> float:
        """Add the cuts at a mixture and return its tail mean; -inf outside the domain."""
        points = self.values @ shares
        try:
            heights = np.asarray(self.welfare(points, self.counts))
            slopes = self.welfare.supergradient(points, self.counts)
        except OutOfDomainError:
            return -np.inf
        constants = (heights - (slopes * points).sum(axis=1)) / self.scale
        by_policy = np.einsum("dm,dmk->dk", slopes, self.values) / self.scale
        self.rows.append(np.column_stack([np.arange(len(points)), by_policy, constants]))
        return tail_mean(heights, self.share)

    def solve(self) -> tuple[float, Floats, Floats]:
        """Return the optimum under the cuts, its (policy,) shares and the (scenario,) dual weights."""
        cuts = np.concatenate(self.rows)
        # The same piece of the welfare is found again and again.
        _, distinct = np.unique(np.round(cuts, 13), axis=0, return_index=True)
        cuts = cuts[np.sort(distinct)]
        scenario, slopes, constants = cuts[:, 0].astype(np.int64), cuts[:, 1:-1], cuts[:, -1]
        number, (rows, policies) = len(self.values), slopes.shape
        # Columns theta, z, u.
        picks = sparse.csr_array((np.ones(rows), (np.arange(rows), scenario)), shape=(rows, number))
        simplex = sparse.csr_array(np.concatenate([np.ones(policies), np.zeros(1 + number)])[None])
        matrix = sparse.vstack([sparse.hstack([-slopes, np.ones((rows, 1)), -picks]), simplex])
        found = solve_program(
            LinearProgram(
                gains=np.concatenate([np.zeros(policies), [1.0], np.full(number, -1 / (self.share * number))]),
                matrix=sparse.csc_array(matrix),
                row_lower=np.append(np.full(rows, -np.inf), 1.0),
                row_upper=np.append(constants, 1.0),
                lower=np.concatenate([np.zeros(policies), [-np.inf], np.zeros(number)]),
                upper=np.full(policies + 1 + number, np.inf),
            ),
            tolerance=1e-9,
        )
        weights = np.asarray(np.bincount(scenario, np.maximum(found.duals[:rows], 0.0), number), dtype=np.float64)
        return found.objective * self.scale, _normalised(found.primal[:policies]), _normalised(weights)


def _normalised(shares: Floats) -> Floats:
    positive = np.maximum(shares, 0.0)
    return np.asarray(positive / positive.sum(), dtype=np.float64)
