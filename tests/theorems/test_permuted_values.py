"""Lemma B.1: renaming the arms of a policy renames their values, V^pi = Q V^piQ, if the arms are identical."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import CoupledMDP
from evenhand.solvers import Joint, occupancy_measure, values

from .product_space import ProductSpace, symmetric_problems, two_by_two


def library_values(space: ProductSpace, policy: np.ndarray) -> np.ndarray:
    joint = Joint(space.problem)
    return values(joint.mdp, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))


@given(symmetric_problems(), st.integers(0, 2**32 - 1))
def test_a_renamed_policy_has_renamed_values(problem: CoupledMDP, seed: int) -> None:
    space = ProductSpace(problem)
    policy = space.random_policy(np.random.default_rng(seed))
    before = library_values(space, policy)
    np.testing.assert_allclose(before, space.values(policy), atol=1e-10)
    for order in space.renamings():
        after = library_values(space, space.renamed(policy, order))
        np.testing.assert_allclose(before, after[list(order)], atol=1e-10)  # V = Q V^Q, (Qv)_n = v_order[n]


@pytest.mark.parametrize(
    "odd",
    [{"rewards": [[1.0, 0.8], [0.5, -0.2]]}, {"transitions": [[[0.1, 0.9], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]]}],
    ids=["rewards", "transitions"],
)
def test_it_fails_when_one_arm_differs(odd: dict) -> None:
    for changes, holds in (({}, True), (odd, False)):
        space = ProductSpace(two_by_two(**changes))
        always_the_first = np.array([float(a == (1, 0)) for _, a in space.pairs])
        before, after = space.values(always_the_first), space.values(space.renamed(always_the_first, (1, 0)))
        assert bool(np.abs(before[[1, 0]] - after).max() < 1e-10) is holds
        assert holds or np.abs(before[[1, 0]] - after).max() > 0.5
