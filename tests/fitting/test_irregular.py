"""The road from records to a model where times are irregular, or types are found."""

import csv
import json
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import expm

import evenhand as eh
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.fitting import Drawn, load_posterior, posterior_path
from evenhand.report import fit_report, page
from tests.conftest import mentions
from tests.fitting.flat import fit

COLUMNS = {"arm": "van", "time": "day", "state": "state", "action": "action"}


def visits(rng, num_arms=40, num_rows=12):
    """Vans that break at a rate of 0.2 a day and are found mended at 0.1, or at 0.8 for a week after service."""
    rows = []
    for van in range(num_arms):
        day, broken = 0.0, 0
        for _ in range(num_rows):
            action = "serve" if broken and rng.random() < 0.5 else "none"
            rows.append({"van": f"v{van}", "day": round(day, 1), "state": ["good", "poor"][broken], "action": action})
            pause = round(rng.uniform(1, 12), 1)
            served = min(pause, 7.0) if action == "serve" else 0.0
            law = expm(np.array([[-0.2, 0.2], [0.8, -0.8]]) * served)
            law = law @ expm(np.array([[-0.2, 0.2], [0.1, -0.1]]) * (pause - served))
            day, broken = day + pause, int(rng.random() < law[broken, 1])
        rows.append({"van": f"v{van}", "day": round(day, 1), "state": ["good", "poor"][broken], "action": "serve"})
    return rows


def test_irregular_times_become_transitions_of_a_step(tmp_path):
    rows = visits(np.random.default_rng(0))
    rows += [
        {"van": "x", "day": day, "state": "good", "action": "serve"} for day in (0.0, 7.0)
    ]  # so that no pair is unseen
    fitted = fit(rows, **COLUMNS, step=7, rewards="good=1,poor=0", budget=1)
    idle = expm(7 * np.array([[-0.2, 0.2], [0.1, -0.1]]))
    served = expm(7 * np.array([[-0.2, 0.2], [0.8, -0.8]]))
    lower, upper = fitted.posterior.interval(0.99)
    assert (lower[0, :, 0] <= idle).all() and (idle <= upper[0, :, 0]).all()
    assert (lower[0, 1, 1] <= served[1]).all() and (served[1] <= upper[0, 1, 1]).all()
    assert upper[0, 0, 0, 0] - lower[0, 0, 0, 0] < 0.35  # and something was learned
    assert any("rates" in note for note in fitted.notes)
    assert fitted.log_likelihood < 0 and fitted.moves.departures.sum() == 40 * 12 + 1
    fitted.save(tmp_path / "vans.toml")
    loaded = load_posterior(posterior_path(tmp_path / "vans.toml")).posterior
    assert isinstance(loaded, Drawn)
    np.testing.assert_array_equal(loaded.draws, fitted.posterior.draws)
    np.testing.assert_allclose(eh.load(tmp_path / "vans.toml").arms[0].transitions, fitted.posterior.mean[0])


def test_pairs_of_rows_are_counted_with_their_time():
    rows = visits(np.random.default_rng(0), 10)
    fitted = fit(rows, **COLUMNS, step=7, rewards="good=1,poor=0", unseen="idle")
    states, actions = ("good", "poor"), ("none", "serve")
    pairs, exposure = np.zeros((2, 2, 2), int), np.zeros((2, 2))
    for row, after in pairwise(rows):
        if row["van"] == after["van"]:
            place = states.index(row["state"]), actions.index(row["action"])
            pairs[(*place, states.index(after["state"]))] += 1
            exposure[place] += after["day"] - row["day"]
    told = fitted.to_dict()["types"][0]
    np.testing.assert_array_equal(told["counts"], pairs)
    np.testing.assert_allclose(told["exposure"], exposure)
    assert sum(fitted.to_frame("polars")["count"]) == pairs.sum()


def test_found_types_are_blocks_of_the_model_and_members_are_beside_it(tmp_path):
    rng = np.random.default_rng(1)
    rows = []
    for van in range(30):
        good = True
        for day in range(25):
            state, action = ("good", "none") if good else ("poor", "serve" if rng.random() < 0.7 else "none")
            rows.append({"van": f"v{van}", "day": day, "state": state, "action": action})
            good = rng.random() < ((0.95, 0.5)[van % 3 == 0] if good else 0.8 if action == "serve" else 0.1)
    fitted = fit(rows, **COLUMNS, clusters="auto")
    assert fitted.log.types == ("type 1", "type 2")
    assert fitted.log.type_of.tolist() == [int(van % 3 == 0) for van in range(30)]
    assert json.loads(json.dumps(fitted.clusters.to_dict()))["number"] == 2
    assert "types found" in page(fit_report(fitted))
    fitted.clusters.write(tmp_path / "members.csv")
    with (tmp_path / "members.csv").open() as file:
        assert [row["type"] for row in csv.DictReader(file)][:4] == ["type 2", "type 1", "type 1", "type 2"]


