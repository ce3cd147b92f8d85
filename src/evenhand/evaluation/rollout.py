"""Per-arm simulation of any policy on any problem.

    G[e, n] = sum_{t < T} w_t r_n(s_t, a_t),      served[e, n] = sum_t w_t [d_n(s_t, a_t) > 0] / sum_t w_t

The weights w and the usual number of steps T are the criterion's: gamma^t where it discounts, equal shares after a
warm-up where it averages. A policy made for a finite horizon that is played for longer begins again after its last
step (`TimeVaryingPolicy`).

Randomness is split once: one stream for the world, one for the policy. The world's numbers belong to (step, episode,
arm), so two policies given the same rng meet the same world, and an arm that both treat alike moves alike. A simulator
draws as it likes: its numbers belong to the step and the batch.

From change to change (`simulate_events`), for long runs of arms that mostly stay where they are:
let delta_n(s) be the largest probability with which arm n leaves state s, over all its actions. At every step each arm
*rings* with probability delta_n(s), independently of all actions; an arm that rings moves to j with probability
p(j | s, a) / delta_n(s) and else stays, and an arm that does not ring stays. Arms so move as they do by p. As long as
none rings the states do not change, whatever is done, so the steps until the first one does are drawn at once:

    K_n ~ Geometric(delta_n(s_n)),   K = min_n K_n        steps in which nothing rings, before the one in which n does

A policy without memory chooses actions at each of these K + 1 steps by the same distribution, which does not depend on
K: one choice, weighted by K + 1, has the expectation of them all. States are distributed as in `simulate`, and means
of rewards are the same; the cost is one choice per change instead of one per step. It is for policies that serve by
rank, whose choices are made in compiled loops.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int, check_shape
from evenhand.display import counted, progress_or_none, task_progress, with_progress_bar
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import RankTables, fixed
from evenhand.kernels.stepping import World, first_states
from evenhand.model.arm_matching import check_arms
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import WARM_UP
from evenhand.model.policy import (
    Policy,
    StatefulPolicy,
    begin,
    check_acts,
    check_budget,
    checked_shape,
    missing_action,
    service_limits,
)
from evenhand.model.simulator import Problem, Simulator, check_problem
from evenhand.typing import Array, Floats, Indices, Ints, Progress, Rng

if TYPE_CHECKING:
    from evenhand.kernels.episodes import Dynamics, Totals

BATCH = 4_000_000
"""Arms of all episodes that are in memory at once. Part of the result: each batch has a stream of its own."""

CHUNK, MOST_CHANGES = 4_000_000, 10_000
"""Steps of arms, and changes of an episode, of one call of compiled code: between calls progress is reported."""


@dataclass(frozen=True)
class Rollout:
    """Result of simulating a policy."""

    returns: Floats
    """(episode, arm) weighted sums of rewards up to the horizon; (episode, type) means for a simulation of counts."""

    used: Floats
    """(episode, resource) weighted mean share of the budget used, 1 when all of it is used at every step."""

    served: Floats
    """(episode, arm) weighted share of the time in which each arm was served; (episode, type) means for counts."""

    horizon: int
    """Steps an episode."""

    states: Indices | None = None
    """(episode, step, arm) the state in which each arm was at each step; None unless paths are recorded."""

    actions: Indices | None = None
    """(episode, step, arm) the action that it then got."""

    rewards: Floats | None = None
    """(episode, step, arm) what it then earned, not weighted; of the first table where several are summed."""

    counts: Ints | None = None
    """(episode, step, type, state) number of arms in each state, of a simulation of counts with recorded paths."""

    allocations: Ints | None = None
    """(episode, step, type, state, action) number of them that got each action."""

    visits: Floats | None = None
    """(type, state, action) weighted visits of all arms and episodes, under `average`; None for a simulator."""

    drift: Floats | None = None
    """(episode, arm) mean reward per step in the second half of the steps that count, less that in the first, under
    `average`; (episode, type) means for counts. None if there are no two halves."""

    def __repr__(self) -> str:
        return f"Rollout({counted(len(self.used), 'episode')} of {counted(self.horizon, 'step')})"


# -- playing ---------------------------------------------------------------------------------------------------------


@with_progress_bar
def simulate(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
    rewards: Floats | None = None,
    keep_paths: bool = False,
    batch_size: int = BATCH,
) -> Rollout:
    """Play a policy, every arm on its own, under the problem's criterion.

    Args:
        problem: the problem, or a simulator.
        policy: the policy; its actions are checked at every step.
        num_episodes: number of independent episodes.
        horizon: steps per episode; by default the criterion's own: 300 discounted, 1000 for an average, of which the
            first quarter does not count, and the horizon itself where it is finite.
        rng: seed or generator; 0 by default, so that the same call gives the same numbers. None for others each time.
        progress: True shows a bar; a function is called at intervals with the current task and the completed share.
        rewards: (type, state, action) rewards in place of the arms' own; or (table, type, state,
            action) several such, and then returns are (table, episode, arm). Not for a simulator.
        keep_paths: whether to record the states, actions and rewards of every step.
        batch_size: arms, over all episodes of a batch, that are simulated together; each batch has its own stream.

    Raises:
        PolicyError: an action does not exist, the budget is broken, or the shape is wrong.
        TooLargeError: the returns, or the paths, would not fit in memory; nothing is played then.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=5)
        >>> played = eh.simulate(machines, eh.policies.worst_first(machines), 10, 50, rng=0, keep_paths=True)
        >>> played.returns.shape, played.states.shape, played.actions.max()
        ((10, 5), (10, 50, 5), np.int32(1))
    """
    check_problem(problem, "simulate(problem, policy)")
    check_acts(policy)
    check_arms(policy, problem)
    report = progress_or_none(progress)
    check_positive_int(num_episodes, "num_episodes")
    # Everything is read and checked, and memory is reserved, before the first step.
    weights = step_weights(problem, horizon)
    if isinstance(problem, Simulator) and rewards is not None:
        raise NotApplicableError("rewards: a simulator samples its own, and others cannot be summed in their place")
    gains = np.zeros((1, 0, 0, 0)) if isinstance(problem, Simulator) else summed_rewards(problem, rewards)
    middle = middle_step(problem, weights)
    paths = _reserve(problem, len(gains), num_episodes, len(weights), keep_paths, batch_size)
    cells = None if middle is None or isinstance(problem, Simulator) else problem.types.valid.shape
    sums = Sums.zeros((len(gains), num_episodes, problem.num_arms), problem.num_resources, cells, **paths)
    # The two streams; keys are drawn once, so that the random numbers of the moves do not depend on batches.
    world_rng, policy_rng = as_generator(rng).spawn(2)
    keys = draw_keys(world_rng, len(weights) + 1)
    for rows, stream, tell in in_batches(num_episodes, problem.num_arms, policy_rng, report, batch_size):
        own, play = sums.of(rows), Play(weights, keys, rows.start, stream, tell, middle)
        if isinstance(problem, Simulator):
            _play_sampled(problem, policy, play, own)
        else:
            types, number = problem.types, len(own.used)
            states = first_states(problem.type_of_arm, types.cumulative_initial, keys[0], rows.start, number)
            world = World(problem.type_of_arm, types.cumulative, gains, types.usage, types.real, types.served)
            play_batch(problem, policy, world, states, play, own)
    return sums.rollout(problem.budget, weights, is_several(rewards), middle)


def _reserve(
    problem: Problem, tables: int, num_episodes: int, steps: int, keep_paths: bool, batch_size: int
) -> dict[str, Array]:
    """Return the arrays of paths, if they are recorded; raise TooLargeError if the results do not fit in memory."""
    arms = problem.num_arms
    # Returns and shares served of all episodes, and the arrays of one batch.
    size = 8.0 * (tables + 2) * num_episodes * arms + 40.0 * min(batch_size, num_episodes * arms)
    what, instead = f"the returns of {num_episodes} episodes of {arms} arms", "Use fewer episodes; "
    if keep_paths:  # two int32 and a double for each step of each arm
        size += 16.0 * num_episodes * steps * arms
        what = f"the paths of {num_episodes} episodes of {steps} steps of {arms} arms"
        instead = "Use fewer episodes or steps, or do not keep the paths; "
    check_memory(size, what, f"{instead}a policy that treats equal arms alike can also be simulated by counts.")
    kinds = {"states": np.int32, "actions": np.int32, "rewards": np.float64} if keep_paths else {}
    return {name: np.zeros((num_episodes, steps, arms), kind) for name, kind in kinds.items()}


# -- sums over the steps, and batches of episodes --------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums and paths that are recorded in a simulation; units are arms, or types for counts."""

    returns: Floats
    """(table, episode, unit)"""

    served: Floats
    """(episode, unit)"""

    used: Floats
    """(episode, resource)"""

    first_half: Floats
    """(episode, unit) returns up to the middle of the steps that count; of an average only."""

    visits: Floats | None = None
    """(type, state, action) weighted visits of all episodes; of an average only."""

    paths: Mapping[str, Array] = MappingProxyType({})
    """(episode, step, ...) paths by their names in `Rollout`, if they are recorded."""

    @classmethod
    def zeros(
        cls, shape: tuple[int, int, int], num_resources: int, cells: tuple[int, ...] | None = None, **paths: Array
    ) -> "Sums":
        """Return sums of nothing yet.

        Args:
            shape: number of tables of rewards, of episodes, and of arms or types.
            num_resources: number of resources.
            cells: shape of the visits, if they are counted.
            **paths: arrays of paths, if they are recorded.
        """
        served, first_half, used = np.zeros(shape[1:]), np.zeros(shape[1:]), np.zeros((shape[1], num_resources))
        return cls(np.zeros(shape), served, used, first_half, None if cells is None else np.zeros(cells), paths)

    def of(self, rows: slice) -> "Sums":
        """Return views of some episodes."""
        paths = {name: path[rows] for name, path in self.paths.items()}
        own = self.served[rows], self.used[rows], self.first_half[rows]
        return Sums(self.returns[:, rows], *own, self.visits, paths)

    def record(self, step: int, **paths: Array | None) -> None:
        """Record a step if paths are recorded."""
        for name, path in self.paths.items():
            path[:, step] = paths[name]

    @contextmanager
    def totals(self) -> "Iterator[Totals]":
        """Contiguous copies of the sums for compiled loops, written back at the end."""
        from evenhand.kernels.episodes import Totals

        totals = Totals(*(np.ascontiguousarray(each) for each in self[:4]))
        yield totals
        for each, total in zip(self[:4], totals, strict=True):
            each[:] = total

    def rollout(self, budget: Floats, weights: Floats, several: bool = False, middle: int | None = None) -> Rollout:
        """Return the result of a simulation.

        Args:
            budget: (resource,) the budget.
            weights: (step,) weights of the steps.
            several: whether returns of several tables were requested.
            middle: first step of the second half of an average.
        """
        total, drift = float(weights.sum()), None
        if middle is not None:
            first = float(weights[:middle].sum())
            drift = (self.returns[0] - self.first_half) / (total - first) - self.first_half / first
        return Rollout(
            returns=self.returns if several else self.returns[0],
            used=share_of_budget(budget, self.used, total),
            served=self.served / total,
            horizon=len(weights),
            visits=self.visits,
            drift=drift,
            **self.paths,
        )


