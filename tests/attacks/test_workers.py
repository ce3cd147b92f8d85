"""Work handed to others: forked pools after a call in the parent, thread pools, loky; nothing hangs, all answers agree.

A script runs every kind of work in its own process, then in workers. It runs in a process of its own with a time
limit, since what it looks for is a hang. Answers are compared to the last bit: threads and processes change nothing.
"""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
LIMIT = 300
"""Seconds; a whole run takes about five on an idle machine."""

WORK = """
import json, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import evenhand as eh

crowd = eh.problems.machine_replacement(num_arms=1000, budget=200)
machines = eh.problems.machine_replacement(num_arms=4)
kinds = eh.CoupledMDP([*machines.arms, *eh.problems.machine_replacement(stay_probability=0.5).arms], [1], 0.9, [2, 1])

def simulate(seed):
    return eh.simulate(crowd, eh.policies.whittle(crowd), 20, 30, rng=seed).returns.mean().item()

def simulate_counts(seed):
    return eh.simulate_counts(crowd, eh.policies.whittle(crowd), 200, 30, rng=seed).returns.mean().item()

def evaluate(seed):
    played = eh.evaluate(machines, eh.policies.whittle(machines), "nash", 3000, 30, seed, "monte-carlo")
    return [played.welfare, eh.evaluate(machines, eh.policies.whittle(machines)).welfare]

def solve(seed):
    answers = [eh.solve(machines, method=method).welfare for method in ("counts", "joint", "count-lp", "joint-lp")]
    return [*answers, eh.solve(kinds).welfare, eh.solve(kinds, "nash").welfare]

def fluid(seed):
    return eh.solve(machines, "nash", "fluid", rng=seed).welfare

def compare(seed):
    rows = eh.compare(machines, ["whittle", "random"], num_episodes=100, horizon=30, rng=seed).rows
    return [row.evaluation.welfare for row in rows]

TASKS = [globals()[name] for name in sys.argv[2].split(",")]

def all_of_it(seed):
    return [task(seed) for task in TASKS]
"""

POOLS = {
    "fork pool": "with multiprocessing.get_context('fork').Pool(2) as pool: found = pool.map(all_of_it, [0, 1])",
    "fork executor": (
        "with ProcessPoolExecutor(2, multiprocessing.get_context('fork')) as pool:"
        " found = list(pool.map(all_of_it, [0, 1]))"
    ),
    "threads": "with ThreadPoolExecutor(3) as pool: found = list(pool.map(all_of_it, [0, 1, 0, 1, 0, 1]))[-2:]",
    "loky": "import joblib; found = joblib.Parallel(2)(joblib.delayed(all_of_it)(seed) for seed in (0, 1))",
    "fork in a fork": """
def forked(seed):
    with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool:
        return pool.submit(all_of_it, seed).result()
with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool: found = list(pool.map(forked, [0, 1]))
""",
    "fork beside threads": """
with ThreadPoolExecutor(2) as threads:
    going = [threads.submit(all_of_it, seed) for seed in (0, 1)]
    with multiprocessing.get_context('fork').Pool(2) as pool: found = pool.map(all_of_it, [0, 1])
    assert [each.result() for each in going] == found
""",
}
EVERYTHING = "simulate,simulate_counts,evaluate,solve,compare,fluid"
MOST = "simulate,simulate_counts,solve"
PLAYING = "simulate,simulate_counts"


def run(pools, tasks, **environment):
    """The script's two answers to each pool, after its own; a hang is an error, and leaves no process behind."""
    turns = "".join(f"\n{POOLS[pool]}\nprint(json.dumps(found), flush=True)\n" for pool in pools)
    script = f"{WORK}\nprint(json.dumps([all_of_it(0), all_of_it(1)]), flush=True)\n{turns}"
    told = dict(os.environ) | {"NUMBA_NUM_THREADS": "2"} | environment
    process = subprocess.Popen(
        [sys.executable, "-c", script, "workers", tasks],
        env=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"hung after {out.count(chr(10))} answers: {err[:500]}")
    if "threading layer" in err:
        pytest.skip("Numba has no such threads here")
    assert process.returncode == 0, err
    assert "fork()" not in err, err
    return [json.loads(line) for line in out.splitlines()]


def assert_all_alike(answers, pools):
    assert len(answers) == 1 + len(pools)
    for name, answer in zip(pools, answers[1:], strict=True):
        assert answer == answers[0], name


@needs_fork
def test_pools_give_what_one_process_gives():
    pools = ["fork pool", "threads"]
    assert_all_alike(run(pools, MOST), pools)


@pytest.mark.slow
@needs_fork
def test_threads_that_cannot_serve_two_callers_take_turns():
    """Numba's own threads, taken where there is no OpenMP, end the process when two callers want them at once."""
    pools = ["threads", "fork pool"]
    assert_all_alike(run(pools, PLAYING, NUMBA_THREADING_LAYER="workqueue"), pools)


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("layer", ["omp", "workqueue", "default"])
@pytest.mark.parametrize("pool", list(POOLS))
def test_every_pool_with_every_kind_of_threads(pool, layer):
    if pool == "loky" and find_spec("joblib") is None:
        pytest.skip("joblib is not installed")
    assert_all_alike(run([pool], EVERYTHING, NUMBA_THREADING_LAYER=layer), [pool])
