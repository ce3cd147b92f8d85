"""The best mixture of fixed vectors, against cvxpy and against its own support."""

import cvxpy as cp
import numpy as np
import pytest

from evenhand.errors import InfeasibleError, OutOfDomainError
from evenhand.model import AlphaFair, Maximin, RankWeighted, Welfare, parse_welfare
from evenhand.solvers import best_shares

from ..conftest import crossed, mentions

WELFARES = ["gini:2", "gini:1.1", "maximin", "maximin:0.1", "utilitarian", "alpha:0.5", "alpha:1", "alpha:2", "alpha:5"]


class Open:
    """A welfare that shows solvers no structure."""

    def __init__(self, inner: Welfare) -> None:
        self.inner, self.name = inner, "open"
        self.supergradient, self.check_domain = inner.supergradient, inner.check_domain

    def __call__(self, values, counts=None):
        return self.inner(values, counts)


def expression(values: cp.Expression, text: str) -> cp.Expression:
    """A welfare in cvxpy's words."""
    welfare = parse_welfare(text, values.size)
    if isinstance(welfare, AlphaFair):
        power = 1 - welfare.alpha
        return cp.geo_mean(values) if power == 0 else cp.pnorm(values, power) * values.size ** (-1 / power)
    assert isinstance(welfare, RankWeighted)
    weights = np.append(welfare.rank_weights(values.size), 0.0)
    steps = weights[:-1] - weights[1:]
    return sum(step * cp.sum_smallest(values, k + 1) for k, step in enumerate(steps) if step > 0)


def by_cvxpy(matrix: np.ndarray, text: str, counts: np.ndarray, floors=()) -> float:
    shares = cp.Variable(matrix.shape[1], nonneg=True)
    members = np.repeat(matrix[: len(counts)], counts, axis=0) @ shares
    constraints = [cp.sum(shares) == 1]
    if len(floors):
        constraints.append(matrix[len(counts) :] @ shares >= floors)
    return float(cp.Problem(cp.Maximize(expression(members, text)), constraints).solve(solver=cp.CLARABEL))


def check(matrix: np.ndarray, welfare: Welfare, counts: np.ndarray, best: float, floors=()) -> None:
    """Shares on the simplex that keep the floors, the best welfare, and a support that proves it."""
    shares, support = best_shares(matrix, welfare, counts, floors)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1.0)
    values, M = matrix @ shares, len(counts)
    assert (values[M:] >= np.asarray(floors) - 1e-8).all()
    slack = 1e-6 * max(1.0, abs(best))
    assert float(welfare(values[:M], counts)) == pytest.approx(best, abs=slack)
    bound = (support.weights @ matrix).max() - support.weights[M:] @ np.asarray(floors) + support.constant
    assert bound == pytest.approx(best, abs=slack)


