"""Tests of rates and shares at irregular times: against an oracle, closed forms, and simulations."""

import numpy as np
import pytest
from scipy.stats import chi2

import evenhand as eh
from evenhand.fitting.diagnostics.rate_tests import rates_in_time, rates_with_memory

from ...oracles import msm
from ..test_rates import ALLOWED, COLUMNS, STATES, TWO, fitted, moves_of, simulated
from ..test_rates import PAIR as NAMES


def two_states(table, **records):
    return eh.fit(table, **COLUMNS, records={"step": 1.0, "states": list(NAMES), **records})


def histories(rng, num_arms, shape=1.0, until=8.0):
    """Event histories of two states with gamma sojourns, and rows (state, time, is_jump, start)."""
    table, stays = {"arm": [], "time": [], "state": [], "action": []}, []
    for arm in range(num_arms):
        now, state = 0.0, arm % 2
        while True:
            for column, value in zip(table.values(), (arm, now, NAMES[state], "none"), strict=True):
                column.append(value)
            if now >= until:
                break
            after = round(now + rng.gamma(shape, (1.0 + state) / shape), 3) + 0.001
            stays.append((state, after - now, now))
            now, state = after, 1 - state
    return table, stays


def closed_form(groups):
    """G of events and exposures per state and group: rates are events over exposure."""
    events, time = (np.array(part, float) for part in groups)
    each = events * np.log(events / time)
    return 2 * (each.sum() - (events.sum(axis=1) * np.log(events.sum(axis=1) / time.sum(axis=1))).sum())


def test_time_is_tested_by_the_ratio_of_two_maxima():
    table = simulated(np.random.default_rng(0), 50)
    found = fitted(table)
    test = found.diagnostics.in_time.test
    first = min(table["time"])
    starts = [row[2] for row in moves_of(table, STATES)]
    middle = np.sort(starts)[len(starts) // 2]
    rows = list(moves_of(table, STATES, lambda k: (float(table["time"][k] - first >= middle),)))
    plain = [(*row[:4], ()) for row in rows]
    larger, smaller = msm.maximise(rows, ALLOWED, 1)[2], msm.maximise(plain, ALLOWED)[2]
    assert test.degrees == 3
    assert test.statistic == pytest.approx(2 * (larger - smaller), abs=1e-2)
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 3))
    assert found.diagnostics.to_dict()["in_time"]["test"]["degrees"] == 3


