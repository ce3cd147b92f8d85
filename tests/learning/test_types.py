"""Training under the average, for several types, and for a welfare of one's own."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import evenhand as eh
from evenhand.learning import PPOLearner, train
from evenhand.learning.typed import TypeJudge, TypeWorld
from evenhand.policies import Network, TypeNetworkPolicy

QUICK = {"horizon": 30, "hidden": (32, 32), "evaluations": 4, "seed": 1}
PPO = PPOLearner(num_copies=16, rollout=16, batch=64, learning_rate=5e-3)


def arms(*gains):
    """One state per arm; serving an arm of type t is worth gains[t]; one arm can be served."""
    own = [eh.Arm([[[1.0], [1.0]]], [[0.0, gain]], [[0], [1]]) for gain in gains]
    return eh.CoupledMDP(own, budget=[1], discount=0.5, counts=[1] * len(gains))


def later(criterion):
    """Serving costs 0.2 at once and brings 1 in the next step: a myopic policy idles."""
    rows = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
    arm = eh.Arm(rows, [[0.0, -0.2], [1.0, 0.5]], [[0], [1]])
    return eh.CoupledMDP([arm], budget=[2], discount=0.8, counts=[2]).with_criterion(criterion)


class HalfMean:
    """A welfare of one's own: half of the mean, half of the least."""

    name = "half-mean"

    def __call__(self, values, counts=None):
        values = np.asarray(values, dtype=float)
        return float(0.5 * np.average(values, weights=counts) + 0.5 * values.min())

    def supergradient(self, values, counts=None):
        counts = np.ones(len(values)) if counts is None else np.asarray(counts, dtype=float)
        worst = counts * (np.asarray(values) == np.min(values))
        return 0.5 * counts / counts.sum() + 0.5 * worst / worst.sum()

    def check_domain(self, values):
        """Every vector is in the domain."""


def test_it_learns_what_pays_later_under_the_average():
    problem = later("average")
    training = train(problem, PPO, 3_072, **QUICK)
    best = eh.solve(problem).welfare
    assert best == pytest.approx(0.4, rel=1e-6)  # each arm in turn: -0.2, then 1
    assert training.exact
    assert training.curve[-1][1] >= best - 0.02
    assert eh.evaluate(problem, training.policy).welfare == pytest.approx(training.score, rel=1e-6)


@pytest.mark.parametrize("best", [0, 1])
def test_it_serves_the_better_type(best):
    problem = arms(*(1.0 if kind == best else 0.2 for kind in (0, 1)))
    training = train(problem, PPO, 2_048, welfare="utilitarian", **QUICK)
    assert training.exact
    assert training.curve[-1][1] == pytest.approx(eh.solve(problem, "utilitarian").welfare, abs=0.02)


@pytest.mark.parametrize("welfare", ["maximin", HalfMean()])
def test_it_mixes_for_a_welfare(welfare):
    """Whichever is served, the other has nothing: only a mixture is fair."""
    problem = arms(1.0, 0.5)
    best = eh.solve(problem, welfare).welfare
    training = train(problem, PPO, 3_072, welfare=welfare, **QUICK)
    assert training.score >= 0.97 * best
    assert training.score <= eh.bound(problem, welfare).upper_bound * (1 + 1e-6)
    found = eh.evaluate(problem, training.policy, welfare)
    assert found.welfare == pytest.approx(training.score, rel=1e-6)


def random_network(problem, seed=0):
    num_types, num_states, num_actions = problem.types.valid.shape
    rng = np.random.default_rng(seed)
    sizes = [num_types * (num_states + 1) + problem.num_resources, 8, num_types * num_states * num_actions]
    weights = [rng.normal(size=pair).astype(np.float32) for pair in pairwise(sizes)]
    return Network(weights, [np.zeros(size, dtype=np.float32) for size in sizes[1:]])


PROBLEM = eh.problems.health_outreach(num_arms=5, num_states=2, budget=1)
UNLIKE = eh.problems.crew_maintenance()


