"""Tables by which arms move (`episodes.step_arms`), and the draw of the first states."""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.randomness import grid, uniforms_at
from evenhand.typing import Bools, Floats, Indices


class World(NamedTuple):
    """The moving system: the tables of the types and the type of each arm."""

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
