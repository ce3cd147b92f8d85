"""Who is served: against the plain greedy choice, and the compiled twins against NumPy bit for bit."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from evenhand.kernels import assign_uniformly as assign_compiled
from evenhand.kernels import bits_at
from evenhand.kernels.rank_tables import rank_tables
from evenhand.model import CoupledMDP
from evenhand.problems import random_coupled

from ..oracles.greedy_service import assign_uniformly, serve_by_rank


def serve_compiled(type_of_arm, ranks, usage, idle, limit, states, key, stop, shuffle, drawn=None, drawn_ranks=None):
    own = None if drawn_ranks is None else (drawn_ranks, np.zeros(drawn_ranks.shape))
    tables = rank_tables(type_of_arm, ranks, usage, idle, limit, stop, shuffle, own)
    return tables.serve(states, key, drawn)


SERVE = [serve_by_rank, serve_compiled]
ASSIGN = [assign_uniformly, assign_compiled]


def random_ranks(problem, seed, num_ranks):
    """Ranks from -1 on for everything but the idle action."""
    types = problem.types
    rng = np.random.default_rng(seed)
    ranks = rng.integers(-1, num_ranks, types.valid.shape).astype(np.int32)
    kinds, states = np.indices(types.idle.shape)
    ranks[~types.valid] = -1
    ranks[kinds, states, types.idle] = -1
    return ranks


def random_states(problem, num_episodes, seed):
    sizes = problem.types.num_states[problem.type_of_arm]
    return np.random.default_rng(seed).integers(0, sizes, (num_episodes, problem.num_arms)).astype(np.int32)


def call(serve, problem, ranks, states, key=5, stop=False, shuffle=True):
    types = problem.types
    limit = problem.budget_limit
    return serve(problem.type_of_arm, ranks, types.usage, types.idle, limit, states, np.uint64(key), stop, shuffle)


def greedy(problem, ranks, states, key, shuffle):
    """One episode after the other: pick the best candidate that fits until there is none."""
    actions = problem.types.idle[problem.type_of_arm, states].copy()
    width = problem.num_arms * ranks.shape[2]
    for e in range(len(states)):
        left, served = problem.budget_limit.copy(), set()
        while True:
            candidates = []
            for n, kind in enumerate(problem.type_of_arm):
                for a in range(ranks.shape[2]):
                    need = problem.types.usage[kind, states[e, n], a]
                    if n not in served and ranks[kind, states[e, n], a] >= 0 and (need <= left).all():
                        place = e * width + n * ranks.shape[2] + a
                        tie = int(bits_at(np.uint64(key), np.array([place], dtype=np.uint64))[0]) if shuffle else place
                        candidates.append((ranks[kind, states[e, n], a], tie, n, a))
            if not candidates:
                break
            _, _, n, a = min(candidates)
            served.add(n)
            actions[e, n] = a
            left -= problem.types.usage[problem.type_of_arm[n], states[e, n], a]
    return actions


@pytest.mark.parametrize("serve", SERVE)
@pytest.mark.parametrize("shuffle", [True, False])
def test_it_is_the_greedy_choice(small_problem, serve, shuffle):
    states = random_states(small_problem, 8, 3)
    for seed in range(4):
        ranks = random_ranks(small_problem, seed, 1 + seed)
        expected = greedy(small_problem, ranks, states, 5, shuffle)
        got = call(serve, small_problem, ranks, states, shuffle=shuffle)
        assert got.dtype == np.int32
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_compiled_and_numpy_agree_bit_for_bit(stop, shuffle):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = random_coupled(
            num_arms=int(rng.integers(1, 15)),
            num_states=int(rng.integers(1, 5)),
            num_actions=int(rng.integers(2, 4)),
            num_resources=int(rng.integers(1, 4)),
            integer_usage=bool(seed % 2),
            state_dependent_usage=True,
            seed=seed,
        )
        ranks = random_ranks(problem, seed, int(rng.integers(1, 6)))
        states = random_states(problem, 40, seed)
        twins = [call(serve, problem, ranks, states, seed + 100, stop, shuffle) for serve in SERVE]
        assert np.array_equal(*twins), seed


def test_twins_agree_where_both_of_two_actions_have_ranks():
    """An arm may then stand in several buckets, and must not be counted again when it is served."""
    rng = np.random.default_rng(0)
    for seed in range(60):
        kinds, states = rng.integers(2, size=8).astype(np.int32), rng.integers(3, size=(10, 8)).astype(np.int32)
        ranks = rng.integers(-1, 4, (2, 3, 2)).astype(np.int32)
        usage, idle = rng.integers(3, size=(2, 3, 2, 1)).astype(float), np.zeros((2, 3), np.int32)
        limit = np.array([4.0])
        for table in (kinds, usage, idle, limit):  # as those of a problem, for which the twin is compiled already
            table.setflags(write=False)
        given = (kinds, ranks, usage, idle, limit, states, np.uint64(seed), False, True)
        assert np.array_equal(*[serve(*given) for serve in SERVE]), seed


def test_twins_agree_on_ragged_types_with_stopping(small_problem):
    states = random_states(small_problem, 300, 1)
    ranks = np.minimum(random_ranks(small_problem, 0, 5), 0)
    twins = [call(serve, small_problem, ranks, states, stop=True) for serve in SERVE]
    assert np.array_equal(*twins)


@pytest.mark.parametrize("serve", SERVE)
def test_stopping_competes_as_one_candidate(problems, chi_square, serve):
    """One unit and three machines: idling and each machine are equally likely."""
    problem = problems["machines"]()
    states = np.tile(np.array([0, 1, 2], dtype=np.int32), (20_000, 1))
    ranks = np.full(problem.types.valid.shape, -1, dtype=np.int32)
    ranks[:, :, 1] = 0
    actions = call(serve, problem, ranks, states, stop=True)
    assert chi_square(np.bincount(actions @ [1, 2, 4], minlength=8), [1, 1, 1, 0, 1, 0, 0, 0]) > 1e-4


@pytest.mark.parametrize("serve", SERVE)
def test_nobody_is_served_without_a_rank(small_problem, serve):
    states = random_states(small_problem, 5, 0)
    ranks = np.full(small_problem.types.valid.shape, -1, dtype=np.int32)
    idle = small_problem.types.idle[small_problem.type_of_arm, states]
    assert np.array_equal(call(serve, small_problem, ranks, states), idle)


@pytest.mark.parametrize("serve", SERVE)
def test_ties_are_served_in_every_order_equally_often(serve, build_arm):
    """Two of four equal arms: each of the six pairs is equally likely."""
    problem = CoupledMDP([build_arm(0, 1, [[0], [1]])], budget=[2], discount=0.5, counts=[4])
    ranks = np.array([[[-1, 0]]], dtype=np.int32)
    actions = call(serve, problem, ranks, np.zeros((12_000, 4), dtype=np.int32))
    seen = Counter(map(tuple, actions.tolist()))
    assert len(seen) == 6 and set(map(sum, seen)) == {2}
    assert max(abs(number - 2000) for number in seen.values()) < 4 * np.sqrt(2000)


def random_allocations(problem, states, seed):
    """For each episode a random split of the arms of every cell over the actions."""
    rng = np.random.default_rng(seed)
    types = problem.types
    allocation = np.zeros((len(states), *types.valid.shape), dtype=np.int64)
    for e, n in np.ndindex(states.shape):
        kind = problem.type_of_arm[n]
        allocation[e, kind, states[e, n], rng.integers(types.num_actions[kind])] += 1
    return allocation


@pytest.mark.parametrize("assign", ASSIGN)
def test_an_assignment_realises_the_allocation(small_problem, assign):
    states = random_states(small_problem, 30, 4)
    allocation = random_allocations(small_problem, states, 5)
    actions = assign(small_problem.type_of_arm, states, allocation, np.uint64(9))
    counted = np.zeros_like(allocation)
    np.add.at(counted, (np.arange(30)[:, None], small_problem.type_of_arm, states, actions), 1)
    assert actions.dtype == np.int32 and np.array_equal(counted, allocation)


def test_assignments_agree_bit_for_bit():
    for seed in range(6):
        problem = random_coupled(9 * seed + 1, 1 + seed % 4, 2 + seed % 3, 1, 1 + seed % 2, seed=seed)
        states = random_states(problem, 50, seed)
        allocation = random_allocations(problem, states, seed)
        twins = [assign(problem.type_of_arm, states, allocation, np.uint64(seed)) for assign in ASSIGN]
        assert np.array_equal(*twins)


@pytest.mark.parametrize("assign", ASSIGN)
def test_every_assignment_is_equally_likely(assign, chi_square):
    """Five arms in one state, of which two get action 1 and one gets action 2: 30 ways."""
    ways = sorted(set(permutations([0, 0, 1, 1, 2])))
    allocation = np.tile(np.array([[[2, 2, 1]]]), (30_000, 1, 1, 1))
    for key in (1, 2, 3):
        states = np.zeros((30_000, 5), dtype=np.int32)
        actions = assign(np.zeros(5, dtype=np.int32), states, allocation, np.uint64(key))
        rows, numbers = np.unique(actions, axis=0, return_counts=True)
        seen = dict(zip(map(tuple, rows.tolist()), numbers, strict=True))
        assert set(seen) <= set(ways)
        assert chi_square([seen.get(way, 0) for way in ways], np.full(30, 1 / 30)) > 1e-4


@pytest.mark.parametrize("assign", ASSIGN)
def test_an_assignment_does_not_change_the_allocation(problems, assign):
    problem = problems["two types"]()
    states = random_states(problem, 5, 0)
    allocation = random_allocations(problem, states, 0)
    before = allocation.copy()
    assign(problem.type_of_arm, states, allocation, np.uint64(0))
    assert np.array_equal(allocation, before)
