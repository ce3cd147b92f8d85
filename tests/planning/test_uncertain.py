"""Plans where the model is fitted, on problems so small that every policy can be tried in every world."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import InvalidInput, NotApplicable
from evenhand.evaluation.drawing import read_worlds
from evenhand.evaluation.draws import weigh_policies
from evenhand.evaluation.worlds import Worlds
from evenhand.fitting.posterior import Dirichlet
from evenhand.fitting.posterior_files import Named
from evenhand.model.objective import read_welfare
from evenhand.planning.draws import Candidates, upper_bounds
from evenhand.planning.knowing import RowWorth, WorthKnowing, worth_knowing
from evenhand.solvers.mixtures.tail import tail_mean

GAMMA = 0.8
STATES, ACTIONS = ("good", "bad"), ("wait", "mend")


def arm(mends, name, reward=1.0):
    """Good breaks with 0.3; mending a bad one works with this probability."""
    moves = [[[0.7, 0.3], [0.7, 0.3]], [[0, 1], [mends, 1 - mends]]]
    return eh.Arm(moves, [[reward] * 2, [0] * 2], [[0], [1]], [0.5, 0.5], name, STATES, ACTIONS)


def two_arms(first, second):
    return eh.CoupledMDP([arm(first, "north"), arm(second, "south", 0.9)], [1], GAMMA, welfare="utilitarian")


ATOMS = ((0.9, 0.1), (0.05, 0.85), (0.3, 0.4))
"""How well mending works for each of the two, in three worlds that are equally likely."""


def atoms(number=60):
    """The mean of the worlds as a model, and the worlds, each as often as the others."""
    mean = np.mean(ATOMS, axis=0)
    problem = two_arms(*mean)
    drawn = np.stack([two_arms(*ATOMS[i % 3]).tables.transitions for i in range(number)])
    return problem, Worlds(problem, drawn, np.arange(2))


def every_policy():
    """(policy, world) the mean value of the two arms under every deterministic policy of the four joint states."""
    choices = [pair for pair in product((0, 1), repeat=2) if sum(pair) <= 1]
    states = list(product((0, 1), repeat=2))
    found = []
    for policy in product(choices, repeat=4):
        values = []
        for world in ATOMS:
            arms = [arm(world[0], "north"), arm(world[1], "south", 0.9)]
            chain, earned = np.zeros((4, 4)), np.zeros(4)
            for i, (state, action) in enumerate(zip(states, policy, strict=True)):
                rows = [one.transitions[s, a] for one, s, a in zip(arms, state, action, strict=True)]
                chain[i] = np.outer(*rows).reshape(-1)
                earned[i] = sum(one.rewards[s, a] for one, s, a in zip(arms, state, action, strict=True)) / 2
            values.append(np.full(4, 0.25) @ np.linalg.solve(np.eye(4) - GAMMA * chain, earned))
        found.append(values)
    return np.array(found)


def best_tail_of_all(values, share):
    """The best mixture of all policies in the worst worlds, as one linear program."""
    policies, worlds = values.shape
    gains = np.concatenate([np.zeros(policies), [1.0], np.full(worlds, -1 / (share * worlds))])
    rows = np.hstack([-values.T, np.ones((worlds, 1)), -np.eye(worlds)])
    one = np.concatenate([np.ones(policies), np.zeros(1 + worlds)])[None]
    bounds = [(0, None)] * policies + [(None, None)] + [(0, None)] * worlds
    return -linprog(-gains, rows, np.zeros(worlds), one, [1.0], bounds).fun


@pytest.fixture(scope="module")
def all_of_them():
    return every_policy()


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_the_plan_for_the_worst_draws_is_the_best_of_all_mixtures(all_of_them, share, monkeypatch):
    monkeypatch.setattr("evenhand.planning.uncertain.REGISTRY", ())  # some draw or remember: no tables of joint states
    problem, worlds = atoms()
    found = eh.solve(problem, draws=60, posterior=worlds, robust=share)
    best = best_tail_of_all(all_of_them, share)
    facts = found.robust
    assert facts.seen.robust_tail <= best + 1e-7
    assert facts.seen.robust_tail == pytest.approx(best, rel=2e-3)
    assert facts.seen.robust_tail >= facts.seen.plain_tail
    assert best - 1e-7 <= facts.bound
    assert facts.held_out is None  # all the worlds that were given are used
    assert found.draws["robust plan"].tail(share) == pytest.approx(facts.seen.robust_tail)
    assert found.draws["plan"].mean == pytest.approx(facts.seen.plain_mean)
    if share == 1:
        assert facts.seen.robust_tail == pytest.approx(facts.seen.robust_mean)
        assert best == pytest.approx(all_of_them.mean(axis=1).max())


@pytest.mark.slow
def test_tails_grow_with_the_share_and_costs_are_told(all_of_them):
    problem, worlds = atoms()
    found = [eh.solve(problem, draws=60, posterior=worlds, robust=share).robust for share in (0.1, 0.4)]
    tails = [facts.seen.robust_tail for facts in found]
    assert tails == sorted(tails)
    assert all(facts.seen.robust_tail <= facts.bound + 1e-9 for facts in found)
    assert tails[0] > best_tail_of_all(all_of_them, 0.1)  # whoever serves at random or in turn hedges within an episode
    strict = found[0]
    assert strict.seen.gain > 0.02
    assert strict.seen.cost == pytest.approx(1 - strict.seen.robust_mean / strict.seen.plain_mean)
    costs = (
        f"costs {100 * strict.seen.cost:.3g} %" if strict.seen.cost > 0 else f"gains {-100 * strict.seen.cost:.3g} %"
    )
    assert strict.words.startswith(f"{costs} on average and ")
    assert strict.words.endswith("in the worst 10 % of draws (in draws it was chosen on)")
    assert sum(part.share for part in strict.parts) == pytest.approx(1)


def test_perfect_information_is_worth_what_trying_everything_says(all_of_them):
    problem, worlds = atoms()
    found = eh.solve(problem, draws=60, posterior=worlds).worth_knowing
    known = all_of_them.max(axis=0).mean()  # in each world its own best policy
    assert found.total + found.welfare == pytest.approx(known)
    assert found.welfare <= all_of_them.mean(axis=1).max() + 1e-9
    assert all(row.worth <= found.total + 1e-12 for row in found.rows)
    rows = {(row.type, row.state, row.action): row for row in found.rows}
    assert set(rows) == {("north", "bad", "mend"), ("south", "bad", "mend")}  # nothing else is uncertain
    assert rows["north", "bad", "mend"].worth == pytest.approx(found.total, rel=0.05)  # it tells the world
    assert "record more of: " in found.words
    assert found.to_dict()["rows"][0]["worth"] == found.rows[0].worth


def independent(number=200):
    """What mending does for the north is uncertain and matters; what it does for one that earns nothing does not."""
    rng = np.random.default_rng(5)
    mends = rng.choice([0.05, 0.95], (number, 2))
    arms = [arm(0.5, "north"), arm(0.5, "south", 0.9), arm(0.5, "spare", 0.0)]
    problem = eh.CoupledMDP(arms, [1], GAMMA, welfare="utilitarian")
    drawn = np.repeat(problem.tables.transitions[None], number, axis=0)
    for block, own in zip((0, 2), mends.T, strict=True):
        drawn[:, block, 1, 1] = np.column_stack([own, 1 - own])
    return problem, Worlds(problem, drawn, np.arange(3))


def test_a_row_that_tells_nothing_is_worth_nothing():
    problem, worlds = independent()
    found = eh.solve(problem, draws=200, posterior=worlds).worth_knowing
    north, spare = sorted(found.rows, key=lambda row: row.type)
    assert north.worth == pytest.approx(found.total, rel=0.1)
    assert found.sure == (north,)
    assert spare.worth <= 0.01 * found.total
    assert found.words.startswith("record more of: north, bad, mend (")


def test_plans_that_are_all_the_same_leave_nothing_to_know():
    problem, worlds = independent(40)
    welfare = read_welfare(problem, None)
    policy = eh.solve(problem).policy
    found = worth_knowing(weigh_policies({"a": policy, "b": policy}, worlds, welfare).rows, worlds)
    assert found.total == 0
    assert all(row.worth == 0 for row in found.rows)
    assert found.words == "knowing the transitions better would not change the plan"


def test_bounds_of_the_draws_are_bounds():
    problem, worlds = atoms(21)
    welfare = read_welfare(problem, None)
    candidates = Candidates(worlds, welfare, 0)
    for draw in range(3):
        candidates.add_plans(worlds.world(draw), f"draw {draw}")
    bounds = upper_bounds(worlds, welfare)
    assert all((row.seen <= bounds + 1e-9).all() for row in candidates.draws())


def fitted(counts=(1, 2)):
    """Two types with rows seen some ten times each."""
    concentration = np.zeros((2, 2, 2, 2))
    concentration[:, 0, :] = 7.0, 3.0
    concentration[:, 1, 0] = 0.0, 10.0
    concentration[:, 1, 1] = [[2.0, 2.0], [6.0, 1.5]]
    known = Named(Dirichlet(concentration), ("north", "south"), STATES, ACTIONS)
    arms = [
        eh.Arm(own, [[1, 0.9], [0, -0.1]], [[0], [1]], None, name, STATES, ACTIONS)
        for own, name in zip(known.posterior.mean, known.types, strict=True)
    ]
    return eh.CoupledMDP(arms, [1], GAMMA, counts), known


def test_the_same_seed_gives_the_same_plan_and_it_can_be_saved(tmp_path):
    problem, known = fitted()
    first, again = (eh.solve(problem, "gini:2", draws=20, posterior=known, robust=0.2, rng=3) for _ in range(2))
    assert first.robust.to_dict() == again.robust.to_dict()
    assert first.draws.to_dict() == again.draws.to_dict()
    assert first.worth_knowing.to_dict() == again.worth_knowing.to_dict()
    other = read_worlds(problem, known, 20, 4)[0]
    assert not np.allclose(other.transitions, read_worlds(problem, known, 20, 3)[0].transitions)
    assert first.robust.held_out is not None
    for told, says in ((first.draws, "worst tenth"), (first.robust, "held out"), (first.worth_knowing, "± error")):
        assert says in told._repr_html_()
    eh.save_solution(first, tmp_path / "plan.zip")
    loaded = eh.load_policy(tmp_path / "plan.zip", problem)
    assert eh.evaluate(loaded, problem, "gini:2").welfare == pytest.approx(first.welfare)
    seen = weigh_policies({"x": loaded}, read_worlds(problem, known, 20, 3)[0], read_welfare(problem, "gini:2"))
    assert tail_mean(seen.rows[0].seen, 0.2) == pytest.approx(first.robust.seen.robust_tail)


@pytest.mark.slow
def test_larger_problems_are_played(monkeypatch):
    monkeypatch.setattr("evenhand.evaluation.worlds.ARM_STEPS", 3e5)
    monkeypatch.setattr("evenhand.evaluation.tables.MOST_STATES", 0)
    monkeypatch.setattr("evenhand.planning.draws.MOST_SOLVED", 0)
    monkeypatch.setattr("evenhand.planning.uncertain.DRAWN_PLANS", 3)
    problem, known = fitted((6, 5))
    found = eh.solve(problem, "gini:2", "whittle", draws=30, posterior=known, robust=0.3)
    row = found.draws["plan"]
    assert not row.exact
    assert row.noise > 0
    assert row.welfare.std() < row.seen.std()
    assert found.robust.seen.robust_tail >= found.robust.seen.plain_tail
    assert found.robust.seen.robust_tail <= found.robust.bound + 3 * row.noise


def test_what_makes_no_sense_is_refused_before_any_work():
    problem, known = fitted()
    with pytest.raises(InvalidInput, match="above 0"):
        eh.solve(problem, posterior=known, robust=0)
    with pytest.raises(InvalidInput, match="robust: expected a number from 0 to 1"):
        eh.solve(problem, posterior=known, robust=1.5)
    with pytest.raises(InvalidInput, match="evenhand fit"):
        eh.solve(problem, draws=50)
    floored = eh.CoupledMDP(problem.arms, [1], GAMMA, [1, 2], floors=[0.1, 0])
    with pytest.raises(NotApplicable, match="floors"):
        eh.solve(floored, posterior=known, robust=0.1)


def worths(*rows, welfare=18.0, num_draws=60):
    found = tuple(RowWorth(f"type {i}", "ok", "none", worth, error) for i, (worth, error) in enumerate(rows))
    return WorthKnowing(0.02 * welfare, welfare, "plan", 5, num_draws, found)


class TestWhatStandsOut:
    def test_of_many_rows_one_that_is_two_errors_above_nothing_does_not(self):
        """One of 36, worth 0.05 % of the welfare: as it was once told to a hospital."""
        found = worths((0.0083, 0.0040), *[(0.001, 0.001)] * 35)
        assert found.sure == () and found.words == "knowing everything would add 2 %; no single row stands out"

    def test_what_is_told_from_nothing_but_small_does_not(self):
        assert worths((0.0083, 0.0008)).sure == ()
        assert len(worths((0.0183, 0.0008)).sure) == 1

    def test_what_is_large_and_told_from_nothing_among_all_does(self):
        found = worths((0.2, 0.02), (0.1, 0.02), (0.05, 0.025), *[(0.0, 0.001)] * 33)
        assert found.sure == found.rows[:2]
        assert found.words.startswith("record more of: type 0, ok, none; type 1, ok, none (")
        assert [row["stands_out"] for row in found.to_dict(3)["rows"]] == [True, True, False]

    def test_rows_worth_nothing_are_seldom_named_however_many_there_are(self):
        rng = np.random.default_rng(0)
        named = sum(bool(worths(*((max(x, 0.0), 0.05) for x in rng.normal(0, 0.05, 36))).sure) for _ in range(300))
        assert named < 25
