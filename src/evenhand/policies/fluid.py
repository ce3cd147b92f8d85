"""Policies from the fair fluid relaxation, feasible at every step, for any number of actions and resources.

At the relaxation's optimum every arm has a weight g (what the welfare gives for a unit of its value) and every resource
a price lambda. With Q the action values of the single arm at these (`solvers.arms`),

    gain(s, a)  = Q(s, a) - Q(s, idle) + lambda.d(s, a)        what acting is worth over idling, before it is paid for
    score(s, a) = gain(s, a) / lambda.d(s, a)                  its worth per price: above 1 it pays

    fair_index          serve by score; of several actions first the one that is best at the prices. For two actions and
                        one resource this is an index policy whose indices are weighted by the welfare's supergradient.
    OccupancyPriority   draw each arm's action from the relaxation's occupancy measure; repair to the budget by score;
                        fill what is left of the budget by score.
    Resolving           as fair_index, but the prices are found anew every few steps from where the arms are now: the
                        dual of the residual relaxation, min sum_{t,s} x_t(s) V_t(s; lambda) + lambda.b/(1-gamma),
                        is read off a table of V over a grid of prices, so its cost depends on types, not on arms.
"""

from functools import cached_property
from itertools import product

import numpy as np

from evenhand.checks import check_memory, check_positive_int, check_shape
from evenhand.errors import NotApplicable
from evenhand.kernels.choosing import serve_by_rank, serve_by_rank_fast
from evenhand.kernels.randomness import draw_keys, grid, uniforms_at
from evenhand.model.coupled import CoupledMDP
from evenhand.policies.priority import (
    COMPILE_FROM,
    NOISE,
    ROUNDING,
    ExchangeablePriority,
    rank_scores,
    serveable_cells,
    value_noise,
)
from evenhand.reductions.counts import count_states
from evenhand.solvers.arms import action_values
from evenhand.typing import Bools, Floats, Indices, Ints

LEAST_WEIGHT = 1e-6
"""Arms of less weight than this, relative to the largest, count as if they had it."""

FREE = 1e4
"""Puts what costs nothing before all that costs something, on a logarithmic scale."""

SPREAD = 4.0
"""The grid of prices reaches from the relaxation's price divided by this to the price times this."""


def fair_index(problem: CoupledMDP, weights: Floats, prices: Floats) -> ExchangeablePriority:
    """Serve by worth per price, weighted by the welfare.

    Args:
        problem: the problem.
        weights: (type,) what a unit of an arm's value is worth, from the relaxation.
        prices: (resource,) what a unit of a resource is worth, from the relaxation.
    """
    return ExchangeablePriority(problem, service_scores(problem, weights, prices), threshold=0.0)


def service_scores(problem: CoupledMDP, weights: Floats, prices: Floats) -> Floats:
    """(type, state, action) whole numbers in the order of service; 0 where nothing is gained.

    The actions that are best at the prices come before all others; within each kind worth per price decides. Only the
    order matters, so worth of any size, down to arms of hardly any weight, is told apart. At the relaxation's own
    prices some actions are worth exactly their price: best but for rounding is best, worth equal but for rounding is
    equal.
    """
    return _service(problem, weights, prices)[0]


def _service(problem: CoupledMDP, weights: Floats, prices: Floats) -> tuple[Floats, Bools]:
    """The scores, and where an action is one of the best at the prices and gains something."""
    types = problem.types
    check_shape(weights, {"type": len(types)}, "weights")
    check_shape(prices, {"resource": problem.num_resources}, "prices")
    # Arms without weight wait until the others have what they need, but are not left in the lurch.
    weights = np.maximum(weights, LEAST_WEIGHT * weights.max())
    worth = action_values(types, weights, prices, problem.discount)
    best = np.where(types.valid, worth, -np.inf).max(axis=2)
    gain = _gains(problem, weights, best)
    cost = types.usage @ prices
    # The terms that an action's worth is summed from; where they cancel, what is left is rounding.
    size = np.maximum(np.abs(np.where(np.isfinite(best), best, 0.0)).max(axis=1), (gain + cost).max(axis=(1, 2)))
    preferred = (worth >= best[:, :, None] - value_noise(problem.discount) * size[:, None, None]) & (gain > 0)
    ranks = rank_scores(_log_worth(problem, gain, cost), -np.inf, rounding=ROUNDING)
    levels = int(ranks.max()) + 1
    return np.where(gain > 0, levels - ranks + preferred * levels, 0).astype(np.float64), preferred