def test_tests_of_event_histories_have_closed_forms():
    table, stays = histories(np.random.default_rng(1), 40)
    found = two_states(table, layout="events")
    state, length, start = (np.array(part) for part in zip(*stays, strict=True))
    late = start >= np.sort(start)[len(start) // 2]
    by = [[(state == s) & (late == half) for half in (False, True)] for s in (0, 1)]
    groups = [[mask.sum() for mask in row] for row in by], [[length[mask].sum() for mask in row] for row in by]
    assert found.diagnostics.in_time.test.statistic == pytest.approx(closed_form(groups), rel=1e-4)
    middle = np.median(length)
    early = [[((state == s) & (length <= middle)).sum(), ((state == s) & (length > middle)).sum()] for s in (0, 1)]
    times = [
        [np.minimum(length, middle)[state == s].sum(), (length - middle).clip(0)[state == s].sum()] for s in (0, 1)
    ]
    stay = {one.question: one.test for one in found.diagnostics.memory}["the time in the state"]
    assert stay.degrees == 2
    assert stay.statistic == pytest.approx(closed_form((early, times)), rel=1e-4)


def test_differences_are_found():
    rng = np.random.default_rng(2)
    changing = simulated(rng, 150, [1.2 * (TWO > 0)], (2.5,), TWO, names=NAMES)
    found = two_states(changing).diagnostics
    assert found.in_time.test.p_value < 1e-4 and found.between_types is None and "types" in found.left_out
    table, _ = histories(rng, 60, shape=3.0)  # hazards rise with the time in the state
    memory = {one.question: one.test for one in two_states(table, layout="events").diagnostics.memory}
    assert memory["the time in the state"].adjusted < 1e-4
    both = [simulated(rng, 60, jumps=factor * TWO, names=NAMES) for factor in (0.6, 1.6)]
    joined = {key: [*both[0][key], *both[1][key]] for key in both[0]}
    joined["arm"] = [*both[0]["arm"], *(arm + 60 for arm in both[1]["arm"])]
    joined["kind"] = ["A"] * len(both[0]["arm"]) + ["B"] * len(both[1]["arm"])
    typed = eh.fit(joined, **COLUMNS, type="kind", records={"step": 1.0, "states": list(NAMES)}).diagnostics
    assert typed.between_types.test.degrees == 2 and typed.between_types.test.p_value < 1e-4
    assert [topic for topic, _ in typed.words].count("memory") == 2


@pytest.mark.slow
def test_true_hypotheses_are_rejected_in_five_of_a_hundred_cases():
    rejected, number = np.zeros(3), 300
    for seed in range(number):
        table = simulated(np.random.default_rng(seed), 80, jumps=TWO, names=NAMES)
        result = two_states(table)
        options = result.log, result.rates, False
        tests = [rates_in_time(*options).test, *(one.test for one in rates_with_memory(*options))]
        rejected += [test.p_value < 0.05 for test in tests]
    print(rejected / number)
    assert ((rejected / number > 0.02) & (rejected / number < 0.09)).all()


def test_shares_of_two_states_have_a_closed_form():
    """Arms begin at 0 in the first state and are visited at times of chance: shares at the last visit before t."""
    rng = np.random.default_rng(3)
    table = simulated(rng, 400, jumps=TWO, names=NAMES)
    result = two_states(table)
    found = result.diagnostics.shares
    up, down = result.rates.rates[0, 0, 0][[0, 1], [1, 0]]
    time, arm = np.array(table["time"]) - min(table["time"]), np.array(table["arm"])
    ill = np.array(table["state"]) == "ill"
    t = found.times[8]
    shares = []
    for one in np.unique(arm):
        own, is_ill = time[arm == one], ill[arm == one]
        if own[0] <= t <= own[-1]:
            left = np.exp(-(up + down) * (own[own <= t][-1] - own[0]))
            shares.append(up / (up + down) * (1 - left) + is_ill[0] * left)
    assert found.arms[8] == pytest.approx(len(shares))
    assert found.predicted[8, 1] == pytest.approx(np.mean(shares), abs=2e-3)  # times have two digits
    np.testing.assert_allclose(found.predicted.sum(axis=1), 1, atol=1e-9)
    assert found.outside < 0.2 and (found.errors > 0).all()


def test_shares_with_exact_deaths_agree_with_the_records():
    rng = np.random.default_rng(4)
    table = {"arm": [], "time": [], "state": [], "action": []}
    for arm in range(500):
        death, now = rng.exponential(4.0), 0.0
        end = rng.uniform(2, 8)
        while now < min(death, end):
            row = (arm, round(now, 3), "well", "none")
            for column, value in zip(table.values(), row, strict=True):
                column.append(value)
            now += rng.uniform(0.3, 1.5)
        dies = death < end
        row = (arm, round(death if dies else end, 3) + 0.001, "dead" if dies else "well", "none")
        for column, value in zip(table.values(), row, strict=True):
            column.append(value)
    given = {"step": 1.0, "states": ["well", "dead"], "exact": "dead"}
    found = eh.fit(table, **COLUMNS, records=given, model={"absorbing": "dead"}).diagnostics.shares
    truth = 1 - np.exp(-found.times / 4)
    np.testing.assert_allclose(found.predicted[:15, 1], truth[:15], atol=0.05)
    np.testing.assert_allclose(found.observed[:15, 1], truth[:15], atol=0.08)
    assert found.outside < 0.3
