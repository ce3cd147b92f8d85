"""Lemma B.3: the values of the arms are the rewards of all pairs, weighed by the policy's discounted visits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.evaluation import exact_values
from evenhand.model import Arm, CoupledMDP
from evenhand.solvers import Joint, occupancy_measure, values

from .product_space import ProductSpace, random_arm, two_by_two


def random_mixed(seed: int, sparse: bool) -> CoupledMDP:
    """Two arms that differ in everything, and a second of the first kind; the lemma asks for no symmetry."""
    rng = np.random.default_rng(seed)
    arms: list[Arm] = [random_arm(rng, 2, 3, 2, sparse), random_arm(rng, 3, 2, 2)]
    return CoupledMDP(arms, rng.integers(0, 4, size=2).astype(float), 0.8, [2, 1])


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_values_are_rewards_weighed_by_visits(seed: int, sparse: bool) -> None:
    problem = random_mixed(seed, sparse)
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(seed), sparse)
    table = space.in_joint_order(joint, policy)
    expected = space.values(policy)
    np.testing.assert_allclose(space.visits(policy) @ space.rewards, expected, atol=1e-10)
    np.testing.assert_allclose(values(joint.mdp, occupancy_measure(joint.mdp, table)), expected, atol=1e-10)
    np.testing.assert_allclose(exact_values(problem, joint.lift(table)).values, expected, atol=1e-10)


def test_it_fails_for_the_visits_under_another_law() -> None:
    """The visits must be those of the problem at hand: with one arm that moves differently the values are others."""
    here, there = Joint(two_by_two()), Joint(two_by_two(transitions=[[[0.1, 0.9], [0.9, 0.1]], [[0.0, 1.0]] * 2]))
    first = np.zeros(here.mdp.num_pairs)
    first[here.mdp.offsets[:-1]] = 1.0
    visits = occupancy_measure(there.mdp, first)
    true = ProductSpace(here.problem).values(first)
    np.testing.assert_allclose(values(here.mdp, occupancy_measure(here.mdp, first)), true, atol=1e-10)
    assert np.abs(values(here.mdp, visits) - true).max() > 0.5