def _gains(problem: CoupledMDP, weights: Floats, values: Floats) -> Floats:
    """(type, state, action) what acting is worth over idling, before it is paid for; 0 where that is nothing.

    Written as a difference of rewards and of moves, not of action values: prices, which may be far larger than the
    gain of an arm of little weight, do not enter.
    """
    types = problem.types
    rewards = types.rewards - np.take_along_axis(types.rewards, types.idle[:, :, None], axis=2)
    moves = types.transitions - np.take_along_axis(types.transitions, types.idle[:, :, None, None], axis=2)
    values = np.where(np.isfinite(values), values, 0.0)
    gain = weights[:, None, None] * rewards + problem.discount * np.einsum("tsaj,tj->tsa", moves, values)
    gain = np.where(types.valid, gain, 0.0)
    least = NOISE * np.maximum(gain.max(axis=(1, 2)), np.abs(values).max(axis=1))
    return np.where(gain > least[:, None, None], gain, 0.0)


def _log_worth(problem: CoupledMDP, gain: Floats, cost: Floats) -> Floats:
    """(type, state, action) the logarithm of worth per price; what is free comes first, by its share of the budget."""
    share = (problem.types.usage / np.where(problem.budget > 0, problem.budget, 1.0)).sum(axis=-1)
    gains = gain > 0
    with np.errstate(divide="ignore"):
        paid = np.log(gain, where=gains, out=np.zeros_like(gain)) - np.log(cost)
        free = FREE + np.log(gain, where=gains, out=np.zeros_like(gain)) - np.log(share)
    return np.where(gains, np.where(cost > 0, paid, free), -np.inf)


class OccupancyPriority:
    """Draws what the relaxation would do, then repairs and fills."""

    exchangeable = True

    def __init__(self, problem: CoupledMDP, occupancy: Floats, weights: Floats, prices: Floats) -> None:
        """Prepare the laws and the ranks.

        Args:
            problem: the problem.
            occupancy: (type, state, action) the relaxation's discounted visits.
            weights: (type,) what a unit of an arm's value is worth.
            prices: (resource,) what a unit of a resource is worth.
        """
        self.problem = problem
        self.occupancy, self.weights, self.prices = occupancy, weights, prices
        self.scores, preferred = _service(problem, weights, prices)
        self.laws = _laws(problem, occupancy, preferred)
        cells = np.where(serveable_cells(problem), self.scores, -np.inf)
        self.drawn_ranks = rank_scores(cells, -np.inf)
        fill = rank_scores(cells, 0.0)
        self.fill_ranks = np.where(fill >= 0, fill + self.drawn_ranks.max() + 1, -1).astype(np.int32)

    @cached_property
    def _cumulative(self) -> Floats:
        sums = np.cumsum(self.laws, axis=-1)
        return np.where(sums >= 1 - 1e-12, 1.0, sums)

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Draw, repair, fill."""
        problem, types = self.problem, self.problem.types
        draw, order = draw_keys(rng, 2)
        uniforms = uniforms_at(draw, grid(0, *states.shape))
        drawn = np.zeros(states.shape, dtype=np.int32)
        for action in range(types.valid.shape[2] - 1):
            drawn += uniforms >= self._cumulative[problem.type_of_arm, states, action]
        do = serve_by_rank_fast if states.size >= COMPILE_FROM else serve_by_rank
        tables = (problem.type_of_arm, self.fill_ranks, types.usage, types.idle, problem.budget_limit)
        return do(*tables, states, order, False, True, drawn, self.drawn_ranks)


def _laws(problem: CoupledMDP, occupancy: Floats, preferred: Bools) -> Floats:
    """(type, state, action) the relaxation's choice; where it never goes, the best action at the prices."""
    types = problem.types
    visits = occupancy.sum(axis=-1, keepdims=True)
    choice = np.where(preferred.any(axis=2), preferred.argmax(axis=2), types.idle)
    otherwise = np.arange(preferred.shape[2]) == choice[:, :, None]
    seen = visits > 1e-12 / (1 - problem.discount)
    return np.where(seen, np.maximum(occupancy, 0.0) / np.where(seen, visits, 1.0), otherwise)


