"""Early against late, and types against each other."""

import numpy as np
import pytest
from scipy import stats

from evenhand.fitting import one_steps
from evenhand.fitting.diagnostics.homogeneity import BetweenTypes, InTime, between_types, in_time

from ...conftest import mentions
from .simulated import WEAR, by_chance, counted_moves, simulated

NAMES = (("all",), ("good", "fair", "poor"), ("wait", "serve"))


def halves(seed: int, change: float = 0.0) -> InTime:
    """Arms whose wear changes in the middle."""
    later = WEAR.copy()
    later[0, 0] = [0.8 - change, 0.2 + change, 0.0]
    log = simulated(
        WEAR,
        30,
        21,
        seed,
        by_chance(0.4),
        memory=lambda time, before: np.broadcast_to(later if time >= 10 else WEAR, (30, 3, 2, 3)),
    )
    found = in_time(one_steps(log), NAMES, np.random.default_rng(seed))
    assert isinstance(found, InTime)
    return found


def test_p_values_are_uniform_where_nothing_changes() -> None:
    assert stats.kstest([halves(seed).test.p_value for seed in range(200)], "uniform").pvalue > 1e-3


def test_a_change_is_found_with_its_row() -> None:
    found = [halves(seed, 0.35) for seed in range(12)]
    assert sum(each.test.p_value < 0.01 for each in found) >= 11
    best = found[0]
    assert best.apart is not None
    assert (best.apart.state, best.apart.action, best.cut) == ("good", "wait", 10.0)
    assert mentions(0.001, "+0")(best.words)
    assert best.words.split(", most in wait in good: ")[1].count(" went to ") == 1
    assert "arms move alike" in next(each for each in map(halves, range(9)) if each.test.p_value > 0.1).words


def test_records_of_one_time_are_not_compared() -> None:
    log = simulated(WEAR, 5, 2, 0)
    assert in_time(one_steps(log), NAMES, np.random.default_rng(0)) == "all steps begin at one time"


@pytest.fixture(scope="module")
def three_types() -> BetweenTypes:
    rows = np.stack([WEAR, WEAR, WEAR])
    rows[2, 0, 0] = [0.5, 0.5, 0.0]
    names = ("a", "b", "c")
    log = simulated(rows, 90, 20, 4, by_chance(0.3), types=names)
    return between_types(counted_moves(log).counts, (names, *NAMES[1:]), np.random.default_rng(0))


def test_the_type_that_differs_is_found(three_types: BetweenTypes) -> None:
    assert three_types.test.p_value < 1e-3
    by_name = {one.type: one for one in three_types.each}
    assert min(by_name, key=lambda name: by_name[name].test.p_value) == "c"
    place = by_name["c"].apart
    assert place is not None
    assert (place.type, place.state, place.action) == ("", "good", "wait")
    assert mentions(0.001)(three_types.words)


def test_types_alike_have_uniform_p_values() -> None:
    values = []
    for seed in range(150):
        log = simulated(np.stack([WEAR, WEAR]), 24, 10, seed, by_chance(0.3), types=("a", "b"))
        found = between_types(counted_moves(log).counts, (("a", "b"), *NAMES[1:]), np.random.default_rng(seed))
        values.append(found.test.p_value)
        assert not found.each  # of two, each against the other is the same test
    assert stats.kstest(values, "uniform").pvalue > 1e-3
