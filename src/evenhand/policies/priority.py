"""Greedy by score: again and again the best (arm, action) that still fits is served, the rest idle.

Scores are a table over cells (type, state, action); cells at or below a threshold are never served. Equal scores
compete arm by arm in random order, which makes the policy exchangeable: arms of one type and state are alike to it.

Exact law on counts. Within a group of equal scores, arms come in uniformly random order, so the next one served is
drawn with probability proportional to the arms left in each cell whose usage still fits:

    P(next is cell c) = x_c / (sum of x over cells of the group that fit [+ 1 if stopping competes]).

The law of the allocation follows by unrolling these draws; allocations reached by several orders are merged.
"""

from collections.abc import Sequence
from functools import cached_property
from math import comb

import numpy as np

from evenhand.checks import check_shape
from evenhand.errors import InvalidInputError, TooLargeError
from evenhand.kernels.priorities import LARGEST_DISTRIBUTION
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import RankTables, rank_tables
from evenhand.model import MOST_ARMS, CoupledMDP, Criterion
from evenhand.model.arm_matching import table_rows
from evenhand.model.explanations import DecisionStep, ServiceOrder, explain_by_rank, order_by_rank
from evenhand.model.policy import BasePolicy, check_arrays, service_limits
from evenhand.model.simulator import Problem, needs_tables
from evenhand.model.stateful_policy import on_batches
from evenhand.typing import Array, Floats, Indices, Ints

MOST_DRAWS = 200_000
"""One-by-one draws of a group of equal scores and unequal usage, beyond which counts are refused."""

ROUNDING = 1e-9
"""Scores that differ by less than this share of themselves differ by rounding, which no two processors share."""

NOISE = 1e-12
"""The same as a share of the largest score: what is left of a number that should be 0."""


class PriorityPolicy(BasePolicy):
    """Serves the highest scores first; of equal scores the first arm."""

    kind = "ordered-priority"
    decides = "by fixed ranks, of equals the first arm"

    shuffle = False
    stop = False

    def __init__(self, problem: Problem, scores: Floats, threshold: float = -np.inf) -> None:
        """Prepare the ranks.

        Args:
            problem: the problem, or a simulator: only usage is used.
            scores: (type, state, action) scores; those of idle actions do not matter.
            threshold: cells with a score at or below it are never served.
        """
        types = problem.types
        check_shape(
            scores, {"type": len(types), "state": types.valid.shape[1], "action": types.valid.shape[2]}, "scores"
        )
        if np.isnan(scores[types.valid]).any():
            raise InvalidInputError("scores: some are not numbers")
        if np.isnan(threshold):  # nothing would be above it, and no arm served
            raise InvalidInputError("threshold: expected a number, got nan")
        self.problem = problem
        self.scores = scores
        self.threshold = threshold
        # Idle cells have no rank: idling is what is left. What must be spent is spent whatever its score.
        must = (types.usage[..., problem.spends_all] > 0).any(axis=-1)
        ranked = must | (scores > threshold)
        self.ranks = rank_scores(np.where(serveable_cells(problem) & ranked, scores, -np.inf), -np.inf)

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Serve each episode's arms by score."""
        return self.rank_tables.serve(states, draw_keys(rng, 1)[0])

    @cached_property
    def rank_tables(self) -> RankTables:
        """Tables by which whole episodes are played in one compiled loop."""
        usage, limit = self._limits
        arms = (self.problem.type_of_arm, self.ranks, usage, self.problem.types.idle, limit)
        return rank_tables(*arms, self.stop, self.shuffle)

    @cached_property
    def _limits(self) -> tuple[Floats, Floats]:
        return service_limits(self.problem)

    def to_arrays(self) -> dict[str, Array]:
        """Return scores and threshold."""
        return {"scores": self.scores, "threshold": np.array(self.threshold)}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "PriorityPolicy":
        """Return the policy of these scores."""
        check_arrays(arrays, scores="f3", threshold="f0")
        return cls(problem, arrays["scores"], float(arrays["threshold"]))

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "PriorityPolicy":
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        scores = self.scores[table_rows(self.problem, problem, types)]
        return self.from_arrays(problem, self.to_arrays() | {"scores": scores})


