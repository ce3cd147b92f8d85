"""NumPy version of the compiled step of every arm of every episode, and policies without compiled tables."""

import numpy as np

from evenhand.kernels import World, grid, uniforms_at
from evenhand.typing import Floats, Indices


class StepByStep:
    """A policy without memory that is asked at every step, whatever tables it has."""

    def __init__(self, policy):
        self.policy = policy

    def act(self, states, rng):
        return self.policy.act(states, rng)


class StartedStepByStep:
    """The same of a policy with memory."""

    def __init__(self, policy):
        self.policy = policy

    def start(self, num_episodes, rng):
        return self.policy.start(num_episodes, rng)


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
