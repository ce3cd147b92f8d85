"""Calls of policies, and the memory of stateful policies.

Every policy of the library has `act(states, rng)`. States are (episode, arm), or (arm,) for one episode, as arrays or
lists; rng is a generator, or a seed, which stands for a fresh generator at each call (`on_batches`).

A policy that remembers starts *actors*, one for each batch of episodes, and an actor is where a memory is:

    actor = policy.start(num_episodes, rng)     at the first step; simulation starts one for every batch
    actor.act(states, rng)                      plays the next step
    actor.memory()                              what it remembers, as arrays of whole numbers under names
    policy.resume(memory)                       an actor that continues exactly there

Called directly, `policy.act`, such a policy starts its own actor at the first call and continues with it: one run of
steps, until `forget` is called. A memory is arrays only, and lists are accepted in their place, so it can be stored as
JSON. The generator belongs to the caller, who stores `rng.bit_generator.state` beside it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from evenhand.checks import as_generator, check_positive_int
from evenhand.errors import InvalidInputError, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import BasePolicy
from evenhand.model.simulator import Problem, Simulator
from evenhand.typing import ArrayLike, Indices, Ints, Rng

Memory: TypeAlias = dict[str, Ints]
"""Memory of an actor: arrays by name."""

Own = TypeVar("Own")

# The largest state number there is room for: states are int32 everywhere.
LARGEST = np.iinfo(np.int32).max


# -- calls: states of any form, checked -----------------------------------------------------------------------------


def on_batches(
    act: Callable[[Own, Indices, np.random.Generator], Indices],
) -> Callable[[Own, ArrayLike, Rng], Indices]:
    """Let a method that takes (episode, arm) states and a generator take one episode, lists and seeds as well."""

    def called(self: Own, states: ArrayLike, rng: Rng) -> Indices:
        array = _as_batch(states)
        batch = array if array.ndim == 2 else array[None]
        # A lifted policy has a reduction, and an actor its policy; either has the problem. A user's own has none.
        owners = (self, getattr(self, "reduction", None), getattr(self, "policy", None))
        for problem in (getattr(owner, "problem", None) for owner in owners):
            if isinstance(problem, (CoupledMDP, Simulator)):
                check_states(problem, batch, getattr(self, "any_number", False) is True)
                break
        actions = act(self, batch, as_generator(rng))
        return actions if array.ndim == 2 else actions[0]

    # Not functools.wraps: the signature that help() shows is the wider one.
    called.__name__, called.__qualname__, called.__doc__ = act.__name__, act.__qualname__, act.__doc__
    return called


def _as_batch(states: ArrayLike) -> Indices:
    """(arm,) or (episode, arm) states as whole numbers of the usual size."""
    try:
        array = np.asarray(states)
    except ValueError:
        raise InvalidInputError("states: expected one state for each arm, got lists of different lengths") from None
    # Whole numbers only: floats that happen to be whole usually come from a mistake further up.
    if array.ndim not in (1, 2) or 0 in array.shape or array.dtype.kind not in "iu":
        raise InvalidInputError(
            "states: expected whole numbers of shape (episode, arm), or (arm,) for one episode, "
            f"got {array.dtype} of shape {array.shape}"
        )
    # An int32 cannot exceed the largest, so its maximum need not be looked for.
    if array.min() < 0 or (array.itemsize > 4 and array.max() > LARGEST):
        raise InvalidInputError("states: expected numbers of states, from 0, and some are negative or too large")
    return np.ascontiguousarray(array, dtype=np.int32)


def check_states(problem: Problem, states: Indices, any_number: bool = False) -> None:
    """Raise InvalidInputError if arms are in states that they do not have: compiled code does not check indices.

    Args:
        problem: the problem of the arms.
        states: (episode, arm) states.
        any_number: True if there may be more or fewer arms than the problem has; they must be of one type then.
    """
    arms, sizes = states.shape[1], problem.types.num_states
    if arms != problem.num_arms and not any_number:
        raise InvalidInputError(f"states: this policy is for {problem.num_arms} arms, and here are {arms}")
    # Most batches end here: two reductions over the states, and no table the size of the batch.
    if states.max() < sizes.min():
        return
    most = np.broadcast_to(sizes if any_number else sizes[problem.type_of_arm], arms)
    if len(wrong := np.argwhere(states >= most)):
        episode, arm = wrong[0]
        fault = f"arm {arm} is in state {states[episode, arm]}, and its states are 0 to {most[arm] - 1}"
        raise InvalidInputError(f"states: {fault}")


# -- actors, and policies that start them ----------------------------------------------------------------------------


class Actor(ABC):
    """Plays one batch of episodes for a policy that remembers.

    The optional method `skip_to(step)` serves `act` at a later step of a plan, if the memory is the step alone. By
    default steps are played one by one, as if the arms stayed in their states.
    """

    def __init__(self, num_episodes: int) -> None:
        self.num_episodes = check_positive_int(num_episodes, "num_episodes")

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of the next step, of the episodes that it was started for."""
        if len(states) != self.num_episodes:
            raise PolicyError(
                f"it remembers {self.num_episodes} episode{'s' if self.num_episodes > 1 else ''}, and here are "
                f"{len(states)}. Call it with as many at each step; start(num_episodes, rng) returns an actor for "
                "others, and forget() lets a policy that is called directly begin again"
            )
        return self.choose(states, rng)

    @abstractmethod
    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Return (episode, arm) actions, and update the memory."""

    @abstractmethod
    def memory(self) -> Memory:
        """Return the memory, for the policy's `resume`; copies that do not change later."""


