"""What every policy promises. Add a factory or a problem to a list and it is tested; the roster's are here already."""

from collections import Counter

import numpy as np
import pytest

from evenhand.errors import NotApplicable, TooLarge
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Exchangeable, Lawful, begin, is_exchangeable
from evenhand.planning.roster import ROSTER
from evenhand.policies import ExchangeablePriority, PriorityPolicy, myopic, worst_first
from evenhand.problems import crew_maintenance, machine_replacement
from evenhand.reductions import Counts, Joint
from evenhand.reductions.counts import count_states
from evenhand.simulation import check_policy


def some_scores(problem):
    return np.random.default_rng(0).integers(0, 3, problem.types.valid.shape).astype(float)


def uniform_over_pairs(reduction):
    if reason := reduction.accepts(reduction.problem):
        raise TooLarge(reason)
    sizes = np.diff(reduction.mdp.offsets)
    return reduction.lift(np.repeat(1 / sizes, sizes))


FACTORIES = {entry.name: entry.build for entry in ROSTER} | {
    "oldest-first, ties to the first": lambda problem: worst_first(problem, ties="first"),
    "myopic, ties to the first": lambda problem: myopic(problem, ties="first"),
    "by score": lambda problem: ExchangeablePriority(problem, some_scores(problem)),
    "by score above a threshold": lambda problem: ExchangeablePriority(problem, some_scores(problem), threshold=0.0),
    "by score, ties to the first": lambda problem: PriorityPolicy(problem, some_scores(problem)),
    "table of counts": lambda problem: uniform_over_pairs(Counts(problem)),
    "table of joint states": lambda problem: uniform_over_pairs(Joint(problem)),
}

HUNDRED = {
    "machines": lambda: machine_replacement(num_arms=100, num_states=2, budget=10),
    "crew": lambda: crew_maintenance(num_arms=100, num_states=3, num_types=2),
}
BY_NAME = {"equal-resources", "table of joint states", *(name for name in FACTORIES if name.endswith("to the first"))}
"""Those that know the arms by name, or remember them."""

NEED_A_SMALL_SPACE = {"optimal", "table of counts"}
LARGE = [("machines", factory) for factory in FACTORIES if factory != "table of joint states"]
LARGE += [("crew", factory) for _, factory in LARGE if factory not in NEED_A_SMALL_SPACE]


def build(factory, problem):
    try:
        return FACTORIES[factory](problem)
    except (NotApplicable, TooLarge) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("factory", FACTORIES)
def test_keeps_the_rules(factory, small_problem):
    policy = build(factory, small_problem)
    check_policy(policy, small_problem)
    if factory in BY_NAME:
        assert not isinstance(policy, Exchangeable)


@pytest.mark.parametrize(("name", "factory"), LARGE)
def test_acts_on_ten_thousand_episodes_at_once(name, factory):
    problem = HUNDRED[name]()
    policy = build(factory, problem)
    rng = np.random.default_rng(0)
    kinds, types = problem.type_of_arm, problem.types
    states = rng.integers(0, types.num_states[kinds], (10_000, 100)).astype(np.int32)
    before = states.copy()
    actions = begin(policy, 10_000, rng).act(states, rng)
    assert actions.shape == states.shape and np.array_equal(states, before)
    assert types.valid[kinds, states, actions].all()
    used = types.usage[kinds, states, actions].sum(axis=1)
    assert (used <= problem.budget_limit).all()


def trial_states(problem, number=4):
    """A few joint states, crowded ones among them, because ties happen there."""
    sizes = problem.types.num_states[problem.type_of_arm]
    drawn = np.random.default_rng(1).integers(0, sizes, (number, problem.num_arms)).astype(np.int32)
    drawn[0], drawn[1] = 0, sizes - 1
    return np.unique(drawn, axis=0)


def allocations_of_actions(problem, states, actions):
    allocation = np.zeros((len(states), *problem.types.valid.shape), dtype=np.int64)
    np.add.at(allocation, (np.arange(len(states))[:, None], problem.type_of_arm, states, actions), 1)
    return allocation


def tally(allocations):
    return Counter(map(bytes, allocations))


@pytest.mark.parametrize("factory", [name for name in FACTORIES if name not in BY_NAME])
def test_acting_and_allocating_have_one_law(factory, small_problem, chi_square):
    """At a few states: what act does to named arms, what allocate does to crowds, and what allocation_law says."""
    policy = build(factory, small_problem)
    if not isinstance(policy, Exchangeable):
        pytest.skip("treats these arms by their names")
    for seed, state in enumerate(trial_states(small_problem)):
        states = np.repeat(state[None], 3000, axis=0)
        counts = count_states(small_problem, states)
        acted = policy.act(states, np.random.default_rng(seed))
        seen = [
            tally(allocations_of_actions(small_problem, states, acted)),
            tally(policy.allocate(counts, np.random.default_rng(100 + seed))),
        ]
        if isinstance(policy, Lawful):
            allocations, probabilities = policy.allocation_law(counts[0])
            law = dict(zip(map(bytes, allocations), probabilities, strict=True))
        else:
            law = {key: seen[0][key] + seen[1][key] for key in seen[0] | seen[1]}
        for tallied in seen:
            assert set(tallied) <= set(law)
            assert chi_square([tallied[key] for key in law], list(law.values())) > 1e-4


@pytest.mark.parametrize("factory", [name for name in FACTORIES if name not in BY_NAME])
def test_equal_arms_in_equal_states_are_treated_alike(factory, build_arm, chi_square):
    """Exchangeable policies: each of four equal arms gets an action as often as the others."""
    problem = CoupledMDP([build_arm(0, 2, [[0], [1]])], budget=[2], discount=0.9, counts=[4])
    policy = build(factory, problem)
    assert is_exchangeable(policy)
    states = np.tile(np.array([1, 1, 1, 1], dtype=np.int32), (4000, 1))
    rng = np.random.default_rng(0)
    served = begin(policy, len(states), rng).act(states, rng).sum(axis=0)
    assert not served.any() or chi_square(served, np.full(4, 0.25)) > 1e-4
