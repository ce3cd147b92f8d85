"""Cells of one piece of work: the same answers here and elsewhere, whoever dies on the way."""

import os
import threading
import time
from pathlib import Path

import pieces
import pytest

from evenhand.errors import Cancelled, ClusterError, InvalidInput
from evenhand.execution import Sweep, alone
from evenhand.execution.local import InProcess, processes
from evenhand.execution.sweeps import turns


@pytest.fixture(scope="module")
def workers():
    with processes(2) as executor:
        yield executor


def test_answers_come_in_the_order_of_cells_and_are_told(workers):
    for sweep in (Sweep(), Sweep("local"), Sweep(workers)):
        told = []
        names = [f"cell {number}" for number in range(5)]
        assert sweep(pieces.doubled, range(5), names, lambda *what, told=told: told.append(what)) == [0, 2, 4, 6, 8]
        assert sweep.used
        shares = [share for _, share in told]
        assert shares == sorted(shares) and len(told) >= 5
        assert "cell" in told[0][0]


def test_one_process_tells_what_a_cell_does_within_its_turn():
    told = []
    Sweep()(pieces.doubled, [1, 2], ["first", "second"], lambda *what: told.append(what))
    assert told == [("first", 0.0), ("first", 0.25), ("second", 0.5), ("second", 0.75)]


def test_linear_algebra_has_the_same_bits_here_and_in_workers(workers):
    sizes = [40, 150, 300]
    assert Sweep()(pieces.solved, sizes) == Sweep(workers)(pieces.solved, sizes)


def test_threads_of_linear_algebra_are_as_they_were_afterwards():
    libraries = alone._libraries()
    if not libraries:
        pytest.skip("the linear algebra of this NumPy is not one that is told")

    def now():
        return [library.read() for library in libraries]

    def ends_later(cell, _):
        inside.wait(10)
        found.append(now())

    def fails(cell, _):
        assert now() == [1] * len(libraries)
        raise ZeroDivisionError

    before, inside, found = now(), threading.Event(), []
    try:
        for library in libraries:
            library.write(2)  # whatever the environment says: of one thread nothing could be told
        with alone.alone(), alone.alone():
            assert now() == [1] * len(libraries)
        assert now() == [2] * len(libraries)
        other = threading.Thread(target=Sweep(), args=(ends_later, [0]))
        other.start()
        with pytest.raises(ZeroDivisionError):
            Sweep()(fails, [0])
        inside.set()
        other.join()
        assert found == [[1] * len(libraries)]  # who is still at it keeps to one
        assert now() == [2] * len(libraries)
    finally:
        for library, number in zip(libraries, before, strict=True):
            library.write(number)


def test_nobody_is_started_before_there_is_something_to_do(monkeypatch):
    started = []
    monkeypatch.setattr("evenhand.execution.sweeps.open_place", lambda on: started.append(on))
    with Sweep("local:2") as sweep:
        assert not sweep.used and not sweep.is_here and sweep.name == "local:2"
    assert started == []


def test_a_place_is_read_at_once():
    with pytest.raises(InvalidInput, match="on: expected local"):
        Sweep("elsewhere")


def test_a_place_that_was_opened_is_closed():
    with Sweep("local:1") as sweep:
        (process,) = sweep(pieces.mine, [0])
        assert process != os.getpid()
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker goes on")


def test_a_cell_whose_worker_dies_is_done_again(workers, tmp_path):
    before = workers.num_replaced
    assert Sweep(workers)(pieces.die_at_first, [tmp_path / "mark", tmp_path / "mark"]) == ["done", "done"]
    assert workers.num_replaced > before


def test_a_cell_that_kills_every_worker_is_given_up_by_its_name(workers):
    with pytest.raises(ClusterError, match=r"3 workers of local:2 have died of the same work: never-act: .*SIGKILL"):
        Sweep(workers)(pieces.die_always, ["x"], ["never-act"])


def test_a_sweep_can_be_cancelled(workers):
    inside = InProcess()
    inside.cancel()
    with pytest.raises(Cancelled):
        Sweep(inside)(pieces.doubled, [1])
    threading.Timer(0.3, workers.cancel).start()
    with pytest.raises(Cancelled):
        Sweep(workers)(pieces.slow_cell, [20.0])


def test_what_cannot_be_sent_is_told():
    with pytest.raises(InvalidInput, match="on: the policy mine cannot be sent to another process"):
        Sweep("local:2").check_portable({"the policy yours": 1, "the policy mine": lambda: None})
    Sweep().check_portable({"the policy mine": lambda: None})  # it stays here


def test_cells_are_cut_until_all_workers_have_something_to_do():
    assert [turns(number, 4) for number in (1, 2, 3, 4, 9)] == [4, 2, 2, 1, 1]
