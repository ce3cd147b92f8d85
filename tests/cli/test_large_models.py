"""Large models in Parquet on the command line: results per row, with the numbers of the model in memory."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import evenhand as eh
from evenhand.cli import application, main
from evenhand.errors import InvalidInputError
from evenhand.solvers import solve_fluid


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A folder with a model of a few different machines."""
    monkeypatch.chdir(tmp_path)
    ask("problems", "heterogeneous-machine-replacement", "-p", "num_arms=7", "--out", "fleet.parquet")
    return tmp_path


@pytest.fixture
def large(monkeypatch):
    """Every model in Parquet counts as large."""
    monkeypatch.setattr("evenhand.model.parquet.IN_MEMORY_ROWS", 0)


def ask(*words, code=0):
    """What a command prints as JSON, or the message of its refusal."""
    result = CliRunner().invoke(application, [*map(str, words), "--json"])
    if code == 0:
        assert result.exception is None, result.output
        return json.loads(result.stdout)
    with pytest.raises(InvalidInputError) as error:
        raise result.exception
    return str(error.value)


def test_check_reports_sizes_and_every_fault_with_its_row(fleet, large):
    found = ask("check", "fleet.parquet", "--backend", "threads")
    assert (found["sound"], found["arms"], found["states"], found["actions"]) == (True, 7, [3, 3], [2, 2])
    assert found["resources"] == [{"name": "resource 0", "budget": 1.0, "most_used": 7.0}]
    table = pq.read_table("fleet.parquet").to_pydict()
    table["transitions"][4][0] += 0.5
    table["rewards"][6] = None
    broken = pa.table(table).replace_schema_metadata(pq.read_schema("fleet.parquet").metadata)
    pq.write_table(broken, "broken.parquet")
    for command in ("check", "solve"):
        message = ask(command, "broken.parquet", code=2)
        assert "broken.parquet, row 5" in message and "broken.parquet, row 7" in message


def test_indices_are_written_and_are_those_in_memory(fleet):
    found = ask("indices", "fleet.parquet", "--out", "indices.parquet")
    assert (found["rows"], found["indexable"]) == (7, 7)
    problem = eh.load("fleet.parquet")
    expected = eh.indices(problem)
    for block, row in enumerate(pq.read_table("indices.parquet").to_pylist()):
        kind = problem.type_of_block[block]
        assert row["row"] == block and row["indexable"]
        assert np.allclose(row["indices"], expected.indices[kind], rtol=1e-12, atol=1e-12)


def test_evaluate_by_blocks_is_that_in_memory(fleet):
    words = ("evaluate", "fleet.parquet", "whittle", "--episodes", "5", "--horizon", "20", "--welfare", "utilitarian")
    there = ask(*words, "--values", "values.parquet")
    here = ask(*words, "--monte-carlo")
    assert there["welfare"] == pytest.approx(here["welfare"], rel=1e-12)
    assert there["budget_used"] == pytest.approx(here["budget_used"], rel=1e-12)
    values = pq.read_table("values.parquet").to_pydict()
    assert values["value"] == pytest.approx(eh.evaluate(
        eh.load("fleet.parquet"), "whittle", num_episodes=5, horizon=20, method="monte-carlo"
    ).values.tolist())  # fmt: skip


def test_act_by_a_table_of_indices_is_the_policy_in_memory(fleet):
    ask("indices", "fleet.parquet", "--out", "indices.parquet")
    problem = eh.load("fleet.parquet")
    names = [label[0] for label in problem.tables.labels]
    labels = problem.tables.labels[0][1]
    states = [2, 1, 2, 2, 0, 1, 2]
    columns = {"arm": names, "state": [labels[state] for state in states]}
    pq.write_table(pa.table(columns), "now.parquet")
    found = ask("act", "indices.parquet", "now.parquet", "--out", "actions.parquet", "--budget", "2", "--seed", "4")
    assert found["used"] == {"resource 0": 2.0} and found["served"] == 2
    expected = eh.policies.whittle(problem.with_budget(2)).act(states, 4)
    actions = problem.tables.labels[0][2]
    assert pq.read_table("actions.parquet")["action"].to_pylist() == [actions[action] for action in expected]
    columns["arm"][3], columns["state"][5] = "stranger", "lost"
    pq.write_table(pa.table(columns), "wrong.parquet")
    message = ask("act", "indices.parquet", "wrong.parquet", "--out", "other.parquet", code=2)
    assert "row 4, arm" in message and "row 6, state" in message
    assert not (fleet / "other.parquet").exists()


