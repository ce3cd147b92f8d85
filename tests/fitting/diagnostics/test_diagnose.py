"""All questions together: the same for the same seed, whole for any log, and silent about nothing."""

from dataclasses import replace

import numpy as np
import pytest

from evenhand.fitting import Log, diagnose

from ...conftest import mentions
from .simulated import WEAR, Rows, by_chance, by_state, counted_moves, simulated


def diagnosed(log: Log, **more):  # type: ignore[no-untyped-def]
    moves = counted_moves(log)
    return diagnose(log, moves, Rows(moves.counts + 0.3), **more)


def told(log: Log, topic: str, **more) -> list[str]:  # type: ignore[no-untyped-def]
    return [said for name, said in diagnosed(log, **more).words if name == topic]


@pytest.fixture(scope="module")
def wear() -> Log:
    return simulated(np.stack([WEAR, WEAR]), 80, 15, 0, by_state([0.1, 0.3, 0.6]), types=("van", "bus"))


def test_every_question_is_answered_or_left_out_with_a_reason(wear: Log) -> None:
    found = diagnosed(wear)
    assert not found.left_out
    topics = [topic for topic, _ in found.words]
    assert topics[:6] == ["memory", "memory", "time", "types", "shares", "sparse rows"]
    assert topics[6:] == ["effect", "effect", "choice", "choice", "tests"]
    assert found.num_tests == 4
    assert diagnosed(wear).words == found.words


def test_tests_of_one_question_are_adjusted_for_each_other(wear: Log) -> None:
    found = diagnosed(wear)
    assert found.in_time is not None and found.between_types is not None
    assert found.before is not None and found.before.test is not None
    for test in (found.in_time.test, found.between_types.test, found.before.test):
        assert 0 < test.adjusted == test.p_value
    assert found.choices is not None
    tests = [getattr(found.choices, name) for name in ("by_state", "by_before", "by_time", "by_type")]
    second = sorted(tests, key=lambda test: test.p_value)[1]
    assert second.adjusted == pytest.approx(min(1.0, 3 * second.p_value)) != second.p_value


def test_effects_that_are_not_identified_are_not_reported(wear: Log) -> None:
    found = diagnosed(wear, reasons={"effects": "each arm had one action"})
    assert found.effects is None and found.left_out["effects"] == "each arm had one action"


def test_types_that_were_found_in_the_records_are_not_tested_on_them(wear: Log) -> None:
    found = diagnosed(wear, reasons={"types": "found in these records"})
    assert found.between_types is None
    assert found.left_out["types"] == "found in these records"


def test_irregular_times_one_type_and_no_action_are_reported() -> None:
    log = replace(simulated(WEAR, 20, 6, 0), regular=False, actions=("wait",))
    moves = counted_moves(log)
    rows = Rows(moves.counts[:, :, :1] + 0.3)
    found = diagnose(log, replace(moves, counts=moves.counts[:, :, :1]), rows)
    assert set(found.left_out) == {"memory and time", "types", "shares", "effects", "choice"}
    assert found.state is found.before is found.in_time is found.between_types is found.shares is found.effects is None
    assert len([topic for topic, _ in found.words if topic == "not examined"]) == 5


def test_effects_are_in_rewards_if_there_are_some_else_in_places(wear: Log) -> None:
    worth = np.array([[1.0, 0.5, 0.0]] * 2)
    assert mentions("+0")(told(wear, "effect", worth=worth)[0])
    assert mentions("−0")(told(wear, "effect", worth=-worth)[0])
    assert " places towards good" in told(wear, "effect")[0]


def test_gaps_count_as_visits_and_thin_rows_are_listed() -> None:
    log = simulated(WEAR, 6, 5, 1, by_chance(0.3))
    log.time[log.time >= 3] += 2
    moves = counted_moves(log)
    assert len(moves.gaps.number) == 6
    visits = moves.departures
    assert visits.sum() == 24
    found = diagnose(log, moves, Rows(moves.counts + 0.3))
    few = {(row.state, row.action): row.visits for row in found.thin_rows.rows}
    expected = {
        (state, action): int(visits[0, s, a])
        for s, state in enumerate(log.states)
        for a, action in enumerate(log.actions)
        if visits[0, s, a] < 10
    }
    assert few == expected
    assert [row.visits for row in found.thin_rows.rows] == sorted(expected.values())
    assert mentions("10 times")(found.thin_rows.words)


def test_a_log_without_moves_has_diagnostics() -> None:
    log = simulated(np.stack([WEAR, WEAR]), 4, 1, 0, types=("a", "b"))
    found = diagnosed(log)
    assert found.thin_rows.total == 12
    assert set(found.left_out) >= {"order 0", "order 2", "time", "types", "shares"}
