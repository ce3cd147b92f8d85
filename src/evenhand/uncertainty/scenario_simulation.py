"""Simulation of one policy in many scenarios.

Each scenario has the same number of episodes, and a batch of scenarios is simulated together: the policy acts once per
step for all episodes, and the arms of an episode move by the transitions of its scenario. Random numbers belong to
(step, episode, arm), with episodes counted through all scenarios. So two policies with the same seed meet the same
numbers in every scenario, and the errors of different scenarios are independent.
"""

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int, check_shape
from evenhand.errors import PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import fixed
from evenhand.kernels.stepping import World, first_states
from evenhand.model.arm import running_sums
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget, checked_shape, missing_action
from evenhand.model.policy import Policy, StatefulPolicy, begin, check_acts
from evenhand.simulation.rollout import BATCH, Play, compiled_tables, play_by_rank, step_weights
from evenhand.typing import Floats, Rng


def simulate_scenarios(
    problem: CoupledMDP,
    policy: Policy | StatefulPolicy,
    transitions: Floats,
    rewards: Floats | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    batch_size: int = BATCH,
) -> Floats:
    """Simulate a policy in every scenario, arm by arm.

    Args:
        problem: the problem, apart from its transitions.
        policy: the policy; its actions are checked at every step.
        transitions: (scenario, block, state, action, next_state) probabilities.
        rewards: (scenario, block, state, action) rewards; the problem's by default.
        num_episodes: episodes per scenario.
        horizon: steps per episode; the criterion's by default.
        rng: seed or generator.
        batch_size: arms, over episodes and scenarios, that are simulated together.

    Returns:
        (scenario, episode, arm) weighted sums of rewards up to the horizon.

    Raises:
        PolicyError: an action does not exist, the budget is exceeded, or the shape is wrong.
        TooLargeError: it does not fit in memory.
    """
    check_acts(policy)
    check_positive_int(num_episodes, "num_episodes")
    shape, number = problem.tables.transitions.shape, len(transitions)
    check_shape(transitions, {"scenario": None, **dict(zip("bsaj", shape, strict=True))}, "transitions")
    if rewards is None:
        rewards = np.broadcast_to(problem.tables.rewards, (number, *shape[:3]))
    check_shape(rewards, {"scenario": number, **dict(zip("bsa", shape[:3], strict=True))}, "rewards")
    weights = step_weights(problem, horizon, None)
    width = num_episodes * problem.num_arms
    batch = max(1, min(number, batch_size // width))
    size = 8.0 * number * width + batch * (40.0 * width + 16.0 * transitions[0].size)
    what = f"{number} scenarios with {num_episodes} episodes of {problem.num_arms} arms"
    check_memory(size, what, "Use fewer draws.")
    environment_rng, policy_rng = as_generator(rng).spawn(2)
    keys, starts = draw_keys(environment_rng, len(weights) + 1), range(0, number, batch)
    returns = np.zeros((number, num_episodes, problem.num_arms))
    for start, stream in zip(starts, policy_rng.spawn(len(starts)), strict=True):
        rows = slice(start, start + batch)
        tables = _tables(problem, transitions[rows], rewards[rows], num_episodes)
        batch_returns = returns[rows].reshape(-1, problem.num_arms)  # a view, written to
        play = Play(policy, weights, keys, start * num_episodes, stream, None)
        _simulate(problem, tables, play, batch_returns)
    return returns


def _tables(problem: CoupledMDP, transitions: Floats, rewards: Floats, num_episodes: int) -> World:
    """Return the tables of some scenarios, one after another, and the first table of each episode."""
    tables = problem.tables
    world = World(
        type_of_arm=np.repeat(np.arange(len(tables), dtype=np.int32), problem.counts),
        cumulative=running_sums(transitions).reshape(-1, *transitions.shape[2:]),
        rewards=np.ascontiguousarray(rewards).reshape(-1, *rewards.shape[2:]),
        usage=tables.usage,
        valid=tables.real,
        serves=tables.served,
        starts=np.repeat(np.arange(len(transitions), dtype=np.int32) * len(tables), num_episodes),
    )
    return fixed(world)


def _simulate(problem: CoupledMDP, world: World, play: Play, returns: Floats) -> None:
    """Simulate one batch; add to the (episode, arm) returns."""
    from evenhand.kernels import episodes

    served, number = np.zeros_like(returns), len(returns)
    states = first_states(world.type_of_arm, problem.tables.cumulative_initial, play.keys[0], play.first, number)
    tables = compiled_tables(play.policy, problem)
    if tables is not None:
        totals = (returns[None], served, np.zeros((number, problem.num_resources)), np.zeros_like(returns))
        dynamics = (world.type_of_arm, world.starts, world.cumulative, world.rewards[None], problem.types.served)
        play_by_rank(episodes.Dynamics(*dynamics), tables, states, totals, play)
        return
    actor = begin(play.policy, number, play.rng)
    for t, (key, weight) in enumerate(zip(play.keys[1:], play.weights.tolist(), strict=True)):
        actions = checked_shape(actor.act(states.copy(), play.rng), states, t)
        used, exist = episodes.step_arms(*world, states, actions, weight, returns, served, key, play.first)
        if not exist:
            raise PolicyError(missing_action(problem, states, actions, t, play.first))
        check_budget(problem, used, t, play.first)
