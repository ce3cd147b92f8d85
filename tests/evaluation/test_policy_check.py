"""The checker for authors of policies: sound ones pass, and each fault is found, all of them at once."""

import numpy as np
import pytest

from evenhand.errors import PolicyError, TooLargeError
from evenhand.evaluation import check_policy
from evenhand.policies import ExchangeablePriority, random_feasible
from evenhand.problems import machine_replacement

PROBLEM = machine_replacement(num_arms=3, budget=1)


class Acting:
    """A policy made of one function."""

    def __init__(self, act):
        self.act = act


class Starting:
    """A policy whose actor is made of one function of the step."""

    def __init__(self, act):
        self.function = act

    def start(self, num_episodes, rng):
        step = iter(range(10**6))
        return Acting(lambda states, rng: self.function(next(step), states))


def idle(states, rng=None):
    return np.zeros_like(states)


def faults_of(policy, problem=PROBLEM):
    with pytest.raises(PolicyError) as caught:
        check_policy(problem, policy)
    return str(caught.value)


def mutate(states, rng):
    states[:] = 0
    return idle(states)


def overspend_when_worn(states, rng):
    return (states == 2).astype(int)


FAULTS = {
    "over budget": (lambda states, rng: np.ones_like(states), "used 3 of resource 0, whose budget is 1"),
    "over budget in some states": (overspend_when_worn, "of resource 0, whose budget is 1"),
    "no such action": (lambda states, rng: np.full_like(states, 2), "does not exist"),
    "a negative action": (lambda states, rng: np.full_like(states, -1), "does not exist"),
    "one row": (lambda states, rng: idle(states)[0], "expected whole numbers of shape (episode=1, arm=3)"),
    "fractions": (lambda states, rng: idle(states) + 0.5, "got float64"),
    "changes the states": (mutate, "changed the states"),
    "draws elsewhere": (lambda states, rng: np.eye(3, dtype=int)[ELSEWHERE.integers(3, size=len(states))], "same seed"),
    "raises": (lambda states, rng: states[1000], "raised IndexError"),
    "fixed batch": (lambda states, rng: np.zeros((7, 3), dtype=int), "batch of 100: step 0: act: expected"),
}
ELSEWHERE = np.random.default_rng(0)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name):
    act, words = FAULTS[name]
    assert words in faults_of(Acting(act))


def test_a_plain_function_will_do():
    check_policy(PROBLEM, Acting(idle))


def test_a_memory_will_do():
    check_policy(PROBLEM, Starting(lambda step, states: np.eye(3, dtype=int)[[step % 3] * len(states)]))


def test_an_object_without_act_is_refused():
    assert "act(states, rng)" in faults_of(object())


