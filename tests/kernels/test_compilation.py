"""That compilation is heard of and charged to nobody."""

from time import perf_counter, sleep

import numpy as np
import pytest

import evenhand as eh
from evenhand.kernels import compilation
from evenhand.planning import Stopwatch

PAUSE = 0.05


@pytest.fixture
def heard():
    """What is heard of compilation."""
    told = []
    with compilation.hearing(told.append):
        yield told


def get_ready():
    """As if something was compiled for a while."""
    compilation.get_ready(True)
    sleep(PAUSE)
    compilation.get_ready(False)


def test_numba_s_compiler_is_heard_once_a_function_and_stops_the_clock(heard):
    from evenhand.kernels import njit

    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x) * 2

    begin, work, before = perf_counter(), compilation.work_clock(), compilation.seconds_getting_ready()
    assert outer(3) == 8
    passed, worked = perf_counter() - begin, compilation.work_clock() - work
    assert heard == [True, False]
    spent = compilation.seconds_getting_ready() - before
    assert spent > 0.5 * passed
    assert worked == pytest.approx(passed - spent, abs=0.01)
    outer(4)
    assert heard == [True, False]
    outer(4.5)  # another type
    assert heard == [True, False, True, False]


def test_only_the_outermost_counts(heard):
    before = compilation.seconds_getting_ready()
    compilation.get_ready(True)
    get_ready()
    compilation.get_ready(False)
    assert PAUSE <= compilation.seconds_getting_ready() - before < 1.9 * PAUSE + 0.5


def test_the_clock_stands_still_meanwhile():
    work = compilation.work_clock()
    compilation.get_ready(True)
    sleep(PAUSE)
    during = compilation.work_clock()
    compilation.get_ready(False)
    assert during - work < 0.5 * PAUSE


class Unprepared:
    """A policy whose first steps have to be compiled."""

    exchangeable = False

    def __init__(self, steps):
        self.steps = steps

    def act(self, states, rng):
        if self.steps:
            self.steps -= 1
            get_ready()
        return np.zeros_like(states)


def test_an_evaluation_is_not_charged_for_it():
    problem = eh.problems.machine_replacement(num_arms=2)
    begin = perf_counter()
    found = eh.evaluate(problem, Unprepared(20), num_episodes=2, horizon=20, rng=0)
    assert perf_counter() - begin >= 20 * PAUSE
    assert found.seconds < 10 * PAUSE


def test_solving_shows_it_as_a_stage_of_its_own():
    watch = Stopwatch()
    get_ready()
    watch.lap("solve")
    assert watch.seconds["compile"] >= PAUSE
    assert watch.seconds["solve"] < PAUSE


def test_without_it_there_is_no_such_stage():
    watch = Stopwatch()
    watch.lap("solve")
    assert set(watch.seconds) == {"build", "solve"}
