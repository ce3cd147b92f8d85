"""What a policy is: anything that acts on a batch.

A policy needs one method, `act`. What else it can do is asked for by protocol, never by parentage:

    Policy         act(states, rng)       every policy; states and actions are (episode, arm)
    Starting       start(num_episodes)    a policy with a memory: returns a fresh actor for a batch of episodes
    Exchangeable   allocate(counts, rng)  treats arms of one type alike: it needs only how many are in each state
    Lawful         allocation_law(counts) knows the law of its allocation, and so can be evaluated exactly

A policy that treats arms of one type alike without allocating by counts says so by `exchangeable = True`; one whose
actors allocate by counts says so by `plays_by_counts = True`. An exchangeable policy that draws nothing says so by
`deterministic = True`, and is then tabulated in one call.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from evenhand.typing import Floats, Indices, Ints


@runtime_checkable
class Policy(Protocol):
    """Chooses an action for every arm, in every episode of a batch."""

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Choose actions.

        Args:
            states: (episode, arm) current states.
            rng: the policy's own stream.

        Returns:
            (episode, arm) actions that together respect the budget in every episode.
        """
        ...


@runtime_checkable
class Starting(Protocol):
    """A policy that remembers; each batch of episodes begins with a fresh actor."""

    def start(self, num_episodes: int, rng: np.random.Generator) -> Policy:
        """An actor for `num_episodes` episodes, at their first step."""
        ...


@runtime_checkable
class Exchangeable(Protocol):
    """A policy that treats arms of one type alike: who within a state gets an action is drawn uniformly."""

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Choose how many arms get each action.

        Args:
            counts: (episode, type, state) arms in each state.
            rng: the policy's own stream.

        Returns:
            (episode, type, state, action) numbers of arms, which sum to `counts` over actions.
        """
        ...


@runtime_checkable
class Lawful(Protocol):
    """An exchangeable policy whose choice has a known law."""

    def allocation_law(self, counts: Ints) -> tuple[Ints, Floats]:
        """The law of `allocate`.

        Args:
            counts: (type, state) arms in each state.

        Returns:
            (choice, type, state, action) possible allocations and their (choice,) probabilities.
        """
        ...


def is_exchangeable(policy: object) -> bool:
    """Whether arms of one type have equal values under the policy, by what it says of itself."""
    return isinstance(policy, Exchangeable) or getattr(policy, "exchangeable", False) is True


def plays_by_counts(policy: object) -> bool:
    """Whether the policy, or the actors it starts, can be simulated by counts."""
    return isinstance(policy, Exchangeable) or getattr(policy, "plays_by_counts", False) is True


def begin(policy: Policy | Starting, num_episodes: int, rng: np.random.Generator) -> Policy:
    """The actor for a batch of episodes: a fresh one where the policy has a memory, else the policy itself."""
    return policy.start(num_episodes, rng) if isinstance(policy, Starting) else policy
