"""The relaxation by shards: as in memory, and the same to the last bit wherever and however the work is done."""

import os
import signal
import subprocess
import sys

import numpy as np
import pieces
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InvalidInput, NotApplicable, NotConverged, OutOfDomain
from evenhand.execution.local import InProcess, processes
from evenhand.execution.on_ray import ray_cluster
from evenhand.model.coupled import CoupledMDP
from evenhand.model.welfare import as_welfare
from evenhand.problems.random_arms import random_coupled
from evenhand.solvers.fluid import solve_fluid
from evenhand.solvers.sharded import grid, solve_sharded
from evenhand.solvers.sharded.sources import InMemory, InTable

pytestmark = pytest.mark.xdist_group("ray")

WELFARES = ["gini:2", "gini:half=0.75", "utilitarian", "nash", "alpha:0.5", "maximin", "maximin:0.01", "leximin"]


def problem_of(num_arms=40, num_resources=1, seed=0):
    return random_coupled(num_arms, 3, num_types=num_arms, num_resources=num_resources, seed=seed)


def bits(solution):
    arrays = (solution.values, solution.weights, solution.prices, solution.use)
    return (solution.welfare, solution.upper_bound, solution.rounds, *(array.tobytes() for array in arrays))


class Shuffled(InProcess):
    """An executor whose shards answer in a random order."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def place(self, recipes):
        shards, rng = super().place(recipes), self.rng
        plain = shards.answers

        def answers(do, *common, each=None):
            found = list(plain(do, *common, each=each))
            return iter([found[i] for i in rng.permutation(len(found))])

        shards.answers = answers
        return shards


@pytest.mark.parametrize("num_resources", [1, 2])
@pytest.mark.parametrize("welfare", WELFARES)
def test_as_in_memory(welfare, num_resources):
    if welfare == "leximin" and num_resources > 1:
        pytest.skip("told in words, see below")
    problem = problem_of(30, num_resources)
    whole, sharded = solve_fluid(problem, welfare), solve_sharded(InMemory(problem, 8), welfare, num_shards=3)
    assert sharded.welfare == pytest.approx(whole.welfare, rel=1e-9)
    assert sharded.upper_bound == pytest.approx(whole.upper_bound, rel=1e-9)
    assert sharded.gap <= 1e-4
    assert (sharded.use <= problem.budget * problem.criterion.total).all()


@pytest.mark.parametrize("criterion", ["average", "finite:6"])
def test_under_other_criteria(criterion):
    problem = problem_of(12).with_criterion(criterion)
    sharded = solve_sharded(InMemory(problem, 5), "gini:2", num_shards=2)
    assert sharded.upper_bound >= solve_fluid(problem, "gini:2").welfare * (1 - 1e-9)
    assert sharded.gap <= 1e-4
    assert bits(sharded) == bits(solve_sharded(InMemory(problem, 5), "gini:2", num_shards=3))


def test_the_welfare_and_the_use_are_those_of_the_values():
    problem = problem_of(25)
    solution = solve_sharded(problem, "gini:2")
    assert solution.welfare == as_welfare("gini:2", 25)(solution.values)


@given(
    num_arms=st.integers(2, 40),
    num_resources=st.integers(1, 2),
    welfare=st.sampled_from(WELFARES[:7]),
    shards=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 10**6),
)
def test_neither_shards_nor_the_order_of_arrival_change_a_bit(num_arms, num_resources, welfare, shards, seed):
    problem = problem_of(num_arms, num_resources, seed)
    first, second = (
        solve_sharded(InMemory(problem, 4), welfare, on=Shuffled(seed + number), num_shards=number) for number in shards
    )
    assert bits(first) == bits(second)


@given(num_arms=st.integers(30, 80), levels=st.integers(8, 30), seed=st.integers(0, 10**6))
def test_a_coarse_grid_costs_accuracy_and_never_truth(num_arms, levels, seed):
    problem = problem_of(num_arms, 1, seed)
    usual = grid.NUM_LEVELS
    try:
        grid.NUM_LEVELS = levels
        coarse = solve_sharded(InMemory(problem, 16), "gini:half=0.75", tolerance=0.05, num_shards=2)
    finally:
        grid.NUM_LEVELS = usual
    fine = solve_fluid(problem, "gini:half=0.75", 1e-6)
    assert coarse.welfare <= fine.upper_bound * (1 + 1e-12)
    assert coarse.upper_bound >= fine.welfare * (1 - 1e-12)


def test_a_grid_too_coarse_for_the_tolerance_is_told_soon(monkeypatch):
    monkeypatch.setattr(grid, "NUM_LEVELS", 8)
    rounds = []
    with pytest.raises(NotConverged, match="ask for a larger tolerance") as told:
        solve_sharded(problem_of(80), "maximin:0.1", tolerance=1e-9, progress=lambda number, gap: rounds.append(number))
    assert rounds[-1] < 60  # the same prices are not asked again and again
    assert "relaxation is 0 " not in str(told.value)


def test_rows_that_stand_for_several_arms():
    problem = CoupledMDP(problem_of(9).arms, budget=[7.0], discount=0.9, counts=[1, 5, 2, 7, 1, 1, 3, 2, 4])
    sharded = solve_sharded(InMemory(problem, 2), "gini:2", num_shards=4)
    assert sharded.welfare == pytest.approx(solve_fluid(problem, "gini:2").welfare, rel=1e-9)


def test_arms_of_many_sizes():
    parts = [random_coupled(6, size, num_types=6, seed=size) for size in (2, 3, 5)]
    problem = CoupledMDP([arm for part in parts for arm in part.arms], budget=[4.0], discount=0.9)
    sharded = solve_sharded(InMemory(problem, 4), "gini:2", num_shards=5)
    assert sharded.welfare == pytest.approx(solve_fluid(problem, "gini:2").welfare, rel=1e-9)
    assert bits(sharded) == bits(solve_sharded(InMemory(problem, 4), "gini:2", num_shards=1))


def test_from_a_table(tmp_path):
    problem = problem_of(40)
    eh.save(problem, tmp_path / "arms.parquet")
    stored = eh.open_arms(tmp_path / "arms.parquet")
    here = solve_sharded(InTable(stored, 8), "gini:2", num_shards=3)
    assert here.welfare == pytest.approx(solve_fluid(problem, "gini:2").welfare, rel=1e-9)
    assert bits(here) == bits(solve_sharded(InTable(stored, 8), "gini:2", num_shards=5))


@pytest.fixture(scope="module")
def two_processes():
    with processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def two_actors(small_ray):
    with ray_cluster(num_workers=2) as executor:
        yield executor


@pytest.mark.parametrize("workers", ["two_processes", "two_actors"])
@pytest.mark.parametrize(("welfare", "num_resources"), [("gini:2", 1), ("gini:half=0.75", 2), ("nash", 1)])
def test_executors_agree_to_the_last_bit(workers, welfare, num_resources, request):
    problem = problem_of(40, num_resources)
    executor = request.getfixturevalue(workers)
    there = solve_sharded(InMemory(problem, 8), welfare, on=executor, num_shards=3)
    assert bits(there) == bits(solve_sharded(InMemory(problem, 8), welfare))


@pytest.mark.parametrize("workers", ["two_processes", "two_actors"])
def test_a_killed_worker_costs_time_and_nothing_else(workers, request):
    problem = problem_of(60, 2)
    executor = request.getfixturevalue(workers)
    calm = bits(solve_sharded(InMemory(problem, 8), "gini:half=0.75"))
    victims = [pid for _, pid in executor.run(pieces.process, [0, 1])]
    rounds = []

    def kill_in_round(number, gap):
        rounds.append(number)
        if number == 2:
            os.kill(victims[0], signal.SIGKILL)

    found = solve_sharded(InMemory(problem, 8), "gini:half=0.75", on=executor, num_shards=4, progress=kill_in_round)
    assert bits(found) == calm
    assert found.num_replaced >= 1
    assert rounds[-1] > 2


KILLED = """
import os, signal, sys
import evenhand as eh
from evenhand.solvers.sharded import solve_sharded
from evenhand.solvers.sharded.sources import InTable

