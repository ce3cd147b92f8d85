"""Chains of order 0, 1 and 2 on arms left out of the fit."""

import math

import numpy as np
import pytest
from scipy import stats

from evenhand.fitting import Log, one_steps
from evenhand.fitting.diagnostics.markov_order import gains
from evenhand.fitting.diagnostics.steps import Steps, late

from .simulated import WEAR, by_chance, simulated

SIZES = (1, 3, 2)


def entropy_rate(rows: np.ndarray, law: np.ndarray) -> float:
    return float(-(law[:, None] * rows * np.log(np.where(rows > 0, rows, 1))).sum())


def test_gain_of_the_state_is_the_difference_of_entropies() -> None:
    rows = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]])
    log = simulated(rows, 400, 40, 0, states=("a", "b"), start=[2 / 3, 1 / 3])
    found, left_out = gains(one_steps(log), (1, 2, 2), np.random.default_rng(0))
    stationary = np.array([2 / 3, 1 / 3])
    order_0 = float(-(stationary * np.log(stationary)).sum())
    assert found[1].longer == pytest.approx(-entropy_rate(rows[:, 0], stationary), abs=0.01)
    assert found[1].gain == pytest.approx(order_0 - entropy_rate(rows[:, 0], stationary), abs=4 * found[1].stderr)
    assert found[1].is_sure
    assert not found[2].is_sure
    assert (found[1].steps, found[1].arms, found[1].folds, found[2].steps) == (400 * 39, 400, 5, 400 * 38)
    assert not left_out


def test_predictions_are_those_of_plain_loops() -> None:
    """Two arms, each a fold of its own, and a strength that is the same everywhere."""
    steps = one_steps(simulated(WEAR, 2, 50, 3, by_chance(0.4)))
    found = gains(steps, SIZES, np.random.default_rng(0), strengths=np.ones(1))[0][2]
    steps = steps.where(steps.before >= 0)
    rows = list(
        zip(*(c.tolist() for c in (steps.arm, steps.before, steps.state, steps.action, steps.next_state)), strict=True)
    )

    def predicted(known: tuple[int, ...], mine: tuple[int, ...]) -> float:
        """By the rows of the other fold that share what is known; what is known is shortened from the front."""
        if not known:
            return 1 / 3
        # (before, state, action) -> (state, action), which comes twice: over types and of the one type -> (action,)
        others = [row for row in rows if row[0] != mine[0] and row[4 - len(known) : 4] == known]
        base = predicted(known[1:], mine)
        for _ in range(2 if len(known) == 2 else 1):
            base = (sum(row[4] == mine[4] for row in others) + base) / (len(others) + 1)
        return base

    assert found.shorter == pytest.approx(np.mean([math.log(predicted(row[2:4], row)) for row in rows]))
    assert found.longer == pytest.approx(np.mean([math.log(predicted(row[1:4], row)) for row in rows]))


def test_a_state_before_last_that_matters_is_found() -> None:
    stay, leave = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.6, 0.4], [0.4, 0.6]])
    by_before = np.stack([np.stack([stay, stay], axis=1), np.stack([leave, leave], axis=1)])
    log = simulated(by_before[:1], 150, 30, 1, states=("a", "b"), memory=lambda time, before: by_before[before])
    found, _ = gains(one_steps(log), (1, 2, 2), np.random.default_rng(0))
    assert found[2].is_sure
    assert "+0.0" in found[2].words
    assert " nats per step ± 0.0" in found[2].words


def remembering(difference: float, num_arms: int, num_rows: int, seed: int) -> Log:
    """Arms of two states that stay more often, by this much, after a step in the first."""
    rows = np.array([[[p, 1 - p], [1 - p, p]] for p in (0.7 + difference / 2, 0.7 - difference / 2)])
    by_before = np.repeat(rows[:, :, None], 2, axis=2)
    return simulated(
        by_before[:1], num_arms, num_rows, seed, states=("a", "b"), memory=lambda time, before: by_before[before]
    )


