"""Bad Parquet is told with file and row, all faults at once; nothing is half-written."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError, TableError
from evenhand.model import KEY, ArmWriter, open_arms

from ..conftest import mentions

HEADER = {"version": 1, "budget": [1], "discount": 0.9}
ROW = {"transitions": [0.5, 0.5] * 4, "rewards": [0.0, 1, 2, 3], "usage": [0.0, 1.0], "initial": [1.0, 0.0]}


def write(path, rows, header=HEADER, columns=None):
    """A file of some rows, each ROW but for what it says."""
    whole = [ROW | row for row in rows]
    names = columns or list(dict.fromkeys(key for row in whole for key in row))
    table = pa.table({name: [row.get(name) for row in whole] for name in names})
    metadata = None if header is None else {KEY: json.dumps(header).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def faults(path):
    with pytest.raises(ModelError) as caught:
        open_arms(path).problem()
    return [str(fault) for fault in caught.value.faults]


def test_every_fault_of_rows_is_reported_with_file_and_row(tmp_path):
    bad = [
        {},
        {"transitions": [0.5, 0.47] + [0.5, 0.5] * 3},
        {"rewards": None},
        {"transitions": [0.5, None] + [0.5, 0.5] * 3},
        {"transitions": [0.5] * 7},
        {"usage": [0.0, 1.0, 2.0]},
        {"initial": [1.0]},
        {"usage": [1.0, 1.0]},
        {"count": 0, "floor": 2.0},
        {"rewards": [0.0, 1.0, np.inf, 3.0]},
    ]
    file = tmp_path / "m.parquet"
    write(file, [{"count": 1, "floor": 0.0} | row for row in bad])
    told = "\n".join(faults(file))
    for row, words in (
        (2, "transitions[0][0]: probabilities sum to 0.97, not 1"),
        (3, "rewards: "),
        (4, "transitions[0][0][1]: "),
        (5, "transitions: "),
        (6, "transitions: "),
        (7, "transitions: "),
        (8, "usage: no action is idle"),
        (9, "count: expected at least 1"),
        (9, "floor: expected a share of time"),
        (10, "rewards[1][0]"),
    ):
        assert f"{file}, row {row}, {words}" in told
    assert "row 1," not in told.replace("row 10,", "")
    with pytest.raises(TableError, check=mentions("row 2")):
        eh.load(file)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "the key 'evenhand' is missing"),
        ({"version": 2, "budget": [1]}, "metadata.version"),
        ({"budget": [1], "discount": 0.9}, "metadata.version"),
        ({"version": 1, "discount": 0.9}, "metadata.budget: missing"),
        ({"version": 1, "budget": [1]}, "metadata.discount: missing"),
        ({**HEADER, "discount": 2}, "metadata.discount: expected a number from 0 to"),
        ({**HEADER, "criterion": "often"}, "metadata.criterion"),
        ({**HEADER, "bugdet": 3}, "metadata.bugdet: unknown key"),
        ({**HEADER, "resources": ["a", "b"]}, "metadata.resources"),
    ],
)
def test_invalid_metadata_is_reported(header, words, tmp_path):
    write(tmp_path / "m.parquet", [{}], header)
    told = "\n".join(faults(tmp_path / "m.parquet"))
    assert words in told and str(tmp_path / "m.parquet") in told


def test_missing_and_invalid_columns_are_reported_together(tmp_path):
    write(tmp_path / "m.parquet", [{"usage": "much", "count": 1.5}], columns=["rewards", "usage", "count"])
    told = "\n".join(faults(tmp_path / "m.parquet"))
    assert "transitions: the column is missing; the file has rewards, usage, count" in told
    assert "usage: expected lists of numbers, got string" in told
    assert "count: expected whole numbers, got double" in told


def test_two_schemas_in_a_folder_are_reported_by_file(tmp_path):
    write(tmp_path / "a.parquet", [{}])
    write(tmp_path / "b.parquet", [{"count": 2}])
    write(tmp_path / "c.parquet", [{}], {**HEADER, "discount": 0.5})
    told = "\n".join(faults(tmp_path))
    assert f"{tmp_path / 'b.parquet'}, count: is int64 here and absent in a.parquet" in told
    assert f"{tmp_path / 'c.parquet'}, metadata: differs from that of a.parquet" in told


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_truncated_part_is_reported(keep, tmp_path):
    write(tmp_path / "a.parquet", [{}] * 5)
    write(tmp_path / "b.parquet", [{}] * 5)
    data = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(data[: int(keep * len(data))])
    (told,) = faults(tmp_path)
    assert told.startswith(f"{tmp_path / 'b.parquet'}: not a Parquet file, or a damaged one")


def test_damage_inside_a_part_is_reported_with_the_row(tmp_path):
    with ArmWriter(tmp_path / "m.parquet", budget=1, discount=0.9) as writer:
        rng = np.random.default_rng(0)
        for _ in range(3):
            moves = rng.dirichlet(np.ones(3), size=(200, 3, 2))
            writer.write([eh.Arm(move, rng.normal(size=(3, 2)), [[0], [1]]) for move in moves])
    data = bytearray((tmp_path / "m.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "m.parquet").write_bytes(bytes(data))
    told = faults(tmp_path / "m.parquet")
    assert any("cannot be read" in line and "from row" in line for line in told)


def test_faults_end_at_a_limit(tmp_path):
    write(tmp_path / "m.parquet", [{"transitions": [0.5, 0.4] * 4}] * 500)
    told = faults(tmp_path / "m.parquet")
    assert len(told) <= 90 and "more" in told[-1]


def test_missing_files_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, check=mentions("none.parquet")):
        open_arms(tmp_path / "none.parquet")
    with pytest.raises(InvalidInputError, check=mentions(tmp_path.name)):
        open_arms(tmp_path)


@pytest.mark.parametrize("name", ["m.parquet", "folder"])
def test_a_writer_that_fails_leaves_what_was_there(name, tmp_path):
    machines = eh.problems.machine_replacement(num_arms=1).tables
    with ArmWriter(tmp_path / name, budget=1, discount=0.9) as writer:
        writer.write(machines)
    with pytest.raises(KeyError), ArmWriter(tmp_path / name, budget=1, discount=0.9) as writer:
        writer.write(machines)
        raise KeyError
    assert open_arms(tmp_path / name).num_arms == 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["m.parquet", "folder"])
def test_a_killed_writer_leaves_nothing_that_can_be_taken_for_a_model(name, tmp_path):
    code = f"""
        import os, evenhand as eh
        with eh.ArmWriter({str(tmp_path / name)!r}, budget=1, discount=0.9) as writer:
            writer.write(eh.problems.machine_replacement(num_arms=1).tables)
            os.kill(os.getpid(), 9)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=dict(os.environ)).returncode == -9
    assert not (tmp_path / name).exists()
    with ArmWriter(tmp_path / name, budget=1, discount=0.9) as writer:
        writer.write(eh.problems.machine_replacement(num_arms=1).tables)
    assert [file.name for file in tmp_path.iterdir()] == [name]  # what was left is swept away
