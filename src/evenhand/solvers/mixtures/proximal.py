"""Rank-weighted welfare of many members, by proximal steps on its weights; never a program of members x ranks.

    max_theta W(V theta) = max_theta min_g g.V theta,     g in the permutahedron P of the rank weights

Floors add phi.(S theta - f), phi >= 0. Each proximal step goes from weights h to

    argmin_{g in P} [ max_j (V'g)_j + |g - h|^2 / (2 sigma) ],

whose dual in the shares is smooth but for second derivatives, with one projection a value (`permutahedron`):

    max_theta F(theta) = min_{g in P} [ g.v + |g - h|^2 / (2 sigma) ],   v = V theta,   at  g = proj_P(h - sigma v)
    gradient V'g;      Hessian  -sigma V'(I - B)V,   B the mean over each block of members that the projection pools

It is maximised by Newton steps on the simplex, each a small quadratic program over the shares. All sums are weighted by
the counts of members. The function is polyhedral, so that a few steps with growing sigma end at the optimum itself
(Rockafellar, 1976; Li, Sun and Toh, 2018, for the like with other norms). Every g is in P whatever the rounding, and
proves a bound: W(V theta) <= max_j (V'g)_j for every theta. A step costs members x vectors^2.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.model.welfare import RankWeighted
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Support
from evenhand.solvers.mixtures.simplex_newton import climb
from evenhand.solvers.permutahedron import pool_types
from evenhand.typing import Floats, Ints

GROWTH = 8.0
"""How much longer each proximal step is than the last."""

LONGEST = 1e3
"""The longest step, in units of the largest weight: beyond, the projection would lose its digits."""

MOST_STEPS = 40
"""Proximal steps after which the best so far is given."""

MOST_NEWTON = 60
"""Newton steps within a proximal step."""


MOST_HALVINGS = 30
"""Trials along a Newton step."""


class _Point(NamedTuple):
    """F at some shares."""

    value: float
    """F."""

    weights: Floats
    """(member,) g of one arm of each member."""

    prices: Floats
    """(floor,) phi."""

    blocks: Ints
    """(member,) the block that each member is pooled in."""


# -- the master -------------------------------------------------------------------------------------------------------


@dataclass
class ProximalMaster:
    """The best shares, from where the last call ended."""

    welfare: RankWeighted
    counts: Ints
    floors: Floats
    best: Floats
    precision: float
    centre: tuple[Floats, Floats] | None = None

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the weights of the last proximal step."""
        M = len(self.counts)
        problem = _Proximal(self.welfare, self.counts, matrix[:M], matrix[M:], self.floors)
        theta = np.pad(self.best, (0, matrix.shape[1] - len(self.best)))
        centre = self.centre or (problem.first_weights(), np.zeros(len(self.floors)))
        theta, self.centre = problem.solve(theta, *centre, self.precision)
        self.best = theta
        weights, prices = self.centre
        return theta, Support(np.concatenate([self.counts * weights, prices]), 0.0)


# -- proximal steps ---------------------------------------------------------------------------------------------------


