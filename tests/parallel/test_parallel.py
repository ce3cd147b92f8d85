"""One suite for all backends: threads, local processes and a real Ray."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import parallel_tasks as tasks
import pytest

from evenhand.errors import ClusterError, InvalidInputError, ModelError
from evenhand.parallel import Pool, openblas, parse_backend, single_threaded_blas

from ..conftest import mentions

pytestmark = pytest.mark.xdist_group("ray")

BACKENDS = ["threads", "threads:2", "processes:2", "ray"]


@pytest.fixture(scope="module")
def two_processes():
    with Pool("processes:2") as pool:
        yield pool


@pytest.fixture(scope="module")
def two_actors(small_ray):
    with Pool("ray", num_workers=2) as pool:
        yield pool


@pytest.fixture(params=BACKENDS)
def pool(request):
    if request.param.startswith("threads"):
        return Pool(request.param)
    return request.getfixturevalue("two_processes" if request.param == "processes:2" else "two_actors")


@pytest.fixture(params=BACKENDS[2:])
def workers(request):
    return request.getfixturevalue("two_processes" if request.param == "processes:2" else "two_actors")


def builders(number=5):
    return [tasks.Numbers(seed, 3 + seed) for seed in range(number)]


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_results_have_the_order_of_the_tasks_and_progress_rises(pool):
    reports = []
    names = [f"cell {number}" for number in range(5)]
    assert pool.map(tasks.doubled, range(5), names, lambda *report: reports.append(report)) == [0, 2, 4, 6, 8]
    assert pool.used
    shares = [share for _, share in reports]
    assert shares == sorted(shares) and reports


def test_one_process_reports_the_progress_within_a_task():
    reports = []
    Pool().map(tasks.doubled, [1, 2], ["first", "second"], lambda *report: reports.append(report))
    assert reports == [("first", 0.0), ("first", 0.25), ("second", 0.5), ("second", 0.75)]


def test_an_error_keeps_its_class_and_names_its_task(pool):
    with pytest.raises(ValueError, check=lambda error: error.args == ("three",)) as caught:
        pool.map(tasks.fail_at_three, range(6), [f"policy {number}" for number in range(6)])
    assert any("policy 3" in note for note in caught.value.__notes__)
    assert pool.map(tasks.doubled, [4]) == [8]


def test_linear_algebra_has_the_same_bits_everywhere(pool):
    assert pool.map(tasks.solved, [40, 150, 300]) == Pool().map(tasks.solved, [40, 150, 300])


def test_a_task_whose_worker_dies_is_repeated(workers, tmp_path):
    assert workers.map(tasks.die_at_first, [tmp_path / "a", tmp_path / "b"]) == ["done", "done"]


def test_a_task_that_kills_every_worker_fails_by_its_name(workers):
    with pytest.raises(ClusterError) as caught:
        workers.map(tasks.die_always, ["x"], ["never-act"])
    assert any("never-act" in note for note in caught.value.__notes__)
    assert workers.map(tasks.doubled, [4]) == [8]


def test_an_error_ends_the_tasks_that_still_run():
    begin = time.monotonic()
    with Pool("processes:2") as pool, pytest.raises(TypeError, check=mentions("str")):
        pool.map(tasks.slow, [60.0, "no number"])
    assert time.monotonic() - begin < 40


def test_workers_have_one_thread_each(two_processes):
    names = ["EVENHAND_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"]
    assert two_processes.map(tasks.environment, names) == ["1", "1", "1"]


def test_workers_start_with_the_first_task_and_end_with_the_pool():
    with Pool("processes:1") as pool:
        assert not pool.used and not pool.is_local
        (process,) = pool.map(tasks.process, [0])
        assert process != os.getpid()
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker still runs")


def test_a_pool_within_a_pool_shares_its_workers(two_processes):
    before = set(two_processes.map(tasks.process, range(8)))
    with Pool(two_processes) as inner:
        inner.map(tasks.process, range(8))
    assert set(two_processes.map(tasks.process, range(8))) & before


def test_objects_that_cannot_be_pickled_are_refused():
    lock = threading.Lock()
    with pytest.raises(InvalidInputError, check=lambda error: "policy mine" in str(error)):
        Pool("processes:2").check_picklable({"the policy yours": 1, "the policy mine": lock})
    Pool().check_picklable({"the policy mine": lock})


def test_blas_threads_are_restored():
    if not openblas():
        pytest.skip("NumPy and SciPy have no OpenBLAS of their own")

    def now():
        return [read() for read, _ in openblas()]

    before = now()
    try:
        for _, write in openblas():
            write(2)
        with single_threaded_blas(), single_threaded_blas():
            assert now() == [1] * len(openblas())
        assert now() == [2] * len(openblas())
        with pytest.raises(ZeroDivisionError), single_threaded_blas():
            raise ZeroDivisionError
        assert now() == [2] * len(openblas())
    finally:
        for (_, write), number in zip(openblas(), before, strict=True):
            write(number)


@pytest.mark.parametrize("text", ["threads:0", "threads:", "processes", "processes:two", "here", "ray:", "", "local:2"])
def test_invalid_backends_are_refused(text):
    with pytest.raises(InvalidInputError, check=mentions("backend", repr(text))):
        parse_backend(text)


def test_backends():
    assert parse_backend("threads") == ("threads", 0, "")
    assert parse_backend("processes:2") == ("processes", 2, "")
    assert parse_backend("ray") == ("ray", 0, "")
    assert parse_backend("ray:10.0.0.1:6379") == ("ray", 0, "10.0.0.1:6379")
    assert parse_backend("ray://head:10001") == ("ray", 0, "ray://head:10001")


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_blocks_return_their_results_in_order(pool):
    blocks = pool.blocks(builders())
    found = blocks.map(tasks.scaled, 2.0, each=[(float(number),) for number in range(5)])
    for seed, result in enumerate(found):
        assert np.array_equal(result, np.random.default_rng(seed).random(3 + seed) * 2.0 + seed)
    assert len(blocks) == 5


def test_blocks_are_built_once_and_stay_with_their_workers(pool, tmp_path):
    log = tmp_path / "built"
    blocks = pool.blocks([tasks.Numbers(seed, 4, str(log)) for seed in range(3)])
    assert blocks.map(tasks.calls) == [1, 1, 1]
    assert blocks.map(tasks.calls) == [2, 2, 2]
    assert sorted(log.read_text().split()) == ["0", "1", "2"]


def test_an_error_of_a_block_comes_back_whole(pool):
    blocks = pool.blocks(builders(2))
    with pytest.raises(ModelError) as caught:
        blocks.map(tasks.fail)
    assert caught.value.faults[0].place == "arms[2]"
    assert blocks.map(tasks.process_of_block)


def test_errors_of_other_libraries_keep_their_class(workers):
    with pytest.raises(np.linalg.LinAlgError):
        workers.blocks(builders(1)).map(tasks.fail_elsewhere)


def test_a_block_whose_worker_dies_is_built_again(workers, tmp_path):
    log = tmp_path / "built"
    blocks = workers.blocks([tasks.Numbers(seed, 4, str(log)) for seed in range(4)])
    before = blocks.map(tasks.slow_sum, 0.0)
    assert blocks.map(tasks.die_once, each=[(str(tmp_path / f"mark{seed // 2}"),) for seed in range(4)]) == before
    assert len(log.read_text().split()) > 4
    assert blocks.map(tasks.slow_sum, 0.0) == before


def test_a_worker_killed_from_outside_is_restarted(workers):
    blocks = workers.blocks(builders(2))
    before = blocks.map(tasks.slow_sum, 0.0)
    victim = blocks.map(tasks.process_of_block)[0]
    killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    killer.start()
    assert blocks.map(tasks.slow_sum, 1.0) == before
    killer.join()


def test_a_block_that_kills_every_worker_fails(workers):
    with pytest.raises(ClusterError):
        workers.blocks(builders(1)).map(tasks.die)
    assert workers.blocks(builders(2)).map(tasks.slow_sum, 0.0)