def test_all_faults_come_at_once():
    def act(states, rng):
        if len(states) == 1:
            return np.ones_like(states)
        return {2: lambda: np.full_like(states, 9), 7: lambda: states[0], 100: lambda: 1 // 0}[len(states)]()

    words = faults_of(Acting(act))
    for part in ("batch of 1: ", "budget is 1", "batch of 2: ", "does not exist", "batch of 7: ", "ZeroDivisionError"):
        assert part in words


def test_a_fault_is_reported_once():
    words = faults_of(Acting(lambda states, rng: states[1000]))
    assert words.count("batch of 7: raised") == 1


def test_a_fault_of_a_later_step_is_found():
    late = Starting(lambda step, states: np.ones_like(states) if step else idle(states))
    assert "budget is 1" in faults_of(late)


class Limited:
    """Sound, until one of its methods is replaced."""

    kind = "limited"

    def __init__(self, problem, limit):
        self.problem, self.limit = problem, int(limit)

    def act(self, states, rng):
        worn = states >= self.limit
        return (worn & (worn.cumsum(axis=1) <= self.problem.budget[0])).astype(np.int32)

    def to_arrays(self):
        return {"limit": np.array(self.limit)}

    @classmethod
    def from_arrays(cls, problem, arrays):
        return cls(problem, arrays["limit"])

    def resized(self, problem, types=None):
        return type(self)(problem, self.limit)

    def explain(self, decision):
        return decision.each("worn", "not worn, or others are before it")


def by_place(self, states, rng):
    return np.eye(3, dtype=np.int32)[np.zeros(len(states), dtype=int)]


@pytest.mark.parametrize(
    ("fault", "replaced"),
    [
        ("saved", {"from_arrays": classmethod(lambda cls, problem, arrays: cls(problem, 1))}),
        ("saved", {"kind": 3}),
        ("resized", {"act": by_place}),
        ("explained", {"explain": lambda self, decision: ["worn"]}),
        ("explained", {"explain": lambda self, decision: [None] * 3}),
    ],
)
def test_what_it_is_restored_resized_and_explained_by(fault, replaced):
    check_policy(PROBLEM, Limited(PROBLEM, 2))
    kind = type("Wrong", (Limited,), replaced)
    assert [line.split(":")[0].strip() for line in faults_of(kind(PROBLEM, 2)).splitlines()[1:]] == [fault]


class Allocating(ExchangeablePriority):
    """Sound, until one of its parts is replaced."""

    def __init__(self, problem=PROBLEM, *own, **parts):
        super().__init__(problem, np.zeros(problem.types.valid.shape), stop=True)
        for name, part in parts.items():
            setattr(self, name, part)


def everything(counts, rng=None):
    return np.stack([np.zeros_like(counts), counts], axis=-1)


def nothing(counts, rng=None):
    return np.stack([counts, np.zeros_like(counts)], axis=-1)


def sometimes(counts, rng):
    allocation = nothing(counts)
    for episode, states in enumerate(counts[:, 0]):
        state = int(states.argmax())
        allocation[episode, 0, state] += np.array([-1, 1]) * ELSEWHERE.integers(2)
    return allocation


class TestAllocations:
    def test_sound_ones_pass(self):
        check_policy(PROBLEM, Allocating())
        check_policy(PROBLEM, Allocating(allocate=nothing))

    @pytest.mark.parametrize(
        ("allocate", "words"),
        [
            (everything, "used 3 of resource 0"),
            (lambda counts, rng: counts, "(episode, type, state, action)"),
            (lambda counts, rng: nothing(counts) * 0, "sum to the counts"),
            (sometimes, "different allocations"),
            (lambda counts, rng: [][0], "raised IndexError"),
        ],
    )
    def test_each_fault_is_found(self, allocate, words):
        assert words in faults_of(Allocating(allocate=allocate))

    def test_a_deterministic_policy_ignores_the_seed(self):
        """Allocations of the same seed are the same: only another seed shows the claim to be wrong."""
        check_policy(PROBLEM, Allocating(allocate=nothing, deterministic=True))
        assert "says that it is deterministic" in faults_of(Allocating(deterministic=True))

    @pytest.mark.parametrize(
        ("law", "words"),
        [
            (lambda counts: (everything(counts)[None], np.ones(1)), "allocation_distribution: step 0"),
            (lambda counts: (nothing(counts)[None], np.full(1, 0.5)), "sum to 1"),
            (lambda counts: (np.repeat(nothing(counts)[None], 2, axis=0), np.array([1.5, -0.5])), "negative"),
            (lambda counts: (nothing(counts)[None] * 0, np.ones(1)), "sum to the counts"),
        ],
    )
    def test_probabilities_sum_to_one(self, law, words):
        assert words in faults_of(Allocating(allocation_distribution=law))

    def test_probabilities_of_nan_are_found(self):
        assert "probabilities" in faults_of(
            Allocating(allocation_distribution=lambda counts: (nothing(counts)[None], np.full(1, np.nan)))
        )

    def test_declining_is_within_the_rules(self):
        def decline(*_):
            raise TooLargeError("too many")

        check_policy(PROBLEM, Allocating(allocate=decline, allocation_distribution=decline))


def test_small_problems_of_every_kind(small_problem):
    check_policy(small_problem, random_feasible(small_problem))
