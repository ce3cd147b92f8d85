"""Allocations by priority: every road against the exact law, and the law against Algorithm 1 draw by draw."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evenhand.errors import TooLargeError
from evenhand.kernels import draw_keys, priority_distribution, priority_sampling, sample_by_priority

from ..conftest import crossed, mentions, slow_after
from ..oracles import priorities as oracle

SAMPLES = 8_000
UNLIKELY = 1e-4
"""Below this p-value two laws are called different."""


def sample_sequentially(priorities, counts, spend, usage, rng):
    """Algorithm 1 as it is printed: one draw after the other, with its forbidden set. O(N S A) an episode."""
    num_actions = priorities.shape[2]
    left, amounts = counts.copy(), spend.copy()
    allocation = np.zeros(priorities.shape, dtype=np.int64)
    forbidden = (priorities <= 0) | (counts == 0)[:, :, None]
    while not forbidden.all():
        live = np.flatnonzero(~forbidden.all(axis=(1, 2)))
        # Of clocks that ring at rates U, the first is c with probability U_c / sum U.
        clocks = np.full(priorities[live].shape, np.inf)
        np.divide(rng.exponential(size=clocks.shape), priorities[live], out=clocks, where=~forbidden[live])
        state, action = np.divmod(clocks.reshape(len(live), -1).argmin(axis=1), num_actions)
        fits = (usage[state, action] <= amounts[live]).all(axis=1)
        forbidden[live[~fits], state[~fits], action[~fits]] = True
        rows, state, action = live[fits], state[fits], action[fits]
        allocation[rows, state, action] += 1
        left[rows, state] -= 1
        amounts[rows] = np.maximum(amounts[rows] - usage[state, action], 0)
        forbidden[rows, state] |= (left[rows, state] == 0)[:, None]
    return allocation


def fast(*arguments, seed):
    return sample_by_priority(*arguments, np.uint64(seed))


def in_blocks_only(scores, counts, spend, usage, seed):
    """The compiled road without its way of few draws, so that even the smallest case goes by blocks and halves."""
    out = np.empty(scores.shape, dtype=np.int64)
    for e, stream in enumerate(draw_keys(np.random.default_rng(seed), len(scores))):
        priority_sampling.sample_in_blocks(scores[e], counts[e], spend[e], usage, stream, out[e], 0.0)
    return out


ROADS = {
    "one by one": lambda *arguments, seed: sample_sequentially(*arguments, np.random.default_rng(seed)),
    "by halves": lambda *arguments, seed: oracle.sample_by_priority(*arguments, np.random.default_rng(seed)),
    "compiled": fast,
    "compiled, blocks only": in_blocks_only,
}
FAST = {name: road for name, road in ROADS.items() if name != "one by one"}


def draw(road, case, number, seed):
    scores, counts, spend, usage = case
    repeated = [np.repeat(array[None], number, axis=0) for array in (scores, counts, spend)]
    return road(*repeated, usage, seed=seed)


def case_of(scores, counts, spend, usage):
    scores = np.array(scores, dtype=float)
    usage = np.array(usage, dtype=float)
    usage = np.broadcast_to(usage, (len(scores), *usage.shape[-2:])).copy()
    return scores, np.array(counts), np.array(spend, dtype=float), usage


ONE_UNIT = [[0], [1]]
TWO_RESOURCES = [[0, 0], [1, 0], [1, 2]]
BY_STATE = [[[0, 0], [1, 0.5], [0, 2]], [[0, 0], [2, 0], [1, 1]], [[1, 1], [0, 0], [0.5, 2.5]]]
SCORES = [[0.3, 1.0, 0.6], [0.9, 0.2, 0.5], [0.4, 0.7, 0.1]]

CASES = {
    "one resource": case_of([[0.5, 0.9], [1.0, 0.3]], [3, 2], [2], ONE_UNIT),
    "three actions, two resources": case_of(SCORES[:2], [3, 2], [3, 2], TWO_RESOURCES),
    "usage by state": case_of(SCORES, [2, 2, 1], [2.5, 3], BY_STATE),
    "nearly empty": case_of(SCORES, [1, 5, 0], [3, 4], BY_STATE),
    "nothing to spend": case_of(SCORES[:2], [3, 3], [0, 0], TWO_RESOURCES),
    "one resource spent": case_of(SCORES, [2, 1, 2], [3, 0], BY_STATE),
    "ample": case_of(SCORES, [2, 2, 2], [100, 100], BY_STATE),
    "far from even": case_of([[1e-3, 1.0], [1.0, 1e-3]], [4, 4], [3], ONE_UNIT),
    "a masked cell": case_of([[0.5, 0.0, 0.5], [0.2, 0.8, 0.3]], [3, 2], [2, 2], TWO_RESOURCES),
    "many in two states": case_of([[0.5, 0.3], [0.6, 0.4]], [25, 8], [7], ONE_UNIT),
    "many, two free actions": case_of([[0.5, 0.3, 0.9]], [30], [9], [[0], [1], [0]]),
    "two idle actions": case_of([[0.5, 0.3, 0.9], [0.2, 0.4, 0.1]], [2, 4], [2], [[0], [1], [0]]),
    "one arm": case_of(SCORES, [0, 1, 0], [2, 1], BY_STATE),
    "no resource": case_of([[0.5, 0.3], [0.6, 0.4]], [3, 2], [], np.zeros((2, 0))),
}
TINY = [name for name, case in CASES.items() if case[1].sum() <= 6]


def algorithm_1(scores, counts, spend, usage):
    """The exact law by following every sequence of draws, those that are rejected too, in rational numbers.

    What several sequences have led to, with equal forbidden sets, is followed once; this keeps it short.
    """
    cells = list(product(range(scores.shape[0]), range(scores.shape[1])))
    weight = {cell: Fraction(float(scores[cell])) for cell in cells}
    need = {cell: tuple(map(Fraction, usage[cell].tolist())) for cell in cells}
    masked = frozenset(cell for cell in cells if weight[cell] == 0 or counts[cell[0]] == 0)
    start = ((0,) * len(cells), tuple(counts.tolist()), tuple(map(Fraction, spend.tolist())), masked)
    found, layer = defaultdict(Fraction), {start: Fraction(1)}
    while layer:
        following = defaultdict(Fraction)
        for (taken, arms, amounts, forbidden), chance in layer.items():
            allowed = [cell for cell in cells if cell not in forbidden]
            total = sum(weight[cell] for cell in allowed)
            for cell in allowed:
                share = chance * weight[cell] / total
                if all(d <= b for d, b in zip(need[cell], amounts, strict=True)):
                    more = tuple(number + (other == cell) for number, other in zip(taken, cells, strict=True))
                    fewer = tuple(x - (s == cell[0]) for s, x in enumerate(arms))
                    less = tuple(b - d for d, b in zip(need[cell], amounts, strict=True))
                    emptied = {other for other in cells if fewer[other[0]] == 0}
                    following[more, fewer, less, forbidden | emptied] += share
                else:
                    following[taken, arms, amounts, forbidden | {cell}] += share
            if not allowed:
                found[taken] += chance
        layer = following
    return {np.array(taken).reshape(scores.shape).tobytes(): float(chance) for taken, chance in found.items()}


class TestLaw:
    @pytest.mark.parametrize("name", TINY)
    def test_it_is_algorithm_1_with_all_its_rejections(self, name):
        allocations, chances = priority_distribution(*CASES[name])
        expected = algorithm_1(*CASES[name])
        assert {allocation.tobytes() for allocation in allocations} == set(expected)
        assert np.allclose(chances, [expected[a.tobytes()] for a in allocations], rtol=1e-10, atol=0)

    @pytest.mark.parametrize("name", CASES)
    def test_it_is_a_law_on_allocations_within_the_budget(self, name):
        scores, counts, spend, usage = CASES[name]
        allocations, chances = priority_distribution(*CASES[name])
        assert chances.min() > 0 and np.isclose(chances.sum(), 1)
        assert len(np.unique(allocations.reshape(len(allocations), -1), axis=0)) == len(allocations)
        assert (allocations.sum(axis=2) == counts).all()
        assert (np.einsum("csa,sak->ck", allocations, usage) <= spend).all()
        assert not allocations[:, scores == 0].any()

    @pytest.mark.parametrize("budget", [0, 4, 12, 40])
    def test_one_state_and_one_unit_is_a_binomial_cut_at_the_budget(self, budget):
        allocations, chances = priority_distribution(*case_of([[0.7, 0.3]], [40], [budget], ONE_UNIT))
        law = stats.binom(40, 0.3)
        cut = np.where(np.arange(budget + 1) < budget, law.pmf(np.arange(budget + 1)), law.sf(budget - 1))
        assert np.array_equal(np.sort(allocations[:, 0, 1]), np.arange(budget + 1))
        assert np.allclose(chances, cut[allocations[:, 0, 1]], rtol=1e-9)

    def test_nobody_has_one_allocation(self):
        allocations, chances = priority_distribution(*case_of(SCORES, [0, 0, 0], [1, 1], BY_STATE))
        assert not allocations.any() and chances.tolist() == [1.0]

    def test_allocations_longer_than_a_word_are_told_apart(self):
        """Twelve actions for nine arms in each of two states make numbers of more than 63 bits."""
        scores = np.full((2, 12), 1e-3)
        scores[:, [0, 11]] = 0.4, 0.7
        usage = np.ones((2, 12, 1))
        usage[:, [0, 11]] = 0
        allocations, chances = priority_distribution(scores, np.array([9, 8]), np.zeros(1), usage)
        assert len(allocations) == 10 * 9
        first, second = (stats.binom(n, 0.7 / 1.1).pmf(np.arange(n + 1)) for n in (9, 8))
        assert np.allclose(chances, first[allocations[:, 0, 11]] * second[allocations[:, 1, 11]])

    def test_what_is_too_large_is_refused_in_words(self):
        case = case_of(SCORES, [3, 3, 4], [4, 4], BY_STATE)
        number = len(priority_distribution(*case)[0])
        with pytest.raises(TooLargeError, check=mentions(number // 2)):
            priority_distribution(*case, largest=number // 2)


class TestSamples:
    @pytest.mark.parametrize(("name", "road"), crossed(CASES, ROADS))
    def test_all_roads_have_the_exact_law(self, chi_square, name, road):
        allocations, chances = priority_distribution(*CASES[name])
        place = {allocation.tobytes(): i for i, allocation in enumerate(allocations)}
        seen = draw(ROADS[road], CASES[name], SAMPLES, seed=7)
        assert seen.dtype == np.int64
        numbers = np.bincount([place[allocation.tobytes()] for allocation in seen], minlength=len(chances))
        assert chi_square(numbers, chances) > UNLIKELY

    def test_the_test_would_see_a_wrong_law(self, chi_square):
        """Priorities off by a tenth are told from the right ones by as many samples."""
        scores, *rest = CASES["three actions, two resources"]
        allocations, chances = priority_distribution(scores, *rest)
        place = {allocation.tobytes(): i for i, allocation in enumerate(allocations)}
        seen = draw(fast, (scores * [[1.0, 1.1, 1.0], [1.0, 1.0, 1.0]], *rest), SAMPLES, seed=7)
        numbers = np.bincount([place[allocation.tobytes()] for allocation in seen], minlength=len(chances))
        assert chi_square(numbers, chances) < UNLIKELY

    @pytest.mark.parametrize("road", FAST)
    @pytest.mark.parametrize(("arms", "budget"), [(10**3, 310), (10**6, 300_100), (10**9, 299_990_000)])
    def test_crowds_have_the_binomial_law_cut_at_the_budget(self, road, arms, budget):
        """Smoothed ranks are exactly uniform; those behind the budget are spread over what is left."""
        seen = draw(FAST[road], case_of([[0.7, 0.3]], [arms], [budget], ONE_UNIT), 4000, seed=3)[:, 0, 1]
        assert seen.max() == budget
        law = stats.binom(arms, 0.3)
        below = law.cdf(seen - 1)
        ranks = below + np.random.default_rng(1).random(len(seen)) * np.where(seen < budget, law.pmf(seen), 1 - below)
        assert stats.kstest(ranks, "uniform").pvalue > UNLIKELY

    @pytest.mark.slow
    def test_crowds_with_a_nearly_empty_state_agree_with_one_by_one(self):
        """10^4 arms of which a state has 3: means within 5 deviations, and the same law by Kolmogorov-Smirnov."""
        case = case_of(SCORES, [3, 6000, 3997], [1500, 2200.5], BY_STATE)
        slow = draw(ROADS["one by one"], case, 60, seed=1)
        for name, road in FAST.items():
            seen = draw(road, case, 2000, seed=2)
            error = np.sqrt(slow.var(axis=0) / len(slow) + seen.var(axis=0) / len(seen))
            assert (np.abs(slow.mean(axis=0) - seen.mean(axis=0)) <= 5 * error + 1e-12).all(), name
            for cell in np.ndindex(3, 3):
                pair = slow[(slice(None), *cell)], seen[(slice(None), *cell)]
                assert stats.ks_2samp(*pair, method="asymp").pvalue > UNLIKELY, (name, cell)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", slow_after(1, range(4)))
    def test_large_crowds_agree_on_both_fast_roads(self, seed):
        rng = np.random.default_rng(seed)
        usage = rng.integers(0, 4, (4, 3, 2)) / 2
        usage[:, 0] = 0
        case = 1 - rng.random((4, 3)), np.array([50, 300, 10**5, 2]), np.array([3000.0, 4000.0]), usage
        halves, blocks = (draw(FAST[name], case, 3000, seed) for name in ("by halves", "compiled"))
        for cell in np.ndindex(4, 3):
            pair = halves[(slice(None), *cell)], blocks[(slice(None), *cell)]
            assert stats.ks_2samp(*pair, method="asymp").pvalue > UNLIKELY

    def test_hardly_any_priority_is_still_served(self):
        """A state whose priorities are next to nothing waits for all others, and then gets its actions."""
        case = case_of([[1e-12, 3e-12], [0.5, 0.5]], [40, 10**6], [10**7], ONE_UNIT)
        for road in FAST.values():
            seen = draw(road, case, 300, seed=4)
            assert (seen.sum(axis=2) == case[1]).all()
            assert abs(seen[:, 0, 1].mean() - 30) < 5 * np.sqrt(40 * 0.75 * 0.25 / 300)


@st.composite
def batches(draw_from):
    num_states, num_actions, num_resources = (draw_from(st.integers(1, most)) for most in (4, 4, 3))
    most = draw_from(st.sampled_from([2, 50, 10**6]))
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32)))
    num_episodes = 7
    scores = 1 - rng.random((num_episodes, num_states, num_actions))
    if draw_from(st.booleans()):
        scores **= 8  # far from even
    counts = rng.integers(0, most + 1, (num_episodes, num_states))
    spend = rng.random((num_episodes, num_resources)) * counts.sum(axis=1, keepdims=True)
    usage = rng.random((num_states, num_actions, num_resources)) * draw_from(st.sampled_from([0.1, 1.0, 10.0]))
    if draw_from(st.booleans()):
        usage, spend = np.round(usage), np.round(spend)
    usage[np.arange(num_states), rng.integers(0, num_actions, num_states)] = 0
    return scores, counts, spend, usage


class TestProperties:
    @given(batch=batches(), seed=st.integers(0, 10**6))
    def test_every_arm_has_one_action_and_budgets_hold(self, batch, seed):
        _, counts, spend, usage = batch
        roads = ROADS if counts.max() <= 50 else FAST
        for name, road in roads.items():
            allocation = road(*batch, seed=seed)
            used = np.einsum("esa,sak->ek", allocation, usage)
            assert (allocation >= 0).all() and (allocation.sum(axis=2) == counts).all(), name
            assert (used <= spend * (1 + 1e-12) + 1e-12).all(), name

    @given(batch=batches(), cuts=st.lists(st.integers(0, 7), max_size=3), seed=st.integers(0, 10**6))
    def test_a_batch_is_the_sum_of_its_parts(self, batch, cuts, seed):
        scores, counts, spend, usage = batch
        whole = fast(*batch, seed=seed)
        ends = sorted({0, 7, *cuts})
        parts = [
            sample_by_priority(scores[i:j], counts[i:j], spend[i:j], usage, np.uint64(seed), first=i)
            for i, j in pairwise(ends)
        ]
        assert np.array_equal(whole, np.concatenate(parts))

    @pytest.mark.parametrize("road", ROADS)
    def test_what_is_given_is_not_changed(self, road):
        case = CASES["usage by state"]
        before = [array.copy() for array in case]
        arrays = [array[None] for array in case[:3]]
        ROADS[road](*arrays, case[3], seed=0)
        assert all(np.array_equal(*pair) for pair in zip(case, before, strict=True))

    def test_threads_do_not_matter(self):
        """A batch large enough for all threads, beside the same episodes a few at a time, which one thread does."""
        scores, counts, spend, usage = CASES["usage by state"]
        many = [np.repeat(array[None], 3000, axis=0) for array in (scores, counts * 20, spend * 20)]
        whole = sample_by_priority(*many, usage, np.uint64(5))
        parts = [
            sample_by_priority(*(a[i : i + 100] for a in many), usage, np.uint64(5), i) for i in range(0, 3000, 100)
        ]
        assert np.array_equal(whole, np.concatenate(parts))

    def test_episodes_and_keys_are_independent(self):
        case = case_of([[0.5, 0.5]], [1000], [2000], ONE_UNIT)
        one, two = (draw(fast, case, 4000, seed)[:, 0, 1] for seed in (1, 2))
        for first, second in ((one, two), (one[:-1], one[1:])):
            assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))
