"""A simulation by shards is that in memory, to the last bit, however the table is cut and wherever it runs."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import NotApplicable
from evenhand.evaluation.shards import driving
from evenhand.evaluation.shards.driving import Play
from evenhand.evaluation.shards.measuring import evaluate_arms
from evenhand.evaluation.shards.resident import Move, returns_of
from evenhand.evaluation.shards.scoring import Rule
from evenhand.execution.places import opened
from evenhand.model.parquet.reading import open_arms
from evenhand.policies.baselines import never_act, random_feasible
from evenhand.policies.fluid import fair_index
from evenhand.policies.index import whittle
from evenhand.simulation import simulate


def random_problem(seed, number, num_types=None, actions=2, resources=1, amounts=(1.0, 1.0, 2.0)):
    """Arms of several types, of which some come several times and in several blocks."""
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


def play(problem, path, rule, num_shards, rng=3, weights=None, on="local", episodes=3, steps=8):
    """(episode, arm) returns by shards, and shares of the budget."""
    eh.save(problem, path)
    time = problem.criterion.time_weights(steps)
    with opened(on) as executor:
        shards = Play(open_arms(path), rule, executor, weights, num_shards)
        used = shards.run(episodes, time, rng)
        return np.concatenate(shards.ask(returns_of), axis=1), used / (problem.budget * time.sum())


POLICIES = {"whittle": partial(whittle, allow_not_indexable=True), "random": random_feasible, "never-act": never_act}


@given(
    name=st.sampled_from(["whittle", "random", "never-act"]),
    seed=st.integers(0, 10**6),
    number=st.integers(1, 25),
    num_types=st.sampled_from([None, 1, 3]),
    shards=st.integers(1, 9),
)
def test_returns_are_those_in_memory(name, seed, number, num_types, shards, tmp_path_factory):
    problem = random_problem(seed, number, num_types)
    try:
        policy = (whittle if name == "whittle" else POLICIES[name])(problem)
    except NotApplicable:
        return  # some arm is not indexable
    wanted = simulate(problem, policy, 3, 8, rng=3)
    returns, used = play(problem, tmp_path_factory.mktemp("m") / "m.parquet", Rule(name), shards)
    assert np.array_equal(returns, wanted.returns)
    assert np.allclose(used, wanted.used, rtol=1e-12)


@given(
    seed=st.integers(0, 10**6),
    number=st.integers(1, 20),
    shards=st.integers(1, 6),
    actions=st.integers(2, 4),
    resources=st.integers(1, 3),
    amounts=st.sampled_from([(1.0, 2.0), (0.1, 0.2, 0.3), (0.37, 1.1, 2.9), (0.0, 1.0)]),
    bins=st.sampled_from([2, 5, 4096]),
)
def test_fair_index_with_several_actions_and_resources(
    seed, number, shards, actions, resources, amounts, bins, tmp_path_factory
):
    problem = random_problem(seed, number, None, actions, resources, amounts)
    rng = np.random.default_rng(seed)
    weights, prices = rng.uniform(0.1, 1, size=problem.num_types), rng.uniform(0, 2, size=resources)
    wanted = simulate(problem, fair_index(problem, weights, prices), 3, 8, rng=3)
    by_row = weights[problem.type_of_block]
    rule = Rule("fair-index", tuple(prices.tolist()), float(weights.max()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driving, "MOST_BINS", bins)  # few bins: many merges
        patch.setattr(driving, "SCORES_AT_ONCE", 7)  # many ranges
        returns, used = play(problem, tmp_path_factory.mktemp("m") / "m.parquet", rule, shards, weights=by_row)
    assert np.array_equal(returns, wanted.returns)
    assert np.allclose(used, wanted.used, rtol=1e-12)


def test_batches_of_episodes_are_those_in_memory(tmp_path, monkeypatch):
    problem = random_problem(1, 9)
    for module in ("evenhand.simulation.rollout", "evenhand.evaluation.shards.driving"):
        monkeypatch.setattr(f"{module}.BATCH", 2 * problem.num_arms)
    wanted = simulate(problem, random_feasible(problem), 5, 8, rng=3)
    returns, _ = play(problem, tmp_path / "m.parquet", Rule("random"), 4, episodes=5)
    assert np.array_equal(returns, wanted.returns)


def test_a_shard_that_was_lost_follows_the_log_again(tmp_path):
    problem = random_problem(2, 12)
    wanted, _ = play(problem, tmp_path / "m.parquet", Rule("random"), 3)
    time = problem.criterion.time_weights(8)

    class Forgetful(Play):
        """Builds all its shards anew, now and then."""

        def ask(self, do, *common, each=None):
            if sum(isinstance(entry, Move) for entry in self.log) % 3 == 2:
                self.shards.forget()
                self.shards = self.executor.place(self.recipes)
            return super().ask(do, *common, each=each)

    with opened("local") as executor:
        shards = Forgetful(open_arms(tmp_path / "m.parquet"), Rule("random"), executor, None, 3)
        shards.run(3, time, 3)
        assert np.array_equal(np.concatenate(shards.ask(returns_of), axis=1), wanted)


@pytest.mark.slow
def test_processes_give_the_same_figures_and_the_same_file(tmp_path):
    problem = random_problem(4, 30, 6)
    eh.save(problem, tmp_path / "m.parquet")
    found = [
        evaluate_arms(
            "random", tmp_path / "m.parquet", "gini:2", 4, 6, rng=1, on=on, num_shards=shards, values=tmp_path / on
        )
        for on, shards in (("local", 1), ("local:2", 5))
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
    found = evaluate_arms("random", tmp_path / "m.parquet", "alpha:1", 40, 30, rng=5, num_shards=3)
    wanted = eh.evaluate(problem, "random", "alpha:1", 40, 30, rng=5, method="monte-carlo")
    for name in ("welfare", "mean", "mean_stderr", "worst", "gini_coefficient", "truncation_bound"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-12), name
    assert found.welfare_stderr == pytest.approx(wanted.welfare_stderr, rel=0.05)  # kinks are not looked at
    assert sorted(found.groups.values()) == pytest.approx(sorted(wanted.groups.values()))


def test_policies_that_need_more_than_their_own_arm_are_refused(tmp_path):
    eh.save(random_problem(0, 3), tmp_path / "m.parquet")
    with pytest.raises(NotApplicable, match="by shards these policies"):
        evaluate_arms("oldest-first", tmp_path / "m.parquet")
    with pytest.raises(NotApplicable, match="finite horizon"):
        evaluate_arms("never-act", tmp_path / "m.parquet", criterion="finite:5")
    with pytest.raises(NotApplicable, match="needs the weights"):
        evaluate_arms("fair-index", tmp_path / "m.parquet")
