"""Every policy acts with a generator or a seed; stateful ones continue from a saved memory."""

import json

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.evaluation import check_policy, simulate
from evenhand.model import MixturePolicy, StatefulPolicy, TimeVaryingPolicy, begin, capabilities
from evenhand.planning import REGISTRY, find_policy
from evenhand.policies import PriorityPolicy, Resolving, RoundRobin, never_act, worst_first
from evenhand.problems import crew_maintenance, machine_replacement
from evenhand.solvers import Joint

from ..conftest import mentions

MACHINES = machine_replacement(num_arms=4, budget=2)
SHORT = MACHINES.with_criterion("finite:5")
CREW = crew_maintenance(num_arms=3, num_states=2, num_types=2)


SETS = ("set-expansion", "two-set")
"""Policies that are defined for the average only."""


def named(name, problem):
    problem = problem.with_criterion("average") if name in SETS else problem
    return find_policy(name).build(problem, "gini:2")


def in_turn_or_not(problem=MACHINES, redraw_every=None):
    """Parts that remember in different ways, and one that does not."""
    parts = [RoundRobin(problem), named("re-solving", problem), worst_first(problem)]
    return MixturePolicy(parts, [0.4, 0.3, 0.3], redraw_every)


def joint_table():
    space = Joint(MACHINES)
    sizes = np.diff(space.mdp.offsets)
    return space.lift(np.repeat(1 / sizes, sizes))


POLICIES = {
    **{entry.name: (lambda name=entry.name: named(name, MACHINES)) for entry in REGISTRY},
    **{
        f"{entry.name}, by steps": (lambda name=entry.name: named(name, SHORT))
        for entry in REGISTRY
        if entry.name not in SETS
    },
    "re-solving, two resources": lambda: named("re-solving", CREW),
    "ties to the first": lambda: PriorityPolicy(MACHINES, MACHINES.types.rewards),
    "joint table": joint_table,
    "mixture": in_turn_or_not,
    "redrawn mixture": lambda: in_turn_or_not(redraw_every=3),
    "mixture of tables and turns": lambda: MixturePolicy([joint_table(), RoundRobin(MACHINES)], [0.5, 0.5]),
    "mixture of mixtures": lambda: MixturePolicy([in_turn_or_not(redraw_every=2), never_act(MACHINES)], [0.7, 0.3]),
    "mixture by steps": lambda: MixturePolicy([worst_first(SHORT), RoundRobin(MACHINES)], [0.5, 0.5], redraw_every=4),
}
REMEMBER = [
    *("equal-resources", "re-solving", "re-solving, two resources", "id", "ftva", *SETS),
    *(
        f"{name}, by steps"
        for name in ("optimal", "fair-index", "occupancy-priority", "re-solving", "lp-update", "lp-index", "whittle")
    ),
    *(
        "equal-resources, by steps",
        "id, by steps",
        "ftva, by steps",
        "oldest-first, by steps",
        "mixture",
        "redrawn mixture",
        "mixture of tables and turns",
    ),
    *("mixture of mixtures", "mixture by steps"),
]


def problem_of(name):
    return CREW if "two resources" in name else MACHINES


def some_states(problem, num_episodes, seed):
    sizes = problem.types.num_states[problem.type_of_arm]
    return np.random.default_rng(seed).integers(0, sizes, (num_episodes, problem.num_arms)).astype(np.int32)


def run_of(actor, problem, rng, steps, first=0, num_episodes=6):
    """(step, episode, arm) actions in given states."""
    return np.stack([actor.act(some_states(problem, num_episodes, first + t), rng) for t in range(steps)])


@pytest.mark.parametrize("name", POLICIES)
def test_acts_without_a_start(name):
    """As if it had been started; by generator or seed, arrays or lists, a batch or one episode."""
    problem, policy, rng = problem_of(name), POLICIES[name](), np.random.default_rng(5)
    states = some_states(problem, 6, 0)

    def anew():
        if isinstance(policy, StatefulPolicy):
            policy.forget()
        return policy

    expected = run_of(begin(policy, 6, rng), problem, rng, 8)
    assert np.array_equal(run_of(anew(), problem, np.random.default_rng(5), 8), expected)
    assert np.array_equal(anew().act(states.tolist(), 5), expected[0])
    assert np.array_equal(anew().act(states, 5), expected[0])
    alone = anew().act(states[0], 5)
    assert alone.shape == states[0].shape and np.array_equal(anew().act(states[:1], 5)[0], alone)


