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
from evenhand.kernels.stepping import COMPILE_FROM, World, first_states, step_arms, step_arms_fast
from evenhand.model.arm import frozen, running_sums
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget, checked_shape, missing_action
from evenhand.model.policy import Policy, StatefulPolicy, begin, check_acts
from evenhand.simulation.rollout import BATCH, step_weights
from evenhand.typing import Array, Floats, Rng


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
        TooLarge: it does not fit in memory.
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
        actor = begin(policy, len(batch_returns), stream)
        _simulate(problem, tables, actor, stream, weights, keys, start * num_episodes, batch_returns)
    return returns


def _tables(problem: CoupledMDP, transitions: Floats, rewards: Floats, num_episodes: int) -> World:
    """Return the tables of some scenarios, one after another, and the first table of each episode."""
    tables = problem.tables
    return World(
        type_of_arm=frozen(np.repeat(np.arange(len(tables), dtype=np.int32), problem.counts)),
        cumulative=frozen(running_sums(transitions).reshape(-1, *transitions.shape[2:])),
        rewards=frozen(np.ascontiguousarray(rewards).reshape(-1, *rewards.shape[2:])),
        usage=tables.usage,
        valid=tables.real,
        serves=tables.served,
        starts=np.repeat(np.arange(len(transitions), dtype=np.int32) * len(tables), num_episodes),
    )


def _simulate(
    problem: CoupledMDP,
    tables: World,
    actor: Policy,
    rng: np.random.Generator,
    weights: Floats,
    keys: Array,
    first: int,
    returns: Floats,
) -> None:
    """Simulate one batch; add to the (episode, arm) returns."""
    served = np.zeros_like(returns)
    step = step_arms_fast if returns.size * len(weights) >= COMPILE_FROM else step_arms
    states = first_states(tables.type_of_arm, problem.tables.cumulative_initial, keys[0], first, len(returns))
    for t, (key, weight) in enumerate(zip(keys[1:], weights.tolist(), strict=True)):
        actions = checked_shape(actor.act(states.copy(), rng), states, t)
        used, exist = step(tables, states, actions, weight, returns, served, key, first)
        if not exist:
            raise PolicyError(missing_action(problem, states, actions, t, first))
        check_budget(problem, used, t, first)
