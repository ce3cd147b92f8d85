"""A policy is evaluated on the arms that it was made for, wherever they stand, or not at all."""

from itertools import pairwise

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import PolicyError

from ..conftest import mentions


def arm(seed, name, states=3):
    rng = np.random.default_rng(seed)
    rows, rewards = rng.dirichlet(np.ones(states), (states, 2)), seed * rng.random((states, 2))
    return eh.Arm(rows, rewards, [[0], [1]], np.eye(states)[0], name=name)


A, B, C = arm(1, "A"), arm(3, "B"), arm(2, "C", 2)


def problem(arms, counts=None, **more):
    return eh.CoupledMDP(arms, [1], 0.8, counts, **more)


PLANNED = problem([A, B], [2, 1])
METHODS = {"counts": "gini:2", "joint": "gini:2", "count-lp": "utilitarian", "joint-lp": "gini:2", "whittle": "gini:2"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", ["ABA", "BAA"])
def test_the_same_arms_in_another_order_are_worth_the_same(method, order):
    welfare = METHODS[method]
    here = problem([{"A": A, "B": B}[name] for name in order])
    found = eh.solve(PLANNED, welfare, method)
    own = eh.solve(here, welfare, method)
    assert eh.evaluate(here, found.policy, welfare, num_episodes=2000, horizon=60).welfare == pytest.approx(
        own.welfare, rel=0.02
    )
    if method != "joint" and method != "joint-lp":  # tables of joint states are played
        values = eh.evaluate(here, found.policy, welfare, method="exact").values
        assert values == pytest.approx(found.unit_values[[{"A": 0, "B": 1}[name] for name in order]], rel=1e-6)


@pytest.mark.parametrize("counts", [[1, 2], [3, 1], [2, 2]])
def test_a_rule_is_that_of_the_other_numbers(counts):
    """Whittle indices hang on the type alone: made for other numbers they are the same policy."""
    here = problem([A, B], counts)
    policy = eh.policies.whittle(PLANNED)
    exact = eh.evaluate(here, policy, "gini:2", method="exact")
    assert exact.values == pytest.approx(eh.evaluate(here, "whittle", "gini:2", method="exact").values, rel=1e-12)
    played = eh.evaluate(here, policy, "gini:2", 2000, 80, method="monte-carlo")
    assert abs(played.welfare - exact.welfare) < 4 * played.welfare_stderr + played.truncation_bound


@pytest.mark.parametrize("method", ["counts", "joint"])
def test_a_table_is_refused_for_other_numbers(method):
    policy = eh.solve(PLANNED, "gini:2", method).policy
    for here in (problem([A, B], [1, 2]), problem([A, B], [3, 1]), problem([A, C], [2, 1])):
        for ask in (lambda here: eh.evaluate(here, policy), lambda here: eh.compare(here, [policy], num_episodes=2)):
            with pytest.raises(PolicyError):
                ask(here)


def test_unknown_arms_are_refused_and_another_world_is_not():
    policy = eh.policies.whittle(PLANNED)
    with pytest.raises(PolicyError, check=mentions("C")):
        eh.evaluate(problem([A, C], [2, 1]), policy)
    # Other numbers under the same names and sizes are another world, such as a new fit.
    moved = PLANNED.with_transitions(PLANNED.tables.transitions[:, :, ::-1])
    assert eh.evaluate(moved, policy, method="exact").exact


def test_simulation_refuses_arms_at_other_places():
    policy = eh.policies.whittle(PLANNED)
    here = problem([B, A], [1, 2])
    for play in (eh.simulate, eh.simulate_counts):
        with pytest.raises(PolicyError, check=mentions("make_policy")):
            play(here, policy, 2, 5)
        assert play(here, eh.make_policy(here, policy), 2, 5).returns.shape[0] == 2


class TestGroups:
    def grouped(self, *groups):
        return problem([A, B, A], [2, 1, 1], groups=groups, over="groups")

    def test_other_names_change_nothing(self):
        planned, renamed = self.grouped("north", "north", "south"), self.grouped("x", "x", "y")
        found = eh.solve(planned, "maximin")
        assert eh.evaluate(renamed, found.policy, "maximin").welfare == pytest.approx(found.welfare, rel=1e-6)

    def test_a_rule_follows_the_names(self):
        """With the names swapped, who is favoured is who has the favoured name."""
        planned = problem([A, A], [1, 1], groups=["north", "south"], over="groups")
        swapped = problem([A, A], [1, 1], groups=["south", "north"], over="groups")
        scores = np.zeros((2, 3, 2))
        scores[0] = 1.0
        policy = eh.policies.ExchangeablePriority(planned, scores, threshold=0.5)
        before, after = (eh.evaluate(here, policy, "maximin").groups for here in (planned, swapped))
        assert before["north"] != pytest.approx(before["south"])
        assert after == pytest.approx(before)

    def test_other_partitions_into_types_are_simulated_or_refused(self):
        """It was an IndexError: counts of three types in place of two."""
        planned, merged = self.grouped("north", "north", "south"), self.grouped("x", "x", "x")
        found = eh.evaluate(merged, eh.solve(planned, "maximin", "counts").policy, "maximin", 50, 20)
        assert not found.exact
        assert len(found.members) == 1


@pytest.mark.parametrize("seed", range(12))
def test_exact_values_agree_with_simulation(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 4))
    blocks, counts = rng.integers(0, 3, number), rng.integers(1, 3, number)
    criterion = ["discounted", "finite:6"][seed % 2]
    over = {"groups": [str(name) for name in rng.choice(["n", "s"], number)], "over": "groups"} if seed % 3 else {}
    planned = problem([[A, B, C][i] for i in blocks], counts, criterion=criterion, **over)
    order = rng.permutation(number)
    moved = {"groups": [over["groups"][i] for i in order], "over": "groups"} if over else {}
    here = problem([[A, B, C][blocks[i]] for i in order], counts[order], criterion=criterion, **moved)
    table = eh.solve(planned, "gini:2", "counts").policy
    policies = [table, eh.make_policy(planned, "fair-index"), eh.make_policy(planned, "oldest-first")]
    for first, second in pairwise([*policies, table]):
        policy = eh.MixturePolicy([first, second], [0.3, 0.7])
        exact = eh.evaluate(here, policy, "gini:2", method="exact")
        played = eh.evaluate(here, policy, "gini:2", 400, 6 if seed % 2 else 50, rng=seed, method="monte-carlo")
        assert np.abs(exact.values - played.values).max() < 4.5 * played.values_stderr.max() + played.truncation_bound
