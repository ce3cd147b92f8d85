"""Threads: as many as the work is worth, asleep while they wait, and the user's environment left as it was."""

import os
import subprocess
import sys
from threading import get_ident

import pytest
from numba import get_num_threads

from evenhand.kernels import forks
from evenhand.kernels.threads import ALONE_BELOW, idle_threads_sleep, in_threads, threads_for

SCRIPT = """
import os
before = dict(os.environ)
from evenhand import *
from evenhand.kernels.threads import threads_for
import numba
with threads_for(1e9):
    pass
assert dict(os.environ) == before
print(numba.threading_layer())
"""


def start(**environment):
    """(the threading layer, what OpenMP tells of its settings) of a process that starts Numba's threads."""
    told = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    told |= {"OMP_DISPLAY_ENV": "TRUE", "NUMBA_THREADING_LAYER": "omp", **environment}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=told, capture_output=True, text=True, check=False)
    if "threading layer" in done.stderr:
        pytest.skip("Numba has no OpenMP here")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_idle_threads_sleep_and_the_environment_is_as_it_was():
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in start()


def test_a_user_may_want_them_to_spin():
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in start(OMP_WAIT_POLICY="ACTIVE")


def test_the_variable_is_set_within_and_gone_after(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with pytest.raises(KeyError), idle_threads_sleep():
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
        raise KeyError
    assert "OMP_WAIT_POLICY" not in os.environ


def test_small_work_is_done_alone():
    before = get_num_threads()
    with threads_for(ALONE_BELOW - 1):
        assert get_num_threads() == 1
    with threads_for(ALONE_BELOW):
        assert get_num_threads() == before
    assert get_num_threads() == before


def test_a_forked_process_works_alone(monkeypatch):
    with threads_for(ALONE_BELOW):
        before = get_num_threads()
    assert not forks.forked()
    monkeypatch.setattr(forks, "_maker", [os.getpid() + 1])
    assert forks.forked()
    with threads_for(ALONE_BELOW):
        assert get_num_threads() == 1
    assert get_num_threads() == before
    assert len(set(in_threads(lambda _: get_ident(), range(4)))) == 1


def test_callers_wait_where_threads_serve_one_at_a_time(monkeypatch):
    if get_num_threads() == 1:
        pytest.skip("there is one thread")
    monkeypatch.setattr("numba.threading_layer", lambda: "workqueue")
    with threads_for(ALONE_BELOW):
        assert forks._in_turn.locked()
    with threads_for(ALONE_BELOW - 1):
        assert not forks._in_turn.locked()
    monkeypatch.setattr("numba.threading_layer", lambda: "omp")
    with threads_for(ALONE_BELOW):
        assert not forks._in_turn.locked()
