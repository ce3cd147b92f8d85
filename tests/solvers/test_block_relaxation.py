"""The relaxation by blocks agrees with the one in memory, and does not depend on workers or backend."""

import os
import signal
import tempfile

import parallel_tasks
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, NotConvergedError, OutOfDomainError
from evenhand.model import CoupledMDP, as_welfare
from evenhand.parallel import Pool
from evenhand.problems import random_coupled
from evenhand.solvers import solve_blocks, solve_fluid

from ..conftest import mentions

pytestmark = pytest.mark.xdist_group("ray")

WELFARES = ["gini:2", "gini:half=0.75", "utilitarian", "nash", "alpha:0.5", "maximin", "maximin:0.01", "leximin"]


def problem_of(num_arms=40, num_resources=1, seed=0):
    return random_coupled(num_arms, 3, num_types=num_arms, num_resources=num_resources, seed=seed)


def solved(problem, welfare, rows=8, **settings):
    with tempfile.TemporaryDirectory() as folder:
        eh.save(problem, f"{folder}/arms.parquet")
        return solve_blocks(eh.open_arms(f"{folder}/arms.parquet"), welfare, block_rows=rows, **settings)


def bits(solution):
    arrays = (solution.values, solution.weights, solution.prices, solution.use)
    return (solution.welfare, solution.upper_bound, solution.rounds, *(array.tobytes() for array in arrays))


@pytest.mark.parametrize("num_resources", [1, 2])
@pytest.mark.parametrize("welfare", WELFARES)
def test_as_in_memory(welfare, num_resources):
    problem = problem_of(30, num_resources)
    if welfare == "leximin" and num_resources > 1:
        with pytest.raises(NotApplicableError):
            solved(problem, welfare)
        return
    whole, found = solve_fluid(problem, welfare), solved(problem, welfare)
    assert found.welfare == pytest.approx(whole.welfare, rel=1e-9)
    assert found.upper_bound == pytest.approx(whole.upper_bound, rel=1e-9)
    assert found.gap <= 1e-4
    assert (found.use <= problem.budget * problem.criterion.total * (1 + 1e-12)).all()


@pytest.mark.parametrize("criterion", ["average", "finite:6"])
def test_under_other_criteria(criterion):
    problem = problem_of(12).with_criterion(criterion)
    found = solved(problem, "gini:2", 5)
    assert found.upper_bound >= solve_fluid(problem, "gini:2").welfare * (1 - 1e-9)
    assert found.gap <= 1e-4


def test_the_welfare_is_that_of_the_values():
    found = solved(problem_of(25), "gini:2")
    assert found.welfare == as_welfare("gini:2", 25)(found.values)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    num_arms=st.integers(2, 40),
    num_resources=st.integers(1, 2),
    welfare=st.sampled_from(WELFARES[:7]),
    rows=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_another_block_size_agrees_within_the_certified_gap(num_arms, num_resources, welfare, rows, seed):
    problem = problem_of(num_arms, num_resources, seed)
    first, second = (solved(problem, welfare, number) for number in (rows, num_arms))
    assert first.welfare <= second.upper_bound * (1 + 1e-12)
    assert second.welfare <= first.upper_bound * (1 + 1e-12)
    assert max(first.gap, second.gap) <= 1e-4


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(num_arms=st.integers(30, 80), levels=st.integers(16, 60), seed=st.integers(0, 10**6))
def test_a_coarse_grid_costs_accuracy_and_keeps_the_bounds_valid(num_arms, levels, seed):
    problem = problem_of(num_arms, 1, seed)
    coarse = solved(problem, "gini:half=0.75", 16, tolerance=0.1, num_levels=levels)
    fine = solve_fluid(problem, "gini:half=0.75", 1e-6)
    assert coarse.welfare <= fine.upper_bound * (1 + 1e-12)
    assert coarse.upper_bound >= fine.welfare * (1 - 1e-12)


def test_a_grid_too_coarse_for_the_tolerance_ends_soon():
    rounds = []
    settings = {"tolerance": 1e-9, "num_levels": 8, "progress": lambda number, gap: rounds.append(number)}
    with pytest.raises(NotConvergedError):
        solved(problem_of(80), "maximin:0.1", 40, **settings)
    assert rounds[-1] < 60  # the same prices are not tried again


def test_rows_that_stand_for_several_arms():
    problem = CoupledMDP(problem_of(9).arms, budget=[7.0], discount=0.9, counts=[1, 5, 2, 7, 1, 1, 3, 2, 4])
    assert solved(problem, "gini:2", 2).welfare == pytest.approx(solve_fluid(problem, "gini:2").welfare, rel=1e-9)


def test_arms_of_many_sizes():
    parts = [random_coupled(6, size, num_types=6, seed=size) for size in (2, 3, 5)]
    problem = CoupledMDP([arm for part in parts for arm in part.arms], budget=[4.0], discount=0.9)
    assert solved(problem, "gini:2", 4).welfare == pytest.approx(solve_fluid(problem, "gini:2").welfare, rel=1e-9)


@pytest.fixture(scope="module")
def two_processes():
    with Pool("processes:2") as pool:
        yield pool


@pytest.fixture(scope="module")
def two_actors(small_ray):
    with Pool("ray", num_workers=2) as pool:
        yield pool


@pytest.mark.parametrize("workers", ["two_processes", "two_actors"])
@pytest.mark.parametrize(("welfare", "num_resources"), [("gini:2", 1), ("gini:half=0.75", 2), ("nash", 1)])
def test_backends_agree_to_the_last_bit(workers, welfare, num_resources, request):
    problem = problem_of(40, num_resources)
    there = solved(problem, welfare, backend=request.getfixturevalue(workers))
    assert bits(there) == bits(solved(problem, welfare)) == bits(solved(problem, welfare, backend="threads:3"))


@pytest.mark.parametrize("workers", ["two_processes", "two_actors"])
def test_a_killed_worker_changes_nothing(workers, request):
    problem = problem_of(60, 2)
    pool = request.getfixturevalue(workers)
    expected = bits(solved(problem, "gini:half=0.75"))
    victim = pool.blocks([parallel_tasks.Numbers(0, 1)]).map(parallel_tasks.process_of_block)[0]
    rounds = []

    def kill_in_round_two(number, gap):
        rounds.append(number)
        if number == 2:
            os.kill(victim, signal.SIGKILL)

    assert bits(solved(problem, "gini:half=0.75", backend=pool, progress=kill_in_round_two)) == expected
    assert rounds[-1] > 2


def test_invalid_arguments():
    with pytest.raises(InvalidInputError, check=mentions("tolerance", 2.0)):
        solved(problem_of(4), "gini:2", tolerance=2.0)
    with pytest.raises(InvalidInputError, check=mentions("backend", "moon")):
        solved(problem_of(4), "gini:2", backend="moon")


def test_values_outside_the_domain_are_refused():
    arms = [eh.Arm(arm.transitions, arm.rewards - 2.0, arm.usage, arm.initial) for arm in problem_of(5).arms]
    with pytest.raises(OutOfDomainError):
        solved(CoupledMDP(arms, budget=[1.0], discount=0.9), "nash")


@pytest.mark.slow
def test_memory_of_the_driver_is_small_per_arm(tmp_path):
    """Many rows: values, weights and their ranks take some hundred bytes per row at most."""
    import tracemalloc

    problem = problem_of(3000)
    solved(problem, "gini:2", 500)
    tracemalloc.start()
    solved(problem, "gini:2", 500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000 * 3000
