"""Models in Parquet read back as they were, as a whole and by any ranges of rows."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.model import KEY, ArmTables, ArmWriter, open_arms


def random_problem(seed=0, number=7, sizes=((2, 2), (3, 2), (3, 3)), resources=2, groups=True, **others):
    rng = np.random.default_rng(seed)
    arms = []
    for i in range(number):
        s, a = sizes[int(rng.integers(len(sizes)))]
        usage = rng.integers(0, 3, size=(s, a, resources)).astype(float)
        usage[:, 0] = 0
        usage = usage if i % 2 else usage[0]
        labels = {"states": [f"s{k}" for k in range(s)]} if i % 3 else {}
        moves = rng.dirichlet(np.ones(s), size=(s, a))
        start = rng.dirichlet(np.ones(s))
        arms.append(eh.Arm(moves, rng.normal(size=(s, a)), usage, start, name=f"arm {i}", **labels))
    return eh.CoupledMDP(
        arms,
        budget=np.arange(1.0, resources + 1),
        discount=0.9,
        counts=rng.integers(1, 4, size=number),
        resources=[f"resource {k}!" for k in range(resources)],
        groups=[("north", "south")[i % 2] for i in range(number)] if groups else (),
        floors=rng.integers(0, 2, size=number) * 0.01,
        **others,
    )


@pytest.mark.parametrize(
    "problem",
    [
        eh.problems.machine_replacement(num_arms=3),
        random_problem(1),
        random_problem(2, criterion="average", over="groups", welfare="maximin", groups=True),
        random_problem(3, sizes=((3, 2),), groups=False, criterion="finite:5"),
    ],
    ids=["symmetric", "mixed", "groups", "finite"],
)
def test_saved_problem_reads_back_equal(problem, tmp_path):
    eh.save(problem, tmp_path / "m.parquet")
    assert eh.load(tmp_path / "m.parquet") == problem
    arms = open_arms(tmp_path / "m.parquet")
    assert (arms.num_arms, arms.num_resources) == (problem.num_arms, problem.num_resources)
    assert arms.criterion == problem.criterion
    assert [file.name for file in tmp_path.iterdir()] == ["m.parquet"]


@settings(max_examples=25, deadline=None)
@given(number=st.integers(1, 30), parts=st.integers(1, 4), cuts=st.integers(1, 12), seed=st.integers(0, 99))
def test_ranges_of_rows_contain_the_same_arms_for_any_cuts(number, parts, cuts, seed, tmp_path_factory):
    problem = random_problem(seed, number)
    folder = tmp_path_factory.mktemp("parts")
    eh.save(problem, folder / "whole.parquet")
    _split(folder / "whole.parquet", parts)
    arms = open_arms(folder)
    ends = sorted({*np.linspace(0, number, cuts + 1).astype(int).tolist()})
    read = [arms.row_reader(start, stop)() for start, stop in pairwise(ends)]
    assert np.array_equal(np.concatenate([rows.counts for rows in read]), problem.counts)
    assert np.array_equal(np.concatenate([rows.floors for rows in read]), problem.floors)
    assert [group for rows in read for group in rows.groups] == list(problem.groups)
    rows = [arm for part in read for arm in part.tables]
    for got, wanted in zip(rows, problem.tables, strict=True):
        assert np.array_equal(got.transitions, wanted.transitions)
        assert np.array_equal(got.usage, wanted.usage)
        assert np.array_equal(got.rewards, wanted.rewards)
        assert np.array_equal(got.initial, wanted.initial)
    assert open_arms(folder).problem() == problem


def _split(file, parts):
    """One file as several, with row groups of two rows."""
    table = pq.read_table(file)
    file.unlink()
    cuts = np.linspace(0, table.num_rows, parts + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(start, stop - start), file.parent / f"part-{i}.parquet", row_group_size=2)


def test_nested_lists_single_precision_and_missing_initial_are_read(tmp_path):
    problem = random_problem(4, 5, sizes=((3, 2),))
    tables = problem.tables
    columns = {
        "transitions": tables.transitions.tolist(),
        "rewards": tables.rewards.astype(np.float32).tolist(),
        "usage": tables.usage.astype(int).tolist(),
    }
    table = pa.table(columns).replace_schema_metadata({KEY: b'{"version": 1, "budget": [1, 2], "discount": 0.9}'})
    pq.write_table(table, tmp_path / "m.parquet")
    read = eh.load(tmp_path / "m.parquet")
    assert np.array_equal(read.tables.transitions, tables.transitions)
    assert np.array_equal(read.tables.usage, tables.usage)
    assert np.array_equal(read.tables.rewards, tables.rewards.astype(np.float32))
    assert (read.tables.initial == 1 / 3).all()


def test_a_folder_gets_several_parts_and_replaces_what_was_there(tmp_path):
    machines = eh.problems.machine_replacement(num_arms=1).tables
    for number in (5, 3):
        with ArmWriter(tmp_path / "fleet", budget=1, discount=0.9, rows_per_part=10) as writer:
            for _ in range(number):
                writer.write(machines.select(np.zeros(10, dtype=int)))
        assert open_arms(tmp_path / "fleet").num_arms == 10 * number
        assert len(list((tmp_path / "fleet").iterdir())) == number
    assert [file.name for file in tmp_path.iterdir()] == ["fleet"]


def test_nearly_stochastic_rows_are_divided_by_their_sums(tmp_path):
    third = [0.3333333] * 3
    table = pa.table({"transitions": [third * 3], "rewards": [[1.0, 2, 3]], "usage": [[0.0]]})
    table = table.replace_schema_metadata({KEY: b'{"version": 1, "budget": [1], "discount": 0.9}'})
    pq.write_table(table, tmp_path / "m.parquet")
    read = open_arms(tmp_path / "m.parquet").row_reader(0, 1)()
    assert read.num_normalised == 1
    assert np.allclose(read.tables.transitions.sum(axis=-1), 1, atol=1e-15)
    assert isinstance(read.tables, ArmTables)
