"""The dynamic program on counts against the explicit count table, and every compiled kernel against NumPy."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import NotConvergedError, TooLargeError
from evenhand.kernels import (
    lattice_below,
    lattice_index,
    lattice_points,
    lattice_size,
    lattice_sweeps,
    lattice_tables,
    multinomial_probabilities,
    splits,
)
from evenhand.model import Arm, CoupledMDP
from evenhand.problems import crew_maintenance, machine_replacement, random_coupled, three_states
from evenhand.solvers import (
    SMALL,
    CountOptimum,
    Counts,
    occupancy_measure,
    plan_counts,
    solve_counts,
    solve_weighted,
    total_visits,
)

from ..conftest import mentions, slow_after
from ..oracles import lattice_sweeps as plain_sweeps
from ..oracles.count_allocations import allocations_of


def solve(problem: CoupledMDP, tolerance: float = 1e-8, small: float = 0) -> CountOptimum:
    return solve_counts(plan_counts(problem, small), problem.types.initial[0], tolerance)


def value_of_choices(problem: CoupledMDP, optimum: CountOptimum) -> float:
    """The value of the returned policy, from the explicit table by a linear system."""
    counts = Counts(problem)
    allocations = allocations_of(problem, optimum)
    assert (allocations >= 0).all()
    assert np.array_equal(allocations.sum(axis=2), counts.states[:, 0])
    used = np.einsum("xsa,sak->xk", allocations, problem.types.usage[0])
    assert (used <= problem.budget_limit + 1e-12).all()
    table = counts.tabulate(np.arange(counts.num_states), allocations[:, None])
    return float(total_visits(occupancy_measure(table, np.ones(table.num_pairs))) @ table.rewards[:, 0])


def check_against_table(problem: CoupledMDP, tolerance: float = 1e-8, small: float = 0) -> CountOptimum:
    optimum = solve(problem, tolerance, small)
    exact = solve_weighted(Counts(problem).mdp, np.ones(1), tolerance=1e-12)
    slack = 1e-10 * max(1.0, abs(exact.upper_bound))
    assert optimum.lower_bound <= exact.upper_bound + slack
    assert optimum.upper_bound >= exact.lower_bound - slack
    assert optimum.upper_bound - optimum.lower_bound <= tolerance * abs(optimum.upper_bound)
    played = value_of_choices(problem, optimum)
    assert optimum.lower_bound - slack <= played <= optimum.upper_bound + slack
    return optimum


def two_idle_actions(num_arms: int, seed: int) -> CoupledMDP:
    """Arms with two idle actions that move differently, and one more with the row of the first."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(3), size=(3, 4))
    rows[:, 3] = rows[:, 0]
    arm = Arm(transitions=rows, rewards=rng.random((3, 4)), usage=[[0.0], [0.0], [1.0], [0.0]])
    return CoupledMDP(arms=[arm], budget=[2.0], discount=0.9, counts=[num_arms])


PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=12, budget=2),
    "machines, five states": lambda: machine_replacement(num_arms=6, num_states=5, budget=2),
    "machines, pure reset": lambda: machine_replacement(num_arms=9, budget=2, reset="pure"),
    "machines that may fail to reset": lambda: machine_replacement(num_arms=9, budget=3, reset_probability=0.7),
    "machines, pure and failing": lambda: machine_replacement(
        num_arms=7, budget=2, reset="pure", reset_probability=0.6
    ),
    "machines, ample budget": lambda: machine_replacement(num_arms=8, budget=50),
    "machines, no budget": lambda: machine_replacement(num_arms=8, budget=0),
    "machines, one arm": lambda: machine_replacement(num_arms=1, budget=1),
    "crew": lambda: crew_maintenance(num_arms=7, num_states=4, num_types=1),
    "two states": lambda: random_coupled(num_arms=15, num_states=2, budget=4, seed=3),
    "dense": lambda: random_coupled(num_arms=8, num_states=3, budget=4, seed=1),
    "dense, state-dependent": lambda: random_coupled(
        num_arms=7, num_states=3, num_actions=3, num_resources=2, budget=4, state_dependent_usage=True, seed=2
    ),
    "dense, real usage": lambda: random_coupled(
        num_arms=6, num_states=3, num_actions=3, integer_usage=False, budget=4.2, seed=5
    ),
    "dense, four states": lambda: random_coupled(num_arms=6, num_states=4, budget=4, seed=6),
    "sparse": lambda: random_coupled(num_arms=7, num_states=4, sparsity=0.6, budget=3, seed=7),
    "deterministic": lambda: random_coupled(num_arms=6, num_states=4, sparsity=1.0, budget=3, seed=8),
    "one state": lambda: random_coupled(num_arms=6, num_states=1, num_actions=3, budget=5, seed=9),
    "two idle actions": lambda: two_idle_actions(5, seed=0),
    "no discount": lambda: machine_replacement(num_arms=6, budget=2, discount=0.0),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_agrees_with_the_explicit_table(name):
    by_sweeps = check_against_table(PROBLEMS[name]())
    by_tables = check_against_table(PROBLEMS[name](), small=np.inf)
    assert by_tables.upper_bound == pytest.approx(by_sweeps.upper_bound, rel=1e-8)


