"""Policies from the fair fluid relaxation, feasible at every step, for any number of actions and resources.

At the relaxation's optimum every arm has a weight g (what the welfare gives for a unit of its value), every resource
a price lambda, and an arm that a floor holds up a pay phi for being served. With Q the action values of the single arm
at these (`solvers.single_arm`), relative ones under the average, by step with a finite horizon,

    gain(s, a)  = Q(s, a) - Q(s, idle) + lambda.d(s, a)        what acting is worth over idling, before it is paid for
    score(s, a) = gain(s, a) / lambda.d(s, a)                  its worth per price: above 1 it pays

    fair_index           serve by score; of several actions first the one that is best at the prices. For two actions
                         and one resource an index policy whose indices are weighted by the welfare's supergradient.
    occupancy_priority   draw each arm's action from the relaxation's occupancy measure; repair to the budget by score;
                         fill what is left of the budget by score.
    Resolving            as fair_index, but the prices are found anew every few steps from where the arms are now: the
                         dual of the residual relaxation, min sum_{t,s} x_t(s) V_t(s; lambda) + lambda.b total, is read
                         off a table of V over a grid of prices, so its cost depends on types, not on arms. Under the
                         average it looks LOOK_AHEAD steps ahead, H rho + h in place of V.

With a finite horizon each of these has one table per step. A floor holds in the relaxation, in expectation; these
policies only lean towards it. `planning.mixture_search` finds mixtures that satisfy it (`planning.floors`).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

import numpy as np

from evenhand.checks import as_numbers, check_memory, check_positive_int, check_shape
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.kernels.randomness import draw_keys, grid, uniforms_at
from evenhand.kernels.rank_tables import RankTables, rank_tables
from evenhand.model.arm_matching import matched_types, table_rows
from evenhand.model.composite import TimeVaryingPolicy, steps_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, RankedService, ServiceOrder, first_of_each, order_by_rank
from evenhand.model.policy import BasePolicy, check_arrays, service_limits
from evenhand.model.stateful_policy import MOST, Actor, Memory, Remembered, RememberingPolicy, on_batches, read_memory
from evenhand.policies.priority import NOISE, ROUNDING, ExchangeablePriority, rank_scores, serveable_cells, value_noise
from evenhand.solvers.counts.reduction import count_states
from evenhand.solvers.single_arm import SingleArms, action_values, gains_at
from evenhand.typing import Array, ArrayLike, Bools, Floats, Indices, Ints, Rng

LEAST_WEIGHT = 1e-6
"""Arms of less weight than this, relative to the largest, count as if they had it."""

FREE = 1e4
"""Puts what costs nothing before all that costs something, on a logarithmic scale."""

LOOK_AHEAD = 20.0
"""Steps for which re-solving under the average balances use and budget; as a discount of 0.95 would."""


# -- fair-index: the order of service at given prices ----------------------------------------------------------------


def fair_index(
    problem: CoupledMDP, weights: ArrayLike, prices: ArrayLike, floor_prices: ArrayLike | None = None
) -> ExchangeablePriority | TimeVaryingPolicy:
    """Serve by worth per price, weighted by the welfare; by step with a finite horizon.

    Args:
        problem: the problem.
        weights: (type,) weights of arms' values in the welfare, from the relaxation.
        prices: (resource,) or (step, resource) dual prices of the resources, from the relaxation.
        floor_prices: (type,) value of being served in itself; none by default.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.fair_index(problem, np.ones(1) / 3, np.array([1.0]))
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    service = service_scores(problem, *read_relaxation(weights, prices, floor_prices))
    parts = [ExchangeablePriority(problem, scores, threshold=0.0) for scores, _ in service]
    return parts[0] if problem.criterion.is_stationary else TimeVaryingPolicy(parts)


