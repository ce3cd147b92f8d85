"""Threads: as many as the work is worth, asleep while they wait, and the user's environment left as it was."""

import os
import subprocess
import sys
from threading import get_ident

import pytest
from numba import get_num_threads

from evenhand.kernels import ALONE_BELOW, forks, idle_threads_sleep, in_threads, threads_for

from ..conftest import slow_after

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


@pytest.mark.slow
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


CHANGES = {
    "another signature": """
from numba.np.ufunc import parallel
def build_gufunc_kernel(library, ctx, info, sig, inner_ndim, schedule=None):
    raise AssertionError("a loop was compiled for several threads")
parallel.build_gufunc_kernel = build_gufunc_kernel
""",
    "no such function": "from numba.np.ufunc import parallel; del parallel.build_gufunc_kernel",
    "another name": "import llvmlite.binding as llvm; llvm.address_of_symbol = lambda name: None",
    "another LLVM": "from llvmlite import ir; kept, ir.FunctionType = ir.FunctionType, None",
    "as it is": "",
}
"""What another Numba may be like, as an attack on this one before the library is loaded."""

LOOP = """
import os, warnings
import numpy as np
import numba
{change}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from evenhand.kernels.jit import njit, prange
    from evenhand.kernels.threads import threads_for

    @njit(parallel={{"prange": True, "fusion": False}})
    def squares(out):
        for i in prange(len(out)):
            out[i] = i * i
    told = [warning.category.__name__ for warning in told]

def work():
    out = np.zeros(1000)
    with threads_for(1e9):
        squares(out)
    return bool((out == np.arange(1000.0) ** 2).all())

{before}
assert work()
if os.fork() == 0:
    os._exit(0 if work() else 3)
print(told, squares.targetoptions["parallel"] is not False, os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", slow_after(1, CHANGES))
def test_another_numba_costs_speed_and_nothing_else(kind):
    """Where the door does not fit, loops have one thread, that is said, and a forked process goes on all the same."""
    script = LOOP.format(change=CHANGES[kind], before="ir.FunctionType = kept" if kind == "another LLVM" else "")
    told = os.environ | {"NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True, check=False)
    expected = "[] True 0" if kind == "as it is" else "['OneThread'] False 0"
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