@given(
    num_arms=st.integers(1, 7),
    num_states=st.integers(2, 3),
    num_actions=st.integers(2, 3),
    num_resources=st.integers(1, 2),
    sparsity=st.sampled_from([0.0, 0.5, 0.9]),
    budget=st.floats(0.0, 6.0),
    integer=st.booleans(),
    by_state=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_agrees_on_random_problems(
    num_arms, num_states, num_actions, num_resources, sparsity, budget, integer, by_state, seed
):
    problem = random_coupled(
        num_arms=num_arms,
        num_states=num_states,
        num_actions=num_actions,
        num_resources=num_resources,
        sparsity=sparsity,
        budget=budget,
        integer_usage=integer,
        state_dependent_usage=by_state,
        discount=0.9,
        seed=seed,
    )
    check_against_table(problem)
    check_against_table(problem, small=SMALL)


PAPER = {
    "exponential": [14.1859, 14.0793, 13.9430, 13.7670],
    "quadratic": [16.1725, 16.0969, 16.0092, 15.9101],
}


@pytest.mark.parametrize(("cost", "num_arms"), list(product(PAPER, range(2, 6))))
def test_optima_of_the_paper(cost, num_arms):
    optimum = solve(machine_replacement(num_arms=num_arms, operating_cost=cost, budget=1), small=SMALL)
    assert optimum.lower_bound == pytest.approx(PAPER[cost][num_arms - 2], abs=5e-5)
    assert optimum.upper_bound == pytest.approx(PAPER[cost][num_arms - 2], abs=5e-5)


@pytest.mark.parametrize("name", ["machines", "machines that may fail to reset", "dense, state-dependent"])
def test_distributions_serve_without_splits(name, monkeypatch):
    problem = PROBLEMS[name]()
    by_splits = solve(problem)
    monkeypatch.setattr("evenhand.solvers.counts.post_decision.factorise", lambda matrix: None)
    by_laws = check_against_table(problem)
    assert by_laws.upper_bound == pytest.approx(by_splits.upper_bound, rel=1e-11)


def test_a_matrix_without_splits_is_told():
    """A cyclic matrix with zeros on its diagonal has none: no row is a mixture of others, nor is a column."""
    matrix = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    assert splits.factorise(matrix) is None
    rng = np.random.default_rng(0)
    rows = np.stack([matrix, rng.dirichlet(np.ones(3), size=3)], axis=1)
    arm = Arm(transitions=rows, rewards=rng.random((3, 2)), usage=[[0.0], [1.0]])
    check_against_table(CoupledMDP(arms=[arm], budget=[2.0], discount=0.9, counts=[6]))


def test_more_arms_than_any_table_allows():
    """The bounds at N = 100 bracket the value that the choices have by a long run of their own operator."""
    problem = machine_replacement(num_arms=100, budget=10)
    optimum = solve(problem, tolerance=1e-6)
    plan = plan_counts(problem, small=0)
    slots, counts = plan.slots, plan.outcomes.points.astype(np.int64)
    amounts = optimum.choices
    reached = counts.copy()
    for cell, landing in enumerate(slots.landings):
        reached[:, slots.cells[cell, 0]] -= amounts[:, cell]
        reached[:, landing] += amounts[:, cell]
    follow = plan.outcomes.follow(lattice_index(reached))
    value = np.zeros(len(counts))
    for _ in range(500):
        value = counts @ plan.slots.base_rewards + amounts @ plan.slots.gains + 0.95 * follow(value)
    mean = multinomial_probabilities(counts, problem.types.initial[0]) @ value
    assert optimum.lower_bound - 1e-9 <= mean <= optimum.upper_bound + 1e-9


def test_the_plan_takes_the_cheap_roads():
    machines = plan_counts(machine_replacement(num_arms=50, budget=5)).algorithm
    assert machines.climb is not None
    assert machines.climb.num_units == 5
    assert machines.splits is not None
    assert len(machines.splits[0]) == 2
    assert len(machines.slots.cells) == 2  # replacing a new machine is dominated
    failing = plan_counts(machine_replacement(num_arms=20, budget=3, reset_probability=0.7)).algorithm
    assert failing.mixtures is not None
    pure = plan_counts(machine_replacement(num_arms=20, budget=3, reset="pure")).algorithm
    assert pure.mixtures is None
    assert len(pure.extras) == 4


def test_work_is_told_before_it_is_done():
    problem = machine_replacement(num_arms=1000, budget=100)
    plan = plan_counts(problem)
    assert plan.num_points == comb(1002, 2)
    assert 1e7 < plan.size_in_bytes < 1e9
    assert 1e9 < plan.operations < 1e12
    small = plan_counts(machine_replacement(num_arms=100, budget=10))
    assert small.num_points < plan.num_points
    assert small.size_in_bytes < plan.size_in_bytes
    assert small.operations < plan.operations


def test_refuses_what_is_too_large():
    with pytest.raises(TooLargeError):
        solve(machine_replacement(num_arms=10**6, budget=10))
    with pytest.raises(TooLargeError, check=mentions("allocations")):
        solve(random_coupled(num_arms=300, num_states=4, num_actions=3, budget=300, seed=0))


def test_ends_as_close_as_rounding_allows_or_with_an_error():
    plan, initial = plan_counts(machine_replacement(num_arms=3)), np.ones(3) / 3
    finest = solve_counts(plan, initial, tolerance=1e-16)  # as fine as rounding allows
    assert 0 < finest.upper_bound - finest.lower_bound < 1e-10
    with pytest.raises(NotConvergedError, check=mentions("1 rounds")):
        solve_counts(plan, initial, most_rounds=1)


def test_progress_is_reported():
    seen: list[tuple[int, float]] = []
    problem = machine_replacement(num_arms=10, budget=1)
    optimum = solve_counts(
        plan_counts(problem), problem.types.initial[0], progress=lambda number, gap: seen.append((number, gap))
    )
    assert [number for number, _ in seen] == list(range(1, optimum.rounds + 1))
    assert seen[-1][1] <= 1e-7 < seen[-2][1]


# -- kernels ---------------------------------------------------------------------------------------------------------


def split_by_hand(function, num_arms, num_states, source, target, p):
    """(E f)(z) by its sum, one point at a time."""
    points = lattice_points(num_arms, num_states)
    result = np.zeros(len(points))
    for number, z in enumerate(points):
        for k in range(z[source] + 1):
            moved = z.copy()
            moved[source] -= k
            moved[target] += k
            chance = comb(int(z[source]), k) * p**k * (1 - p) ** (z[source] - k)
            result[number] += chance * function[lattice_index(moved)]
    return result


@pytest.mark.parametrize("kernels", [lattice_sweeps, plain_sweeps])
@pytest.mark.parametrize(("source", "target", "p"), [(0, 2, 0.3), (1, 0, 0.9), (2, 1, 1.0), (0, 1, 0.0)])
def test_a_sweep_is_a_split(kernels, source, target, p):
    rng = np.random.default_rng(0)
    functions = rng.random((2, comb(11, 2)))
    lines = splits.lattice_lines(9, 3, source, target)
    swept = kernels.sweep_lines(functions, lines, splits.binomial_bands(9, p))
    for function, result in zip(functions, swept, strict=True):
        assert result == pytest.approx(split_by_hand(function, 9, 3, source, target, p), abs=1e-13)


def test_a_wide_sweep_compiled_is_the_plain_one():
    functions = np.random.default_rng(0).random((3, comb(82, 2)))
    lines, bands = splits.lattice_lines(80, 3, 0, 2), splits.binomial_bands(80, 0.2)
    assert (np.diff(bands.starts) < 81).any()
    plain = plain_sweeps.sweep_lines(functions, lines, bands)
    assert lattice_sweeps.sweep_lines(functions, lines, bands) == pytest.approx(plain, abs=1e-12)


@given(num_states=st.integers(1, 4), seed=st.integers(0, 10**6), kind=st.sampled_from(["acyclic", "chain", "dense"]))
def test_factors_multiply_to_the_matrix(num_states, seed, kind):
    rng = np.random.default_rng(seed)
    matrix = rng.random((num_states, num_states))
    if kind == "acyclic":
        shuffle = rng.permutation(num_states)
        matrix = np.triu(matrix)[np.ix_(shuffle, shuffle)]
    if kind == "chain":  # with heavy diagonals, chains that go up and down by one are products too
        matrix = np.tril(np.triu(matrix, -1), 1) + 3 * np.eye(num_states)
    matrix /= matrix.sum(axis=1, keepdims=True)
    found = splits.factorise(matrix)
    if found is None:
        assert kind == "dense"
        assert num_states > 2
        return
    factors, ends = found
    product_ = np.eye(num_states)
    for source, target, p in factors:
        assert 0 < p <= 1
        split = np.eye(num_states)
        split[source, source], split[source, target] = 1 - p, p
        product_ = product_ @ split
    assert product_ @ np.eye(num_states)[ends] == pytest.approx(matrix, abs=1e-13)


def test_equal_rows_are_factorised():
    matrix = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    found = splits.factorise(matrix)
    assert found is not None
    assert splits.product_error(matrix, *found) < 1e-15


def test_laws_grow_alike():
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(3), size=3)
    law = np.ones((1, 1))
    for n in range(1, 8):
        points, below = lattice_points(n, 3), lattice_below(n, 3)
        leaving = (points > 0).argmax(axis=1).astype(np.int32)
        parent = below[np.arange(len(points)), leaving]
        plain = plain_sweeps.grow_distribution(law, rows, leaving, parent, below)
        assert lattice_sweeps.grow_distribution(law, rows, leaving, parent, below) == pytest.approx(plain, abs=1e-15)
        law = plain
    assert law.sum(axis=1) == pytest.approx(1.0, abs=1e-14)
    assert law @ lattice_points(7, 3) == pytest.approx(lattice_points(7, 3) @ rows, abs=1e-12)


