"""Simulation of an index or priority policy on arms in blocks that stay with their workers.

Order. The driver ranks the scores of all rows once, exactly as `policies.priority` does in memory; a candidate (arm,
action) stands at (rank, random bits), and the bits depend on the arm's number only.

A step. While everything fits, the greedy choice is known without an order: every arm gets its first candidate. So

    histogram   blocks add up the use of the first candidates in bins of ranks
    accept      the bins before the one in which the budget ends are served entirely
    merge       the candidates of that bin come together and are passed in order

and again behind that bin, as long as something may still fit. Random numbers of an arm belong to its number in the
model, so states, actions and returns are those of `simulate` in memory, for any blocks and backend.

What a block is after some steps is a function of its rows and the *log* of decisions. Every call carries the new
entries; a block that was lost with its worker reports that it is behind, and follows the whole log again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_positive_int
from evenhand.errors import NotApplicableError
from evenhand.kernels.randomness import bits_at, draw_keys, uniforms_at
from evenhand.model.arm import ROOM
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.parquet import StoredArms
from evenhand.model.simulator import Problem
from evenhand.parallel import Pool
from evenhand.policies.baselines import never_act, random_feasible
from evenhand.policies.fluid import LEAST_WEIGHT, fair_worth
from evenhand.policies.index import whittle
from evenhand.policies.priority import ROUNDING, ExchangeablePriority, rank_scores, serveable_cells
from evenhand.simulation.rollout import BATCH
from evenhand.solvers.blocks import BLOCK
from evenhand.typing import Array, Bools, Floats, Indices, Ints, Progress, Rng

NUM_BINS = 4096
"""Largest number of bins of ranks."""

NEVER = np.int32(-1)
"""Rank of a cell that is never served."""

SIMPLE: dict[str, Callable[[Problem], Any]] = {"whittle": whittle, "random": random_feasible, "never-act": never_act}
"""Policies whose scores of an arm depend on the arm alone."""


@dataclass(frozen=True)
class BlockPolicy:
    """A policy whose scores of an arm depend on the arm, and on the prices and its weight in the relaxation."""

    name: str
    """whittle, random, never-act or fair-index."""

    prices: tuple[float, ...] = ()
    """(resource,) dual prices of the relaxation, for fair-index."""

    largest_weight: float = 1.0
    """Largest welfare weight of all arms, for fair-index."""

    def __post_init__(self) -> None:
        if self.name not in (*SIMPLE, "fair-index"):
            known = ", ".join((*SIMPLE, "fair-index"))
            raise NotApplicableError(f"{self.name}: on blocks of arms these policies can be simulated: {known}")

    def scores(self, problem: CoupledMDP, weights: Floats | None) -> tuple[Floats, Bools | None]:
        """(type, state, action) scores, -inf for never, and which cells precede all others.

        Args:
            problem: some arms, with the budget of all.
            weights: (type,) welfare weights, for fair-index.
        """
        if problem.criterion.num_steps is not None and self.name != "random":
            raise NotApplicableError(
                f"{self.name}: with a finite horizon the order differs by step; read the model into memory"
            )
        cells = serveable_cells(problem)
        if self.name == "fair-index":
            if weights is None:
                raise NotApplicableError("fair-index: the weights and prices of the relaxation are required")
            weights = np.maximum(weights, LEAST_WEIGHT * self.largest_weight)
            worth, preferred = fair_worth(problem, weights, np.array(self.prices))
            return np.where(cells, worth, -np.inf), preferred
        policy = SIMPLE[self.name](problem)
        assert isinstance(policy, ExchangeablePriority)
        return np.where(cells & (policy.scores > policy.threshold), policy.scores, -np.inf), None


def as_types(problem: CoupledMDP) -> CoupledMDP:
    """The same problem with every row a type of its own; equal arms are not searched for."""
    problem.__dict__["type_of_block"] = np.arange(len(problem.tables), dtype=np.int32)
    return problem


class Behind(NamedTuple):
    """A block was rebuilt and has followed the log only so far."""

    position: int


class Candidates(NamedTuple):
    """Candidates for service."""

    arms: Ints
    actions: Indices
    ranks: Indices
    usage: Floats
    bits: Array


LogEntry = tuple[str, tuple[Any, ...]]
"""A method of `SimulatedBlock` and its arguments."""


@dataclass(frozen=True, eq=False)
class _Builder:
    """Builds a block where it will stay."""

    reader: Any
    first_arm: int
    all_arms: int
    budget: Floats
    discount: float
    criterion: Criterion
    policy: BlockPolicy

    def __call__(self) -> "SimulatedBlock":
        return SimulatedBlock(self.reader(), self)


class SimulatedBlock:
    """Some arms of a model during a simulation."""

    ranks: Indices
    key: np.uint64

    def __init__(self, rows: Any, about: _Builder) -> None:
        # Rows of one type may differ in their weights, and so in their scores.
        own = about.policy.name == "fair-index"
        tables = rows.expanded() if own else rows.tables
        self.problem = as_types(CoupledMDP(tables, about.budget, about.discount, criterion=about.criterion))
        self.types, self.kinds = self.problem.types, rows.row_of_arm if own else rows.kind_of_arm
        self.counts, self.policy = rows.counts, about.policy
        self.first_arm, self.num_arms, self.all_arms = about.first_arm, len(self.kinds), about.all_arms
        self.row_starts = np.concatenate([[0], np.cumsum(rows.counts)[:-1]])
        self.position, self.given = 0, None
        self.returns: list[Floats] = []
        self.served: list[Floats] = []

    def facts(self, weights: Floats | None) -> tuple[Floats, Bools | None, float, int, Floats]:
        """Scores, preferred cells, largest absolute reward, number of actions, and least use of a candidate."""
        scores, preferred = self.policy.scores(self.problem, weights)
        ranked = ~np.isneginf(scores)
        least = self.types.usage[ranked].min(axis=0, initial=np.inf)
        return scores, preferred, float(np.abs(self.types.rewards).max()), self.types.rewards.shape[2], least

    # -- the log ------------------------------------------------------------------------------------------------------

    def ask(
        self, method: str, start: int, log: Sequence[LogEntry], arguments: tuple[Any, ...], own: tuple[Any, ...]
    ) -> Any:
        """Follow the new entries of the log, then answer.

        Args:
            method: the question.
            start: number of the first entry.
            log: entries from there on.
            arguments: of the question.
            own: (ranks, states, num_actions, num_ranks) of this block if the log begins at 0, then arguments.
        """
        setup, *rest = own
        if self.position < start:
            return Behind(self.position)
        if self.position == 0 and setup is not None:
            self.ranks, self.given, self.all_actions, self.num_ranks = setup
            self.num_bins = min(NUM_BINS, self.num_ranks)
        for name, values in log[self.position - start :]:
            getattr(self, name)(*values)
            self.position += 1
        return getattr(self, method)(*arguments, *rest)

    def begin(self, first: int, number: int, key: np.uint64) -> None:
        """Begin a batch of episodes in drawn first states."""
        self.first_episode = first
        uniforms = uniforms_at(key, self._places(number))
        states = np.zeros(uniforms.shape, dtype=np.int32)
        for column in self.types.cumulative_initial.T[:-1]:
            states += uniforms >= column[self.kinds]
        self._reserve(states)

    def place(self) -> None:
        """Begin one episode in the given states."""
        assert self.given is not None
        self.first_episode = 0
        self._reserve(self.given[None].copy())

    def _reserve(self, states: Indices) -> None:
        self.states = states
        self.returns.append(np.zeros(states.shape))
        self.served.append(np.zeros(states.shape))

    def decide(self, key: np.uint64) -> None:
        """Begin a step: all arms idle."""
        self.key = key
        self.actions = self.types.idle[self.kinds, self.states]
        self.waiting = np.ones(self.states.shape, dtype=np.bool_)

    def accept(self, starts: Ints, stops: Ints, left: Floats) -> None:
        """Serve every arm whose first candidate lies in some bins."""
        for episode in np.flatnonzero(stops > starts).tolist():
            arms, actions, ranks = self._first(episode, int(starts[episode]), left[episode])
            mine = self._bins(ranks) < stops[episode]
            self._serve(episode, arms[mine], actions[mine])

    def take(self, episodes: Ints, arms: Ints, actions: Indices) -> None:
        """Serve chosen arms."""
        mine = (arms >= self.first_arm) & (arms < self.first_arm + self.num_arms)
        self._serve(episodes[mine], arms[mine] - self.first_arm, actions[mine])

    def move(self, weight: float, key: np.uint64) -> None:
        """Add rewards and move all arms, as `kernels.stepping.step_arms`."""
        cells = (self.kinds, self.states, self.actions)
        self.returns[-1] += weight * self.types.rewards[cells]
        self.served[-1] += weight * self.types.served[cells]
        uniforms = uniforms_at(key, self._places(len(self.states)))
        self.states = (uniforms[..., None] >= self.types.cumulative[cells][..., :-1]).sum(axis=-1).astype(np.int32)

    def _serve(self, episode: Any, arms: Array, actions: Array) -> None:
        self.actions[episode, arms] = actions
        self.waiting[episode, arms] = False

    def _places(self, number: int) -> Array:
        """(episode, arm) places of this block's random numbers in a table of all arms."""
        rows = np.arange(self.first_episode, self.first_episode + number, dtype=np.uint64)[:, None]
        return rows * np.uint64(self.all_arms) + np.arange(
            self.first_arm, self.first_arm + self.num_arms, dtype=np.uint64
        )

    def _bins(self, ranks: Array) -> Ints:
        return np.asarray(ranks.astype(np.int64) * self.num_bins // self.num_ranks)

    def _eligible(self, episode: int, start: int, stop: int, left: Floats) -> tuple[Array, Array]:
        """Waiting arms with candidates in some bins, and (arm, action) ranks; num_ranks for those that do not fit."""
        states = self.states[episode]
        ranks = self.ranks[self.kinds, states]
        bins = self._bins(ranks)
        eligible = (ranks >= 0) & (bins >= start) & (bins < stop) & self.waiting[episode][:, None]
        arms = np.flatnonzero(eligible.any(axis=1))
        eligible = eligible[arms] & (self.types.usage[self.kinds[arms], states[arms]] <= left).all(axis=-1)
        if self.policy.name == "random":
            eligible &= self._before_stop(episode, arms)
        return arms, np.where(eligible, ranks[arms], self.num_ranks)

    def _first(self, episode: int, start: int, left: Floats) -> tuple[Array, Array, Array]:
        """The first candidate that fits of every waiting arm, from a bin on."""
        arms, ranks = self._eligible(episode, start, self.num_bins, left)
        actions = ranks.argmin(axis=1).astype(np.int32)
        best = ranks[np.arange(len(arms)), actions]
        some = best < self.num_ranks
        return arms[some], actions[some], best[some]

    def _bits(self, episode: int, arms: Array, actions: Array) -> Array:
        width = np.uint64(self.all_actions)
        row = np.uint64(episode) * np.uint64(self.all_arms) * width
        return bits_at(self.key, row + (arms + self.first_arm).astype(np.uint64) * width + actions.astype(np.uint64))

    def _before_stop(self, episode: int, arms: Array) -> Bools:
        """(arm, action) whether a candidate precedes stopping."""
        whole = np.uint64(self.all_arms) * np.uint64(self.all_actions)
        last = bits_at(self.key, np.array([len(self.states)], dtype=np.uint64) * whole + np.uint64(episode))
        columns = [self._bits(episode, arms, np.full(len(arms), action)) for action in range(self.ranks.shape[2])]
        return np.asarray(np.stack(columns, axis=1) < last)

    # -- questions ----------------------------------------------------------------------------------------------------

    def histogram(self, starts: Ints, left: Floats) -> Floats:
        """(episode, bin, resource) use of the first candidates from a bin on; nothing for episodes that are decided."""
        found = np.zeros((len(starts), self.num_bins, left.shape[1]))
        for episode in np.flatnonzero(starts >= 0).tolist():
            arms, actions, ranks = self._first(episode, int(starts[episode]), left[episode])
            usage = self.types.usage[self.kinds[arms], self.states[episode, arms], actions]
            for k, column in enumerate(usage.T):
                found[episode, :, k] = np.bincount(self._bins(ranks), weights=column, minlength=self.num_bins)
        return found

    def candidates(self, bins: Ints, left: Floats) -> dict[int, Candidates]:
        """For every episode with a bin: all candidates of the bin that fit."""
        found = {}
        for episode in np.flatnonzero(bins >= 0).tolist():
            arms, ranks = self._eligible(episode, int(bins[episode]), int(bins[episode]) + 1, left[episode])
            mine, actions = np.nonzero(ranks < self.num_ranks)
            own = arms[mine]
            usage = self.types.usage[self.kinds[own], self.states[episode, own], actions]
            bits = self._bits(episode, own, actions)
            found[episode] = Candidates(
                own + self.first_arm, actions.astype(np.int32), ranks[mine, actions], usage, bits
            )
        return found

    def chosen(self) -> tuple[Indices, int]:
        """(arm,) actions of the only episode, and the number of arms that are served."""
        actions = self.actions[0]
        return actions, int(self.types.served[self.kinds, self.states[0], actions].sum())

    def invalid(self) -> Ints:
        """Arms whose given state does not exist."""
        assert self.given is not None
        have = self.types.num_states[self.kinds]
        return np.flatnonzero((self.given < 0) | (self.given >= have)) + self.first_arm

    def by_row(self, served: bool = False) -> Floats:
        """(episode, row) mean return, or weighted time served, of the arms of each row."""
        of_arms = np.concatenate(self.served if served else self.returns)
        if len(self.counts) == self.num_arms:
            return of_arms
        return np.asarray(np.add.reduceat(of_arms, self.row_starts, axis=1) / self.counts)

    def moments(self) -> Floats:
        """(4, row) mean return and its sum of squared deviations, and those of the time served."""
        found = []
        for samples in (self.by_row(), self.by_row(True)):
            mean = samples.mean(axis=0)
            found += [mean, ((samples - mean) ** 2).sum(axis=0)]
        return np.stack(found)

    def weighted(self, weights: Floats, groups: Indices | None = None, number: int = 0) -> Floats:
        """(episode,) sums of weighted returns over rows, or (episode, group) of each group."""
        returns = self.by_row()
        if groups is None:
            return np.asarray(returns @ weights)
        return np.stack([np.bincount(groups, weights=row * weights, minlength=number) for row in returns])


class BlockSimulation:
    """The driver of a simulation."""

    def __init__(
        self,
        model: StoredArms,
        policy: BlockPolicy,
        pool: Pool,
        weights: Floats | None = None,
        states: Indices | None = None,
        block_rows: int = BLOCK,
    ) -> None:
        """Build the blocks and rank the scores of all rows.

        Args:
            model: the arms, under the criterion of the simulation.
            policy: what is simulated.
            pool: the workers.
            weights: (row,) welfare weights, for fair-index.
            states: (arm,) current states, for one decision.
            block_rows: rows per block.
        """
        self.model, self.cuts = model, [*range(0, model.num_rows, block_rows), model.num_rows]
        arms = [model.arms_before(row) for row in self.cuts]
        shared = (model.num_arms, model.budget, model.discount, model.criterion, policy)
        starts = zip(pairwise(self.cuts), arms[:-1], strict=True)
        builders: list[Callable[[], SimulatedBlock]] = [
            _Builder(model.row_reader(*rows), first, *shared) for rows, first in starts
        ]
        self.blocks = pool.blocks(builders)
        own = [None] * len(self.blocks) if weights is None else np.split(weights, self.cuts[1:-1])
        facts = self.blocks.map(SimulatedBlock.facts, each=[(part,) for part in own])
        scores, preferred, rewards, actions, least = zip(*facts, strict=True)
        self.largest_reward, self.least = max(rewards), np.min(least, axis=0)
        ranks = _ranked(scores, preferred, policy)
        self.limit = model.budget * ROOM
        num_ranks = max(1, 1 + max(int(part.max(initial=-1)) for part in ranks))
        self.num_bins = min(NUM_BINS, num_ranks)
        given = [None] * len(self.blocks) if states is None else np.split(states, arms[1:-1])
        self._setup = [(r, s, max(actions), num_ranks) for r, s in zip(ranks, given, strict=True)]
        self.log: list[LogEntry] = []
        self._told = 0

    def ask(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Answers of all blocks, each after it has followed the log."""
        start = self._told
        own = [()] * len(self.blocks) if each is None else each
        while True:
            setups = self._setup if start == 0 else [None] * len(self.blocks)
            rest = [((setup, *part),) for setup, part in zip(setups, own, strict=True)]
            answers = self.blocks.map(SimulatedBlock.ask, method, start, self.log[start:], arguments, each=rest)
            if not any(isinstance(answer, Behind) for answer in answers):
                self._told = len(self.log)
                return answers
            start = 0

    def run(self, num_episodes: int, weights: Floats, rng: Rng, progress: Progress | None = None) -> Floats:
        """Simulate episodes, as `simulate` does, and return the (episode, resource) weighted use.

        Args:
            num_episodes: number of episodes.
            weights: (step,) weight of each step.
            rng: seed or generator.
            progress: called with the completed share.
        """
        check_positive_int(num_episodes, "num_episodes")
        world, policy = as_generator(rng).spawn(2)
        keys = draw_keys(world, len(weights) + 1)
        size = max(1, min(num_episodes, BATCH // self.model.num_arms))
        starts = range(0, num_episodes, size)
        used = np.zeros((num_episodes, len(self.limit)))
        for part, (start, stream) in enumerate(zip(starts, policy.spawn(len(starts)), strict=True)):
            number = min(size, num_episodes - start)
            self.log.append(("begin", (start, number, keys[0])))
            for step, (key, weight) in enumerate(zip(keys[1:], weights.tolist(), strict=True)):
                left = self.choose(number, draw_keys(stream, 1)[0])
                used[start : start + number] += weight * (self.limit - left)
                self.log.append(("move", (weight, key)))
                if progress is not None:
                    progress("simulating", (part + step / len(weights)) / len(starts))
        return used

    def act(self, rng: Rng) -> tuple[Indices, Floats, int]:
        """(arm,) actions for the given states, the use of each resource, and the number of arms that are served.

        Args:
            rng: seed or generator, for ties.
        """
        self.log.append(("place", ()))
        left = self.choose(1, draw_keys(as_generator(rng), 1)[0])
        actions, served = zip(*self.ask("chosen"), strict=True)
        return np.concatenate(actions), (self.limit - left)[0], sum(served)

    def choose(self, num_episodes: int, key: np.uint64) -> Floats:
        """Decide a step; return the (episode, resource) amounts that are left.

        Args:
            num_episodes: of the batch.
            key: of the order of equals.
        """
        self.log.append(("decide", (key,)))
        left = np.repeat(self.limit[None], num_episodes, axis=0)
        starts = np.zeros(num_episodes, dtype=np.int64)
        while (starts >= 0).any():
            bins, left = self._accept(starts, left)
            if (bins >= 0).any():
                left = self._merge(bins, left)
            starts = np.where((bins >= 0) & (left >= self.least).all(axis=1), bins + 1, -1)
            starts[starts >= self.num_bins] = -1
        return left

    def _accept(self, starts: Ints, left: Floats) -> tuple[Ints, Floats]:
        """Serve the bins that fit entirely; (episode,) the bin after them, -1 if all fit, and what is left."""
        sums: Floats = np.cumsum(np.sum(self.ask("histogram", starts, left), axis=0), axis=1)
        fits = np.asarray((sums <= left[:, None]).all(axis=2))
        number = np.where(fits.all(axis=1), self.num_bins, fits.argmin(axis=1))
        undecided = starts >= 0
        stops = np.where(undecided, number, starts)
        after = left - np.where(
            (undecided & (number > 0))[:, None], sums[np.arange(len(starts)), np.maximum(number, 1) - 1], 0.0
        )
        self.log.append(("accept", (starts, stops, left)))
        return np.where(undecided & (number < self.num_bins), number, -1), after

    def _merge(self, bins: Ints, left: Floats) -> Floats:
        """Pass the candidates of one bin of each episode in their order."""
        answers = self.ask("candidates", bins, left)
        after, taken = left.copy(), []
        for episode in answers[0]:
            merged = Candidates(*map(np.concatenate, zip(*(answer[episode] for answer in answers), strict=True)))
            order = np.lexsort((merged.bits, merged.ranks))
            served, after[episode] = serve_in_order(merged.arms[order], merged.usage[order], left[episode])
            mine = order[served]
            taken.append((np.full(len(mine), episode), merged.arms[mine], merged.actions[mine]))
        self.log.append(("take", tuple(np.concatenate(parts) for parts in zip(*taken, strict=True))))
        return after


def _ranked(scores: Sequence[Floats], preferred: Sequence[Bools | None], policy: BlockPolicy) -> list[Indices]:
    """(block,) ranks of the cells of all blocks, as `rank_scores` gives for all of them together."""
    flat = np.concatenate([part.ravel() for part in scores])
    ranks = rank_scores(flat, -np.inf, ROUNDING if policy.name == "fair-index" else None)
    if preferred[0] is not None:
        first = np.concatenate([part.ravel() for part in preferred if part is not None])
        # Cells that are best at the prices precede all others.
        ranks = np.where((ranks < 0) | first, ranks, ranks + int(ranks.max(initial=0)) + 1).astype(np.int32)
    ends = np.cumsum([part.size for part in scores])[:-1]
    return [part.reshape(table.shape) for part, table in zip(np.split(ranks, ends), scores, strict=True)]


def serve_in_order(arms: Ints, usage: Floats, left: Floats) -> tuple[Bools, Floats]:
    """(candidate,) whether it is served if candidates are passed in their order, and (resource,) what is left.

    Args:
        arms: (candidate,) the arm of each.
        usage: (candidate, resource) its use.
        left: (resource,) what is available.
    """
    taken = np.zeros(len(arms), dtype=np.bool_)
    rest = np.arange(len(arms))
    while len(rest := rest[(usage[rest] <= left).all(axis=1)]):
        first = np.sort(np.unique(arms[rest], return_index=True)[1])  # the first candidate of every arm, in order
        sums = np.cumsum(usage[rest[first]], axis=0)
        fits = np.asarray((sums <= left).all(axis=1))
        number = len(fits) if fits.all() else int(fits.argmin())
        if number:
            taken[rest[first[:number]]] = True
            left = left - sums[number - 1]
        if number == len(first):
            break
        # The first that does not fit is passed over; those behind it, of arms not served yet, are tried again.
        after = rest[first[number] + 1 :]
        rest = after[~np.isin(arms[after], arms[rest[first[:number]]])]
    return taken, left