class Resolving:
    """Serves by worth per price, at prices that fit where the arms are now. Plays by counts too."""

    exchangeable = True
    plays_by_counts = True

    def __init__(self, problem: CoupledMDP, weights: Floats, prices: Floats, every: int = 10, points: int = 33) -> None:
        """Tabulate values and orders of service over a grid of prices.

        Args:
            problem: the problem, with at most two resources.
            weights: (type,) what a unit of an arm's value is worth.
            prices: (resource,) the relaxation's prices, in the middle of the grid.
            every: steps between two looks at the prices.
            points: prices tried for one resource; for two, the square root of it each way, but at least 9.
        """
        check_positive_int(every, "every")
        if problem.num_resources > 2:
            raise NotApplicable(f"re-solving is for one or two resources; this problem has {problem.num_resources}")
        each = points if problem.num_resources == 1 else max(9, int(points**0.5))
        self.grid = np.array(list(product(*(_price_grid(price, each) for price in prices))))
        types = problem.types
        check_memory(60.0 * len(self.grid) * types.valid.size, "the tables of prices", "Use the fair-index policy.")
        self.problem, self.weights, self.prices = problem, weights, prices
        self.every, self.points = every, points
        worth = np.stack([action_values(types, weights, prices, problem.discount) for prices in self.grid])
        self.values = np.where(types.valid.any(axis=2), np.where(types.valid, worth, -np.inf).max(axis=3), 0.0)
        self.policies = [fair_index(problem, weights, prices) for prices in self.grid]

    def start(self, num_episodes: int, rng: np.random.Generator) -> "ResolvingActor":
        """An actor at the first step of `num_episodes` episodes."""
        return ResolvingActor(self)

    def best_prices(self, counts: Ints) -> Indices:
        """(episode,) the place in the grid of the prices that fit (episode, type, state) counts best."""
        rent = self.grid @ self.problem.budget / (1 - self.problem.discount)
        dual = np.einsum("ets,gts->eg", counts, self.values) + rent
        # Where the budget is just enough the dual is flat: of prices that fit equally well, the lowest.
        least = dual.min(axis=1, keepdims=True)
        fits = dual <= least + ROUNDING * np.abs(dual).max(axis=1, keepdims=True)
        return np.asarray(fits.argmax(axis=1), dtype=np.int32)


class ResolvingActor:
    """The prices of each episode in a batch."""

    def __init__(self, policy: Resolving) -> None:
        self.policy = policy
        self.step = 0
        self.place: Indices = np.zeros(0, dtype=np.int32)

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Look at the prices now and then; serve by score at them."""
        if self.step % self.policy.every == 0:
            self._look(count_states(self.policy.problem, states))
        self.step += 1
        actions = np.empty_like(states)
        for place in np.unique(self.place):
            rows = np.flatnonzero(self.place == place)
            actions[rows] = self.policy.policies[place].act(np.ascontiguousarray(states[rows]), rng)
        return actions

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """The same for crowds."""
        if self.step % self.policy.every == 0:
            self._look(counts)
        self.step += 1
        allocation = np.empty((*counts.shape, self.policy.problem.types.valid.shape[2]), dtype=np.int64)
        for place in np.unique(self.place):
            rows = np.flatnonzero(self.place == place)
            allocation[rows] = self.policy.policies[place].allocate(counts[rows], rng)
        return allocation

    def _look(self, counts: Ints) -> None:
        self.place = self.policy.best_prices(counts)


def _price_grid(price: float, points: int) -> Floats:
    """Prices around one, geometrically, with the price itself in the middle; only 0 if it is 0."""
    if price <= 0:
        return np.zeros(1)
    return np.asarray(price * SPREAD ** np.linspace(-1.0, 1.0, points | 1))
