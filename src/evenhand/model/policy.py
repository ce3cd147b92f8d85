"""Protocols of policies: anything that acts on a batch, and its optional capabilities.

A policy needs one method, `act`; one that remembers may have `start` in its place, and those of the library have both.
All else is optional: shown by the methods it has, or said by a class attribute where
no method shows it. Only `capabilities` tests for these:

    Capabilities    a policy has or says                  and so
    acts            act(states, rng)                      it can be played; states and actions are (episode, arm)
    starts          start(num_episodes, rng)              it has a memory: each batch of episodes gets a fresh actor
    resumes         resume(memory)                        that memory can be saved, and taken up again (`acting`)
    allocates       allocate(counts, rng)                 it needs only how many arms of a type are in each state
    law             allocation_law(counts)                the law of its allocation is known: it is evaluated exactly
    table           reduction, probabilities              it is a table over the pairs of a space: exact there
    tabulates       on(space)                             it can be written as such a table
    exchangeable    allocates, `exchangeable = True`      arms of one type are alike to it, and have equal values
    by_counts       allocates, `plays_by_counts = True`   it, or the actors it starts, can be simulated by counts
    saves           `kind`, to_arrays()                   it can be saved
    deterministic   allocates and `deterministic = True`  its allocation is not drawn: all states are tabulated at once
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from evenhand.errors import PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Array, ArrayLike, Floats, Indices, Ints


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
class StatefulPolicy(Protocol):
    """A policy that remembers; each batch of episodes begins with a fresh actor."""

    def start(self, num_episodes: int, rng: np.random.Generator) -> Policy:
        """An actor for `num_episodes` episodes, at their first step."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """An actor that can say what it remembers."""

    def memory(self) -> Mapping[str, ArrayLike]:
        """Arrays under names, for the `resume` of its policy; they do not change when it goes on."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A policy that remembers, and can go on from what an actor of it remembered; its actors have `memory()`."""

    def resume(self, memory: Mapping[str, ArrayLike]) -> Policy:
        """An actor that goes on where the other one was.

        Args:
            memory: arrays under names, as `memory()` of an actor gave them; or the same as lists.
        """
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


@runtime_checkable
class Savable(Protocol):
    """A policy that can be saved as arrays; its class restores it by `from_arrays`."""

    @property
    def kind(self) -> str:
        """Name of its class in files, such as `first-worn-out`."""
        ...

    def to_arrays(self) -> Mapping[str, Array]:
        """Return all that it consists of, beside the problem: arrays of numbers by name."""
        ...


@runtime_checkable
class SavableKind(Protocol):
    """Class of policies that can be saved."""

    kind: str
    """Name of the class in files."""

    def from_arrays(self, problem: CoupledMDP, arrays: dict[str, Array]) -> "Policy | StatefulPolicy":
        """Return the policy of these arrays; a class method.

        Args:
            problem: the problem that it was made for.
            arrays: the arrays of `to_arrays()`.
        """
        ...


class Space(Protocol):
    """A space that policies are tables over: a reduction of one problem."""

    @property
    def problem(self) -> CoupledMDP:
        """The problem that was reduced."""
        ...

    @property
    def mdp(self) -> TabularMDP:
        """The problem on this space; its pairs are the rows of a table."""
        ...

    @property
    def usage(self) -> Floats:
        """(pair, resource) what pairs use."""
        ...


@runtime_checkable
class Tabulated(Protocol):
    """A policy that is a table over the pairs of a space."""

    @property
    def reduction(self) -> Space:
        """The space."""
        ...

    @property
    def probabilities(self) -> Floats:
        """(pair,) how likely an action is in its state."""
        ...


@runtime_checkable
class Tabulable(Protocol):
    """A policy on joint states that can be written as a table."""

    def on(self, space: Any) -> Tabulated:
        """The same policy as a table over the joint states of a problem."""
        ...


