"""Every welfare is concave, symmetric, monotone and constant-invariant; and what each one is known to be."""

import math
import pickle
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenhand.errors import InvalidInputError, OutOfDomainError, TooLargeError, UnknownNameError
from evenhand.model import (
    AlphaFair,
    Gini,
    Leximin,
    Maximin,
    Utilitarian,
    Welfare,
    as_welfare,
    parse_welfare,
    register_welfare,
    weight_of_worst,
)

from ..conftest import mentions

MAKERS = {
    "gini ratio 2": lambda n: Gini.geometric(n, 2),
    "gini ratio 1": lambda n: Gini.geometric(n, 1),
    "gini ratio 1 + tiny": lambda n: Gini.geometric(n, 1 + 1e-12),
    "gini ratio 1e300": lambda n: Gini.geometric(n, 1e300),
    "gini linear weights": lambda n: Gini(np.arange(n, 0, -1) / (n * (n + 1) / 2)),
    "gini two levels": lambda n: Gini([1.0] if n == 1 else [0.5, 0.5, *[0.0] * (n - 2)]),
    "gini half 0.75": lambda n: Gini.bottom_half(),
    "gini half 0.5": lambda n: Gini.bottom_half(0.5),
    "gini half nearly 1": lambda n: Gini.bottom_half(1 - 1e-15),
    "utilitarian": lambda n: Utilitarian(),
    "maximin": lambda n: Maximin(),
    "maximin:0.01": lambda n: Maximin(0.01),
    "maximin:0": lambda n: Maximin(0),
    "leximin": lambda n: Leximin(),
    "alpha 0": lambda n: AlphaFair(0),
    "alpha 0.5": lambda n: AlphaFair(0.5),
    "alpha 1 - tiny": lambda n: AlphaFair(1 - 1e-9),
    "nash": lambda n: AlphaFair(1),
    "alpha 1 + tiny": lambda n: AlphaFair(1 + 1e-9),
    "alpha 2": lambda n: AlphaFair(2),
    "alpha 500": lambda n: AlphaFair(500),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

SIZES = st.integers(1, 7)


def vectors(n):
    """Positive values, often tied, so that every welfare is defined and ranks are ambiguous."""
    tied = st.sampled_from([0.5, 1.0, 3.0])
    return arrays(np.float64, n, elements=tied | st.floats(0.01, 100.0))


SEVERAL = SIZES.flatmap(vectors)
PAIRS = SIZES.flatmap(lambda n: st.tuples(vectors(n), vectors(n)))


def near(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def at_least(x, y):
    assert x >= y - 1e-9 * max(1.0, abs(x), abs(y))


class TestEveryWelfare:
    @EVERY
    def test_fulfils_the_protocol(self, make):
        assert isinstance(make(3), Welfare)
        assert as_welfare(make(3), 3) == make(3)

    @EVERY
    @given(PAIRS, st.floats(0, 1))
    def test_is_concave(self, make, pair, t):
        u, v = pair
        welfare = make(len(u))
        at_least(welfare(t * u + (1 - t) * v), t * welfare(u) + (1 - t) * welfare(v))

    @EVERY
    @given(SEVERAL, st.randoms(use_true_random=False))
    def test_ignores_the_order_of_arms(self, make, values, random):
        order = list(range(len(values)))
        random.shuffle(order)
        welfare = make(len(values))
        near(welfare(values[order]), welfare(values))
        near(welfare.supergradient(values[order]), welfare.supergradient(values)[order])

    @EVERY
    @given(st.integers(1, 50), st.floats(1e-6, 1e6))
    def test_leaves_a_constant_vector_unchanged(self, make, n, value):
        assert make(n)(np.full(n, value)) == value

    @EVERY
    @given(PAIRS)
    def test_is_monotone(self, make, pair):
        values, gains = pair
        welfare = make(len(values))
        at_least(welfare(values + gains), welfare(values))

    @EVERY
    @given(st.integers(2, 7).flatmap(vectors), st.floats(0, 0.5), st.data())
    def test_never_falls_with_a_transfer_to_a_poorer_arm(self, make, values, share, data):
        poor, rich = data.draw(st.permutations(range(len(values))))[:2]
        if values[poor] > values[rich]:
            poor, rich = rich, poor
        after = values.copy()
        amount = share * (values[rich] - values[poor])
        after[poor] += amount
        after[rich] -= amount
        welfare = make(len(values))
        at_least(welfare(after), welfare(values))

    @EVERY
    @given(PAIRS)
    def test_supergradient_bounds_it_from_above(self, make, pair):
        u, v = pair
        welfare = make(len(u))
        slope = welfare.supergradient(v)
        assert (slope >= 0).all()
        at_least(welfare(v) + slope @ (u - v), welfare(u))

    @EVERY
    @given(SEVERAL)
    def test_is_homogeneous_so_the_supergradient_gives_it_back(self, make, values):
        welfare = make(len(values))
        near(welfare.supergradient(values) @ values, welfare(values))

    @EVERY
    @given(SEVERAL)
    def test_equal_arms_get_equal_weights(self, make, values):
        slope = make(len(values)).supergradient(values)
        for value in set(values):
            near(slope[values == value], slope[values == value][0])

    @EVERY
    @given(SEVERAL, st.data())
    def test_counts_stand_for_repeated_arms(self, make, values, data):
        counts = data.draw(arrays(np.int64, len(values), elements=st.integers(0, 4)))
        assume(counts.sum() > 0)
        repeated = np.repeat(values, counts)
        welfare = make(len(repeated))
        near(welfare(values, counts), welfare(repeated))
        whole = np.bincount(
            np.repeat(np.arange(len(counts)), counts), welfare.supergradient(repeated), minlength=len(counts)
        )
        near(welfare.supergradient(values, counts), whole)

    @EVERY
    @given(SIZES.flatmap(lambda n: arrays(np.float64, (2, 3, n), elements=st.floats(0.01, 100.0))))
    def test_a_batch_is_a_loop(self, make, values):
        n = values.shape[-1]
        welfare, counts = make(n), np.ones(n, dtype=int)
        assert welfare(values).shape == (2, 3)
        for index in np.ndindex(2, 3):
            near(welfare(values)[index], welfare(values[index]))
            near(welfare(values, counts)[index], welfare(values[index], counts))
            near(welfare.supergradient(values)[index], welfare.supergradient(values[index]))

    @EVERY
    def test_batches_with_counts_are_loops(self, make):
        values = np.array([[1.0, 2.0, 3.0], [5.0, 0.5, 5.0]])
        counts = [2, 0, 4]
        welfare = make(6)
        near(welfare(values, counts), [welfare(row, counts) for row in values])
        near(welfare.supergradient(values, counts), [welfare.supergradient(row, counts) for row in values])

    @EVERY
    @pytest.mark.parametrize("n", [1, 2, 5])
    def test_its_name_reads_back(self, make, n):
        welfare = make(n)
        again = parse_welfare(welfare.name, n)
        assert again == welfare
        assert hash(again) == hash(welfare)
        assert pickle.loads(pickle.dumps(welfare)) == welfare  # noqa: S301

    @EVERY
    def test_returns_a_float_for_one_vector_and_nothing_for_an_empty_batch(self, make):
        assert type(make(2)([1, 2])) is float
        assert make(2)(np.empty((0, 2))).shape == (0,)
        assert make(2).supergradient(np.empty((0, 2))).shape == (0, 2)

    @EVERY
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_refuses_values_that_are_not_numbers(self, make, bad):
        for ask in (make(2), make(2).supergradient, make(2).check_domain):
            with pytest.raises(InvalidInputError, check=mentions("values", str(bad))):
                ask([1.0, bad])

    @EVERY
    @pytest.mark.parametrize(
        ("values", "counts", "message"),
        [
            (1.0, None, "at least one arm"),
            ([], None, "at least one arm"),
            (["a", "b"], None, "expected numbers"),
            ([[1.0, 2.0], [3.0]], None, "different lengths"),
            ([1.0, 2.0], [1], r"type=2.*got \(1,\)"),
            ([1.0, 2.0], [1.0, 1.0], "whole numbers"),
            ([1.0, 2.0], [3, -1], "negative, got -1"),
            ([1.0, 2.0], [0, 0], "got 0"),
            ([1.0, 2.0], [2**62, 2**62], "in total"),
        ],
    )
    def test_refuses_what_has_no_sense(self, make, values, counts, message):
        for ask in (make(2), make(2).supergradient):
            with pytest.raises(InvalidInputError, match=message):
                ask(values, counts)


STRICT = {name: MAKERS[name] for name in ("gini ratio 2", "gini linear weights", "alpha 0.5", "nash", "alpha 2")}


@pytest.mark.parametrize("make", STRICT.values(), ids=STRICT.keys())
@given(arrays(np.float64, 5, elements=st.floats(1, 10)), st.floats(0.05, 0.5))
def test_a_transfer_to_a_poorer_arm_strictly_helps(make, values, share):
    poor, rich = values.argmin(), values.argmax()
    assume(values[rich] - values[poor] > 0.1)
    after = values.copy()
    after[[poor, rich]] += share * (values[rich] - values[poor]) * np.array([1, -1])
    assert make(5)(after) > make(5)(values)


class TestGini:
    def test_follows_its_definition(self):
        near(Gini.geometric(3).weights, np.array([4, 2, 1]) / 7)
        near(Gini([0.5, 0.3, 0.2])([3.0, 1.0, 2.0]), 0.5 * 1 + 0.3 * 2 + 0.2 * 3)
        near(Gini([0.5, 0.3, 0.2]).supergradient([3.0, 1.0, 2.0]), [0.2, 0.5, 0.3])
        near(Gini([0.5, 0.3, 0.2]).supergradient([2.0, 1.0, 2.0]), [0.25, 0.5, 0.25])

    @given(st.integers(1, 12), st.floats(1, 50))
    def test_geometric_weights_fall_by_the_ratio(self, n, ratio):
        raw = np.array([ratio ** -float(k) for k in range(n)])
        near(Gini.geometric(n, ratio).weights, raw / raw.sum())

    @given(SEVERAL)
    def test_ratio_one_is_utilitarian_and_a_mean(self, values):
        near(Gini.geometric(len(values), 1)(values), values.mean())
        near(Utilitarian()(values), values.mean())

    def test_is_equal_by_meaning(self):
        assert Gini([4 / 7, 2 / 7, 1 / 7]) == Gini.geometric(3, 2)
        assert hash(Gini([4 / 7, 2 / 7, 1 / 7])) == hash(Gini.geometric(3, 2))
        assert Gini([1.0]) == Gini.geometric(1, 7)
        assert Gini.geometric(3, 2) != Gini.geometric(3, 3)
        assert Gini.geometric(3, 2) != Gini.geometric(4, 2)
        assert Gini([0.6, 0.4]) != Gini([0.5, 0.5])
        assert Gini.geometric(2, 1) != Utilitarian()

    def test_a_billion_arms_cost_nothing(self):
        n = 10**9
        welfare = Gini.geometric(n, 2)
        near(welfare([3.0, 1.0, 2.0], [n - 3, 1, 2]), 0.5 * 1 + 0.375 * 2 + 0.125 * 3)
        near(welfare.supergradient([3.0, 1.0, 2.0], [n - 3, 1, 2]), [0.125, 0.5, 0.375])
        assert welfare.supergradient([1.0, 2.0], [n // 2, n // 2])[1] == 0

    def test_a_billion_almost_equal_weights_keep_their_digits(self):
        n = 10**9
        ratio = 1 + 1e-9
        worse_half = math.expm1(-0.5) / math.expm1(-1.0)
        mass = Gini.geometric(n, ratio).supergradient([1.0, 2.0], [n // 2, n // 2])
        np.testing.assert_allclose(mass, [worse_half, 1 - worse_half], rtol=1e-6)  # log(ratio) is not quite 1e-9
        np.testing.assert_allclose(mass.sum(), 1, rtol=1e-12)

    def test_other_welfares_take_a_billion_arms_too(self):
        n = 10**9
        values, counts = [1.0, 4.0], [n // 4, n - n // 4]
        near(Utilitarian()(values, counts), 3.25)
        near(Maximin(1e-9)(values, counts), 1 + 3 * 0.75e9 * 1e-9 / (1 + 1e-9 * (n - 1)))
        near(AlphaFair(2)(values, counts), 1 / (0.25 + 0.75 / 4))
        assert Maximin()(values, counts) == 1.0

    def test_one_poor_arm_of_a_billion_keeps_its_digits(self):
        n = 10**9
        expected = math.sqrt(n / (1 + (n - 1) * 1e-24))
        np.testing.assert_allclose(AlphaFair(3)([1.0, 1e12], [1, n - 1]), expected, rtol=1e-12)

    def test_weights_that_do_not_fit_are_refused(self):
        with pytest.raises(TooLargeError, check=mentions("counts")):
            _ = Gini.geometric(10**15).weights

    def test_weights_are_read_only(self):
        with pytest.raises(ValueError, check=mentions("read-only")):
            Gini.geometric(3).weights[0] = 1

    def test_slightly_off_weights_are_normalised(self):
        welfare = Gini([0.333333334, 0.333333333, 0.333333332])
        assert abs(welfare.weights.sum() - 1) < 1e-15
        assert parse_welfare(welfare.name, 3) == welfare

    def test_names_every_fault_of_its_weights(self):
        with pytest.raises(InvalidInputError) as caught:
            Gini([0.5, 0.6, -0.2])
        message = str(caught.value)
        assert mentions("weights[1]", 0.6)(message)
        assert mentions("weights[2]", "-0.2")(message)
        assert mentions(0.9, 1)(message)

    @pytest.mark.parametrize("weights", [[], [math.nan, 0.5], ["a"], 1.0, [[0.5, 0.5]]])
    def test_refuses_what_are_not_weights(self, weights):
        with pytest.raises(InvalidInputError, check=mentions("weights")):
            Gini(weights)

    @pytest.mark.parametrize("ratio", [0.5, 0, -1, math.nan, math.inf, "2", True, 10**400])
    def test_refuses_a_ratio_below_one(self, ratio):
        with pytest.raises(InvalidInputError, check=mentions("ratio", 1)):
            Gini.geometric(3, ratio)

    @pytest.mark.parametrize("num_arms", [0, -1, 2.0, True])
    def test_refuses_a_senseless_number_of_arms(self, num_arms):
        with pytest.raises(InvalidInputError, check=mentions("num_arms")):
            Gini.geometric(num_arms)

    def test_is_for_its_number_of_arms_only(self):
        for welfare in (Gini.geometric(3), Gini([0.5, 0.3, 0.2])):
            for ask in (welfare, welfare.supergradient):
                with pytest.raises(InvalidInputError, check=mentions("3 arms", 4)):
                    ask([1.0, 2.0, 3.0, 4.0])
                with pytest.raises(InvalidInputError, check=mentions("3 arms", 5)):
                    ask([1.0, 2.0, 3.0], [1, 1, 3])
            with pytest.raises(InvalidInputError, check=mentions("3 arms", 2)):
                as_welfare(welfare, 2)


class TestMaximin:
    @given(SEVERAL)
    def test_is_the_worst_arm(self, values):
        assert Maximin()(values) == Leximin()(values) == Maximin(0)(values) == values.min()

    @given(SEVERAL, st.floats(0, 1))
    def test_regularised_follows_the_paper(self, values, epsilon):
        raw = np.where(np.arange(len(values)) == 0, 1.0, epsilon)
        near(Maximin(epsilon)(values), np.sort(values) @ raw / raw.sum())

    @pytest.mark.parametrize("epsilon", [-0.1, 1.5, math.nan, "x"])
    def test_epsilon_is_a_fraction(self, epsilon):
        with pytest.raises(InvalidInputError, check=mentions("epsilon")):
            Maximin(epsilon)


WHOLE_PAIRS = st.integers(1, 5).flatmap(
    lambda n: st.tuples(*[arrays(np.float64, n, elements=st.integers(0, 4).map(float))] * 2)
)


class TestLeximin:
    @given(WHOLE_PAIRS)
    @example((np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 4.0])))
    def test_compares_as_sorted_lists(self, pair):
        u, v = (sorted(vector.tolist()) for vector in pair)
        assert Leximin().compare(*pair) == (u > v) - (u < v)
        assert (list(Leximin().key(pair[0])) > list(Leximin().key(pair[1]))) == (u > v)

    @given(WHOLE_PAIRS)
    def test_is_the_limit_of_gini(self, pair):
        u, v = pair
        assume(sorted(u) != sorted(v))
        welfare = Gini.geometric(len(u), 1000)
        assert np.sign(welfare(u) - welfare(v)) == Leximin().compare(u, v)

    def test_tolerance_makes_near_values_equal(self):
        u, v = [1.0, 5.0], [1.001, 4.0]
        assert Leximin().compare(u, v) == -1
        assert Leximin().compare(u, v, tolerance=0.01) == 1
        assert Leximin().compare(u, v, tolerance=2) == 0
        with pytest.raises(InvalidInputError, check=mentions("tolerance")):
            Leximin().compare(u, v, tolerance=-1)

    def test_refuses_vectors_that_differ_in_length(self):
        with pytest.raises(InvalidInputError, check=mentions(2, 3)):
            Leximin().compare([1.0, 2.0], [1.0, 2.0, 3.0])


def exact_certainty_equivalent(values, alpha):
    """With 60 digits."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -(10**9), 10**9
        exact, beta = [Decimal(float(v)) for v in values], 1 - Decimal(float(alpha))
        if beta == 0:
            return float((sum(v.ln() for v in exact) / len(exact)).exp())
        mean = sum((v**beta if v else Decimal(0)) for v in exact) / len(exact)
        return float(mean ** (1 / beta)) if mean else 0.0


class TestAlphaFair:
    @pytest.mark.parametrize("alpha", [1e-9, 0.3, 0.999, 1 - 1e-12, 1, 1 + 1e-9, 1 + 1e-6, 1.5, 3, 20, 500])
    @given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6))
    def test_agrees_with_sixty_digits(self, alpha, values):
        expected = exact_certainty_equivalent(values, alpha)
        np.testing.assert_allclose(AlphaFair(alpha)(values), expected, rtol=1e-12)

    def test_goes_to_the_worst_arm(self):
        assert AlphaFair(1e300)([1e-3, 2.0, 1e6]) == 1e-3
        near(AlphaFair(1e300).supergradient([2.0, 1.0, 1.0]), [0, 0.5, 0.5])

    def test_takes_the_extremes_of_floating_point(self):
        near(AlphaFair(1)([1e-300, 1e300]), 1.0)
        near(AlphaFair(1 + 1e-9)([1e-300, 1e300]), exact_certainty_equivalent([1e-300, 1e300], 1 + 1e-9))

    @pytest.mark.parametrize("alpha", [0.3, 1, 1 + 1e-9, 2, 7.5, 500])
    def test_supergradient_is_the_derivative(self, alpha):
        welfare, values, step = AlphaFair(alpha), np.array([0.7, 0.701, 3.0, 10.0]), 1e-6
        for arm in range(4):
            nudge = step * (np.arange(4) == arm)
            slope = (welfare(values + nudge) - welfare(values - nudge)) / (2 * step)
            np.testing.assert_allclose(welfare.supergradient(values)[arm], slope, rtol=1e-5, atol=1e-9)

    @given(SEVERAL)
    def test_zero_is_utilitarian_even_for_negative_values(self, values):
        assert AlphaFair(0)(-values) == Utilitarian()(-values)
        AlphaFair(0).check_domain(-values)

    def test_zero_values_below_one(self):
        near(AlphaFair(0.5)([0.0, 4.0]), 1.0)
        assert AlphaFair(0.5)([0.0, 0.0]) == 0.0
        near(AlphaFair(0.5)([[0.0, 0.0], [0.0, 4.0]]), [0.0, 1.0])
        near(AlphaFair(0.5).supergradient([0.0, 0.0]), [0.5, 0.5])
        AlphaFair(0.5).check_domain([0.0, 4.0])
        with pytest.raises(OutOfDomainError):
            AlphaFair(0.5).supergradient([0.0, 4.0])

    @pytest.mark.parametrize(
        ("alpha", "values", "message"),
        [
            (0.5, [1.0, -0.25], r"alpha:0\.5 needs values of at least 0, and the smallest value is -0\.25"),
            (1, [1.0, 0.0], "alpha:1 needs positive values, and the smallest value is 0"),
            (2, [[1.0, 2.0], [3.0, -7.0]], "alpha:2 needs positive values, and the smallest value is -7"),
        ],
    )
    def test_outside_its_domain(self, alpha, values, message):
        welfare = AlphaFair(alpha)
        for ask in (welfare, welfare.supergradient, welfare.check_domain):
            with pytest.raises(OutOfDomainError, match=message):
                ask(values)

    def test_types_without_arms_do_not_count(self):
        near(AlphaFair(1)([-5.0, 2.0], [0, 3]), 2.0)

    @pytest.mark.parametrize("alpha", [-1, math.nan, math.inf, "1"])
    def test_refuses_an_invalid_alpha(self, alpha):
        with pytest.raises(InvalidInputError, check=mentions("alpha", 0)):
            AlphaFair(alpha)


class TestHalf:
    """The same emphasis on the worse-off, whatever the number of arms."""

    @pytest.mark.parametrize("num_arms", [2, 40, 1000, 10**9])
    @pytest.mark.parametrize("share", [0.5, 0.6, 0.75, 0.99])
    def test_the_worse_half_has_its_share(self, num_arms, share):
        near(weight_of_worst(Gini.bottom_half(share), 0.5, num_arms)[1], share)

    @given(SEVERAL, st.integers(2, 1000))
    def test_a_population_that_is_there_several_times_has_the_same_welfare(self, values, times):
        one, many = (Gini.bottom_half()(values, np.full(len(values), number)) for number in (1, times))
        near(one, many)

    def test_it_is_a_gini_of_the_ratio_in_the_books(self):
        for num_arms in (1, 2, 5, 40):
            near(Gini.bottom_half().rank_weights(num_arms), Gini.geometric(num_arms, 9 ** (1 / num_arms)).weights)

    def test_where_the_paper_is_nearly_maximin(self):
        assert weight_of_worst(Gini.geometric(40, 2), 0.1, 40) == (4, pytest.approx(0.9375))
        few, share = weight_of_worst(Gini.bottom_half(), 0.1, 40)
        near(share, (1 - 9**-0.1) / (1 - 1 / 9))
        assert (few, round(share, 3)) == (4, 0.222)
        assert weight_of_worst(Gini.bottom_half(), 0.1, 3)[0] == 1
        assert weight_of_worst(AlphaFair(1), 0.1, 40) is None

    def test_meaning_in_words(self):
        assert "The worse-off half has 75\u00a0% of the weight." in Gini.bottom_half().meaning("arm")
        assert "the more a group counts" in Gini.bottom_half().meaning("group")
        assert "all arms have the same weight" in Gini.bottom_half(0.5).meaning("arm")

    @pytest.mark.parametrize("share", [0.4, 1, math.nan, "much", True])
    def test_refuses_an_invalid_share(self, share):
        with pytest.raises(InvalidInputError, check=mentions("half", 0.5, 1)):
            Gini.bottom_half(share)


class TestText:
    @pytest.mark.parametrize(
        ("text", "welfare", "name"),
        [
            ("gini:2", Gini.geometric(3, 2), "gini:2"),
            ("gini:1.5", Gini.geometric(3, 1.5), "gini:1.5"),
            ("gini:half=0.75", Gini.bottom_half(0.75), "gini:half=0.75"),
            ("Gini: half = 0.6 ", Gini.bottom_half(0.6), "gini:half=0.6"),
            ("gini:0.5,0.3,0.2", Gini([0.5, 0.3, 0.2]), "gini:0.5,0.3,0.2"),
            (" Gini:0.5, 0.3, 0.2 ", Gini([0.5, 0.3, 0.2]), "gini:0.5,0.3,0.2"),
            ("utilitarian", Utilitarian(), "utilitarian"),
            ("maximin", Maximin(), "maximin"),
            ("maximin:0.01", Maximin(0.01), "maximin:0.01"),
            ("leximin", Leximin(), "leximin"),
            ("alpha:1", AlphaFair(1), "alpha:1"),
            ("nash", AlphaFair(1), "alpha:1"),
            ("alpha:2", AlphaFair(2), "alpha:2"),
        ],
    )
    def test_forms(self, text, welfare, name):
        assert parse_welfare(text, 3) == as_welfare(text, 3) == welfare
        assert parse_welfare(text, 3).name == name

    @given(st.floats(1, 1e308), st.floats(0, 1), st.floats(0, 1e308))
    def test_any_number_reads_back(self, ratio, epsilon, alpha):
        half = Gini.bottom_half(0.5 + 0.49 * epsilon)
        for welfare in (Gini.geometric(4, ratio), half, Maximin(epsilon), AlphaFair(alpha)):
            assert parse_welfare(welfare.name, 4) == welfare

    @given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6))
    def test_any_weights_read_back(self, raw):
        welfare = Gini(np.sort(raw)[::-1] / math.fsum(raw))
        again = parse_welfare(welfare.name, len(raw))
        assert again == welfare
        assert again.weights.tobytes() == welfare.weights.tobytes()

    def test_unknown_kinds_get_a_suggestion(self):
        with pytest.raises(UnknownNameError, check=mentions("gni", "gini")):
            parse_welfare("gni:2", 3)

    @pytest.mark.parametrize(
        ("text", "right"),
        [
            ("gini", "gini:2"),
            ("gini:", "gini:2"),
            ("gini:two", "gini:2"),
            ("gini:0.5", "gini:2"),
            ("gini:nan", "gini:2"),
            ("gini:half=0.2", "gini:half=0.75"),
            ("gini:half=0,75", "gini:half=0.75"),
            ("gini:half=", "gini:half=0.75"),
            ("gini:third=0.2", "gini:half=0.75"),
            ("gini:0.5,0.3", "gini:0.5,0.3,0.2"),
            ("gini:0.5,0.5", "2 arms"),
            ("utilitarian:1", "utilitarian"),
            ("maximin:2", "maximin:0.01"),
            ("maximin:0.1,0.2", "maximin:0.01"),
            ("alpha", "alpha:2"),
            ("alpha:1,2", "alpha:2"),
            ("alpha:-1", "alpha:2"),
            ("nash:1", "nash"),
        ],
    )
    def test_invalid_text_shows_an_example(self, text, right):
        with pytest.raises(InvalidInputError, check=mentions(text, right)):
            parse_welfare(text, 3)

    @pytest.mark.parametrize("thing", [None, 3, Utilitarian, np.mean])
    def test_refuses_other_objects(self, thing):
        with pytest.raises(InvalidInputError, check=mentions("welfare")):
            as_welfare(thing, 3)

    def test_a_foreign_welfare_is_as_good(self):
        class Median:
            name = "median"

            def __call__(self, values, counts=None):
                return float(np.median(values))

            def supergradient(self, values, counts=None):
                raise NotImplementedError

            def check_domain(self, values):
                pass

        median = Median()
        assert as_welfare(median, 3) is median


class Share:
    """The mean, times a number: a structure that nobody knows."""

    def __init__(self, factor):
        self.factor = factor
        self.name = f"share:{factor:g}"

    def __call__(self, values, counts=None):
        return self.factor * Utilitarian()(values, counts)

    def supergradient(self, values, counts=None):
        return self.factor * Utilitarian().supergradient(values, counts)

    def check_domain(self, values):
        Utilitarian().check_domain(values)


class TestRegistered:
    @pytest.fixture(autouse=True)
    def _forget(self, monkeypatch):
        monkeypatch.setattr("evenhand.model.welfare.text_form._registered", {})

    def test_text_with_numbers_makes_it(self):
        register_welfare("share", lambda numbers, num_arms: Share(*numbers))
        made = parse_welfare(" Share:0.5 ", 4)
        assert isinstance(made, Share) and made.name == "share:0.5" and made([1, 2, 3, 6]) == 1.5
        assert as_welfare("share:2", 3)([1, 1, 1]) == 2

    def test_it_receives_the_number_of_arms(self):
        register_welfare("even", lambda numbers, num_arms: Gini(np.full(num_arms, 1 / num_arms)))
        assert parse_welfare("even", 5).num_arms == 5

    def test_again_replaces_ones_own(self):
        for factor in (1.0, 3.0):
            register_welfare("share", lambda numbers, num_arms, factor=factor: Share(factor))
        assert parse_welfare("share", 2)([1, 1]) == 3.0

    @pytest.mark.parametrize(
        ("name", "build", "words"),
        [
            ("gini", lambda numbers, num_arms: Share(1), "is a welfare of the library"),
            ("Two Words", lambda numbers, num_arms: Share(1), "small letters"),
            ("a:b", lambda numbers, num_arms: Share(1), "small letters"),
            ("share", Share(1).name, "expected a function"),
        ],
        ids=["taken", "words", "colon", "no function"],
    )
    def test_what_cannot_be_registered(self, name, build, words):
        with pytest.raises(InvalidInputError, match=words):
            register_welfare(name, build)

    @pytest.mark.parametrize(
        ("text", "build", "words"),
        [
            ("share:a", lambda numbers, num_arms: Share(*numbers), "share:2"),
            ("share:1,2,3", lambda numbers, num_arms: Share(*numbers), "numbers"),
            ("share", lambda numbers, num_arms: 3, "made 3"),
            ("share", lambda numbers, num_arms: Share, "Share"),
            ("share", lambda numbers, num_arms: Gini([0.5, 0.5]), "2 arms"),
        ],
        ids=["text", "too many", "a number", "a class", "other arms"],
    )
    def test_invalid_builds_are_reported(self, text, build, words):
        register_welfare("share", build, example="share:2")
        with pytest.raises(InvalidInputError, match=words):
            parse_welfare(text, 3)

    def test_an_unregistered_name_is_reported_with_the_remedy(self):
        with pytest.raises(UnknownNameError, check=mentions("register_welfare")):
            parse_welfare("share:2", 3)
        with pytest.raises(UnknownNameError, check=mentions("gini")) as caught:
            parse_welfare("ginni:2", 3)
        assert "register_welfare" not in str(caught.value)


@pytest.mark.parametrize("text", ["alpha", "alpha:1,2", "utilitarian:1"])
def test_a_wrong_number_of_numbers_is_reported_without_internals(text):
    with pytest.raises(InvalidInputError, check=lambda error: "__init__" not in str(error)):
        parse_welfare(text, 3)
