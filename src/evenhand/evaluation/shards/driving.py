"""Playing an index or priority policy by shards: the driver's part.

Before the first step the order of all arms is settled: which scores are equal but for rounding to another, found range
by range of scores, so that the driver never has all of them; and the bins into which keys are sorted. A step is then

    histogram    what the arms' first candidates use in each bin, added up over the shards
    accept       the bins before the one at which the budget breaks are served wholly
    merge        the candidates of that bin come together and are passed in order (`kernels.merging`)

and again from there on, as long as anything may still fit. What was decided is a *log* that goes along with the next
question; a shard that was lost follows all of it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from evenhand.checks import as_generator, check_positive_int
from evenhand.errors import NotApplicable
from evenhand.evaluation.shards.resident import (
    Accept,
    Ask,
    Begin,
    Behind,
    Candidates,
    Entry,
    Move,
    Order,
    Place,
    Playing,
    Survey,
    Take,
    actions_of,
    candidates,
    histogram,
    scores_between,
    survey,
)
from evenhand.evaluation.shards.scoring import Rule
from evenhand.execution.protocol import Executor, Shards
from evenhand.kernels.merging import MOST_AT_ONCE, amounts_of, chains, keys_of, num_that_fit, serve_in_order, with_heads
from evenhand.kernels.randomness import draw_keys
from evenhand.model.parquet.reading import Shard, StoredArms
from evenhand.simulation.rollout import BATCH
from evenhand.typing import Array, Floats, Indices, Ints, Progress, Rng

ROWS_PER_SHARD = 500_000
"""Rows of a shard at most."""

SCORES_AT_ONCE = 4_000_000
"""Scores that the driver looks at together."""

MOST_BINS = 4_096
"""Into which keys are sorted."""


def cut(arms: StoredArms, num_workers: int, number: int | None = None) -> tuple[Shard, ...]:
    """The table in shards that a worker can hold and add up exactly.

    Args:
        arms: the table.
        num_workers: how many work at the same time.
        number: how many shards; as many as are good when absent.
    """
    if number is None:
        least = max(-(-arms.num_rows // ROWS_PER_SHARD), -(-arms.num_arms // (MOST_AT_ONCE // 2)))
        number = -(-least // num_workers) * num_workers
    shards = arms.shards(number)
    if max(shard.num_arms for shard in shards) > MOST_AT_ONCE:
        raise NotApplicable(f"a shard has over {MOST_AT_ONCE} arms: load the model, and simulate it by counts")
    return shards


@dataclass
class Play:
    """Arms being played on an executor."""

    arms: StoredArms
    """The table, under the criterion that is played."""

    rule: Rule
    """The policy."""

    executor: Executor
    """Where the shards are."""

    weights: Floats | None = None
    """(row,) what a unit of each row's value is worth, for `fair-index`."""

    num_shards: int | None = None
    """How many; as many as are good when absent."""

    states: Indices | None = None
    """(arm,) where the arms are, for `act`."""

    log: list[Entry] = field(default_factory=list)
    """What was decided."""

    def __post_init__(self) -> None:
        rows = cut(self.arms, self.executor.num_workers, self.num_shards)
        self.recipes = [self._recipe(own, number) for number, own in enumerate(rows)]
        self.rows = rows
        self.shards: Shards = self.executor.place(self.recipes)
        self.told = 0
        limit = self.arms.header.budget_limit
        self.limit = amounts_of(limit[None], limit)[0]
        surveys = self.shards.ask(survey)
        self.least = np.min([found.least for found in surveys], axis=0)
        self.largest_reward = max(found.largest_reward for found in surveys)
        self.log.append(_settle(self, surveys))

    def _recipe(self, rows: Shard, number: int) -> Callable[[], Playing]:
        """How one shard is built."""
        weights = None if self.weights is None else self.weights[rows.first_row : rows.first_row + len(rows)]
        states = None if self.states is None else self.states[rows.first_arm : rows.first_arm + rows.num_arms]
        return partial(Playing, rows, number, self.arms.header, self.rule, weights, states)

    def ask(self, do: Callable[..., Any], *common: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """The answers of all shards, each after it has followed the log."""
        start = self.told
        while True:
            answers = self.shards.ask(do, start, self.log[start:], *common, each=each)
            if not any(isinstance(answer, Behind) for answer in answers):
                self.told = len(self.log)
                return answers
            start = 0

    def close(self) -> None:
        """Let the shards go."""
        self.shards.forget()

    def run(self, num_episodes: int, weights: Floats, rng: Rng, progress: Progress | None = None) -> Floats:
        """Play episodes, as `simulate` does, from the first states on.

        Args:
            num_episodes: how many.
            weights: (step,) what each step counts.
            rng: seed or generator.
            progress: told how far it is.

        Returns:
            (episode, resource) what was used, summed with the weights.
        """
        check_positive_int(num_episodes, "num_episodes")
        world, policy = as_generator(rng).spawn(2)
        keys = draw_keys(world, len(weights) + 1)
        size = max(1, min(num_episodes, BATCH // self.arms.num_arms))
        starts = range(0, num_episodes, size)
        used = np.zeros((num_episodes, self.arms.num_resources))
        for part, (start, stream) in enumerate(zip(starts, policy.spawn(len(starts)), strict=True)):
            number = min(size, num_episodes - start)
            self.log.append(Begin(start, number, keys[0]))
            for step, (key, weight) in enumerate(zip(keys[1:], weights.tolist(), strict=True)):
                left = self.choose(number, draw_keys(stream, 1)[0])
                used[start : start + number] += weight * self.amount_used(left)
                self.log.append(Move(weight, key))
                if progress is not None:
                    progress("playing", (part + step / len(weights)) / len(starts))
        return used

    def act(self, rng: Rng) -> tuple[list[Indices], Floats]:
        """What each arm gets now, shard by shard, and what is used of each resource.

        Args:
            rng: seed or generator, for ties.
        """
        self.log.append(Place())
        left = self.choose(1, draw_keys(as_generator(rng), 1)[0])
        return [actions[0] for actions in self.ask(actions_of)], self.amount_used(left)[0]

    def amount_used(self, left: Ints) -> Floats:
        """(episode, resource) what is used of the budget, given what is left of it in units of `kernels.merging`."""
        limit = self.arms.header.budget_limit
        return np.asarray((self.limit - left) * (np.where(limit > 0, limit, 0.0) / np.maximum(self.limit, 1)))

    def choose(self, num_episodes: int, key: np.uint64) -> Ints:
        """Decide a step, and note it.

        Args:
            num_episodes: of the batch.
            key: from which equals get their order.

        Returns:
            (episode, resource) amounts that are left.
        """
        self.log.append(Ask(key))
        left = np.repeat(self.limit[None], num_episodes, axis=0)
        starts = np.zeros(num_episodes, dtype=np.int64)
        while (starts >= 0).any():
            bins, left = self._accept(starts, left)
            if (bins >= 0).any():
                left = self._merge(bins, left)
            starts = np.where((bins >= 0) & (left >= self.least).all(axis=1), bins + 1, -1)
        return left

    def _accept(self, starts: Ints, left: Ints) -> tuple[Ints, Ints]:
        """Serve the bins that fit wholly; (episode,) the bin after them, -1 where all fitted, and what is left."""
        answers = self.ask(histogram, starts, left)
        bins, after = np.full(len(starts), -1), left.copy()
        stops = starts.copy()
        for found in zip(*answers, strict=True):
            episode = found[0][0]
            there, upper, lower = _added([part[1:] for part in found])
            number, after[episode] = num_that_fit(upper, lower, left[episode])
            stops[episode] = int(there[number - 1]) + 1 if number else starts[episode]
            bins[episode] = int(there[number]) if number < len(there) else -1
        self.log.append(Accept(starts, stops, left))
        return bins, after

    def _merge(self, bins: Ints, left: Ints) -> Ints:
        """Pass the candidates of one bin of each episode in their order."""
        answers = self.ask(candidates, bins, left)
        after, taken = left.copy(), []
        for found in zip(*answers, strict=True):
            episode = found[0][0]
            merged = Candidates(*(np.concatenate(parts) for parts in zip(*(part[1] for part in found), strict=True)))
            order = np.lexsort((merged.bits, merged.keys))
            served, after[episode] = serve_in_order(merged.arms[order], merged.amounts[order], left[episode])
            mine = order[served]
            taken.append((np.full(len(mine), episode), merged.arms[mine], merged.actions[mine]))
        self.log.append(Take(*(np.concatenate(parts) for parts in zip(*taken, strict=True))))
        return after


def _added(parts: Sequence[tuple[Array, Ints, Ints]]) -> tuple[Array, Ints, Ints]:
    """Sums by bin, over the shards."""
    there, place = np.unique(np.concatenate([bins for bins, _, _ in parts]), return_inverse=True)
    sums = []
    for which in (1, 2):
        total = np.zeros((len(there), parts[0][which].shape[1]), dtype=np.int64)
        np.add.at(total, place, np.concatenate([part[which] for part in parts]))
        sums.append(total)
    return there, sums[0], sums[1]


def _settle(play: Play, surveys: Sequence[Survey]) -> Order:
    """The order of all arms."""
    sample = np.unique(np.concatenate([found.sample for found in surveys]))
    members, heads = _find_chains(play, surveys, sample)
    edges = keys_of(with_heads(sample, members, heads))
    if any(found.preferred for found in surveys):
        edges = np.concatenate([edges, keys_of(sample, np.ones(len(sample), dtype=np.bool_))])
    edges = np.unique(edges)
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, MOST_BINS).astype(np.int64))] if len(edges) else edges
    num_actions = max(found.num_actions for found in surveys)
    return Order(members, heads, edges, play.arms.num_arms, num_actions)