class RememberingPolicy(BasePolicy, ABC):
    """A policy that starts actors, and can be called directly as well."""

    _own: Actor | None = None
    """The actor behind `act`."""

    @abstractmethod
    def start(self, num_episodes: int, rng: Rng = None) -> Actor:
        """An actor at the first step of `num_episodes` episodes.

        Args:
            num_episodes: number of episodes.
            rng: generator or seed of draws at the start.
        """

    @abstractmethod
    def resume(self, memory: Mapping[str, ArrayLike]) -> Actor:
        """Return an actor that continues where another one of this policy was.

        Args:
            memory: result of its `memory`; lists are accepted in place of arrays.
        """

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of the next step. The first call starts its own actor, and the others go on with it."""
        own = self.start(len(states), rng) if self._own is None else self._own
        actions = own.act(states, rng)
        self._own = own  # a first step that fails begins nothing
        return actions

    def memory(self) -> Memory:
        """Return the memory since the first direct call; see `Actor.memory`."""
        if self._own is None:
            raise PolicyError("this policy has no memory yet: it has not acted")
        return self._own.memory()

    def forget(self) -> None:
        """Begin anew at the next `act`."""
        self._own = None


# -- stored memories -------------------------------------------------------------------------------


class Remembered(NamedTuple):
    """Specification of one array of a memory."""

    axes: tuple[str, ...]
    """The names of its axes."""

    below: int
    """Its numbers are less than this."""

    least: int = 0
    """Its numbers are at least this."""


MOST = 2**62
"""More than any number of steps or episodes."""


def read_memory(
    memory: Mapping[str, ArrayLike], expected: Mapping[str, Remembered], sizes: Mapping[str, int] | None = None
) -> Memory:
    """Return the arrays of a stored memory; raises PolicyError with every fault.

    Args:
        memory: names and arrays, or lists.
        expected: specification of each.
        sizes: lengths of axes that are known; others must agree among each other.
    """
    if not isinstance(memory, Mapping):
        raise PolicyError(f"memory: expected arrays under names, as memory() gives them, got {type(memory).__name__}")
    faults = [f"{name!r} is missing" for name in expected if name not in memory]
    faults += [f"{name!r} is not part of this policy's memory" for name in memory if name not in expected]
    # Lengths that the caller does not know are those of the first array that has the axis.
    known, read = dict(sizes or {}), {}
    for name, like in expected.items() if not faults else ():
        try:
            array = np.array(memory[name])
        except ValueError:  # lists of different lengths
            array = np.zeros(0)
        valid = array.ndim == len(like.axes) and array.size and array.dtype.kind in "iu"
        lengths = dict(zip(like.axes, array.shape, strict=False))
        valid = valid and all(known.setdefault(axis, length) == length for axis, length in lengths.items())
        if not (valid and like.least <= array.min() <= array.max() < like.below):
            axes = ", ".join(f"{axis}={known.get(axis, 'any')}" for axis in like.axes)
            numbers = f"whole numbers from {like.least} to {like.below - 1} of the axes ({axes})"
            faults.append(f"{name!r} must be {numbers}, and is {array.dtype} of shape {array.shape}")
        read[name] = array
    if faults:
        raise PolicyError("\n".join(f"memory: {fault}" for fault in faults))
    return {name: array.astype(np.int64) for name, array in read.items()}