@dataclass(frozen=True)
class Play:
    """Simulation of one batch of episodes."""

    weights: Floats
    """(step,)"""

    keys: Array
    """(step + 1,) of the world; the first one is of the first states."""

    first: int
    """The number of the first episode."""

    rng: np.random.Generator
    """The policy's."""

    progress: Progress | None = None

    middle: int | None = None
    """The first step of the second half of those that count; None if that does not matter."""

    def tell(self, step: int) -> None:
        """Say how far it is, now and then."""
        if self.progress is not None:
            self.progress("playing", step / len(self.weights))


# -- what counts: weights and rewards --------------------------------------------------------------------------------


def step_weights(problem: Problem, horizon: int | None) -> Floats:
    """(step,) what each step to be simulated counts for."""
    steps = problem.criterion.simulated_steps(horizon)
    check_memory(16.0 * steps, f"a horizon of {steps} steps", "Use a shorter one.")
    return problem.criterion.time_weights(steps)


def summed_rewards(problem: CoupledMDP, rewards: Floats | None) -> Floats:
    """(table, type, state, action) what is summed: the arms' own rewards, or others of the same shape."""
    if rewards is None:
        return problem.types.rewards[None]
    num_types, num_states, num_actions = problem.types.rewards.shape
    # One table or several: from here on always several.
    tables = rewards[None] if rewards.ndim == 3 else rewards
    shape = {"table": None, "type": num_types, "state": num_states, "action": num_actions}
    check_shape(tables, shape, "rewards")
    return np.ascontiguousarray(tables, dtype=np.float64)


