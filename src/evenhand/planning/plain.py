"""Named policies that need no relaxation and know no welfare: they depend on the problem alone."""

from collections.abc import Callable

from evenhand import policies
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import Problem

PLAIN: dict[str, Callable[[Problem], Policy | Starting]] = {
    "whittle": policies.whittle,
    "random": policies.random_feasible,
    "oldest-first": policies.worst_first,
    "myopic": policies.myopic,
    "equal-resources": policies.RoundRobin,
    "never-act": policies.never_act,
}
"""What makes each; raises NotApplicable or TooLarge where it cannot."""
