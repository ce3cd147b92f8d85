"""Logs of changes: asked for their layout, and read by occurrence over exposure, or step by step."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import expm

from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.fitting import with_layout
from tests.fitting.flat import fit, read_log

COLUMNS = {"arm": "arm", "time": "time", "state": "state", "action": "action"}
TOLD = {**COLUMNS, "states": "up,down"}


def row(arm, time, state, action="none"):
    return {"arm": arm, "time": time, "state": state, "action": action}


def changes(num_arms=200, days=60.0, rates=(0.1, 1.0), seed=0, *, with_end=True):
    """Machines that fail and are mended, with a row at every change, and perhaps at the end."""
    rng, rows = np.random.default_rng(seed), []
    for arm in range(num_arms):
        time, down = 0.0, 0
        while time < days:
            rows.append(row(arm, round(time, 4), ("up", "down")[down]))
            time, down = time + rng.exponential(1 / rates[down]), 1 - down
        rows += [row(arm, days, ("down", "up")[down])] if with_end else []
    return rows


def occurrence_over_exposure(rows):
    """(state, next_state) transitions of a day."""
    jumps, times = np.zeros(2), np.zeros(2)
    for before, after in pairwise(rows):
        if before["arm"] == after["arm"]:
            state = int(before["state"] == "down")
            jumps[state] += before["state"] != after["state"]
            times[state] += after["time"] - before["time"]
    up, down = jumps / times
    return expm(np.array([[-up, up], [down, -down]]))


@pytest.mark.parametrize("how", [{"layout": "events"}, {"exact": "up,down"}])
def test_changes_at_their_times_are_occurrence_over_exposure(how):
    rows = changes()
    direct = occurrence_over_exposure(rows)
    assert direct[0, 0] == pytest.approx(0.939, abs=0.005)
    fitted = fit(rows, **TOLD, step=1, prior=0, **how)
    np.testing.assert_allclose(fitted.posterior.mean[0, :, 0], direct, atol=1e-9)
    leaning = fit(rows, **TOLD, step=1, **how)
    np.testing.assert_allclose(leaning.posterior.mean[0, :, 0], direct, atol=1e-3)
    for found in (fitted, leaning):
        lower, upper = found.interval
        assert (lower <= found.posterior.mean).all() and (found.posterior.mean <= upper).all()
        truth = expm(np.array([[-0.1, 0.1], [1.0, -1.0]]))
        assert (lower[0, :, 0] <= truth).all() and (truth <= upper[0, :, 0]).all()


def weekly(num_arms=60, weeks=50, stays=(0.95, 0.6), seed=0):
    """A chain of whole steps: every row, and those of changes and ends alone."""
    rng, every, some = np.random.default_rng(seed), [], []
    for arm in range(num_arms):
        down, before = 0, None
        for week in range(weeks):
            every.append(row(arm, week, ("up", "down")[down], "serve" if down != before and down else "none"))
            some += [every[-1]] if down != before or week == weeks - 1 else []
            before, down = down, down if rng.random() < stays[down] else 1 - down
    return every, some


def test_steps_between_changes_are_filled_in():
    every, some = weekly()
    whole = fit(every, **TOLD, unseen="idle")
    fitted = fit(some, **TOLD, unseen="idle", layout="events")
    np.testing.assert_array_equal(fitted.moves.counts, whole.moves.counts)
    np.testing.assert_array_equal(fitted.posterior.mean, whole.posterior.mean)
    assert len(fitted.log.arm) == len(every)
    carried = fit(some, **TOLD, unseen="idle", layout="events", carry_action=True)
    assert carried.moves.counts[0, 1, 0].sum() == 0  # down is served until it ends
    assert carried.moves.counts[0, 1].sum() == whole.moves.counts[0, 1].sum()


def test_rewards_and_use_are_of_the_rows_that_have_them():
    rows = [row("a", 0, "up"), row("a", 3, "down", "serve"), row("a", 5, "up"), row("a", 9, "up")]
    for one, reward, hours in zip(rows, (1.0, -2.0, 3.0, 7.0), (0, 4, 0, 0), strict=True):
        one |= {"reward": reward, "hours": hours}
    fitted = fit(rows, **TOLD, layout="events", reward="reward", used="hours", unseen="idle", prior=0)
    assert fitted.log.time.tolist() == list(range(10))
    assert np.isnan(fitted.log.reward).sum() == 6
    assert fitted.terms.usage[0, 1, 1, 0] == 4 and fitted.terms.rewards[0, 0, 0] == pytest.approx(11 / 3)
    assert fitted.terms.rewards[0, 1, 1] == -2


# Asked, or not


@pytest.mark.parametrize("with_end", [True, False])
@pytest.mark.parametrize("num_arms", [6, 60])
def test_changes_need_a_layout(num_arms, with_end):
    rows = changes(num_arms, with_end=with_end)
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit(rows, **COLUMNS, step=1)
    log = read_log(rows, **COLUMNS, step=1)
    assert with_layout(log, "snapshots") is log
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit(weekly(num_arms)[1], **COLUMNS, unseen="idle")
    with pytest.raises(UnknownNameError):
        fit(rows, **COLUMNS, step=1, layout="event")


def test_two_rows_per_arm_with_few_repetitions_need_a_layout():
    rng = np.random.default_rng(0)
    lives = [[row(arm, 0.0, "up"), row(arm, round(rng.exponential(300), 2), "down")] for arm in range(40)]
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit([one for life in lives for one in life], **COLUMNS, step=30)
    rows = changes(50)
    rows += [row(arm, 0.00005, "up") for arm in range(5)]  # written twice, nearly
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit(rows, **COLUMNS, step=1)


def snapshots(rng, num_arms=15, num_rows=12):
    """States of a random chain in continuous time, at random times short or long."""
    number = int(rng.integers(2, 7))
    rates = rng.gamma(0.5, 1.0, size=(number, number)) * rng.choice([0.01, 0.3, 3.0])
    generator = rates - np.diag(rates.sum(axis=1))
    scale, rows = rng.choice([0.3, 3.0, 30.0]), []
    for arm in range(num_arms):
        time, state = 0.0, int(rng.integers(number))
        for _ in range(num_rows):
            rows.append(row(arm, time, str(state)))
            pause = scale * rng.uniform(0.1, 2)
            law = np.maximum(expm(generator * pause)[state], 0)
            time, state = time + pause, int(rng.choice(number, p=law / law.sum()))
    return rows


def test_snapshots_need_no_layout():
    rng = np.random.default_rng(1)
    for _ in range(60):
        with_layout(read_log(snapshots(rng), **COLUMNS, step=1), None)
    every, _ = weekly()
    with_layout(read_log(every, **COLUMNS), None)
    kept = [one for one in every if one["time"] == 0 or rng.random() < 0.4]
    with_layout(read_log(kept, **COLUMNS), None)


def test_logs_that_both_layouts_read_alike_need_no_layout():
    """A row at every step, however it moves; exact states alone; and measurements that are cut into bins."""
    circle = [row(arm, week, ("up", "down")[week % 2]) for arm in range(10) for week in range(20)]
    one, other = (fit(circle, **COLUMNS, layout=layout) for layout in (None, "events"))
    np.testing.assert_array_equal(one.posterior.mean, other.posterior.mean)
    fit(changes(20), **COLUMNS, step=1, exact="up,down")
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit([*changes(20), row("x", 0.0, "off"), row("x", 5.0, "off")], **COLUMNS, step=1, exact="off")
    rng = np.random.default_rng(2)
    wear = [row(arm, 10 * k + rng.integers(8) / 4, 100.0 * k) for arm in range(60) for k in range(3)]
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "unclear-layout"):
        fit(wear, **COLUMNS, step=10)
    fit(wear, **COLUMNS, step=10, bins="50", only_worse=True, prior=1)