@pytest.mark.parametrize("name", POLICIES)
def test_only_what_remembers_starts(name):
    can = capabilities(POLICIES[name]())
    assert can.acts is not None
    assert (can.starts is not None) == (can.resumes is not None) == (name in REMEMBER)


@pytest.mark.parametrize("name", REMEMBER)
def test_continues_from_a_saved_memory(name):
    """Saved as JSON and taken up by another policy of the same making, before every step of an episode."""
    problem, rng = problem_of(name), np.random.default_rng(3)
    policy = POLICIES[name]()
    actor = policy.start(6, rng)
    expected = run_of(actor, problem, rng, 12)
    rng, other = np.random.default_rng(3), POLICIES[name]()
    actor, seen = policy.start(6, rng), []
    for step in range(12):
        kept = {name: array.tolist() for name, array in actor.memory().items()}
        text = json.dumps({"memory": kept, "generator": rng.bit_generator.state})
        again = json.loads(text)
        actor, rng = other.resume(again["memory"]), np.random.default_rng()
        rng.bit_generator.state = again["generator"]
        seen.append(run_of(actor, problem, rng, 1, step)[0])
    assert np.array_equal(seen, expected)


@pytest.mark.parametrize("name", REMEMBER)
def test_what_was_saved_does_not_change(name):
    problem, rng = problem_of(name), np.random.default_rng(3)
    actor = POLICIES[name]().start(6, rng)
    run_of(actor, problem, rng, 2)
    memory = actor.memory()
    before = {name: array.copy() for name, array in memory.items()}
    run_of(actor, problem, rng, 3)
    assert all(np.array_equal(memory[name], before[name]) for name in before)
    once, twice = POLICIES[name]().resume(memory), POLICIES[name]().resume(memory)
    assert np.array_equal(run_of(once, problem, 7, 3), run_of(twice, problem, 7, 3))


@pytest.mark.parametrize("name", REMEMBER)
def test_another_number_of_episodes_is_reported(name):
    problem, policy = problem_of(name), POLICIES[name]()
    policy.act(some_states(problem, 1, 0)[0], 0)
    with pytest.raises(PolicyError, check=mentions("1 episode", 6)):
        policy.act(some_states(problem, 6, 0), 0)
    policy.forget()
    assert policy.act(some_states(problem, 6, 0), 0).shape == (6, problem.num_arms)


@pytest.mark.parametrize("name", REMEMBER)
def test_playing_leaves_its_own_run_alone(name):
    """Simulation starts actors of its own: it neither sees nor moves what the policy remembers."""
    problem, policy = problem_of(name), POLICIES[name]()
    rng = np.random.default_rng(1)
    run_of(policy, problem, rng, 2)
    before = policy.memory()
    played = simulate(problem, policy, 5, 9, rng=2).returns
    assert np.array_equal(played, simulate(problem, POLICIES[name](), 5, 9, rng=2).returns)
    assert all(np.array_equal(array, before[name]) for name, array in policy.memory().items())


def test_nothing_is_remembered_before_the_first_step():
    with pytest.raises(PolicyError, check=mentions("memory")):
        RoundRobin(MACHINES).memory()


