"""Lemma B.2 (Puterman, Theorem 6.9.1): stationary policies and occupancy measures determine each other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import Arm, CoupledMDP
from evenhand.solvers import Joint, occupancy_measure, policy_of

from .product_space import ProductSpace, symmetric_problems, two_by_two

SEEDS = st.integers(0, 2**32 - 1)


@given(symmetric_problems(), SEEDS)
def test_from_a_policy_to_its_measure_and_back(problem: CoupledMDP, seed: int) -> None:
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(seed))
    table = space.in_joint_order(joint, policy)
    measure = occupancy_measure(joint.mdp, table)
    np.testing.assert_allclose(measure, space.in_joint_order(joint, space.visits(policy)), atol=1e-10)
    back = policy_of(joint.mdp, measure)
    visited = np.add.reduceat(measure, joint.mdp.offsets[:-1])[joint.mdp.state_of_pair] > 1e-9
    np.testing.assert_allclose(back[visited], table[visited], atol=1e-6)
    np.testing.assert_allclose(occupancy_measure(joint.mdp, back), measure, atol=1e-10)


@given(symmetric_problems(), SEEDS)
def test_from_a_measure_to_its_policy_and_back(problem: CoupledMDP, seed: int) -> None:
    """Any mixture of measures is one: it satisfies the flow equations, whatever policy it is of."""
    space, joint = ProductSpace(problem), Joint(problem)
    rng = np.random.default_rng(seed)
    parts = [space.visits(space.random_policy(rng, sparse=True)) for _ in range(3)]
    measure = rng.dirichlet(np.ones(3)) @ parts
    np.testing.assert_allclose(space.flow @ measure, space.initial, atol=1e-10)
    table = space.in_joint_order(joint, measure)
    np.testing.assert_allclose(occupancy_measure(joint.mdp, policy_of(joint.mdp, table)), table, atol=1e-10)


def test_it_fails_for_a_measure_that_breaks_the_flow_equations() -> None:
    problem = two_by_two()
    joint = Joint(problem)
    measure = np.full(joint.mdp.num_pairs, 10 / joint.mdp.num_pairs)  # as many visits in all as a policy has
    back = occupancy_measure(joint.mdp, policy_of(joint.mdp, measure))
    assert abs(back.sum() - measure.sum()) < 1e-9
    assert np.abs(back - measure).max() > 0.1


def test_it_fails_where_a_policy_never_goes() -> None:
    """Two policies that differ only in a state nobody reaches have one measure, so the policy is not determined."""
    stay = np.eye(2)[:, None, :].repeat(2, axis=1)
    arm = Arm(stay, [[0.0, 1.0], [0.0, 1.0]], [[0.0], [1.0]], [1.0, 0.0])
    joint = Joint(CoupledMDP([arm], [1.0], 0.9))
    one, other = np.array([0.5, 0.5, 1.0, 0.0]), np.array([0.5, 0.5, 0.0, 1.0])
    np.testing.assert_allclose(occupancy_measure(joint.mdp, one), occupancy_measure(joint.mdp, other))
    assert np.array_equal(policy_of(joint.mdp, occupancy_measure(joint.mdp, other)), one)
