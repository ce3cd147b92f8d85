"""Contract of every policy. Add a factory or a problem to a list and it is tested; the roster's are here already."""

from collections import Counter

import numpy as np
import pytest

from evenhand.errors import NotApplicableError, TooLargeError
from evenhand.evaluation import check_policy
from evenhand.model import CoupledMDP, HasAllocationDistribution, begin, is_exchangeable, plays_by_counts
from evenhand.planning import REGISTRY
from evenhand.policies import ExchangeablePriority, PriorityPolicy, myopic, worst_first
from evenhand.problems import crew_maintenance, machine_replacement
from evenhand.solvers import Counts, Joint, Operators, count_states, plan_types, typed_policy

from ..conftest import PROBLEMS, crossed


def some_scores(problem):
    return np.random.default_rng(0).integers(0, 3, problem.types.valid.shape).astype(float)


def uniform_over_pairs(reduction):
    if reason := reduction.accepts(reduction.problem):
        raise TooLargeError(reason)
    sizes = np.diff(reduction.mdp.offsets)
    return reduction.lift(np.repeat(1 / sizes, sizes))


def by_types(problem):
    """The best for random gains and next to no future, by choices on the counts of each type."""
    operators = Operators(plan_types(problem))
    rng = np.random.default_rng(0)
    gains = [rng.normal(size=len(moves.allocations)) for moves in operators.types]
    _, picks = operators.improve(gains, np.zeros(operators.plan.num_states), 0.0)
    return typed_policy(problem, [moves.allocations for moves in operators.types], picks)


FACTORIES = {entry.name: entry.build for entry in REGISTRY} | {
    "oldest-first, ties to the first": lambda problem: worst_first(problem, ties="first"),
    "myopic, ties to the first": lambda problem: myopic(problem, ties="first"),
    "by score": lambda problem: ExchangeablePriority(problem, some_scores(problem)),
    "by score above a threshold": lambda problem: ExchangeablePriority(problem, some_scores(problem), threshold=0.0),
    "by score, ties to the first": lambda problem: PriorityPolicy(problem, some_scores(problem)),
    "choices by types": by_types,
    "table of counts": lambda problem: uniform_over_pairs(Counts(problem)),
    "table of joint states": lambda problem: uniform_over_pairs(Joint(problem)),
}

HUNDRED = {
    "machines": lambda: machine_replacement(num_arms=100, num_states=2, budget=10),
    "crew": lambda: crew_maintenance(num_arms=100, num_states=3, num_types=2),
}
BY_NAME = {"table of joint states", *(name for name in FACTORIES if name.endswith("to the first"))}
"""Those that know the arms by name. All others promise to treat arms of one type alike."""

NEED_A_SMALL_SPACE = {"optimal", "table of counts", "choices by types"}
LARGE = [("machines", factory) for factory in FACTORIES if factory != "table of joint states"]
LARGE += [("crew", factory) for _, factory in LARGE if factory not in NEED_A_SMALL_SPACE]
"""The default run takes the machines and the crew in turn."""


def in_turn(name, factory):
    """A case of `LARGE`, for the default run or the slow one."""
    late = list(FACTORIES).index(factory) % 2 == list(HUNDRED).index(name)
    return pytest.param(name, factory, marks=pytest.mark.slow if late and factory not in NEED_A_SMALL_SPACE else ())


def build(factory, problem):
    try:
        return FACTORIES[factory](problem)
    except (NotApplicableError, TooLargeError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("factory", "name"), crossed(FACTORIES, PROBLEMS))
def test_keeps_the_rules(factory, name):
    problem = PROBLEMS[name]()
    policy = build(factory, problem)
    check_policy(problem, policy)
    assert factory not in BY_NAME or not is_exchangeable(policy)


@pytest.mark.parametrize(("name", "factory"), [in_turn(*case) for case in LARGE])
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


def rename(problem, state, seed):
    """The joint state after arms of one type have changed places."""
    renamed, rng = state.copy(), np.random.default_rng(seed)
    for kind in range(problem.num_types):
        alike = np.flatnonzero(problem.type_of_arm == kind)
        renamed[alike] = rng.permutation(state[alike])
    return renamed


def tallies(policy, problem, state, seed, number=3000):
    """Allocations drawn in every way that the policy knows: arm by arm, with the arms renamed, and by counts."""
    seen = []
    for way, named in enumerate((state, rename(problem, state, seed))):
        rng = np.random.default_rng(1000 * way + seed)
        states = np.repeat(named[None], number, axis=0)
        seen.append(tally(allocations_of_actions(problem, states, begin(policy, number, rng).act(states, rng))))
    if plays_by_counts(policy):
        rng = np.random.default_rng(100 + seed)
        counts = count_states(problem, np.repeat(state[None], number, axis=0))
        seen.append(tally(begin(policy, number, rng).allocate(counts, rng)))
    return seen


@pytest.mark.parametrize(("factory", "name"), crossed([name for name in FACTORIES if name not in BY_NAME], PROBLEMS))
def test_acting_and_allocating_have_one_law(factory, name, chi_square):
    """At a few states: what act does to named arms and to renamed ones, what allocate does to crowds, and what
    allocation_distribution says."""
    problem = PROBLEMS[name]()
    policy = build(factory, problem)
    assert is_exchangeable(policy) or problem.num_types == problem.num_arms
    for seed, state in enumerate(trial_states(problem)):
        seen = tallies(policy, problem, state, seed)
        if isinstance(policy, HasAllocationDistribution):
            allocations, probabilities = policy.allocation_distribution(count_states(problem, state[None])[0])
            law = dict(zip(map(bytes, allocations), probabilities, strict=True))
        else:
            law = sum(seen, Counter())
        for tallied in seen:
            assert set(tallied) <= set(law)
            assert chi_square([tallied[key] for key in law], list(law.values())) > 1e-4


@pytest.mark.parametrize("factory", [name for name in FACTORIES if name not in BY_NAME])
def test_equal_arms_in_equal_states_are_treated_alike(factory, build_arm, chi_square):
    """Exchangeable policies: each of four equal arms gets an action as often as the others, at every step."""
    problem = CoupledMDP([build_arm(0, 2, [[0], [1]])], budget=[2], discount=0.9, counts=[4])
    policy = build(factory, problem)
    assert is_exchangeable(policy)
    states = np.tile(np.array([1, 1, 1, 1], dtype=np.int32), (4000, 1))
    rng = np.random.default_rng(0)
    actor = begin(policy, len(states), rng)
    for _ in range(3):
        served = actor.act(states, rng).sum(axis=0)
        assert not served.any() or chi_square(served, np.full(4, 0.25)) > 1e-4
