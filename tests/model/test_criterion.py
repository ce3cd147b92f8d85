"""What rewards over time are worth: totals, weights of time, and bounds from one sweep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.model import Average, Discounted, Finite, as_criterion, parse_criterion

from ..conftest import mentions

CRITERIA = [Discounted(0.0), Discounted(0.9), Average(), Finite(1, 0.5), Finite(7), Finite(7, 0.9), Finite(4, 0.0)]


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: f"{c.name} {c.factor}")
class TestEvery:
    def test_the_text_reads_back(self, criterion):
        assert parse_criterion(criterion.name, getattr(criterion, "discount", 1.0)) == criterion

    def test_the_total_is_what_one_at_every_step_is_worth(self, criterion):
        steps = criterion.num_steps or 1000
        left = criterion.beyond(steps)
        assert criterion.time_weights(steps).sum() + (left or 0.0) == pytest.approx(criterion.total, rel=1e-12)

    def test_the_default_steps_can_be_requested(self, criterion):
        usual = criterion.simulated_steps(None)
        assert usual >= 1 and criterion.simulated_steps(usual) == usual
        assert criterion.judging_steps() >= 1

    def test_a_constant_reward_is_bracketed_exactly(self, criterion):
        """v = 0, reward 2 everywhere: T v = 2, d = 2. Bounds of a constant are the constant, where all is foreseen."""
        low, high = criterion.bracket(2.0, 2.0, 2.0)
        assert low <= 2.0 * criterion.total + 1e-12 and high >= 2.0 * criterion.total - 1e-12


@given(seed=st.integers(0, 10**6), kind=st.integers(0, 2), guess=st.floats(-50, 50))
def test_bounds_hold_for_every_guess(seed, kind, guess):
    """Two states, two actions, any value function: the best policy of all lies within the bracket."""
    rng = np.random.default_rng(seed)
    moves, rewards, start = rng.dirichlet(np.ones(2), (2, 2)), rng.normal(size=(2, 2)), rng.dirichlet(np.ones(2))
    criterion = [Discounted(0.8), Average(), Discounted(0.0)][kind]
    value = guess * rng.normal(size=2)
    improved = (rewards + criterion.factor * moves @ value).max(axis=1)
    change = improved - value
    low, high = criterion.bracket(float(start @ improved), float(change.min()), float(change.max()))
    best = max(worth(criterion, moves, rewards, start, (a, b)) for a in range(2) for b in range(2))
    assert low - 1e-9 <= best <= high + 1e-9


def worth(criterion, moves, rewards, start, actions):
    chain = np.array([moves[s, a] for s, a in enumerate(actions)])
    reward = np.array([rewards[s, a] for s, a in enumerate(actions)])
    if criterion.is_average:
        return start @ np.linalg.matrix_power(chain, 2**20) @ reward
    return start @ np.linalg.solve(np.eye(2) - criterion.factor * chain, reward)


def test_an_average_counts_equal_shares_after_the_warm_up():
    weights = Average().time_weights(8)
    assert weights.tolist() == [0, 0] + [1 / 6] * 6 and Average().beyond(8) is None
    assert Average().time_weights(1).tolist() == [1]


def test_a_finite_horizon_is_not_another():
    assert Finite(5).simulated_steps(5) == 5
    with pytest.raises(InvalidInputError, check=mentions("finite", 5, "5 steps", 6)):
        Finite(5).simulated_steps(6)


@pytest.mark.parametrize(
    "text",
    ["finite", "finite:", "finite:0", "finite:-1", "finite:2.5", f"finite:{'9' * 5000}", "average:1", "discounted:2"],
)
def test_texts_that_are_refused(text):
    with pytest.raises(InvalidInputError, check=mentions(f"'{text}'")):
        parse_criterion(text, 0.9)


def test_messages_for_unknown_names():
    with pytest.raises(UnknownNameError, check=mentions("average")):
        parse_criterion("avrage", 0.9)
    with pytest.raises(InvalidInputError, check=mentions("1 goes")):
        parse_criterion("discounted", 1.0)
    with pytest.raises(InvalidInputError, check=mentions("criterion", 3)):
        as_criterion(3, 0.9)
