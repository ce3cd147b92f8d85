"""A simulation by blocks is the one in memory to the last bit, for any blocks and backend."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import NotApplicableError
from evenhand.evaluation import BlockPolicy, RankedArms, evaluate_blocks, simulate
from evenhand.parallel import Pool
from evenhand.policies import fair_index, never_act, random_feasible, whittle

from ..conftest import mentions


def random_problem(seed, number, num_types=None, actions=2, resources=1, amounts=(1.0, 1.0, 2.0)):
    """Arms of several types, some of which occur several times and in several blocks."""
    rng = np.random.default_rng(seed)
    kinds = []
    for i in range(num_types or number):
        s = int(rng.integers(2, 4))
        a = actions if i % 2 == 0 else 2
        usage = np.zeros((a, resources))
        usage[1:] = np.sort(rng.choice(amounts, size=(a - 1, resources)), axis=0)
        kinds.append(eh.Arm(rng.dirichlet(np.ones(s), size=(s, a)), rng.normal(size=(s, a)), usage))
    arms = [kinds[int(rng.integers(len(kinds)))] if num_types else kinds[i] for i in range(number)]
    counts = rng.integers(1, 4, size=number)
    budget = np.full(resources, max(1.0, np.floor(0.3 * counts.sum())))
    return eh.CoupledMDP(arms, budget=budget, discount=0.9, counts=counts)


def play(problem, path, policy, rows, backend=None, episodes=3, steps=8):
    """(episode, arm) returns, and shares of the budget."""
    eh.save(problem, path)
    with Pool(backend) as pool:
        arms = RankedArms(eh.open_arms(path), policy, pool, block_rows=rows)
    found = arms.simulate(episodes, problem.criterion.time_weights(steps), 3)
    return found.returns, found.used


POLICIES = {"whittle": partial(whittle, allow_not_indexable=True), "random": random_feasible, "never-act": never_act}


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["whittle", "random", "never-act"]),
    seed=st.integers(0, 10**6),
    number=st.integers(1, 25),
    num_types=st.sampled_from([None, 1, 3]),
    rows=st.integers(1, 26),
)
def test_returns_are_those_in_memory(name, seed, number, num_types, rows, tmp_path_factory):
    problem = random_problem(seed, number, num_types)
    try:
        policy = (whittle if name == "whittle" else POLICIES[name])(problem)
    except NotApplicableError:
        return  # some arm is not indexable
    expected = simulate(problem, policy, 3, 8, rng=3)
    returns, used = play(problem, tmp_path_factory.mktemp("m") / "m.parquet", BlockPolicy(name), rows)
    assert np.array_equal(returns, expected.returns)
    assert np.allclose(used, expected.used, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    number=st.integers(1, 20),
    rows=st.integers(1, 21),
    actions=st.integers(2, 4),
    resources=st.integers(1, 3),
    amounts=st.sampled_from([(1.0, 2.0), (0.1, 0.2, 0.3), (0.37, 1.1, 2.9), (0.0, 1.0)]),
)
def test_fair_index_with_several_actions_and_resources(
    seed, number, rows, actions, resources, amounts, tmp_path_factory
):
    problem = random_problem(seed, number, None, actions, resources, amounts)
    rng = np.random.default_rng(seed)
    weights, prices = rng.uniform(0.1, 1, size=problem.num_types), rng.uniform(0, 2, size=resources)
    expected = simulate(problem, fair_index(problem, weights, prices), 3, 8, rng=3)
    policy = BlockPolicy("fair-index", tuple(prices.tolist()), weights[problem.type_of_block])
    returns, used = play(problem, tmp_path_factory.mktemp("m") / "m.parquet", policy, rows)
    assert np.array_equal(returns, expected.returns)
    assert np.allclose(used, expected.used, rtol=1e-12)


def test_batches_of_episodes_are_those_in_memory(tmp_path):
    problem = eh.problems.random_coupled(num_arms=3, num_types=3, num_states=2)
    counts = np.full(3, 700_000)  # two episodes per batch
    problem = eh.CoupledMDP(list(problem.arms), [5], 0.9, counts)
    expected = simulate(problem, random_feasible(problem), 3, 2, rng=3)
    returns, _ = play(problem, tmp_path / "m.parquet", BlockPolicy("random"), 2, steps=2)
    assert np.array_equal(returns, expected.returns)


@pytest.mark.slow
def test_processes_give_the_same_evaluation(tmp_path):
    eh.save(random_problem(4, 30, 6), tmp_path / "m.parquet")
    model = eh.open_arms(tmp_path / "m.parquet")
    found = [
        evaluate_blocks(model, BlockPolicy("random"), "gini:2", 4, 6, rng=1, backend=backend)
        for backend in ("threads", "processes:2")
    ]
    for name in ("welfare", "welfare_stderr", "mean", "mean_stderr", "worst", "gini_coefficient"):
        assert getattr(found[0], name) == getattr(found[1], name)
    assert np.array_equal(found[0].values, found[1].values)
    assert np.array_equal(found[0].budget_used, found[1].budget_used)


@pytest.mark.parametrize("over", ["arms", "groups"])
def test_evaluation_is_that_in_memory(over, tmp_path):
    rng = np.random.default_rng(0)
    arms = [eh.Arm(rng.dirichlet(np.ones(2), size=(2, 2)), rng.uniform(size=(2, 2)), [[0], [1]]) for _ in range(6)]
    groups = ["north", "south", "", "north", "", "south"]
    problem = eh.CoupledMDP(arms, [2], 0.9, [1, 2, 1, 3, 1, 1], groups=groups, over=over)
    eh.save(problem, tmp_path / "m.parquet")
    model = eh.open_arms(tmp_path / "m.parquet")
    found = evaluate_blocks(model, BlockPolicy("random"), "alpha:1", 40, 30, rng=5)
    expected = eh.evaluate(problem, "random", "alpha:1", 40, 30, rng=5, method="monte-carlo")
    for name in ("welfare", "welfare_stderr", "mean", "mean_stderr", "worst", "gini_coefficient", "truncation_bound"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12), name
    assert sorted(found.groups.values()) == pytest.approx(sorted(expected.groups.values()))
    assert np.allclose(np.sort(found.member_stderr), np.sort(expected.member_stderr), rtol=1e-9)
    assert np.allclose(found.unit_served, expected.served, rtol=1e-9)
    assert len(found.values) == problem.num_arms


def test_policies_that_depend_on_other_arms_are_refused(tmp_path):
    eh.save(random_problem(0, 3), tmp_path / "m.parquet")
    model = eh.open_arms(tmp_path / "m.parquet")
    with pytest.raises(NotApplicableError, check=mentions("oldest-first", "whittle")):
        BlockPolicy("oldest-first")
    with pytest.raises(NotApplicableError, check=mentions("never-act")):
        evaluate_blocks(model.with_criterion("finite:5"), BlockPolicy("never-act"))
    with pytest.raises(NotApplicableError, check=mentions("fair-index")):
        evaluate_blocks(model, BlockPolicy("fair-index"))