@pytest.mark.parametrize("num_states", [1, 2, 3, 4])
def test_arms_are_mixed_alike(num_states):
    rng = np.random.default_rng(2)
    functions, rows = rng.random((5, lattice_size(7, num_states))), rng.dirichlet(np.ones(num_states), size=9)
    parent = rng.integers(5, size=9)
    plain = plain_sweeps.mix_arm(functions, rows, parent, lattice_points(6, num_states))
    fast = lattice_sweeps.mix_arm(functions, rows, parent, splits.lattice_arrivals(6, num_states))
    assert fast == pytest.approx(plain, abs=1e-14)


CELLS = {
    "to the first": (3, [1, 2], [0, 0], [1, 1], 4),
    "mixed units": (3, [1, 2], [0, 1], [2, 1], 5),
    "two of one state": (3, [2, 2], [0, 1], [1, 3], 6),
    "four states": (4, [1, 3, 2], [0, 0, 0], [1, 1, 1], 3),
    "down": (4, [0, 1], [3, 3], [1, 2], 4),
    "two states": (2, [0], [1], [1], 3),
}


@pytest.mark.parametrize("wide", slow_after(1, [np.int32, np.int64]))
@pytest.mark.parametrize("name", CELLS)
def test_climbing_finds_the_best_allocation(name, wide):
    """The wide codes are those of very large budgets; their kernels take seconds to compile, for the slow run alone."""
    num_states, sources, landings, units, num_units = CELLS[name]
    sources, landings, units = (np.array(part, dtype=np.int64) for part in (sources, landings, units))
    assert all(landing not in sources[k:] for k, landing in enumerate(landings))
    rng = np.random.default_rng(3)
    points = lattice_points(6, num_states)
    final, gains = rng.normal(size=len(points)), rng.normal(size=len(sources)) / 2
    strides = ((num_units + 1) ** np.arange(len(sources))).astype(wide)
    steps = splits.lattice_steps(points, sources, landings)
    best, code = plain_sweeps.climb_budget(final, gains, units, steps, strides, num_units)
    tables = lattice_tables(6, num_states)
    rest = (gains, sources, landings, num_units + 1, tables)
    amounts, worth, targets = plain_sweeps.decode_climb(points.astype(np.int32), code, *rest)

    assert (amounts @ units <= num_units).all()
    assert worth + final[targets] == pytest.approx(best, abs=1e-12)
    for number, x in enumerate(points):
        brute = -np.inf
        for u in product(range(num_units + 1), repeat=len(sources)):
            taken = np.bincount(sources, weights=u, minlength=num_states)
            if np.dot(u, units) <= num_units and (taken <= x).all():
                reached = x - taken + np.bincount(landings, weights=u, minlength=num_states)
                brute = max(brute, gains @ u + final[lattice_index(reached.astype(np.int64))])
        assert best[number] == pytest.approx(brute, abs=1e-12)

    fast_best, fast_code = lattice_sweeps.climb_budget(final, gains, units, steps, strides, num_units)
    assert fast_best == pytest.approx(best, abs=1e-12)
    assert np.array_equal(fast_code, code)


