"""The driver's memory grows by at most 32 bytes an arm, whatever it is asked."""

import tracemalloc

import numpy as np
import pytest

import evenhand as eh
from evenhand.evaluation.shards import driving
from evenhand.execution.places import opened
from evenhand.kernels import runs
from evenhand.model.arm import ArmTables


def write(path, number):
    """Machines that all differ."""
    rng = np.random.default_rng(0)
    wear = rng.uniform(0.05, 0.4, size=number)
    moves = np.zeros((number, 2, 2, 2))
    moves[:, 0, 0, 0], moves[:, 0, 0, 1] = 1 - wear, wear
    moves[:, 1, 0, 1] = moves[:, 0, 1, 0] = moves[:, 1, 1, 0] = 1
    rewards = np.zeros((number, 2, 2))
    rewards[:, 0] = rng.uniform(0.5, 1, size=(number, 1))
    rewards[:, :, 1] -= 0.1
    usage = np.zeros((number, 2, 2, 1))
    usage[:, :, 1] = 1
    sizes = np.full(number, 2, dtype=np.int32)
    with eh.ArmWriter(path, budget=number // 10, discount=0.9) as writer:
        writer.write(ArmTables(moves, rewards, usage, np.full((number, 2), 0.5), sizes, sizes))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["evaluate", "act"])
def test_memory_of_the_driver_an_arm(what, tmp_path, monkeypatch):
    # What does not grow with the number of arms is made small, so that what does can be seen.
    monkeypatch.setattr(driving, "SCORES_AT_ONCE", 2_000)
    monkeypatch.setattr(driving, "ROWS_PER_SHARD", 20_000)
    monkeypatch.setattr(driving, "MOST_BINS", 256)
    monkeypatch.setattr(runs, "RUN", 1_000)
    with opened("local:1") as executor:
        assert slope(what, tmp_path, executor) <= 32


def slope(what, folder, executor):
    """Bytes of the driver at its peak, for each arm more."""
    peaks = {}
    # The first one is for what is loaded once: counted with the second, it would hide growth behind it.
    for number in (2_000, 40_000, 120_000):
        write(folder / "m.parquet", number)
        if what == "act":
            eh.index_arms(folder / "m.parquet", folder / "plan.parquet", on=executor)
        states = np.zeros(number, dtype=np.int32)
        tracemalloc.start()
        if what == "evaluate":
            eh.evaluate_arms("whittle", folder / "m.parquet", num_episodes=2, horizon=2, on=executor)
        else:
            eh.act_on_arms(folder / "plan.parquet", states, folder / "actions.parquet", on=executor)
        peaks[number] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return (peaks[120_000] - peaks[40_000]) / 80_000