BROKEN = {
    "no names": ([1, 2], []),
    "nothing": ({}, ["'order'", "'head'"]),
    "of another": ({"order": [[0, 1, 2, 3]], "head": [0], "step": 3}, ["'step'"]),
    "no such turn": ({"order": [[0, 1, 2, 3]], "head": [4]}, ["'head'"]),
    "fractions": ({"order": [[0, 1, 2, 3]], "head": [0.5]}, ["'head'"]),
    "a text": ({"order": "0123", "head": [0]}, ["'order'"]),
    "ragged": ({"order": [[0, 1, 2, 3], [0]], "head": [0]}, ["'order'"]),
    "other arms": ({"order": [[0, 1, 2]], "head": [0]}, ["'order'"]),
    "other episodes": ({"order": [[0, 1, 2, 3]], "head": [0, 1]}, ["'head'"]),
    "twice": ({"order": [[0, 1, 1, 3]], "head": [0]}, ["'order'"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_memory_that_is_not_sound_is_refused(name):
    memory, names = BROKEN[name]
    with pytest.raises(PolicyError, check=mentions(*names)):
        RoundRobin(MACHINES).resume(memory)


def test_a_mixture_looks_at_all_that_it_is_given():
    policy = MixturePolicy([RoundRobin(MACHINES), worst_first(MACHINES)], [0.5, 0.5])
    actor = policy.start(6, 0)
    memory = actor.memory()
    assert {"step", "part", "0.order", "0.head"} == set(memory)
    with pytest.raises(PolicyError, check=mentions("1.order")):
        policy.resume({**memory, "1.order": memory["0.order"]})
    with pytest.raises(PolicyError, match=r"part 0 plays \d episodes"):
        policy.resume({**memory, "0.order": memory["0.order"][:1], "0.head": memory["0.head"][:1]})
    with pytest.raises(PolicyError, check=mentions("head", "part", "part 0")):
        policy.resume({name: array for name, array in memory.items() if name != "0.head"})
    with pytest.raises(PolicyError, check=mentions("part")):
        policy.resume({**memory, "part": memory["part"] + 2})


class Forgetful:
    """Remembers, and cannot say what."""

    def start(self, num_episodes, rng):
        return never_act(MACHINES)


def test_a_part_that_cannot_say_what_it_remembers_is_named():
    actor = MixturePolicy([Forgetful()], [1.0]).start(2, 0)
    with pytest.raises(NotApplicableError, match=r"part 0 of the mixture .* Forgetful needs resume"):
        actor.memory()


@pytest.mark.parametrize(
    "states", [[0.0, 1.0, 0.0, 0.0], 3, [[[0, 0, 0, 0]]], [], [[0, 1], [0]], [0, -1, 0, 0], [0, 0, 0, 2**40]]
)
def test_invalid_states_are_reported(states):
    for policy in (worst_first(MACHINES), RoundRobin(MACHINES)):
        with pytest.raises(InvalidInputError, check=mentions("states")):
            policy.act(states, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_states_out_of_range_are_reported(name):
    """Also where tables are padded, or looked up by compiled code: nothing is read behind their ends."""
    problem, policy = problem_of(name), POLICIES[name]()
    states = some_states(problem, 3, 0)
    states[1, 2] = problem.types.num_states[problem.type_of_arm[2]]
    with pytest.raises(InvalidInputError, match=r"states: arm 2 is in state \d, and its states are 0 to \d"):
        policy.act(states, 0)
    if "cp-drl" not in name:  # a network plays any number of arms
        with pytest.raises(InvalidInputError, check=mentions(problem.num_arms, problem.num_arms - 1)):
            policy.act(some_states(problem, 2, 0)[:, 1:], 0)
    assert policy.act(some_states(problem, 5, 0), 0).shape == (5, problem.num_arms)  # nothing was begun


class Alternating(RoundRobin):
    """Says that it resumes, but forgets whose turn it is."""

    def resume(self, memory):
        return super().resume({**memory, "head": np.zeros_like(memory["head"])})


def test_check_policy_reports_a_wrong_memory():
    check_policy(MACHINES, RoundRobin(MACHINES))
    check_policy(MACHINES, in_turn_or_not(redraw_every=2))
    with pytest.raises(PolicyError, check=mentions("resumed")):
        check_policy(MACHINES, Alternating(MACHINES))


def test_prices_are_computed_on_first_use():
    """A memory of the start holds no prices yet; one of which some are known is looked at anew."""
    policy = named("re-solving", MACHINES)
    assert isinstance(policy, Resolving)
    memory = policy.start(2, 0).memory()
    assert memory["place"].tolist() == [-1, -1]
    half = {"step": np.array(3), "place": np.array([0, -1])}
    assert policy.resume(half).act(some_states(MACHINES, 2, 0), 0).shape == (2, 4)


def test_steps_of_a_file_that_remember_are_refused():
    with pytest.raises(InvalidInputError, check=mentions("remembers")):
        TimeVaryingPolicy([RoundRobin(MACHINES)])
