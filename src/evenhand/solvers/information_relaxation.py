"""Information relaxation: an estimated bound that may lie below the Lagrangian one.

A policy that knew all transitions in advance would have more welfare than any policy that does not. What it gains by
knowing is charged by a penalty z with E[z] = 0 for every policy that does not know, so that

    V*  <=  E max over actions of (sum of discounted rewards - z).

With v_n(s) the Lagrangian values of arm n at prices lambda, take z = sum_t gamma^(t+1) sum_n v_n(s') - E[v_n(s')], and
for the first state v_n(s_0) - E[v_n(s_0)]. The inner problem is deterministic, and its budgets are relaxed by prices
lambda_t + y_t of each step and path. It then separates by arms, and only the advantages A_n <= 0 remain:

    max  <=  L + sum_t gamma^t y_t.b + sum_n J_n,      J_n = max sum_t gamma^t (A_n(s_t, a_t) - y_t.d_n(s_t, a_t))

with L the Lagrangian bound. At y = 0 that is L on every path; `kernels.path_prices` searches for better y. Hence the
bound is at most L path by path, and its standard error is that of the difference.

What is revealed: one uniform number per arm and step, which all actions share. Discounted time is cut after T steps,
where the Lagrangian values continue; the difference to L beyond them weighs gamma^T. With floors their prices enter A,
and for a welfare W(v) <= g.v, rewards are weighted by g.

References: D. B. Brown, J. E. Smith and P. Sun, "Information relaxations and duality in stochastic dynamic programs",
Operations Research 58(4), 2010; F. Ye, H. Zhu and E. Zhou, "Weakly coupled dynamic program: information and Lagrangian
relaxations", IEEE Transactions on Automatic Control 63(3), 2018; D. B. Brown and J. E. Smith, "Information relaxations
and duality in stochastic dynamic programs: a review and tutorial", Foundations and Trends in Optimization 5(3), 2022.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from evenhand import kernels
from evenhand.checks import as_generator, check_memory
from evenhand.display import Shown
from evenhand.errors import NotApplicableError, TooLargeError
from evenhand.model.criterion import Criterion
from evenhand.solvers.fluid.frontiers import FluidModel
from evenhand.solvers.single_arm import gains_at
from evenhand.typing import Floats, Indices, Rng

ROUNDS = 300
"""Price vectors per path."""

INSTEAD = "Use fewer arms, states or paths, or the method relaxation."


@dataclass(frozen=True)
class InformationBound(Shown):
    """An estimate of an upper bound by information relaxation: a mean over paths, not a proof."""

    welfare: str
    """Name of the welfare."""

    upper_bound: float
    """Estimate of the bound on the welfare of every policy; at most `relaxation_bound`."""

    stderr: float
    """Standard error of `upper_bound`."""

    relaxation_bound: float
    """The proved bound of the relaxation from which the search for prices began."""

    num_paths: int
    """Number of paths."""

    num_steps: int
    """Steps that are revealed."""

    proved = False
    """False: `upper_bound` is an estimate."""

    @property
    def confidence_bound(self) -> float:
        """One-sided confidence bound: with probability 95 % no policy has more welfare."""
        return min(self.upper_bound + NormalDist().inv_cdf(0.95) * self.stderr, self.relaxation_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("welfare", "upper_bound", "stderr", "confidence_bound", "relaxation_bound", "num_paths", "num_steps")
        return {"method": "information", "proved": self.proved} | {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        estimate = f"{self.welfare} at most {self.upper_bound:.4f} ± {self.stderr:.2g}"
        return f"InformationBound({estimate}, estimated; proved {self.relaxation_bound:.4f})"


def revealed_steps(criterion: Criterion) -> int:
    """Number of steps that are revealed: all, or until the remaining time weighs 1 %.

    Args:
        criterion: criterion of rewards over time.
    """
    if criterion.is_average:
        raise NotApplicableError(
            "bound: the method information is for the criteria discounted and finite:T. Use the method relaxation."
        )
    return criterion.judging_steps(0.01)


def check_size(model: FluidModel, num_paths: int, rounds: int = ROUNDS, most_operations: float = 2e11) -> None:
    """Refuse work that takes too long, or does not fit in memory.

    Args:
        model: the arms.
        num_paths: number of paths.
        rounds: price vectors per path.
        most_operations: elementary operations that take some minutes.
    """
    steps, number = revealed_steps(model.criterion), int(model.counts.sum())
    pairs = float(np.prod(model.types.rewards.shape[1:]))
    operations = rounds * pairs * number * steps * num_paths
    if operations > most_operations:
        raise TooLargeError(
            f"{num_paths} paths of {number} arms over {steps} steps take {operations:.1g} operations, above "
            f"{most_operations:.1g}. {INSTEAD}"
        )
    need = 8.0 * steps * (number * num_paths + 2 * pairs * (len(model) + number))
    check_memory(need, f"the paths of {number} arms", INSTEAD)


def lagrangian(model: FluidModel, weights: Floats, prices: Floats) -> tuple[float, Floats]:
    """The Lagrangian bound, and (type, layer, state, action) advantages of single arms at its prices.

    Args:
        model: the arms.
        weights: (type,) weight of the value of one arm.
        prices: (resource,) prices, or (step, resource).
    """
    bound, floor_prices = model.bound(weights, prices)
    types, criterion = model.types, model.criterion
    gains = gains_at(types, weights, prices, criterion, floor_prices)
    ahead = model.arms.best(np.arange(len(model)), gains).ahead
    following = ahead if criterion.is_stationary else criterion.following(ahead)
    if criterion.is_stationary:
        gains, ahead, following = gains[:, None], ahead[:, None], following[:, None]
    later = criterion.factor * np.einsum("tsaj,tuj->tusa", types.transitions, following)
    return bound, np.where(types.valid[:, None], gains + later - ahead[..., None], -np.inf)


def path_bounds(
    model: FluidModel, kinds: Indices, weights: Floats, prices: Floats, uniforms: Floats, rounds: int
) -> tuple[float, Floats]:
    """The Lagrangian bound, and (path,) differences to it: their mean is that of an information relaxation.

    Args:
        model: the arms.
        kinds: (arm,) type of each arm.
        weights: (type,) weights g with W(v) <= g.v, each of one arm.
        prices: (resource,) prices, or (step, resource).
        uniforms: (path, arm, step + 1) independent numbers in [0, 1): of the first state, and of each step.
        rounds: price vectors per path.
    """
    bound, advantages = lagrangian(model, weights, prices)
    # The last layer lasts, unless the horizon is finite.
    layers = np.minimum(np.arange(uniforms.shape[2] - 1), advantages.shape[1] - 1)
    by_layer = np.broadcast_to(prices, (advantages.shape[1], len(model.budget)))
    lower = -by_layer[layers]
    if model.spends_all is not None:
        lower = np.where(model.spends_all, -np.inf, lower)
    arms = kernels.PathArms(
        advantages=np.ascontiguousarray(advantages[:, layers]),
        usage=np.ascontiguousarray(model.types.usage),
        moves=_cumulative(model.types.transitions),
        starts=_cumulative(model.initial),
        kinds=kinds.astype(np.int64),
    )
    scale = 0.01 * max(abs(bound), 1e-300)
    factor = model.criterion.factor
    return bound, kernels.least_duals(arms, np.ascontiguousarray(lower), model.budget, factor, scale, uniforms, rounds)


def _cumulative(probabilities: Floats) -> Floats:
    """(..., state) cumulative probabilities, above 1 from the last possible state on."""
    sums = np.cumsum(probabilities, axis=-1)
    return np.where(sums >= sums[..., -1:], 2.0, sums)


def estimate_bound(
    model: FluidModel,
    kinds: Indices,
    weights: Floats,
    prices: Floats,
    proof: float,
    welfare: str,
    num_paths: int,
    rng: Rng,
    rounds: int = ROUNDS,
) -> InformationBound:
    """Estimate the bound by information relaxation.

    Args:
        model: the arms.
        kinds: (arm,) type of each arm.
        weights: (type,) weights g with W(v) <= g.v, each of one arm.
        prices: (resource,) prices, or (step, resource).
        proof: proved bound of the relaxation.
        welfare: name of the welfare.
        num_paths: number of paths, at least 2.
        rng: seed or generator of the paths.
        rounds: price vectors per path.
    """
    steps = revealed_steps(model.criterion)
    uniforms = as_generator(rng).random((num_paths, len(kinds), steps + 1))
    bound, below = path_bounds(model, kinds, weights, prices, uniforms, rounds)
    error = float(below.std(ddof=1) / np.sqrt(num_paths))
    return InformationBound(welfare, min(bound + float(below.mean()), proof), error, proof, num_paths, steps)