@pytest.mark.parametrize(("seed", "text"), crossed(range(3), WELFARES))
def test_against_cvxpy(text: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, counts = rng.random((6, 5 + seed)) + 0.1, rng.integers(1, 4, 6)
    welfare = parse_welfare(text, int(counts.sum()))
    best = by_cvxpy(matrix, text, counts)
    check(matrix, welfare, counts, best)
    check(matrix, Open(welfare), counts, best)


@pytest.mark.parametrize("text", WELFARES)
def test_floors_against_cvxpy(text: str) -> None:
    rng = np.random.default_rng(7)
    matrix, counts = rng.random((7, 8)), np.array([1, 2, 1, 1, 3])
    floors = matrix[5:] @ rng.dirichlet(np.ones(8)) + 0.05
    check(matrix, parse_welfare(text, 8), counts, by_cvxpy(matrix, text, counts, floors), floors)


@pytest.mark.parametrize("text", ["gini:1.3", "maximin", "maximin:0.2", "utilitarian"])
def test_more_members_than_pieces(text: str) -> None:
    rng = np.random.default_rng(11)
    matrix, counts = rng.normal(size=(40, 12)), np.ones(40, dtype=np.int64)
    check(matrix, parse_welfare(text, 40), counts, by_cvxpy(matrix, text, counts))


@pytest.mark.parametrize("text", ["gini:1.3", "maximin", "maximin:0.2", "utilitarian", "alpha:2"])
def test_floors_and_types(text: str) -> None:
    rng = np.random.default_rng(12)
    matrix, counts = rng.random((9, 10)), np.array([3, 1, 2, 4, 1, 1, 2])
    floors = matrix[7:] @ rng.dirichlet(np.ones(10)) + 0.05
    check(matrix, parse_welfare(text, 14), counts, by_cvxpy(matrix, text, counts, floors), floors)


@pytest.mark.parametrize("text", ["gini:1.02", "gini:2", "maximin", "leximin", "alpha:2"])
def test_many_members_that_all_differ(text: str) -> None:
    """The support proves the shares: it is in the permutahedron of the weights, and no vector is better by it."""
    rng = np.random.default_rng(3)
    matrix = 10 + 3 * rng.random((300, 1)) + rng.normal(size=(300, 4)) @ rng.normal(size=(4, 40))
    welfare = parse_welfare(text, 300)
    shares, support = best_shares(matrix, welfare, np.ones(300, dtype=np.int64))
    reached = float(welfare(matrix @ shares))
    assert support.constant == 0
    assert (support.weights @ matrix).max() == pytest.approx(reached, rel=1e-8)
    if isinstance(welfare, RankWeighted):
        excess = np.cumsum(np.sort(support.weights)[::-1]) - np.cumsum(welfare.rank_weights(300))
        assert excess.max() <= 1e-12
        assert abs(excess[-1]) <= 1e-12
    else:
        np.testing.assert_allclose(support.weights, welfare.supergradient(matrix @ shares), rtol=1e-3)
        # It is a support everywhere: the welfare of no vector exceeds it.
        for size in (1e-3, 0.1, 1.0):
            values = (matrix @ shares)[:, None] * np.exp(size * rng.normal(size=(300, 50)))
            assert all(welfare(vector) <= support.weights @ vector * (1 + 1e-12) for vector in values.T)


def test_leximin_of_many_members_fixes_them_one_after_another() -> None:
    """Pairs of members that only their own two vectors tell apart, each pair better off than the one before."""
    pairs = 12
    matrix = np.repeat(np.arange(pairs, dtype=float), 2)[:, None] * 10 + np.zeros((2 * pairs, 2 * pairs))
    for pair in range(pairs):
        matrix[2 * pair, 2 * pair] += 4.0 + pair
        matrix[2 * pair + 1, 2 * pair + 1] += 2.0
    shares, _ = best_shares(matrix, parse_welfare("leximin", 2 * pairs), np.ones(2 * pairs, dtype=np.int64))
    # The poorest pair takes all shares, so that both of it have 4 x = 2 (1 - x).
    np.testing.assert_allclose((matrix @ shares)[:2], [4 / 3, 4 / 3], atol=1e-9)
    np.testing.assert_allclose((matrix @ shares)[2:], np.repeat(np.arange(1, pairs), 2) * 10.0, atol=1e-9)


def test_vectors_outside_the_domain_still_mix() -> None:
    """No vector alone is positive; half of each is."""
    matrix = np.array([[-1.0, 3.0], [5.0, -2.0]])
    for text in ("alpha:0.5", "alpha:1", "alpha:2"):
        check(matrix, parse_welfare(text, 2), np.ones(2, dtype=np.int64), by_cvxpy(matrix, text, np.array([1, 1])))


def test_no_mixture_in_the_domain_is_refused() -> None:
    with pytest.raises(OutOfDomainError, check=mentions("-0.5")):
        best_shares(np.array([[-1.0, 0.0], [0.0, -1.0]]), AlphaFair(1.0), np.ones(2, dtype=np.int64))


def test_floors_out_of_reach_are_refused() -> None:
    with pytest.raises(InfeasibleError, check=mentions(0.25)):
        best_shares(np.array([[1.0, 2.0], [0.25, 0.5]]), Maximin(), np.ones(1, dtype=np.int64), [0.75])


def test_leximin_of_fixed_vectors() -> None:
    """The first has 1 whatever is done, the second and third share, and the fourth decides among what is left."""
    matrix = np.array([[1.0, 1.0, 1.0], [2.0, 4.0, 2.0], [4.0, 2.0, 4.0], [9.0, 9.0, 8.0]])
    shares, support = best_shares(matrix, parse_welfare("leximin", 4), np.ones(4, dtype=np.int64))
    np.testing.assert_allclose(matrix @ shares, [1.0, 3.0, 3.0, 9.0], atol=1e-7)
    assert (support.weights @ matrix).max() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(4))
