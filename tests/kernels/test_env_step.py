"""The greedy allocation against its own words, and one step of copies against exact means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.kernels import draw_keys, priority_distribution, serve_greedily, step_greedily, step_sampled

from ..oracles import env_step as oracle

ROADS = {"NumPy": oracle.serve_greedily, "compiled": serve_greedily}


def in_its_own_words(scores, counts, budget, usage):
    """Again and again the highest-scoring cell that has an arm and fits, for one arm at a time; the first of equals."""
    left, room = list(counts), list(budget)
    allocation = np.zeros(scores.shape, dtype=int)
    while any(left):
        cells = [
            (scores[s, a], -s, -a)
            for s, a in np.ndindex(scores.shape)
            if left[s] > 0 and all(need <= have for need, have in zip(usage[s, a], room, strict=True))
        ]
        _, s, a = max(cells)
        allocation[-s, -a] += 1
        left[-s] -= 1
        room = [have - need for need, have in zip(usage[-s, -a], room, strict=True)]
    return allocation


@st.composite
def batches(draw):
    """Amounts are multiples of 1/4, so that nothing is rounded; scores of few levels, so that many are equal."""
    num_states, num_actions, num_resources = (draw(st.integers(1, most)) for most in (4, 4, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_copies = draw(st.integers(1, 5))
    levels = draw(st.sampled_from([1, 3, 1000]))
    scores = rng.integers(-levels, levels + 1, (num_copies, num_states, num_actions)) / levels
    counts = rng.integers(0, draw(st.sampled_from([2, 9])), (num_copies, num_states))
    budget = rng.integers(0, 40, (num_copies, num_resources)) / 4 * draw(st.sampled_from([0, 1]))
    usage = rng.integers(0, 9, (num_states, num_actions, num_resources)) / 4
    if draw(st.booleans()):
        usage[:] = usage[:1]
        usage[:, rng.integers(num_actions)] = 0
    else:
        usage[np.arange(num_states), rng.integers(0, num_actions, num_states)] = 0
    return scores, counts, budget, usage


class TestGreedyAllocation:
    @given(batch=batches())
    def test_both_roads_do_what_the_words_say(self, batch):
        scores, counts, budget, usage = batch
        expected = [in_its_own_words(*copy, usage) for copy in zip(scores, counts, budget, strict=True)]
        for road in ROADS.values():
            allocation = road(scores, counts, budget, usage)
            assert allocation.dtype == np.int64
            assert np.array_equal(allocation, expected)

    @given(seed=st.integers(0, 2**32), most=st.sampled_from([3, 10**4, 10**8]))
    def test_amounts_of_any_size_stay_within_the_budget(self, seed, most):
        rng = np.random.default_rng(seed)
        usage = rng.random((3, 3, 2)) * (rng.random((3, 3, 2)) < 0.7)
        usage[:, 1] = 0
        counts = rng.integers(0, most, (8, 3))
        scores, budget = rng.normal(size=(8, 3, 3)), rng.random((8, 2)) * counts.sum(axis=1, keepdims=True)
        one, two = (road(scores, counts, budget, usage) for road in ROADS.values())
        assert np.array_equal(one, two)
        assert (one >= 0).all() and (one.sum(axis=2) == counts).all()
        assert (np.einsum("esa,sak->ek", one, usage) <= budget * (1 + 1e-12)).all()

    @pytest.mark.parametrize("road", ROADS)
    def test_by_hand(self, road):
        """Two of three worn arms are replaced; idling the new ones comes before replacing them."""
        scores = np.array([[[0.5, 0.1], [0.2, 0.9]]])
        usage = np.array([[[0.0], [1.0]], [[0.0], [1.0]]])
        assert ROADS[road](scores, np.array([[4, 3]]), np.array([[2.0]]), usage).tolist() == [[[4, 0], [1, 2]]]
        assert ROADS[road](scores, np.array([[4, 3]]), np.array([[5.0]]), usage).tolist() == [[[4, 0], [0, 3]]]
        assert ROADS[road](scores, np.array([[4, 3]]), np.array([[0.0]]), usage).tolist() == [[[4, 0], [3, 0]]]

    @pytest.mark.parametrize("road", ROADS)
    def test_what_rounding_leaves_is_never_less_than_nothing(self, road):
        """37 uses of y just fit x by division, while 37 y > x by multiplication."""
        x, y = 15.564720554835155, 0.42066812310365287
        assert np.floor(x / y) == 37 and 37 * y > x
        usage = np.array([[[0.0], [y]], [[0.0], [y]]])
        scores = np.array([[[0.0, 3.0], [0.0, 2.0]]])
        allocation = ROADS[road](scores, np.array([[37, 5]]), np.array([[x]]), usage)
        assert (allocation >= 0).all() and allocation.sum(axis=2).tolist() == [[37, 5]]

    @pytest.mark.parametrize("road", ROADS)
    def test_what_is_given_is_not_changed(self, road):
        rng = np.random.default_rng(0)
        given = [rng.random((2, 3, 2)), rng.integers(0, 9, (2, 3)), np.full((2, 1), 3.0), np.ones((3, 2, 1))]
        given[3][:, 0] = 0
        before = [array.copy() for array in given]
        ROADS[road](*given)
        assert all(np.array_equal(*pair) for pair in zip(given, before, strict=True))


def a_world(seed, num_copies, most=20):
    """Three states, three actions, two resources; usage by state."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(3), size=(3, 3))
    usage = rng.integers(0, 3, (3, 3, 2)).astype(float)
    usage[[0, 1, 2], [0, 2, 1]] = 0
    counts = rng.integers(1, most, (num_copies, 3))
    budget = rng.integers(0, 2 * most, (num_copies, 2)).astype(float)
    return transitions, rng.random((3, 3)), usage, rng.random((num_copies, 3, 3)), counts, budget


