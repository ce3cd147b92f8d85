"""Policies made of policies, and the objective that weighs members."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.model import MixturePolicy, Objective, TimeVaryingPolicy, begin, capabilities

from ..conftest import mentions
from ..oracles.problems import FIXED


class Always:
    """Gives every arm the same action."""

    exchangeable = True

    def __init__(self, action):
        self.action = action

    def act(self, states, rng):
        return np.full_like(states, self.action)


class Counting(Always):
    """The same, by counts."""

    def allocate(self, counts, rng):
        allocation = np.zeros((*counts.shape, 3), dtype=np.int64)
        allocation[..., self.action] = counts
        return allocation


STATES = np.zeros((6, 2), dtype=np.int32)
RNG = np.random.default_rng(0)


def test_steps_come_in_turn_and_begin_again():
    actor = begin(TimeVaryingPolicy([Always(a) for a in (2, 0, 1)]), 6, RNG)
    assert [int(actor.act(STATES, RNG)[0, 0]) for _ in range(7)] == [2, 0, 1, 2, 0, 1, 2]


class Failing(Counting):
    """Fails when it is first asked."""

    failed = False

    def fail_once(self):
        if not self.failed:
            self.failed = True
            raise ValueError("not now")

    def act(self, states, rng):
        self.fail_once()
        return super().act(states, rng)

    def allocate(self, counts, rng):
        self.fail_once()
        return super().allocate(counts, rng)


def asked(actor, by_counts):
    return actor.allocate(np.ones((6, 1, 1), dtype=np.int64), RNG) if by_counts else actor.act(STATES, RNG)


@pytest.mark.parametrize("by_counts", [False, True])
def test_a_step_whose_part_raises_is_not_played(by_counts):
    by_steps = begin(TimeVaryingPolicy([Failing(1), Counting(0)]), 6, RNG)
    others = TimeVaryingPolicy([Counting(1), Counting(0)])
    mixed = begin(MixturePolicy([others, Failing(1)], [0.5, 0.5]), 6, np.random.default_rng(0))
    assert len(mixed.playing) == 2  # the first has acted when the second fails
    for actor in (by_steps, mixed):
        with pytest.raises(ValueError, match="not now"):
            asked(actor, by_counts)
        assert actor.memory()["step"] == 0
        first = asked(actor, by_counts)
        assert (first[..., 1] == 1).all() if by_counts else (first == 1).all()
        assert actor.memory()["step"] == 1
    assert mixed.memory()["0.step"] == 1


def test_every_start_begins_at_the_first_step():
    policy = TimeVaryingPolicy([Always(0), Always(1)])
    first = begin(policy, 6, RNG)
    first.act(STATES, RNG)
    assert begin(policy, 6, RNG).act(STATES, RNG).max() == 0 and first.act(STATES, RNG).min() == 1


def test_a_mixture_keeps_what_it_drew():
    policy = MixturePolicy([Always(0), Always(1), Always(2)], [0.25, 0.0, 0.75])
    assert len(policy.parts) == 2
    actor = begin(policy, 4000, np.random.default_rng(1))
    states = np.zeros((4000, 1), dtype=np.int32)
    drawn = actor.act(states, RNG)
    assert (actor.act(states, RNG) == drawn).all()
    assert abs((drawn == 0).mean() - 0.25) < 0.03 and not (drawn == 1).any()


@pytest.mark.parametrize("make", [TimeVaryingPolicy, lambda parts: MixturePolicy(parts, [0.5, 0.5])])
def test_what_all_parts_can_do_the_whole_can(make):
    whole, partly = make([Counting(0), Counting(1)]), make([Counting(0), Always(1)])
    assert capabilities(whole).by_counts and capabilities(partly).exchangeable
    assert not capabilities(partly).by_counts
    counts = np.ones((6, 1, 2), dtype=np.int64)
    allocation = begin(whole, 6, np.random.default_rng(0)).allocate(counts, RNG)
    np.testing.assert_array_equal(allocation.sum(axis=-1), counts)


@pytest.mark.parametrize("shares", [[0.5], [0.5, 0.6], [-0.5, 1.5], [0.0, 0.0]])
def test_invalid_shares(shares):
    with pytest.raises(InvalidInputError, check=mentions("shares")):
        MixturePolicy([Always(0), Always(1)], shares)


def test_invalid_steps():
    with pytest.raises(InvalidInputError, check=mentions("parts")):
        TimeVaryingPolicy([])
    with pytest.raises(InvalidInputError, check=mentions("parts")):
        TimeVaryingPolicy([TimeVaryingPolicy([Always(0)])])


@pytest.mark.parametrize("over", ["arms", "groups"])
@pytest.mark.parametrize("welfare", ["gini:2", "maximin", "alpha:2", "utilitarian"])
def test_types_and_arms_are_weighed_alike(welfare, over):
    problem = FIXED["typed, groups across"]().with_criterion(over=over)
    by_types, by_arms = Objective.of_types(problem, welfare), Objective.of_arms(problem, welfare)
    values = np.random.default_rng(3).random(problem.num_types) + 1
    spread = values[problem.type_of_arm]
    assert by_types(values) == pytest.approx(by_arms(spread), rel=1e-12)
    weights = np.bincount(problem.type_of_arm, weights=by_arms.supergradient(spread))
    assert by_types.supergradient(values) == pytest.approx(weights, rel=1e-9)


def test_groups_count_once_whatever_their_size():
    problem = FIXED["typed"]().with_criterion(over="groups")
    objective = Objective.of_types(problem, "utilitarian")
    assert objective(np.array([2.0, 4.0])) == 3.0
    assert objective.supergradient(np.array([2.0, 4.0])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "make", [TimeVaryingPolicy, lambda parts: MixturePolicy(parts, [1 / max(1, len(parts))] * len(parts))]
)
@pytest.mark.parametrize(("parts", "words"), [([], "parts"), (["random"], "parts[0]")])
def test_parts_are_policies(make, parts, words):
    with pytest.raises(InvalidInputError, check=mentions(words)):
        make(parts)


def test_shares_are_numbers():
    with pytest.raises(InvalidInputError, check=mentions("shares")):
        MixturePolicy([Always(0)], ["all"])