def test_leximin_against_a_steep_gini(seed: int) -> None:
    """Leximin is the limit of the Gini welfare as the ratio grows."""
    rng = np.random.default_rng(seed)
    matrix, counts = rng.random((4, 5)), np.ones(4, dtype=np.int64)
    lexi, _ = best_shares(matrix, parse_welfare("leximin", 4), counts)
    steep, _ = best_shares(matrix, parse_welfare("gini:300", 4), counts)
    np.testing.assert_allclose(np.sort(matrix @ lexi), np.sort(matrix @ steep), atol=1e-6)


LEXIMIN_OF_TWO = parse_welfare("leximin", 2)


@pytest.mark.parametrize(("error", "second"), [(0.0, 12.0), (0.002, 15.2), (0.05, 20.0)])
def test_leximin_of_estimates_does_not_let_chance_decide(error: float, second: float) -> None:
    """The first member is at 10 or 10.01; that much, known to within twice an error, decides over 8 of the second."""
    matrix = np.array([[10.0, 10.01], [20.0, 12.0]])
    shares, _ = best_shares(matrix, LEXIMIN_OF_TWO, np.ones(2, dtype=np.int64), error=lambda shares, weights: error)
    assert (matrix @ shares)[1] == pytest.approx(second, abs=1e-4)


def test_one_that_hardly_holds_the_level_down_is_not_fixed() -> None:
    """Both have 10.00999 at best, and a hundredth of the first buys ten of the second."""
    matrix = np.array([[10.0, 10.01], [20.0, 10.0]])
    for error, second in ((0.0, 10.00999), (0.02, 20.0)):
        shares, _ = best_shares(matrix, LEXIMIN_OF_TWO, np.ones(2, dtype=np.int64), error=lambda *given, by=error: by)
        assert (matrix @ shares)[1] == pytest.approx(second, abs=1e-4)


def test_doubt_is_about_those_that_hold_the_level_down() -> None:
    asked = []

    def error_of_sum(shares: np.ndarray, weights: np.ndarray) -> float:
        asked.append((shares, weights))
        return 0.05

    best_shares(np.array([[10.0, 10.01], [20.0, 12.0]]), LEXIMIN_OF_TWO, np.ones(2, dtype=np.int64), error=error_of_sum)
    np.testing.assert_allclose([weights for _, weights in asked], np.eye(2), atol=1e-9)
    np.testing.assert_allclose([shares for shares, _ in asked], [[0, 1], [1, 0]], atol=1e-9)


def test_leximin_gives_up_no_more_than_is_in_doubt() -> None:
    """At the first rank that differs by more than the doubt, twice its errors, the doubtful mixture is better."""
    better = 0
    for seed in range(12):
        rng, error = np.random.default_rng(seed), 0.01
        matrix, counts = rng.random((5, 7)), np.ones(5, dtype=np.int64)
        sure, _ = best_shares(matrix, parse_welfare("leximin", 5), counts)
        unsure, _ = best_shares(matrix, parse_welfare("leximin", 5), counts, error=lambda shares, weights: 0.005)
        apart = np.sort(matrix @ unsure) - np.sort(matrix @ sure)
        assert apart[0] >= -1.01 * error
        first = next((gain for gain in apart if abs(gain) > 1.01 * error), 0.0)
        assert first >= 0
        better += first > 0
    assert better >= 8


def test_leximin_of_many_estimates_ends() -> None:
    """As many stages as members would be too many: where they are fixed in part, the others are nearly told."""
    rng = np.random.default_rng(3)
    matrix = 10 + 3 * rng.random((300, 1)) + rng.normal(size=(300, 4)) @ rng.normal(size=(4, 40))
    ones = np.ones(300, dtype=np.int64)
    sure, _ = best_shares(matrix, parse_welfare("leximin", 300), ones)
    unsure, _ = best_shares(matrix, parse_welfare("leximin", 300), ones, error=lambda shares, weights: 0.01)
    assert (matrix @ unsure).min() >= (matrix @ sure).min() - 0.0201
