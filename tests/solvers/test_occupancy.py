"""Occupancy measures against their power series, by both algorithms of the linear solve."""

import numpy as np
import pytest
from scipy import sparse

from evenhand.errors import InvalidInputError
from evenhand.model import Discounted, TabularMDP
from evenhand.problems import machine_replacement
from evenhand.solvers import Counts, Joint, occupancy_measure, policy_of, values

from ..conftest import mentions


def random_mdp(seed, num_states=6, discount=0.9, objectives=2):
    """A tabular MDP whose outcomes are shared between pairs and in no order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, num_states)
    outcomes = rng.integers(0, num_states, sizes.sum())
    return TabularMDP(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        rewards=rng.normal(size=(sizes.sum(), objectives)),
        outcomes=outcomes,
        kernel=sparse.csr_array(rng.dirichlet(np.ones(num_states), size=num_states)),
        initial=rng.dirichlet(np.ones(num_states)),
        criterion=Discounted(discount),
    )


def random_policy(mdp, seed):
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    return weights / np.repeat(np.add.reduceat(weights, mdp.offsets[:-1]), np.diff(mdp.offsets))


def by_series(mdp, probabilities, steps=2000):
    """The definition: discounted chances of each pair, step by step."""
    law, total = mdp.initial, np.zeros(mdp.num_pairs)
    rows = mdp.transitions.toarray()
    for t in range(steps):
        pairs = np.repeat(law, np.diff(mdp.offsets)) * probabilities
        total += mdp.criterion.factor**t * pairs
        law = pairs @ rows
    return total


@pytest.fixture(params=[10**6, 0], ids=["dense", "iterative"])
def dense_up_to(request):
    return request.param


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.95])
def test_is_the_discounted_number_of_visits(dense_up_to, seed, discount):
    mdp = random_mdp(seed, discount=discount)
    probabilities = random_policy(mdp, seed)
    measure = occupancy_measure(mdp, probabilities, dense_up_to)
    np.testing.assert_allclose(measure, by_series(mdp, probabilities, 600), rtol=1e-9, atol=1e-12)
    assert measure.sum() == pytest.approx(1 / (1 - discount))
    np.testing.assert_allclose(values(mdp, measure), measure @ mdp.rewards)


@pytest.mark.parametrize("reduction", [Counts, Joint])
def test_on_reductions(dense_up_to, reduction):
    mdp = reduction(machine_replacement(num_arms=3, budget=2)).mdp
    probabilities = random_policy(mdp, 0)
    np.testing.assert_allclose(
        occupancy_measure(mdp, probabilities, dense_up_to), by_series(mdp, probabilities), rtol=1e-8, atol=1e-12
    )


def test_discounts_near_one():
    mdp = random_mdp(3, num_states=30, discount=0.9999)
    probabilities = random_policy(mdp, 3)
    dense = occupancy_measure(mdp, probabilities)
    np.testing.assert_allclose(occupancy_measure(mdp, probabilities, dense_up_to=0), dense, rtol=1e-7)


def test_states_that_are_never_reached(dense_up_to):
    mdp = random_mdp(1, num_states=2)
    absorbing = TabularMDP(
        mdp.offsets,
        mdp.rewards,
        mdp.outcomes,
        sparse.csr_array(np.array([[1.0, 0], [1.0, 0]])),
        np.array([1.0, 0]),
        Discounted(0.9),
    )
    measure = occupancy_measure(absorbing, random_policy(absorbing, 0), dense_up_to)
    assert not measure[mdp.offsets[1] :].any() and measure.sum() == pytest.approx(10)


class TestPolicyOf:
    @pytest.mark.parametrize("seed", range(4))
    def test_undoes_occupancy(self, seed):
        mdp = random_mdp(seed)
        probabilities = random_policy(mdp, seed)
        np.testing.assert_allclose(policy_of(mdp, occupancy_measure(mdp, probabilities)), probabilities, rtol=1e-9)

    def test_unvisited_states_take_their_first_pair(self):
        mdp = random_mdp(0)
        table = policy_of(mdp, np.zeros(mdp.num_pairs))
        assert np.flatnonzero(table).tolist() == mdp.offsets[:-1].tolist()

    def test_rounding_below_zero_is_forgiven(self):
        mdp = random_mdp(0)
        measure = occupancy_measure(mdp, random_policy(mdp, 0))
        measure[mdp.offsets[1] - 1] = -1e-15
        table = policy_of(mdp, measure)
        assert table.min() >= 0
        np.testing.assert_allclose(np.add.reduceat(table, mdp.offsets[:-1]), 1)


class TestChecks:
    mdp = random_mdp(0)

    def test_a_wrong_length_is_named(self):
        with pytest.raises(InvalidInputError, check=mentions("probabilities", self.mdp.num_pairs)):
            occupancy_measure(self.mdp, np.ones(self.mdp.num_pairs + 1))

    @pytest.mark.parametrize("change", [lambda p: 0.5 * p, lambda p: p + 1e-6, lambda p: np.where(p == p[0], -p, p)])
    def test_an_invalid_policy_is_refused(self, change):
        with pytest.raises(InvalidInputError, check=mentions(1)):
            occupancy_measure(self.mdp, change(random_policy(self.mdp, 0)))

    def test_nan_is_refused(self):
        with pytest.raises(InvalidInputError, check=mentions("probabilities")):
            occupancy_measure(self.mdp, np.full(self.mdp.num_pairs, np.nan))
