"""A user's own simulator: its faults told all at once, and a sampler that misbehaves."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, ModelError
from evenhand.model import Simulator

from ..conftest import mentions

SOUND = {
    "sample": lambda states, actions, rng: (rng.integers(0, 3, len(states)), states + 0.5 * actions),
    "first": lambda number, rng: rng.integers(0, 3, number),
    "usage": [[0.0], [1.0]],
    "num_states": 3,
    "num_arms": 4,
    "budget": [2],
    "discount": 0.9,
}
STATES, ACTIONS = np.array([0, 2, 1], dtype=np.int32), np.array([1, 0, 1], dtype=np.int32)


def simulator(**changes):
    return Simulator(**(SOUND | changes))


class TestWhatIsRead:
    def test_usage_by_action_is_spread_over_states(self):
        read = simulator()
        assert read.usage.shape == (3, 2, 1) and (read.usage == [[0.0], [1.0]]).all()
        assert (read.num_actions, read.num_states, read.num_arms, read.discount) == (2, 3, 4, 0.9)
        assert np.allclose(read.budget_limit, 2, rtol=1e-8) and read.budget_limit >= 2

    def test_the_idle_action_may_differ_by_state(self):
        usage = np.array([[[0.0], [1.0]], [[2.0], [0.0]], [[0.0], [0.0]]])
        assert np.array_equal(simulator(usage=usage).usage, usage)

    def test_tables_cannot_be_changed_afterwards(self):
        usage = np.array([[0.0], [1.0]])
        read = simulator(usage=usage)
        usage[:] = 5
        assert read.usage.max() == 1
        for table in (read.usage, read.budget):
            with pytest.raises(ValueError, check=mentions("read-only")):
                table[:] = 0


class TestFaults:
    def test_all_at_once(self):
        with pytest.raises(ModelError) as caught:
            simulator(sample=3, first=None, num_arms=0, usage=[[-1.0]], budget=[-1], discount=1.5)
        places = {fault.place.partition("[")[0] for fault in caught.value.faults}
        assert places == {"sample", "first", "num_arms", "usage", "budget", "discount"}

    @pytest.mark.parametrize(
        ("changes", "place"),
        [
            ({"usage": [[1.0], [1.0]]}, "usage"),
            ({"usage": [[0.0], [np.nan]]}, "usage"),
            ({"usage": [0.0, 1.0]}, "usage"),
            ({"usage": [[[0.0], [1.0]]] * 2}, "usage"),
            ({"usage": [[0.0], [1.0, 2.0]]}, "usage"),
            ({"usage": "much"}, "usage"),
            ({"budget": [1, 2]}, "budget"),
            ({"budget": [np.inf]}, "budget"),
            ({"budget": None}, "budget"),
            ({"discount": 1.0}, "discount"),
            ({"discount": "0.9"}, "discount"),
            ({"sample": "sample"}, "sample"),
        ],
        ids=str,
    )
    def test_each_has_its_place(self, changes, place):
        with pytest.raises(ModelError) as caught:
            simulator(**changes)
        assert {fault.place.partition("[")[0] for fault in caught.value.faults} == {place}

    @pytest.mark.parametrize("name", ["num_arms", "num_states"])
    @pytest.mark.parametrize("value", [0, 2.5, "3", True, None, [3]])
    def test_numbers_of_things_are_whole_and_reported_by_name(self, name, value):
        with pytest.raises(ModelError) as caught:
            simulator(**{name: value})
        assert [fault.place for fault in caught.value.faults] == [name]


class TestSampler:
    def test_what_it_says_is_passed_on(self):
        following, rewards = simulator().step(STATES, ACTIONS, np.random.default_rng(0))
        assert np.array_equal(following, np.random.default_rng(0).integers(0, 3, 3)) and following.dtype == np.int32
        assert rewards.tolist() == [0.5, 2.0, 1.5] and rewards.dtype == np.float64
        assert simulator().begin(5, np.random.default_rng(1)).shape == (5,)
        assert simulator().begin(0, np.random.default_rng(1)).shape == (0,)

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (lambda s: (s[:-1], s * 1.0), "3 states"),
            (lambda s: (s * 1.0, s * 1.0), "whole numbers"),
            (lambda s: (s > 0, s * 1.0), "whole numbers"),
            (lambda s: (s + 1, s * 1.0), "from 0 to 2, got 3"),
            pytest.param(lambda s: (s - 1, s * 1.0), "from 0 to 2, got -1"),
            (lambda s: (s, s[1:] * 1.0), "3 rewards, one per arm"),
            (lambda s: (s, 1.0), "3 rewards, one per arm"),
            (lambda s: (s, np.where(s == 1, np.nan, 1.0)), "rewards must be finite"),
        ],
    )
    def test_an_invalid_sample_is_refused(self, answer, told):
        broken = simulator(sample=lambda states, actions, rng: answer(states))
        with pytest.raises(InvalidInputError, check=mentions("sample")) as caught:
            broken.step(STATES, ACTIONS, np.random.default_rng(0))
        assert told in str(caught.value)

    @pytest.mark.parametrize("answer", [lambda s: s, lambda s: (s,), lambda s: None, lambda s: (s, ["a"] * len(s))])
    def test_an_answer_of_another_kind_is_refused_in_words(self, answer):
        with pytest.raises(InvalidInputError, check=mentions("sample")):
            simulator(sample=lambda states, actions, rng: answer(states)).step(
                STATES, ACTIONS, np.random.default_rng(0)
            )

    @pytest.mark.parametrize("first", [lambda n, rng: np.zeros(n - 1, int), lambda n, rng: np.full(n, 3)])
    def test_first_states_are_checked_too(self, first):
        with pytest.raises(InvalidInputError, check=mentions("first")):
            simulator(first=first).begin(4, np.random.default_rng(0))
