"""What policies can do, asked in one place."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest

from evenhand.errors import NotApplicableError
from evenhand.model import Capabilities, capabilities
from evenhand.model.policy import check_arrays
from evenhand.planning import REGISTRY
from evenhand.planning.solve import solve
from evenhand.policies import CountNetworkPolicy, JointNetworkPolicy, Network, PriorityPolicy
from evenhand.problems import machine_replacement
from evenhand.solvers import Counts, Joint, plan_types, typed_policy

MACHINES = machine_replacement(num_arms=3, budget=1)
NAMES = {each.name for each in fields(Capabilities)}


def layers(*sizes):
    shapes = list(pairwise(sizes))
    return Network([np.zeros(shape, np.float32) for shape in shapes], [np.zeros(n, np.float32) for _, n in shapes])


def able(policy):
    """The names of what a policy can do."""
    return {name for name in NAMES if getattr(capabilities(policy), name) not in (None, False)}


def uniform(space):
    sizes = np.diff(space.mdp.offsets)
    return space.lift(np.repeat(1.0 / sizes, sizes))


def idle_by_types(problem):
    types = plan_types(problem).types
    first = [np.unique(moves.pairs.points, return_index=True)[1] for moves in types]
    return typed_policy(problem, [moves.allocations for moves in types], np.stack(np.meshgrid(*first)).reshape(1, -1))


COUNTED = {"acts", "allocates", "exchangeable", "by_counts"}

POLICIES = {
    "priority": (lambda: PriorityPolicy(MACHINES, MACHINES.types.rewards), {"acts"}),
    "joint-network": (lambda: JointNetworkPolicy(MACHINES, layers(3, 3)), {"acts", "tabulates"}),
    "count-network": (lambda: CountNetworkPolicy(MACHINES, layers(4, 6)), COUNTED | {"law", "deterministic"}),
    "drawn": (lambda: CountNetworkPolicy(MACHINES, layers(4, 7), "priority-sampling"), COUNTED | {"law"}),
    "count-table": (lambda: uniform(Counts(MACHINES)), COUNTED | {"law", "table"}),
    "typed-choices": (lambda: idle_by_types(MACHINES), COUNTED | {"law", "deterministic"}),
    "joint-table": (lambda: uniform(Joint(MACHINES)), {"acts", "table"}),
    "optimum": (lambda: solve(MACHINES, method="counts").policy, COUNTED | {"law", "deterministic"}),
}


@pytest.mark.parametrize("name", POLICIES)
def test_what_policies_can_do(name):
    build, expected = POLICIES[name]
    assert able(build()) == expected | {"saves"}


NAMED = {
    "optimal": COUNTED | {"law", "deterministic"},
    "random": COUNTED | {"law"},
    "oldest-first": COUNTED | {"law"},
    "myopic": COUNTED | {"law"},
    "never-act": COUNTED | {"law"},
    "whittle": COUNTED | {"law"},
    "fair-index": COUNTED | {"law"},
    "equal-resources": {"acts", "starts", "resumes", "exchangeable"},
    "re-solving": {"acts", "starts", "resumes", "exchangeable", "by_counts"},
    "occupancy-priority": {"acts", "exchangeable"},
    "lp-update": COUNTED | {"law", "deterministic"},
    "lp-index": COUNTED | {"law"},
    **{name: {"acts", "starts", "resumes", "exchangeable"} for name in ("id", "ftva", "set-expansion", "two-set")},
    "cp-drl": COUNTED | {"law", "deterministic"},
}


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_what_named_policies_can_do(entry):
    average = entry.name in ("set-expansion", "two-set")
    try:
        policy = entry.build(MACHINES.with_criterion("average") if average else MACHINES, "gini:2")
    except NotApplicableError:
        pytest.fail("every named policy applies to this problem")
    assert able(policy) == NAMED[entry.name] | {"saves"}


class Own:
    """As little as a policy needs."""

    def act(self, states, rng):
        return np.zeros_like(states)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({}, set()),
        ({"exchangeable": True}, {"exchangeable"}),
        ({"exchangeable": "yes"}, set()),
        ({"plays_by_counts": True}, {"exchangeable", "by_counts"}),
        ({"deterministic": True}, set()),
    ],
    ids=lambda case: str(sorted(case)) if isinstance(case, (set, frozenset)) else str(case),
)
def test_what_no_method_shows_is_said(says, expected):
    assert able(type("Says", (Own,), says)()) == {"acts"} | expected


def test_other_objects_have_no_capabilities():
    assert able(object()) == set()


def test_optional_arrays_are_named_by_keyword():
    check_arrays({"limit": np.array(1)}, limit="iu0", optional=["limit"])
    with pytest.raises(TypeError):
        check_arrays({"limit": np.array(1)}, "limit")
