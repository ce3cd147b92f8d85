"""Simulation of exchangeable policies by counts: one multinomial draw for each (type, state, action).

The cost of a step does not depend on the number of arms. The mean return of a type's arms is followed, not that of
each arm; for an exchangeable policy every arm of a type has that value in expectation.
"""

import numpy as np

from evenhand import kernels
from evenhand.checks import as_generator, check_memory, check_positive_int
from evenhand.display import progress_or_none, with_progress_bar
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.evaluation.rollout import Rollout, Sums, is_several, middle_step, step_weights, summed_rewards
from evenhand.kernels.randomness import draw_keys
from evenhand.model.arm_matching import check_arms
from evenhand.model.policy import (
    Exchangeable,
    Policy,
    StatefulPolicy,
    capabilities,
    check_acts,
    check_budget,
    plays_by_counts,
)
from evenhand.model.simulator import Problem, check_problem, needs_tables
from evenhand.typing import Array, Floats, Ints, Progress, Rng


@with_progress_bar
def simulate_counts(
    problem: Problem,
    policy: Exchangeable | Policy | StatefulPolicy,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
    rewards: Floats | None = None,
    keep_paths: bool = False,
) -> Rollout:
    """Play an exchangeable policy on counts, under the problem's criterion.

    Args:
        problem: the problem.
        policy: what allocates, or starts an actor that does; its allocations are checked at every step.
        num_episodes: number of independent episodes.
        horizon: steps per episode; by default the criterion's own (see `simulate`).
        rng: seed or generator; 0 by default, so that the same call gives the same numbers. None for others each time.
        progress: True shows a bar; a function is called at intervals with the current task and the completed share.
        rewards: (type, state, action) rewards in place of the arms' own; or several such tables (see
            `simulate`).
        keep_paths: whether to record the counts and allocations of every step.

    Returns:
        A Rollout whose returns and shares of time served are (episode, type) means over the arms of each type.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=1000, budget=100)
        >>> played = eh.simulate_counts(machines, eh.policies.worst_first(machines), 10, 50, rng=0, keep_paths=True)
        >>> played.returns.shape, played.counts.shape, played.allocations.shape
        ((10, 1), (10, 50, 1, 3), (10, 50, 1, 3, 2))
    """
    check_problem(problem, "simulate_counts(problem, policy)")
    if not plays_by_counts(policy):
        check_acts(policy)
    problem = needs_tables(problem, "simulation by counts", "Use simulate, which follows every arm.")
    check_arms(policy, problem, by_counts=True)
    report = progress_or_none(progress)
    check_positive_int(num_episodes, "num_episodes")
    weights, types = step_weights(problem, horizon), problem.types
    path = (num_episodes, len(weights), *types.valid.shape)
    # Several arrays of the size of an allocation exist during a step.
    size, what, instead = 40.0 * num_episodes * types.valid.size, "counts", "Use fewer episodes."
    if keep_paths:
        size += 16.0 * float(np.prod(path))
        what, instead = f"paths of {len(weights)} steps", "Use fewer episodes or steps, or do not keep the paths."
    check_memory(size, f"{what} of {num_episodes} episodes", instead)
    paths: dict[str, Array] = {}
    if keep_paths:
        paths = {"counts": np.zeros(path[:-1], np.int64), "allocations": np.zeros(path, np.int64)}
    # One stream for the moves, one for the policy, as in `simulate`.
    world_rng, policy_rng = as_generator(rng).spawn(2)
    starts = capabilities(policy).starts
    # A stateful policy allocates by its actors.
    actor = capabilities(policy if starts is None else starts.start(num_episodes, policy_rng)).allocates
    if actor is None:
        raise NotApplicableError("this policy does not allocate by counts; use simulate, which follows every arm")
    # A key for the first states, and one for each step.
    keys, gains = draw_keys(world_rng, len(weights) + 1), summed_rewards(problem, rewards)
    counts = first_counts(
        types.initial, np.broadcast_to(problem.type_counts, (num_episodes, problem.num_types)), keys[0]
    )
    middle = middle_step(problem, weights)
    cells = None if middle is None else types.valid.shape
    sums = Sums.zeros((len(gains), num_episodes, problem.num_types), problem.num_resources, cells, **paths)
    for t, (key, weight) in enumerate(zip(keys[1:], weights.tolist(), strict=True)):
        # Checked before any arm moves.
        allocation = checked_allocation(problem, actor.allocate(counts, policy_rng), counts)
        # (episode, resource) of all arms together.
        spent = np.einsum("etsa,tsak->ek", allocation, types.usage)
        check_budget(problem, spent, t)
        sums.record(t, counts=counts, allocations=allocation)
        sums.used[:] += weight * spent
        if sums.visits is not None and weight > 0:
            sums.visits[:] += weight * allocation.sum(axis=0)
        if t == middle:
            sums.first_half[:] = sums.returns[0]
        # Means over the arms of each type.
        for table, total in zip((*gains, types.served), (*sums.returns, sums.served), strict=True):
            total += weight * (np.einsum("etsa,tsa->et", allocation, table) / problem.type_counts)
        counts = kernels.step_crowds(types.transitions, allocation, key, 0)
        if report is not None and t % 16 == 0:
            report("playing", t / len(weights))
    return sums.rollout(problem.budget, weights, is_several(rewards), middle)


def first_counts(initial: Floats, numbers: Ints, key: np.uint64) -> Ints:
    """(episode, type, state) first counts.

    Args:
        initial: (type, state) initial distributions.
        numbers: (episode, type) numbers of arms.
        key: key of the random numbers.
    """
    # All arms move once, by a single action, from state 0: the kernel of a step then draws the first states, too.
    arms = np.zeros((*numbers.shape, initial.shape[1], 1), dtype=np.int64)
    arms[:, :, 0, 0] = numbers
    moves = np.repeat(initial[:, None, None, :], initial.shape[1], axis=1)
    return kernels.step_crowds(np.ascontiguousarray(moves), arms, key, 0)


def checked_allocation(problem: Problem, allocation: Ints, counts: Ints) -> Ints:
    """The allocation, if it treats each arm exactly once and by actions that exist."""
    expected = (*counts.shape, problem.types.valid.shape[2])
    if np.shape(allocation) != expected or np.asarray(allocation).dtype.kind not in "iu":
        raise PolicyError(
            "allocate: expected whole numbers of shape (episode, type, state, action) = "
            f"{expected}, got {np.asarray(allocation).dtype} of shape {np.shape(allocation)}"
        )
    allocation = np.asarray(allocation, dtype=np.int64)
    # Every arm exactly once: a state's numbers sum to its count.
    if (allocation < 0).any() or (allocation.sum(axis=-1) != counts).any():
        raise PolicyError("allocate: the numbers of arms must not be negative and must sum to the counts of each state")
    if (allocation * ~problem.types.real).any():
        raise PolicyError("allocate: arms are given an action that does not exist in their state")
    return allocation
