"""One step of every arm of every episode, and the draw of the first states.

    s'[e, n] = #{j : u[e, n] >= F(j | s, a)},     G[e, n] += weight * r(s, a),     used[e, k] = sum_n d_k(s, a),
    served[e, n] += weight where d(s, a) is not 0

F are the closed running sums of a transition row (ArmTables.cumulative), u a counter's uniforms. O(E N S).
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.randomness import grid, uniforms_at
from evenhand.kernels.threads import can_compile, threads_for
from evenhand.typing import Array, Bools, Floats, Indices

COMPILE_FROM = 2_000_000
"""Arm-steps from which compiled code pays, its compilation included when it is not cached."""


class World(NamedTuple):
    """What moves: the tables of the types and the type of each arm."""

    type_of_arm: Indices
    """(arm,)"""

    cumulative: Floats
    """(type, state, action, next_state) closed running sums."""

    rewards: Floats
    """(type, state, action)"""

    usage: Floats
    """(type, state, action, resource)"""

    valid: Bools
    """(type, state, action)"""

    serves: Bools
    """(type, state, action) whether the action uses anything."""

    starts: Indices = np.zeros(0, dtype=np.int32)
    """(episode,) where the tables of its own world begin: arms of a type then move and earn by the tables `starts` +
    type of `cumulative` and `rewards`. Empty where all episodes share one world."""


def first_states(type_of_arm: Indices, cumulative_initial: Floats, key: np.uint64, first: int, number: int) -> Indices:
    """(episode, arm) states drawn for `number` episodes, of which the first has the number `first`."""
    uniforms = uniforms_at(key, grid(first, number, len(type_of_arm)))
    states = np.zeros(uniforms.shape, dtype=np.int32)
    for column in cumulative_initial.T[:-1]:
        states += uniforms >= column[type_of_arm]
    return states


def step_arms(
    world: World,
    states: Indices,
    actions: Indices,
    weight: float,
    returns: Floats,
    served: Floats,
    key: np.uint64,
    first: int,
) -> tuple[Floats, bool]:
    """Move every arm, in NumPy.

    Args:
        world: the tables.
        states: (episode, arm) current states; replaced by the next ones.
        actions: (episode, arm) chosen actions.
        weight: what a reward of this step counts.
        returns: (episode, arm) sums of weighted rewards; added to.
        served: (episode, arm) sums of the weights of steps in which the arm was served; added to.
        key: the step's key.
        first: the number of the first episode of this batch.

    Returns:
        (episode, resource) usage of the step, and whether every action exists. If not, nothing has moved.
    """
    if actions.min() < 0 or actions.max() >= world.rewards.shape[2]:
        return np.zeros((len(states), world.usage.shape[-1])), False
    cells = (world.type_of_arm, states, actions)
    if not world.valid[cells].all():
        return np.zeros((len(states), world.usage.shape[-1])), False
    own = (world.type_of_arm + world.starts[:, None], states, actions) if len(world.starts) else cells
    returns += weight * world.rewards[own]
    served += weight * world.serves[cells]
    used = world.usage[cells].sum(axis=1)
    uniforms = uniforms_at(key, grid(first, *states.shape))
    rows = world.cumulative[own]
    states[:] = (uniforms[..., None] >= rows[..., :-1]).sum(axis=-1)
    return used, True


def step_arms_fast(
    world: World,
    states: Indices,
    actions: Indices,
    weight: float,
    returns: Floats,
    served: Floats,
    key: np.uint64,
    first: int,
) -> tuple[Floats, bool]:
    """`step_arms`, compiled: the same numbers to the last bit, but for the order of the sums in `used`."""
    if not can_compile():
        return step_arms(world, states, actions, weight, returns, served, key, first)
    from evenhand.kernels import compiled

    used: Array
    with threads_for(10.0 * states.size):
        used, sound = compiled.step_arms(*world, states, actions, weight, returns, served, key, first)
    return used, bool(sound)
