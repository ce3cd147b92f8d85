"""Averaging over renamings: which pair of the count space a joint pair belongs to, and what becomes of its visits."""

from itertools import product
from math import prod

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.evaluation import exact_values
from evenhand.model import Arm, CoupledMDP
from evenhand.solvers import Counts, Joint, occupancy_measure

from ..conftest import mentions
from .product_space import ProductSpace, random_arm, random_symmetric
from .renamings import average_over_renamings, count_pairs


def typed(seed: int, counts: list[int], split: bool = False) -> CoupledMDP:
    """Arms of several kinds with ragged states and actions; split, the first kind is also written down last."""
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, *size, 2) for size in [(2, 3), (3, 2), (2, 2)][: len(counts)]]
    if split:
        return CoupledMDP([*arms, arms[0]], [2.0, 3.0], 0.8, [*counts, 1])
    return CoupledMDP(arms, [2.0, 3.0], 0.8, counts)


PROBLEMS = {
    "identical": lambda: random_symmetric(1, num_arms=3, num_states=3, num_actions=3, num_resources=2),
    "two types": lambda: typed(2, [2, 1]),
    "all different": lambda: typed(3, [1, 1, 1]),
    "a type in two places": lambda: typed(4, [1, 1], split=True),
    "one arm": lambda: typed(5, [1]),
}


@pytest.fixture(params=PROBLEMS, ids=str)
def problem(request: pytest.FixtureRequest) -> CoupledMDP:
    return PROBLEMS[request.param]()


def test_count_pairs_are_the_tallies(problem: CoupledMDP) -> None:
    """By hand: tally the arms of each type in each state with each action, and look the tally up."""
    joint, counts = Joint(problem), Counts(problem)
    found = count_pairs(joint, counts)
    states = joint.states[joint.mdp.state_of_pair]
    for pair, (state, action) in enumerate(zip(states, joint.actions, strict=True)):
        tally = np.zeros(problem.types.valid.shape, dtype=int)
        for arm, kind in enumerate(problem.type_of_arm):
            tally[kind, state[arm], action[arm]] += 1
        assert np.array_equal(counts.allocations[found[pair]], tally)
    assert set(found) == set(range(counts.mdp.num_pairs))


def test_as_many_joint_pairs_as_there_are_ways_to_name_them(problem: CoupledMDP) -> None:
    joint, counts = Joint(problem), Counts(problem)
    ways = np.bincount(count_pairs(joint, counts), minlength=counts.mdp.num_pairs)
    for pair, allocation in enumerate(counts.allocations):
        factorials = [prod(range(1, n + 1)) for n in allocation.reshape(-1)]
        named = prod(prod(range(1, n + 1)) for n in problem.type_counts)
        assert ways[pair] == named // prod(factorials)


def test_values_are_averaged_within_types(problem: CoupledMDP) -> None:
    space, joint = ProductSpace(problem), Joint(problem)
    for seed in range(3):
        policy = space.random_policy(np.random.default_rng(seed), sparse=seed == 0)
        averaged = average_over_renamings(joint, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))
        values = space.values(policy)
        means = [values[problem.type_of_arm == kind].mean() for kind in range(problem.num_types)]
        np.testing.assert_allclose(exact_values(problem, averaged).values, means, atol=1e-9)
        np.testing.assert_allclose(space.values(space.induced(averaged)), np.array(means)[problem.type_of_arm])


def test_unvisited_states_have_a_policy() -> None:
    """Arms that never leave their first state: all other counts have no visits, and yet a law that sums to 1."""
    stay = np.eye(3)[:, None, :].repeat(2, axis=1)
    arm = Arm(stay, np.arange(6.0).reshape(3, 2), [[0.0], [1.0]], [1.0, 0.0, 0.0])
    problem = CoupledMDP([arm], [1.0], 0.9, [2])
    joint = Joint(problem)
    table = np.zeros(joint.mdp.num_pairs)
    table[joint.mdp.offsets[:-1]] = 1.0
    averaged = average_over_renamings(joint, occupancy_measure(joint.mdp, table))
    for counts in Counts(problem).states:
        allocations, law = averaged.allocation_distribution(counts)
        assert law.sum() == pytest.approx(1.0)
        assert np.array_equal(allocations.sum(axis=-1), np.broadcast_to(counts, allocations.shape[:-1]))


def test_the_wrong_number_of_pairs_is_refused() -> None:
    joint = Joint(PROBLEMS["identical"]())
    with pytest.raises(InvalidInputError, check=mentions("measure", joint.mdp.num_pairs)):
        average_over_renamings(joint, np.ones(joint.mdp.num_pairs + 1))


def test_acts_within_the_budget() -> None:
    """The policy that comes out can be played: actions exist, and their usage fits."""
    problem = PROBLEMS["two types"]()
    space, joint = ProductSpace(problem), Joint(problem)
    policy = space.random_policy(np.random.default_rng(0))
    averaged = average_over_renamings(joint, occupancy_measure(joint.mdp, space.in_joint_order(joint, policy)))
    states = np.array(list(product(*(range(arm.num_states) for arm in space.arms))), dtype=np.int32)
    actions = averaged.act(states, np.random.default_rng(1))
    assert all((tuple(s), tuple(a)) in space.number for s, a in zip(states.tolist(), actions.tolist(), strict=True))
