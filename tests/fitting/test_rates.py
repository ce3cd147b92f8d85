"""Rates with covariates and cuts of time: against matrix exponentials, closed forms, and simulations of known rates."""

from itertools import pairwise

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.fitting import Gaps, Moves
from evenhand.fitting.ctmc.likelihood import read_panel

from ..oracles import msm

COLUMNS = {"arm": "arm", "time": "time", "state": "state", "action": "action"}
SICK = np.array([[0, 0.5, 0], [0.4, 0, 0.3], [0, 0, 0]])
ALLOWED = SICK > 0
IMPOSSIBLE = {"state": ["well"], "next_state": ["dead"]}
STATES = np.array(["well", "ill", "dead"])
TWO, PAIR = np.array([[0, 0.6], [0.4, 0]]), np.array(["well", "ill"])


def simulated(rng, num_arms, effects=(), cuts=(), jumps=SICK, pause=1.0, visits=5, names=STATES):
    """Panel records of a path per arm, and what the oracle reads of them: sex is a number 0 or 1."""
    effects, size = np.asarray(effects, float).reshape(-1, *jumps.shape), len(jumps)
    table = {"arm": [], "time": [], "state": [], "action": [], "sex": []}
    for arm in range(num_arms):
        sex, now, state = float(rng.random() < 0.5), 0.0, int(rng.integers(size - 1))
        times = np.cumsum(rng.exponential(pause, visits)).round(2) + 0.01 * np.arange(1, visits + 1)
        for visit, time in enumerate(times):
            while visit and now < time:
                period = np.searchsorted(cuts, now, side="right")
                x = [sex] * (len(effects) > len(cuts)) + [float(period == k + 1) for k in range(len(cuts))]
                own = jumps[state] * np.exp(np.tensordot(x, effects, 1)[state] if len(effects) else 0.0)
                end = min([time, *(cut for cut in cuts if cut > now)])
                wait = rng.exponential(1 / own.sum()) if own.sum() else np.inf
                if now + wait > end:
                    now = end
                else:
                    now, state = now + wait, int(rng.choice(size, p=own / own.sum()))
            now = time
            row = (arm, time, names[state], "none", sex)
            for column, value in zip(table.values(), row, strict=True):
                column.append(value)
    return table


def moves_of(table, names, x=None):
    """Rows of the oracle."""
    place = {name: number for number, name in enumerate(names)}
    first = min(table["time"])
    for k in range(len(table["arm"]) - 1):
        if table["arm"][k] == table["arm"][k + 1]:
            start, end = table["time"][k], table["time"][k + 1]
            yield place[table["state"][k]], place[table["state"][k + 1]], start - first, end - start, x(k) if x else ()


def fitted(table, prior=0, model=IMPOSSIBLE, **records):
    given = {"states": list(STATES), "step": 1.0, **records}
    return eh.fit(table, **COLUMNS, prior=prior, records=given, model={"impossible": model, "absorbing": "dead"})


def test_maximum_likelihood_with_a_covariate_is_that_of_single_exponentials():
    rng = np.random.default_rng(0)
    table = simulated(rng, 40, [0.6 * ALLOWED])
    centre = np.mean([sex for k, sex in enumerate(table["sex"]) if k % 5 < 4])
    rows = list(moves_of(table, STATES, lambda k: (table["sex"][k] - centre,)))
    rates, effects, value, _, effect_errors = msm.maximise(rows, ALLOWED, 1)
    found = fitted(table, covariates="sex")
    assert found.log_likelihood == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(found.rates.rates[0, 0, 0], rates, rtol=2e-3)
    ratio, lower, upper = found.rates.hazard_ratios[:, 0][:, ALLOWED]
    np.testing.assert_allclose(ratio, np.exp(effects[0][ALLOWED]), rtol=2e-3)
    # The weakest prior behind the intervals adds a jump or so to the information.
    np.testing.assert_allclose(np.log(upper / lower) / 3.92, effect_errors[0][ALLOWED], rtol=0.15)
    sums = rates.sum(axis=1)
    np.testing.assert_allclose(found.rates.sojourn[0, 0, 0, :2], 1 / sums[:2], rtol=2e-3)
    np.testing.assert_allclose(found.rates.next_state[0, 0, 0, :2], rates[:2] / sums[:2, None], atol=2e-3)


