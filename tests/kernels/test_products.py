"""Operators that are applied arm by arm, against the same matrices written out by np.kron."""

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.kernels import ActionKernel, ProductKernel, kronecker_rows
from evenhand.model import CoupledMDP
from evenhand.solvers import Joint

from ..theorems.product_space import ProductSpace, random_arm

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


def random_rows(rng: np.random.Generator, shape: tuple[int, ...], num_states: int, sparse: bool) -> np.ndarray:
    """(..., state) laws, some with zeros, so that rows have supports of different lengths."""
    rows = rng.dirichlet(np.ones(num_states), size=shape)
    if sparse:
        rows = rows * (rng.random(rows.shape) < 0.5) + 1e-3 * np.eye(num_states)[rows.argmax(axis=-1)]
    return rows / rows.sum(axis=-1, keepdims=True)


def check_operator(kernel: ProductKernel | ActionKernel, dense: np.ndarray, rng: np.random.Generator) -> None:
    assert kernel.shape == dense.shape
    assert kernel.T.shape == dense.T.shape
    value, measure = rng.normal(size=dense.shape[1]), rng.normal(size=dense.shape[0])
    before = value.copy(), measure.copy()
    np.testing.assert_allclose(kernel @ value, dense @ value, atol=1e-12)
    np.testing.assert_allclose(kernel.T @ measure, dense.T @ measure, atol=1e-12)
    assert np.array_equal(value, before[0])
    assert np.array_equal(measure, before[1])
    some = rng.integers(len(dense), size=min(7, 2 * len(dense)))  # with repeats, in no order
    np.testing.assert_allclose(kernel[some].toarray(), dense[some], atol=1e-15)
    np.testing.assert_allclose(kernel[np.arange(len(dense))].toarray(), dense, atol=1e-15)


@given(SIZES, st.lists(st.integers(1, 4), min_size=4, max_size=4), st.booleans(), SEEDS)
def test_product_kernel(num_states: list[int], num_rows: list[int], sparse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [random_rows(rng, (num_rows[n],), states, sparse) for n, states in enumerate(num_states)]
    check_operator(ProductKernel(parts), reduce(np.kron, parts), rng)


@given(SIZES, st.lists(st.integers(1, 3), min_size=4, max_size=4), st.booleans(), SEEDS)
def test_action_kernel(num_states: list[int], num_actions: list[int], sparse: bool, seed: int) -> None:
    """Any set of joint actions in lexicographic order, such as a budget leaves."""
    rng = np.random.default_rng(seed)
    matrices = [random_rows(rng, (num_actions[n], size), size, sparse) for n, size in enumerate(num_states)]
    every = list(product(*(range(len(matrix)) for matrix in matrices)))
    kept = sorted(rng.choice(len(every), size=rng.integers(1, min(len(every), 6) + 1), replace=False))
    actions = np.array([every[i] for i in kept], dtype=np.int64)
    blocks = [reduce(np.kron, [matrices[n][a] for n, a in enumerate(action)]) for action in actions]
    check_operator(ActionKernel(matrices, actions), np.vstack(blocks), rng)


@pytest.mark.parametrize("outcomes", [pytest.param([]), [3], [3, 3, 0]])
def test_rows_may_be_none_one_or_repeated(outcomes: list[int]) -> None:
    parts = [np.eye(2), np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])]
    rows = ProductKernel(parts)[np.array(outcomes, dtype=np.int64)]
    assert rows.shape == (len(outcomes), 6)
    np.testing.assert_array_equal(rows.toarray(), np.kron(*parts)[outcomes])


def test_rows_keep_only_what_is_possible() -> None:
    rows = kronecker_rows([np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])])
    assert rows.nnz == 1 + 6
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("kernel", "num_actions", "budget"), [(ActionKernel, (2, 2, 2), 1.0), (ProductKernel, (3, 2, 2), 9.0)]
)
def test_the_product_space_uses_whichever_is_smaller(kernel: type, num_actions: tuple, budget: float) -> None:
    """Ragged arms through `Joint`: the law of every pair is the Kronecker product of its arms' rows."""
    rng = np.random.default_rng(5)
    arms = [random_arm(rng, states, actions, 1) for states, actions in zip((2, 3, 4), num_actions, strict=True)]
    usage = [np.minimum(np.arange(actions), 1.0)[:, None] for actions in num_actions]
    arms = [type(arm)(arm.transitions, arm.rewards, use, arm.initial) for arm, use in zip(arms, usage, strict=True)]
    if kernel is ProductKernel:  # every action moves alike, so that there are as few rows as states
        arms = [
            type(arm)(arm.transitions[:, :1].repeat(arm.num_actions, axis=1), arm.rewards, arm.usage, arm.initial)
            for arm in arms
        ]
    problem = CoupledMDP(arms, [budget], 0.9)
    joint, space = Joint(problem), ProductSpace(problem)
    assert isinstance(joint.mdp.kernel, kernel)
    np.testing.assert_allclose(joint.mdp.transitions.toarray(), space.in_joint_order(joint, space.rows), atol=1e-14)
    value = rng.normal(size=joint.num_states)
    by_pair = (joint.mdp.kernel @ value)[joint.mdp.outcomes]
    np.testing.assert_allclose(by_pair, space.in_joint_order(joint, space.rows) @ value, atol=1e-12)
    np.testing.assert_allclose(joint.mdp.initial, space.initial)
    np.testing.assert_allclose(joint.mdp.rewards, space.in_joint_order(joint, space.rewards))
