"""Identical arms that can only be sampled: a user's own simulator, without matrices.

What is known of it has the names that a `CoupledMDP` has (`types`, `type_of_arm`, `under`, ...), so that policies that
look at usage alone, simulation and evaluation treat both as a `Problem`. What needs more asks `needs_tables`.
"""

import copy
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from evenhand.checks import Faults, check_memory, check_over, check_positive_int
from evenhand.display import Shown, counted
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model.arm import ROOM, frozen
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, Over, read_budget, read_criterion
from evenhand.model.criterion import Criterion, as_criterion
from evenhand.typing import Array, ArrayLike, Bools, Floats, Indices, Ints

Sample: TypeAlias = Callable[[Indices, Indices, np.random.Generator], tuple[Array, Array]]
"""(states, actions, rng) -> (next states, rewards), all of them (arm,); every arm moves independently of the others."""

First: TypeAlias = Callable[[int, np.random.Generator], Array]
"""(number, rng) -> (number,) first states."""


# -- what is known of an arm without tables --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SampledArm:
    """Known facts of the one type of arm of a simulator."""

    usage: Floats
    """(1, state, action, resource) usage."""

    valid: Bools
    """(1, state, action) what the budget allows."""

    labels: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    """Neither it nor its states and actions have names."""

    def __len__(self) -> int:
        return 1

    @cached_property
    def real(self) -> Bools:
        """(1, state, action) all of them are."""
        return np.ones(self.usage.shape[:3], dtype=np.bool_)

    @cached_property
    def served(self) -> Bools:
        """(1, state, action) whether the action uses anything."""
        return np.asarray((self.usage > 0).any(axis=-1))

    @cached_property
    def idle(self) -> Indices:
        """(1, state) the first action that uses nothing."""
        return np.asarray((~self.served).argmax(axis=-1), dtype=np.int32)

    @property
    def num_states(self) -> Indices:
        """(1,) how many states there are."""
        return np.array(self.usage.shape[1:2], dtype=np.int32)

    @property
    def num_actions(self) -> Indices:
        """(1,) how many actions there are."""
        return np.array(self.usage.shape[2:3], dtype=np.int32)