# -- equal scores in random order: by counts, and their law ----------------------------------------------------------


class ExchangeablePriority(PriorityPolicy):
    """Serves the highest scores first; equal scores in random order."""

    kind = "priority"
    decides = "by fixed ranks"
    shuffle = True

    def __init__(self, problem: Problem, scores: Floats, threshold: float = -np.inf, stop: bool = False) -> None:
        """Prepare the ranks.

        Args:
            problem: the problem, or a simulator: only usage is used.
            scores: (type, state, action) scores; those of idle actions do not matter.
            threshold: cells with a score at or below it are never served.
            stop: whether stopping competes as one more candidate; only if all scores are equal.
        """
        super().__init__(problem, scores, threshold)
        if stop and self.ranks.max() > 0:
            raise InvalidInputError("stop: stopping can compete only if all scores are equal")
        self.stop = stop

    def to_arrays(self) -> dict[str, Array]:
        """Return scores and threshold, and whether stopping competes."""
        return {**super().to_arrays(), "stop": np.array(self.stop)}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "ExchangeablePriority":
        """Return the policy of these scores."""
        check_arrays(arrays, scores="f3", threshold="f0", stop="b0")
        return cls(problem, arrays["scores"], float(arrays["threshold"]), bool(arrays["stop"]))

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action, by rank."""
        if self.stop:
            return decision.each("drawn at random", "not drawn; who is served is random")
        return explain_by_rank(decision, self.ranks)

    def ranks_at(self, decision: DecisionStep) -> Indices | None:
        """(arm, action) ranks behind a decision; None if it is random."""
        return None if self.stop else self.ranks[decision.types, decision.states]

    def service_order(self, step: int = 0) -> ServiceOrder:
        """Return the conditions by rank."""
        if self.stop:
            return ServiceOrder((), "arms drawn at random", ranked=True)
        return order_by_rank(needs_tables(self.problem, "an order of service"), self.ranks, self.decides)

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        if not isinstance(other, ExchangeablePriority):
            return False
        return self.stop == other.stop and np.array_equal(self.ranks, other.ranks)

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Serve each episode's crowds by score."""
        types = self.problem.types
        # Both are changed rank by rank: arms that are not yet served, and the budget that is left.
        left = counts.copy()
        budget = np.repeat(self._limits[1][None], len(counts), axis=0)
        allocation = np.zeros((*counts.shape, types.valid.shape[2]), dtype=np.int64)
        for group, usage, equal in self._groups:
            serve = self._serve_equal if equal else self._serve_one_by_one
            serve(group, usage, left, budget, allocation, rng)
        # Arms that were not served idle.
        kinds, states = np.indices(types.idle.shape)
        allocation[:, kinds, states, types.idle] += left
        return allocation

    @cached_property
    def _groups(self) -> list[tuple[Ints, Floats, bool]]:
        """The (cell, 3) cells of each rank, what they use, and whether it is the same, by one action a state."""
        found = []
        for rank in range(self.ranks.max() + 1):
            group = np.argwhere(self.ranks == rank)
            usage = self._limits[0][tuple(group.T)]
            # One action a state: then no arm is drawn twice, and equal usage makes all draws alike.
            one_action = len(np.unique(group[:, :2], axis=0)) == len(group)
            found.append((group, usage, one_action and bool((usage == usage[0]).all())))
        return found

    def _serve_equal(
        self, group: Ints, usage: Floats, left: Ints, budget: Floats, allocation: Ints, rng: np.random.Generator
    ) -> None:
        """Equal usage: how many are served is known at once, and who they are is hypergeometric.

        This and the next change `left`, `budget` and `allocation` in place.
        """
        need = usage[0]
        crowd = left[:, group[:, 0], group[:, 1]]
        total = crowd.sum(axis=1)
        served = np.minimum(total, _room(need, budget))
        # Stopping is one more candidate among `total`: the number drawn before it is uniform from 0 to all.
        if self.stop:
            served = np.minimum(served, rng.integers(0, total + 1))
        # One cell after another: of the draws that are left, how many fall on this cell and not on those after it.
        remaining, draws = total, served
        for column, (kind, state, action) in enumerate(group):
            remaining = remaining - crowd[:, column]
            taken = _hypergeometric(crowd[:, column], remaining, draws, rng)
            draws = draws - taken
            allocation[:, kind, state, action] += taken
            left[:, kind, state] -= taken
        budget -= served[:, None] * need

    def _serve_one_by_one(
        self, group: Ints, usage: Floats, left: Ints, budget: Floats, allocation: Ints, rng: np.random.Generator
    ) -> None:
        """Unequal usage: draw arm after arm, all episodes at once."""
        most = int(min(left.sum(axis=(1, 2)).max(), _room(usage, self._limits[1]).max()))
        if most > MOST_DRAWS:
            raise TooLargeError(
                f"up to {most} arms would have to be drawn one by one, since equal scores use different amounts. "
                "Use simulate on fewer arms, or scores without ties."
            )
        episodes = np.arange(len(left))
        live = np.ones(len(left), dtype=np.bool_)
        while live.any():
            # (episode, cell) arms that are left and fit.
            crowd = left[:, group[:, 0], group[:, 1]] * (usage[None] <= budget[:, None]).all(axis=2)
            sums = np.cumsum(crowd, axis=1)
            total = sums[:, -1] + self.stop
            point = rng.random(len(left)) * total
            # Beyond all arms lies stopping, the cell after the last.
            cell = (point[:, None] >= sums).sum(axis=1)
            # An episode ends when no arm fits, or stopping was drawn.
            live &= (sums[:, -1] > 0) & (cell < len(group))
            rows, chosen = episodes[live], cell[live]
            kind, state, action = group[chosen].T
            allocation[rows, kind, state, action] += 1
            left[rows, kind, state] -= 1
            budget[rows] -= usage[chosen]

    @property
    def most_choices(self) -> float:
        """The allocations that may be drawn at one count state, at the most, roughly: those within one rank."""
        most = 1.0
        for group, usage, equal in self._groups:
            served = min(self.problem.num_arms, int(_room(usage, self._limits[1]).max()))
            # Ways to spread so many units over the cells; over one cell more if not all need be spent.
            cells = len(group) - (equal and not self.stop)
            most = max(most, float(comb(served + cells, cells)))
        return most

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """The law of the allocation at (type, state) counts."""
        types = self.problem.types
        # Allocations as bytes, so that those reached by several orders are one key.
        law: dict[bytes, float] = {np.zeros(types.valid.shape, dtype=np.int64).tobytes(): 1.0}
        for group, usage, _ in self._groups:
            law = self._law_of_group(group, usage, counts, law)
        allocations = np.stack([np.frombuffer(key, dtype=np.int64).reshape(types.valid.shape) for key in law])
        kinds, states = np.indices(types.idle.shape)
        allocations = allocations.copy()
        # The law is of who is served; the others idle.
        allocations[:, kinds, states, types.idle] += counts - allocations.sum(axis=-1)
        return allocations, np.array(list(law.values()))

    def _law_of_group(self, group: Ints, usage: Floats, counts: Ints, law: dict[bytes, float]) -> dict[bytes, float]:
        """Unroll the draws within one rank, from every allocation reached so far."""
        if not counts[group[:, 0], group[:, 1]].any():
            return law  # no arm can be drawn
        types, (every_usage, limit) = self.problem.types, self._limits
        done: dict[bytes, float] = {}
        while law:
            following: dict[bytes, float] = {}
            for key, chance in law.items():
                allocation = np.frombuffer(key, dtype=np.int64).reshape(types.valid.shape)
                left = (counts - allocation.sum(axis=-1))[group[:, 0], group[:, 1]]
                budget = limit - np.einsum("tsa,tsak->k", allocation, every_usage)
                crowd = left * (usage <= budget).all(axis=1)
                total = int(crowd.sum())
                # No arm fits: this allocation is final. With stopping it may be final with chance 1 / (total + 1).
                if total == 0 or self.stop:
                    done[key] = done.get(key, 0.0) + chance * (1.0 if total == 0 else 1.0 / (total + 1))
                for cell in np.flatnonzero(crowd):
                    after = allocation.copy()
                    after[tuple(group[cell])] += 1
                    name = after.tobytes()
                    share = float(crowd[cell]) / (total + self.stop)
                    following[name] = following.get(name, 0.0) + chance * share
            if len(following) + len(done) > LARGEST_DISTRIBUTION:
                raise TooLargeError(
                    f"the law of one allocation has over {LARGEST_DISTRIBUTION} values. Use simulation."
                )
            law = following
        return done