def test_maximum_likelihood_with_cuts_is_that_of_products_of_exponentials():
    rng = np.random.default_rng(1)
    table = simulated(rng, 60, [0.7 * ALLOWED, -0.5 * ALLOWED], cuts=(2.0, 4.0), pause=1.2)
    first = min(table["time"])
    rows = list(moves_of(table, STATES))
    shifted = (2.0 - first, 4.0 - first)
    rates, effects, value, _, _ = msm.maximise(rows, ALLOWED, 2, shifted, exact=(2,))
    found = fitted(table, time_cuts="2,4", exact="dead")
    assert found.log_likelihood == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(found.rates.rates[0, 0, 0], rates, rtol=5e-3)
    np.testing.assert_allclose(found.rates.hazard_ratios[0][:, ALLOWED], np.exp(effects[:, ALLOWED]), rtol=5e-3)
    assert found.rates.effects == ("time 2–4", "time from 4")
    # The model has the rates of the last period.
    late = rates * np.exp(effects[1])
    late -= np.diag(late.sum(axis=1))
    np.testing.assert_allclose(found.posterior.mean[0, :, 0], msm.expm(late), atol=2e-3)


def test_likelihood_with_covariates_cuts_and_a_prior_is_that_of_single_exponentials():
    rng = np.random.default_rng(2)
    table = simulated(rng, 30, [0.6 * ALLOWED, 0.4 * ALLOWED], cuts=(2.0,))
    table["sex"] = np.where(np.array(table["sex"]) > 0, "m", "f")
    found = fitted(table, None, covariates="sex", time_cuts=[2.0])
    rates, logs = found.rates.rates[0, 0, 0], np.nan_to_num(np.log(found.rates.hazard_ratios[0]))
    rows = list(moves_of(table, STATES, lambda k: (float(table["sex"][k] == "m"),)))
    cut = 2.0 - min(table["time"])
    assert found.log_likelihood == pytest.approx(msm.log_likelihood(rates, logs, rows, (cut,)), rel=1e-9)
    assert found.rates.effects == ("sex=m", "time from 2")
    assert found.log.types == ("sex f", "sex m")


def test_covariates_hold_from_row_to_row_and_numbers_are_per_unit():
    """A number that changes from row to row, in whole steps: ages of 30, 40 and 50, 3 years apart in effect."""
    rng = np.random.default_rng(6)
    table = simulated(rng, 50)
    table["time"] = [k % 5 for k in range(len(table["arm"]))]
    table["age"] = rng.choice([30, 40, 50], len(table["arm"])).tolist()
    found = fitted(table, covariates=("age",))
    centre = np.mean([age for k, age in enumerate(table["age"]) if k % 5 < 4])
    rows = list(moves_of(table, STATES, lambda k: ((table["age"][k] - centre) / 10,)))
    rates, effects, value, _, _ = msm.maximise(rows, ALLOWED, 1)
    assert not found.log.regular and found.log_likelihood == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(found.rates.rates[0, 0, 0], rates, rtol=5e-3)
    ratios = np.exp(effects[0][ALLOWED] / 10)
    np.testing.assert_allclose(found.rates.hazard_ratios[0, 0][ALLOWED], ratios, rtol=2e-3)
    last = [f"age {table['age'][k]}" for k in range(4, len(table["arm"]), 5)]
    assert [found.log.types[t] for t in found.log.type_of] == last
    assert found.moves.departures.sum() == len(rows)


def test_a_model_with_rewards_and_actions_has_a_type_per_level():
    rng = np.random.default_rng(7)
    table = simulated(rng, 60, [0.5 * (TWO > 0)], jumps=TWO, names=PAIR)
    number = len(table["arm"])
    table["ward"] = np.where(np.array(table["sex"]) > 0, "B", "A").tolist()
    table["action"] = rng.choice(["none", "visit"], number).tolist()
    table["value"] = [float(state == "well") for state in table["state"]]
    records = {"step": 1.0, "states": list(PAIR), "covariates": "ward", "reward": "value", "gone_after": np.inf}
    found = eh.fit(table, **COLUMNS, records=records)
    assert [arm.name for arm in found.problem.arms] == ["ward A", "ward B"]
    assert found.problem.counts.sum() == 60 and found.rates.rates.shape == (3, 1, 2, 2, 2)


