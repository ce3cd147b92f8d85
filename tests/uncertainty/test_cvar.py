"""The best mixture in the worst scenarios, against convex programs of another solver, and against its properties."""

import itertools

import cvxpy as cp
import numpy as np
import pytest

from evenhand.errors import OutOfDomainError
from evenhand.model import parse_welfare
from evenhand.uncertainty import best_tail, tail_mean, tail_weights


def scenario_values(number=12, members=3, policies=4, seed=0):
    return np.random.default_rng(seed).uniform(1, 10, (number, members, policies))


def by_cvxpy(values, text, share):
    """The same maximum, as one convex program of another solver."""
    number, members, policies = values.shape
    shares, level, short = cp.Variable(policies, nonneg=True), cp.Variable(), cp.Variable(number, nonneg=True)
    weights = parse_welfare("gini:2", members).rank_weights(members)

    def welfare(own):
        if text == "utilitarian":
            return cp.sum(own) / members
        if text == "maximin":
            return cp.min(own)
        if text == "alpha:2":
            return cp.harmonic_mean(own)
        # rank weights decrease: a sum of sums of the smallest
        steps = np.append(-np.diff(weights), weights[-1])
        return sum(step * cp.sum_smallest(own, k + 1) for k, step in enumerate(steps))

    rules = [cp.sum(shares) == 1, *(short[d] >= level - welfare(values[d] @ shares) for d in range(number))]
    program = cp.Problem(cp.Maximize(level - cp.sum(short) / (share * number)), rules)
    return program.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("text", ["utilitarian", "maximin", "gini:2", "alpha:2"])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_no_mixture_is_better_in_the_worst_scenarios(text, share):
    values = scenario_values()
    welfare, counts = parse_welfare(text, 3), np.ones(3, dtype=np.int64)
    found = best_tail(values, welfare, counts, share, 1e-8)
    assert found.value == pytest.approx(by_cvxpy(values, text, share), abs=2e-6)
    assert found.value == pytest.approx(tail_mean(np.array(welfare(values @ found.shares, counts)), share), abs=1e-12)
    assert found.value - 1e-12 <= found.bound <= found.value + 1e-7 * 10
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights.max() <= 1 / (share * len(values)) + 1e-9


def test_the_tail_grows_with_its_share_up_to_the_mean():
    values, welfare, counts = scenario_values(seed=3), parse_welfare("gini:2", 3), np.ones(3, dtype=np.int64)
    tails = [best_tail(values, welfare, counts, share).value for share in (0.05, 0.1, 0.3, 0.7, 1.0)]
    assert all(before <= after + 1e-6 for before, after in itertools.pairwise(tails))
    assert tails[-1] == pytest.approx(by_cvxpy(values, "gini:2", 1.0), abs=1e-5)
    single = best_tail(values[:, :1], parse_welfare("utilitarian", 1), np.ones(1, dtype=np.int64), 1.0)
    assert single.value == pytest.approx(values[:, 0].mean(axis=0).max())


def test_a_scenario_at_the_boundary_counts_in_part():
    samples = np.array([3.0, 1.0, 2.0, 10.0])
    assert tail_mean(samples, 0.25) == 1.0
    assert tail_mean(samples, 0.375) == pytest.approx((1 + 0.5 * 2) / 1.5)
    assert tail_mean(samples, 1.0) == samples.mean()
    assert tail_mean(samples, 0.01) == pytest.approx(1.0)
    assert tail_weights(4, 0.6).sum() == pytest.approx(1)


def test_a_welfare_without_feasible_mixture_is_refused():
    with pytest.raises(OutOfDomainError):
        best_tail(-scenario_values(), parse_welfare("alpha:1", 3), np.ones(3, dtype=np.int64), 0.5)


def test_policies_that_each_leave_the_domain_somewhere_are_mixed():
    values = np.zeros((2, 2, 2))
    values[0, :, 0], values[1, :, 1] = 1.0, 1.0  # each policy has values of 0 in one scenario
    found = best_tail(values, parse_welfare("alpha:2", 2), np.ones(2, dtype=np.int64), 0.5)
    assert found.shares == pytest.approx([0.5, 0.5], abs=1e-5)