def test_listed_allocations_alike():
    plan = plan_counts(PROBLEMS["dense, state-dependent"](), small=0)
    worth = np.random.default_rng(4).random(plan.algorithm.num_outcomes)
    inputs = (plan.outcomes.points, plan.chooser.listed, plan.outcomes.tables, worth)
    faces = np.random.default_rng(4).integers(0, 2, len(plan.chooser.allocations))
    best, choice = plain_sweeps.best_listed(inputs[0], inputs[1]._replace(faces=faces), *inputs[2:])
    fast = lattice_sweeps.best_listed(inputs[0], inputs[1]._replace(faces=faces), *inputs[2:])
    assert fast[0] == pytest.approx(best, abs=1e-12)
    assert np.array_equal(fast[1], choice)
    best, choice = plain_sweeps.best_listed(*inputs)
    fast_best, fast_choice, deficits = lattice_sweeps.best_listed(*inputs)
    assert fast_best == pytest.approx(best, abs=1e-12)
    assert np.array_equal(fast_choice, choice)
    # Alone an allocation is its own best: the loss to the best of all, where it is possible.
    points, listed, *others = inputs
    for number in range(len(listed.gains)):
        able = (points >= listed.takes[number]).all(axis=1)
        one = type(listed)(*(column[[number]] for column in listed))
        loss = best[able] - lattice_sweeps.best_listed(points[able], one, *others)[0]
        assert deficits[number] == pytest.approx(loss.min(initial=np.inf), abs=1e-12)