# -- asking for all of them at once ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a policy; a missing method is None. The table at the top of this file says how they are found."""

    acts: Policy | None
    """It acts on the states of all arms."""

    starts: StatefulPolicy | None
    """It remembers, and starts actors."""

    resumes: Resuming | None
    """It remembers, and what its actors remember can be saved and taken up again."""

    allocates: Exchangeable | None
    """It says how many arms of a state get each action."""

    law: Lawful | None
    """It knows the law of that."""

    table: Tabulated | None
    """It is a table."""

    tabulates: Tabulable | None
    """It can be written as one."""

    saves: Savable | None
    """It can be saved."""

    exchangeable: bool
    """Arms of one type have equal values under it."""

    by_counts: bool
    """It, or the actors it starts, can be simulated by counts."""

    deterministic: bool
    """It allocates, and draws nothing to do so."""


def capabilities(policy: object) -> Capabilities:
    """Return the capabilities of a policy, by its methods and class attributes."""

    def says(fact: str) -> bool:
        # `is True`: a stand-in object that answers every attribute with something truthy says nothing.
        return getattr(policy, fact, False) is True

    # What allocates by counts cannot tell equal arms apart, so it is exchangeable without saying so.
    allocates = policy if isinstance(policy, Exchangeable) else None
    by_counts = allocates is not None or says("plays_by_counts")
    return Capabilities(
        acts=policy if isinstance(policy, Policy) else None,
        starts=policy if isinstance(policy, StatefulPolicy) else None,
        # Without `start` no actor exists whose memory could be resumed.
        resumes=policy if isinstance(policy, StatefulPolicy) and isinstance(policy, Resuming) else None,
        allocates=allocates,
        law=policy if isinstance(policy, Lawful) else None,
        table=policy if isinstance(policy, Tabulated) else None,
        tabulates=policy if isinstance(policy, Tabulable) else None,
        saves=policy if isinstance(policy, Savable) else None,
        exchangeable=by_counts or says("exchangeable"),
        by_counts=by_counts,
        deterministic=allocates is not None and says("deterministic"),
    )


# -- short tests of capabilities -------------------------------------------------------------------------------------


def check_acts(policy: object, name: str = "policy") -> None:
    """Raise PolicyError for an argument that is not a policy; says what to do.

    Args:
        policy: the argument.
        name: the argument.
    """
    expected = f"{name}: expected an object with a method act(states, rng)"
    # Each of these mistakes has its own remedy; the order goes from the most particular to the rest.
    if isinstance(policy, str):
        raise PolicyError(f"{expected}, got text; make_policy(problem, {policy!r}) makes the policy of a name or file")
    if isinstance(policy, type):
        raise PolicyError(f"{expected}, got a class; make an object of it: {policy.__name__}(...)")
    if isinstance(policy, (Policy, StatefulPolicy)):
        return
    kind = type(policy).__name__
    # What `solve` and `train` return is the commonest mistake.
    if isinstance(getattr(policy, "policy", None), (Policy, StatefulPolicy)):
        raise PolicyError(f"{expected}, got {kind}; its policy is its attribute `policy`")
    if callable(policy):
        raise PolicyError(f"{expected}, got a function; policies.from_function(problem, function) makes a policy of it")
    raise PolicyError(f"{expected}, got {kind}; see check_policy")


def is_exchangeable(policy: object) -> bool:
    """True if arms of one type have equal values under the policy."""
    return capabilities(policy).exchangeable


def plays_by_counts(policy: object) -> bool:
    """True if the policy, or the actors it starts, can be simulated by counts."""
    return capabilities(policy).by_counts


def begin(policy: Policy | StatefulPolicy, num_episodes: int, rng: np.random.Generator) -> Policy:
    """The actor for a batch of episodes: a fresh one where the policy has a memory, else the policy itself."""
    return policy.start(num_episodes, rng) if isinstance(policy, StatefulPolicy) else policy
