"""Lemma 3.3: averaged over all renamings, a policy of identical arms gives each of them the mean of their values."""

from math import factorial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.evaluation import exact_values
from evenhand.model import CoupledMDP
from evenhand.solvers import Joint, occupancy_measure

from .product_space import ProductSpace, symmetric_problems, two_by_two
from .renamings import average_over_renamings


def averaged_measure(space: ProductSpace, policy: np.ndarray) -> np.ndarray:
    """(pair,) the mean of the occupancy measures of all N! renamings of a policy, one by one."""
    total = sum(space.visits(space.renamed(policy, order)) for order in space.renamings())
    return total / factorial(space.num_arms)


@given(symmetric_problems(), st.integers(0, 2**32 - 1), st.booleans())
def test_every_arm_gets_the_mean(problem: CoupledMDP, seed: int, sparse: bool) -> None:
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(seed), sparse)
    mean = space.values(policy).mean()
    averaged = average_over_renamings(joint, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))

    np.testing.assert_allclose(exact_values(problem, averaged).values, [mean], atol=1e-9)
    induced = space.induced(averaged)
    np.testing.assert_allclose(space.values(induced), np.full(space.num_arms, mean), atol=1e-9)

    brute = averaged_measure(space, policy)
    np.testing.assert_allclose(space.visits(induced), brute, atol=1e-9)
    visited = (space.belongs @ brute)[space.state_of_pair] > 1e-9
    np.testing.assert_allclose(induced[visited], space.policy_of(brute)[visited], atol=1e-5)


@given(symmetric_problems(), st.integers(0, 2**32 - 1))
def test_the_averaged_policy_is_blind_to_names(problem: CoupledMDP, seed: int) -> None:
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(seed))
    induced = space.induced(
        average_over_renamings(joint, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))
    )
    for order in space.renamings():
        np.testing.assert_allclose(space.renamed(induced, order), induced, atol=1e-12)


def test_it_fails_when_one_arm_earns_differently() -> None:
    space = ProductSpace(two_by_two(rewards=[[2.0, 1.8], [0.0, -0.2]]))
    policy = space.random_policy(np.random.default_rng(0))
    brute = space.policy_of(averaged_measure(space, policy))
    values = space.values(brute)
    assert values[1] - values[0] > 1.0
    assert np.abs(values - space.values(policy).mean()).max() > 0.5


def test_it_fails_when_one_arm_moves_differently() -> None:
    """The mean of renamed measures is then not even the measure of its own policy."""
    space = ProductSpace(two_by_two(transitions=[[[0.1, 0.9], [1.0, 0.0]], [[0.0, 1.0], [0.2, 0.8]]]))
    policy = np.array([float(a == (1, 0)) for _, a in space.pairs])
    renamed = sum(space.renamed(space.visits(policy), order) for order in space.renamings()) / 2
    assert np.abs(space.flow @ renamed - space.initial).max() > 0.1
    values = space.values(space.policy_of(averaged_measure(space, policy)))
    assert values[0] - values[1] > 0.5


def test_types_are_averaged_only_among_themselves() -> None:
    """The library does not overreach: with an odd arm it averages within types, and the two keep their own values."""
    problem = two_by_two(rewards=[[2.0, 1.8], [0.0, -0.2]])
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(0))
    averaged = average_over_renamings(joint, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))
    np.testing.assert_allclose(exact_values(problem, averaged).values, space.values(policy), atol=1e-10)
