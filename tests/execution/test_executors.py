"""Executors are alike: one suite for this process, for processes beside it, and for a real Ray."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pieces
import pytest

from evenhand.errors import Cancelled, ClusterError, InvalidInput, ModelError
from evenhand.execution import Lost, opened, versions
from evenhand.execution import dispatch as dispatch_module
from evenhand.execution.local import processes
from evenhand.execution.on_ray import ray_cluster
from evenhand.execution.places import check_place

pytestmark = pytest.mark.xdist_group("ray")

KINDS = ["local", "local:2", "ray"]


@pytest.fixture(scope="module")
def two_processes():
    with processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def two_actors(small_ray):
    with ray_cluster(num_workers=2) as executor:
        yield executor


@pytest.fixture(params=KINDS)
def executor(request):
    if request.param == "local":
        with opened(None) as inside:
            yield inside
    else:
        yield request.getfixturevalue("two_processes" if request.param == "local:2" else "two_actors")


@pytest.fixture(params=KINDS[1:])
def workers(request):
    return request.getfixturevalue("two_processes" if request.param == "local:2" else "two_actors")


def recipes(number=5):
    return [pieces.Numbers(seed, 3 + seed) for seed in range(number)]


def test_answers_come_in_the_order_of_shards(executor):
    told = []
    shards = executor.place(recipes())
    own = [(float(number),) for number in range(5)]
    found = shards.ask(pieces.scaled, 2.0, each=own, told=lambda *seen: told.append(seen))
    for seed, answer in enumerate(found):
        assert np.array_equal(answer, np.random.default_rng(seed).random(3 + seed) * 2.0 + seed)
    assert told == [(number, 5) for number in range(1, 6)]
    assert len(shards) == 5


def test_shards_are_built_once_and_stay(executor, tmp_path):
    diary = tmp_path / "built"
    shards = executor.place([pieces.Numbers(seed, 4, str(diary)) for seed in range(3)])
    assert shards.ask(pieces.asked) == [1, 1, 1]
    assert shards.ask(pieces.asked) == [2, 2, 2]
    assert sorted(diary.read_text().split()) == ["0", "1", "2"]
    shards.forget()


def test_placings_do_not_know_each_other(executor):
    first, second = executor.place(recipes(2)), executor.place(recipes(2)[::-1])
    first.ask(pieces.asked)
    assert second.ask(pieces.asked) == [1, 1]
    first.forget()
    assert second.ask(pieces.asked) == [2, 2]


def test_what_is_raised_comes_back_whole(executor):
    shards = executor.place(recipes(2))
    with pytest.raises(ModelError, match="is not sound") as caught:
        shards.ask(pieces.fail)
    assert caught.value.faults[0].place == "arms[2]"
    assert shards.ask(pieces.who)  # and work goes on


def test_cells_end_in_any_order(executor):
    found = dict(executor.run(pieces.square, range(7)))
    assert found == {number: number**2 for number in range(7)}


def test_errors_of_others_come_in_words(workers):
    with pytest.raises(ClusterError, match="LinAlgError: singular"):
        workers.place(recipes(1)).ask(pieces.fail_elsewhere)


def test_a_dead_worker_is_replaced_and_its_shards_are_built_again(workers, tmp_path):
    diary, before = tmp_path / "built", workers.num_replaced
    shards = workers.place([pieces.Numbers(seed, 4, str(diary)) for seed in range(4)])
    calm = shards.ask(pieces.slowly, 0.0)
    assert shards.ask(pieces.die_once, each=[(str(tmp_path / f"mark{seed}"),) for seed in range(4)]) == calm
    assert workers.num_replaced > before
    assert len(diary.read_text().split()) > 4
    assert shards.ask(pieces.slowly, 0.0) == calm


def test_a_worker_killed_from_outside_is_replaced(workers):
    shards = workers.place(recipes(2))
    calm = shards.ask(pieces.slowly, 0.0)
    victim = next(number for number in shards.ask(pieces.who) if number != os.getpid())
    killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    killer.start()
    assert shards.ask(pieces.slowly, 1.0) == calm
    killer.join()


def test_work_that_kills_everybody_is_given_up(workers):
    with pytest.raises(ClusterError, match="have died of the same work"):
        workers.place(recipes(1)).ask(pieces.die)
    assert workers.place(recipes(2)).ask(pieces.slowly, 0.0)


def test_a_cell_whose_worker_dies_is_told_and_the_others_go_on(workers):
    found = dict(workers.run(pieces.die_of_three, range(6)))
    assert isinstance(found.pop(3), Lost)
    assert found == {number: number for number in range(6) if number != 3}


def test_work_can_be_cancelled_from_another_thread(workers):
    shards = workers.place(recipes(2))
    shards.ask(pieces.who)
    threading.Timer(0.3, workers.cancel).start()
    begin = time.monotonic()
    with pytest.raises(Cancelled):
        shards.ask(pieces.slowly, 60.0)
    assert time.monotonic() - begin < 30
    assert len(shards.ask(pieces.who)) == 2


def test_work_in_this_process_is_cancelled_at_its_next_shard():
    with opened("local") as executor:
        shards = executor.place(recipes(4))

        def stop(done, of):
            executor.cancel()

        with pytest.raises(Cancelled):
            for _ in range(3):
                shards.ask(pieces.slowly, 0.05, told=stop)


def test_waiting_is_told(two_processes):
    silent = [seen for seen in two_processes.run(time.sleep, [0.7], patience=0.2) if seen is None]
    assert silent


@pytest.mark.parametrize("kind", KINDS[1:])
def test_another_version_is_refused_in_words(kind, monkeypatch, small_ray):
    here = versions.ours()
    monkeypatch.setattr(versions, "ours", lambda: ("9.9.9", *here[1:]))
    with (
        processes(1) if kind == "local:2" else ray_cluster(num_workers=1) as executor,
        pytest.raises(ClusterError, match=rf"runs evenhand {here[0]} instead of 9\.9\.9.*Install the same versions"),
    ):
        executor.place(recipes(1)).ask(pieces.who)


def test_other_sources_of_the_same_version_are_refused():
    here = versions.ours()
    with pytest.raises(ClusterError, match="sources of evenhand"):
        versions.check((here[0], "0" * 12, *here[2:]), "a worker")
    versions.check(here, "a worker")


def test_workers_that_never_start_are_told(monkeypatch):
    monkeypatch.setattr("evenhand.execution.local.serve", os._exit)
    with processes(1) as executor, pytest.raises(ClusterError, match="do not start"):
        executor.place(recipes(1)).ask(pieces.who)


def test_shards_of_one_who_does_not_come_go_to_others(two_processes, monkeypatch):
    """As when a machine has gone and none has come in its place."""
    monkeypatch.setattr(dispatch_module, "PATIENCE", 0.0)
    shards = two_processes.place(recipes(4))
    calm = shards.ask(pieces.slowly, 0.0)
    silent = two_processes._workers[0]
    silent.greeted, silent.since = False, time.monotonic() - 1.0
    assert shards.ask(pieces.slowly, 0.0) == calm
    assert {two_processes._homes[shards._placing, number] for number in range(4)} == {1}
    silent.greeted = True


def test_the_workers_have_one_thread_each(two_processes):
    for limit in ("EVENHAND_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        assert dict(two_processes.run(os.getenv, [limit])) == {0: "1"}


@pytest.mark.parametrize("words", ["local:0", "local:", "local:two", "here", "ray:", "", "LOCAL:2", "local:99999"])
def test_places_are_checked(words):
    with pytest.raises(InvalidInput, match="on: expected local"):
        check_place(words)


@pytest.mark.parametrize("words", ["local", "local:2", "ray", "ray:10.0.0.1:6379", "ray://head:10001"])
def test_places_that_can_be_named(words):
    check_place(words)


def test_a_closed_executor_says_so():
    executor = processes(1)
    shards = executor.place(recipes(1))
    executor.close()
    with pytest.raises(ClusterError, match="let go"):
        shards.ask(pieces.who)


def test_no_process_is_left_behind(tmp_path):
    with processes(1) as executor:
        (pid,) = executor.place(recipes(1)).ask(pieces.who)
        assert Path(f"/proc/{pid}").exists() or not Path("/proc/1").exists()
    assert not Path(f"/proc/{pid}").exists()
