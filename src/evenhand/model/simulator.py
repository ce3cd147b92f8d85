"""Identical arms that can only be sampled: a user's own simulator, without matrices."""

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from evenhand.checks import Faults, check_positive_int
from evenhand.display import Shown, counted
from evenhand.errors import InvalidInput
from evenhand.model.arm import frozen
from evenhand.model.coupled import MOST_ARMS, read_budget, read_discount
from evenhand.typing import Array, ArrayLike, Floats, Indices

Sample: TypeAlias = Callable[[Indices, Indices, np.random.Generator], tuple[Array, Array]]
"""(states, actions, rng) -> (next states, rewards), all of them (arm,); every arm moves independently of the others."""

First: TypeAlias = Callable[[int, np.random.Generator], Array]
"""(number, rng) -> (number,) first states."""


@dataclass(frozen=True, eq=False)
class Simulator(Shown):
    """Identical arms given by a function that samples what happens to them.

    It may be called with any number of arms at once, those of many copies of the problem together.
    """

    sample: Sample
    """Draws next states and rewards, arm by arm."""

    first: First
    """Draws first states."""

    usage: Floats
    """(action, resource) or (state, action, resource) what an action uses; one action uses nothing in every state."""

    num_states: int
    """States of an arm, numbered from 0."""

    num_arms: int
    """How many arms there are."""

    budget: Floats
    """(resource,) what is available of each resource at every step."""

    discount: float
    """In [0, 1): what a reward one step later is worth."""

    def __post_init__(self) -> None:
        faults = Faults()
        for name in ("sample", "first"):
            if not callable(getattr(self, name)):
                faults.add(name, "expected a function")
        arms = _read_number(self.num_arms, "num_arms", faults)
        states = _read_number(self.num_states, "num_states", faults)
        usage = _read_usage(self.usage, states, faults)
        budget = read_budget(self.budget, None if usage is None else usage.shape[2], faults)
        discount = read_discount(self.discount, faults)
        faults.raise_if_any()
        assert usage is not None
        read: dict[str, Any] = {"num_arms": arms, "num_states": states, "usage": frozen(usage), "discount": discount}
        for name, value in (read | {"budget": frozen(budget)}).items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        sizes = (self.num_states, "state"), (self.num_actions, "action"), (len(self.budget), "resource")
        each = ", ".join(counted(*size) for size in sizes)
        return f"Simulator({counted(self.num_arms, 'arm')}, identical, {each}, discount {self.discount:g})"

    @property
    def num_actions(self) -> int:
        """Actions of an arm."""
        return int(self.usage.shape[1])

    @property
    def budget_limit(self) -> Floats:
        """(resource,) the budget with room for rounding."""
        return np.asarray(self.budget * (1 + 1e-9))

    def begin(self, number: int, rng: np.random.Generator) -> Indices:
        """(number,) first states, checked."""
        return self._checked(self.first(number, rng), number, "first")

    def step(self, states: Indices, actions: Indices, rng: np.random.Generator) -> tuple[Indices, Floats]:
        """(arm,) next states and (arm,) rewards, checked."""
        answer = self.sample(states, actions, rng)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InvalidInput(f"sample: expected (next states, rewards), got {reprlib.repr(answer)}")
        following = answer[0]
        try:
            rewards = np.asarray(answer[1], dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInput("sample: rewards must be numbers, one an arm") from None
        if rewards.shape != states.shape or not np.isfinite(rewards).all():
            raise InvalidInput(
                f"sample: expected {len(states)} finite rewards, one an arm, got an array of shape {rewards.shape}"
            )
        return self._checked(following, len(states), "sample"), rewards

    def _checked(self, states: Array, number: int, source: str) -> Indices:
        states = np.asarray(states)
        if states.shape != (number,) or states.dtype.kind not in "iu":
            raise InvalidInput(
                f"{source}: expected {number} states as whole numbers, got {states.dtype} of shape {states.shape}"
            )
        if number and not 0 <= states.min() <= states.max() < self.num_states:
            wrong = states.min() if states.min() < 0 else states.max()
            raise InvalidInput(f"{source}: states must be from 0 to {self.num_states - 1}, got {wrong}")
        return states.astype(np.int32)


def _read_number(value: object, name: str, faults: Faults) -> int:
    """A whole number from 1."""
    try:
        return check_positive_int(value, name, MOST_ARMS)
    except InvalidInput as error:
        faults.add(name, str(error).removeprefix(f"{name}: "))
        return 1


def _read_usage(value: ArrayLike, num_states: int, faults: Faults) -> Floats | None:
    """(state, action, resource) usage, from one that may be the same in every state."""
    try:
        usage = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        faults.add("usage", "expected numbers [action][resource] or [state][action][resource]")
        return None
    if usage.ndim == 2:
        usage = np.repeat(usage[None], num_states, axis=0)
    if usage.ndim != 3 or len(usage) != num_states or 0 in usage.shape:
        faults.add("usage", f"expected [action][resource] or [state][action][resource], got shape {np.shape(value)}")
        return None
    if not (np.isfinite(usage).all() and (usage >= 0).all()):
        faults.add("usage", "amounts must be finite and not negative")
        return None
    if not (usage == 0).all(axis=2).any(axis=1).all():
        faults.add("usage", "every state needs an idle action that uses nothing")
    return usage
