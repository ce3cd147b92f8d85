"""Crowds move by binomial draws: against SciPy's laws, the paper's Algorithm 2, and the exact law on counts."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from evenhand.kernels import count_step, draw_keys, step_crowds
from evenhand.solvers import Counts

from ..conftest import PROBLEMS, crossed

TINY, HUGE = 1e-9, 10**8
BINOMIALS = [
    (1, 0.5),
    (2, 1e-3),
    (3, 0.999),
    (19, 0.5),  # the last by inversion
    (20, 0.5),  # the first by rejection
    (21, 0.48),
    (50, 0.2),
    (50, 0.8),
    (1000, 0.00999),
    (1000, 0.01),
    (1000, 0.995),
    (10**6, 3e-6),
    (10**6, 0.3),
    (HUGE, TINY),
    (HUGE, 1e-7),
    (HUGE, 0.5),
    (HUGE, 0.9999),
    (HUGE, 1 - 1e-8),
    (10**9, 0.37),
]


def draws_of(n, p, size, seed):
    keys = draw_keys(np.random.default_rng(seed), size)
    return np.array([count_step.binomial(n, p, key, np.uint64(0)) for key in keys])


def smoothed_ranks(draws, n, p, seed):
    """Exactly uniform if the draws are binomial: the distribution function, with each jump filled at random."""
    law = stats.binom(n, p)
    return law.cdf(draws - 1) + np.random.default_rng(seed).random(len(draws)) * law.pmf(draws)


class TestBinomial:
    @pytest.mark.parametrize(("n", "p"), BINOMIALS)
    def test_has_the_binomial_law(self, n, p):
        for seed in (0, 1):
            draws = draws_of(n, p, 10_000, seed)
            assert draws.min() >= 0 and draws.max() <= n
            assert stats.kstest(smoothed_ranks(draws, n, p, seed), "uniform").pvalue > 1e-4

    @pytest.mark.parametrize(("n", "p"), [(7, 0.3), (40, 0.5), (45, 0.25), (60, 0.8)])
    def test_hits_every_number_as_often_as_it_should(self, n, p, chi_square):
        """The largest body of draws, at both methods and near their border."""
        draws = draws_of(n, p, 60_000, 5)
        assert chi_square(np.bincount(draws, minlength=n + 1), stats.binom(n, p).pmf(np.arange(n + 1))) > 1e-4

    def test_certain_cases(self):
        for n, p, expected in ((0, 0.5, 0), (5, 0.0, 0), (5, 1.0, 5), (HUGE, -0.0, 0), (5, 1.0 + 1e-16, 5)):
            assert set(draws_of(n, p, 20, 0)) == {expected}

    def test_the_same_place_gives_the_same_draw(self):
        assert np.array_equal(draws_of(1000, 0.3, 50, 3), draws_of(1000, 0.3, 50, 3))
        assert not np.array_equal(draws_of(1000, 0.3, 50, 3), draws_of(1000, 0.3, 50, 4))


def algorithm_2(transitions, allocation, rng):
    """The paper's simulation of the transition dynamics: one arm after the other."""
    counts = np.zeros(allocation.shape[:2], dtype=np.int64)
    for kind, state, action in np.ndindex(allocation.shape):
        for _ in range(allocation[kind, state, action]):
            counts[kind, rng.choice(transitions.shape[-1], p=transitions[kind, state, action])] += 1
    return counts


def crowd_of(problem, seed):
    """A pair of the count space, with the exact law of the next counts."""
    space = Counts(problem)
    pair = int(np.random.default_rng(seed).integers(space.mdp.num_pairs))
    law = space.mdp.transitions[[pair]].toarray()[0]
    return space, space.allocations[pair], law