def read_relaxation(
    weights: ArrayLike, prices: ArrayLike, floor_prices: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return weights, prices and prices of floors as arrays: they may come as lists."""
    pay = None if floor_prices is None else as_numbers(floor_prices, "floor_prices")
    return as_numbers(weights, "weights"), as_numbers(prices, "prices"), pay


def service_scores(
    problem: CoupledMDP, weights: Floats, prices: Floats, floor_prices: Floats | None
) -> list[tuple[Floats, Bools]]:
    """Return (type, state, action) scores of each step, and where the action is best at the prices and gains something.

    Scores are whole numbers in the order of service, 0 if nothing is gained. The actions that are best at the prices
    come before all others; within each kind worth per price decides. Only the order matters, so worth of any size, down
    to arms of hardly any weight, is distinguished. At the relaxation's own prices some actions are worth exactly their
    price: best but for rounding is best, worth equal but for rounding is equal.
    """
    types, steps, stationary = problem.types, problem.criterion.num_layers, problem.criterion.is_stationary
    check_shape(weights, {"type": len(types)}, "weights")
    by_step = not stationary and prices.ndim == 2
    shape: dict[str, int | None] = {"step": steps} if by_step else {}
    check_shape(prices, {**shape, "resource": problem.num_resources}, "prices")
    # Arms without weight wait until the others have what they need, but are served then.
    weights = np.maximum(weights, LEAST_WEIGHT * weights.max())
    worth = action_values(types, weights, prices, problem.criterion, floor_prices)
    if stationary:
        by_time = [fair_worth(problem, weights, prices, floor_prices, worth)]
    else:  # step t looks at the best values of step t + 1, and at nothing after the last
        best = np.where(types.valid[:, None], worth, -np.inf).max(axis=-1)
        ahead = np.concatenate([best[:, 1:], np.zeros_like(best[:, :1])], axis=1)
        every = np.broadcast_to(prices, (steps, problem.num_resources))
        by_time = [
            fair_worth(problem, weights, every[step], floor_prices, worth[:, step], ahead[:, step])
            for step in range(steps)
        ]
    scores = []
    for now, preferred in by_time:
        # Logarithms differ by shares of the worth, so that one rounding does for worth of any size.
        ranks = rank_scores(now, -np.inf, rounding=None if problem.spend else ROUNDING)
        levels = int(ranks.max()) + 1
        # From ranks, 0 first, to scores, the highest first; what is best at the prices is lifted above all others.
        scores.append((np.where(ranks >= 0, levels - ranks + preferred * levels, 0.0), preferred))
    return scores


def fair_worth(
    problem: CoupledMDP,
    weights: Floats,
    prices: Floats,
    floor_prices: Floats | None = None,
    worth: Floats | None = None,
    ahead: Floats | None = None,
) -> tuple[Floats, Bools]:
    """Return the worth by which `fair_index` serves at one step: each arm's depends on itself alone.

    Args:
        problem: the problem.
        weights: (type,) what a unit of an arm's value is worth, none of them 0.
        prices: (resource,) what a unit of a resource is worth.
        floor_prices: (type,) value of being served in itself; none by default.
        worth: (type, state, action) action values at these; those of an infinite horizon by default.
        ahead: (type, state) values of the next step; the best of `worth` by default.

    Returns:
        (type, state, action) the logarithm of worth per price, -inf where nothing is gained; if a budget must be spent,
        the worth per unit of the budgets, which may be negative. And (type, state, action) where the action is the best
        at the prices and gains something: these come first.
    """
    types = problem.types
    if worth is None:
        worth = action_values(types, weights, prices, problem.criterion, floor_prices)
    # (type, state) the best worth at the prices, idling among it.
    best = np.where(types.valid, worth, -np.inf).max(axis=2)
    gain = _gains(problem, weights, best if ahead is None else ahead, floor_prices)
    # (type, state, action) lambda.d of the head.
    cost = types.usage @ prices
    # (type,) size of the terms that an action's worth is summed from; where they cancel, what is left is rounding.
    size = np.maximum(np.abs(np.where(np.isfinite(best), best, 0.0)).max(axis=1), (gain + cost).max(axis=(1, 2)))
    preferred = worth >= best[:, :, None] - value_noise(problem.criterion) * size[:, None, None]
    preferred &= (gain > 0) | problem.spends_all.any()
    share = (types.usage / np.where(problem.budget > 0, problem.budget, 1.0)).sum(axis=-1)
    if problem.spends_all.any():
        per_share = gain / np.where(share > 0, share, 1.0)
        return np.where(serveable_cells(problem), per_share, -np.inf), preferred & (share > 0)
    # What is free comes first, by its share of the budget: FREE is beyond any logarithm of worth per price.
    gains = gain > 0
    log_gain = np.log(gain, where=gains, out=np.zeros_like(gain))
    with np.errstate(divide="ignore"):
        log_worth = np.where(cost > 0, log_gain - np.log(cost), FREE + log_gain - np.log(share))
    return np.where(gains, log_worth, -np.inf), preferred


def _gains(problem: CoupledMDP, weights: Floats, values: Floats, floor_prices: Floats | None) -> Floats:
    """(type, state, action) what acting is worth over idling, before it is paid for; 0 if that is nothing, or negative.

    If a budget must be spent, negative ones stay.

    Written as a difference of rewards and of moves, not of action values: prices, which may be far larger than the
    gain of an arm of little weight, do not enter.
    """
    types = problem.types
    # Everything as a difference to idling.
    rewards = types.rewards - np.take_along_axis(types.rewards, types.idle[:, :, None], axis=2)
    moves = types.transitions - np.take_along_axis(types.transitions, types.idle[:, :, None, None], axis=2)
    # Padded states have no value.
    values = np.where(np.isfinite(values), values, 0.0)
    gain = weights[:, None, None] * rewards + problem.criterion.factor * np.einsum("tsaj,tj->tsa", moves, values)
    if floor_prices is not None:
        gain = gain + floor_prices[:, None, None] * types.served
    gain = np.where(types.valid, gain, 0.0)
    # A gain that is smaller than the rounding of what it was computed from is none.
    least = NOISE * np.maximum(gain.max(axis=(1, 2)), np.abs(values).max(axis=1))
    size = np.abs(gain) if problem.spends_all.any() else gain
    return np.where(size > least[:, None, None], gain, 0.0)


# -- occupancy-priority: draw, repair, fill --------------------------------------------------------------------------


def occupancy_priority(
    problem: CoupledMDP,
    occupancy: ArrayLike,
    weights: ArrayLike,
    prices: ArrayLike,
    floor_prices: ArrayLike | None = None,
) -> "OccupancyPriority | TimeVaryingPolicy":
    """Draw what the relaxation would do, then repair and fill; by step with a finite horizon.

    Args:
        problem: the problem.
        occupancy: (type, state, action) the relaxation's visits; with a finite horizon (type, step, state, action).
        weights: (type,) weights of arms' values in the welfare.
        prices: (resource,) or (step, resource) dual prices of the resources.
        floor_prices: (type,) value of being served in itself; none by default.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> visits = np.array([[[6.0, 0.0], [7.0, 0.0], [0.0, 7.0]]])  # worn out, they are replaced
        >>> policy = eh.policies.occupancy_priority(problem, visits, np.ones(1) / 3, np.array([1.0]))
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    occupancy = as_numbers(occupancy, "occupancy")
    visits = [occupancy] if problem.criterion.is_stationary else list(np.moveaxis(occupancy, 1, 0))
    service = service_scores(problem, *read_relaxation(weights, prices, floor_prices))
    # Where the relaxation never goes it says nothing: the preferred action stands in.
    parts = [
        OccupancyPriority(problem, choice_of(problem, own, preferred), scores)
        for own, (scores, preferred) in zip(visits, service, strict=True)
    ]
    return parts[0] if problem.criterion.is_stationary else TimeVaryingPolicy(parts)


class OccupancyPriority(BasePolicy):
    """Draws what the relaxation would do, then repairs and fills."""

    exchangeable = True
    kind = "occupancy-priority"
    decides = "by ranks, with draws"

    def __init__(self, problem: CoupledMDP, laws: Floats, scores: Floats) -> None:
        """Prepare the ranks; `occupancy_priority` makes the tables from a relaxation.

        Args:
            problem: the problem.
            laws: (type, state, action) probabilities of what is drawn.
            scores: (type, state, action) whole numbers in the order of service; 0 for never.
        """
        self.problem, self.laws, self.scores = problem, laws, scores
        cells = np.where(serveable_cells(problem), self.scores, -np.inf)
        # All that may be drawn has a rank; what fills up must gain something, and comes after all that was drawn.
        self.drawn_ranks = rank_scores(cells, -np.inf)
        fill = rank_scores(cells, 0.0)
        self.fill_ranks = np.where(fill >= 0, fill + self.drawn_ranks.max() + 1, -1).astype(np.int32)

    def to_arrays(self) -> dict[str, Array]:
        """Return the tables of probabilities and scores."""
        return {"probabilities": self.laws, "scores": self.scores}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "OccupancyPriority":
        """Return the policy of these tables."""
        check_arrays(arrays, probabilities="f3", scores="f3")
        chances, scores = arrays["probabilities"], arrays["scores"]
        if chances.shape != problem.types.valid.shape or scores.shape != chances.shape:
            raise PolicyError("its tables do not fit the problem")
        # Padding may hold anything.
        sums, real = np.where(problem.types.real, chances, 0.0).sum(axis=2), problem.types.real.any(axis=2)
        if not (np.isfinite(scores).all() and (chances >= 0).all() and (np.abs(sums[real] - 1) <= 1e-8).all()):
            raise PolicyError("its probabilities do not sum to 1, or its scores are not finite")
        return cls(problem, chances, scores)

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "OccupancyPriority":
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        cells = table_rows(self.problem, problem, types)
        return OccupancyPriority(problem, self.laws[cells], self.scores[cells])

    def _drawn_at(self, decision: DecisionStep) -> Indices:
        """(arm,) actions drawn for a decision, by a copy of its stream, which is not used up."""
        drawn, _ = self.draw(decision.states[None], copy.deepcopy(decision.rng))
        return np.asarray(drawn[0], dtype=np.int32)

    def ranks_at(self, decision: DecisionStep) -> Indices:
        """(arm, action) ranks behind a decision: drawn actions before those that fill up the budget."""
        cells, hit = (
            (decision.types, decision.states),
            self._drawn_at(decision)[:, None] == np.arange(self.laws.shape[2]),
        )
        return np.where(hit, self.drawn_ranks[cells], self.fill_ranks[cells])

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action: the draw, then repair and filling up by rank."""
        drawn = self._drawn_at(decision)
        num_drawn = int(self.drawn_ranks.max()) + 1
        num_ranks = max(int(self.fill_ranks.max()) + 1, num_drawn)
        service = RankedService(decision, self.ranks_at(decision), num_ranks, num_drawn)
        chances = self.laws[decision.types, decision.states, drawn]
        columns = decision.types, decision.states, drawn, decision.actions
        cells = list(zip(*(column.tolist() for column in columns), strict=True))
        reasons = {}  # arms that agree in all of these share a reason
        for cell, arm in first_of_each(cells).items():
            chance, served = float(chances[arm]), bool(decision.served[arm])
            # Probabilities come from linear programs: 1 may lack a little.
            whom = "every arm" if chance > 0.9995 else f"{100 * chance:.3g} in 100 arms"
            meant = f"the plan gives {service.labels.doing(cell[0], cell[2])} to {whom} in this condition"
            waits = not served and service.level[arm] >= 0
            if cell[3] == cell[2] and not waits:
                reasons[cell] = f"{meant}, {service.reason(arm)}" if served else meant
            else:
                filled = " there was budget to fill up," if served else ""
                reasons[cell] = f"{meant};{filled} {service.reason(arm)}"
        return [reasons[cell] for cell in cells]

    def service_order(self, step: int = 0) -> ServiceOrder:
        """Return the conditions by rank: what may be drawn, then what fills up the budget."""
        ranks = np.where(self.laws > 0, self.drawn_ranks, self.fill_ranks).astype(np.int32)
        return order_by_rank(self.problem, ranks, self.decides, self.laws, int(self.drawn_ranks.max()) + 1)

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        if not isinstance(other, OccupancyPriority) or not np.array_equal(self.fill_ranks, other.fill_ranks):
            return False
        return np.allclose(self.laws, other.laws, atol=1e-9)

    @cached_property
    def _cumulative(self) -> Floats:
        sums = np.cumsum(self.laws, axis=-1)
        # The last sum may be just below 1; a draw beyond it would name an action that does not exist.
        return np.where(sums >= 1 - 1e-12, 1.0, sums)

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Draw, repair, fill."""
        drawn, order = self.draw(states, rng)
        return self.rank_tables.serve(states, order, drawn)

    @cached_property
    def rank_tables(self) -> RankTables:
        """Tables by which whole episodes are played in one compiled loop."""
        problem, (usage, limit) = self.problem, service_limits(self.problem)
        arms = (problem.type_of_arm, self.fill_ranks, usage, problem.types.idle, limit)
        return rank_tables(*arms, drawn=(self.drawn_ranks, self._cumulative))

    def draw(self, states: Indices, rng: np.random.Generator) -> tuple[Indices, np.uint64]:
        """The (episode, arm) actions that are drawn before repair, and the key of the order of equal ranks."""
        # Two keys: one for the draws, one for the order among equals, so that neither shifts the other.
        draw, order = draw_keys(rng, 2)
        uniforms = uniforms_at(draw, grid(0, *states.shape))
        drawn = np.zeros(states.shape, dtype=np.int32)
        # Inversion: the number of running sums at or below the draw.
        for action in range(self.laws.shape[2] - 1):
            drawn += uniforms >= self._cumulative[self.problem.type_of_arm, states, action]
        return drawn, order


def choice_of(problem: CoupledMDP, occupancy: Floats, preferred: Bools | None = None) -> Floats:
    """Return the choice of an occupancy measure: (type, state, action) probabilities, or with a step.

    Args:
        problem: the problem.
        occupancy: (type, state, action), or (type, step, state, action): visits.
        preferred: (type, state, action) the action where it never goes is the first of these; idling by default.
    """
    types = problem.types
    visits = np.maximum(occupancy, 0.0)
    sums = visits.sum(axis=-1, keepdims=True)
    otherwise = types.idle
    if preferred is not None:  # nothing preferred means that idling is best
        otherwise = np.where(preferred.any(axis=2), preferred.argmax(axis=2), otherwise)
    chosen = np.arange(types.valid.shape[2]) == otherwise[:, :, None]
    # Solvers leave traces of visits where there are none.
    seen = sums > 1e-12 * problem.criterion.total
    return np.where(seen, visits / np.where(seen, sums, 1.0), chosen if occupancy.ndim == 3 else chosen[:, None])


# -- re-solving: prices that follow the arms -------------------------------------------------------------------------


class Resolving(RememberingPolicy):
    """Serves by worth per price, at prices that fit where the arms are now. Plays by counts too."""

    plays_by_counts = True
    kind = "re-solving"

    def __init__(
        self,
        problem: CoupledMDP,
        weights: ArrayLike,
        prices: ArrayLike,
        every: int = 10,
        points: int = 33,
        floor_prices: ArrayLike | None = None,
    ) -> None:
        """Tabulate values over a grid of prices.

        Args:
            problem: the problem, with at most two resources.
            weights: (type,) weights of arms' values in the welfare.
            prices: (resource,) the relaxation's prices, in the middle of the grid; or (step, resource), which are
                all raised and lowered together.
            every: steps between two searches for prices.
            points: prices tried for one resource; for two, the square root of it each way, but at least 9.
            floor_prices: (type,) value of being served in itself; none by default.
        """
        check_positive_int(every, "every")
        weights, prices, floor_prices = read_relaxation(weights, prices, floor_prices)
        check_shape(weights, {"type": problem.num_types}, "weights")
        if problem.spends_all.any():
            raise NotApplicableError("re-solving is for budgets that need not be spent; use lp-update")
        if problem.num_resources > 2:
            raise NotApplicableError(f"re-solving is for one or two resources; there are {problem.num_resources}")
        # The grid is a product: with two resources as many points in all, unless that would be too coarse.
        each = points if problem.num_resources == 1 else max(9, int(points**0.5))
        # With a price per step, the largest stands for all of them in the grid.
        largest = prices.reshape(-1, problem.num_resources).max(axis=0)
        self.grid = np.array(list(product(*(_price_grid(price, each) for price in largest))))
        types, steps = problem.types, problem.criterion.num_layers
        # Values and ranks of every place, type, state and action, at every step.
        size = 60.0 * len(self.grid) * types.valid.size * steps
        check_memory(size, "the tables of prices", "Use the fair-index policy.")
        self.problem, self.weights, self.prices, self.floor_prices = problem, weights, prices, floor_prices
        self.every, self.points = every, points
        # By how much all prices are raised or lowered at each place.
        self.factors = self.grid / np.where(largest > 0, largest, 1.0)
        self.values, self.rent = _price_tables(self)
        self._policies: dict[int, ExchangeablePriority | TimeVaryingPolicy] = {}

    def to_arrays(self) -> dict[str, Array]:
        """Return weights and prices, and how often and how finely prices are searched."""
        numbers = {"every": np.array(self.every), "points": np.array(self.points)}
        found = {"weights": self.weights, "prices": self.prices, **numbers}
        return found if self.floor_prices is None else found | {"floor_prices": self.floor_prices}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "Resolving":
        """Return the policy of these weights and prices."""
        check_arrays(
            arrays, optional=["floor_prices"], weights="f1", prices="f12", every="iu0", points="iu0", floor_prices="f1"
        )
        points = int(arrays["points"])
        if not 1 <= points <= 10_000 or not all(np.isfinite(array).all() for array in arrays.values()):
            raise PolicyError(f"its weights and prices must be finite, and its points 1 to {10_000}")
        settings = int(arrays["every"]), points, arrays.get("floor_prices")
        return cls(problem, arrays["weights"], arrays["prices"], *settings)

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "Resolving":
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        rows = matched_types(self.problem, problem, types)
        pay = None if self.floor_prices is None else self.floor_prices[rows]
        return Resolving(problem, self.weights[rows], self.prices, self.every, self.points, pay)

    def _policy_now(self, decision: DecisionStep) -> ExchangeablePriority:
        assert isinstance(decision.actor, ResolvingActor)
        return self.policy_at(int(decision.actor.place[0]), decision.step)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action, by rank at the present prices."""
        return self._policy_now(decision).explain(decision)

    def ranks_at(self, decision: DecisionStep) -> Indices | None:
        """(arm, action) ranks at the present prices."""
        return self._policy_now(decision).ranks_at(decision)

    def service_order(self, step: int = 0) -> ServiceOrder:
        """Return the conditions by rank at the prices of the expected initial counts."""
        problem = self.problem
        start = np.round(problem.type_counts[:, None] * problem.types.initial).astype(np.int64)
        ranks = self.policy_at(int(self.best_prices(start[None], step)[0]), step).ranks
        return order_by_rank(problem, ranks, "by ranks that follow the states of the arms")

    def prices_at(self, place: int) -> Floats:
        """(resource,), or (step, resource): the prices at a place in the grid."""
        return np.asarray(self.grid[place] if self.prices.ndim == 1 else self.prices * self.factors[place])

    def pay_at(self, place: int) -> Floats | None:
        """(type,) price of the floors at a place in the grid, in proportion to the prices of resources."""
        return None if self.floor_prices is None else np.asarray(self.floor_prices * self.factors[place].max())

    def policy_at(self, place: int, step: int) -> ExchangeablePriority:
        """Return the policy of a step at a place in the grid; built at the first call."""
        if place not in self._policies:
            self._policies[place] = fair_index(self.problem, self.weights, self.prices_at(place), self.pay_at(place))
        parts = steps_of(self._policies[place])
        part = parts[step % len(parts)]
        assert isinstance(part, ExchangeablePriority)
        return part

    def start(self, num_episodes: int, rng: Rng = None) -> "ResolvingActor":
        """Return an actor at the first step of `num_episodes` episodes."""
        return ResolvingActor(self, np.full(num_episodes, -1, dtype=np.int32))

    def resume(self, memory: Mapping[str, ArrayLike]) -> "ResolvingActor":
        """Return an actor that continues where another one was; its memory is `step` and `place`.

        Args:
            memory: how many steps were played, and (episode,) where the prices of each are in the grid.
        """
        like = {"step": Remembered((), MOST), "place": Remembered(("episode",), len(self.grid), -1)}
        read = read_memory(memory, like)
        return ResolvingActor(self, read["place"].astype(np.int32), int(read["step"]))

    def best_prices(self, counts: Ints, step: int = 0) -> Indices:
        """(episode,) the place in the grid of the prices that fit (episode, type, state) counts best at a step."""
        # Played for longer than the horizon it begins again, as `TimeVaryingPolicy` does.
        now = step % self.values.shape[1]
        # The dual at every place of the grid: what arms are worth at the prices, and what the budget costs.
        dual = np.einsum("ets,gts->eg", counts, self.values[:, now]) + self.rent[:, now]
        # Where the budget is just enough the dual is flat: of prices that fit equally well, the lowest.
        least = dual.min(axis=1, keepdims=True)
        fits = dual <= least + ROUNDING * np.abs(dual).max(axis=1, keepdims=True)
        return np.asarray(fits.argmax(axis=1), dtype=np.int32)


def _price_tables(policy: Resolving) -> tuple[Floats, Floats]:
    """(grid, step, type, state) what arms are worth from a step on, and (grid, step) what the budget then costs.

    Without a finite horizon there is one step.
    """
    problem, criterion = policy.problem, policy.problem.criterion
    types = problem.types
    arms = SingleArms(types, types.valid, types.initial, criterion)
    values, rents = [], []
    for place in range(len(policy.grid)):
        prices, pay = policy.prices_at(place), policy.pay_at(place)
        # Discounted: V at the prices, and the budget over all time.
        if criterion.is_stationary and criterion.factor < 1:
            worth = action_values(types, policy.weights, prices, criterion, pay)
            best = np.where(types.valid, worth, -np.inf).max(axis=2)
            values.append(np.where(types.valid.any(axis=2), best, 0.0)[None])
            rents.append(np.atleast_1d(prices @ problem.usable_budget * criterion.total))
            continue
        found = arms.best(np.arange(len(types)), gains_at(types, policy.weights, prices, criterion, pay))
        # Average: H rho + h. Biases are known up to a constant, which is fixed by giving them mean 0 under the best
        # way.
        if criterion.is_stationary:
            centre = (found.measure.sum(axis=-1) * found.ahead).sum(axis=-1)
            values.append((found.ahead - centre[:, None] + LOOK_AHEAD * found.bound[:, None])[None])
            rents.append(np.atleast_1d(LOOK_AHEAD * (prices @ problem.usable_budget)))
            continue
        # Finite: values by step, and the cost of the budget that is still to come.
        values.append(np.moveaxis(found.ahead, 1, 0))
        cost = np.broadcast_to(prices @ problem.usable_budget, found.ahead.shape[1])
        sums = np.append(cost, 0.0)
        for step in reversed(range(len(cost))):
            sums[step] += criterion.factor * sums[step + 1]
        rents.append(sums[:-1])
    return np.stack(values), np.stack(rents)


class ResolvingActor(Actor):
    """The prices of each episode in a batch."""

    def __init__(self, policy: Resolving, place: Indices, step: int = 0) -> None:
        super().__init__(len(place))
        self.policy, self.place, self.step = policy, place, step

    def memory(self) -> Memory:
        """`step`, how many were played, and (episode,) `place`, where the prices of each are in the grid."""
        return {"step": np.array(self.step), "place": self.place.astype(np.int64)}

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Search prices now and then; serve by score at them."""
        actions = np.empty_like(states)
        for rows, policy in self._turn(lambda: count_states(self.policy.problem, states)):
            actions[rows] = policy.act(np.ascontiguousarray(states[rows]), rng)
        return actions

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Return the allocation of counts, at the same prices."""
        allocation = np.empty((*counts.shape, self.policy.problem.types.valid.shape[2]), dtype=np.int64)
        for rows, policy in self._turn(lambda: counts):
            allocation[rows] = policy.allocate(counts[rows], rng)
        return allocation

    def _turn(self, counts: Callable[[], Ints]) -> Iterator[tuple[Ints, ExchangeablePriority]]:
        """Yield the episodes at each place of the grid, and the policy there; there are few places."""
        # Prices that were never searched are searched at any step: an actor may start in the middle.
        if self.step % self.policy.every == 0 or self.place.min() < 0:
            self.place = self.policy.best_prices(counts(), self.step)
        step, self.step = self.step, self.step + 1
        for place in np.unique(self.place):
            yield np.flatnonzero(self.place == place), self.policy.policy_at(int(place), step)

    def skip_to(self, step: int) -> None:
        """Continue at this step."""
        self.step = step


def _price_grid(price: float, points: int) -> Floats:
    """Prices around one, geometrically, with the price itself in the middle; only 0 if it is 0."""
    if price <= 0:
        return np.zeros(1)
    # From a quarter to four times the price; `points | 1` is odd, so that the price itself is among them.
    return np.asarray(price * 4.0 ** np.linspace(-1.0, 1.0, points | 1))
