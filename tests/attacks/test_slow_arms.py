"""Exact methods against exact arithmetic where arms move once in 2^13 to 2^30 steps, alone or beside quick ones.

Relative values are then as large as 2^30, and linear programs do not see the moves. What a method returns must be
within the tolerance of the exact optimum (`tests/oracles/exact_averages.py`), from both sides; else it must raise.
"""

from fractions import Fraction

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.planning import solve as solving
from evenhand.solvers import Elimination, Joint, one_long_run, settle

from ..conftest import try_each
from ..oracles.exact_averages import ExactProblem, solve_linear

RATES = ([13], [20], [30], [1, 13], [1, 20], [1, 30], [13, 20, 30], [1, 13, 30])
SEEDS, MANY_SEEDS = range(24), range(24, 324)
SLACK = 1e-12


def slow_arm(rng, num_states, rates):
    """An arm whose moves away from a state have one of the rates, as a power of 1/2."""
    moves = np.zeros((num_states, 2, num_states))
    for state in range(num_states):
        for action in range(2):
            away = rng.integers(0, 4, num_states).astype(float)
            away[state] = 0
            if not away.any() and rng.random() < 0.7:
                away[(state + 1) % num_states] = 1
            if away.any():
                away *= 2.0 ** -rng.choice(rates) * rng.integers(1, 17) / 16 / away.sum()
            moves[state, action] = away
            moves[state, action, state] = 1 - away.sum()
    rewards = rng.integers(0, 10, (num_states, 2)) / rng.choice([1, 7])
    return eh.Arm(moves, rewards, [[0], [1]], rng.choice([np.eye(num_states)[0], np.full(num_states, 1 / num_states)]))


def slow_problem(seed, criterion):
    """Two identical arms, two different ones, or three of two types."""
    rng = np.random.default_rng([seed, 24])
    rates = RATES[seed % len(RATES)]
    kind = rng.integers(3)
    arms = [slow_arm(rng, int(rng.integers(2, 4)) if kind < 2 else 2, rates)]
    arms += [slow_arm(rng, 2, rates)] if kind else []
    discount = 1.0 if criterion == "average" else 1 - 2.0**-20
    return eh.CoupledMDP(arms, [1], discount, [[2], [1, 1], [2, 1]][kind], criterion=criterion)


def optimum_of(problem, seed):
    """A welfare, and its exact optimum; None if the best mean depends on the start."""
    exact = ExactProblem(problem)
    if problem.num_arms == 2 and seed % 2:
        return "gini:0.75,0.25", exact.optimum(Fraction(1, 2), Fraction(1, 4))
    return "utilitarian", exact.optimum(0, Fraction(1, problem.num_arms))


def attack(case):
    """Two dynamic programs must reach 1e-8; the linear program 1e-5, or say that it does not."""
    seed, criterion = case
    problem = slow_problem(seed, criterion)
    welfare, optimum = optimum_of(problem, seed)
    for method, tolerance in (("joint", 1e-8), ("counts", 1e-8), ("joint-lp", 1e-5)):
        if optimum is None:
            with pytest.raises((NotApplicableError, NotConvergedError)):
                eh.solve(problem, welfare, method)
            continue
        try:
            found = eh.solve(problem, welfare, method)
        except NotConvergedError:
            assert method == "joint-lp"
            continue
        scale = max(abs(float(optimum)), 1e-6)
        assert found.welfare <= found.upper_bound + SLACK * scale, method
        assert found.welfare == pytest.approx(float(optimum), abs=tolerance * scale), method
        assert -SLACK * scale <= found.upper_bound - float(optimum) <= tolerance * scale, method


@pytest.mark.parametrize("criterion", ["average", "discounted"])
def test_slow_arms_are_solved_to_the_tolerance(criterion):
    try_each(attack, [(seed, criterion) for seed in SEEDS])


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::50])
def test_slow_arms_are_solved_to_the_tolerance_on_many_problems(first):
    try_each(attack, [(seed, c) for seed in range(first, first + 50) for c in ("average", "discounted")])


@pytest.mark.parametrize("power", [13, 20, 30])
@pytest.mark.parametrize("method", ["joint", "counts", "joint-lp", "count-lp", "auto"])
def test_identical_slow_arms(method, power):
    """Each fails once in 2^power steps, stays broken unless mended, and one is mended at a time, as slowly."""
    rate = 2.0**-power
    arm = eh.Arm([[[1 - rate, rate], [1 - rate, rate]], [[0, 1], [rate, 1 - rate]]], [[1, 1], [0, 0]], [[0], [1]])
    problem = eh.CoupledMDP([arm], [1], 1, [3], criterion="average")
    # A birth and death chain: 3, 2, 1 machines fail at their rate, one is mended. Shares of 0, 1, 2, 3 broken.
    moves = [[_binomial(3 - broken, rate), rate if broken else 0.0] for broken in range(4)]
    optimum = _mean_working(moves)
    found = eh.solve(problem, "gini:2", method)
    tolerance = 1e-5 if method.endswith("lp") else 1e-8
    assert found.welfare == pytest.approx(optimum, rel=tolerance)
    assert 0 <= found.upper_bound - optimum + 1e-12 <= tolerance * optimum + 1e-12


def _binomial(number, rate):
    """(failures,) their chances, as fractions."""
    p = Fraction(rate)
    chances = [Fraction(1)]
    for _ in range(number):
        chances = [a * (1 - p) + b * p for a, b in zip([*chances, 0], [0, *chances], strict=True)]
    return chances


