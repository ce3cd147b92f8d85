"""Bounds by information relaxation: against optima, exact inner problems and closed forms."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, TooLargeError, UnknownNameError
from evenhand.planning import relax
from evenhand.report import summarise
from evenhand.solvers import model_of
from evenhand.solvers.information_relaxation import check_size, path_bounds
from tests.oracles.information_relaxation import inner_optima


def random_problem(seed: int) -> eh.CoupledMDP:
    """Two to four arms of two or three states, with one or two resources; every fifth must spend the first."""
    rng = np.random.default_rng(seed)
    S, K, N = int(rng.integers(2, 4)), int(rng.integers(1, 3)), int(rng.integers(2, 5))
    usage = np.vstack([np.zeros(K), np.eye(K)])
    arms = [
        eh.Arm(rng.dirichlet(np.ones(S), size=(S, K + 1)), rng.random((S, K + 1)), usage, rng.dirichlet(np.ones(S)))
        for _ in range(N)
    ]
    spend = ["all"] + ["at most"] * (K - 1) if seed % 5 == 0 else ()
    return eh.CoupledMDP(arms, np.ones(K), 0.8, spend=spend)


@pytest.mark.parametrize("criterion", ["discounted", "finite:6"])
def test_random_problems(criterion):
    gaps, closed, tighter = [], [], 0
    for seed in range(32):
        problem = random_problem(seed).with_criterion(criterion)
        optimum = eh.solve(problem, "utilitarian").welfare
        found = eh.bound(problem, "utilitarian", method="information", num_paths=100)
        assert found.upper_bound >= optimum - 4 * found.stderr - 1e-7
        assert found.upper_bound <= found.confidence_bound <= found.relaxation_bound
        tighter += found.confidence_bound < found.relaxation_bound - 1e-6
        gaps.append((found.upper_bound - optimum) / found.stderr if found.stderr > 1e-9 else 0.0)
        closed.append((found.relaxation_bound - found.upper_bound) / max(found.relaxation_bound - optimum, 1e-9))
    assert tighter >= 30
    assert np.mean(closed) > 0.4
    assert np.mean(gaps) > 0


def plain(problem, num_paths, seed=0, criterion=None):
    """Differences to the Lagrangian bound at the prices of the plain relaxation."""
    model, relaxed = model_of(problem), relax(problem, "utilitarian")
    steps = problem.criterion.judging_steps(0.01)
    uniforms = np.random.default_rng(seed).random((num_paths, problem.num_arms, steps + 1))
    found = path_bounds(model, problem.type_of_arm, relaxed.weights, relaxed.prices, uniforms, 300)
    return *found, relaxed, uniforms


@pytest.mark.parametrize("seed", [2, 3, 6, 17, 28])
def test_paths_lie_between_the_exact_inner_problem_and_the_lagrangian_bound(seed):
    problem = random_problem(seed)
    bound, below, relaxed, uniforms = plain(problem, 10)
    exact = inner_optima(problem, relaxed.prices, uniforms.shape[2] - 1, uniforms)
    assert bound == pytest.approx(relaxed.upper_bound, rel=1e-4)
    assert (below <= 1e-9).all()
    assert (bound + below >= exact - 1e-7).all()
    # Few paths have a gap between the inner problem and its relaxation.
    assert np.mean(bound + below - exact) < 0.3 * np.mean(bound - exact)


def test_deterministic_arms_have_their_optimum_as_bound():
    # Each arm earns 1 when it is served for the first time: the optimum serves one arm per step.
    arm = eh.Arm([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[0, 1], [0, 0]], [[0], [1]], [1, 0])
    problem = eh.CoupledMDP([arm], counts=[3], budget=[1], discount=0.9)
    bound, below, _, _ = plain(problem, 2)
    optimum = (1 + 0.9 + 0.81) / 3
    assert bound > 1.01 * optimum
    assert bound + below == pytest.approx(optimum, rel=1e-4)


def test_paths_of_one_decision_have_their_closed_form():
    # Idle arms become ready with probability 1/2; then one of them is served. At price 0 a path has the reward of its
    # ready arms less the penalty for those that the budget does not reach.
    ready = eh.Arm([[[0.5, 0.5], [0.5, 0.5]], [[0, 1], [0, 1]]], [[0, 0], [0, 1]], [[0], [1]], [1, 0])
    problem = eh.CoupledMDP([ready], counts=[2], budget=[1], discount=1, criterion="finite:2")
    uniforms = np.random.default_rng(0).random((200, 2, 3))
    both = (uniforms[:, :, 1] >= 0.5).all(axis=1)
    bound, below = path_bounds(model_of(problem), problem.type_of_arm, np.full(1, 0.5), np.zeros((2, 1)), uniforms, 300)
    assert bound == pytest.approx(0.5)
    assert below == pytest.approx(np.where(both, -0.5, 0.0), abs=1e-3)
    assert eh.solve(problem, "utilitarian").welfare == pytest.approx(0.5 - 0.5 / 4)


@pytest.mark.parametrize("welfare", ["gini:2", "maximin", "leximin", "nash", "alpha:0.5"])
@pytest.mark.parametrize("over", ["arms", "groups"])
def test_fair_welfare(welfare, over):
    field = random_problem(6)
    problem = eh.CoupledMDP([field.arms[block] for block in range(3)], field.budget, 0.8, groups=["a", "b", "b"])
    optimum = eh.solve(problem, welfare, over=over).welfare
    found = eh.bound(problem, welfare, method="information", over=over)
    assert optimum <= found.upper_bound + 4 * found.stderr + 1e-6
    assert found.upper_bound <= found.relaxation_bound


def test_floors_and_promised_waits():
    field = random_problem(3)
    arms = [field.arms[block] for block in range(2)]
    for problem in (
        eh.CoupledMDP(arms, field.budget, 0.8, floors=[0.3, 0.3]),
        eh.CoupledMDP(arms, field.budget, 0.8).with_max_wait({"0": 2}),
    ):
        optimum = eh.solve(problem, "utilitarian").welfare
        found = eh.bound(problem, "utilitarian", method="information")
        assert optimum <= found.upper_bound + 4 * found.stderr + 1e-6
        assert found.upper_bound + 2 * found.stderr < found.relaxation_bound


def test_same_seed_same_estimate_for_any_number_of_threads(monkeypatch):
    problem = eh.problems.machine_replacement(num_arms=4)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("EVENHAND_THREADS", threads)
        found.append(eh.bound(problem, "gini:2", method="information", num_paths=40, rng=3))
    assert found[0] == found[1]
    assert found[0] != eh.bound(problem, "gini:2", method="information", num_paths=40, rng=4)


def test_an_estimate_is_never_shown_as_a_proof():
    found = eh.bound(random_problem(3), "utilitarian", method="information", num_paths=40)
    assert not found.proved
    assert found.to_dict()["proved"] is False
    assert found.to_dict()["confidence_bound"] == found.confidence_bound > found.upper_bound
    summary = summarise(found)
    assert "stimated" in repr(found)
    assert "stimated" in summary.title
    assert "standard error" in dict(summary.facts)["upper bound"]


def test_refusals():
    problem = random_problem(3)
    with pytest.raises(NotApplicableError):
        eh.bound(problem, "utilitarian", method="information", criterion="average")
    with pytest.raises(NotApplicableError):
        eh.bound(problem, Root(), method="information")
    with pytest.raises(InvalidInputError):
        eh.bound(problem, "utilitarian", num_paths=10)
    with pytest.raises(InvalidInputError):
        eh.bound(problem, "utilitarian", method="information", num_paths=1)
    with pytest.raises(UnknownNameError):
        eh.bound(problem, "utilitarian", method="lagrangian")
    with pytest.raises(TooLargeError):
        check_size(model_of(eh.problems.machine_replacement(num_arms=100_000)), 200)


class Root:
    """The mean of square roots."""

    name = "root"

    def __call__(self, values, counts=None):
        return np.average(np.sqrt(np.asarray(values)), axis=-1, weights=counts)

    def supergradient(self, values, counts=None):
        counts = np.ones(len(values)) if counts is None else np.asarray(counts)
        return counts / counts.sum() / (2 * np.sqrt(values))

    def check_domain(self, values):
        return