class TestStep:
    @pytest.mark.parametrize(("small_problem", "seed"), crossed(PROBLEMS, range(3)), indirect=["small_problem"])
    def test_a_step_and_algorithm_2_have_the_exact_law(self, small_problem, chi_square, seed):
        space, allocation, law = crowd_of(small_problem, seed)
        table = small_problem.types.transitions
        many = np.repeat(allocation[None], 10_000, axis=0)
        rng = np.random.default_rng(seed)
        slow = np.stack([algorithm_2(table, allocation, rng) for _ in range(300)])
        for counts in (step_crowds(table, many, np.uint64(seed), 0), slow):
            assert (counts.sum(axis=-1) == small_problem.type_counts).all()
            assert chi_square(np.bincount(space.index(counts), minlength=len(law)), law) > 1e-4

    def test_a_step_is_the_sum_of_its_cells(self, problems):
        """What one cell does depends on no other: policies that allocate a cell alike see it move alike."""
        problem = problems["two types"]()
        rng = np.random.default_rng(0)
        allocation = rng.integers(0, 500, (4, *problem.types.valid.shape)) * problem.types.valid
        whole = step_crowds(problem.types.transitions, allocation, np.uint64(3), 0)
        parts = np.zeros_like(whole)
        for cell in np.argwhere(problem.types.valid):
            alone = np.zeros_like(allocation)
            alone[:, *cell] = allocation[:, *cell]
            parts += step_crowds(problem.types.transitions, alone, np.uint64(3), 0)
        assert np.array_equal(whole, parts)

    def test_a_batch_is_the_sum_of_its_parts(self, problems):
        problem = problems["two types"]()
        allocation = np.random.default_rng(1).integers(0, 50, (9, *problem.types.valid.shape)) * problem.types.valid
        whole = step_crowds(problem.types.transitions, allocation, np.uint64(3), 0)
        parts = [step_crowds(problem.types.transitions, allocation[i : i + 3], np.uint64(3), i) for i in (0, 3, 6)]
        assert np.array_equal(whole, np.concatenate(parts))

    def test_episodes_and_steps_are_independent(self, problems):
        problem = problems["machines"]()
        allocation = np.zeros((2000, 1, 3, 2), dtype=np.int64)
        allocation[:, 0, 1, 0] = 100
        steps = [step_crowds(problem.types.transitions, allocation, np.uint64(k), 0)[:, 0, 1] for k in (1, 2)]
        for first, second in ((steps[0], steps[1]), (steps[0][:-1], steps[0][1:])):
            assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))

    def test_a_billion_arms_keep_together(self, problems):
        problem = problems["machines"]()
        allocation = np.zeros((3, 1, 3, 2), dtype=np.int64)
        allocation[:, 0, 0, 0], allocation[:, 0, 1, 1] = 7 * 10**8, 3 * 10**8
        counts = step_crowds(problem.types.transitions, allocation, np.uint64(2), 0)
        assert (counts.sum(axis=-1) == 10**9).all()
        spread = np.sqrt(10**9 * 0.8 * 0.2)
        assert (np.abs(counts[:, 0, 0] - 8 * 10**8) < 5 * spread).all()

    def test_no_arm_is_lost_when_a_row_sums_to_1_but_for_rounding(self):
        """A model's rows may be off by 1e-8; closed sums follow all arms all the same."""
        rows = np.array([[[[0.5, 0.5 - 9e-9]], [[1 - 9e-9, 0.0]]]])
        allocation = np.full((4, 1, 2, 1), 10**9)
        counts = step_crowds(rows, allocation, np.uint64(1), 0)
        assert (counts.sum(axis=-1) == 2 * 10**9).all()

    def test_impossible_moves_never_happen(self, problems):
        problem = problems["machines"]()
        allocation = np.full((50, 1, 3, 2), 0, dtype=np.int64)
        allocation[:, 0, 2, 0] = 10**6
        counts = step_crowds(problem.types.transitions, allocation, np.uint64(2), 0)
        assert Counter(map(tuple, counts[:, 0].tolist())) == {(0, 0, 10**6): 50}
