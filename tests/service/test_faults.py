"""Real servers under load that are killed, stopped, cut off from their database, and two of them at once.

After each: no accepted decision lost, none doubled, budgets never exceeded, the log of events whole.
"""

import random
import signal
import time

import httpx
import psutil
import pytest

from evenhand.programme.programme import Programme


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, programme_at):
    """Where a programme with a policy is, on each database in turn."""
    return programme_at(request.param)


@pytest.fixture
def servers(live):
    """Starts servers, and ends those that are left."""
    started = []

    def start(*arguments):
        started.append(live.Server(*arguments))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


def kill_again_and_again(live, servers, where, times, seed):
    rng = random.Random(seed)
    server = servers(where)
    load = live.Load(lambda: [server.address], seed=seed)
    try:
        for _ in range(times):
            before = len(load.accepted)
            load.wait_for_steps(before + 1)
            time.sleep(rng.random() * 0.3)
            server.kill()
            server = servers(where)
        load.wait_for_steps(len(load.accepted) + 1)
    finally:
        load.end()
    with Programme.open(where) as programme:
        live.check_whole(programme, load)
    assert load.statuses["no answer"] >= 1


def test_killed_under_load(live, servers, where):
    kill_again_and_again(live, servers, where, 3, seed=1)


@pytest.mark.slow
def test_killed_fifty_times(live, servers, where):
    kill_again_and_again(live, servers, where, 50, seed=2)


def test_two_servers_and_a_database_that_goes_away(live, servers, programme_at, postgresql):
    where = programme_at("postgresql")
    both = [servers(where), servers(where)]
    load = live.Load(lambda: [server.address for server in both], clients=4)
    try:
        load.wait_for_steps(3)
        for mode in ("fast", "immediate"):
            postgresql.stop(mode)
            before = load.statuses[503]
            end = time.monotonic() + 30
            while load.statuses[503] == before and time.monotonic() < end:
                time.sleep(0.02)
            assert both[0].ask("GET", "/healthz").status_code == 200
            assert both[0].ask("GET", "/readyz").status_code == 503
            postgresql.start()
            load.wait_for_steps(len(load.accepted) + 3)
    finally:
        load.end()
    assert both[0].ask("GET", "/readyz").status_code == 200
    with Programme.open(where) as programme:
        live.check_whole(programme, load)
    assert load.statuses[503] > 0
    for server in both:
        code, errors = server.stop()
        assert code == 0
        assert "Traceback" not in errors


def wait_for_workers(server):
    end = time.monotonic() + 30
    while not (workers := psutil.Process(server.process.pid).children()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return workers


def test_a_server_ends_when_it_is_told_to(live, servers, programme_at):
    """Its worker ends with it, and a stream that goes on does not keep it."""
    server = servers(programme_at("sqlite"))
    job = server.ask("POST", "/v1/programme/what-if", json={"welfare": "gini:2", "seconds": 60.0}).json()["id"]
    workers = wait_for_workers(server)
    with httpx.stream("GET", f"{server.address}/v1/jobs/{job}/events", timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: progress"
        code, errors = server.stop(signal.SIGTERM)
    assert code == 0, errors
    assert not psutil.wait_procs(workers, timeout=10)[1]


@pytest.mark.slow
def test_a_worker_ends_with_a_server_that_is_killed(live, servers, programme_at):
    server = servers(programme_at("sqlite"))
    server.ask("POST", "/v1/programme/what-if", json={"welfare": "gini:2", "seconds": 60.0})
    workers = wait_for_workers(server)
    server.kill()
    assert not psutil.wait_procs(workers, timeout=30)[1]
