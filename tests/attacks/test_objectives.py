"""Every objective attacked: problems by seed, badly scaled or not, with floors at, and a hair above, what is possible.

Problems are those of `tests/oracles/problems.py`, with rewards in other units; the promises are those of
`tests/contracts/test_objectives.py`, and the oracle is the product-space program there, asked in units in which the
largest reward is 1 (every welfare that is met here grows with its unit). What a combination of seeds once broke stands
below as a case of its own.
"""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InfeasibleError, NotApplicableError

from ..conftest import crossed, slow_after, try_each
from ..contracts.test_objectives import WELFARES, Case, check, may_refuse
from ..oracles.problems import replaced, seeded_problem
from ..oracles.product_space_lp import read_problem

METHODS = ("joint", "counts", "joint-lp", "count-lp", "auto")
CRITERIA = ("discounted", "average", "finite:1", "finite:2", "finite:7")
UNITS = {"as they are": 1.0, "tiny": 1e-8, "huge": 1e8, "losses": -1.0, "nothing": 0.0}
FLOORS = ("drawn", "none", "at the largest", "a hair above")
LINEAR_IN_UNITS = [name for name in WELFARES if name != "open, smooth"]
POSITIVE_ONLY = ("alpha:0.5", "nash", "alpha:2")
SEEDS, MANY_SEEDS = (134, *range(60)), range(60, 1500)
"""The first once stalled: floors, and rewards of 1e-9 that were weighed against a 1."""


def in_units(problem, unit):
    """The same problem with its rewards in another unit."""
    arms = [problem.arms[b] for b in range(len(problem.counts))]
    return replaced(
        problem, arms=[eh.Arm(arm.transitions, unit * np.array(arm.rewards), arm.usage, arm.initial) for arm in arms]
    )


def with_floors(problem, criterion, kind):
    """Floors as they were drawn, none, or about the largest that all arms can have together."""
    if kind in ("drawn", "none"):
        return problem if kind == "drawn" else replaced(problem, floors=None)
    largest = read_problem(problem, criterion).largest_common_floor(range(problem.num_arms))
    floor = min(1.0, largest if kind == "at the largest" else largest * 1.001)
    return replaced(problem, floors=[floor] * len(problem.counts)) if floor > 1e-9 else problem


def scaled_case(problem, criterion, over, unit, welfare):
    """The problem in a unit, and its optimum as the oracle has it in units of 1."""
    case, plain = Case(in_units(problem, unit), criterion, over), Case(problem, criterion, over)
    if not case.oracle.feasible:
        return case
    sign = Case(in_units(problem, np.sign(unit)), criterion, over) if unit <= 0 else plain
    best = sign.optimum(welfare)
    size = abs(unit) or 1.0
    case.optima[welfare] = type(best)(size * best.welfare, size * best.bound, size * best.values, size * best.members)
    return case


def attack(seed):
    """One combination, chosen by the seed."""
    rng = np.random.default_rng([seed, 10])
    kind = str(rng.choice(list(UNITS)))
    welfare = str(rng.choice([w for w in LINEAR_IN_UNITS if UNITS[kind] > 0 or w not in POSITIVE_ONLY]))
    criterion, over = str(rng.choice(CRITERIA)), str(rng.choice(["arms", "groups"]))
    method, floors = str(rng.choice(METHODS)), str(rng.choice(FLOORS))
    problem = with_floors(seeded_problem(seed, most_pairs=64, least_reward=1), criterion, floors)
    case = scaled_case(problem, criterion, over, UNITS[kind], welfare)
    if case.oracle.feasible:
        check(case, welfare, method)
        return
    try:
        case.solve(welfare, method)
    except InfeasibleError as refusal:
        assert "largest floor" in str(refusal)
    except NotApplicableError:
        assert may_refuse(case, welfare, method)
    else:
        pytest.fail("floors that cannot be kept were accepted")


