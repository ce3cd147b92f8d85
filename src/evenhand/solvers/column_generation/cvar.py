"""Master problem of the conditional value at risk: the best mixture of policies in the worst of several scenarios.

Policies k have values V_d[:, k] in scenario d. With shares theta the welfare there is W(V_d theta); the objective is

    CVaR_q(w) = max_z  z - 1/(q D) sum_d (z - w_d)_+         w_d = W(V_d theta)                  (Rockafellar, Uryasev)

the mean of the worst q D scenarios, a fractional one in part: a concave function of theta, since W is and CVaR is
concave and does not fall when a w_d grows. It is maximised by cutting planes, a bundle of them per scenario:

    max  z - 1/(q D) sum_d u_d
    s.t. z - u_d - g.V_d theta <= W(v) - g.v      for each cut of d: v a point V_d theta' and g a supergradient there
         u_d >= 0,   theta in the simplex

The optimum of the program is an upper bound, the best point so far a lower one; a rank-weighted welfare has finitely
many pieces and is reached exactly. The multipliers of the cuts of d sum to pi_d, 0 <= pi_d <= 1/(q D), sum_d pi_d = 1:
the weights at which another policy would have to do better, sum_d pi_d g_d.V_d. For q = 1 the objective is the mean.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.errors import OutOfDomain
from evenhand.model.welfare import Welfare
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.solvers.column_generation.master import on_simplex
from evenhand.typing import Floats, Ints

MAX_ROUNDS = 60
"""Rounds of cutting planes after which the best point so far is returned."""

TOLERANCE = 1e-9
"""Feasibility tolerance of the linear programs, whose numbers are scaled to 1."""


def tail_weights(number: int, share: float) -> Floats:
    """(rank,) weights of sorted samples in the mean of the lowest part, the lowest first.

    Args:
        number: number of samples.
        share: size of that part, above 0 and at most 1.
    """
    return np.asarray(np.clip(share * number - np.arange(number), 0.0, 1.0) / (share * number))


def tail_mean(samples: Floats, share: float) -> float:
    """Return the mean of the lowest part of some samples; a fractional one counts in part.

    Args:
        samples: (sample,) numbers.
        share: size of that part, above 0 and at most 1.
    """
    return float(np.sort(samples) @ tail_weights(len(samples), share))


class TailOptimum(NamedTuple):
    """The best mixture in the worst scenarios."""

    shares: Floats
    """(policy,) shares."""

    value: float
    """Mean welfare of the worst scenarios."""

    bound: float
    """Upper bound over all mixtures of these policies."""

    weights: Floats
    """(scenario,) weights at the optimum; they sum to 1."""


# -- the search -------------------------------------------------------------------------------------------------------


def best_tail(values: Floats, welfare: Welfare, counts: Ints, share: float, precision: float = 1e-6) -> TailOptimum:
    """Maximise the mean welfare of the worst scenarios over mixtures.

    Args:
        values: (scenario, member, policy) values of each policy in each scenario.
        welfare: welfare of the members.
        counts: (member,) multiplicity of each member.
        share: share of the scenarios in the mean, above 0 and at most 1.
        precision: gap at which to stop, relative to the largest value.

    Raises:
        OutOfDomain: no policy is in the domain of the welfare in every scenario.
    """
    search = _Search(np.asarray(values, dtype=np.float64), welfare, counts, share)
    shares, best = search.first()
    scale = float(np.abs(values).max()) or 1.0
    bound, weights = np.inf, np.full(len(values), 1 / len(values))
    for _ in range(MAX_ROUNDS):
        bound, candidate, weights = search.program(scale)
        if bound - best <= precision * scale:
            break
        for part in (0.5, 1.0):  # a cut half-way stays clear of corners where the welfare is steep
            between = (1 - part) * shares + part * candidate
            if (found := search.cut(between)) > best:
                shares, best = between, found
    return TailOptimum(shares, best, max(bound, best), weights)


@dataclass
class _Search:
    """Cutting planes of the welfare in every scenario."""

    values: Floats
    welfare: Welfare
    counts: Ints
    share: float
    slopes: list[Floats] = field(default_factory=list)
    constants: list[Floats] = field(default_factory=list)
    scenarios: list[Ints] = field(default_factory=list)

    def first(self) -> tuple[Floats, float]:
        """Return the best of the policies alone, of equals the first; add the cuts of each."""
        every = np.eye(self.values.shape[2])
        found = [self.cut(shares) for shares in every]
        # To 12 digits, so that of equals the first is taken whatever the last bit.
        best = int(np.argmax(np.round(np.array(found) / (np.abs(self.values).max() or 1.0), 12)))
        if found[best] > -np.inf:
            return every[best], found[best]
        # A mixture may be in the domain where no policy alone is: try that of all.
        equal = np.full(len(every), 1 / len(every))
        if (together := self.cut(equal)) == -np.inf:
            raise OutOfDomain(f"no policy is in the domain of the welfare {self.welfare.name} in every draw")
        return equal, together

    def cut(self, shares: Floats) -> float:
        """Add the cuts at a mixture, and return the mean welfare of the worst scenarios; -inf outside the domain."""
        points = self.values @ shares
        try:
            heights = np.asarray(self.welfare(points, self.counts))
            slopes = self.welfare.supergradient(points, self.counts)
        except OutOfDomain:
            return -np.inf
        self.slopes.append(np.einsum("dm,dmk->dk", slopes, self.values))
        self.constants.append(heights - (slopes * points).sum(axis=1))
        self.scenarios.append(np.arange(len(points)))
        return tail_mean(heights, self.share)

    # -- the program --------------------------------------------------------------------------------------------------

    def program(self, scale: float) -> tuple[float, Floats, Floats]:
        """Return the optimum under the cuts so far, its (policy,) shares and the (scenario,) weights."""
        cuts = (
            np.concatenate(self.slopes) / scale,
            np.concatenate(self.constants) / scale,
            np.concatenate(self.scenarios),
        )
        slopes, constants, scenarios = _distinct(*cuts)
        # Columns theta, z, u; a row z - u_d - g.V_d theta <= constant per cut, and theta in the simplex.
        number, (rows, policies) = len(self.values), slopes.shape
        every = np.arange(rows)
        entries = [-slopes.reshape(-1), np.ones(rows), -np.ones(rows), np.ones(policies)]
        places = [
            (np.repeat(every, policies), np.tile(np.arange(policies), rows)),
            (every, np.full(rows, policies)),
            (every, policies + 1 + scenarios),
            (np.full(policies, rows), np.arange(policies)),
        ]
        at = tuple(np.concatenate([place[axis] for place in places]) for axis in (0, 1))
        columns = policies + 1 + number
        found = solve_program(
            LinearProgram(
                gains=np.concatenate([np.zeros(policies), [1.0], np.full(number, -1 / (self.share * number))]),
                matrix=sparse.csc_array((np.concatenate(entries), at), shape=(rows + 1, columns)),
                row_lower=np.append(np.full(rows, -np.inf), 1.0),
                row_upper=np.append(constants, 1.0),
                lower=np.concatenate([np.zeros(policies), [-np.inf], np.zeros(number)]),
                upper=np.full(columns, np.inf),
            ),
            tolerance=TOLERANCE,
        )
        # The multipliers of the cuts of a scenario sum to its weight (see the head of this file).
        weights = np.bincount(scenarios, weights=np.maximum(found.duals[:rows], 0.0), minlength=number)
        return found.objective * scale, on_simplex(found.primal[:policies]), on_simplex(weights.astype(np.float64))


def _distinct(slopes: Floats, constants: Floats, scenarios: Ints) -> tuple[Floats, Floats, Ints]:
    """Return every cut once: pieces of the welfare recur."""
    keys = np.column_stack([scenarios, np.round(np.column_stack([slopes, constants]), 13)])
    _, first = np.unique(keys, axis=0, return_index=True)
    first = np.sort(first)
    return slopes[first], constants[first], scenarios[first]