def test_what_does_not_go_together_is_refused():
    rows = visits(np.random.default_rng(2), 2, 3)
    with pytest.raises(InvalidInputError, check=lambda error: error.argument == "clusters"):
        fit(rows, **COLUMNS, type="van", clusters=2)
    with pytest.raises(UnknownNameError, check=mentions("poor")):
        fit(rows, **COLUMNS, step=7, exact="pour")
    regular = [{**row, "day": place} for place, row in enumerate(rows)]
    with pytest.raises(InvalidInputError, check=lambda error: error.argument == "exact"):
        fit(regular, **COLUMNS, exact="poor")


def test_what_cannot_be_is_a_rate_of_zero():
    rows = visits(np.random.default_rng(3), 12, 6)
    rows += [{"van": "x", "day": day, "state": "good", "action": "serve"} for day in (0.0, 7.0)]
    served = [row for row in rows if row["van"] == "x"]
    worse = [
        {"van": "y", "day": day, "state": state, "action": "none"}
        for day, state in ((0, "good"), (5.5, "poor"), (9, "poor"))
    ]
    mended = [{"van": "z", "day": day, "state": state, "action": "serve"} for day, state in ((0, "poor"), (3, "good"))]
    told = {"states": "good,poor", "step": 7, "only_worse": True}
    fitted = fit(served + worse + mended, **COLUMNS, **told, prior=2)
    assert fitted.posterior.mean[0, 1, 0].tolist() == [0.0, 1.0]
    assert fitted.posterior.mean[0, 1, 1, 0] > 0
    with pytest.raises(InvalidInputError, check=lambda error: error.code == "impossible-move"):
        fit(rows, **COLUMNS, **told)


def yearly(rng, num_arms=30, num_rows=6):
    """Vans of three states that only get worse, at a rate of 1 in 800 days, visited about once a year."""
    rows = []
    for van in range(num_arms):
        day, state = 0.0, 0
        for _ in range(num_rows):
            rows.append({"van": van, "day": day, "state": "abc"[state], "action": "visit"})
            pause = rng.integers(40, 100) * 5.5
            day, state = day + pause, min(state + int(rng.poisson(pause / 800)), 2)
    return rows


def test_times_in_days_are_no_reason_to_refuse():
    """A stay of years, at a rate of 1 a day, would underflow: whether a path exists is asked of the jumps alone."""
    rows = [row | {"action": "none"} for row in yearly(np.random.default_rng(4), 60)]
    impossible = [{"state": one, "next_state": other} for one, other in ("ba", "ac")]
    fitted = fit(rows, **COLUMNS, step=30, states="a,b,c", absorbing="c", impossible=impossible, prior=0)
    truth = expm(30 / 800 * np.array([[-1, 1, 0], [0, -1, 1], [0, 0, 0]]))
    lower, upper = fitted.posterior.interval(0.99)
    assert (lower[0, :, 0] <= truth + 1e-12).all() and (truth - 1e-12 <= upper[0, :, 0]).all()


def test_idle_time_between_visits_is_known():
    """Every row is a visit, and arms idle between them: nothing of the idle action is left unknown."""
    rows = yearly(np.random.default_rng(5))
    fitted = fit(rows, **COLUMNS, step=30, states="a,b,c", idle="none", actions="none,visit", only_worse=True)
    assert not fitted.unseen.any() and not np.isnan(fitted.posterior.mean).any()
    assert fitted.to_dict()["unseen"] == []
    truth = np.exp(-30 / 800)
    lower, upper = fitted.interval
    assert lower[0, 0, 0, 0] < truth < upper[0, 0, 0, 0] and upper[0, 0, 0, 0] - lower[0, 0, 0, 0] < 0.1
    assert fitted.problem.arms[0].num_actions == 2


def test_a_time_that_no_rates_explain_is_refused():
    """Its likelihood underflows, and the rates would be those of the other moves."""
    rng, rows = np.random.default_rng(6), []
    for van in range(2000):
        pause = rng.integers(1, 4) / 2 + 0.25
        after = "poor" if rng.random() < 1 - np.exp(-pause) else "good"
        rows += [
            {"van": van, "day": day, "state": state, "action": "none"} for day, state in ((0, "good"), (pause, after))
        ]
    rows += [{"van": "x", "day": day, "state": "good", "action": "none"} for day in (0, 10_000.25)]
    with pytest.raises(InvalidInputError, check=mentions(10000.25)):
        fit(rows, **COLUMNS, step=1, absorbing="poor")
