"""Shares of states over time against closed forms and against arms that are played."""

from dataclasses import replace

import numpy as np
import pytest

from evenhand.fitting.diagnostics.state_shares import Shares, shares_over_time

from ...conftest import mentions
from .simulated import WEAR, by_state, simulated


def found(log, rows) -> Shares:  # type: ignore[no-untyped-def]
    shares = shares_over_time(log, rows)
    assert isinstance(shares, Shares)
    return shares


def test_without_actions_shares_are_powers_of_the_matrix() -> None:
    log = simulated(WEAR, 50, 12, 0)
    shares = found(log, WEAR[None])
    start = np.bincount(log.state.reshape(50, 12)[:, 0], minlength=3) / 50
    expected = [start @ np.linalg.matrix_power(WEAR[:, 0], time) for time in range(12)]
    assert np.allclose(shares.predicted, expected)
    assert np.allclose(shares.observed[5], np.bincount(log.state.reshape(50, 12)[:, 5], minlength=3) / 50)
    assert shares.arms.tolist() == [50] * 12


def test_under_a_rule_shares_are_those_of_the_rules_chain() -> None:
    rule = [0.1, 0.4, 0.9]
    log = simulated(WEAR, 20_000, 9, 1, by_state(rule))
    served = np.array(rule)[:, None]
    chain = (1 - served) * WEAR[:, 0] + served * WEAR[:, 1]
    shares = found(log, WEAR[None])
    law = np.full(3, 1 / 3)
    for predicted in shares.predicted:
        assert np.allclose(predicted, law, atol=0.015)
        law = law @ chain
    assert shares.outside < 0.2
    assert shares.distance < 0.01


def test_rows_that_are_wrong_show() -> None:
    log = simulated(WEAR, 500, 12, 2, by_state([0.1, 0.4, 0.9]))
    wrong = WEAR.copy()
    wrong[0, 0] = [0.6, 0.4, 0.0]
    right, bad = found(log, WEAR[None]), found(log, wrong[None])
    assert right.outside < 0.15
    assert bad.outside > 0.5
    assert bad.distance > 4 * right.distance
    assert mentions("about 5")(bad.words)


def test_arms_that_come_late_leave_early_or_are_missed_for_a_while() -> None:
    """Whoever is not seen to move is not pushed; whoever comes in is where it was seen. So one step is one product."""
    log = simulated(WEAR, 300, 6, 3)
    rng = np.random.default_rng(0)
    kept = rng.random(len(log.arm)) < 0.7
    kept |= log.time == 0
    names = ("arm", "time", "state", "action", "row")
    thin = replace(log, **{name: getattr(log, name)[kept] for name in names})
    shares = found(thin, WEAR[None])
    where = {(int(a), int(t)): int(s) for a, t, s in zip(thin.arm, thin.time, thin.state, strict=True)}
    stays = [[(a, s) for (a, t), s in where.items() if t == time and (a, time + 1) in where] for time in range(5)]
    expected = np.bincount([s for (_, t), s in where.items() if t == 0], minlength=3).astype(float)
    for time in range(5):
        there = np.bincount([s for (_, t), s in where.items() if t == time], minlength=3)
        share = np.bincount([s for _, s in stays[time]], minlength=3) / there
        new = [s for (a, t), s in where.items() if t == time + 1 and (a, time) not in where]
        expected = (expected * share) @ WEAR[:, 0] + np.bincount(new, minlength=3)
        assert np.allclose(shares.predicted[time + 1], expected / expected.sum())


def test_rows_that_nothing_is_known_of_do_no_harm() -> None:
    unknown = WEAR[None].copy()
    unknown[0, :, 1] = np.nan
    log = simulated(WEAR, 20, 5, 0)
    assert np.isfinite(found(log, unknown).predicted).all()


@pytest.mark.parametrize("fault", ["irregular", "one time"])
def test_shares_that_cannot_be_counted_are_reported(fault: str) -> None:
    log = simulated(WEAR, 5, 1 if fault == "one time" else 4, 0)
    log = replace(log, regular=fault != "irregular")
    assert fault in shares_over_time(log, WEAR[None])  # type: ignore[operator]