@pytest.mark.parametrize("exact", [(), (2,), (0, 1, 2)])
@pytest.mark.parametrize("carry_action", [False, True])
def test_likelihood_and_gradient_with_cuts_and_actions(exact, carry_action):
    """Moves with an action, idle time and two cuts are up to four segments."""
    rng = np.random.default_rng(8)
    rates = rng.gamma(2.0, 0.3, size=(6, 2, 3, 3)) * (1 - np.eye(3))  # 2 types in 3 periods
    number, cuts, step = 40, (1.5, 2.5), 1.0
    state, after, action, kind = (rng.integers(size, size=number) for size in (3, 3, 2, 2))
    if len(exact) == 3:
        after = np.where(rng.random(number) < 0.3, state, (state + 1) % 3)
    start, time = rng.uniform(0, 3, number), rng.choice([0.4, 1.0, 2.3, 3.1], number)
    codes = (part.astype(np.int32) for part in (kind, state, action, after))
    gaps = Gaps(*codes, time, np.ones(number, np.int64), start)
    moves = Moves(np.zeros((2, 3, 2, 3), np.int64), gaps, carry_action)
    panel = read_panel(moves, step, exact, cuts=cuts)

    def direct(rates):
        total = 0.0
        for s, j, a, t, begin, long in zip(state, after, action, kind, start, time, strict=True):
            ends = sorted({begin, begin + long, *(c for c in (*cuts, begin + step) if begin < c < begin + long)})
            path = np.eye(3)
            for low, high in pairwise(ends):
                period = sum(low >= cut for cut in cuts)
                own = rates[3 * t + period, a if carry_action or low < begin + step else 0]
                between = own - np.diag(own.sum(axis=1))
                for e in exact:
                    between[np.arange(3) != e, e] = 0.0
                path = path @ msm.expm(between * (high - low))
            into = own[:, j] * (np.arange(3) != j)
            total += np.log(path[s] @ into if j in exact and j != s else path[s, j])
        return total

    expected = panel.expect(rates)
    assert expected.values.sum() == pytest.approx(direct(rates), rel=1e-11)
    gradient = expected.jumps - rates * expected.times
    for place in [(0, 0, 0, 1), (1, 1, 1, 2), (2, 0, 2, 0), (4, 0, 1, 0), (5, 1, 0, 2), (3, 1, 0, 1)]:
        higher, lower = rates.copy(), rates.copy()
        higher[place] *= np.exp(1e-5)
        lower[place] *= np.exp(-1e-5)
        assert gradient[place] == pytest.approx((direct(higher) - direct(lower)) / 2e-5, rel=1e-5, abs=1e-6), place


def test_the_command_reports_rates(tmp_path, capsys):
    import json

    import polars

    from evenhand.cli import run

    table = simulated(np.random.default_rng(9), 40, jumps=TWO, names=PAIR)
    polars.DataFrame(table).write_csv(tmp_path / "log.csv")
    command = f"fit {tmp_path}/log.csv --arm arm --time time --state state --action action --step 1 --quiet"
    options = ["--covariates", "sex", "--time-cuts", "2.5"]
    assert run([*command.split(), *options, "--json", "--report", f"{tmp_path}/page.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["effect"] for row in found["rates"]["hazard_ratios"]} == {"sex", "time from 2.5"}
    assert "hazard ratio" in (tmp_path / "page.html").read_text()
    assert run([*command.split(), *options]) == 0
    assert "mean sojourn times" in capsys.readouterr().out


def test_event_histories_are_occurrences_over_exposures_per_period_and_level():
    rng = np.random.default_rng(3)
    table = {"arm": [], "time": [], "state": [], "action": [], "ward": []}
    occurrences, exposures = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))  # ward, period, state
    for arm in range(60):
        now, state, ward = 0.0, arm % 2, int(arm % 3 == 0)
        while True:
            for column, value in zip(table.values(), (arm, now, "ab"[state], "none", "ABC"[ward]), strict=True):
                column.append(value)
            if now > 6:
                break
            after = round(now + rng.exponential(1.0 + state) + 0.01, 2)
            for period, (low, high) in enumerate(((0, 3), (3, 1e9))):
                exposures[ward, period, state] += max(0.0, min(after, high) - max(now, low))
            occurrences[ward, int(after >= 3), state] += 1
            now, state = after, 1 - state
    exact = occurrences / exposures
    given = {"layout": "events", "step": 1.0}
    cut = eh.fit(table, **COLUMNS, prior=0, records={**given, "time_cuts": (3,)})
    both = occurrences.sum(axis=0) / exposures.sum(axis=0)
    np.testing.assert_allclose(cut.rates.rates[0, 0, 0][[0, 1], [1, 0]], both[0], rtol=1e-5)
    np.testing.assert_allclose(cut.rates.hazard_ratios[0, 0][[0, 1], [1, 0]], both[1] / both[0], rtol=1e-5)
    level = eh.fit(table, **COLUMNS, prior=0, records={**given, "covariates": ["ward"]})
    per_ward = occurrences.sum(axis=1) / exposures.sum(axis=1)
    np.testing.assert_allclose(level.rates.rates[0, 0, 0][[0, 1], [1, 0]], per_ward[0], rtol=1e-5)
    ratio, lower, upper = level.rates.hazard_ratios[:, 0][:, [0, 1], [1, 0]]
    np.testing.assert_allclose(ratio, per_ward[1] / per_ward[0], rtol=1e-5)
    # The information of a log rate is the number of occurrences.
    variance = (1 / occurrences.sum(axis=1)).sum(axis=0)
    np.testing.assert_allclose(np.log(upper / lower) / 3.92, np.sqrt(variance), rtol=0.05)
    assert not np.allclose(exact[0], exact[1])


