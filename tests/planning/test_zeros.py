"""Arms that can have no value, under alpha < 1: the optimum of the others, and nothing else."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import OutOfDomain


def arm(rewards, seed=0):
    rows = np.random.default_rng(seed).dirichlet(np.ones(2), (2, 2))
    return eh.Arm(rows, np.array(rewards, dtype=float), [[0], [1]], [0.5, 0.5])


ONE, OTHER, NOTHING = arm([[1, 2], [0.3, 1.5]]), arm([[2, 1], [0.3, 2.5]], 3), arm(np.zeros((2, 2)), 1)


def both(alpha, method, criterion, counts=(1, 1, 2), **more):
    """Solutions with the arms that have nothing, and without them; and what the second says of the first."""
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, counts, **more)
    rest = eh.CoupledMDP([ONE, OTHER], [1], 0.9, counts[:2])
    welfare = f"alpha:{alpha}"
    found, known = (eh.solve(problem, welfare, method, criterion=criterion) for problem in (whole, rest))
    share = rest.num_arms / whole.num_arms
    return found, known, share ** (1 / (1 - alpha))


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize(("alpha", "method"), [(0.5, "joint"), (0.9, "counts"), (0.1, "auto")])
def test_the_others_get_what_they_get_among_themselves(alpha, method, criterion):
    found, known, factor = both(alpha, method, criterion)
    assert found.welfare == pytest.approx(factor * known.welfare, rel=1e-6)
    assert found.welfare <= found.upper_bound <= factor * known.upper_bound * (1 + 1e-5)
    assert found.upper_bound >= factor * known.welfare * (1 - 1e-12)
    assert found.objective.welfare(found.values) == pytest.approx(found.welfare, rel=1e-12)
    assert found.values[2:].tolist() == [0, 0]
    assert "2 of the arms can have no value" in found.reason


def test_the_policy_is_one_of_the_problem_itself(tmp_path):
    found, _, _ = both(0.5, "joint", "discounted")
    eh.save_solution(found, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", found.problem)
    assert eh.evaluate(again, found.problem, "alpha:0.5").welfare == pytest.approx(found.welfare, rel=1e-9)


@pytest.mark.slow
def test_plans_by_playing(tmp_path):
    found, known, factor = both(0.5, "fluid", "discounted", counts=(3, 3, 2))
    assert found.welfare == pytest.approx(factor * known.upper_bound, rel=0.1)
    assert found.upper_bound >= found.welfare - 5 * found.welfare_stderr
    assert found.values[-2:].tolist() == [0, 0]


def test_groups_without_value():
    groups = ("a", "a", "b")
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, (1, 1, 2), groups=groups, over="groups")
    mean = eh.solve(eh.CoupledMDP([ONE, OTHER], [1], 0.9), "utilitarian").welfare
    assert eh.solve(whole, "alpha:0.5").welfare == pytest.approx(mean / 4, rel=1e-6)
    mixed = eh.CoupledMDP([ONE, NOTHING], [1], 0.9, groups=("a", "a"), over="groups")
    assert "can have no value" not in eh.solve(mixed, "alpha:0.5").reason


def test_nobody_can_have_anything():
    found = eh.solve(eh.CoupledMDP([NOTHING], [1], 0.9, [2]), "alpha:0.5")
    assert (found.welfare, found.values.tolist()) == (0.0, [0.0, 0.0])
    assert found.upper_bound < 1e-6


def test_rewards_where_an_arm_never_gets_do_not_count():
    stays = eh.Arm([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 0], [5, 5]], [[0], [1]], [1, 0])
    found = eh.solve(eh.CoupledMDP([ONE, stays], [1], 0.9), "alpha:0.5")
    assert found.values[1] == 0
    assert found.welfare == pytest.approx(found.values[0] / 4, rel=1e-6)


def test_what_stays_refused():
    with pytest.raises(OutOfDomain):  # the logarithm of 0
        eh.solve(eh.CoupledMDP([ONE, NOTHING], [1], 0.9), "nash")
    with pytest.raises(OutOfDomain):  # its value could be below 0
        eh.solve(eh.CoupledMDP([ONE, arm([[0, -1], [0, -1]])], [1], 0.9), "alpha:0.5")
