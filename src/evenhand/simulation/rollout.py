"""Per-arm simulation of any policy on any problem.

    G[e, n] = sum_{t < T} w_t r_n(s_t, a_t),      served[e, n] = sum_t w_t [d_n(s_t, a_t) > 0] / sum_t w_t

The weights w and the usual number of steps T are the criterion's: gamma^t where it discounts, equal shares after a
warm-up where it averages. A policy made for a finite horizon that is played for longer begins again after its last
step (`BySteps`).

Randomness is split once: one stream for the world, one for the policy. The world's numbers belong to (step, episode,
arm), so two policies given the same rng meet the same world, and an arm that both treat alike moves alike.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory, check_positive_int, check_shape, plain
from evenhand.display import counted
from evenhand.errors import PolicyError
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.stepping import COMPILE_FROM, World, first_states, step_arms, step_arms_fast
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.policy import Policy, Starting, begin
from evenhand.typing import Array, Floats, Indices, Progress, Rng

BATCH = 4_000_000
"""Arms of all episodes that are in memory at once. Part of the result: each batch has a stream of its own."""


@dataclass(frozen=True)
class Rollout:
    """What came of playing a policy."""

    returns: Floats
    """(episode, arm) weighted sums of rewards up to the horizon; (episode, type) means for a simulation of counts."""

    used: Floats
    """(episode, resource) weighted mean share of the budget used, 1 when all of it is used at every step."""

    served: Floats
    """(episode, arm) weighted share of the time in which each arm was served; (episode, type) means for counts."""

    horizon: int
    """Steps an episode."""

    def __repr__(self) -> str:
        return f"Rollout({counted(len(self.used), 'episode')} of {counted(self.horizon, 'step')})"


def simulate(
    problem: CoupledMDP,
    policy: Policy | Starting,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = None,
    progress: Progress | None = None,
    criterion: str | Criterion | None = None,
    rewards: Floats | None = None,
) -> Rollout:
    """Play a policy, every arm on its own.

    Args:
        problem: the problem.
        policy: what acts; its actions are checked at every step.
        num_episodes: how many independent episodes.
        horizon: steps an episode; when absent, the criterion's own: 300 discounted, 1000 for an average, of which the
            first quarter does not count, and the horizon itself where it is finite.
        rng: seed or generator.
        progress: called now and then with what is being done and the share that is done.
        criterion: what the steps weigh, as text or object; the problem's own when absent.
        rewards: (type, state, action) what is summed in place of the arms' own rewards; or (table, type, state,
            action) several such, and then returns are (table, episode, arm).

    Raises:
        PolicyError: an action does not exist, the budget is broken, or the shape is wrong.
    """
    check_positive_int(num_episodes, "num_episodes")
    weights, gains = step_weights(problem, horizon, criterion), summed_rewards(problem, rewards)
    check_memory(
        8.0 * (len(gains) + 1) * num_episodes * problem.num_arms + 40.0 * min(BATCH, num_episodes * problem.num_arms),
        f"the returns of {num_episodes} episodes of {problem.num_arms} arms",
        "Use fewer episodes; a policy that treats equal arms alike can also be simulated by counts.",
    )
    world_rng, policy_rng = np.random.default_rng(rng).spawn(2)
    keys = draw_keys(world_rng, len(weights) + 1)
    size = max(1, min(num_episodes, BATCH // problem.num_arms))
    starts = range(0, num_episodes, size)
    returns = np.zeros((len(gains), num_episodes, problem.num_arms))
    served, used = np.zeros(returns.shape[1:]), np.zeros((num_episodes, problem.num_resources))
    fast = num_episodes * problem.num_arms * len(weights) >= COMPILE_FROM
    for batch, (start, stream) in enumerate(zip(starts, policy_rng.spawn(len(starts)), strict=True)):
        rows = slice(start, min(start + size, num_episodes))
        tell = None if progress is None else part_of(progress, batch, len(starts))
        used[rows] = _play(
            problem, policy, gains, weights, (returns[:, rows], served[rows]), keys, start, stream, fast, tell
        )
    total = float(weights.sum())
    served /= total
    return Rollout(as_asked(returns, rewards), share_of_budget(problem, used, total), served, len(weights))


def step_weights(problem: CoupledMDP, horizon: int | None, criterion: str | Criterion | None) -> Floats:
    """(step,) what each step to be simulated counts for."""
    chosen = problem.under(criterion).criterion
    steps = chosen.simulated_steps(horizon)
    check_memory(16.0 * steps, f"a horizon of {steps} steps", "Use a shorter one.")
    return chosen.time_weights(steps)


def summed_rewards(problem: CoupledMDP, rewards: Floats | None) -> Floats:
    """(table, type, state, action) what is summed: the arms' own rewards, or others of the same shape."""
    if rewards is None:
        return problem.types.rewards[None]
    num_types, num_states, num_actions = problem.types.rewards.shape
    tables = rewards[None] if rewards.ndim == 3 else rewards
    shape = {"table": None, "type": num_types, "state": num_states, "action": num_actions}
    check_shape(tables, shape, "rewards")
    return np.ascontiguousarray(tables, dtype=np.float64)


def as_asked(returns: Floats, rewards: Floats | None) -> Floats:
    """(table, episode, unit) returns, without the first axis unless several tables were asked for."""
    return returns if rewards is not None and rewards.ndim == 4 else returns[0]


def part_of(progress: Progress, part: int, parts: int) -> Progress:
    """A callback that tells of one part of the work as of the whole."""
    return lambda what, share: progress(what, (part + share) / parts)


def _play(
    problem: CoupledMDP,
    policy: Policy | Starting,
    gains: Floats,
    weights: Floats,
    sums: tuple[Floats, Floats],
    keys: Array,
    first: int,
    rng: np.random.Generator,
    fast: bool,
    progress: Progress | None,
) -> Floats:
    """Play one batch of episodes; adds to the sums of rewards and of time served, and gives the weighted usage."""
    types = problem.types
    (returns, *others), served = sums
    world = World(problem.type_of_arm, types.cumulative, gains[0], types.usage, types.valid, types.served)
    step = step_arms_fast if fast else step_arms
    states = first_states(problem.type_of_arm, types.cumulative_initial, keys[0], first, len(returns))
    actor = begin(policy, len(returns), rng)
    used = np.zeros((len(returns), problem.num_resources))
    for t, (key, weight) in enumerate(zip(keys[1:], weights.tolist(), strict=True)):
        # The policy sees a copy: what it does with it does not change the world.
        actions = checked_shape(actor.act(states.copy(), rng), states, t)
        before = states.copy() if others else states
        spent, exist = step(world, states, actions, weight, returns, served, key, first)
        if not exist:
            raise PolicyError(_missing_action(problem, states, actions, t, first))
        for table, sums_of_table in zip(gains[1:], others, strict=True):
            sums_of_table += weight * table[problem.type_of_arm, before, actions]
        check_budget(problem, spent, t, first)
        used += weight * spent
        if progress is not None and t % 16 == 0:
            progress("playing", t / len(weights))
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


def share_of_budget(problem: CoupledMDP, used: Floats, total: float) -> Floats:
    """(..., resource) weighted usage as a share of what the budget allows; 0 where there is no budget.

    Args:
        problem: the problem.
        used: (..., resource) usage, summed with the weights of the steps.
        total: the sum of these weights.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(problem.budget > 0, used / (problem.budget * total), 0.0)