def test_the_relaxation_and_a_plan(tmp_path):
    eh.save(eh.problems.random_coupled(num_arms=40, num_types=40, budget=5), tmp_path / "fleet.parquet")
    plan = tmp_path / "plan.parquet"
    found = ask("solve", tmp_path / "fleet.parquet", "--welfare", "gini:2", "--out", plan)
    whole = solve_fluid(eh.load(tmp_path / "fleet.parquet"), "gini:2")
    assert found["welfare"]["value"] == pytest.approx(whole.welfare, rel=1e-9)
    assert found["welfare"]["upper_bound"] == pytest.approx(whole.upper_bound, rel=1e-9)
    assert found["welfare"]["of"] == "relaxation"
    assert found["policy"] == str(plan)
    assert found["prices"]["resource 0"] == pytest.approx(float(whole.prices[0]) * 20)
    table = pq.read_table(plan)
    assert table.column_names == ["row", "value", "weight"]
    assert np.array_equal(table["value"].to_numpy(), found["values"])
    words = ("--episodes", 3, "--welfare", "gini:2")
    simulated = ask("evaluate", tmp_path / "fleet.parquet", plan, *words)
    assert simulated["welfare"] <= found["welfare"]["upper_bound"] + 5 * simulated["welfare_stderr"]
    text = CliRunner().invoke(application, ["solve", str(tmp_path / "fleet.parquet"), "--out", str(plan), "--quiet"])
    for word in ("relaxation", "upper bound", "one unit of resource 0", "1 block"):
        assert word in text.stdout


def test_small_models_are_read_into_memory(fleet):
    assert ask("solve", "fleet.parquet")["method"] != "fluid"
    assert "types" in ask("check", "fleet.parquet")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["evaluate", "fleet.parquet", "whittle", "--values", "v.parquet", "--draws", "30"], "--draws"),
        (["evaluate", "fleet.parquet", "whittle", "--backend", "moon"], "moon"),
        (["evaluate", "fleet.parquet", "oldest-first", "--values", "v.parquet"], "oldest-first"),
        (["evaluate", "fleet.parquet", "fleet.parquet"], "not a plan"),
        (["evaluate", "machine-replacement", "whittle", "--values", "v.parquet"], "--values"),
        (["indices", "machine-replacement", "--out", "i.parquet"], "--out"),
        (["act", "fleet.parquet", "fleet.parquet", "--out", "a.parquet"], "not a plan"),
        (["solve", "fleet.parquet", "--method", "whittle", "--out", "p.parquet"], "--method"),
        (["solve", "fleet.parquet", "--redraw-every", "3", "--out", "p.parquet"], "--redraw-every"),
        (["solve", "fleet.parquet", "--tolerance", "3", "--out", "p.parquet"], "tolerance"),
        (["solve", "fleet.parquet", "--out", "no/plan.parquet"], "--out"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(words, name, fleet):
    assert name in ask(*words, code=2)
    assert sorted(file.name for file in fleet.iterdir()) == ["fleet.parquet"]


def test_faults_end_with_code_2(fleet, capsys):
    (fleet / "cut.parquet").write_bytes((fleet / "fleet.parquet").read_bytes()[:-20])
    with pytest.raises(SystemExit) as ended:
        main(["check", "cut.parquet"])
    assert ended.value.code == 2
    assert "cut.parquet" in capsys.readouterr().err