def test_rates_of_types_are_pooled_beside_covariates():
    rng = np.random.default_rng(4)
    table = simulated(rng, 60, [0.8 * ALLOWED])
    table["kind"] = ["A" if arm % 2 else "B" for arm in table["arm"]]
    given = {"states": list(STATES), "step": 1.0, "covariates": "sex", "gone_after": np.inf}
    model = {"impossible": IMPOSSIBLE, "absorbing": "dead"}
    found = eh.fit(table, **COLUMNS, type="kind", records=given, model=model)
    assert found.log.types == ("A, sex 0", "A, sex 1", "B, sex 0", "B, sex 1")
    assert found.rates.rates.shape == (3, 2, 1, 3, 3) and found.posterior.mean.shape == (4, 3, 1, 3)
    ratio = found.rates.hazard_ratios[0, 0, 0, 1]
    own = found.posterior.mean[:, 0, 0, 0]
    assert ratio > 1 and own[0] > own[1] and own[2] > own[3]
    assert found.problem.num_types == 4
    frame, written = found.rates.to_frame("polars"), found.rates.to_dict()
    assert len(frame) == len(written["jumps"]) == 2 * 3 and written["unit"] == "step"
    assert {row["effect"] for row in written["hazard_ratios"]} == {"sex"}


def test_covariates_that_cannot_be_used_are_refused():
    rng = np.random.default_rng(5)
    table = simulated(rng, 120)
    table["age"] = rng.normal(size=len(table["arm"])).tolist()
    with pytest.raises(InvalidInputError, check=lambda error: error.argument == "covariates"):
        fitted(table, covariates="age")
    with pytest.raises(InvalidInputError, match="clusters"):
        eh.fit(table, **COLUMNS, clusters=2, records={"step": 1.0, "covariates": "sex"})
    with pytest.raises(InvalidInputError, match="same in every row"):
        fitted({**table, "age": [1] * len(table["arm"])}, covariates="age")
    for cuts in ("9999", "3,2", "soon"):
        with pytest.raises(InvalidInputError, match="time_cuts"):
            fitted(table, time_cuts=cuts)


@pytest.mark.slow
def test_intervals_of_rates_and_hazard_ratios_cover():
    inside, among = np.zeros(3), np.zeros(3)
    jumps, two = TWO, PAIR
    for seed in range(300):
        rng = np.random.default_rng(seed)
        table = simulated(rng, 200, [0.5 * (jumps > 0), -0.4 * (jumps > 0)], (2.5,), jumps, names=two)
        table["sex"] = np.where(np.array(table["sex"]) > 0, "m", "f")
        records = {"step": 1.0, "covariates": "sex", "time_cuts": (2.5,), "states": list(two)}
        found = eh.fit(table, **COLUMNS, records=records).rates
        truth = (jumps[[0, 1], [1, 0]], np.exp(0.5), np.exp(-0.4))
        ends = (found.rates[1:, 0, 0], found.hazard_ratios[1:, 0], found.hazard_ratios[1:, 1])
        for k, (true, (lower, upper)) in enumerate(zip(truth, ends, strict=True)):
            covered = (lower[[0, 1], [1, 0]] <= true) & (true <= upper[[0, 1], [1, 0]])
            inside[k] += covered.sum()
            among[k] += 2
    print(inside / among)
    assert ((inside / among > 0.93) & (inside / among < 0.97)).all()
