"""Mixtures are no worse than any named policy, and no better than their bound: random problems of every kind."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, NotConvergedError, TooLargeError
from evenhand.planning.policy_registry import REGISTRY

KINDS = [
    # criterion, welfare, spend, over groups, actions, resources, arms per type
    ("average", "utilitarian", "all", False, 2, 1, [9]),
    ("average", "utilitarian", "at most", False, 2, 1, [12]),
    ("average", "gini:2", "all", False, 2, 1, [3, 4]),
    ("average", "utilitarian", "all", False, 3, 2, [4, 4]),
    ("average", "maximin", "at most", True, 2, 1, [3, 3, 2]),
    ("discounted", "maximin", "all", True, 2, 1, [4, 2, 3]),
    ("discounted", "gini:2", "at most", False, 3, 2, [3, 3]),
    ("discounted", "utilitarian", "at most", False, 3, 1, [1] * 6),
    ("finite:6", "gini:2", "at most", False, 2, 1, [1] * 5),
    ("finite:8", "maximin", "all", True, 2, 1, [5, 3, 4]),
    ("finite:5", "utilitarian", "at most", False, 3, 2, [4, 4]),
]


def random_problem(seed, criterion, over_groups, spend, actions, resources, counts):
    """Dense arms whose rewards fall if they are not served; the last actions use more."""
    rng = np.random.default_rng(seed)
    arms = []
    for _ in counts:
        transitions = rng.dirichlet(np.full(3, 0.7), (3, actions))
        rewards = rng.random((3, 1)) + 0.3 * rng.random((3, actions)) * (np.arange(actions) > 0)
        usage = np.zeros((actions, resources))
        usage[np.arange(1, actions), (np.arange(1, actions) - 1) % resources] = 1
        if actions > 2 and resources == 1:
            usage[2:] = 2
        arms.append(eh.Arm(transitions, rewards, usage, rng.dirichlet(np.ones(3))))
    groups = [f"group {number}" for number in range(len(counts))] if over_groups else ()
    return eh.CoupledMDP(
        arms,
        counts=counts,
        budget=[max(1, round(0.3 * sum(counts)))] * resources,
        discount=0.9,
        criterion=criterion,
        spend=spend,
        groups=groups,
        over="groups" if over_groups else "arms",
    )


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("criterion", "welfare", "spend", "over_groups", "actions", "resources", "counts"), KINDS)
def test_no_named_policy_is_better(seed, criterion, welfare, spend, over_groups, actions, resources, counts, effort):
    effort(arm_steps=1e5, report_steps=5e5, inequality_steps=1e4, exact_states=60)
    problem = random_problem(seed, criterion, over_groups, spend, actions, resources, counts)
    found = eh.solve(problem, welfare, "fluid")
    assert found.welfare <= found.upper_bound + 3.5 * found.welfare_stderr + 1e-7
    for entry in REGISTRY:
        if entry.name in ("optimal", "cp-drl"):
            continue
        try:
            played = eh.evaluate(problem, entry.name, welfare, 60, 150 if criterion == "average" else None, rng=3)
        except (NotApplicableError, NotConvergedError, TooLargeError):
            continue
        error, slack = np.hypot(played.welfare_stderr, found.welfare_stderr), 1e-4 * abs(found.upper_bound)
        assert played.welfare <= found.welfare + 3.5 * error + slack, entry.name
        beyond = (played.truncation_bound or 0.0) + 1e-5 * slack
        assert played.welfare <= found.upper_bound + 3.5 * played.welfare_stderr + beyond, entry.name


def test_policies_of_noisy_values_are_no_lucky_winners():
    """Of 60 people, programs at every step are played for few episodes, and some of them seem better than the bound."""
    plan = eh.solve(eh.problems.health_outreach(num_arms=60), "maximin", "fluid")
    assert plan.upper_bound - plan.welfare <= 0.01 * plan.upper_bound
    assert plan.welfare_stderr <= 0.005 * plan.upper_bound