@pytest.mark.parametrize("problem", [PROBLEM, UNLIKE])
def test_any_network_keeps_the_budget(problem):
    for seed in range(5):
        policy = TypeNetworkPolicy(problem, random_network(problem, seed), problem.type_counts / problem.num_arms)
        eh.check_policy(problem, policy)
        played = eh.evaluate(problem, policy, num_episodes=20, horizon=20, method="monte-carlo")
        assert (played.budget_used <= 1 + 1e-9).all()


def test_exact_and_played_values_agree():
    policy = TypeNetworkPolicy(PROBLEM, random_network(PROBLEM), np.full(PROBLEM.num_types, 1 / PROBLEM.num_types))
    exact = eh.evaluate(PROBLEM, policy, method="exact")
    played = eh.evaluate(PROBLEM, policy, method="monte-carlo", num_episodes=3000)
    assert np.abs(exact.unit_values - played.unit_values).max() <= 4.5 * played.unit_stderr.max()
    judge = TypeJudge(PROBLEM, eh.parse_welfare("utilitarian", 5), most_exact=0, copies=4000)
    assert np.abs(judge._values(policy, (1,)) - exact.unit_values).max() <= 4.5 * played.unit_stderr.max()


def test_the_reward_of_a_step_is_the_weighted_mean():
    weights = np.array([0.7, 0.2, 0.1])[: PROBLEM.num_types]
    world = TypeWorld(PROBLEM, 4, weights, 0, fixed=True)
    world.restart(np.ones(4, dtype=bool))
    before, network = world.counts.copy(), random_network(PROBLEM)
    step = world.step(network(world.observe()))
    allocation = step.facts["allocation"]
    assert (allocation.sum(axis=3) == before).all()
    assert (world.counts.sum(axis=2) == PROBLEM.type_counts).all()
    sums = (allocation * PROBLEM.types.rewards).sum(axis=(2, 3))
    assert step.rewards == pytest.approx((sums / PROBLEM.type_counts) @ weights)


def test_weights_of_the_mean_are_shares_of_arms():
    judge = TypeJudge(PROBLEM, eh.parse_welfare("utilitarian", 5))
    assert judge.centre == pytest.approx(PROBLEM.type_counts / 5)


def test_it_is_saved_resized_and_explained(tmp_path):
    policy = TypeNetworkPolicy(PROBLEM, random_network(PROBLEM), PROBLEM.type_counts / 5)
    eh.save_policy(PROBLEM, policy, tmp_path / "policy.zip")
    again = eh.load_policy(tmp_path / "policy.zip", PROBLEM)
    states = np.random.default_rng(0).integers(0, 2, (50, 5))
    assert (again.act(states, 3) == policy.act(states, 3)).all()
    larger = eh.problems.health_outreach(num_arms=10, num_states=2, budget=2)
    assert eh.evaluate(larger, policy, num_episodes=20, horizon=20, method="monte-carlo").welfare > 0
    plan = eh.load_plan(tmp_path / "policy.zip")
    rows = plan.act({"arm": list(range(5)), "type": [PROBLEM.types.labels[k][0] for k in PROBLEM.type_of_arm],
                     "state": [PROBLEM.types.labels[k][1][0] for k in PROBLEM.type_of_arm]}).rows  # fmt: skip
    assert all(row.reason for row in rows)


def test_it_competes_in_solve(effort):
    effort(arm_steps=2e4, report_steps=5e4)
    policy = TypeNetworkPolicy(PROBLEM, random_network(PROBLEM), PROBLEM.type_counts / 5)
    found = eh.solve(PROBLEM, "maximin", eh.SolveMethod(candidates={"network": policy}))
    assert found.welfare <= found.upper_bound * (1 + 1e-6) + 4 * found.welfare_stderr


@pytest.mark.parametrize(
    "settings", [{"num_arms": (2, 3)}, {"budget": (1, 2)}, {"seeds": 2}, {"allocation": "priority-sampling"}]
)
def test_what_types_do_not_know_is_refused(settings):
    with pytest.raises(eh.errors.NotApplicableError):
        train(PROBLEM, steps=4_000, **settings)


def test_a_finite_horizon_is_refused():
    with pytest.raises(eh.errors.NotApplicableError):
        train(PROBLEM.with_criterion("finite:10"), steps=4_000)
