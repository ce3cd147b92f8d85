"""Per-arm simulation of any policy on any problem.

    G[e, n] = sum_{t < T} w_t r_n(s_t, a_t),      served[e, n] = sum_t w_t [d_n(s_t, a_t) > 0] / sum_t w_t

The weights w and the usual number of steps T are the criterion's: gamma^t where it discounts, equal shares after a
warm-up where it averages. A policy made for a finite horizon that is played for longer begins again after its last
step (`TimeVaryingPolicy`).

Randomness is split once: one stream for the world, one for the policy. The world's numbers belong to (step, episode,
arm), so two policies given the same rng meet the same world, and an arm that both treat alike moves alike. A simulator
draws as it likes: its numbers belong to the step and the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int, check_shape
from evenhand.display import counted, heard, shows_bar
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import RankTables, fixed
from evenhand.kernels.stepping import World, first_states
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.feasible import check_budget, checked_shape, missing_action
from evenhand.model.policy import Policy, StatefulPolicy, begin, check_acts
from evenhand.model.same_arms import check_places
from evenhand.model.simulator import Problem, Simulator, check_problem
from evenhand.typing import Array, Floats, Indices, Ints, Progress, Rng

if TYPE_CHECKING:
    from evenhand.kernels.episodes import Dynamics

BATCH = 4_000_000
"""Arms of all episodes that are in memory at once. Part of the result: each batch has a stream of its own."""

CHUNK = 4_000_000
"""Steps of arms of one call of compiled code: between calls progress is reported."""


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
    """(episode, step, type, state) how many arms were in each state, of a simulation of counts with recorded paths."""

    allocations: Ints | None = None
    """(episode, step, type, state, action) how many of them got each action."""

    visits: Floats | None = None
    """(type, state, action) weighted visits of all arms and episodes, under `average`; None for a simulator."""

    drift: Floats | None = None
    """(episode, arm) mean reward per step in the second half of the steps that count, less that in the first, under
    `average`; (episode, type) means for counts. None if there are no two halves."""

    def __repr__(self) -> str:
        return f"Rollout({counted(len(self.used), 'episode')} of {counted(self.horizon, 'step')})"


# -- playing ---------------------------------------------------------------------------------------------------------


@shows_bar
def simulate(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
    criterion: str | Criterion | None = None,
    rewards: Floats | None = None,
    keep_paths: bool = False,
) -> Rollout:
    """Play a policy, every arm on its own.

    Args:
        problem: the problem, or a simulator.
        policy: what acts; its actions are checked at every step.
        num_episodes: how many independent episodes.
        horizon: steps per episode; by default the criterion's own: 300 discounted, 1000 for an average, of which the
            first quarter does not count, and the horizon itself where it is finite.
        rng: seed or generator; 0 by default, so that the same call gives the same numbers. None for others each time.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        criterion: what the steps weigh, as text or object; by default the problem's own.
        rewards: (type, state, action) what is summed in place of the arms' own rewards; or (table, type, state,
            action) several such, and then returns are (table, episode, arm). Not for a simulator.
        keep_paths: whether to keep the states, actions and rewards of every step.

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
    check_places(policy, problem)
    report = heard(progress)
    check_positive_int(num_episodes, "num_episodes")
    # Everything is read and checked, and room is made, before the first step.
    weights = step_weights(problem, horizon, criterion)
    gains = None if isinstance(problem, Simulator) else summed_rewards(problem, rewards)
    if gains is None and rewards is not None:
        raise NotApplicableError("rewards: a simulator samples its own, and others cannot be summed in their place")
    number = 1 if gains is None else len(gains)
    sums = _Sums.reserve(problem, number, num_episodes, len(weights), keep_paths)
    # The split of the head; keys are drawn once, so that the world does not depend on batches.
    world_rng, policy_rng = as_generator(rng).spawn(2)
    keys = draw_keys(world_rng, len(weights) + 1)
    # As many whole episodes as fit.
    size = max(1, min(num_episodes, BATCH // problem.num_arms))
    middle = middle_step(problem, criterion, weights)
    starts = range(0, num_episodes, size)
    tables = None if keep_paths or gains is None else compiled_tables(policy, problem)
    # Each batch of episodes has a stream of the policy's own.
    for batch, (start, stream) in enumerate(zip(starts, policy_rng.spawn(len(starts)), strict=True)):
        own = sums.of(slice(start, min(start + size, num_episodes)))
        tell = None if report is None else part_of(report, batch, len(starts))
        play = Play(policy, weights, keys, start, stream, tell, middle)
        if isinstance(problem, Simulator):
            _play_sampled(problem, play, own)
        else:
            assert gains is not None
            if tables is None:
                _play(problem, play, own, gains)
            else:
                _play_by_rank(problem, play, own, gains, tables)
    total = float(weights.sum())
    return Rollout(
        returns=as_asked(sums.returns, rewards),
        used=share_of_budget(problem, sums.used, total),
        served=sums.served / total,
        horizon=len(weights),
        states=sums.states,
        actions=sums.actions,
        rewards=sums.rewards,
        visits=None if middle is None or gains is None else sums.visits,
        drift=None if middle is None else drift_of(sums.returns[0], sums.first_half, weights, middle),
    )


# -- what is summed up, and how a batch is played --------------------------------------------------------------------


@dataclass(frozen=True)
class _Sums:
    """Sums and paths that are recorded while a policy is played."""

    returns: Floats
    """(table, episode, arm)"""

    served: Floats
    """(episode, arm)"""

    used: Floats
    """(episode, resource)"""

    states: Indices | None
    """(episode, step, arm) if paths are recorded; likewise the next two."""

    actions: Indices | None

    rewards: Floats | None

    first_half: Floats
    """(episode, arm) returns up to the middle of the steps that count; only of an average."""

    visits: Floats
    """(type, state, action) of all episodes; only of an average."""

    @classmethod
    def reserve(cls, problem: Problem, tables: int, num_episodes: int, steps: int, keep_paths: bool) -> "_Sums":
        """Room for all of it, if there is any."""
        arms = problem.num_arms
        # Returns and shares served of all episodes, and what is in flight for one batch.
        size = 8.0 * (tables + 2) * num_episodes * arms + 40.0 * min(BATCH, num_episodes * arms)
        what, instead = f"the returns of {num_episodes} episodes of {arms} arms", "Use fewer episodes; "
        if keep_paths:
            # Two int32 and a double for each step of each arm.
            size += 16.0 * num_episodes * steps * arms
            what = f"the paths of {num_episodes} episodes of {steps} steps of {arms} arms"
            instead = "Use fewer episodes or steps, or do not keep the paths; "
        check_memory(size, what, f"{instead}a policy that treats equal arms alike can also be simulated by counts.")
        path = (num_episodes, steps, arms)
        return cls(
            np.zeros((tables, num_episodes, arms)),
            np.zeros((num_episodes, arms)),
            np.zeros((num_episodes, problem.num_resources)),
            np.zeros(path, dtype=np.int32) if keep_paths else None,
            np.zeros(path, dtype=np.int32) if keep_paths else None,
            np.zeros(path) if keep_paths else None,
            np.zeros(path[::2]),
            np.zeros(problem.types.valid.shape),
        )

    def of(self, rows: slice) -> "_Sums":
        """Those of some episodes; what is written there is written here."""
        return _Sums(
            self.returns[:, rows],
            self.served[rows],
            self.used[rows],
            None if self.states is None else self.states[rows],
            None if self.actions is None else self.actions[rows],
            None if self.rewards is None else self.rewards[rows],
            self.first_half[rows],
            self.visits,
        )

    def keep(self, step: int, states: Indices, actions: Indices, rewards: Floats) -> None:
        """Record a step if paths are recorded; all are (episode, arm)."""
        if self.states is not None and self.actions is not None and self.rewards is not None:
            self.states[:, step], self.actions[:, step], self.rewards[:, step] = states, actions, rewards


@dataclass(frozen=True)
class Play:
    """Simulation of one batch of episodes."""

    policy: Policy | StatefulPolicy

    weights: Floats
    """(step,)"""

    keys: Array
    """(step + 1,) of the world; the first one is of the first states."""

    first: int
    """The number of the first episode."""

    rng: np.random.Generator
    """The policy's."""

    progress: Progress | None

    middle: int | None = None
    """The first step of the second half of those that count; None if that does not matter."""

    def tell(self, step: int) -> None:
        """Say how far it is, now and then."""
        if self.progress is not None:
            self.progress("playing", step / len(self.weights))


# -- what counts: weights and rewards --------------------------------------------------------------------------------


def step_weights(problem: Problem, horizon: int | None, criterion: str | Criterion | None) -> Floats:
    """(step,) what each step to be simulated counts for."""
    chosen = problem.with_criterion(criterion).criterion
    steps = chosen.simulated_steps(horizon)
    check_memory(16.0 * steps, f"a horizon of {steps} steps", "Use a shorter one.")
    return chosen.time_weights(steps)


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


def as_asked(returns: Floats, rewards: Floats | None) -> Floats:
    """(table, episode, unit) returns, without the first axis unless several tables were requested."""
    return returns if rewards is not None and rewards.ndim == 4 else returns[0]


def middle_step(problem: Problem, criterion: str | Criterion | None, weights: Floats) -> int | None:
    """The first step of the second half of the (step,) weights of an average; None for others, or without halves."""
    if not problem.with_criterion(criterion).criterion.is_average:
        return None
    number = int(np.count_nonzero(weights))
    return len(weights) - number // 2 if number > 1 else None


def drift_of(returns: Floats, first_half: Floats, weights: Floats, middle: int) -> Floats:
    """(episode, unit) mean reward of the second half of the steps that count, less that of the first."""
    first = float(weights[:middle].sum())
    return np.asarray((returns - first_half) / (float(weights.sum()) - first) - first_half / first)


def count_visits(problem: CoupledMDP, states: Indices, actions: Indices, weights: Floats | float) -> Floats:
    """(type, state, action) weighted numbers of arms, by (episode, arm) states and actions."""
    shape = problem.types.valid.shape
    cells = (problem.type_of_arm * shape[1] + states.astype(np.int64)) * shape[2] + actions
    every = np.broadcast_to(weights, cells.shape).reshape(-1)
    return np.asarray(np.bincount(cells.reshape(-1), every, problem.types.valid.size).reshape(shape), dtype=np.float64)


def part_of(progress: Progress, part: int, parts: int) -> Progress:
    """A callback that reports the progress of one part as progress of the whole."""
    return lambda what, share: progress(what, (part + share) / parts)


# -- the steps -------------------------------------------------------------------------------------------------------


def compiled_tables(policy: Policy | StatefulPolicy, problem: Problem) -> RankTables | None:
    """Tables by which whole episodes of a policy are played in one compiled loop; None if it is called step by step.

    Args:
        policy: what acts.
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
    types = problem.types
    own: list[Array] = [tables.type_of_arm, tables.usage, tables.idle, tables.limit]
    here: list[Array] = [problem.type_of_arm, types.usage, types.idle, problem.budget_limit]
    return tables if all(np.array_equal(one, other) for one, other in zip(own, here, strict=True)) else None


def play_by_rank(
    dynamics: "Dynamics", tables: RankTables, states: Indices, totals: Sequence[Floats], play: Play
) -> Ints:
    """Play one batch of episodes of a policy that serves by rank: many steps per call of compiled code.

    Args:
        dynamics: tables by which arms move and earn.
        tables: those of the policy.
        states: (episode, arm) first states; replaced by the last ones.
        totals: contiguous sums, which are added to: returns (table, episode, arm), shares of time served, usage, and
            returns up to the middle.
        play: how it is played.

    Returns:
        (type, state, action) visits in the steps that count.
    """
    from evenhand.kernels import episodes

    middle, number = -1 if play.middle is None else play.middle, len(states)
    chunk, visits = max(1, CHUNK // states.size), np.zeros(dynamics.serves.shape, dtype=np.int64)
    for step in range(0, len(play.weights), chunk):
        weights, keys = play.weights[step : step + chunk], play.keys[1 + step : 1 + step + chunk]
        policy_keys = draw_keys(play.rng, len(weights) * tables.keys_per_step).reshape(len(weights), -1)
        steps = (states, weights, keys, policy_keys, step, middle, play.first, number)
        run: Any = episodes.play
        for part in episodes.in_blocks(partial(run, *fixed(dynamics), *tables, *totals, *steps), number):
            visits += part
        play.tell(step)
    return visits


def _play_by_rank(problem: CoupledMDP, play: Play, sums: _Sums, gains: Floats, tables: RankTables) -> None:
    """Play one batch of episodes of a policy that serves by rank."""
    from evenhand.kernels.episodes import Dynamics

    types, number = problem.types, len(sums.used)
    states = first_states(problem.type_of_arm, types.cumulative_initial, play.keys[0], play.first, number)
    start = np.zeros(number, dtype=np.int32)
    dynamics = Dynamics(problem.type_of_arm, start, types.cumulative, gains, types.served)
    own = (sums.returns, sums.served, sums.used, sums.first_half)
    totals = [np.ascontiguousarray(each) for each in own]
    visits = play_by_rank(dynamics, tables, states, totals, play)
    for each, total in zip(own, totals, strict=True):
        each[:] = total
    if play.middle is not None:
        sums.visits[:] += play.weights.max() * visits  # under the average all steps that count weigh the same


def _play(problem: CoupledMDP, play: Play, sums: _Sums, gains: Floats) -> None:
    """Play one batch of episodes by matrices, and ask the policy at every step."""
    types = problem.types
    from evenhand.kernels.episodes import step_arms

    # The step itself sums the first table; others are summed beside it.
    returns, *others = sums.returns
    world = fixed(World(problem.type_of_arm, types.cumulative, gains[0], types.usage, types.real, types.served))
    states = first_states(problem.type_of_arm, types.cumulative_initial, play.keys[0], play.first, len(returns))
    actor = begin(play.policy, len(returns), play.rng)
    for t, (key, weight) in enumerate(zip(play.keys[1:], play.weights.tolist(), strict=True)):
        # The policy sees a copy: what it does with it does not change the world.
        actions = checked_shape(actor.act(states.copy(), play.rng), states, t)
        # The step changes the states in place: who needs them later keeps a copy.
        before = states.copy() if others or sums.states is not None or play.middle is not None else states
        if t == play.middle:
            sums.first_half[:] = returns
        spent, exist = step_arms(*world, states, actions, weight, returns, sums.served, key, play.first)
        # Before the budget: an action that does not exist has no usage.
        if not exist:
            raise PolicyError(missing_action(problem, states, actions, t, play.first))
        for table, sums_of_table in zip(gains[1:], others, strict=True):
            sums_of_table += weight * table[problem.type_of_arm, before, actions]
        check_budget(problem, spent, t, play.first)
        sums.used[:] += weight * spent
        if play.middle is not None and weight > 0:
            sums.visits[:] += count_visits(problem, before, actions, weight)
        if sums.states is not None:
            sums.keep(t, before, actions, gains[0][problem.type_of_arm, before, actions])
        if t % 16 == 0:
            play.tell(t)


def _play_sampled(simulator: Simulator, play: Play, sums: _Sums) -> None:
    """Play one batch of episodes by sampling: all arms of all episodes in one call a step.

    The sampler of a step draws from a generator of the step's own key, so that policies given the same rng meet the
    same numbers, as far as the sampler draws as many for every state and action.
    """
    usage, returns = simulator.usage, sums.returns[0]
    states = _sampled_first(simulator, play, len(returns))
    actor = begin(play.policy, len(returns), play.rng)
    for t, (key, weight) in enumerate(zip(play.keys[1:], play.weights.tolist(), strict=True)):
        actions = checked_shape(actor.act(states.copy(), play.rng), states, t)
        if actions.min() < 0 or actions.max() >= simulator.num_actions:
            raise PolicyError(missing_action(simulator, states, actions, t, play.first))
        spent = usage[states, actions].sum(axis=1)
        check_budget(simulator, spent, t, play.first)
        # All arms of all episodes at once: arms are independent, and calls are dear.
        moved, got = simulator.step(states.reshape(-1).copy(), actions.reshape(-1), _stream(key, play.first))
        rewards = got.reshape(states.shape)
        if t == play.middle:
            sums.first_half[:] = returns
        returns += weight * rewards
        sums.served[:] += weight * simulator.types.served[0][states, actions]
        sums.used[:] += weight * spent
        sums.keep(t, states, actions, rewards)
        states = moved.reshape(states.shape)
        if t % 16 == 0:
            play.tell(t)


def _sampled_first(simulator: Simulator, play: Play, number: int) -> Indices:
    drawn = simulator.begin(number * simulator.num_arms, _stream(play.keys[0], play.first))
    return drawn.reshape(number, simulator.num_arms)


def _stream(key: np.uint64, first: int) -> np.random.Generator:
    """The world's generator of one step of one batch."""
    # The first episode of the batch is part of the seed: batches must not repeat each other.
    return np.random.default_rng([int(key), first])


def share_of_budget(problem: Problem, used: Floats, total: float) -> Floats:
    """(..., resource) weighted usage as a share of what the budget allows; 0 if the budget is 0.

    Args:
        problem: the problem.
        used: (..., resource) usage, summed with the weights of the steps.
        total: the sum of these weights.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(problem.budget > 0, used / (problem.budget * total), 0.0)
