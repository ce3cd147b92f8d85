"""Identical arms that can only be sampled: a user's own simulator, without matrices.

It has the attributes of a `CoupledMDP` that do not need transitions (`types`, `type_of_arm`, `with_criterion`, ...), so
that simulation, evaluation and policies that depend on usage alone treat both as a `Problem`. Functions that need
transitions call `needs_tables`.
"""

import copy
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import ClassVar, TypeAlias

import numpy as np

from evenhand.checks import Faults, as_numbers, check_amounts, check_memory, check_over, read_numbers, whole_fault
from evenhand.display import counted
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model.arm import ArmTables, check_idle, frozen, set_fields
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, Over, SharedResources, read_budget
from evenhand.model.criterion import Criterion, as_criterion, read_criterion
from evenhand.model.labels import AXES, depth_of
from evenhand.typing import Array, Floats, Indices, Ints

Sample: TypeAlias = Callable[[Indices, Indices, np.random.Generator], tuple[Array, Array]]
"""(states, actions, rng) -> (next states, rewards), all of them (arm,); every arm moves independently of the others."""

First: TypeAlias = Callable[[int, np.random.Generator], Array]
"""(number, rng) -> (number,) first states."""


# -- the simulator ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Simulator(SharedResources):
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
    """(action, resource) or (state, action, resource) use of each resource; in every state one action uses nothing."""

    num_states: int
    """States of an arm, numbered from 0."""

    num_arms: int
    """Number of arms."""

    budget: Floats
    """(resource,) amount of each resource available per step."""

    discount: float
    """Discount in [0, 1]; 1 only if the criterion is not `discounted`."""

    criterion: Criterion = "discounted"  # type: ignore[assignment]  # text is read below
    """Value of rewards over time; may be given as text."""

    def __post_init__(self) -> None:
        faults = Faults()
        for name in ("sample", "first"):
            if not callable(getattr(self, name)):
                faults.add(name, "expected a function")
        for name in ("num_arms", "num_states"):
            if message := whole_fault(getattr(self, name), most=MOST_ARMS):
                faults.add(name, message)
        by_action = depth_of(self.usage) < 3
        usage = read_numbers(self.usage, AXES["usage"][by_action:], "usage", faults, check_amounts)
        if usage is not None:
            check_idle(usage, faults)
        budget = read_budget(self.budget, None if usage is None else usage.shape[-1], faults)
        discount, criterion = read_criterion(self.discount, self.criterion, faults)
        if usage is not None and not by_action and not faults and len(usage) != self.num_states:
            faults.add("usage", f"has {len(usage)} states where num_states is {self.num_states}")
        faults.raise_if_any()
        assert usage is not None
        # The same in every state: repeated, so that usage has one form everywhere.
        usage = np.repeat(usage[None], self.num_states, axis=0) if by_action else usage
        set_fields(self, {"usage": usage, "budget": budget, "discount": discount, "criterion": criterion})

    def __repr__(self) -> str:
        sizes = f"{counted(self.num_states, 'state')}, {counted(self.num_actions, 'action')}"
        return f"Simulator({counted(self.num_arms, 'arm')}, identical, {sizes}, {self._in_short})"

    # -- what a problem has, for arms that are alike -----------------------------------------------------------------

    over: ClassVar[Over] = "arms"
    """Welfare is over the arms."""

    group_names: ClassVar[tuple[str, ...]] = ("",)
    """All arms are one group, which has no name."""

    num_types: ClassVar[int] = 1
    """All arms are of one type."""

    is_symmetric: ClassVar[bool] = True
    """All arms are identical."""

    has_floors: ClassVar[bool] = False
    """No arm has a floor."""

    has_max_wait: ClassVar[bool] = False
    """No wait is promised."""

    @property
    def num_actions(self) -> int:
        """Actions of an arm."""
        return int(self.usage.shape[1])

    @cached_property
    def types(self) -> ArmTables:
        """The one type of arm, by its usage; it has no transitions and rewards."""
        S, A, _ = self.usage.shape
        nothing = np.zeros((1, S, A, 0)), np.zeros((1, S, A))
        return ArmTables(*nothing, self.usage[None], np.zeros((1, S))).within(self.budget)

    @property
    def tables(self) -> ArmTables:
        """The same: there is one block of arms."""
        return self.types

    @property
    def type_counts(self) -> Ints:
        """(1,) number of arms."""
        return np.array([self.num_arms], dtype=np.int64)

    @property
    def type_of_block(self) -> Indices:
        """(1,) the one type."""
        return np.zeros(1, dtype=np.int32)

    group_of_type = type_of_block

    @cached_property
    def type_of_arm(self) -> Indices:
        """(arm,) all of the one type."""
        check_memory(4.0 * self.num_arms, f"a table of {self.num_arms} arms", "Use fewer arms.")
        return np.asarray(frozen(np.zeros(self.num_arms, dtype=np.int32)))

    @property
    def type_floors(self) -> Floats:
        """(1,) no floor."""
        return np.zeros(1)

    # -- the same arms, otherwise; and their steps -------------------------------------------------------------------

    def with_criterion(self, criterion: str | Criterion | None = None, over: str | None = None) -> "Simulator":
        """Return the same arms and budget under another criterion.

        Args:
            criterion: `discounted`, `average`, `finite:T`, or an object with its own discount; by default unchanged.
            over: `arms`; a simulator has no groups.
        """
        check_over(over)
        if over == "groups":
            raise NotApplicableError("the arms of a simulator are identical and in no groups: welfare is over arms")
        chosen = self.criterion if criterion is None else as_criterion(criterion, self.discount)
        # The same object, so that its cached properties stay.
        if chosen == self.criterion:
            return self
        same = copy.copy(self)
        set_fields(same, {"criterion": chosen, "discount": getattr(chosen, "discount", self.discount)})
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
        rewards = as_numbers(answer[1], "sample: rewards")
        if rewards.shape != states.shape:
            raise InvalidInputError(f"sample: expected {len(states)} rewards, one per arm, got shape {rewards.shape}")
        # The first invalid arm is reported with what led to it, so that the user can call `sample` on it alone.
        if (bad := np.flatnonzero(~np.isfinite(rewards))).size:
            arm = int(bad[0])
            where = f"in state {states[arm]} under action {actions[arm]}"
            raise InvalidInputError(f"sample: rewards must be finite, and rewards[{arm}] is {rewards[arm]}, {where}")
        return self._checked(answer[0], len(states), "sample"), rewards

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


