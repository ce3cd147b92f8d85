"""The master of a power mean: a smooth concave program on the simplex, by a barrier method with Newton steps.

    max f(theta) + mu [ sum_i log theta_i + sum_k log(s_k(theta) - f_k) ],    f(theta) = sum_t (c_t / N) u(v_t / W)

with v = V theta, W the welfare there, and mu falling. The step d keeps sum theta = 1; relative to the shares
its system has the curvature of f, mu on the diagonal from the shares, and mu / slack^2 from the floors. At the end the
gradient g of W is the support: with k vectors and floors together, no vector is better than the mixture by more than
k mu W. The slack of a floor that holds has lost its digits by then, so its price is not mu / slack, but comes from

    min_phi max_j [ (V'g)_j + phi.(S_j - f) ],    phi >= 0.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.model.welfare import PowerMean
from evenhand.solvers._highs import LinearProgram
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Support, on_simplex
from evenhand.solvers.refinement import solve_precisely
from evenhand.typing import Floats, Ints

LAST_BARRIER, LOWER = 1e-13, 0.05
"""The smallest barrier, and by how much each is lower than the one before."""

MOST_NEWTON = 50
"""Newton steps at one barrier."""


@dataclass
class SmoothMaster:
    """The best shares of some vectors; each call begins at the same interior point, padded."""

    welfare: PowerMean
    counts: Ints
    floors: Floats
    interior: Floats
    precision: float

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, the gradient there, and the prices of the floors."""
        M, num_vectors = len(self.counts), matrix.shape[1]
        start = np.pad(self.interior, (0, num_vectors - len(self.interior)))
        program = _Program(self.welfare, self.counts, matrix[:M], matrix[M:] - (self.floors - FLOOR_SLACK)[:, None])
        # k mu W is what the last barrier leaves open: a tenth of the precision, unless rounding comes first.
        last = max(0.1 * self.precision / (num_vectors + len(self.floors)), LAST_BARRIER)
        theta = program.solve(program.blend(start), last)
        weights = self.welfare.supergradient(matrix[:M] @ theta, self.counts)
        prices = _prices(weights @ matrix[:M], matrix[M:] - self.floors[:, None])
        return theta, Support(np.concatenate([weights, prices]), 0.0)


def _prices(worth: Floats, over: Floats) -> Floats:
    """(floor,) the prices at which the best vector is worth the least.

    Args:
        worth: (policy,) what each vector is worth without the floors.
        over: (floor, policy) how far each is above the floors.
    """
    number, size = len(over), len(worth)
    if not number:
        return np.zeros(0)
    unit = float(np.abs(worth).max()) or 1.0
    solution = solve_precisely(
        LinearProgram(
            gains=np.append(np.zeros(number), -1.0),
            matrix=sparse.csc_array(np.column_stack([-over.T, np.ones(size)])),
            row_lower=worth / unit,
            row_upper=np.full(size, np.inf),
            lower=np.append(np.zeros(number), -np.inf),
            upper=np.full(number + 1, np.inf),
        )
    )
    return unit * np.maximum(solution.primal[:-1], 0.0)


@dataclass
class _Program:
    """The program of some vectors."""

    welfare: PowerMean
    counts: Ints
    members: Floats
    over: Floats
    """(floor, policy) how far each policy is above the floors. Not what it has of them: where a floor asks for nearly
    all that there is, their difference is all that counts, and would be lost in sums of what is larger."""

    def slack(self, theta: Floats) -> Floats:
        """(floor,) how far above its floor each is."""
        return np.asarray(self.over @ theta)

    def positive(self, theta: Floats) -> Floats:
        """(member or floor,) what must stay positive."""
        return np.concatenate([self.members @ theta, self.slack(theta)])

    def blend(self, interior: Floats) -> Floats:
        """As near to equal shares as keeps at least half of all that must stay positive."""
        even = np.full(len(interior), 1.0 / len(interior))
        safe, other = self.positive(interior), self.positive(even)
        if (safe <= 0).any():  # only where the welfare allows it
            return even
        # Half of the way at most to where something ends, so that half of all is kept.
        part = min(0.5, 0.5 * _room(safe, other - safe))
        return (1 - part) * interior + part * even

    def solve(self, theta: Floats, last: float) -> Floats:
        """The best shares, the barrier falling to the last."""
        barrier = 1.0
        while True:
            for _ in range(MOST_NEWTON):
                theta, decrement = self._newton(theta, barrier)
                if decrement <= 0.01 * barrier:
                    break
            if barrier <= last:
                return theta
            barrier = max(LOWER * barrier, last)

    def _newton(self, theta: Floats, barrier: float) -> tuple[Floats, float]:
        """One damped step, and the squared decrement before it."""
        values, slack, alpha = self.members @ theta, self.slack(theta), self.welfare.aversion
        # Values relative to the welfare: then f has slopes of about 1 whatever the units.
        scale = float(self.welfare(values, self.counts))
        slope = self.counts / self.counts.sum() * (values / scale) ** -alpha / scale
        shared = self.members * theta  # in units of the shares: no share is too small to be told
        charged = self.over * theta  # steps keep the sum of shares, so what all have alike counts for nothing
        gradient = slope @ shared + barrier / slack @ charged + barrier
        bent = np.sqrt(alpha * slope / values)[:, None] * shared
        steep = np.sqrt(barrier) / slack[:, None] * charged
        curvature = bent.T @ bent + steep.T @ steep + barrier * np.eye(len(theta))
        step, decrement = _step(curvature, gradient, theta)
        # Not quite to the boundary, where the barrier is infinite.
        room = 0.99 * min(_room(np.ones_like(theta), step), _room(values, shared @ step), _room(slack, charged @ step))
        # Damped as for self-concordant functions: far from the optimum the model is not to be trusted.
        length = min(1.0, room, 1.0 / (1.0 + np.sqrt(decrement / barrier)))
        return on_simplex(theta * (1.0 + length * step)), decrement


def _step(curvature: Floats, gradient: Floats, theta: Floats) -> tuple[Floats, float]:
    """(policy,) the Newton step, relative to the shares, that keeps their sum, and the squared decrement."""
    size = len(gradient)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = -curvature
    system[:size, size] = system[size, :size] = theta
    try:
        step = np.linalg.solve(system, np.concatenate([-gradient, [0.0]]))[:size]
    except np.linalg.LinAlgError:  # a floor that holds to the last digit outweighs all else: here the way ends
        return np.zeros(size), 0.0
    return step, max(float(gradient @ step), 0.0)


def _room(point: Floats, step: Floats) -> float:
    """How far along the step every entry stays positive."""
    falling = step < 0
    return float((-point[falling] / step[falling]).min(initial=np.inf))
