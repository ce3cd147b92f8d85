"""Effects of actions against the moments of Dirichlet rows, and their intervals against the truth."""

from dataclasses import replace

import numpy as np
import pytest

from evenhand.fitting.diagnostics.effects import effects

from ...conftest import mentions
from .simulated import WEAR, Rows, by_chance, counted_moves, simulated

NAMES = (("all",), ("good", "fair", "poor"), ("wait", "serve"))
WORTH = np.array([[1.0, 0.6, 0.0]])


def judged(seed: int = 0, worth: np.ndarray | None = WORTH, num_arms: int = 200, ordered: bool = True):  # type: ignore[no-untyped-def]
    log = replace(simulated(WEAR, num_arms, 10, seed, by_chance(0.3)), is_ordered=ordered)
    counts = counted_moves(log).counts
    return counts, effects(log, counts.sum(axis=3), Rows(counts + 0.1), worth, np.random.default_rng(seed))


def test_gains_have_the_mean_and_spread_of_their_rows() -> None:
    counts, found = judged()
    for effect in found.each:
        state = NAMES[1].index(effect.state)
        mean, variance = 0.0, 0.0
        for action, sign in ((1, 1), (0, -1)):
            c = counts[0, state, action] + 0.1
            p = c / c.sum()
            mean += sign * p @ WORTH[0]
            variance += (p @ WORTH[0] ** 2 - (p @ WORTH[0]) ** 2) / (c.sum() + 1)
        assert effect.gain[0] == pytest.approx(mean)
        assert (effect.gain[2] - effect.gain[1]) / 3.92 == pytest.approx(np.sqrt(variance), rel=0.15)
        assert effect.visits == counts[0, state, 1].sum()
        assert effect.idle_visits == counts[0, state, 0].sum()
        rise = (counts[0, state, 1] + 0.1) / (counts[0, state, 1] + 0.1).sum() - (counts[0, state, 0] + 0.1) / (
            counts[0, state, 0] + 0.1
        ).sum()
        assert effect.rise[0] == pytest.approx(rise.max())
        assert effect.to == NAMES[1][rise.argmax()]
    overall = found.overall[0]
    weights = np.array([effect.visits for effect in found.each])
    assert overall.gain[0] == pytest.approx(np.dot(weights, [effect.gain[0] for effect in found.each]) / weights.sum())


def test_intervals_of_effects_have_their_coverage() -> None:
    truth = (WEAR[:, 1] - WEAR[:, 0]) @ WORTH[0]
    inside = [
        effect.gain[1] <= truth[NAMES[1].index(effect.state)] <= effect.gain[2]
        for seed in range(60)
        for effect in judged(seed, num_arms=60)[1].each
    ]
    assert 0.9 < np.mean(inside) < 0.99


def test_effects_are_in_rewards_or_in_places() -> None:
    _, found = judged()
    poor = next(effect for effect in found.each if effect.state == "poor")
    assert poor.to == "good"
    assert mentions("poor", "+0.7")(poor.words)
    assert " reward a step later; " in poor.words
    assert poor.words.endswith("more come to good")
    _, by_place = judged(worth=None)
    poor = next(effect for effect in by_place.each if effect.state == "poor")
    assert mentions("poor", 1.5)(poor.words)
    assert "places towards good" in poor.words
    assert poor.gain[0] < 0  # places are counted from the first state on
    _, without = judged(worth=None, ordered=False)
    poor = next(effect for effect in without.each if effect.state == "poor")
    assert (poor.gain, poor.unit, poor.is_sure) == (None, None, True)
    assert mentions("poor", 65, 100, "[57", "72]")(poor.words)
    assert without.overall[0].words.startswith("serve, where it was given, changes this: ")


def test_an_action_without_effect_is_not_reported_to_help() -> None:
    idle = WEAR[:, [0, 0]]
    log = simulated(idle, 200, 10, 5, by_chance(0.5))
    counts = counted_moves(log).counts
    found = effects(log, counts.sum(axis=3), Rows(counts + 0.1), WORTH, np.random.default_rng(0))
    assert "is not seen to help or harm" in found.overall[0].words
    assert mentions(0, "3 intervals", "leave 0", "anything 1", 20)(found.words)


def test_unobserved_pairs_are_left_out_and_reported() -> None:
    log = simulated(WEAR, 50, 10, 0, by_chance(0.3))
    counts = counted_moves(log).counts
    counts[0, 2, 0] = 0
    found = effects(log, counts.sum(axis=3), Rows(counts.astype(float)), WORTH, np.random.default_rng(0))
    assert [effect.state for effect in found.each] == ["good", "fair"]
    assert found.alone == ("every arm got serve in poor",)
    assert np.isfinite(found.overall[0].gain).all()
    given, left = counts[:, :, 1].sum(), counts[0, 2, 1].sum()
    assert mentions(left, given)(found.words)