# -- checks of arguments -----------------------------------------------------------------------------------------------

Problem: TypeAlias = CoupledMDP | Simulator
"""A problem on which policies can be simulated."""


def check_problem(problem: object, order: str = "") -> None:
    """Raise InvalidInputError unless an argument is a problem.

    Args:
        problem: the argument.
        order: the expected call, shown if a policy was given.
    """
    if isinstance(problem, (CoupledMDP, Simulator)):
        return
    kind = f"the class {problem.__name__}" if isinstance(problem, type) else type(problem).__name__
    hint = ""
    if isinstance(problem, (str, PathLike)):
        hint = f"; load({str(problem)!r}) reads a model file"
    elif order and (hasattr(problem, "act") or hasattr(problem, "start")):
        hint = f", a policy; the order is {order}"
    raise InvalidInputError(f"problem: expected a problem (CoupledMDP, or Simulator), got {kind}{hint}")


def needs_tables(problem: Problem, what: str, instead: str = "") -> CoupledMDP:
    """Return the problem if its transitions and rewards are known.

    Args:
        problem: a problem, or a simulator.
        what: caller, as the beginning of a sentence.
        instead: advice, a sentence.

    Raises:
        InvalidInputError: the argument is not a problem.
        NotApplicableError: it can only be sampled.
    """
    check_problem(problem)
    if isinstance(problem, Simulator):
        message = f"{what} needs transition probabilities and rewards, and a simulator only samples them"
        raise NotApplicableError(f"{message}. {instead}" if instead else message)
    return problem