# -- ranks from scores -----------------------------------------------------------------------------------------------


def serveable_cells(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """(type, state, action) cells other than the idle one; choosing them is what a score is for."""
    kinds, states = np.indices(problem.types.idle.shape)
    cells = problem.types.valid.copy()
    cells[kinds, states, problem.types.idle] = False
    return cells


def rank_scores(scores: Floats, threshold: float, rounding: float | None = None) -> Indices:
    """0 for the highest score, -1 at or below the threshold; scores equal but for rounding share a rank.

    Args:
        scores: any shape; -inf is never ranked.
        threshold: scores at or below it are not ranked.
        rounding: neighbouring scores that differ by no more are equal; by default a share of the scores themselves.
    """
    eligible = ~np.isneginf(scores) & (scores > threshold)
    if not eligible.any():
        return np.full(scores.shape, -1, dtype=np.int32)
    # From the highest down; a rank begins where the step down is more than rounding.
    ordered = np.unique(scores[eligible])[::-1]
    # Infinite scores have no size: they differ from all others by infinity.
    size = np.abs(ordered, where=np.isfinite(ordered), out=np.zeros_like(ordered))
    least = np.maximum(ROUNDING * size[1:], NOISE * max(1.0, float(size.max()))) if rounding is None else rounding
    rank_of = np.concatenate([[0], np.cumsum(-np.diff(ordered) > least)])
    # Negated, for `searchsorted` wants rising numbers.
    place = np.searchsorted(-ordered, -scores[eligible])
    ranks = np.full(scores.shape, -1, dtype=np.int32)
    ranks[eligible] = rank_of[place]
    return ranks


def settle(scores: Floats, axis: int | tuple[int, ...], share: float = ROUNDING) -> Floats:
    """Scores with 0 in place of what is rounding, as a share of the largest along the axes: a sign must not hang on it.

    Args:
        scores: any shape, finite.
        axis: over which the largest is taken.
        share: of the largest, up to which a score counts as 0.
    """
    largest = np.abs(scores).max(axis=axis, keepdims=True, initial=0.0)
    return np.asarray(np.where(np.abs(scores) <= share * largest, 0.0, scores))


def value_noise(criterion: Criterion) -> float:
    """The error to reckon with in values of an arm, relative to the largest.

    Values solve (I - factor P) v = r, whose condition is at most twice the criterion's total (that of biases, which
    grows with the time an arm takes to forget its start, is reckoned as a hundred times NOISE); a solver adds a small
    multiple of the machine's precision for each state.
    """
    if criterion.fixed_steps(1) is None:
        return 100 * NOISE
    return max(NOISE, 1e3 * float(np.finfo(np.float64).eps) * criterion.total)


def _room(usage: Floats, budget: Floats) -> Ints:
    """(...,) how many uses of (..., resource) amounts fit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(usage > 0, np.floor(budget / usage), np.inf).min(axis=-1)
    # More than any number of arms, and still a whole number of 64 bits.
    return np.asarray(np.minimum(room, 2.0**62), dtype=np.int64)


def _hypergeometric(good: Ints, bad: Ints, draws: Ints, rng: np.random.Generator) -> Ints:
    """(episode,) how many of `draws` arms taken from good + bad are good."""
    # NumPy wants some bad ones, and fewer than MOST_ARMS of either kind. Where there are none of one kind, as there are
    # if all arms are of the other, the answer is known: none is drawn of none, and all are of the only kind.
    kinds = np.minimum(good, MOST_ARMS - 1), np.clip(bad, 1, MOST_ARMS - 1)
    drawn = rng.hypergeometric(*kinds, np.minimum(draws, good + bad))
    return np.asarray(np.where(bad == 0, np.minimum(draws, good), drawn), dtype=np.int64)
