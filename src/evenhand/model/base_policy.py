"""Base class of the library's policies: defaults for being resized and explained.

A policy of a user's own needs only `act`. Each of these methods is optional, and `described` supplies the defaults:

    resized(problem, types)   the same policy for other numbers of the same types of arms, or another budget
    explain(decision)         (arm,) the reason for each action
    ranks_at(decision)        (arm, action) ranks behind it, 0 first and -1 never
    service_order(step)       the conditions that it serves, the first first
    decides                   description of how it decides

A policy with a text `kind`, a method `to_arrays()` and a class method `from_arrays(problem, arrays)` can be saved.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evenhand.display import ShownPolicy
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.typing import Array, Indices

if TYPE_CHECKING:
    from evenhand.model.explanations import DecisionStep, ServiceOrder


class BasePolicy(ShownPolicy):
    """Defaults of a policy that is neither resized nor has an order of service."""

    @property
    def decides(self) -> str:
        """Description of how it decides."""
        return f"by the rule of {type(self).__name__}"

    @property
    def depends_on_step(self) -> bool:
        """True if its decisions depend on the step, and not on the states alone."""
        return _has_horizon(self)

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> Policy | StatefulPolicy:
        """Return the same policy for other numbers of the same types of arms.

        Args:
            problem: the other problem.
            types: (type,) the policy's type of each of the problem's types; matched by default.

        Raises:
            NotApplicableError: it is a table that has no entry for them.
        """
        raise NotApplicableError("the plan is a table for just the numbers of arms and the budget that it was made for")

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        return False

    def explain(self, decision: "DecisionStep") -> list[str]:
        """(arm,) the reason for each action."""
        name = type(self).__name__
        return decision.each(f"chosen by the policy ({name})", f"not chosen by the policy ({name})")

    def ranks_at(self, decision: "DecisionStep") -> Indices | None:
        """(arm, action) ranks behind a decision, 0 first and -1 never; None if there are none."""
        return None

    def service_order(self, step: int = 0) -> "ServiceOrder | None":
        """Return the conditions that it serves, the first first; None if it has no order of its own."""
        return None


class _Described(BasePolicy):
    """A user's own policy, with defaults for the methods that it lacks."""

    def __init__(self, policy: object) -> None:
        self.policy = policy

    @property
    def decides(self) -> str:
        return f"by the rule of {type(self.policy).__name__}"

    @property
    def depends_on_step(self) -> bool:
        return _has_horizon(self.policy)

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> Policy | StatefulPolicy:
        method = getattr(self.policy, "resized", super().resized)
        resized: Policy | StatefulPolicy = method(problem, types)
        return resized

    def explain(self, decision: "DecisionStep") -> list[str]:
        name = type(self.policy).__name__
        if (method := getattr(self.policy, "explain", None)) is not None:
            return list(method(decision))
        return decision.each(f"chosen by the policy ({name})", f"not chosen by the policy ({name})")


def _has_horizon(policy: object) -> bool:
    """True if a stateful policy was made for a finite horizon."""
    problem = getattr(policy, "problem", None)
    return (
        isinstance(policy, StatefulPolicy)
        and isinstance(problem, CoupledMDP)
        and problem.criterion.num_steps is not None
    )


def described(policy: object) -> BasePolicy:
    """Return a policy with all methods of this module: itself, or with defaults if it is a user's own."""
    return policy if isinstance(policy, BasePolicy) else _Described(policy)


def check_arrays(arrays: Mapping[str, Array], optional: Sequence[str] = (), **expected: str) -> None:
    """Raise PolicyError if arrays have other names, types or numbers of axes than expected.

    Args:
        arrays: from a file.
        optional: names that may be missing.
        **expected: for each name the kinds of its dtype and its possible numbers of axes, such as `iu2` or `f12`.
    """
    if not set(expected) - set(optional) <= set(arrays) <= set(expected):
        raise PolicyError(f"it must have the arrays {', '.join(expected)}, and has {', '.join(sorted(arrays))}")
    for name, array in arrays.items():
        if array.dtype.kind not in expected[name] or str(array.ndim) not in expected[name]:
            raise PolicyError(f"its array {name} has an invalid type or shape")
