"""The public functions on opened Parquet models: in memory if they are small, block by block if they are large."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, TableError
from evenhand.planning import SolveMethod
from evenhand.solvers import solve_fluid

from ..conftest import mentions


@pytest.fixture
def problem():
    return eh.problems.random_coupled(num_arms=30, num_types=30, budget=4)


@pytest.fixture
def model(problem, tmp_path):
    eh.save(problem, tmp_path / "fleet.parquet")
    return eh.open_arms(tmp_path / "fleet.parquet", in_memory_rows=0)


def test_small_models_give_the_results_of_problems(tmp_path):
    machines = eh.problems.machine_replacement(num_arms=3)
    eh.save(machines, tmp_path / "m.parquet")
    model = eh.open_arms(tmp_path / "m.parquet")
    assert eh.solve(model, "gini:2").welfare == eh.solve(machines, "gini:2").welfare
    assert eh.evaluate(model, "whittle", "gini:2").welfare == eh.evaluate(machines, "whittle", "gini:2").welfare
    assert np.array_equal(eh.indices(model).indices, eh.indices(machines).indices)
    assert [note.kind for note in eh.check(model).notes] == [note.kind for note in eh.check(machines).notes]


def test_solve_returns_the_relaxation_and_its_policy(problem, model, tmp_path):
    found = eh.solve(model, "gini:2")
    whole = solve_fluid(problem, "gini:2")
    assert (found.method, len(found.values)) == ("fluid", 30)
    assert found.welfare == pytest.approx(whole.welfare, rel=1e-9)
    assert found.upper_bound == pytest.approx(whole.upper_bound, rel=1e-9)
    simulated = eh.evaluate(model, found, "gini:2", num_episodes=5, horizon=20)
    found.save(tmp_path / "plan.parquet")
    again = eh.evaluate(model, str(tmp_path / "plan.parquet"), "gini:2", num_episodes=5, horizon=20)
    assert simulated.welfare == again.welfare
    policy = eh.policies.fair_index(problem, found.weights, np.array(found.policy.prices))
    expected = eh.evaluate(problem, policy, "gini:2", num_episodes=5, horizon=20, method="monte-carlo")
    assert simulated.mean == pytest.approx(expected.mean, rel=1e-12)
    assert "30 arms" in repr(found)


def test_groups_and_floors_are_solved_in_memory(problem, tmp_path):
    arms = list(problem.arms)[:4]
    grouped = eh.CoupledMDP(arms, problem.budget, 0.9, groups=["a", "a", "b", "b"], over="groups")
    floors = eh.CoupledMDP(arms, problem.budget, 0.9, floors=[0.01] * 4)
    for number, one in enumerate((grouped, floors)):
        eh.save(one, tmp_path / f"{number}.parquet")
        model = eh.open_arms(tmp_path / f"{number}.parquet", in_memory_rows=0)
        assert eh.solve(model, "utilitarian").welfare == eh.solve(one, "utilitarian").welfare


def test_indices_and_their_plan(problem, model, tmp_path):
    from evenhand.planning import save_indices

    found, expected = eh.indices(model), eh.indices(problem)
    assert np.array_equal(found.indices, expected.indices[problem.type_of_block], equal_nan=True)
    assert len(found.to_frame()) == 90 and "30 rows" in repr(found)
    save_indices(found, tmp_path / "plan")
    plan = eh.load_plan(tmp_path / "plan")
    states = np.random.default_rng(0).integers(3, size=30)
    decided = plan.act(states, tmp_path / "actions.parquet", rng=4)
    actions = pq.read_table(tmp_path / "actions.parquet")["action"].to_numpy()
    assert np.array_equal(actions, eh.policies.whittle(problem).act(states, 4))
    assert decided.num_served == (actions > 0).sum() and decided.num_arms == 30
    with pytest.raises(TableError, match="row 1"):
        plan.act(np.full(30, 7), tmp_path / "other.parquet")
    with pytest.raises(InvalidInputError, check=mentions("states", "arm=30", "(2,)")):
        plan.act([0, 1], tmp_path / "other.parquet")


def test_check_counts_and_notes(model):
    found = eh.check(model)
    assert (found.states, found.actions, found.num_unserved) == ((3, 3), (2, 2), 0)
    assert not found.notes
    assert eh.check(model.with_budget(100)).notes


def test_arguments_that_need_the_model_in_memory_are_refused(model):
    for arguments in (
        {"method": "whittle"},
        {"method": SolveMethod("fluid", seconds=3.0)},
        {"method": SolveMethod(redraw_every=2)},
    ):
        with pytest.raises(NotApplicableError):
            eh.solve(model, **arguments)
    with pytest.raises(NotApplicableError):
        eh.evaluate(model, "oldest-first")
    with pytest.raises(NotApplicableError):
        eh.indices(model, "finite:3")


def test_results_have_summaries(model, tmp_path):
    from evenhand.report import summarise

    relaxation, indices = eh.solve(model, "gini:2"), eh.indices(model)
    relaxation.save(tmp_path / "plan.parquet")
    plan = eh.load_plan(tmp_path / "plan.parquet")
    decided = plan.act(np.zeros(30, dtype=int), tmp_path / "actions.parquet")
    evaluation = eh.evaluate(model, relaxation, num_episodes=3, horizon=5)
    for found in (model, relaxation, indices, eh.check(model), plan, decided, evaluation):
        assert summarise(found).facts, found
    assert relaxation.to_dict()["welfare"]["gap"] == relaxation.gap