@dataclass
class _Proximal:
    """The problem of some vectors."""

    welfare: RankWeighted
    counts: Ints
    members: Floats
    served: Floats
    floors: Floats
    floor_unit: float = 1.0
    """How much longer steps of prices are than those of weights: prices are of the size of values."""

    def first_weights(self) -> Floats:
        """(member,) those of the mean."""
        return np.full(len(self.counts), 1.0 / self.counts.sum())

    def solve(
        self, theta: Floats, weights: Floats, prices: Floats, precision: float
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """Shares, and weights and prices that prove them, to the relative precision."""
        # How much a policy can change a member's value: what steps are measured by.
        spread = float(np.ptp(self.members, axis=1).max()) or float(np.abs(self.members).max()) or 1.0
        # The first step moves weights by about 1/N, which is what they are.
        sigma = 1.0 / (self.counts.sum() * spread)
        longest = LONGEST * self._largest_weight() / spread
        self.floor_unit = float(self.counts.sum()) * spread**2
        best_value, best_bound = self._value(theta), np.inf
        best, kept = (theta, (weights, prices)), theta
        for _ in range(MOST_STEPS):
            theta, point = self._step(theta, weights, prices, sigma, precision)
            within = self._within_floors(theta, kept)
            value, bound = self._value(within), self._bound(point)
            # Shares and proof are kept apart: the best of each may come from different steps.
            if value > best_value:
                best_value, best = value, (within, best[1])
            if bound < best_bound:
                best_bound, best = bound, (best[0], (point.weights, point.prices))
            if best_bound - best_value <= precision * max(abs(best_bound), 1e-12):
                break
            # Growing steps end at the optimum itself, since the function is polyhedral.
            weights, prices, sigma = point.weights, point.prices, min(GROWTH * sigma, longest)
        return best

    def _within_floors(self, theta: Floats, kept: Floats) -> Floats:
        """As near to the shares as the floors allow, on the way to shares that keep them."""
        # On the way to `kept` a broken floor rises from `over` to `safe`, and is 0 at over / (over - safe) of it.
        over, safe = self.served @ theta - self.floors, self.served @ kept - self.floors
        broken = over < -FLOOR_SLACK
        part = float((over / np.minimum(over - safe, -1e-300))[broken].max(initial=0.0))
        return theta + min(part, 1.0) * (kept - theta)

    def _largest_weight(self) -> float:
        return float(self.welfare.rank_mass(np.array(0), np.array(1), int(self.counts.sum())))

    def _value(self, theta: Floats) -> float:
        return float(self.welfare(self.members @ theta, self.counts))

    def _bound(self, point: _Point) -> float:
        return float(self._gradient(point).max() - point.prices @ self.floors)

    def _gradient(self, point: _Point) -> Floats:
        """(policy,) V'g + S'phi."""
        return np.asarray((self.counts * point.weights) @ self.members + point.prices @ self.served)

    # -- Newton steps within one --------------------------------------------------------------------------------------

    def _step(
        self, theta: Floats, weights: Floats, prices: Floats, sigma: float, precision: float
    ) -> tuple[Floats, _Point]:
        """One proximal step: Newton steps in the shares until no vector is better by the weights."""
        point = self._point(theta, weights, prices, sigma)
        for _ in range(MOST_NEWTON):
            gradient = self._gradient(point)
            # How much better the best vector is by the weights than the mixture: 0 at the optimum.
            short = float(gradient.max() - gradient @ theta)
            if short <= 0.1 * precision * max(abs(float(gradient.max())), 1e-12):
                break
            target = climb(theta, gradient, self._curvature(point, sigma))
            moved = self._search(theta, target, point, weights, prices, sigma)
            # Rounding: the model promises a rise that is none.
            if moved is None:
                break
            theta, point = moved
        return theta, point

    def _search(
        self, theta: Floats, target: Floats, point: _Point, weights: Floats, prices: Floats, sigma: float
    ) -> tuple[Floats, _Point] | None:
        """Where the slope along the step has gone, or the whole of it; None where it does not rise."""
        step = target - theta
        slope = float(self._gradient(point) @ step)
        if slope <= 0:
            return None
        low, high, at_low, at_high = 0.0, 1.0, slope, np.inf
        part, best = 1.0, None
        for _ in range(MOST_HALVINGS):
            found = self._point(theta + part * step, weights, prices, sigma)
            now = float(self._gradient(found) @ step)
            if now >= 0:  # no loss so far: the function is concave
                low, at_low, best = part, now, (theta + part * step, found)
            else:
                high, at_high = part, now
            if low == 1.0 or (best is not None and abs(now) <= 0.1 * slope):
                break
            # the slope falls piecewise linearly: where its chord meets 0, but not too near to an end
            chord = low + (high - low) * at_low / (at_low - at_high)
            part = float(np.clip(chord, low + 0.1 * (high - low), high - 0.1 * (high - low)))
        return best

    def _point(self, theta: Floats, weights: Floats, prices: Floats, sigma: float) -> _Point:
        values = self.members @ theta
        # what all have in common does nothing to the projection but cost digits
        common = float(self.counts @ values) / self.counts.sum()
        found, blocks = pool_types(weights - sigma * (values - common), self.counts, self.welfare)
        found = pool_types(found, self.counts, self.welfare)[0]  # the digits that a long step has lost
        over = self.served @ theta - self.floors
        charged = np.maximum(prices - sigma * self.floor_unit * over, 0.0)
        # The squared distances of weights and prices, each in its unit.
        moved = self.counts @ (found - weights) ** 2 + float(((charged - prices) ** 2).sum()) / self.floor_unit
        value = (self.counts * found) @ values + charged @ over + moved / (2 * sigma)
        return _Point(float(value), found, charged, blocks)

    def _curvature(self, point: _Point, sigma: float) -> Floats:
        """(policy, policy) sigma V'(I - B)V, and the same of the floors that are charged."""
        # Within a block the projection takes back what its members change together; only differences curve F.
        mass = np.bincount(point.blocks, weights=self.counts)
        shared = np.flatnonzero((np.bincount(point.blocks) > 1)[point.blocks])  # who is alone in a block stays
        roots = np.sqrt(self.counts[shared])[:, None]
        rows, blocks = self.members[shared], point.blocks[shared]
        sums = np.zeros((len(mass), rows.shape[1]))
        np.add.at(sums, blocks, self.counts[shared, None] * rows)
        apart = roots * (rows - sums[blocks] / mass[blocks, None])
        charged = self.served[point.prices > 0]
        return np.asarray(sigma * (apart.T @ apart + self.floor_unit * (charged.T @ charged)))