def _mean_working(moves):
    """The mean share of three machines that work, from chances of failures and of a mend in each number broken."""
    chain = [[Fraction(0)] * 4 for _ in range(4)]
    for broken, (failures, mended) in enumerate(moves):
        for more, chance in enumerate(failures):
            chain[broken][broken + more] += chance * (1 - Fraction(mended))
            chain[broken][max(broken + more - 1, 0)] += chance * Fraction(mended)
    balance = [[(i == j) - chain[i][j] for i in range(4)] for j in range(3)] + [[Fraction(1)] * 4]
    shares = solve_linear(balance, [Fraction(0)] * 3 + [Fraction(1)])
    return float(sum(share * (3 - broken) for broken, share in enumerate(shares)) / 3)


def test_the_exact_evaluation_of_a_policy_of_slow_arms():
    """Of two machines that fail and are mended once in 2^30 steps, each works half of the time."""
    rate = 2.0**-30
    moves = [[1 - rate, rate], [rate, 1 - rate]]
    arm = eh.Arm(np.stack([moves, moves], axis=1), [[1, 1], [0, 0]], [[0], [1]], [1, 0])
    problem = eh.CoupledMDP([arm], [1], 1, [2], criterion="average")
    found = eh.evaluate(problem, "never-act", "utilitarian")
    assert found.exact
    assert found.welfare == pytest.approx(0.5, rel=1e-12)


def test_elimination_keeps_its_digits():
    """Means, biases and shares of two pairs of states that are left once in 2^40 steps, and a transient state."""
    tiny = 2.0**-40
    chain = np.array(
        [
            [0.5, 0.5, 0, 0, 0],
            [0.5 - tiny, 0.5, tiny, 0, 0],
            [0, 0, 0.25, 0.75, 0],
            [0, 3 * tiny, 0.75, 0.25 - 3 * tiny, 0],
            [tiny, 0, 0, 0, 1 - tiny],
        ]
    )
    rewards = np.array([1.0, 2.0, 3.0, 5.0, 7.0])
    exact = [[Fraction(p) for p in row] for row in chain.tolist()]
    balance = [[(i == j) - exact[i][j] for i in range(4)] for j in range(3)] + [[Fraction(1)] * 4]
    shares = solve_linear(balance, [Fraction(0)] * 3 + [Fraction(1)])
    mean = sum(share * Fraction(r) for share, r in zip(shares, rewards[:4], strict=True))
    system = [[(i == j) - exact[i][j] for j in range(5)] for i in range(5)]
    system[0] = [Fraction(j == 0) for j in range(5)]
    biases = solve_linear(system, [Fraction(0), *(Fraction(r) - mean for r in rewards[1:])])
    long_run = Elimination(chain)
    np.testing.assert_allclose(long_run.shares(np.eye(5)[4]), [*map(float, shares), 0], rtol=1e-14)
    np.testing.assert_allclose(long_run.means(rewards), float(mean), rtol=1e-14)
    found = long_run.biases(rewards - float(mean))
    np.testing.assert_allclose(found, np.array(biases, dtype=float), rtol=1e-12)


def test_elimination_with_a_discount_next_to_one():
    chain, discount = np.array([[0.5, 0.5], [2.0**-30, 1 - 2.0**-30]]), 1 - 2.0**-40
    exact = [[(i == j) - Fraction(discount) * Fraction(chain[j, i]) for j in range(2)] for i in range(2)]
    visits = solve_linear(exact, [Fraction(1), Fraction(0)])
    np.testing.assert_allclose(
        Elimination(chain, discount).visits(np.array([1.0, 0.0])), np.array(visits, dtype=float), rtol=1e-14
    )


def test_shares_without_a_table_are_right_or_refused():
    """A chain that is only pushed: what it moves in a step is next to nothing long before it is where it stays."""
    for power, is_sure in ((13, True), (44, False)):
        rate = 2.0**-power
        chain = np.array([[1 - rate, rate], [3 * rate, 1 - 3 * rate]])
        try:
            shares = settle(lambda law, chain=chain: law @ chain, np.array([0.0, 1.0]))
        except NotConvergedError:
            assert not is_sure
            continue
        np.testing.assert_allclose(shares, [0.75, 0.25], atol=1e-9)


@pytest.mark.parametrize(("back", "one"), [(2.0**-60, True), (0.0, False)])
def test_dependence_on_the_start_is_decided_by_exact_zeros(back, one):
    """Two states that are good for ever, and a way from one to the other that takes ages, or is not there."""
    moves = np.array([[[1 - 2.0**-30, 2.0**-30], [1, 0]], [[back, 1 - back], [0, 1]]])
    problem = eh.CoupledMDP([eh.Arm(moves, [[2, 2], [1, 1]], [[0], [1]], [1, 0])], [1], 1, [2], criterion="average")
    mdp = Joint(problem).mdp
    assert one_long_run(mdp) is one
    optimum = ExactProblem(problem).optimum(0, Fraction(1, 2))
    assert (optimum is not None) is one
    if one:
        assert eh.solve(problem, "utilitarian", "joint").welfare == pytest.approx(float(optimum), rel=1e-8)
    else:
        with pytest.raises(NotApplicableError):
            eh.solve(problem, "utilitarian", "joint")


def test_auto_falls_back_if_an_exact_method_does_not_converge(monkeypatch):
    def fail(task):
        raise NotConvergedError("the bounds are still 0.1 apart")

    problem = eh.problems.machine_replacement(num_arms=3)
    monkeypatch.setitem(solving.METHODS, "counts", fail)
    found = eh.solve(problem, "utilitarian")
    assert found.method == "fluid"
    assert "counts" in found.reason
    with pytest.raises(NotConvergedError):
        eh.solve(problem, "utilitarian", "counts")
