"""One policy in many worlds at once: problems that differ in nothing but how their arms move.

Every world has as many episodes, and all of them are one batch: the policy acts once a step for all, and the arms of an
episode move by the tables of its world. The random numbers belong to (step, episode, arm), where episodes are counted
through all worlds. So two policies given the same rng meet the same numbers in every world, and different worlds have
different ones: their noise averages out.

Worlds are played in batches of a size that the problem gives, and each batch has a stream of its own for the policy. So
a part of the batches can be played by itself, elsewhere, and nothing changes.
"""

from collections.abc import Callable

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int, check_shape
from evenhand.errors import PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import fixed
from evenhand.kernels.stepping import World, first_states
from evenhand.model.arm import running_sums
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget, checked_shape, missing_action
from evenhand.model.policy import Policy, Starting, begin, check_acts
from evenhand.simulation.rollout import BATCH, Play, compiled_tables, part_of, play_by_rank, step_weights
from evenhand.typing import Floats, Progress, Rng

Part = tuple[int, int]
"""Which of how many parts of the work, cut between batches: the first of two is (0, 2)."""

WHOLE: Part = (0, 1)
"""All of it."""


def batches_of(number: int, part: Part) -> range:
    """The numbers of the batches that are a part of the work; none where there are more parts than batches.

    Args:
        number: of all batches.
        part: which part.
    """
    which, parts = part
    return range(which * number // parts, (which + 1) * number // parts)


def simulate_worlds(
    problem: CoupledMDP,
    policy: Policy | Starting,
    transitions: Floats,
    rewards: Floats | Callable[[slice], Floats] | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    progress: Progress | None = None,
    part: Part = WHOLE,
) -> Floats:
    """Play a policy in every world, every arm on its own.

    Args:
        problem: what all worlds have in common.
        policy: what acts; its actions are checked at every step.
        transitions: (world, block, state, action, next_state) how the arms of each block move.
        rewards: (world, block, state, action) what is summed, or what gives it for some worlds; the arms' own rewards
            when absent.
        num_episodes: how many in each world.
        horizon: steps an episode; when absent, the criterion's own.
        rng: seed or generator.
        progress: called now and then with what is being done and the share done.
        part: of the worlds, cut between batches.

    Returns:
        (world, episode, arm) weighted sums of rewards up to the horizon, of the worlds of the part.

    Raises:
        PolicyError: an action does not exist, the budget is broken, or the shape is wrong.
        TooLarge: it would not fit in memory; nothing is played then.
    """
    check_acts(policy)
    check_positive_int(num_episodes, "num_episodes")
    shape = problem.tables.transitions.shape
    check_shape(transitions, {"world": None, **dict(zip("bsaj", shape, strict=True))}, "transitions")
    if isinstance(rewards, np.ndarray):
        check_shape(rewards, {"world": len(transitions), **dict(zip("bsa", shape[:3], strict=True))}, "rewards")
    weights, number = step_weights(problem, horizon, None), len(transitions)
    each = max(1, min(number, BATCH // (problem.num_arms * num_episodes)))
    world_rng, policy_rng = as_generator(rng).spawn(2)
    keys, starts = draw_keys(world_rng, len(weights) + 1), range(0, number, each)
    streams, mine = policy_rng.spawn(len(starts)), batches_of(len(starts), part)
    first, last = min(mine.start * each, number), min(mine.stop * each, number)
    size = 8.0 * (last - first) * num_episodes * problem.num_arms + each * (40.0 * num_episodes * problem.num_arms)
    size += 16.0 * each * transitions[0].size
    what = f"{last - first} worlds with {num_episodes} episodes of {problem.num_arms} arms"
    check_memory(size, what, "Use fewer draws.")
    returns = np.zeros((last - first, num_episodes, problem.num_arms))
    for place, batch in enumerate(mine):
        rows = slice(starts[batch], min(starts[batch] + each, number))
        summed = rewards(rows) if callable(rewards) else None if rewards is None else rewards[rows]
        worlds = _world(problem, transitions[rows], summed, num_episodes)
        tell = None if progress is None else part_of(progress, place, len(mine))
        played = Play(policy, weights, keys, rows.start * num_episodes, streams[batch], tell)
        own = returns[rows.start - first : rows.stop - first]
        _play(problem, worlds, played, own.reshape(-1, problem.num_arms))  # a view, and written to
    return returns


def _world(problem: CoupledMDP, transitions: Floats, rewards: Floats | None, each: int) -> World:
    """The tables of some worlds, one after another, and where those of each episode begin."""
    tables, number = problem.tables, len(transitions)
    paid = np.broadcast_to(tables.rewards, (number, *tables.rewards.shape)) if rewards is None else rewards
    world = World(
        type_of_arm=np.repeat(np.arange(len(tables), dtype=np.int32), problem.counts),
        cumulative=running_sums(transitions).reshape(-1, *transitions.shape[2:]),
        rewards=np.ascontiguousarray(paid).reshape(-1, *paid.shape[2:]),
        usage=tables.usage,
        valid=tables.real,
        serves=tables.served,
        starts=np.repeat(np.arange(number, dtype=np.int32) * len(tables), each),
    )
    return fixed(world)


def _play(problem: CoupledMDP, world: World, play: Play, returns: Floats) -> None:
    """Play one batch of worlds; `returns` are (episode, arm) and added to."""
    from evenhand.kernels import episodes

    served, start = np.zeros_like(returns), problem.tables.cumulative_initial
    states = first_states(world.type_of_arm, start, play.keys[0], play.first, len(returns))
    tables = compiled_tables(play.policy, problem)
    if tables is not None:
        sums = (returns[None], served, np.zeros((len(returns), problem.num_resources)), np.zeros_like(returns))
        dynamics = (world.type_of_arm, world.starts, world.cumulative, world.rewards[None], problem.types.served)
        play_by_rank(episodes.Dynamics(*dynamics), tables, states, sums, play)
        return
    actor = begin(play.policy, len(returns), play.rng)
    for t, (key, weight) in enumerate(zip(play.keys[1:], play.weights.tolist(), strict=True)):
        actions = checked_shape(actor.act(states.copy(), play.rng), states, t)
        spent, exist = episodes.step_arms(*world, states, actions, weight, returns, served, key, play.first)
        if not exist:
            raise PolicyError(missing_action(problem, states, actions, t, play.first))
        check_budget(problem, spent, t, play.first)
        if t % 16 == 0:
            play.tell(t)