def _find_chains(play: Play, surveys: Sequence[Survey], sample: Floats) -> tuple[Floats, Floats]:
    """Scores that are equal to a higher one but for rounding, ascending, and the highest of each chain."""
    number = -(-sum(found.num_scores for found in surveys) // SCORES_AT_ONCE)
    cuts = sample[np.linspace(0, len(sample) - 1, number + 1).astype(np.int64)[1:-1]] if number > 1 else np.zeros(0)
    bounds = np.concatenate([[-np.inf], np.unique(cuts), [np.inf]])
    largest = max(found.largest for found in surveys)
    found: list[tuple[Floats, Floats]] = []
    before, head = np.zeros(0), np.inf  # the lowest score of the range above, and the highest of its chain
    for low, high in zip(bounds[-2::-1].tolist(), bounds[:0:-1].tolist(), strict=True):
        scores = np.unique(np.concatenate(play.shards.ask(scores_between, low, high)))[::-1]
        ordered = np.concatenate([before, scores])
        if len(ordered) == 0:
            continue
        members, heads = chains(ordered, play.rule.apart(ordered, largest))
        if len(before):
            heads = np.where(heads == before[0], head, heads)
        found.append((members, heads))
        last = ordered[-1:]
        head = float(heads[0]) if len(members) and members[0] == last[0] else float(last[0]) if len(scores) else head
        before = last
    members = np.concatenate([part[0] for part in found[::-1]]) if found else np.zeros(0)
    heads = np.concatenate([part[1] for part in found[::-1]]) if found else np.zeros(0)
    return members, heads