def progress(number, gap):
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)

table, checkpoint = sys.argv[1:]
source = InTable(eh.open_arms(table), 8)
solve_sharded(source, "gini:half=0.75", checkpoint=checkpoint, progress=progress)
"""


def test_a_killed_driver_goes_on_from_its_checkpoint(tmp_path):
    table, checkpoint = tmp_path / "arms.parquet", tmp_path / "search.npz"
    eh.save(problem_of(40, 2), table)
    source = InTable(eh.open_arms(table), 8)
    calm = solve_sharded(source, "gini:half=0.75")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(table), str(checkpoint)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert checkpoint.exists()
    rounds = []
    found = solve_sharded(
        source,
        "gini:half=0.75",
        checkpoint=checkpoint,
        num_shards=2,
        progress=lambda number, gap: rounds.append(number),
    )
    assert rounds[0] == 4
    assert bits(found) == bits(calm)
    assert list(tmp_path.glob("*")) == [table]  # nothing is left behind


def test_checkpoints_of_something_else_are_refused(tmp_path):
    problem, checkpoint = problem_of(40, 2), tmp_path / "search.npz"

    def stop(number, gap):
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_sharded(problem, "gini:2", checkpoint=checkpoint, progress=stop)
    with pytest.raises(InvalidInput, match="another problem, welfare, tolerance or version"):
        solve_sharded(problem, "gini:1.5", checkpoint=checkpoint)
    with pytest.raises(InvalidInput, match="another problem"):
        solve_sharded(problem.with_budget([1.0, 1.0]), "gini:2", checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        solve_sharded(problem, "gini:2", checkpoint=checkpoint)


def test_what_is_not_solved_by_shards_is_told():
    grouped = CoupledMDP(problem_of(4).arms, budget=[1.0], discount=0.9, groups=list("aabb"), over="groups")
    with pytest.raises(NotApplicable, match="groups and floors"):
        solve_sharded(grouped, "gini:2")
    with pytest.raises(NotApplicable, match="leximin"):
        solve_sharded(problem_of(4, 2), "leximin")
    with pytest.raises(InvalidInput, match="tolerance"):
        solve_sharded(problem_of(4), "gini:2", tolerance=2.0)
    with pytest.raises(InvalidInput, match="num_shards"):
        solve_sharded(problem_of(4), "gini:2", num_shards=0)
    with pytest.raises(InvalidInput, match="on: expected"):
        solve_sharded(problem_of(4), "gini:2", on="moon")


def test_values_out_of_the_domain_are_told():
    arms = [eh.Arm(arm.transitions, arm.rewards - 2.0, arm.usage, arm.initial) for arm in problem_of(5).arms]
    with pytest.raises(OutOfDomain, match="needs positive values"):
        solve_sharded(CoupledMDP(arms, budget=[1.0], discount=0.9), "nash")
