"""Models in Parquet on the command line: by shards, with the answers of the model in memory."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import evenhand as eh
from evenhand.cli import main
from evenhand.cli.application import application

from ..conftest import mentions


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A folder with a model of a few different machines."""
    monkeypatch.chdir(tmp_path)
    ask("problems", "heterogeneous-machine-replacement", "-p", "num_arms=7", "--out", "fleet.parquet")
    return tmp_path


def ask(*words, code=0):
    """What a command prints as JSON."""
    result = CliRunner().invoke(application, [*words, "--json"])
    if code == 0:
        assert result.exception is None, result.output
        return json.loads(result.stdout)
    with pytest.raises(type(result.exception)) as error:
        raise result.exception
    return str(error.value)


def test_check_tells_sizes_and_every_fault_with_its_row(fleet):
    said = ask("check", "fleet.parquet", "--on", "local")
    assert (said["sound"], said["arms"], said["states"], said["actions"]) == (True, 7, [3, 3], [2, 2])
    assert said["resources"] == [{"name": "resource 0", "budget": 1.0, "most_used": 7.0}]
    table = pq.read_table("fleet.parquet").to_pydict()
    table["transitions"][4][0] += 0.5
    table["rewards"][6] = None
    broken = pa.table(table).replace_schema_metadata(pq.read_schema("fleet.parquet").metadata)
    pq.write_table(broken, "broken.parquet")
    for on in (["--on", "local"], []):
        told = ask("check", "broken.parquet", *on, code=2)
        assert mentions("broken.parquet", "row 5", "transitions[0][0]", 1)(told)
        assert mentions("broken.parquet", "row 7", "rewards")(told)


def test_indices_are_written_and_are_those_in_memory(fleet):
    said = ask("indices", "fleet.parquet", "--on", "local", "--out", "indices.parquet")
    assert (said["rows"], said["indexable"]) == (7, 7)
    problem = eh.load("fleet.parquet")
    found = eh.indices(problem)
    written = pq.read_table("indices.parquet").to_pylist()
    for block, row in enumerate(written):
        kind = problem.type_of_block[block]
        assert row["row"] == block and row["indexable"]
        assert np.allclose(row["indices"], found.indices[kind], rtol=1e-12, atol=1e-12)


def test_evaluate_by_shards_is_that_in_memory(fleet):
    asked = ("evaluate", "fleet.parquet", "whittle", "--episodes", "5", "--horizon", "20", "--welfare", "utilitarian")
    there = ask(*asked, "--on", "local", "--values", "values.parquet")
    here = ask(*asked, "--monte-carlo")
    assert there["welfare"] == pytest.approx(here["welfare"], rel=1e-12)
    assert there["budget_used"] == pytest.approx(here["budget_used"], rel=1e-12)
    values = pq.read_table("values.parquet").to_pydict()
    assert values["value"] == pytest.approx(eh.evaluate(
        eh.load("fleet.parquet"), "whittle", num_episodes=5, horizon=20, method="monte-carlo"
    ).values.tolist())  # fmt: skip


def test_act_by_a_table_of_indices_is_the_policy_in_memory(fleet):
    ask("indices", "fleet.parquet", "--on", "local", "--out", "indices.parquet")
    problem = eh.load("fleet.parquet")
    names = [label[0] for label in problem.tables.labels]
    labels = problem.tables.labels[0][1]
    states = [2, 1, 2, 2, 0, 1, 2]
    columns = {"arm": names, "state": [labels[state] for state in states]}
    pq.write_table(pa.table(columns), "now.parquet")
    said = ask("act", "indices.parquet", "now.parquet", "--out", "actions.parquet", "--budget", "2", "--seed", "4")
    assert said["used"] == {"resource 0": 2.0} and said["served"] == 2
    wanted = eh.policies.whittle(problem.with_budget(2)).act(states, 4)
    actions = problem.tables.labels[0][2]
    assert pq.read_table("actions.parquet")["action"].to_pylist() == [actions[action] for action in wanted]
    columns["arm"][3], columns["state"][5] = "somebody", "lost"
    pq.write_table(pa.table(columns), "wrong.parquet")
    told = ask("act", "indices.parquet", "wrong.parquet", "--out", "other.parquet", code=2)
    assert mentions("somebody", "row 4")(told)
    assert mentions("row 6", ", ".join(labels))(told)
    assert not (fleet / "other.parquet").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["indices", "machine-replacement", "--on", "local"], "--on: shards are those of a model"),
        (["evaluate", "machine-replacement", "whittle", "--on", "local"], "--on: one policy is weighed"),
        (["evaluate", "fleet.parquet", "whittle", "--on", "local", "--draws", "30"], "--draws: this is for models"),
        (["evaluate", "fleet.parquet", "whittle", "--on", "moon"], "on: expected local"),
        (["evaluate", "fleet.parquet", "oldest-first", "--on", "local"], "by shards these policies can be played"),
        (["evaluate", "fleet.parquet", "fleet.parquet", "--on", "local"], "a plan is a table of results"),
        (["evaluate", "fleet.parquet", "whittle", "--values", "v.parquet"], "--values: this is for models in Parquet"),
        (["indices", "machine-replacement", "--out", "i.parquet"], "--out: this is for models in Parquet"),
        (["act", "fleet.parquet", "fleet.parquet", "--out", "a.parquet"], "not a plan for a table of arms"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_written(words, told, fleet):
    assert told in ask(*words, code=2)
    assert sorted(file.name for file in fleet.iterdir()) == ["fleet.parquet"]


def test_faults_end_with_code_2(fleet, capsys):
    (fleet / "cut.parquet").write_bytes((fleet / "fleet.parquet").read_bytes()[:-20])
    with pytest.raises(SystemExit) as ended:
        main(["check", "cut.parquet"])
    assert ended.value.code == 2
    assert "not a Parquet file, or a damaged one" in capsys.readouterr().err
