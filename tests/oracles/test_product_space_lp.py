"""The oracle itself: closed forms, all deterministic policies one by one, limits between criteria, weak duality."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ..conftest import crossed
from .problems import problems, replaced, seeded_problem
from .product_space_lp import Attainable, Infeasible, PlainArm, rank_weights, read_problem, welfare_of

WELFARES = ["gini:2", "utilitarian", "maximin", "maximin:0.01", "leximin", "alpha:0.5", "nash", "alpha:2"]
TINY = {"most_arms": 3, "most_pairs": 16, "least_reward": 1, "discounts": (0.0, 0.5, 0.9)}


class Kolm:
    """-1/k log mean exp(-k v): smooth, concave, and no power mean."""

    name = "kolm"

    def __call__(self, values):
        least = np.min(values)
        return float(least - np.log(np.exp(least - np.asarray(values)).mean()))

    def supergradient(self, values):
        weights = np.exp(np.min(values) - np.asarray(values))
        return weights / weights.sum()


def constant_arm(reward):
    """One state; served it earns something, idle nothing."""
    return PlainArm(np.ones((1, 2, 1)), np.array([[0.0, reward]]), np.array([[[0.0], [1.0]]]), np.ones(1))


@pytest.mark.parametrize(
    ("criterion", "discount", "total"),
    [
        ("discounted", 0.9, 10.0),
        ("discounted", 0.0, 1.0),
        ("average", 0.3, 1.0),
        ("finite:3", 0.5, 1.75),
        ("finite:7", 1.0, 7.0),
    ],
)
@pytest.mark.parametrize(
    ("welfare", "best"),
    [
        ("utilitarian", 1.5),  # all to the second arm
        ("maximin", 0.75),  # share p with p = 3 (1 - p)
        ("gini:2", 1.0),  # 2/3 p + 1/3 3 (1-p) or 1/3 p + 2/3 3 (1-p): the first, as p = 0 gives 1
        ("gini:8", 0.75),
        ("maximin:0.5", 1.0),
        ("leximin", 0.75),
        ("nash", np.sqrt(0.5 * 1.5)),  # p = 1/2
        ("alpha:2", 2 / (1 / (np.sqrt(3) / (1 + np.sqrt(3))) + (1 + np.sqrt(3)) / 3)),  # 1/p^2 = 1/(3 (1-p)^2)
        ("alpha:0.5", 1.0),  # p = 1/4: (1/2 (1/2 + 3/2))^2
        (Kolm(), None),
    ],
)
def test_two_arms_by_hand(criterion, discount, total, welfare, best):
    found = Attainable([constant_arm(1.0), constant_arm(3.0)], [1.0], discount, criterion).best(welfare)
    shares = np.linspace(0, 1, 200_001)
    if best is None:  # by a fine search instead
        best = max(welfare(total * np.array([p, 3 * (1 - p)])) for p in shares[::100]) / total
        assert total * best <= found.bound + 1e-9
        assert found.welfare == pytest.approx(total * best, rel=1e-4)
    else:
        assert found.welfare == pytest.approx(total * best, rel=1e-8)
        assert found.bound == pytest.approx(total * best, rel=1e-8)


def test_leximin_goes_on_after_the_worst():
    arms = [constant_arm(0.0), constant_arm(1.0), constant_arm(3.0)]
    assert Attainable(arms, [1.0], 0.5).best("leximin").members == pytest.approx([0.0, 1.5, 1.5])


def test_groups_count_once():
    arms = [constant_arm(1.0), constant_arm(1.0), constant_arm(3.0)]
    # The pair gets p in all, and so p/2 on the mean; the single one 3 (1 - p): equal at p = 6/7.
    found = Attainable(arms, [1.0], 0.0, groups=["pair", "pair", "single"]).best("maximin")
    assert found.members == pytest.approx([3 / 7, 3 / 7])


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
def test_floors_by_hand(criterion):
    arms, total = [constant_arm(1.0), constant_arm(3.0)], {"discounted": 2, "average": 1, "finite:3": 1.75}[criterion]
    kept = Attainable(arms, [1.0], 0.5, criterion, floors=[0.9, 0.0]).best("utilitarian")
    assert kept.welfare == pytest.approx(0.6 * total)
    broken = Attainable(arms, [1.0], 0.5, criterion, floors=[0.6, 0.6])
    assert not broken.feasible
    assert broken.largest_common_floor() == pytest.approx(0.5)
    with pytest.raises(Infeasible):
        broken.best("maximin")
    with pytest.raises(Infeasible):
        broken.best("alpha:1")


def fork(initial):
    """From state 0 the idle action leads to 1 for ever, which earns 1, and serving to 2 for ever, which earns 3."""
    moves = np.zeros((3, 2, 3))
    moves[0, 0, 1] = moves[0, 1, 2] = 1
    moves[1, :, 1] = moves[2, :, 2] = 1
    usage = np.zeros((3, 2, 1))
    usage[:, 1, 0] = 1
    return PlainArm(moves, np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0]]), usage, np.array(initial, dtype=float))


@pytest.mark.parametrize(
    ("initial", "best"), [([1, 0, 0], 3.0), ([0, 1, 0], 1.0), ([0.5, 0.5, 0], 2.0), ([0.2, 0.5, 0.3], 2.0)]
)
def test_the_long_run_of_many_chains(initial, best):
    oracle = Attainable([fork(initial)], [1.0], 1.0, "average")
    assert oracle.best("utilitarian").welfare == pytest.approx(best)
    assert oracle.best_means([1.0]) == pytest.approx([3.0, 1.0, 3.0])
    assert oracle.space.num_end_components == 2


def test_the_long_run_of_two_forks_that_cannot_both_go_the_good_way():
    # At the first step only one is served; half and half, 2 each, is the fairest.
    oracle = Attainable([fork([1, 0, 0])] * 2, [1.0], 1.0, "average")
    assert oracle.best("maximin").welfare == pytest.approx(2.0)
    assert oracle.best("utilitarian").welfare == pytest.approx(2.0)
    assert oracle.best("alpha:2").welfare == pytest.approx(2.0)


class AllPolicies:
    """Every deterministic stationary policy, its values and shares of time served: all others are mixtures of them."""

    def __init__(self, oracle):
        space = oracle.space
        choices = [[i for i, x in enumerate(space.state_of_pair) if x == s] for s in range(len(space.states))]
        rows, gains = space.moves.toarray(), np.vstack([space.rewards, space.served]).T
        found = [self.worth(oracle, rows[list(p)], gains[list(p)]) for p in product(*choices)]
        self.values, self.served = np.split(np.array(found), 2, axis=1)

    @staticmethod
    def worth(oracle, moves, gains):
        """(2 arms,) from the initial law; the served share after the values."""
        start, num_arms = oracle.space.initial, gains.shape[1] // 2
        if oracle.criterion == "average":
            lazy = (np.eye(len(moves)) + moves) / 2  # the same long run, without periods
            for _ in range(40):
                lazy = lazy @ lazy
                lazy /= lazy.sum(axis=1, keepdims=True)
            return start @ lazy @ gains
        worth = start @ np.linalg.solve(np.eye(len(moves)) - oracle.discount * moves, gains)
        return worth * np.repeat([1.0, 1 - oracle.discount], num_arms)

    def best(self, welfare, oracle):
        """The best mixture that keeps the floors."""
        shares = cp.Variable(len(self.values), nonneg=True)
        m = oracle.averaging @ (self.values.T @ shares)
        kind, _, rest = welfare.partition(":")
        if kind in ("alpha", "nash"):
            alpha = float(rest or 1)
            gain = cp.geo_mean(m) if alpha == 1 else cp.pnorm(m, 1 - alpha) * oracle.num_members ** (-1 / (1 - alpha))
        else:
            weights = rank_weights("maximin" if kind == "leximin" else welfare, oracle.num_members)
            falls = weights - np.append(weights[1:], 0)
            gain = sum(fall * cp.sum_smallest(m, k + 1) for k, fall in enumerate(falls) if fall > 0)
        limits = [cp.sum(shares) == 1, self.served.T @ shares >= oracle.floors]
        cp.Problem(cp.Maximize(gain), limits).solve(solver=cp.CLARABEL)
        return gain.value


@settings(derandomize=True)
@given(
    problem=problems(**TINY),
    criterion=st.sampled_from(["discounted", "average"]),
    over=st.sampled_from(["arms", "groups"]),
    welfare=st.sampled_from(WELFARES),
)
def test_against_mixtures_of_all_deterministic_policies(problem, criterion, over, welfare):
    oracle = read_problem(problem, criterion, over)
    sizes = np.bincount(oracle.space.state_of_pair)
    if np.prod(sizes.astype(float)) > 1500:  # keep the first arms only
        first = replaced(problem, arms=[problem.arms[0]], counts=[1], groups=(), floors=problem.floors[:1])
        oracle = read_problem(first, criterion, over)
    assert oracle.best(welfare).welfare == pytest.approx(AllPolicies(oracle).best(welfare, oracle), rel=1e-5, abs=1e-6)


def backwards(oracle, weights, steps):
    """The best weighted sum over some steps, by dynamic programming."""
    space, state_of = oracle.space, np.array(oracle.space.state_of_pair)
    value, gains, moves = np.zeros(len(space.states)), weights @ space.rewards, space.moves.toarray()
    for _ in range(steps):
        of_pairs = gains + oracle.discount * moves @ value
        value = np.array([of_pairs[state_of == s].max() for s in range(len(space.states))])
    return space.initial @ value


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_finite_against_dynamic_programming(seed, steps):
    oracle = read_problem(seeded_problem(seed, floors=False, most_pairs=100), f"finite:{steps}")
    for weights in (np.ones(oracle.num_members), np.arange(1.0, 1 + oracle.num_members)):
        assert oracle.best_linear(weights).welfare == pytest.approx(backwards(oracle, weights, steps), abs=1e-9)


@pytest.mark.parametrize(
    ("welfare", "seed"), crossed([*WELFARES, Kolm()], [5, 7]), ids=lambda given: str(getattr(given, "name", given))
)
def test_criteria_meet_at_their_ends(seed, welfare):
    problem = seeded_problem(seed, least_reward=1, floors=True, most_pairs=40)

    def best(discount, criterion):
        return read_problem(replaced(problem, discount=discount), criterion, "groups").best(welfare)

    for discount, steps in ((0.0, 1), (0.0, 3), (0.2, 14)):
        endless, ending = best(discount, "discounted"), best(discount, f"finite:{steps}")
        assert ending.welfare == pytest.approx(endless.welfare, rel=1e-8)


@pytest.mark.parametrize(("welfare", "seed"), crossed(WELFARES, [5, 7, 24]))
def test_average_is_the_limit_of_the_others(seed, welfare):
    problem = seeded_problem(seed, least_reward=1, floors=seed % 2 == 1, most_pairs=40)
    best = read_problem(problem, "average").best(welfare).welfare
    near = [
        left * read_problem(replaced(problem, discount=1 - left), "discounted").best(welfare).welfare
        for left in (2e-3, 1e-3)
    ]
    assert 2 * near[1] - near[0] == pytest.approx(best, abs=5e-4)  # the error is linear in 1 - discount to first order
    ending = [
        read_problem(replaced(problem, discount=1.0, criterion="average"), f"finite:{t}").best(welfare).welfare / t
        for t in (4, 16)
    ]
    errors = np.abs(np.array(ending) - best)
    assert errors[0] <= 2 / 4
    assert errors[1] <= 2 / 16


@settings(derandomize=True)
@given(
    problem=problems(most_pairs=100, least_reward=1, floors=False),
    seed=st.integers(0, 99),
    welfare=st.sampled_from(WELFARES),
)
def test_no_random_policy_is_better(problem, seed, welfare):
    for criterion in ("discounted", "average"):
        oracle = read_problem(problem, criterion)
        space = oracle.space
        chances = space.belongs.toarray() * np.random.default_rng(seed).exponential(size=len(space.pairs))
        law = chances / chances.sum(axis=1, keepdims=True)
        gains = np.vstack([space.rewards, space.served]).T
        values = AllPolicies.worth(oracle, law @ space.moves.toarray(), law @ gains)[: len(space.arms)]
        assert welfare_of(welfare, values) <= oracle.best(welfare).bound * (1 + 1e-9)


@settings(derandomize=True)
@given(problem=problems(most_pairs=100, least_reward=-8))
def test_weak_duality(problem):
    """Any v with v >= r + gamma P v bounds the discounted optimum, any (g, v) the average one; the best are met."""
    free = replaced(problem, floors=None, discount=0.9)
    oracle, long_run = read_problem(free), read_problem(free, "average")
    space, weights = oracle.space, np.ones(problem.num_arms)
    value = np.zeros(len(space.states))
    gains, state_of, moves = weights @ space.rewards, np.array(space.state_of_pair), space.moves.toarray()
    for _ in range(100):
        of_pairs = gains + 0.9 * moves @ value
        value = np.array([of_pairs[state_of == s].max() for s in range(len(space.states))])
    raised = value + 0.9**100 * 10 * np.abs(gains).max()  # the excess of v over T v pays for what is left
    best = oracle.best_linear(weights).welfare
    assert best <= space.initial @ raised + 1e-9
    assert best == pytest.approx(space.initial @ value, abs=1e-2)
    assert long_run.best_linear(weights).welfare == pytest.approx(
        space.initial @ long_run.best_means(weights), abs=1e-8
    )


@settings(derandomize=True)
@given(problem=problems(most_pairs=100, least_reward=-8), seed=st.integers(0, 99))
def test_with_one_end_component_the_start_does_not_matter(problem, seed):
    oracle = read_problem(problem, "average")
    assume(oracle.space.num_end_components == 1)
    means = oracle.best_means(np.random.default_rng(seed).normal(size=problem.num_arms))
    assert np.ptp(means) < 1e-8