# -- the simulator ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Simulator(Shown):
    """Identical arms given by a function that samples what happens to them.

    It may be called with any number of arms at once, those of many copies of the problem together. `train` learns a
    policy from it; `simulate`, `evaluate` and `compare` play policies on it.

    Example:
        >>> import evenhand as eh
        >>> def sample(states, actions, rng):
        ...     worse = (rng.random(len(states)) < 0.3) & (actions == 0)
        ...     return np.where(actions == 1, 0, np.minimum(states + worse, 2)), 1.0 - states / 2
        >>> pumps = eh.Simulator(sample, lambda number, rng: rng.integers(0, 3, number), usage=[[0], [1]],
        ...                      num_states=3, num_arms=4, budget=[1], discount=0.9)
        >>> pumps
        Simulator(4 arms, identical, 3 states, 2 actions, 1 resource, discount 0.9)
    """

    sample: Sample
    """A function (states, actions, rng) -> (next states, rewards), all (arm,): draws what happens, arm by arm."""

    first: First
    """A function (number, rng) -> (number,) first states, drawn."""

    usage: Floats
    """(action, resource) or (state, action, resource) what an action uses; one action uses nothing in every state."""

    num_states: int
    """States of an arm, numbered from 0."""

    num_arms: int
    """Number of arms."""

    budget: Floats
    """(resource,) what is available of each resource at every step."""

    discount: float
    """In [0, 1]: what a reward one step later is worth; 1 only where the criterion is not `discounted`."""

    criterion: Criterion = "discounted"  # type: ignore[assignment]  # text is read below
    """Value of rewards over time; may be given as text."""

    def __post_init__(self) -> None:
        faults = Faults()
        for name in ("sample", "first"):
            if not callable(getattr(self, name)):
                faults.add(name, "expected a function")
        # Sizes that could not be read become 1, so that reading goes on.
        arms = _read_number(self.num_arms, "num_arms", faults)
        states = _read_number(self.num_states, "num_states", faults)
        usage = _read_usage(self.usage, states, faults)
        # Not written in a file, so a decimal comma cannot have cut a number in two.
        budget = read_budget(self.budget, None if usage is None else usage.shape[2], faults)
        discount, criterion = read_criterion(self.discount, self.criterion, faults)
        # All faults first: what is read below stands in for what could not be read.
        faults.raise_if_any()
        assert usage is not None
        read: dict[str, Any] = {"num_arms": arms, "num_states": states, "usage": frozen(usage), "discount": discount}
        read["criterion"] = criterion
        for name, value in (read | {"budget": frozen(budget)}).items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        sizes = (self.num_states, "state"), (self.num_actions, "action"), (len(self.budget), "resource")
        each = ", ".join(counted(*size) for size in sizes)
        worth = f"discount {self.discount:g}" if self.criterion.name == "discounted" else self.criterion.name
        return f"Simulator({counted(self.num_arms, 'arm')}, identical, {each}, {worth})"

    # -- what a problem has, for arms that are alike -----------------------------------------------------------------

    @property
    def num_actions(self) -> int:
        """Actions of an arm."""
        return int(self.usage.shape[1])

    @property
    def budget_limit(self) -> Floats:
        """(resource,) the budget with room for rounding."""
        # As in `CoupledMDP.budget_limit`: sums of usage are rounded.
        return np.asarray(self.budget * ROOM)

    @property
    def num_resources(self) -> int:
        """Number of resources."""
        return len(self.budget)

    @property
    def named_budget(self) -> dict[str, float]:
        """The budget of each resource, by its name."""
        return dict(zip(self.resource_names, self.budget.tolist(), strict=True))

    @property
    def resource_names(self) -> tuple[str, ...]:
        """`resource 0` and so on."""
        return tuple(f"resource {k}" for k in range(self.num_resources))

    @cached_property
    def types(self) -> SampledArm:
        """Known facts of the arms."""
        usage = np.asarray(frozen(self.usage[None]))
        return SampledArm(usage, np.asarray(frozen(np.asarray((usage <= self.budget_limit).all(axis=-1)))))

    @property
    def tables(self) -> SampledArm:
        """The same: there is one block of arms."""
        return self.types

    @property
    def num_types(self) -> int:
        """All arms are identical."""
        return 1

    @property
    def affordable(self) -> Bools:
        """(1, state, action) whether what the action uses is within the budget, were all of it one arm's."""
        return self.types.valid

    @property
    def is_symmetric(self) -> bool:
        """All arms are identical."""
        return True

    @property
    def type_counts(self) -> Ints:
        """(1,) how many arms there are."""
        return np.array([self.num_arms], dtype=np.int64)

    @property
    def type_of_block(self) -> Indices:
        """(1,) there is one block of arms, of the one type."""
        return np.zeros(1, dtype=np.int32)

    @cached_property
    def type_of_arm(self) -> Indices:
        """(arm,) all of the one type."""
        check_memory(4.0 * self.num_arms, f"a table of {self.num_arms} arms", "Use fewer arms.")
        return np.asarray(frozen(np.zeros(self.num_arms, dtype=np.int32)))

    @property
    def type_floors(self) -> Floats:
        """(1,) there are none."""
        return np.zeros(1)

    @property
    def has_floors(self) -> bool:
        """There are none."""
        return False

    @property
    def over(self) -> Over:
        """Welfare is over the arms: they are alike, and in no groups."""
        return "arms"

    @property
    def group_names(self) -> tuple[str, ...]:
        """All arms are one group, which has no name."""
        return ("",)

    @property
    def group_of_type(self) -> Indices:
        """(1,) the one group."""
        return np.zeros(1, dtype=np.int32)

    # -- the same arms, otherwise; and their steps -------------------------------------------------------------------

    def with_criterion(self, criterion: str | Criterion | None = None, over: str | None = None) -> "Simulator":
        """The same arms and budget under another criterion.

        Args:
            criterion: `discounted`, `average`, `finite:T`, or an object, whose own discount then counts; as it is when
                absent.
            over: `arms`; a simulator has no groups.
        """
        # Criteria are the only thing that may change; there are no groups to weigh.
        check_over(over)
        if over == "groups":
            raise NotApplicableError("the arms of a simulator are identical and in no groups: welfare is over arms")
        chosen = self.criterion if criterion is None else as_criterion(criterion, self.discount)
        # The same object, so that what is cached of it stays.
        if chosen == self.criterion:
            return self
        same = copy.copy(self)
        object.__setattr__(same, "criterion", chosen)
        object.__setattr__(same, "discount", getattr(chosen, "discount", self.discount))
        return same

    def begin(self, number: int, rng: np.random.Generator) -> Indices:
        """(number,) first states, checked."""
        return self._checked(self.first(number, rng), number, "first")

    def step(self, states: Indices, actions: Indices, rng: np.random.Generator) -> tuple[Indices, Floats]:
        """(arm,) next states and (arm,) rewards, checked."""
        answer = self.sample(states, actions, rng)
        # The function is a user's: its result is checked before arrays are combined.
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InvalidInputError(f"sample: expected (next states, rewards), got {reprlib.repr(answer)}")
        following = answer[0]
        try:
            # A user's function may give lists, or whole numbers.
            rewards = np.asarray(answer[1], dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError("sample: rewards must be numbers, one an arm") from None
        if rewards.shape != states.shape:
            raise InvalidInputError(
                f"sample: expected {len(states)} rewards, one an arm, got an array of shape {rewards.shape}"
            )
        # The first bad arm is shown with what led to it, so that the user can call `sample` on it alone.
        if (bad := np.flatnonzero(~np.isfinite(rewards))).size:
            arm = int(bad[0])
            raise InvalidInputError(
                f"sample: rewards must be finite, and rewards[{arm}] is {rewards[arm]}, in state {states[arm]} under "
                f"action {actions[arm]}" + (f"; so are {len(bad) - 1} more" if len(bad) > 1 else "")
            )
        return self._checked(following, len(states), "sample"), rewards

    def _checked(self, states: Array, number: int, source: str) -> Indices:
        states = np.asarray(states)
        # Whole numbers of any width are taken; they are narrowed at the end.
        if states.shape != (number,) or states.dtype.kind not in "iu":
            raise InvalidInputError(
                f"{source}: expected {number} states as whole numbers, got {states.dtype} of shape {states.shape}"
            )
        if number and not 0 <= states.min() <= states.max() < self.num_states:
            wrong = states.min() if states.min() < 0 else states.max()
            raise InvalidInputError(f"{source}: states must be from 0 to {self.num_states - 1}, got {wrong}")
        return states.astype(np.int32)


# -- who asks for what -----------------------------------------------------------------------------------------------

Problem: TypeAlias = CoupledMDP | Simulator
"""A problem on which policies can be simulated."""


def check_problem(problem: object, order: str = "") -> None:
    """Raise InvalidInputError unless an argument is a problem.

    Args:
        problem: the argument.
        order: the call as it is meant, to be shown where a policy came.
    """
    if isinstance(problem, (CoupledMDP, Simulator)):
        return
    expected = "problem: expected a problem (CoupledMDP, or Simulator)"
    if isinstance(problem, (str, PathLike)):
        raise InvalidInputError(f"{expected}, got text; load({str(problem)!r}) reads a model file")
    kind = problem.__name__ if isinstance(problem, type) else type(problem).__name__
    if isinstance(problem, type):
        raise InvalidInputError(f"{expected}, got the class {kind}")
    if callable(getattr(problem, "act", None)) or callable(getattr(problem, "start", None)):
        raise InvalidInputError(f"{expected}, got a policy, {kind}" + (f"; the order is {order}" if order else ""))
    raise InvalidInputError(f"{expected}, got {'None' if problem is None else kind}")


def needs_tables(problem: Problem, what: str, instead: str = "") -> CoupledMDP:
    """The problem, if its transitions and rewards are known.

    Args:
        problem: a problem, or a simulator.
        what: who asks, to begin a sentence.
        instead: what to do, a sentence.

    Raises:
        InvalidInputError: the argument is not a problem.
        NotApplicableError: it can only be sampled.
    """
    check_problem(problem)
    if isinstance(problem, Simulator):
        message = f"{what} needs transition probabilities and rewards, and a simulator only samples them"
        raise NotApplicableError(f"{message}. {instead}" if instead else message)
    return problem


# -- reading its parts -----------------------------------------------------------------------------------------------


def _read_number(value: object, name: str, faults: Faults) -> int:
    """A whole number from 1."""
    try:
        return check_positive_int(value, name, MOST_ARMS)
    except InvalidInputError as error:
        faults.add(name, str(error).removeprefix(f"{name}: "))
        # A size that lets reading go on, so that later faults are found as well.
        return 1


def _read_usage(value: ArrayLike, num_states: int, faults: Faults) -> Floats | None:
    """(state, action, resource) usage, from one that may be the same in every state."""
    try:
        usage = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        faults.add("usage", "expected numbers [action][resource] or [state][action][resource]")
        return None
    if usage.ndim == 2:
        # The same in every state: repeated, so that all who read it see one form.
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