def steps(world, keys):
    return zip(*(step_greedily(*world, key) for key in keys), strict=True)


class TestStep:
    def test_allocation_and_reward_are_those_of_the_plain_formulas(self):
        world = a_world(1, 50)
        _, rewards, usage, scores, counts, budget = world
        allocation, earned, following = step_greedily(*world, np.uint64(3))
        assert np.array_equal(allocation, serve_greedily(scores, counts, budget, usage))
        assert np.allclose(earned, (allocation * rewards).sum(axis=(1, 2)) / counts.sum(axis=1), rtol=1e-12)
        assert np.array_equal(following.sum(axis=1), counts.sum(axis=1))

    def test_next_counts_have_the_exact_mean_and_variance(self):
        """Each arm of a cell moves by its row, independently: a sum of multinomials."""
        world = a_world(2, 6)
        allocations, _, following = steps(world, draw_keys(np.random.default_rng(0), 4000))
        seen, rows = np.array(following), world[0]
        mean = np.einsum("csa,sat->ct", allocations[0], rows)
        variance = np.einsum("csa,sat->ct", allocations[0], rows * (1 - rows))
        assert (np.abs(seen.mean(axis=0) - mean) < 4.5 * np.sqrt(variance / len(seen))).all()
        assert np.allclose(seen.var(axis=0), variance, rtol=0.15)

    def test_copies_and_keys_are_independent(self):
        one = list(a_world(3, 1, most=400))
        world = [*one[:3], *(np.repeat(array, 4000, axis=0) for array in one[3:])]
        first, second = (step_greedily(*world, np.uint64(key))[2][:, 0] for key in (1, 2))
        for left, right in ((first, second), (first[1:], first[:-1])):
            assert abs(np.corrcoef(left, right)[0, 1]) < 4.5 / np.sqrt(len(right))

    @pytest.mark.parametrize("sampled", [False, True])
    def test_a_copy_does_not_depend_on_the_others(self, sampled):
        transitions, rewards, usage, scores, counts, budget = a_world(4, 40)

        def step(scores, counts, budget):
            if sampled:
                return step_sampled(transitions, rewards, usage, scores, budget, counts, np.uint64(9))
            return step_greedily(transitions, rewards, usage, scores, counts, budget, np.uint64(9))

        whole = step(scores, counts, budget)
        for few in (1, 7):
            for all_of_them, part in zip(whole, step(scores[:few], counts[:few], budget[:few]), strict=True):
                assert np.array_equal(all_of_them[:few], part)
        others = counts.copy()
        others[:20] += 5
        for before, after in zip(whole, step(scores, others, budget), strict=True):
            assert np.array_equal(before[20:], after[20:])

    def test_sampled_copies_have_the_law_of_algorithm_1(self, chi_square):
        transitions, rewards, usage, scores, _, _ = a_world(5, 1)
        counts, spend, number = np.array([2, 1, 2]), np.array([3.0, 2.0]), 20_000
        allocations, chances = priority_distribution(scores[0], counts, spend, usage)
        many = [np.repeat(array[None], number, axis=0) for array in (scores[0], spend, counts)]
        seen, earned, following = step_sampled(transitions, rewards, usage, *many, np.uint64(1))
        place = {allocation.tobytes(): i for i, allocation in enumerate(allocations)}
        numbers = np.bincount([place[a.tobytes()] for a in seen], minlength=len(chances))
        assert chi_square(numbers, chances) > 1e-4
        assert np.allclose(earned, (seen * rewards).sum(axis=(1, 2)) / 5)
        mean = np.einsum("c,csa,sat->t", chances, allocations, transitions)
        assert np.allclose(following.mean(axis=0), mean, atol=4.5 * np.sqrt(5 / number))
