"""Who got what: rules that look at the state, at more than the state, at nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evenhand.fitting.diagnostics.selection import CANNOT, Choices, choices

from .simulated import WEAR, Rule, by_chance, by_state, simulated

WORTH = np.array([[1.0, 0.5, 0.0]])


def chosen(rule: Rule, seed: int = 0, worth: np.ndarray | None = WORTH, num_arms: int = 150) -> Choices:
    found = choices(simulated(WEAR, num_arms, 15, seed, rule), worth, np.random.default_rng(seed))
    assert isinstance(found, Choices)
    return found


def test_a_rule_by_state_is_found() -> None:
    found = chosen(by_state([0.05, 0.1, 0.7]))
    assert found.words[0].startswith("who got served was worse off: ")
    assert "of the served were in poor" in found.words[0]
    assert found.words[-1] == CANNOT
    assert len(found.words) == 2  # it looked at nothing else
    assert chosen(by_state([0.05, 0.1, 0.7]), worth=None).words[0].startswith("who got served was not like the others")
    assert chosen(by_state([0.7, 0.1, 0.05])).words[0].startswith("who got served was better off")


def test_the_test_is_that_of_scipy() -> None:
    log = simulated(WEAR, 150, 15, 2, by_state([0.3, 0.35, 0.4]))
    found = choices(log, WORTH, np.random.default_rng(0))
    assert isinstance(found, Choices)
    compared = np.array([i for i in range(len(log.arm)) if log.time[i] == 0 or log.action[i - 1] == 0])
    state, action = log.state[compared], log.action[compared]  # not after a service
    table = [[np.sum((state == s) & (action == a)) for a in (0, 1)] for s in range(3)]
    expected = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    assert found.by_state.statistic == pytest.approx(expected.statistic)
    assert found.by_state.p_value == pytest.approx(expected.pvalue)
    assert found.served + found.idle == len(compared)
    assert found.worth is not None
    assert found.worth[0] == pytest.approx(WORTH[0][state[action == 1]].mean())


@pytest.mark.parametrize("exceptions", [0, 3])
def test_the_treated_of_a_trial_are_better_off_because_of_it(exceptions: int) -> None:
    """Each arm has one action throughout, drawn at random; a few arms of the others stop halfway."""
    treated = np.random.default_rng(1).random(200) < 0.5
    stops = np.flatnonzero(treated)[:exceptions]

    def throughout(time: int, before: np.ndarray, state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (treated & ~((time > 6) & np.isin(np.arange(200), stops))).astype(np.int32)

    found = chosen(throughout, num_arms=200)
    assert (found.served, found.idle) == (treated.sum(), 200 - treated.sum())
    assert found.by_state.p_value > 0.05
    assert found.by_before is None or found.by_before.p_value > 0.05


def test_a_rule_by_more_than_the_state_is_found() -> None:
    def by_history(time: int, before: np.ndarray, state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(len(state)) < np.where(before == 0, 0.15, 0.5)).astype(np.int32)

    found = chosen(by_history)
    assert any("more than the state" in said for said in found.words)


def test_a_rule_that_changes_is_found() -> None:
    def by_time(time: int, before: np.ndarray, state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(len(state)) < (0.2 if time < 8 else 0.5)).astype(np.int32)

    found = chosen(by_time)
    assert any("the choice changed between early and late" in said for said in found.words)


def test_random_choices_have_uniform_p_values_in_every_test() -> None:
    found = [chosen(by_chance(0.4), seed, num_arms=40) for seed in range(150)]
    for name in ("by_state", "by_before", "by_time"):
        values = [getattr(each, name).p_value for each in found]
        assert stats.kstest(values, "uniform").pvalue > 1e-3, name


def test_unlike_treatment_of_types_is_found() -> None:
    log = simulated(np.stack([WEAR, WEAR]), 100, 15, 0, by_chance(0.3), types=("a", "b"))
    rng = np.random.default_rng(0)
    favoured = (log.type_of[log.arm] == 1) & (rng.random(len(log.arm)) < 0.4)
    log = replace(log, action=np.where(favoured, 1, log.action).astype(np.int32))
    found = choices(log, None, rng)
    assert isinstance(found, Choices)
    assert any("types were served unlike" in said for said in found.words)


def test_irregular_times_leave_only_what_needs_none() -> None:
    found = choices(replace(simulated(WEAR, 50, 9, 0, by_chance(0.4)), regular=False), WORTH, np.random.default_rng(0))
    assert isinstance(found, Choices)
    assert found.by_before is None
    assert found.by_time is not None


def test_records_without_a_comparison_are_reported() -> None:
    rng = np.random.default_rng(0)
    assert choices(simulated(WEAR, 5, 4, 0), None, rng) == "no action but the idle one was recorded"
    assert choices(simulated(WEAR, 5, 4, 0, by_chance(1.0)), None, rng) == "every row was served"