@pytest.mark.parametrize("seed", slow_after(4, SEEDS))
def test_problems_by_seed(seed):
    attack(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::40])
def test_many_problems_by_seed(first):
    try_each(attack, range(first, min(first + 40, MANY_SEEDS.stop)))


# Found by this attack.


@pytest.mark.parametrize(
    ("method", "unit", "welfare"), crossed(["joint", "counts"], [1e-8, 1.0, 1e8], ["leximin", "gini:2", "maximin"])
)
def test_floors_are_satisfied_at_any_unit_of_rewards(unit, welfare, method):
    """Rewards of 1e8 let leximin break a floor by a sixth, and hid from gini whether floors are feasible."""
    arms = [
        eh.Arm([[[0.5, 0.5], [0.75, 0.25]], [[0.25, 0.75], [0.5, 0.5]]], rewards, [[0.0], [1.0]])
        for rewards in ([[1.0, 0.25], [0.5, 0.125]], [[0.75, 0.25], [0.25, 0.5]])
    ]
    problem = eh.CoupledMDP(arms, [1.0], 0.999, floors=[0.4, 0.3])
    check(scaled_case(problem, "discounted", "arms", unit, welfare), welfare, method)


@pytest.mark.parametrize("method", ["joint", "counts"])
def test_leximin_of_one_small_value_among_large_ones(method):
    """A small level that was fixed could fall by a share of the largest value."""
    moves = [[[0.5, 0.5], [0.75, 0.25]], [[0.25, 0.75], [0.5, 0.5]]]
    rewards = ([[0.75, 0.5], [0.25, 0.625]], [[0.625, 0.25], [0.5, 0.375]], [[8750.0, 7500.0], [6000.0, 8000.0]])
    problem = eh.CoupledMDP([eh.Arm(moves, table, [[0.0], [1.0]]) for table in rewards], [1.0], 0.9)
    case = Case(problem, "finite:1", "arms")
    best = Case(in_units(problem, 1e-4), "finite:1", "arms").optimum("leximin").members * 1e4
    found = np.sort(case.solve("leximin", method).values)
    assert found == pytest.approx(best, rel=1e-6)


def test_a_program_that_stalls_on_infeasible_floors_is_reported_as_infeasible():
    """HiGHS ended in an error, which was passed on as if the floors were possible."""
    problem = with_floors(seeded_problem(330, most_pairs=200, least_reward=1), "finite:7", "a hair above")
    with pytest.raises(InfeasibleError):
        eh.solve(replaced(problem, discount=0.5), "utilitarian", "joint-lp", criterion="finite:7")


@pytest.mark.parametrize(("method", "unit"), crossed(["joint", "counts"], [1e-3, 1.0, 1e4]))
def test_a_feasible_floor_of_all_the_time_is_satisfied(unit, method):
    """The value function of large rewards was a first guess for shares of time, and their bound lost its digits."""
    problem = replaced(seeded_problem(10769, most_pairs=200, least_reward=1), discount=0.999, floors=[1.0, 1.0])
    check(scaled_case(problem, "discounted", "groups", unit, "gini:2"), "gini:2", method)


def test_arms_with_periods_near_discount_one():
    """Rounding of large values, sustained by the period, held the bounds of dynamic programming apart for ever."""
    found = seeded_problem(102, most_pairs=64, least_reward=1, discounts=(0.0, 0.5, 0.9))
    solution = eh.solve(replaced(found, floors=None, discount=0.9995), "gini:2", "joint")
    assert solution.gap <= 1e-8


@pytest.mark.parametrize("method", ["joint", "counts"])
def test_floors_of_all_the_time_leave_a_smooth_welfare_its_digits(method):
    """Newton steps were lost in what all policies have of the floors alike, and 2000 rounds took hours."""
    problem = with_floors(seeded_problem(509, most_pairs=64, least_reward=1), "finite:7", "at the largest")
    check(Case(problem, "finite:7", "arms"), "nash", method)