def test_eliminated_allocations_were_not_best():
    plan, rng = plan_counts(PROBLEMS["dense, state-dependent"](), small=0), np.random.default_rng(5)
    value, eliminated = rng.random(plan.num_points), 0
    for _ in range(12):
        worse = plan.chooser.deficits > 0.9 * np.ptp(value - plan.chooser.last) + 1e-8
        best, choice = plan.chooser.improve(value, 0.9)
        all_best, all_choice = type(plan.chooser)(plan.outcomes).improve(value, 0.9)
        assert best == pytest.approx(all_best, abs=1e-12)
        assert np.array_equal(choice.targets, all_choice.targets)
        value, eliminated = value + 1e-3 * rng.random(plan.num_points), eliminated + worse.sum()
    assert eliminated > 0


@pytest.mark.parametrize("seed", range(6))
def test_dominated_allocations_are_not_best(seed):
    """At any value function the maximum over all allocations is that without the dominated ones."""
    rng = np.random.default_rng(seed)
    arm = Arm(rng.dirichlet(np.ones(3), size=(3, 3)), rng.random((3, 3)), [[0, 0], [1, seed % 2], [seed % 3, 1]])
    plan = plan_counts(CoupledMDP(arms=[arm], budget=[3.0, 2.0], discount=0.9, counts=[7]), small=0)
    points, outcomes, listed = plan.outcomes.points, plan.outcomes, plan.chooser.listed
    dominated = 0
    for curved in (0.0, 0.01, 0.1):
        value = points @ rng.random(3) + curved * rng.random(len(points))
        best, choice = type(plan.chooser)(outcomes).improve(value, 0.9)
        all_best, number, _ = lattice_sweeps.best_listed(points, listed, outcomes.tables, 0.9 * outcomes.expect(value))
        assert best == pytest.approx(all_best, abs=1e-12)
        assert np.array_equal(choice.amounts, plan.chooser.allocations[number])
        assert outcomes.follow(choice.targets)(value) == pytest.approx(
            outcomes.expect(value)[choice.targets], abs=1e-12
        )
        for more in ({"most": 50.0}, {"trusted": frozenset()}):  # part by part, and without dominance
            again, other = type(plan.chooser)(outcomes).improve(value, 0.9, **more)
            assert again == pytest.approx(all_best, abs=1e-12)
            assert other.gains + 0.9 * outcomes.expect(value)[other.targets] == pytest.approx(all_best, abs=1e-12)
        found = plan.chooser.dominance.find(plan.chooser.dominance.margins(value, 0.9), 1e-9)
        dominated += np.count_nonzero(found.faces) + np.count_nonzero(found.nowhere)
    assert dominated > 0