def is_several(rewards: Floats | None) -> bool:
    """Return whether several tables of rewards were requested, so that returns have an axis for them."""
    return rewards is not None and rewards.ndim == 4


def middle_step(problem: Problem, weights: Floats) -> int | None:
    """The first step of the second half of the (step,) weights of an average; None for others, or without halves."""
    if problem.criterion.fixed_steps(1) is not None:
        return None
    number = int(np.count_nonzero(weights))
    return len(weights) - number // 2 if number > 1 else None


def count_visits(problem: CoupledMDP, states: Indices, actions: Indices, weights: Floats | float) -> Floats:
    """(type, state, action) weighted numbers of arms, by (episode, arm) states and actions."""
    shape = problem.types.valid.shape
    cells = (problem.type_of_arm * shape[1] + states.astype(np.int64)) * shape[2] + actions
    every = np.broadcast_to(weights, cells.shape).reshape(-1)
    return np.asarray(np.bincount(cells.reshape(-1), every, problem.types.valid.size).reshape(shape), dtype=np.float64)


def in_batches(
    number: int, width: int, rng: np.random.Generator, progress: Progress | None = None, batch_size: int = BATCH
) -> Iterator[tuple[slice, np.random.Generator, Progress | None]]:
    """Yield batches of as many whole episodes as fit, each with a stream of the policy's own, and its progress.

    Args:
        number: episodes in all.
        width: arms of an episode.
        rng: generator of the policy.
        progress: called with the share of the whole.
        batch_size: arms of all episodes of a batch.
    """
    size = max(1, min(number, batch_size // width))
    starts = range(0, number, size)
    for batch, (start, stream) in enumerate(zip(starts, rng.spawn(len(starts)), strict=True)):
        yield slice(start, min(start + size, number)), stream, task_progress(progress, "", batch, len(starts))


# -- the steps -------------------------------------------------------------------------------------------------------


def compiled_tables(policy: Policy | StatefulPolicy, problem: Problem) -> RankTables | None:
    """Tables by which whole episodes of a policy are played in one compiled loop; None if it is called step by step.

    Args:
        policy: the policy.
        problem: what it plays: tables for other arms or another budget must be checked at every step.
    """
    classes = type(policy).__mro__

    def owner(name: str) -> int:
        return next((place for place, each in enumerate(classes) if name in vars(each)), len(classes))

    # A subclass with an `act` of its own, or an object that was given one, does not follow the tables.
    if owner("act") < owner("rank_tables") or "act" in vars(policy):
        return None
    tables = getattr(policy, "rank_tables", None)
    if not isinstance(tables, RankTables):
        return None
    own: list[Array] = [tables.type_of_arm, tables.idle, tables.usage, tables.limit]
    here: list[Array] = [problem.type_of_arm, problem.types.idle, *service_limits(problem)]
    return tables if all(np.array_equal(one, other) for one, other in zip(own, here, strict=True)) else None


def play_by_rank(dynamics: "Dynamics", tables: RankTables, states: Indices, play: Play, sums: Sums) -> None:
    """Play one batch of episodes of a policy that serves by rank: many steps per call of compiled code.

    Args:
        dynamics: tables by which arms move and earn.
        tables: order of service.
        states: (episode, arm) first states; replaced by the last ones.
        play: weights, keys and streams.
        sums: sums that are added to.
    """
    from evenhand.kernels import episodes

    middle, number, chunk = -1 if play.middle is None else play.middle, len(states), max(1, CHUNK // states.size)
    with sums.totals() as totals:
        for step in range(0, len(play.weights), chunk):
            weights, keys = play.weights[step : step + chunk], play.keys[1 + step : 1 + step + chunk]
            policy_keys = draw_keys(play.rng, len(weights) * tables.keys_per_step).reshape(len(weights), -1)
            steps = episodes.Steps(weights, keys, policy_keys, step, middle)
            given = (fixed(dynamics), tables, totals, states, steps, play.first)
            visits = sum(episodes.in_blocks(partial(episodes.play, *given), number))
            if sums.visits is not None:
                sums.visits[:] += play.weights.max() * visits  # under the average all steps that count weigh the same
            play.tell(step)


def play_batch(
    problem: CoupledMDP, policy: Policy | StatefulPolicy, world: World, states: Indices, play: Play, sums: Sums
) -> None:
    """Play one batch of episodes by matrices: in compiled loops if the policy serves by rank, else step by step.

    Args:
        problem: the problem, whose rules actions are held to.
        policy: the policy.
        world: tables by which arms move and earn; its rewards are (table, row, state, action), one or several.
        states: (episode, arm) first states; replaced by the last ones.
        play: weights, keys and streams.
        sums: sums that are added to.
    """
    from evenhand.kernels.episodes import Dynamics, step_arms

    tables = None if sums.paths else compiled_tables(policy, problem)
    if tables is not None:
        starts = world.starts if len(world.starts) else np.zeros(len(states), dtype=np.int32)
        dynamics = Dynamics(world.type_of_arm, starts, world.cumulative, world.rewards, problem.types.served)
        play_by_rank(dynamics, tables, states, play, sums)
        return
    # The step itself sums the first table; others are summed beside it.
    (returns, *others), (rewards, *other_rewards) = sums.returns, world.rewards
    moving = fixed(world._replace(rewards=rewards))

    def advance(t: int, key: np.uint64, weight: float, states: Indices, actions: Indices) -> tuple[Floats, Array]:
        cells = world.type_of_arm, states.copy(), actions
        spent, exist = step_arms(moving, states, actions, weight, returns, sums.served, key, play.first)
        # Before the budget: an action that does not exist has no usage.
        if not exist:
            raise PolicyError(missing_action(problem, cells[1], actions, t, play.first))
        check_budget(problem, spent, t, play.first)
        for table, total in zip(other_rewards, others, strict=True):
            total += weight * table[cells]  # a view of the sums
        if sums.visits is not None and weight > 0:
            sums.visits[:] += count_visits(problem, *cells[1:], weight)
        return spent, rewards[cells] if sums.paths else rewards

    _play_steps(policy, advance, states, play, sums)


def _play_sampled(simulator: Simulator, policy: Policy | StatefulPolicy, play: Play, sums: Sums) -> None:
    """Play one batch of episodes by sampling: all arms of all episodes in one call per step.

    The sampler of a step draws from a generator of the step's own key, so that policies given the same rng meet the
    same numbers, as far as the sampler draws as many for every state and action.
    """

    def advance(t: int, key: np.uint64, weight: float, states: Indices, actions: Indices) -> tuple[Floats, Floats]:
        if actions.min() < 0 or actions.max() >= simulator.num_actions:
            raise PolicyError(missing_action(simulator, states, actions, t, play.first))
        spent = simulator.usage[states, actions].sum(axis=1)
        check_budget(simulator, spent, t, play.first)
        sums.served[:] += weight * simulator.types.served[0][states, actions]
        # All arms of all episodes at once: arms are independent, and calls are expensive.
        moved, sampled = simulator.step(states.reshape(-1).copy(), actions.reshape(-1), _stream(key, play.first))
        rewards = sampled.reshape(states.shape)
        sums.returns[0] += weight * rewards
        states[:] = moved.reshape(states.shape)
        return spent, rewards

    states = simulator.begin(sums.served.size, _stream(play.keys[0], play.first)).reshape(sums.served.shape)
    _play_steps(policy, advance, states, play, sums)


def _play_steps(
    policy: Policy | StatefulPolicy,
    advance: Callable[[int, np.uint64, float, Indices, Indices], tuple[Floats, Array]],
    states: Indices,
    play: Play,
    sums: Sums,
) -> None:
    """Play one batch of episodes, with a call of the policy at every step.

    Args:
        policy: the policy.
        advance: from step, key, weight, states and actions to the usage and the rewards: checks the actions, moves the
            arms in place, and adds to returns and shares of time served.
        states: (episode, arm) first states; replaced by the last ones.
        play: weights, keys and streams.
        sums: sums that are added to.
    """
    actor = begin(policy, len(states), play.rng)
    for t, (key, weight) in enumerate(zip(play.keys[1:], play.weights.tolist(), strict=True)):
        # The policy gets a copy, which it may change.
        actions, before = checked_shape(actor.act(states.copy(), play.rng), states, t), states.copy()
        if t == play.middle:
            sums.first_half[:] = sums.returns[0]
        spent, rewards = advance(t, key, weight, states, actions)
        sums.used[:] += weight * spent
        sums.record(t, states=before, actions=actions, rewards=rewards)
        if t % 16 == 0:
            play.tell(t)


def _stream(key: np.uint64, first: int) -> np.random.Generator:
    """The world's generator of one step of one batch."""
    # The first episode of the batch is part of the seed: batches must not repeat each other.
    return np.random.default_rng([int(key), first])


def share_of_budget(budget: Floats, used: Floats, total: float) -> Floats:
    """(..., resource) weighted usage as a share of what the budget allows; 0 if the budget is 0.

    Args:
        budget: (resource,) the budget.
        used: (..., resource) usage, summed with the weights of the steps.
        total: the sum of these weights.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(budget > 0, used / (budget * total), 0.0)


# -- from change to change -------------------------------------------------------------------------------------------


def leaving(problem: CoupledMDP) -> Floats:
    """(type, state) the largest probability of leaving each state, over the actions that exist."""
    types = problem.types
    # A sum of small numbers, not 1 less a number near 1: rates may be tiny.
    return np.asarray(np.where(types.valid, _moves(types.transitions).sum(axis=3), 0.0).max(axis=2))


def _moves(transitions: Floats) -> Floats:
    """(type, state, action, next_state) the probabilities of other states than the present one."""
    return np.asarray(np.where(np.eye(transitions.shape[1], dtype=np.bool_)[:, None, :], 0.0, transitions))


def simulate_events(
    problem: CoupledMDP,
    policy: Policy,
    num_episodes: int,
    horizon: int,
    rng: Rng = 0,
    progress: Progress | None = None,
    rewards: Floats | None = None,
) -> Rollout:
    """Play a policy that serves by rank under the criterion `average`, every arm on its own, from change to change.

    Args:
        problem: the problem.
        policy: the policy.
        num_episodes: number of independent episodes.
        horizon: steps per episode.
        rng: seed or generator.
        progress: called at intervals with the current task and the completed share.
        rewards: tables of rewards in place of the arms' own; see `simulate`.

    Raises:
        NotApplicableError: the policy does not serve by rank.
    """
    from evenhand.kernels import episodes

    tables = compiled_tables(policy, problem)
    if tables is None:
        raise NotApplicableError("only policies that serve by rank are played from change to change")
    gains, types, kinds, warm = summed_rewards(problem, rewards), problem.types, problem.type_of_arm, horizon // WARM_UP
    rates = leaving(problem)
    with np.errstate(divide="ignore"):
        silent = np.log1p(-np.minimum(rates, 1.0))
    cumulative = np.cumsum(_moves(types.transitions) / np.where(rates > 0, rates, 1.0)[:, :, None, None], axis=3)
    world_rng, policy_rng = as_generator(rng).spawn(2)
    sums = Sums.zeros((len(gains), num_episodes, problem.num_arms), problem.num_resources)
    visits = np.zeros(types.valid.shape)
    window = (float(warm), (warm + horizon) / 2, float(horizon))
    for rows, stream, tell in in_batches(num_episodes, problem.num_arms, policy_rng, progress):
        start, number = rows.start, rows.stop - rows.start
        # A copy: the numbers of an event do not depend on batches.
        world = deepcopy(world_rng)
        states = first_states(kinds, types.cumulative_initial, draw_keys(world, 1)[0], start, number)
        clocks, nowhere = np.zeros(number), np.zeros(number, dtype=np.int32)
        dynamics = fixed(episodes.Dynamics(kinds, nowhere, cumulative, gains, types.served))
        changes = min(max(1, CHUNK // states.size), MOST_CHANGES)
        with sums.of(rows).totals() as totals:
            while (clocks < horizon).any():
                keys, policy_keys = draw_keys(world, 2 * changes), draw_keys(stream, changes * tables.keys_per_step)
                steps = episodes.Changes(silent, clocks, keys.reshape(-1, 2), policy_keys.reshape(changes, -1), *window)
                given = (dynamics, tables, totals, states, steps, start)
                visits += sum(episodes.in_blocks(partial(episodes.play_changes, *given), number))
                if tell is not None:
                    tell("playing", float(clocks.mean()) / horizon)
    return Rollout(
        returns=sums.returns if is_several(rewards) else sums.returns[0],
        used=share_of_budget(problem.budget, sums.used, 1.0),
        served=sums.served,
        horizon=horizon,
        visits=visits,
        drift=sums.first_half,
    )
