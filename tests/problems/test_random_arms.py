import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import ModelError, TooLargeError
from evenhand.problems import random_coupled


def test_defaults_are_symmetric():
    problem = random_coupled()
    assert problem.is_symmetric
    assert problem.num_arms == 5
    assert problem.arms[0].transitions.shape == (3, 2, 3)
    assert problem.num_resources == 1


def test_the_same_seed_gives_the_same_problem():
    parameters = {"num_arms": 6, "num_types": 3, "num_actions": 3, "num_resources": 2, "sparsity": 0.3}
    assert random_coupled(**parameters, seed=7) == random_coupled(**parameters, seed=7)
    assert random_coupled(**parameters, seed=7) != random_coupled(**parameters, seed=8)


@pytest.mark.parametrize(
    ("num_arms", "num_types", "counts"),
    [(7, 3, [3, 2, 2]), (6, 3, [2, 2, 2]), (4, 4, [1, 1, 1, 1]), (5, 1, [5])],
)
def test_types_are_even_blocks(num_arms, num_types, counts):
    problem = random_coupled(num_arms=num_arms, num_types=num_types)
    assert problem.counts.tolist() == counts
    assert problem.num_types == num_types


@given(
    num_states=st.integers(1, 6),
    num_actions=st.integers(2, 4),
    num_resources=st.integers(1, 3),
    num_types=st.integers(1, 4),
    sparsity=st.floats(0, 1),
    integer=st.booleans(),
    by_state=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_draw_keeps_the_rules(
    num_states, num_actions, num_resources, num_types, sparsity, integer, by_state, seed
):
    problem = random_coupled(
        num_arms=5,
        num_states=num_states,
        num_actions=num_actions,
        num_resources=num_resources,
        num_types=num_types,
        sparsity=sparsity,
        seed=seed,
        integer_usage=integer,
        state_dependent_usage=by_state,
    )
    tables = problem.tables
    assert tables.usage.shape == (num_types, num_states, num_actions, num_resources)
    np.testing.assert_allclose(tables.transitions.sum(axis=-1), 1)
    assert ((tables.rewards >= 0) & (tables.rewards <= 1)).all()
    assert (tables.usage[:, :, 0] == 0).all()
    assert (tables.usage[:, :, 1:].max(axis=-1) > 0).all()
    used = tables.usage[tables.usage > 0]
    assert set(used.tolist()) <= {1, 2, 3} if integer else ((used >= 0.5) & (used <= 3)).all()
    if not by_state:
        assert (tables.usage == tables.usage[:, :1]).all()
    most = problem.counts @ tables.usage.max(axis=(1, 2))
    positive = np.where(tables.usage > 0, tables.usage, np.inf).min(axis=(0, 1, 2))
    assert (problem.budget <= np.maximum(most / 3, np.where(most > 0, positive, 0))).all()
    assert (problem.budget[most > 0] >= positive[most > 0]).all()


def test_sparsity_is_the_share_of_impossible_transitions():
    for sparsity in (0.0, 0.5, 0.9):
        transitions = random_coupled(num_arms=20, num_types=20, num_states=30, sparsity=sparsity).tables.transitions
        assert (transitions == 0).mean() == pytest.approx(sparsity, abs=0.02)


def test_full_sparsity_is_deterministic():
    transitions = random_coupled(num_arms=5, num_types=5, num_states=4, sparsity=1.0).tables.transitions
    np.testing.assert_array_equal(np.sort(transitions, axis=-1), np.broadcast_to([0, 0, 0, 1], transitions.shape))


def test_rows_are_uniform_on_the_simplex():
    """A coordinate of Dirichlet(1, 1, 1) is Beta(1, 2): mean 1/3, variance 1/18."""
    entries = random_coupled(num_arms=4000, num_types=4000).tables.transitions[..., 0].ravel()
    assert entries.mean() == pytest.approx(1 / 3, abs=0.01)
    assert entries.var() == pytest.approx(1 / 18, abs=0.005)


def test_usage_can_depend_on_the_state():
    usage = random_coupled(num_states=20, state_dependent_usage=True).tables.usage
    assert not (usage == usage[:, :1]).all()


def test_the_default_budget_by_hand():
    problem = random_coupled(num_arms=10, num_types=2, num_actions=3, num_resources=2, seed=5)
    most = sum(5 * arm.usage.max(axis=(0, 1)) for arm in problem.arms)
    np.testing.assert_array_equal(problem.budget, np.floor(most / 3))


def test_the_default_budget_binds(fluid_prices):
    prices = [fluid_prices(random_coupled(num_arms=9, num_types=3, seed=seed))[0] for seed in range(10)]
    assert sum(price > 1e-6 for price in prices) >= 7


def test_a_budget_is_that_of_each_resource():
    assert random_coupled(num_resources=3, budget=4).budget.tolist() == [4, 4, 4]


def test_a_hundred_thousand_different_arms():
    problem = random_coupled(num_arms=100_000, num_types=100_000)
    assert problem.num_types == 100_000


def test_all_faults_at_once():
    with pytest.raises(ModelError) as caught:
        random_coupled(
            num_arms=3,
            num_states=0,
            num_actions=1,
            num_resources=-1,
            num_types=4,
            budget=-0.5,
            sparsity=1.1,
            discount=-0.1,
            seed="x",
            integer_usage=1,
            state_dependent_usage="no",
        )
    faults = {fault.place: fault.message for fault in caught.value.faults}
    assert len(faults) == 10
    assert faults["integer_usage"] == "expected true or false, got 1"


def test_what_does_not_fit_is_refused():
    with pytest.raises(TooLargeError):
        random_coupled(num_states=10**7)
