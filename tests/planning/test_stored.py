"""The fair relaxation of a table of arms by shards, and its plan."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.errors import NotApplicable
from evenhand.evaluation.shards.plans import read_plan
from evenhand.solvers.fluid import solve_fluid


@pytest.fixture
def table(tmp_path):
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=12, budget=2)
    eh.save(problem, tmp_path / "m.parquet")
    return problem, tmp_path / "m.parquet"


def test_the_plan_is_written_and_played_like_fair_index_in_memory(table, tmp_path):
    problem, path = table
    found = eh.solve_arms(path, "gini:2", tolerance=1e-6, out=tmp_path / "plan.parquet", num_shards=3)
    wanted = solve_fluid(problem, eh.parse_welfare("gini:2", 12))
    assert found.upper_bound == pytest.approx(wanted.upper_bound, rel=1e-6)
    assert found.relaxed_welfare <= found.upper_bound and found.relaxed_gap <= 1e-6
    written = pq.read_table(tmp_path / "plan.parquet").to_pydict()
    assert np.array_equal(written["weight"], found.weights) and np.array_equal(written["value"], found.values)
    plan = read_plan(tmp_path / "plan.parquet")
    by_shards = eh.evaluate_arms(plan.rule, path, "gini:2", 4, 10, rng=2, weights=plan.weights, num_shards=4)
    by_type = np.zeros(problem.num_types)
    by_type[problem.type_of_block] = found.weights
    policy = eh.policies.fair_index(problem, by_type, found.solution.prices)
    in_memory = eh.simulate(problem, policy, 4, 10, rng=2).returns.mean(axis=0)
    assert np.allclose(by_shards.values, in_memory, rtol=1e-12)


def test_a_finite_horizon_is_refused(table):
    with pytest.raises(NotApplicable, match="finite horizon"):
        eh.solve_arms(table[1], criterion="finite:4")
