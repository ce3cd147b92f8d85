"""One step of all arms: NumPy against plain loops, compiled code against NumPy bit for bit."""

import numpy as np
import pytest

from evenhand.kernels import World, episodes, first_states, fixed, grid, uniforms_at
from evenhand.problems import random_coupled

from ..oracles.stepping import step_arms


def step_compiled(world, *arguments):
    return episodes.step_arms(fixed(world), *arguments)


STEPS = [step_arms, step_compiled]


OPEN = {"strict": True, "raises": AssertionError}


def varied(*sizes, **options):
    """A random problem whose tables are laid out row by row, so that one compilation serves all."""
    return random_coupled(*sizes, state_dependent_usage=True, **options)


def world_of(problem):
    types = problem.types
    return World(problem.type_of_arm, types.cumulative, types.rewards, types.usage, types.real, types.served)


def random_situation(problem, num_episodes, seed):
    """States and actions that exist, without regard to the budget."""
    rng = np.random.default_rng(seed)
    kinds, types = problem.type_of_arm, problem.types
    states = rng.integers(0, types.num_states[kinds], (num_episodes, problem.num_arms)).astype(np.int32)
    actions = rng.integers(0, types.num_actions[kinds], states.shape).astype(np.int32)
    return states, actions


def by_loops(problem, states, actions, weight, returns, served, key, first):
    """The definition, arm by arm: add up probabilities until they exceed the arm's uniform number."""
    uniforms = uniforms_at(key, grid(first, *states.shape))
    used = np.zeros((len(states), problem.num_resources))
    following = states.copy()
    for e, n in np.ndindex(states.shape):
        arm = problem.types[problem.type_of_arm[n]]
        s, a = states[e, n], actions[e, n]
        returns[e, n] += weight * arm.rewards[s, a]
        used[e] += arm.usage[s, a]
        served[e, n] += weight * any(use > 0 for use in arm.usage[s, a])
        j, reached = 0, arm.transitions[s, a, 0]
        while uniforms[e, n] >= reached and j < arm.num_states - 1:
            j += 1
            reached += arm.transitions[s, a, j]
        following[e, n] = j
    return following, used


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_its_definition(small_problem, step):
    problem = small_problem
    states, actions = random_situation(problem, 6, 0)
    key, (returns, served, expected_returns, expected_served) = np.uint64(11), np.ones((4, *states.shape))
    following, used = by_loops(problem, states, actions, 0.5, expected_returns, expected_served, key, 3)
    spent, sound = step(world_of(problem), states, actions, 0.5, returns, served, key, 3)
    assert sound
    assert np.array_equal(states, following)
    assert np.array_equal(returns, expected_returns) and np.array_equal(served, expected_served)
    np.testing.assert_allclose(spent, used, rtol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_numpy_agree_bit_for_bit(seed):
    problem = varied(7 + seed, 1 + seed, 2 + seed % 2, 1 + seed % 3, min(seed + 1, 3), sparsity=0.3, seed=seed)
    results = []
    for step in STEPS:
        states, actions = random_situation(problem, 50, seed)
        returns, served = np.zeros((2, *states.shape))
        for t, key in enumerate(np.random.default_rng(seed).integers(0, 2**64, 5, dtype=np.uint64)):
            spent, sound = step(world_of(problem), states, actions, 0.9**t, returns, served, key, 1000 * seed)
            assert sound
        results.append((states, returns, spent, served))
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1]) and np.array_equal(results[0][3], results[1][3])
    np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-13)


def test_many_arms_agree_too():
    problem = varied(16_401, 3, 2, 2, 2, seed=4)
    outcomes = []
    for step in STEPS:
        states, actions = random_situation(problem, 2, 9)
        returns, served = np.zeros((2, *states.shape))
        spent, _ = step(world_of(problem), states, actions, 1.0, returns, served, np.uint64(5), 0)
        outcomes.append((states, returns, spent))
    assert np.array_equal(outcomes[0][0], outcomes[1][0]) and np.array_equal(outcomes[0][1], outcomes[1][1])
    np.testing.assert_allclose(outcomes[0][2], outcomes[1][2], rtol=1e-12)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bad", [-1, 2, 3, 2_000_000_000])
def test_an_action_that_does_not_exist_moves_nothing(problems, step, bad):
    problem = problems["two types"]()  # the second type has two actions only
    states, actions = random_situation(problem, 4, 1)
    before = states.copy()
    actions[2, 2] = bad
    returns, served = np.zeros((2, *states.shape))
    spent, sound = step(world_of(problem), states, actions, 1.0, returns, served, np.uint64(1), 0)
    assert not sound
    assert np.array_equal(states, before) and not returns.any() and not served.any() and not spent.any()


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_the_sum_of_its_parts(problems, step):
    problem = problems["two types"]()
    whole, actions = random_situation(problem, 10, 2)
    parts = whole.copy()
    step(world_of(problem), whole, actions, 1.0, *np.zeros((2, *whole.shape)), np.uint64(8), 0)
    for start, stop in ((0, 3), (3, 4), (4, 10)):
        rows = slice(start, stop)
        sums = np.zeros((2, *parts[rows].shape))
        step(world_of(problem), parts[rows], actions[rows], 1.0, *sums, np.uint64(8), start)
    assert np.array_equal(whole, parts)


def test_moves_have_the_law_of_their_row(problems, chi_square):
    problem = problems["two types"]()
    for step in STEPS:
        for state, action in ((0, 0), (0, 1), (1, 1)):
            states = np.full((20_000, 3), state, dtype=np.int32)
            actions = np.full(states.shape, action, dtype=np.int32)
            step(world_of(problem), states, actions, 1.0, *np.zeros((2, *states.shape)), np.uint64(17), 0)
            for arm in range(3):
                law = problem.types.transitions[problem.type_of_arm[arm], state, action]
                assert chi_square(np.bincount(states[:, arm], minlength=len(law)), law) > 1e-4


def test_first_states_have_the_initial_law_and_belong_to_their_episode(small_problem, chi_square):
    kinds, types = small_problem.type_of_arm, small_problem.types
    key = np.uint64(3)
    states = first_states(kinds, types.cumulative_initial, key, 0, 20_000)
    assert states.dtype == np.int32 and (states < types.num_states[kinds]).all()
    for arm, kind in enumerate(kinds):
        law = types.initial[kind]
        assert chi_square(np.bincount(states[:, arm], minlength=len(law)), law) > 1e-4
    assert np.array_equal(first_states(kinds, types.cumulative_initial, key, 500, 20), states[500:520])


def test_a_certain_move_is_certain():
    """A row whose sums do not reach 1 in doubles never leads to an impossible state."""
    problem = varied(3, 10, 2, sparsity=0.9, seed=3)
    states, actions = random_situation(problem, 20_000, 3)
    kinds, before = problem.type_of_arm, states.copy()
    step_compiled(world_of(problem), states, actions, 1.0, *np.zeros((2, *states.shape)), np.uint64(6), 0)
    assert (problem.types.transitions[kinds, before, actions, states] > 0).all()


def test_tables_are_laid_out_row_by_row():
    types = random_coupled(4, 3, 2, 2, 2).types
    assert all(table.flags.c_contiguous for table in (types.cumulative, types.rewards, types.usage, types.valid))
