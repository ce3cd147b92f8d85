"""Ranks of all rows: as the plain way does it, within the error that is told, and with little memory."""

import gc
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.execution.places import opened
from evenhand.kernels import runs
from evenhand.model.arm import ArmTables
from evenhand.model.welfare import as_welfare
from evenhand.planning import by_shards
from evenhand.solvers.fluid.price_response import power_utility, power_value, share_evenly
from evenhand.solvers.permutahedron import project_in_runs, project_types
from evenhand.solvers.sharded import grid, ranks
from evenhand.solvers.sharded import solve as solving
from evenhand.solvers.sharded.rows import RowCounts
from evenhand.solvers.sharded.shard import bins_of, pick
from evenhand.solvers.sharded.sources import InTable

WELFARES = ["gini:2", "gini:half=0.75", "maximin", "maximin:0.3", "utilitarian"]


@st.composite
def populations(draw):
    """Values with ties, and how many arms have each."""
    number, seed = draw(st.integers(1, 60)), draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(number) < 0.5, rng.integers(0, 4, number), rng.normal(2, 2, number)).astype(float)
    counts = rng.integers(1, 4, number) if draw(st.booleans()) else np.ones(number, dtype=np.int64)
    return values, counts, rng


@pytest.fixture(autouse=True, scope="module")
def short_runs():
    """Runs so short that there are many."""
    usual, runs.RUN = runs.RUN, 7
    yield
    runs.RUN = usual