def test_the_order_is_tested_by_the_likelihood_ratio_of_scipy() -> None:
    log = remembering(0.15, 60, 15, 0)
    tables = np.zeros((2, 2, 2))  # state, state before, next state
    for i in range(1, len(log.arm) - 1):
        if log.arm[i - 1] == log.arm[i + 1]:
            tables[log.state[i], log.state[i - 1], log.state[i + 1]] += 1
    each = [stats.chi2_contingency(table, correction=False, lambda_="log-likelihood") for table in tables]
    test = gains(one_steps(log), (1, 2, 2), np.random.default_rng(0))[0][2].test
    assert test is not None
    assert test.statistic == pytest.approx(sum(one.statistic for one in each))
    assert test.degrees == 2 and test.p_value == pytest.approx(stats.chi2.sf(test.statistic, 2))


@pytest.mark.parametrize("number", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_a_weak_memory_is_found_and_none_is_made_up(number: int) -> None:
    """Held-out scores alone find it in half of the logs."""
    room = 3 * np.sqrt(0.05 * 0.95 / number)  # three standard errors of a share
    for difference, num_arms, num_rows, least, most in (
        (0.15, 60, 15, 0.95 - room, 1.0),
        (0.0, 60, 15, 0.0, 0.05 + room),
        (0.0, 8, 6, 0.0, 0.05 + room),  # sparse tables
    ):
        found = [
            gains(one_steps(remembering(difference, num_arms, num_rows, seed)), (1, 2, 2), np.random.default_rng(seed))
            for seed in range(number)
        ]
        assert least <= np.mean([one[0][2].is_sure for one in found]) <= most


def test_errors_are_right_and_no_memory_is_made_up() -> None:
    sure, scaled = 0, []
    for seed in range(60):
        log = simulated(WEAR, 40, 12, seed, by_chance(0.3))
        found, _ = gains(one_steps(log), SIZES, np.random.default_rng(seed))
        sure += found[2].is_sure
        scaled.append((found[1].gain, found[1].stderr))
    assert sure <= 4
    spread, told = np.std([gain for gain, _ in scaled]), np.mean([error for _, error in scaled])
    assert 0.7 < told / spread < 1.4


def test_too_few_arms_are_reported() -> None:
    log = simulated(WEAR, 1, 9, 0)
    found, left_out = gains(one_steps(log), SIZES, np.random.default_rng(0))
    assert not found
    assert left_out["order 0"].startswith("only one arm has two rows")
    pairs = simulated(WEAR, 30, 2, 0)
    found, left_out = gains(one_steps(pairs), SIZES, np.random.default_rng(0))
    assert list(found) == [1]
    assert left_out == {"order 2": "no arm has three rows one step apart, and a held-out score needs two arms"}


def test_states_of_which_hardly_any_occur_give_the_same() -> None:
    """With two thousand possible states contexts are numbered by those that occur."""
    steps = one_steps(simulated(WEAR, 30, 8, 0, by_chance(0.3)))
    few, _ = gains(steps, SIZES, np.random.default_rng(0))
    many, _ = gains(steps, (SIZES[0] * 2000, *SIZES[1:]), np.random.default_rng(0))
    for order in (1, 2):
        assert many[order].gain == pytest.approx(few[order].gain, abs=1e-12)
        assert many[order].longer == pytest.approx(few[order].longer, abs=1e-12)


def test_steps_leave_out_gaps_and_actions_that_were_not_recorded() -> None:
    log = simulated(WEAR, 2, 6, 0)
    log.time[3:6] += 2.0
    log.action[7] = -1
    steps: Steps = one_steps(log)
    pairs = [(i, i + 1) for i in range(11) if i not in (2, 5, 7)]
    assert steps.next_state.tolist() == [int(log.state[j]) for _, j in pairs]
    before = [int(log.state[i - 1]) if i not in (0, 3, 6) else -1 for i, _ in pairs]
    assert steps.before.tolist() == before


@pytest.mark.parametrize(("times", "number"), [([0, 0, 0, 1], 1), ([0, 1, 1, 1], 3), ([0, 1, 2, 3], 2), ([5, 5], None)])
def test_halves_are_cut_between_times(times: list[float], number: int | None) -> None:
    found = late(np.array(times, dtype=np.float64))
    assert (None if found is None else int(found.sum())) == number
