"""A welfare of a user's own is checked before anything is proved by it."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError
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