@pytest.mark.parametrize("criterion", ["discounted", "average"])
@pytest.mark.parametrize("spend", ["at most", "all"])
@pytest.mark.parametrize(
    "false", [{(0, -1), (-1, 0)}, {(0, -1), (-1, 0), (1, -1), (-1, 1)}, {(1, 0), (-1, 1)}, {(0, 1)}]
)
def test_false_rules_of_dominance_change_nothing(criterion, spend, false):
    rng = np.random.default_rng(2)
    rewards = [[1, 0], [0, 0], [0, -1]]  # with ties
    arm = Arm(rng.dirichlet(np.ones(3), size=(3, 2)), rewards, [[0], [1]])
    problem = CoupledMDP([arm], [3.0], 0.9, counts=[6], spend=spend).with_criterion(criterion)
    plan, initial = plan_counts(problem, 0), problem.types.initial[0]
    plan.__dict__["trusted"] = frozenset(false)
    found, exact = (solve_counts(one, initial, 1e-9) for one in (plan, plan_counts(problem, np.inf)))
    assert found.upper_bound == pytest.approx(exact.upper_bound, rel=1e-7)
    assert found.lower_bound == pytest.approx(exact.upper_bound, rel=1e-7)


def test_memory_without_splits_counts_faces_alone():
    plan, few = (plan_counts(three_states(number, 3)) for number in (100, 40))
    assert plan.algorithm.splits is None
    assert plan.rules(0.0)
    assert plan.law_entries < 0.1 * sum(float(plan.algorithm.size_of(t)) ** 2 for t in plan.algorithm.base_levels)
    solve_counts(plan, plan.arm.initial, 1e-6)
    assert sum(law.size for laws in plan.outcomes.on_faces.values() for law in laws.laws.values()) <= plan.law_entries
    # Where no rule is known, every table counts.
    assert few.law_entries == sum(float(few.algorithm.size_of(t)) ** 2 for t in few.algorithm.base_levels)


def test_points_without_an_arm():
    for x, below in zip(lattice_points(3, 3), lattice_below(3, 3), strict=True):
        for state, number in enumerate(below):
            assert number == (-1 if x[state] == 0 else lattice_index(x - np.eye(3, dtype=np.int64)[state]))
