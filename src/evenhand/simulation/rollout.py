"""Per-arm simulation of any policy on any problem.

    G[e, n] = sum_{t < T} gamma^t r_n(s_t, a_t)

Randomness is split once: one stream for the world, one for the policy. The world's numbers belong to (step, episode,
arm), so two policies given the same rng meet the same world, and an arm that both treat alike moves alike.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory, check_positive_int, plain
from evenhand.errors import PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.stepping import COMPILE_FROM, World, first_states, step_arms, step_arms_fast
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting, begin
from evenhand.typing import Array, Floats, Indices, Progress, Rng

PLAYING = "playing"
"""What is being done, to those who hear of progress."""

BATCH = 4_000_000
"""Arms of all episodes that are in memory at once. Part of the result: each batch has a stream of its own."""


@dataclass(frozen=True)
class Rollout:
    """What came of playing a policy."""

    returns: Floats
    """(episode, arm) discounted rewards up to the horizon; (episode, type) means for a simulation of counts."""

    used: Floats
    """(episode, resource) discounted mean share of the budget used, 1 when all of it is used at every step."""

    horizon: int
    """Steps an episode."""


def simulate(
    problem: CoupledMDP,
    policy: Policy | Starting,
    num_episodes: int = 1000,
    horizon: int = 300,
    rng: Rng = None,
    progress: Progress | None = None,
) -> Rollout:
    """Play a policy, every arm on its own.

    Args:
        problem: the problem.
        policy: what acts; its actions are checked at every step.
        num_episodes: how many independent episodes.
        horizon: steps an episode.
        rng: seed or generator.
        progress: called now and then with what is being done and the share that is done.

    Raises:
        PolicyError: an action does not exist, the budget is broken, or the shape is wrong.
    """
    check_positive_int(num_episodes, "num_episodes")
    check_positive_int(horizon, "horizon")
    check_memory(8.0 * horizon, f"a horizon of {horizon} steps", "Use a shorter one.")
    check_memory(
        8.0 * num_episodes * problem.num_arms + 40.0 * min(BATCH, num_episodes * problem.num_arms),
        f"the returns of {num_episodes} episodes of {problem.num_arms} arms",
        "Use fewer episodes; a policy that treats equal arms alike can also be simulated by counts.",
    )
    world_rng, policy_rng = np.random.default_rng(rng).spawn(2)
    keys = draw_keys(world_rng, horizon + 1)
    size = max(1, min(num_episodes, BATCH // problem.num_arms))
    starts = range(0, num_episodes, size)
    returns = np.zeros((num_episodes, problem.num_arms))
    used = np.zeros((num_episodes, problem.num_resources))
    fast = num_episodes * problem.num_arms * horizon >= COMPILE_FROM
    for batch, (start, stream) in enumerate(zip(starts, policy_rng.spawn(len(starts)), strict=True)):
        rows = slice(start, min(start + size, num_episodes))
        tell = None if progress is None else _part_of(progress, batch, len(starts))
        used[rows] = _play(problem, policy, returns[rows], keys, start, stream, fast, tell)
    return Rollout(returns, share_of_budget(problem, used, horizon), horizon)


def _part_of(progress: Progress, part: int, parts: int) -> Progress:
    return lambda what, share: progress(what, (part + share) / parts)


def _play(
    problem: CoupledMDP,
    policy: Policy | Starting,
    returns: Floats,
    keys: Array,
    first: int,
    rng: np.random.Generator,
    fast: bool,
    progress: Progress | None,
) -> Floats:
    """Play one batch of episodes; adds to `returns`, and gives the discounted usage."""
    types = problem.types
    world = World(problem.type_of_arm, types.cumulative, types.rewards, types.usage, types.valid)
    step = step_arms_fast if fast else step_arms
    states = first_states(problem.type_of_arm, types.cumulative_initial, keys[0], first, len(returns))
    actor = begin(policy, len(returns), rng)
    used = np.zeros((len(returns), problem.num_resources))
    for t, key in enumerate(keys[1:]):
        # The policy sees a copy: what it does with it does not change the world.
        actions = checked_shape(actor.act(states.copy(), rng), states, t)
        weight = problem.discount**t
        spent, exist = step(world, states, actions, weight, returns, key, first)
        if not exist:
            raise PolicyError(_missing_action(problem, states, actions, t, first))
        check_budget(problem, spent, t, first)
        used += weight * spent
        if progress is not None and t % 16 == 0:
            progress(PLAYING, t / len(keys))
    return used


def _missing_action(problem: CoupledMDP, states: Indices, actions: Indices, step: int, first: int) -> str:
    """Words for the first action that does not exist."""
    known = problem.types.num_actions[problem.type_of_arm]
    episode, arm = (int(i) for i in np.argwhere((actions < 0) | (actions >= known))[0])
    return (
        f"step {step}, episode {first + episode}, arm {arm}: the policy chose action {actions[episode, arm]}, "
        f"which does not exist in state {states[episode, arm]} (there are 0 to {known[arm] - 1})"
    )


def checked_shape(actions: Array, states: Indices, step: int = 0) -> Indices:
    """The actions as an array of indices, if they are one for each arm of each episode."""
    actions = np.asarray(actions)
    if actions.shape != states.shape or actions.dtype.kind not in "iu":
        raise PolicyError(
            f"step {step}: act: expected whole numbers of shape (episode={states.shape[0]}, arm={states.shape[1]}), "
            f"got {actions.dtype} of shape {actions.shape}"
        )
    if actions.dtype.itemsize > 4:
        actions = np.clip(actions, -1, np.iinfo(np.int32).max)  # what does not fit is no action either
    return np.ascontiguousarray(actions, dtype=np.int32)


def check_budget(problem: CoupledMDP, spent: Floats, step: int, first: int = 0) -> None:
    """Raise PolicyError if some episode used more than there is."""
    # Sums in another order may differ in the last bits from those the policy made.
    over = spent > problem.budget_limit * (1 + 1e-9)
    if over.any():
        episode, resource = (int(i) for i in np.argwhere(over)[0])
        raise PolicyError(
            f"step {step}, episode {first + episode}: the policy used {plain(spent[episode, resource])} of resource "
            f"{resource}, whose budget is {plain(problem.budget[resource])}"
        )


def share_of_budget(problem: CoupledMDP, used: Floats, horizon: int | None) -> Floats:
    """(..., resource) discounted usage as a share of what the budget allows; 0 where there is no budget."""
    weight = horizon_weight(problem.discount, horizon)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(problem.budget > 0, used / (problem.budget * weight), 0.0)


def horizon_weight(discount: float, horizon: int | None) -> float:
    """The sum of discount^t over the horizon; over all steps when it is None."""
    return (1 - (discount**horizon if horizon is not None else 0.0)) / (1 - discount)
