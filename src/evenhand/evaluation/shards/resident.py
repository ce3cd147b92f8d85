"""Some arms of a table being played, wherever they are kept.

What a shard is after some time is a function of its recipe and of the *log*: what the driver has decided so far, one
entry after another, each small. Every question carries the entries that are new. A shard that was lost is built again
from its rows; asked with new entries only, it answers how far it is (`Behind`), and is told all of them.

An arm's random numbers belong to its number in the whole table, as in `simulation.rollout`, so that states, actions and
returns are those of a simulation in memory to the last bit, however the table is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from evenhand.evaluation.shards.scoring import Rule, own_problem, score
from evenhand.kernels.merging import NEVER, Keys, add_by_bin, amounts_of, keys_of, with_heads
from evenhand.kernels.randomness import bits_at, uniforms_at
from evenhand.kernels.stepping import World
from evenhand.model.coupled import CoupledMDP
from evenhand.model.parquet.reading import Shard as Rows
from evenhand.model.parquet.reading import read_shard
from evenhand.model.parquet.schema import Header
from evenhand.typing import Array, Bools, Floats, Indices, Ints

SAMPLED = 2_000
"""Scores that each shard tells beforehand, from which bins are made."""


class Behind(NamedTuple):
    """A shard has been built again, and has followed the log so far only."""

    number: int


class Entry(Protocol):
    """Something that was decided."""

    def apply(self, shard: "Playing") -> None:
        """Do it."""
        ...


@dataclass(frozen=True, eq=False)
class Order:
    """The order of all arms: how scores become keys, and keys bins."""

    members: Floats
    """(member,) scores that are equal but for rounding to a higher one, ascending."""

    heads: Floats
    """(member,) the highest that each is equal to."""

    edges: Keys
    """(edge,) keys at which bins begin, ascending."""

    num_arms: int
    """Of the whole table."""

    num_actions: int
    """The largest number of actions of an arm of the whole table."""

    def apply(self, shard: "Playing") -> None:
        """Give every cell its key and its bin."""
        scores = with_heads(shard.scores, self.members, self.heads)
        shard.keys = keys_of(scores, shard.first)
        bins = np.searchsorted(self.edges, shard.keys, side="right").astype(np.int32)
        shard.bins = np.where(shard.keys == NEVER, -1, bins)
        shard.order = self


@dataclass(frozen=True, eq=False)
class Begin:
    """A batch of episodes, from the first states of the arms."""

    first: int
    """The number of its first episode."""

    number: int
    """How many there are."""

    key: np.uint64
    """Of the first states."""

    def apply(self, shard: "Playing") -> None:
        """Draw where the arms begin."""
        shard.draw_first(self)


@dataclass(frozen=True, eq=False)
class Place:
    """The arms of one episode are where the recipe says: in the states of a table, not drawn."""

    def apply(self, shard: "Playing") -> None:
        """Put the arms there."""
        shard.put()


@dataclass(frozen=True, eq=False)
class Ask:
    """A new step: nobody is served yet."""

    key: np.uint64
    """From which equals get their order."""

    def apply(self, shard: "Playing") -> None:
        """Everybody idles."""
        shard.ask(self.key)


@dataclass(frozen=True, eq=False)
class Accept:
    """In some bins every arm gets its first candidate that fits."""

    starts: Ints
    """(episode,) the first of the bins."""

    stops: Ints
    """(episode,) the one after the last."""

    left: Ints
    """(episode, resource) what there was before."""

    def apply(self, shard: "Playing") -> None:
        """Serve them."""
        for episode in np.flatnonzero(self.stops > self.starts).tolist():
            best = shard.best(episode, int(self.starts[episode]), self.left[episode])
            mine = best.bins < self.stops[episode]
            shard.serve(episode, best.arms[mine], best.actions[mine])


@dataclass(frozen=True, eq=False)
class Take:
    """Some arms get some actions."""

    episodes: Ints
    """(candidate,)"""

    arms: Ints
    """(candidate,) numbers of the whole table."""

    actions: Indices
    """(candidate,)"""

    def apply(self, shard: "Playing") -> None:
        """Serve those that are here."""
        mine = (self.arms >= shard.first_arm) & (self.arms < shard.first_arm + shard.num_arms)
        shard.serve(self.episodes[mine], self.arms[mine] - shard.first_arm, self.actions[mine])


@dataclass(frozen=True, eq=False)
class Move:
    """The arms earn and move."""

    weight: float
    """What a reward of this step counts."""

    key: np.uint64
    """Of the world at this step."""

    def apply(self, shard: "Playing") -> None:
        """Move them."""
        shard.move(self.weight, self.key)


class Candidates(NamedTuple):
    """Who may be served."""

    arms: Ints
    """(candidate,) within the shard; in answers, numbers of the whole table."""

    actions: Indices
    """(candidate,)"""

    bins: Indices
    """(candidate,)"""

    keys: Keys
    """(candidate,)"""

    bits: Keys
    """(candidate,) the order of equals; empty where it is not asked for."""

    amounts: Ints
    """(candidate, resource)"""


class Playing:
    """A shard: some arms of a table, being played."""

    keys: Keys
    bins: Indices
    order: Order
    key: np.uint64

    def __init__(
        self,
        rows: Rows,
        number: int,
        header: Header,
        rule: Rule,
        weights: Floats | None,
        states: Indices | None = None,
    ) -> None:
        """Read the arms and score them.

        Args:
            rows: which.
            number: of the shard.
            header: what all arms share.
            rule: the policy.
            weights: (row,) what a unit of their value is worth, for `fair-index`.
            states: (arm,) where they are now, if that is known.
        """
        arms = read_shard(rows)
        self.given = states
        own = weights is not None  # rows of one type may differ in their weights, and so in their scores
        tables = arms.expanded() if own else arms.tables
        problem = own_problem(CoupledMDP(tables, header.budget, header.discount, criterion=header.criterion))
        self.number, self.first_arm, self.num_arms = number, rows.first_arm, rows.num_arms
        self.counts, self.groups, self.floors = arms.counts, arms.groups, arms.floors
        found = score(rule, problem, weights)
        self.scores, self.first, self.rule = found.scores, found.first, rule
        types = problem.types
        self.kinds = arms.row_of_arm if own else arms.kind_of_arm
        self.idle, self.num_actions = types.idle, types.rewards.shape[2]
        self.amounts = amounts_of(types.usage, header.budget_limit)
        self.starts = types.cumulative_initial
        self.world = World(self.kinds, types.cumulative, types.rewards, types.usage, types.real, types.served)
        self.largest_reward = float(np.abs(types.rewards).max())
        self.row_starts = np.concatenate([[0], np.cumsum(arms.counts)[:-1]])
        self.position, self.batches = 0, [np.zeros((0, self.num_arms))]
        self.returns, self.served = self.batches[0], self.batches[0]
        self.all_served: list[Floats] = []
        self.states = np.zeros((0, self.num_arms), dtype=np.int32)

    def follow(self, start: int, entries: Sequence[Entry]) -> Behind | None:
        """Do what was decided, as far as it is not done yet.

        Args:
            start: the number of the first of the entries in the log.
            entries: the last ones.
        """
        if self.position < start:
            return Behind(self.position)
        for entry in entries[self.position - start :]:
            entry.apply(self)
            self.position += 1
        return None

    def draw_first(self, batch: Begin) -> None:
        """A new batch of episodes."""
        places = self._places(batch.first, batch.number, 1)[:, :, 0]
        self.states = _first(self.kinds, self.starts, uniforms_at(batch.key, places))
        self._reserve(batch.first, batch.number)

    def put(self) -> None:
        """One episode in known states."""
        assert self.given is not None
        self.states = self.given[None].copy()
        self._reserve(0, 1)

    def _reserve(self, first: int, number: int) -> None:
        self.first_episode = first
        self.returns, self.served = np.zeros((2, number, self.num_arms))
        self.batches.append(self.returns)
        self.all_served.append(self.served)

    def _places(self, first: int, number: int, width: int) -> Keys:
        """(episode, arm, action) places of this shard's numbers in a table of all arms with `width` numbers each."""
        rows = np.arange(first, first + number, dtype=np.uint64)[:, None, None] * np.uint64(self.order.num_arms * width)
        arms = np.arange(self.first_arm, self.first_arm + self.num_arms, dtype=np.uint64)[:, None] * np.uint64(width)
        return np.asarray(rows + arms + np.arange(width, dtype=np.uint64))

    def ask(self, key: np.uint64) -> None:
        """A new step."""
        self.key = key
        self.actions = self.idle[self.kinds, self.states]
        self.waiting = np.ones(self.states.shape, dtype=np.bool_)

    def serve(self, episode: Any, arms: Array, actions: Array) -> None:
        """Some arms get some actions."""
        self.actions[episode, arms] = actions
        self.waiting[episode, arms] = False

    def best(self, episode: int, start: int, left: Ints) -> Candidates:
        """The first candidate that fits of every arm that waits, from a bin on.

        Args:
            episode: within the batch.
            start: the first bin.
            left: (resource,) what there is.
        """
        arms, states, eligible = self._eligible(episode, start, None, left)
        keys = np.where(eligible, self.keys[self.kinds[arms], states], NEVER)
        actions = keys.argmin(axis=1).astype(np.int32)
        some = eligible[np.arange(len(arms)), actions]
        arms, states, actions = arms[some], states[some], actions[some]
        cells = (self.kinds[arms], states, actions)
        return Candidates(
            arms, actions, self.bins[cells], self.keys[cells], np.zeros(0, np.uint64), self.amounts[cells]
        )

    def within(self, episode: int, place: int, left: Ints) -> Candidates:
        """All candidates of one bin that fit, of arms that wait.

        Args:
            episode: within the batch.
            place: the bin.
            left: (resource,) what there is.
        """
        arms, states, eligible = self._eligible(episode, place, place + 1, left)
        some, columns = np.nonzero(eligible)
        arms, states, actions = arms[some], states[some], np.asarray(columns, dtype=np.int32)
        cells = (self.kinds[arms], states, actions)
        bits = self._bits(episode, arms, actions)
        return Candidates(arms + self.first_arm, actions, self.bins[cells], self.keys[cells], bits, self.amounts[cells])

    def _eligible(self, episode: int, start: int, stop: int | None, left: Ints) -> tuple[Array, Indices, Bools]:
        """Arms that wait with some cell in the bins, their states, and (arm, action) which of the cells fit."""
        states = self.states[episode]
        bins = self.bins[self.kinds, states]
        eligible = (bins >= max(start, 0)) & self.waiting[episode][:, None]
        if stop is not None:
            eligible &= bins < stop
        arms = np.flatnonzero(eligible.any(axis=1))
        states, eligible = states[arms], eligible[arms]
        eligible &= (self.amounts[self.kinds[arms], states] <= left).all(axis=-1)
        if self.rule.stop:
            eligible &= self._before_stop(episode, arms)
        return arms, states, eligible

    def _bits(self, episode: int, arms: Array, actions: Array) -> Keys:
        """(candidate,) the order of equals: bits of their places."""
        width = np.uint64(self.order.num_actions)
        row = np.uint64(episode) * np.uint64(self.order.num_arms) * width
        places = row + (arms.astype(np.uint64) + np.uint64(self.first_arm)) * width + actions.astype(np.uint64)
        return bits_at(self.key, places)

    def _before_stop(self, episode: int, arms: Array) -> Bools:
        """(arm, action) whether a candidate comes before stopping."""
        whole = np.uint64(self.order.num_arms) * np.uint64(self.order.num_actions)
        last = bits_at(self.key, np.array([len(self.states)], dtype=np.uint64) * whole + np.uint64(episode))
        columns = [self._bits(episode, arms, np.full(len(arms), action)) for action in range(self.num_actions)]
        return np.asarray(np.stack(columns, axis=1) < last)

    def move(self, weight: float, key: np.uint64) -> None:
        """The arms earn and move, as `kernels.stepping.step_arms` has it."""
        cells = (self.kinds, self.states, self.actions)
        self.returns += weight * self.world.rewards[cells]
        self.served += weight * self.world.serves[cells]
        uniforms = uniforms_at(key, self._places(self.first_episode, len(self.states), 1)[:, :, 0])
        rows = self.world.cumulative[cells]
        self.states = (uniforms[..., None] >= rows[..., :-1]).sum(axis=-1).astype(np.int32)