@given(populations())
def test_row_counts_are_the_counts(population):
    _, counts, rng = population
    rows, found = rng.integers(0, len(counts), 5), RowCounts.of(counts)
    assert found.num_arms == counts.sum()
    np.testing.assert_array_equal(found[rows], counts[rows])
    np.testing.assert_array_equal(found[len(counts) // 3 :], counts[len(counts) // 3 :])


@given(populations(), st.sampled_from(WELFARES))
def test_welfare_in_runs_is_the_welfare(population, name):
    values, counts, _ = population
    welfare = as_welfare(name, int(counts.sum()))
    found = ranks.welfare_of(welfare, values, RowCounts.of(counts))
    assert found == pytest.approx(float(welfare(values, counts)), rel=1e-12, abs=1e-13)


@given(populations(), st.sampled_from(WELFARES), st.integers(1, 5), st.sampled_from([0, 10, 10**6]), st.floats(0, 1))
def test_welfare_of_bins_is_as_near_as_they_say(population, name, num_shards, few, allowed):
    values, counts, rng = population
    welfare = as_welfare(name, int(counts.sum()))
    exact = float(welfare(values, counts))
    edges = np.unique(rng.choice(values, 5))
    step = ranks.step_for(float(np.abs(values).max()), int(counts.sum()))
    shards = [np.sort(part) for part in np.array_split(rng.permutation(len(values)), min(num_shards, len(values)))]
    bins = bins_of(values, counts, edges, step)
    parts = [bins_of(values[own], counts[own], edges, step) for own in shards]
    for part in parts[1:]:
        parts[0] = parts[0].plus(part)
    for whole, sum_of_parts in zip(bins, parts[0], strict=True):
        np.testing.assert_array_equal(whole, sum_of_parts)
    sketch, usual = ranks.Sketch.of(welfare, bins, step), ranks.FEW
    rounding = 1e-12 * (1 + np.abs(values).max())
    assert abs(sketch.welfare - exact) <= sketch.errors.sum() + rounding
    try:
        ranks.FEW = few
        unsure = sketch.unsure(allowed)
    finally:
        ranks.FEW = usual
    left = np.delete(sketch.errors, unsure).sum()
    assert left <= allowed + rounding
    if few > counts.sum():
        assert left == 0
    if len(unsure):
        chosen = np.isin(np.arange(len(edges) + 1), sketch.filled[unsure])
        picked = ranks.joined([pick(values[own], counts[own], edges, chosen) for own in shards])
        assert abs(sketch.settled(welfare, unsure, edges, *picked) - exact) <= left + rounding


@given(populations(), st.sampled_from(WELFARES), st.sampled_from([1, 10**6]))
def test_weights_are_those_of_the_plain_way(population, name, undecided):
    values, counts, rng = population
    welfare, number = as_welfare(name, int(counts.sum())), int(counts.sum())
    below = rng.random(len(values)) / number
    above = np.where(rng.random(len(values)) < 0.2, np.inf, below + rng.random(len(values)) / number)
    _, level = np.unique(values, return_inverse=True)
    sizes = np.bincount(level, weights=counts).astype(np.int64)
    mass = welfare.rank_mass(np.cumsum(sizes) - sizes, np.cumsum(sizes), number)
    plain = np.minimum(np.maximum(share_evenly(below, above, counts, level, mass), below), above)
    rows, usual = RowCounts.of(counts), ranks.UNDECIDED
    levels = ranks.Levels.of(welfare, values.copy(), rows)
    try:
        ranks.UNDECIDED = undecided
        found = ranks.weights_of(welfare, levels, below, above, rows)
    finally:
        ranks.UNDECIDED = usual
    np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-12 / number)
    member = project_types(plain, counts, welfare)
    np.testing.assert_allclose(ranks.projected(welfare, found, rows), member, rtol=1e-8, atol=1e-11 / number)


@given(populations(), st.sampled_from(WELFARES))
def test_projections_in_runs_are_projections(population, name):
    _, counts, rng = population
    point, welfare = rng.random(len(counts)), as_welfare(name, int(counts.sum()))
    whole = project_types(point, counts, welfare)
    found = project_in_runs(point.copy(), lambda rows: counts[rows], welfare, int(counts.sum()))
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 7.0])
def test_power_means_from_mean_utilities(alpha):
    values = np.random.default_rng(0).uniform(0.1, 3, 50)
    found = power_value(float(power_utility(values, alpha, 1.7).mean()), alpha, 1.7)
    assert found == pytest.approx(float(as_welfare(f"alpha:{alpha}", 50)(values)), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all different", "all equal", "some levels"])
@pytest.mark.parametrize("single", [True, False])
def test_memory_of_a_proof_and_of_a_welfare(kind, single, monkeypatch):
    monkeypatch.setattr(runs, "RUN", 500)

    number, rng = 60_000, np.random.default_rng(0)
    counts = RowCounts(number, None if single else np.cumsum(rng.integers(1, 3, number)))
    values = {"all different": rng.random(number), "all equal": np.zeros(number)}.get(kind)
    values = rng.integers(0, 50, number).astype(float) if values is None else values
    welfare, below = as_welfare("gini:half=0.75", counts.num_arms), rng.random(number) / number
    gc.collect()
    tracemalloc.start()
    ranks.welfare_of(welfare, values, counts)
    levels = ranks.Levels.of(welfare, values, counts)
    above = below * 1.5
    weights = ranks.weights_of(welfare, levels, below, above, counts)
    del above
    ranks.projected(welfare, weights, counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    there = values.nbytes + below.nbytes + (0 if single else counts.ends.nbytes)
    assert (there + peak) / counts.num_arms <= 32


def machines(path, number):
    """A table of machines that all differ."""
    rng = np.random.default_rng(0)
    wear = rng.uniform(0.05, 0.4, size=number)
    moves = np.zeros((number, 2, 2, 2))
    moves[:, 0, 0, 0], moves[:, 0, 0, 1] = 1 - wear, wear
    moves[:, 1, 0, 1] = moves[:, 0, 1, 0] = moves[:, 1, 1, 0] = 1
    rewards = np.zeros((number, 2, 2))
    rewards[:, 0] = rng.uniform(0.5, 1, size=(number, 1))
    usage = np.zeros((number, 2, 2, 1))
    usage[:, :, 1] = 1
    sizes = np.full(number, 2, dtype=np.int32)
    with eh.ArmWriter(path, budget=number // 10, discount=0.9) as writer:
        writer.write(ArmTables(moves, rewards, usage, np.full((number, 2), 0.5), sizes, sizes))


@pytest.mark.slow
@pytest.mark.parametrize("welfare", ["utilitarian", "gini:half=0.75", "nash", "leximin"])
def test_memory_of_the_driver_an_arm(welfare, tmp_path, monkeypatch):
    # What does not grow with the number of arms is made small, so that what does can be seen.
    monkeypatch.setattr(runs, "RUN", 1_000)
    monkeypatch.setattr(solving, "SHARD_ROWS", 4_000)
    monkeypatch.setattr(solving, "InTable", partial(InTable, block=4_000))
    monkeypatch.setattr(grid, "NUM_LEVELS", 100)
    monkeypatch.setattr(ranks, "NUM_BINS", 500)
    monkeypatch.setattr(ranks, "FEW", 1_000)
    monkeypatch.setattr(by_shards, "BATCH_ROWS", 1_000)
    peaks = {}
    with opened("local:1") as executor:
        for number in (2_000, 60_000, 180_000):  # the first one is for what is loaded once
            machines(tmp_path / "m.parquet", number)
            tracemalloc.start()
            eh.solve_arms(tmp_path / "m.parquet", welfare, executor, tmp_path / "plan.parquet", tolerance=0.02)
            peaks[number] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert (peaks[180_000] - peaks[60_000]) / 120_000 <= 32
    assert peaks[180_000] >= 16 * 180_000  # values and weights are kept, and were counted
