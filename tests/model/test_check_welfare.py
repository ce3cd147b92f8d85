"""A welfare of a user's own is checked before anything is proved by it."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model import RankWeighted


class Own:
    """A welfare by its two functions of values and shares of members."""

    name = "own"

    def __init__(self, value, slope):
        self.value, self.slope = value, slope

    def __call__(self, values, counts=None):
        return float(self.value(np.asarray(values, dtype=float), self.shares(values, counts)))

    def supergradient(self, values, counts=None):
        return self.slope(np.asarray(values, dtype=float), self.shares(values, counts))

    def check_domain(self, values):
        """Every vector has one."""

    @staticmethod
    def shares(values, counts):
        counts = np.ones(len(values)) if counts is None else np.asarray(counts, dtype=float)
        return counts / counts.sum()


class BestFirst(RankWeighted):
    """Weights that rise with the rank: convex."""

    name = "best-first"

    def rank_mass(self, first, last, num_arms):
        return (last / num_arms) ** 2 - (first / num_arms) ** 2


SOUND = {
    "mean": Own(lambda v, w: w @ v, lambda v, w: w),
    "least": Own(lambda v, w: v.min(), lambda v, w: np.eye(len(v))[np.argmin(v)]),
    "exponential": Own(lambda v, w: -np.log(w @ np.exp(-v)), lambda v, w: w * np.exp(-v) / (w @ np.exp(-v))),
}
BROKEN = {
    "concave": Own(lambda v, w: w @ np.exp(v / 10), lambda v, w: w * np.exp(v / 10) / 10),
    "bounded": Own(lambda v, w: -np.log(w @ np.exp(-v / 10)), lambda v, w: 0.01 * w),
    "monotone": Own(lambda v, w: -(w @ v), lambda v, w: -w),
    "symmetric": Own(lambda v, w: v[0], lambda v, w: np.eye(len(v))[0]),
}
FACTS = ("concave", "bounded", "monotone", "symmetric")
PROBLEM = eh.problems.health_outreach(num_arms=4, num_states=2, budget=1)


@pytest.mark.parametrize("members", [1, 2, 7, 50, 10**6])
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_one_has_no_witness(name, members):
    assert eh.check_welfare(SOUND[name], members, -3, 5).witnesses == ()


@pytest.mark.parametrize("text", ["gini:2", "gini:half=0.75", "maximin", "leximin", "alpha:0.5", "nash", "alpha:3"])
def test_those_of_the_library_are_sound(text):
    for low in (-1.0, 0.0, 2.0):
        assert eh.check_welfare(eh.parse_welfare(text, 6), 6, low, 10).witnesses == ()


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("members", [2, 30])
def test_a_broken_promise_has_a_witness(fact, members):
    found = eh.check_welfare(BROKEN[fact], members, 0, 20)
    assert not getattr(found, fact)
    if fact != "concave":  # a supergradient of what is not concave does not bound it, either
        assert [name for name in FACTS if not getattr(found, name)] == [fact]


def test_the_witness_shows_it():
    """By the welfare itself, at the two points."""
    found = {fact: eh.check_welfare(BROKEN[fact], 3, 0, 20).witnesses[0] for fact in FACTS}
    x, y, welfare = found["concave"].first, found["concave"].second, BROKEN["concave"]
    assert welfare((x + y) / 2) < (welfare(x) + welfare(y)) / 2
    x, y, welfare = found["bounded"].first, found["bounded"].second, BROKEN["bounded"]
    assert welfare(y) > welfare(x) + welfare.supergradient(x) @ (y - x)
    x, y, welfare = found["monotone"].first, found["monotone"].second, BROKEN["monotone"]
    assert (y >= x).all()
    assert welfare(y) < welfare(x)
    x, y, welfare = found["symmetric"].first, found["symmetric"].second, BROKEN["symmetric"]
    assert sorted(x) == sorted(y)
    assert welfare(y) != welfare(x)


@pytest.mark.parametrize("welfare", [*BROKEN.values(), BestFirst()])
@pytest.mark.parametrize("method", ["auto", "joint", "fluid"])
def test_nothing_is_proved_by_it(welfare, method):
    """Before, a convex one had a gap of 0, and a wrong supergradient a bound below what is attained."""
    with pytest.raises(NotApplicableError):
        eh.solve(PROBLEM, welfare, method)


def test_a_comparison_goes_on_without_a_bound(effort):
    for states in (3000, 0):
        effort(optimum_states=states)
        found = eh.compare(PROBLEM, ["whittle"], BROKEN["concave"], num_episodes=5)
        assert found.upper_bound is None
        assert found.no_bound
        assert len(found.rows) == 1


def test_others_that_report_a_bound():
    with pytest.raises(NotApplicableError):
        eh.solve(PROBLEM, BROKEN["concave"], budgets=[2])
    found = eh.price_of_fairness(PROBLEM, [BROKEN["concave"]])
    assert "own" not in [row.welfare for row in found.rows]
    assert "own" in found.left_out


def test_only_values_that_arms_can_have_count():
    """Concave up to 1000, far above what these arms have."""
    kinked = Own(lambda v, w: w @ np.maximum(v, 10 * v - 9000), lambda v, w: w * np.where(v > 1000, 10, 1))
    assert not eh.check_welfare(kinked, 4, 0, 2000).concave
    found = eh.solve(PROBLEM, kinked)
    assert found.welfare == pytest.approx(eh.solve(PROBLEM, "utilitarian").welfare, rel=1e-6)


# -- attacks that were once certified, or came near it ----------------------------------------------------------------


class HalfGini(eh.Gini):
    """Sound by itself, but solvers rely on the rank weights of its class."""

    def __call__(self, values, counts=None):
        return 0.5 * super().__call__(values, counts)

    def supergradient(self, values, counts=None):
        return 0.5 * super().supergradient(values, counts)


class Lexicographic(Own):
    lexicographic = True


def first_of(place):
    return lambda v, w: np.eye(len(v))[place(v)]


class OutOfReach(Own):
    def check_domain(self, values):
        raise eh.errors.OutOfDomainError("never")


MEAN = SOUND["mean"]
ATTACKS = {
    "best": Own(lambda v, w: v.max(), first_of(np.argmax)),
    "counts ignored": Own(lambda v, w: v.mean(), lambda v, w: np.full(len(v), 1 / len(v))),
    "counts partly ignored": Own(
        lambda v, w: (v.mean() + v.min()) / 2, lambda v, w: (1 / len(v) + first_of(np.argmin)(v, w)) / 2
    ),
    "slope of one arm": Own(lambda v, w: w @ v, lambda v, w: np.full(len(v), w.min())),
    "slope too small": Own(lambda v, w: w @ v, lambda v, w: 0.999 * w),
    "slope too large": Own(lambda v, w: w @ v, lambda v, w: 1.001 * w),
    "slope wrong near ties": Own(
        lambda v, w: v.min(), lambda v, w: first_of(np.argmin if np.ptp(v) > 0.01 else np.argmax)(v, w)
    ),
    "best punished": Own(
        lambda v, w: 1.6 * w @ v - 0.6 * v.max(), lambda v, w: 1.6 * w - 0.6 * first_of(np.argmax)(v, w)
    ),
    "one arm a little more": Own(lambda v, w: w @ v + 1e-3 * v[0], lambda v, w: w + 1e-3 * np.eye(len(v))[0]),
    "another than its class": HalfGini([0.4, 0.3, 0.2, 0.1]),
    "leximin by name only": Lexicographic(lambda v, w: w @ v, lambda v, w: w),
    "no domain": OutOfReach(lambda v, w: w @ v**2, lambda v, w: 2 * w * v),
    "only where all are equal": Own(lambda v, w: w @ v**2 if np.ptp(v) < 1e-9 else -np.inf, lambda v, w: 2 * w * v),
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "counts", "joint", "count-lp", "joint-lp", "whittle", "fluid"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_method_certifies_an_attack(attack, method):
    with pytest.raises((NotApplicableError, eh.errors.OutOfDomainError)):
        eh.solve(PROBLEM, ATTACKS[attack], method)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_bound_is_proved_by_an_attack(attack):
    with pytest.raises((NotApplicableError, eh.errors.OutOfDomainError)):
        eh.bound(PROBLEM, ATTACKS[attack])
    found = eh.study({"p": PROBLEM}, ["never-act"], welfare=MEAN).rows[0]
    assert found.welfare <= found.upper_bound


def test_a_slope_that_is_wrong_at_the_solution_alone():
    """No sampled vector is near it, and the cutting planes end there."""
    best = eh.solve(PROBLEM, "utilitarian").welfare
    wrong = Own(lambda v, w: w @ v, lambda v, w: w * (0.5 if abs(w @ v - best) < 1e-6 else 1))
    with pytest.raises(NotApplicableError):
        eh.solve(PROBLEM, wrong, "counts")


def test_counts_and_classes_are_checked():
    assert eh.check_welfare(MEAN, 5, counts=[2, 3]).consistent
    assert not eh.check_welfare(ATTACKS["counts ignored"], 5, counts=[2, 3]).consistent
    assert not eh.check_welfare(ATTACKS["another than its class"], 4).consistent
    with pytest.raises(eh.errors.OutOfDomainError):
        eh.check_welfare(ATTACKS["no domain"], 4)


def test_further_points_are_checked():
    narrow = Own(lambda v, w: w @ v, lambda v, w: w * (1 if abs(v[0] - 0.123456) > 1e-6 else 0.5))
    assert eh.check_welfare(narrow, 3).bounded
    assert not eh.check_welfare(narrow, 3, points=[[0.123456, 0.5, 0.5]]).bounded


def test_a_welfare_without_counts_is_refused():
    class Least(eh.Maximin):
        def __call__(self, values):
            return float(np.min(values))

    with pytest.raises(InvalidInputError):
        eh.check_welfare(Least(), num_members=3)
