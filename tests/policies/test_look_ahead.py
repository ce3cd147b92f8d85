"""The policy `lp-update`: a linear program over the next steps."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import TooLargeError
from evenhand.planning.plan import load_policy, save_policy
from evenhand.planning.relaxation import relax
from evenhand.policies import look_ahead

GAST = {
    "transitions": [
        [[0.02232142, 0.10229283, 0.87538575], [0.1487460114874601, 0.3043580930435809, 0.546895895468959]],
        [[0.03426605, 0.17175704, 0.79397691], [0.56845754, 0.41117331, 0.02036915]],
        [
            [0.5232475547675244, 0.4552329754476703, 0.0215194697848053],
            [0.252655702526557, 0.273104392731044, 0.474239904742399],
        ],
    ],
    "rewards": [[0.0, 0.37401552], [0.0, 0.11740814], [0.0, 0.07866135]],
    "usage": [[0], [1]],
}
"""An arm whose best order of service circles around the fixed point of the relaxation (Gast, Gaujal and Yan, 2020)."""


def gast(num_arms: int) -> eh.CoupledMDP:
    return eh.CoupledMDP(
        [eh.Arm(**GAST)], counts=[num_arms], budget=[0.4 * num_arms], discount=1.0, criterion="average"
    )


def first_step(problem, weights, ahead, counts, steps):
    """The optimum of the program, written out pair by pair, by SciPy."""
    types, factor = problem.types, problem.criterion.factor
    K, S, A = types.valid.shape
    shape = (steps, K, S, A)
    gains = np.zeros(shape)
    for t in range(steps):
        gains[t] = factor**t * weights[:, None, None] * types.rewards
    gains[-1] += factor**steps * np.einsum("ksaj,kj->ksa", types.transitions, ahead)
    equal, right, upper = [], [], []
    for t in range(steps):
        for k in range(K):
            for s in range(S):
                row = np.zeros(shape)
                row[t, k, s] = 1
                if t:
                    row[t - 1, k] -= types.transitions[k, :, :, s]
                equal.append(row.ravel())
                right.append(counts[k, s] if t == 0 else 0.0)
        for r in range(problem.num_resources):
            row = np.zeros(shape)
            row[t] = types.usage[..., r]
            upper.append(row.ravel())
    limits = np.tile(problem.budget, steps)
    bounds = [(0, None) if valid else (0, 0) for valid in np.broadcast_to(types.valid, shape).ravel()]
    return linprog(-gains.ravel(), upper, limits, equal, right, bounds)


@pytest.mark.parametrize("name", ["machine_replacement", "crew_maintenance"])
def test_the_program_is_solved_to_its_optimum(name):
    rng = np.random.default_rng(0)
    problem = getattr(eh.problems, name)(num_arms=6)
    relaxed = relax(problem, "utilitarian")
    policy = look_ahead(problem, relaxed.weights, relaxed.prices, steps=4)
    for _ in range(5):
        states = rng.integers(0, problem.types.num_states[problem.type_of_arm])
        counts = np.zeros(problem.types.valid.shape[:2], dtype=np.int64)
        np.add.at(counts, (problem.type_of_arm, states), 1)
        found = policy._program.solve(counts[problem.types.valid.any(axis=2)].astype(float))
        best = first_step(problem, relaxed.weights, policy.ahead, counts, 4)
        gains = np.zeros((4, *problem.types.valid.shape))
        for t in range(4):
            gains[t] = problem.discount**t * relaxed.weights[:, None, None] * problem.types.rewards
        gains[-1] += problem.discount**4 * np.einsum("ksaj,kj->ksa", problem.types.transitions, policy.ahead)
        value = (gains[:, problem.types.valid] * found.reshape(4, -1)).sum()
        assert value == pytest.approx(-best.fun, rel=1e-6)


def test_decisions_depend_on_the_counts_alone():
    problem = gast(50)
    relaxed = relax(problem, "utilitarian")
    rng = np.random.default_rng(0)
    counts = rng.multinomial(50, [0.3, 0.4, 0.3], size=(200, 1))
    forwards = look_ahead(problem, relaxed.weights, relaxed.prices)
    backwards = copy.deepcopy(forwards)
    found = forwards.look_up(counts)
    assert np.array_equal(found, backwards.look_up(counts[::-1])[::-1])
    assert np.array_equal(found.sum(axis=-1), counts)
    assert (found[..., 1].sum(axis=(1, 2)) <= 20).all()


def test_what_rounding_leaves_is_spent():
    """Of 4 units, a broken arm that takes 3 leaves one, which an arm that is worn takes."""
    keep = [[1.0, 0.0], [0.0, 1.0]]
    renew = [[1.0, 0.0], [1.0, 0.0]]
    moves = np.stack([keep, renew], axis=1)
    broken = eh.Arm(transitions=moves, rewards=[[1, 1], [0, 0]], usage=[[0], [3]], name="broken")
    worn = eh.Arm(transitions=moves, rewards=[[1, 1], [0.9, 0.9]], usage=[[0], [1]], name="worn")
    problem = eh.CoupledMDP([broken, worn], counts=[2, 3], budget=[4], discount=0.9)
    policy = look_ahead(problem, np.full(2, 0.2), np.array([0.1]), steps=3)
    found = policy.look_up(np.array([[[0, 2], [0, 3]]]))[0]
    assert found[0, 1, 1] == found[1, 1, 1] == 1


def test_it_steers_where_priorities_circle():
    """Share of the bound, for 20 arms exactly: published optimum 0.1189666673."""
    problem = gast(20)
    relaxed = relax(problem, "utilitarian")
    found = eh.evaluate(problem, look_ahead(problem, relaxed.weights, relaxed.prices, steps=12), "utilitarian")
    assert found.exact
    assert 0.995 * 0.1189666673 <= found.welfare <= 0.1189666673 + 1e-9
    assert found.welfare > eh.evaluate(problem, "fair-index", "utilitarian").welfare


def test_solve_takes_it_where_it_is_best():
    found = eh.solve(gast(100), "utilitarian", method="fluid")
    assert found.parts[0].name.startswith("lp-update")
    assert found.gap < 0.015


def test_it_is_saved_and_resized(tmp_path):
    problem = eh.problems.machine_replacement(num_arms=5)
    policy = eh.make_policy(problem, "lp-update", "gini:2")
    save_policy(problem, policy, tmp_path / "p.zip")
    states = np.array([[0, 1, 2, 2, 1]])
    assert np.array_equal(load_policy(tmp_path / "p.zip", problem).act(states, 0), policy.act(states, 0))
    larger = eh.problems.machine_replacement(num_arms=9, budget=2)
    actions = policy.resized(larger).act(np.full((3, 9), 2), 0)
    assert (actions.sum(axis=1) == 2).all()


def test_a_finite_horizon_ends_with_its_last_step():
    problem = gast(10).with_criterion("finite:5")
    policy = eh.make_policy(problem, "lp-update", "utilitarian")
    assert [part.steps for part in policy.parts] == [5, 4, 3, 2, 1]
    found = eh.evaluate(problem, policy, "utilitarian")
    best = eh.solve(problem, "utilitarian", method="counts")
    assert 0.97 * best.welfare <= found.welfare <= best.welfare + 1e-9


def test_programs_that_are_too_large_are_refused():
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=2000)
    with pytest.raises(TooLargeError):
        look_ahead(problem, np.ones(2000), np.ones(1))


def test_programs_have_the_same_optimum_from_any_basis():
    """Look-ahead programs start near where they lead the arms; one that loses its digits begins anew."""
    problem = eh.problems.eight_states(40).with_spend("all")
    program = eh.make_policy(problem, "lp-update", "utilitarian")._program
    rng = np.random.default_rng(0)
    starts = [np.diff(np.sort(np.r_[0, rng.integers(0, 41, 7), 40])).astype(float) for _ in range(6)]
    gains = np.array(program._highs.getLp().col_cost_)
    first = [gains @ program.solve(start) for start in starts]
    program.start_at(starts[0])
    assert [gains @ program.solve(start) for start in starts] == pytest.approx(first, rel=1e-7)


def test_a_program_without_a_status_begins_anew(monkeypatch):
    problem = eh.problems.three_states(10)
    program = eh.make_policy(problem, "lp-update", "utilitarian")._program
    counts = np.array([5.0, 3.0, 2.0])
    expected, highs = program.solve(counts), program._highs
    statuses = iter(["kUnknown"])

    def status():
        return SimpleNamespace(name=next(statuses, highs.getModelStatus().name))

    class Forgetful:
        def __getattr__(self, name):
            return status if name == "getModelStatus" else getattr(highs, name)

    monkeypatch.setattr(program, "_highs", Forgetful())
    gains = np.array(highs.getLp().col_cost_)
    assert gains @ program.solve(counts) == pytest.approx(gains @ expected, rel=1e-7)
