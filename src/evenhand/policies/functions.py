"""Functions as policies, whose actions are checked at every call."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.model.policy import BasePolicy, check_actions, checked_shape
from evenhand.model.simulator import Problem
from evenhand.model.stateful_policy import on_batches
from evenhand.typing import Array, Indices

Choose: TypeAlias = Callable[[Indices, np.random.Generator], Array]
"""(states, rng) -> actions, of all episodes at once, (episode, arm), or of one, (arm,)."""


class FunctionPolicy(BasePolicy):
    """A function that chooses actions; `evaluate`, `compare`, `simulate` and `solve` take it like any other policy.

    Every answer is checked: an action for each arm, that exists in its state, within the budget. `check_policy` tries
    it in many states at once.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> def first_worn_out(states, rng):
        ...     worn_out = states == 2
        ...     return worn_out & (worn_out.cumsum(axis=1) <= 1)
        >>> policy = eh.policies.from_function(problem, first_worn_out)
        >>> policy.act([2, 1, 2], 0)
        array([1, 0, 0], dtype=int32)
        >>> greedy = eh.policies.from_function(problem, lambda states, rng: [1, 1, 1], one_by_one=True)
        >>> greedy.act([2, 1, 2], 0)
        Traceback (most recent call last):
            ...
        evenhand.errors.PolicyError: episode 0: the policy used 3 of resource 0, whose budget is 1
    """

    def __init__(
        self, problem: Problem, function: Choose, *, exchangeable: bool = False, one_by_one: bool = False
    ) -> None:
        """Store the function.

        Args:
            problem: the problem, or a simulator.
            function: (states, rng) -> actions. States and actions are integers of shape (episode, arm), for many
                episodes at once; False and True are 0 and 1. All randomness must come from rng.
            exchangeable: whether it treats arms of one type alike, as by drawing who is served. Their values are then
                equal, and are estimated together, with smaller errors. It is believed.
            one_by_one: whether the function takes the (arm,) states of one episode at a time. Slower.
        """
        if not callable(function):
            raise InvalidInputError(f"function: expected a function of (states, rng), got {function!r}")
        self.function, self.problem = function, problem
        self.exchangeable, self.one_by_one = exchangeable, one_by_one

    def _in_short(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name}, {super()._in_short()}"

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Return the actions of the function, checked."""
        own = states.copy()  # the function may change it
        answer = [self.function(row, rng) for row in own] if self.one_by_one else self.function(own, rng)
        try:
            array = np.asarray(answer)
        except ValueError:
            raise InvalidInputError("act: expected one action for each arm, got lists of different lengths") from None
        actions = checked_shape(array, states, None)
        check_actions(self.problem, states, actions, None)
        return actions


from_function = FunctionPolicy
"""Name of the class as a function of `policies`."""
