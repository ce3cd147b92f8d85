"""What is promised when something goes wrong: killed writers, two at once, a full disk, a clock that goes back.

After each of them: what was answered is there, nothing is there twice, no budget is exceeded, the log is whole.
"""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
import traceback
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import pytest

from evenhand.errors import ConflictError, UnavailableError
from evenhand.programme import Programme, ledger

from ..conftest import slow_after


def in_child(work):
    """Run something in a process of its own that ends with it; the number of the process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may go on in the child but its end
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child):
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_all(programme, answered=()):
    """What must hold after anything; `answered` are accepted plans that somebody was told of."""
    programme.verify()
    accepted = programme.plans("accepted")
    steps = [plan.step for plan in accepted]
    assert sorted(steps) == list(range(len(steps)))
    assert programme.status().step == len(steps)
    for plan in accepted:
        whole = programme.plan_of(plan.id)
        assert all(whole.accepted_used[name] <= there + 1e-9 for name, there in whole.budget.items())
        assert len(whole.rows) == whole.arms
        assert all(row.accepted is not None for row in whole.rows)
    known = {plan.step: plan.id for plan in accepted}
    for told in answered:
        assert known[told["step"]] == told["plan"]
    events = programme.events()
    told = [event.body["plan"] for event in events if event.kind == "accepted"]
    assert sorted(told) == sorted(known.values())
    if accepted:
        programme.recompute(accepted[0].id)


def live(address, pipe, seed):
    """Go through steps for ever, and tell of every one that was accepted."""
    rng = np.random.default_rng(seed)
    programme = Programme.open(address)
    while True:
        step = programme.status().step
        arms = [arm.name for arm in programme.arms()]
        seen = [{"arm": name, "state": int(rng.integers(3))} for name in arms]
        programme.observe(seen, "rounds", key=f"o{step}-{seed}", confirmed=True)
        plan = programme.plan(key=f"p{step}-{seed}")
        done = programme.accept(plan.plan, key=f"a{step}-{seed}")
        os.write(pipe, (json.dumps(done.to_dict()) + "\n").encode())
        programme.record([{"arm": arms[0], "action": 1}], "crew", key=f"r{step}-{seed}")


def kill_at_random(address, times, rng):
    answered = []
    for turn in range(times):
        reading, writing = os.pipe()
        child = in_child(lambda pipe=writing, seed=turn: live(address, pipe, seed))
        os.close(writing)
        with os.fdopen(reading) as said:
            first = said.readline() if turn == 0 else ""  # one of them is killed in the midst of its work
            time.sleep(float(rng.uniform(0.05, 0.6)))
            os.kill(child, signal.SIGKILL)
            assert ended(child) == -signal.SIGKILL
            lines = (first + said.read()).splitlines(keepends=True)
        answered += [json.loads(line) for line in lines if line.endswith("\n")]
        with Programme.open(address) as programme:
            check_all(programme, answered)
    with Programme.open(address) as programme:
        plan = programme.plan()
        programme.accept(plan.plan)
        check_all(programme, answered)
    return answered


@pytest.mark.parametrize("address", slow_after(1, ["postgresql", "sqlite"]), indirect=True)
def test_a_writer_killed_at_random_loses_nothing_that_was_answered(programme, address):
    programme.solve()
    programme.close()
    assert kill_at_random(address, 3, np.random.default_rng(7))


@pytest.mark.slow
def test_a_writer_killed_fifty_times(programme, address):
    programme.solve()
    programme.close()
    assert kill_at_random(address, 50, np.random.default_rng(8))


def race(address, work, gate):
    """Something that two processes begin at the same time."""

    def go():
        with Programme.open(address) as own:
            while time.monotonic() < gate:
                time.sleep(0.001)
            work(own)

    return in_child(go)


@pytest.mark.parametrize("address", slow_after(1, ["postgresql", "sqlite"]), indirect=True)
def test_two_processes_plan_one_step_once(programme, address):
    programme.solve()
    for step in range(3):
        programme.observe([{"arm": "b1", "state": step % 3}], "rounds")
        gate = time.monotonic() + 0.3
        children = [race(address, lambda own: own.plan(), gate) for _ in range(2)]
        assert [ended(child) for child in children] == [0, 0]
        assert [plan.step for plan in programme.plans("proposed")] == [step]
        assert len([plan for plan in programme.plans() if plan.step == step]) == 1

        def accept(own):
            try:
                own.accept(own.plans("proposed")[0].id)
            except (ConflictError, IndexError):
                os._exit(3)

        children = [race(address, accept, time.monotonic() + 0.3) for _ in range(2)]
        assert sorted(ended(child) for child in children) == [0, 3]
        check_all(programme)


def test_a_full_disk_changes_nothing(tmp_path, pumps, roster):
    file = tmp_path / "x.db"
    with Programme.create(file, pumps, roster) as programme:
        programme.solve()
        programme.accept(programme.plan().plan)
        before = programme.status()

    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = max(file.stat().st_size, 4096)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        with Programme.open(file) as own:
            with pytest.raises(UnavailableError):
                for _ in range(2000):
                    own.observe([{"arm": name, "state": 1} for name in ("b1", "b2", "h1", "h2", "v1")], "x" * 1500)
            assert own.verify().event == own.status().events

    assert ended(in_child(fill)) == 0
    with Programme.open(file) as again:
        assert again.status().step == before.step
        again.accept(again.plan().plan)
        check_all(again)


def test_a_full_database_is_reported(tmp_path, pumps, roster):
    with Programme.create(tmp_path / "x.db", pumps, roster) as programme:
        with programme.store.writing() as tx:
            pages = tx.exec_driver_sql("PRAGMA page_count").scalar()
            tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UnavailableError):
            for number in range(200):
                programme.observe([{"arm": "b1", "state": number % 3}], "x" * 1900)
        check_all(programme)


def test_a_clock_that_is_set_back_changes_nothing(programme, monkeypatch):
    years = iter(range(2030, 1970, -1))

    class Back(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(next(years), 1, 1, tzinfo=UTC)

    monkeypatch.setattr(ledger, "datetime", Back)
    for state in ("worn", "broken"):
        programme.observe([{"arm": "b1", "state": state}], "rounds")
    plan = programme.plan_of(programme.plan().plan)
    assert plan.rows[0].state == "broken"
    programme.accept(plan.id)
    programme.record([{"arm": "b1", "action": "run", "next_state": "worn"}], "crew")
    programme.record([{"arm": "b1", "action": "run", "next_state": "fine"}], "crew")
    assert programme.plan_of(programme.plan().plan).rows[0].state == "fine"
    check_all(programme)
    times = [event.at for event in programme.events()[1:]]
    assert times == sorted(times, reverse=True)


def test_a_copy_is_the_same_programme(programme, address, request, tmp_path):
    programme.accept(programme.plan().plan)
    plan = programme.plan_of(programme.plan().plan)
    if programme.store.is_sqlite:
        copy = str(tmp_path / "copy.db")
        with closing(sqlite3.connect(address)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    else:
        server = request.getfixturevalue("postgresql")
        copy, dump = server.database(), tmp_path / "pumps.dump"
        dumped = ["pg_dump", "--format", "custom", "--file", str(dump), address]
        subprocess.run(dumped, check=True, capture_output=True)
        restored = ["pg_restore", "--no-owner", "--exit-on-error", "--dbname", copy, str(dump)]
        subprocess.run(restored, check=True, capture_output=True)
    with Programme.open(copy) as again:
        assert again.current_plan() == plan
        assert again.events() == programme.events()
        again.accept(plan.id)
        check_all(again)
    assert programme.status().step == 1