def _first(kinds: Indices, starts: Floats, uniforms: Floats) -> Indices:
    """(episode, arm) first states."""
    states = np.zeros(uniforms.shape, dtype=np.int32)
    for column in starts.T[:-1]:
        states += uniforms >= column[kinds]
    return states


# Questions


class Survey(NamedTuple):
    """What the driver must know of a shard before anybody plays."""

    sample: Floats
    """Some of its scores."""

    num_scores: int
    """How many different scores there are, about."""

    largest: float
    """The largest score by its absolute value."""

    num_actions: int
    """The largest number of actions."""

    least: Ints
    """(resource,) the least amount that a candidate uses."""

    largest_reward: float
    """By its absolute value."""

    preferred: bool
    """Whether some candidates come before all others."""


def survey(shard: Playing) -> Survey:
    """What there is, without anything of the order."""
    ranked = ~np.isneginf(shard.scores)
    scores = shard.scores[ranked]
    finite = scores[np.isfinite(scores)]
    step = max(1, len(scores) // SAMPLED)
    least = shard.amounts[ranked].min(axis=0, initial=np.iinfo(np.int64).max)
    return Survey(
        np.sort(scores)[::step] if len(scores) <= 50 * SAMPLED else np.sort(scores[::step]),
        len(scores),
        float(np.abs(finite).max(initial=0.0)),
        shard.num_actions,
        least,
        shard.largest_reward,
        shard.first is not None,
    )


def scores_between(shard: Playing, low: float, high: float) -> Floats:
    """(score,) the different scores above `low` and up to `high`."""
    scores = shard.scores
    return np.unique(scores[(scores > low) & (scores <= high)])


def histogram(
    shard: Playing, start: int, entries: Sequence[Entry], starts: Ints, left: Ints
) -> Behind | list[tuple[int, Indices, Ints, Ints]]:
    """For every episode that is not decided: the bins of the arms' first candidates, and what these use in each.

    Args:
        shard: the arms.
        start: the number of the first of the entries in the log.
        entries: what is new in the log.
        starts: (episode,) the bin to begin with; -1 where all is decided.
        left: (episode, resource) what there is.
    """
    if (behind := shard.follow(start, entries)) is not None:
        return behind
    return [(episode, *_by_bin(shard, episode, int(starts[episode]), left[episode])) for episode in _open(starts)]


def _open(starts: Ints) -> list[int]:
    return [int(episode) for episode in np.flatnonzero(starts >= 0)]


def _by_bin(shard: Playing, episode: int, start: int, left: Ints) -> tuple[Indices, Ints, Ints]:
    """Bins that have candidates, and the sums of the halves of what these use."""
    best = shard.best(episode, start, left)
    number = len(shard.order.edges) + 1
    there = np.flatnonzero(np.bincount(best.bins, minlength=number)).astype(np.int32)
    upper, lower = add_by_bin(best.bins, best.amounts, number)
    return there, upper[there], lower[there]


def candidates(
    shard: Playing, start: int, entries: Sequence[Entry], bins: Ints, left: Ints
) -> Behind | list[tuple[int, Candidates]]:
    """For every episode with a bin: all its candidates there that fit.

    Args:
        shard: the arms.
        start: the number of the first of the entries in the log.
        entries: what is new in the log.
        bins: (episode,) which bin; -1 for none.
        left: (episode, resource) what there is.
    """
    if (behind := shard.follow(start, entries)) is not None:
        return behind
    return [(episode, shard.within(episode, int(bins[episode]), left[episode])) for episode in _open(bins)]


def groups_of(shard: Playing) -> tuple[list[str], Indices]:
    """The names of the groups of its rows, and (row,) which each row has; names are "" for a group of a row's own."""
    names, codes = np.unique(np.array(shard.groups or [""] * len(shard.counts)), return_inverse=True)
    return names.tolist(), codes.astype(np.int32)


class Outcome(NamedTuple):
    """What came of playing, by row."""

    values: Floats
    """(row,) the mean return."""

    squares: Floats
    """(row,) the sum over episodes of squared deviations of the row's mean return."""

    served: Floats
    """(row,) the mean of the weighted time in which an arm was served."""


def values_of(shard: Playing, start: int, entries: Sequence[Entry]) -> Behind | Floats:
    """(row,) the mean return."""
    return shard.follow(start, entries) or by_row(shard, np.concatenate(shard.batches)).mean(axis=0)


def outcome(shard: Playing, start: int, entries: Sequence[Entry], number: int) -> Behind | Outcome | None:
    """The means over all episodes, if this is the shard that is asked; so that the driver has one at a time.

    Args:
        shard: the arms.
        start: the number of the first of the entries in the log.
        entries: what is new in the log.
        number: of the shard that is to answer.
    """
    if (behind := shard.follow(start, entries)) is not None or number != shard.number:
        return behind
    returns = by_row(shard, np.concatenate(shard.batches))
    served = by_row(shard, np.concatenate(shard.all_served))
    values = returns.mean(axis=0)
    return Outcome(values, ((returns - values) ** 2).sum(axis=0), served.mean(axis=0))


def by_row(shard: Playing, of_arms: Floats) -> Floats:
    """(episode, row) means over the arms of each row."""
    if len(shard.counts) == shard.num_arms:
        return of_arms
    return np.asarray(np.add.reduceat(of_arms, shard.row_starts, axis=1) / shard.counts)


def returns_of(shard: Playing, start: int, entries: Sequence[Entry]) -> Behind | Floats:
    """(episode, arm) what each arm earned."""
    return shard.follow(start, entries) or np.concatenate(shard.batches)


def actions_of(shard: Playing, start: int, entries: Sequence[Entry]) -> Behind | Indices:
    """(episode, arm) what each arm gets now."""
    return shard.follow(start, entries) or shard.actions


def weighed(shard: Playing, start: int, entries: Sequence[Entry], weights: Floats) -> Behind | list[int]:
    """(episode,) exact sums over rows of weight times mean return.

    Args:
        shard: the arms.
        start: the number of the first of the entries in the log.
        entries: what is new in the log.
        weights: (row,)
    """
    from evenhand.kernels.exact_sums import exact_sum

    if (behind := shard.follow(start, entries)) is not None:
        return behind
    return [exact_sum(row * weights) for row in by_row(shard, np.concatenate(shard.batches))]
