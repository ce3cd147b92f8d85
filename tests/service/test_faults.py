"""Real servers under load that are killed, stopped, cut off from their database, and two of them at once.

After each: no accepted decision lost, none doubled, budgets never exceeded, the log of events whole.
"""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest

from evenhand.cli import run
from evenhand.programme import Programme

from ..conftest import require, slow_after


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, programme_at):
    """Where a programme with a policy is, on each database in turn."""
    return programme_at(request.param)


@pytest.fixture
def servers(live):
    """Starts servers, and ends those that are left."""
    started = []

    def start(*arguments, **more):
        started.append(live.Server(*arguments, **more))
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
    assert load.statuses["cut off"] + load.statuses["nobody there"] >= 1


@pytest.mark.parametrize("where", slow_after(1, ["sqlite", "postgresql"]), indirect=True)
def test_killed_under_load(live, servers, where):
    kill_again_and_again(live, servers, where, 3, seed=1)


@pytest.mark.slow
def test_killed_fifty_times(live, servers, where):
    kill_again_and_again(live, servers, where, 50, seed=2)


# A disk that is full


@pytest.fixture
def small_disk():
    """A disk of 150 megabytes of its own."""
    folder = Path(tempfile.mkdtemp(prefix="evenhand-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=150m,mode=755", "none", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("a small disk cannot be mounted here: it needs root and Linux")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def fill(disk):
    """Leave not a byte on it; what is in the way."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return filler


@pytest.fixture(params=["sqlite", "postgresql"])
def on_small_disk(request, small_disk, template, solved_at, start_postgresql):
    """Where a programme on a small disk is, and what starts its database again where that has died."""
    if request.param == "sqlite":
        where = small_disk / "pumps.db"
        where.write_bytes(template.read_bytes())
        yield where, lambda: None
        return
    with start_postgresql(small_disk) as database:
        where = solved_at(database.database())
        yield where, lambda: database.is_running() or database.start()


@pytest.mark.slow
def test_a_full_disk_under_load(live, servers, small_disk, on_small_disk):
    """Changes are refused in words while it is full, and go on when it is not; nobody starts the server anew."""
    where, revive = on_small_disk
    server = servers(where)
    load = live.Load(lambda: [server.address], pause=0.0)
    try:
        load.wait_for_steps(3)
        for _ in range(3):
            filler = fill(small_disk)
            load.wait_for(503, 5)
            assert server.ask("GET", "/healthz").status_code == 200
            filler.unlink()
            revive()
            load.wait_for_steps(len(load.accepted) + 3)
    finally:
        load.end()
    with Programme.open(where) as programme:
        live.check_whole(programme, load)
    code, errors = server.stop()
    assert code == 0
    assert "Traceback" not in errors


# A clock that is set back


@pytest.mark.slow
def test_a_clock_set_back_under_load(live, servers, where, tmp_path):
    """The server's own clock, by hours and years, back and forth; it is the clock of all that its process does."""
    libraries = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    require(libraries, "faketime")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    faked = {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    server = servers(where, environment=faked)
    load = live.Load(lambda: [server.address])
    try:
        for offset in ("-1h", "-30y", "+10y", "-2d"):
            load.wait_for_steps(len(load.accepted) + 3)
            clock.write_text(f"{offset}\n")
        load.wait_for_steps(len(load.accepted) + 3)
    finally:
        load.end()
    with Programme.open(where) as programme:
        live.check_whole(programme, load)
        times = [event.at for event in programme.events()]
    back = sum(one > next_one for one, next_one in pairwise(times))
    assert back >= 3, "the clock was set back, and events tell so"


# Backup and restore, as docs/programmes.md says


def back_up(where, number, tmp_path, postgresql_of):
    """The address of a copy."""
    if isinstance(where, Path):
        copy = tmp_path / f"backup{number}.db"
        with closing(sqlite3.connect(where)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy
    dump, copy = tmp_path / f"backup{number}.dump", postgresql_of().database()
    subprocess.run(["pg_dump", "--format", "custom", "--file", dump, where], check=True)
    subprocess.run(["pg_restore", "--no-owner", "--exit-on-error", "--dbname", copy, dump], check=True)
    return copy


def restored(where, copy):
    """Where the programme is, after the copy has been put into its place."""
    if not isinstance(where, Path):
        return copy
    copy.replace(where)
    for end in ("-wal", "-shm"):
        where.with_name(where.name + end).unlink(missing_ok=True)
    return where


@pytest.mark.slow
def test_backups_under_load(live, servers, where, tmp_path, request):
    """Each is the programme as it was at one moment, with all that had been answered by then; and it goes on."""
    server = servers(where)
    load, copies = live.Load(lambda: [server.address], pause=0.0), []
    try:
        for number in range(5):
            load.wait_for_steps(len(load.accepted) + 2)
            answered = list(load.accepted)
            copies.append((answered, back_up(where, number, tmp_path, lambda: request.getfixturevalue("postgresql"))))
    finally:
        load.end()
    server.kill()
    with Programme.open(where) as programme:
        whole = programme.events()
    for answered, copy in copies:
        assert run(["programme", "recompute", str(copy), "--quiet"]) == 0
        with Programme.open(copy) as again:
            events = again.events()
            assert events == whole[: len(events)]
            plans = {plan.id: plan.accepted_event for plan in again.plans("accepted")}
        assert {answer["plan"] for answer in answered} <= set(plans)
    answered, copy = copies[2]
    where = restored(where, copy)
    server = servers(where)
    load = live.Load(lambda: [server.address], seed=9)
    try:
        load.wait_for_steps(3)
    finally:
        load.end()
    with Programme.open(where) as programme:
        assert programme.verify().event == programme.status().events
        programme.recompute(max(plan.id for plan in programme.plans("accepted")))
        steps = sorted(plan.step for plan in programme.plans("accepted"))
        assert steps == list(range(len(steps)))
        assert len(steps) >= len(answered) + 3


# PostgreSQL that goes away


@pytest.mark.slow
def test_two_servers_and_a_database_that_goes_away(live, servers, programme_at, postgresql):
    where = programme_at("postgresql")
    both = [servers(where), servers(where)]
    load = live.Load(lambda: [server.address for server in both], clients=4)
    try:
        load.wait_for_steps(3)
        for mode in ("fast", "immediate"):
            postgresql.stop(mode)
            load.wait_for(503)
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


def test_a_server_ends_on_a_signal(live, servers, programme_at):
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
