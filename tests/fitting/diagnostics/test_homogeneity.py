"""The test of homogeneity against scipy, and its p-values under the null."""

import numpy as np
import pytest
from scipy import stats

from evenhand.fitting.diagnostics.homogeneity import HomogeneityTest, deal, drawn_ratios, holm, homogeneity, shift


def random_counts(seed: int, shape: tuple[int, int, int], size: int, concentration: float = 1.0) -> np.ndarray:
    """Under the null: one law a context, groups of about `size`."""
    rng = np.random.default_rng(seed)
    groups, contexts, outcomes = shape
    laws = rng.dirichlet(np.full(outcomes, concentration), size=contexts)
    return np.stack([[rng.multinomial(rng.poisson(size), law) for law in laws] for _ in range(groups)])


def test_statistic_and_degrees_are_those_of_scipy_summed_over_contexts() -> None:
    counts = random_counts(0, (3, 4, 5), 400, 5.0)
    counts[:, 2, 1] = 0  # an outcome that is never seen there
    counts[1, 3] = 0  # a group that is never there
    statistic, degrees = 0.0, 0
    for context in range(4):
        table = counts[:, context]
        table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        found = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
        statistic, degrees = statistic + found.statistic, degrees + found.dof
    test = homogeneity(counts, np.random.default_rng(0))
    assert test.statistic == pytest.approx(statistic, rel=1e-12)
    assert (test.degrees, test.draws, test.is_rough) == (degrees, 0, False)
    assert test.p_value == pytest.approx(stats.chi2.sf(statistic, degrees), rel=1e-9)
    assert test.gain == pytest.approx((statistic - degrees) / (2 * counts.sum()), rel=1e-9)


def test_small_counts_are_compared_with_drawn_tables_as_fisher_does() -> None:
    counts = np.array([[[3, 1]], [[1, 5]]])
    test = homogeneity(counts, np.random.default_rng(1))
    # G orders these tables by their distance from the null, and so does the probability here.
    ratios, probabilities = [], []
    for first in range(5):
        table = np.array([[[first, 4 - first]], [[4 - first, 2 + first]]])
        ratios.append(homogeneity(table, np.random.default_rng(0), most_work=0).statistic)
        probabilities.append(stats.hypergeom(10, 4, 4).pmf(first))
    exact = sum(p for ratio, p in zip(ratios, probabilities, strict=True) if ratio >= test.statistic - 1e-9)
    assert test.draws == 999
    assert test.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact / 999))


def test_tables_are_dealt_with_their_margins_and_the_right_mean() -> None:
    left = np.array([[5, 3, 2], [1, 0, 6]])
    dealt = deal(np.broadcast_to(left, (4000, 2, 3)).copy(), np.array([4, 3]), np.random.default_rng(2))
    assert (dealt.sum(axis=2) == [4, 3]).all()
    assert (dealt <= left).all()
    assert np.allclose(dealt[:, 0].mean(axis=0), left[0] * 4 / 10, atol=0.06)
    assert np.allclose(dealt[:, 1].mean(axis=0), left[1] * 3 / 7, atol=0.06)


def test_p_values_are_uniform_under_the_null_by_either_road() -> None:
    found: dict[bool, list[float]] = {True: [], False: []}
    gains = []
    for seed in range(250):
        for size in (6, 150):
            test = homogeneity(random_counts(seed, (2, 3, 3), size, 3.0), np.random.default_rng(seed))
            found[test.draws > 0].append(test.p_value)
            gains.append(test.gain * 2 * test.number / np.sqrt(2 * test.degrees))
    for values in found.values():
        assert len(values) > 200
        assert stats.kstest(values, "uniform").pvalue > 1e-3
    assert abs(np.mean(gains)) < 4 / np.sqrt(len(gains))


def test_large_sparse_tables_go_by_the_mean_and_variance_of_a_few_draws() -> None:
    values, naive = [], []
    for seed in range(60):
        counts = random_counts(seed, (2, 400, 3), 3)
        test = homogeneity(counts, np.random.default_rng(seed), most_work=30 * 2 * 400 * 3)
        assert 19 <= test.draws < 60
        values.append(test.p_value)
        naive.append(stats.chi2.sf(test.statistic, test.degrees))
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    assert stats.kstest(naive, "uniform").pvalue < 1e-6  # what the draws are for


def test_a_table_too_large_to_draw_is_marked_rough() -> None:
    assert homogeneity(np.array([[[3, 1]], [[1, 5]]]), np.random.default_rng(0), most_work=10).is_rough


def test_a_difference_is_found_and_measured_in_nats() -> None:
    rng, laws = np.random.default_rng(3), np.array([[0.5, 0.5], [0.3, 0.7]])
    test = homogeneity(np.stack([[rng.multinomial(20_000, law)] for law in laws]), rng)
    mean = laws.mean(axis=0)
    divergence = np.mean([(law * np.log(law / mean)).sum() for law in laws])
    assert test.p_value < 1e-10
    assert test.gain == pytest.approx(divergence, rel=0.1)


def test_nothing_to_compare_is_no_test() -> None:
    alone = np.zeros((2, 2, 3), dtype=np.int64)
    alone[0, 0], alone[1, 1] = [1, 2, 3], [4, 5, 6]
    test = homogeneity(alone, np.random.default_rng(0))
    assert (test.degrees, test.p_value, test.gain) == (0, 1.0, 0.0)


def test_the_shift_is_that_of_drawn_tables() -> None:
    counts = random_counts(5, (2, 40, 3), 12, 10.0)
    drawn = drawn_ratios(counts, 3000, np.random.default_rng(0))
    assert drawn.mean() - homogeneity(counts, np.random.default_rng(0), most_work=0).degrees == pytest.approx(
        shift(counts), rel=0.4
    )


def test_holm_as_in_his_paper() -> None:
    def made(p: float, degrees: int = 1) -> HomogeneityTest:
        return HomogeneityTest(1.0, degrees, p, p, 0.0, 10, 0, False)

    adjusted = [test.adjusted for test in holm([made(0.03), made(0.01), made(0.9, 0), made(0.04)])]
    assert adjusted == pytest.approx([0.06, 0.03, 0.9, 0.06])
