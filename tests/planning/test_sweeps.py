"""Plans whose policies are tried, and draws weighed, as cells: the same bits in this process, in others and on Ray."""

import threading

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInput
from evenhand.evaluation import tables
from evenhand.evaluation import worlds as weighing
from evenhand.evaluation.drawing import read_worlds
from evenhand.fitting.posterior import Dirichlet
from evenhand.fitting.posterior_files import Named
from evenhand.parallel import Pool
from evenhand.planning import mixed
from evenhand.planning import played as playing
from evenhand.policies import random_feasible, whittle
from evenhand.simulation import worlds as simulating

pytestmark = pytest.mark.xdist_group("ray")

STATES, ACTIONS = ("good", "worn", "bad"), ("wait", "mend")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Fewer episodes than a user gets, and fewer rounds."""
    monkeypatch.setattr(mixed, "ARM_STEPS", 1.0)
    monkeypatch.setattr(mixed, "REPORTING", 1.0)
    monkeypatch.setattr(mixed, "MOST_ROUNDS", 2)
    monkeypatch.setattr(playing, "SEEN", 1.0)


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def pool(request):
    if request.param == "ray":
        request.getfixturevalue("small_ray")
    with Pool("processes:2") if request.param == "processes" else Pool("ray", num_workers=2) as opened:
        yield opened


def fitted(num_arms=(2, 1), budget=1):
    """A model of two types, and what its records say."""
    wears, mends = [[6.0, 3, 1], [0.5, 6, 4], [0.2, 0.3, 9]], [[6.0, 3, 1], [7, 2, 1], [4, 2, 2]]
    north = np.stack([wears, mends], axis=1)
    known = Named(Dirichlet(np.stack([north, north[:, :, ::-1] + 1])), ("north", "south"), STATES, ACTIONS)
    rewards = [[1, 0.9], [0.6, 0.5], [0, -0.1]]
    means = zip(known.posterior.mean, known.types, strict=True)
    arms = [eh.Arm(own, rewards, [[0], [1]], None, name, STATES, ACTIONS) for own, name in means]
    return eh.CoupledMDP(arms, [budget], 0.8, list(num_arms)), known


def bits(found):
    """All that was computed, but for the time it took."""
    drawn = [] if found.draws is None else [row.found.values.tobytes() for row in found.draws.rows]
    return (
        found.welfare,
        found.upper_bound,
        found.unit_values.tobytes(),
        getattr(found, "parts", None),
        getattr(found, "history", None),
        drawn,
        None if getattr(found, "worth_knowing", None) is None else found.worth_knowing.rows,
        None if getattr(found, "robust", None) is None else found.robust.to_dict(),
    )


class TestColumns:
    def test_a_mixture_is_the_same_wherever_its_policies_are_tried(self, pool):
        problem = eh.problems.random_coupled(num_arms=5, num_types=5, budget=2)
        mine = {"mine": random_feasible(problem)}
        here = eh.solve(problem, "gini:2", "fluid", candidates=mine)
        assert len(here.parts) > 1 or here.history[-1][0] > 5
        assert bits(eh.solve(problem, "gini:2", "fluid", candidates=mine, backend=pool)) == bits(here)

    @pytest.mark.slow
    @pytest.mark.parametrize(("criterion", "floor"), [("average", 0.0), ("finite:6", 0.02)])
    def test_under_every_criterion_and_with_floors(self, pool, criterion, floor):
        one = eh.problems.health_outreach(num_arms=6, budget=3)
        problem = eh.CoupledMDP(one.arms, one.budget, one.discount, one.counts, floors=[floor] * len(one.counts))
        asked = {"method": "fluid", "criterion": criterion}
        assert bits(eh.solve(problem, "maximin", backend=pool, **asked)) == bits(eh.solve(problem, "maximin", **asked))

    @pytest.mark.slow
    def test_the_time_may_be_limited_elsewhere_too(self, pool):
        problem = eh.problems.random_coupled(num_arms=6, num_types=6, budget=2)
        found = eh.solve(problem, "gini:2", "fluid", seconds=1e-3, backend=pool)
        assert "stopped by the time given" in found.reason

    def test_what_runs_in_this_process_alone_is_refused_or_told(self):
        problem = eh.problems.machine_replacement(num_arms=3)
        with pytest.raises(InvalidInput, match="method counts"):
            eh.solve(problem, method="counts", backend="processes:2")
        with pytest.raises(InvalidInput, match="moon"):
            eh.solve(problem, method="fluid", backend="moon")
        assert "nothing ran on processes:2" in eh.solve(problem, backend="processes:2").reason

    def test_a_candidate_that_cannot_be_sent_is_told(self):
        problem = eh.problems.machine_replacement(num_arms=3)

        class Mine:
            def __init__(self):
                self.lock = threading.Lock()

            def act(self, states, rng):
                return states * 0

        with pytest.raises(InvalidInput, match="policy mine"):
            eh.solve(problem, candidates={"mine": Mine()}, backend="processes:2")


class TestDraws:
    def test_plans_over_draws_are_the_same_wherever_they_are_weighed(self, pool):
        problem, known = fitted()
        asked = {"draws": 24, "posterior": known, "robust": 0.2}
        assert bits(eh.solve(problem, "gini:2", backend=pool, **asked)) == bits(eh.solve(problem, "gini:2", **asked))

    @pytest.mark.slow
    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:5"])
    def test_where_plans_are_played(self, pool, criterion):
        problem, known = fitted((30, 20), 6)
        asked = {"draws": 20, "posterior": known, "robust": 0.2, "criterion": criterion, "method": "fluid"}
        assert bits(eh.solve(problem, "gini:2", backend=pool, **asked)) == bits(eh.solve(problem, "gini:2", **asked))

    def test_evaluations_and_comparisons(self, pool):
        problem, known = fitted()
        asked = {"draws": 20, "posterior": known, "num_episodes": 5}
        one, same = (eh.evaluate("whittle", problem, "gini:2", backend=on, **asked) for on in (None, pool))
        assert one.draws.to_dict() == same.draws.to_dict() and one.welfare == same.welfare
        several = [eh.compare(problem, ["whittle", "random"], "gini:2", backend=on, **asked) for on in (None, pool)]
        assert several[0].draws.to_dict() == several[1].draws.to_dict()
        assert several[0].draws["whittle"].seen.tobytes() == one.draws.rows[0].seen.tobytes()

    def test_one_policy_in_memory_has_nothing_to_run_elsewhere(self):
        problem, _ = fitted()
        with pytest.raises(InvalidInput, match="one policy"):
            eh.evaluate("whittle", problem, backend="processes:2")


class TestParts:
    """A policy in some of the draws is the same as in all of them."""

    @pytest.mark.parametrize(("played", "number"), [(False, 3), (True, 7)])
    def test_parts_put_together_are_the_whole(self, played, number, monkeypatch):
        monkeypatch.setattr(tables, "AT_ONCE", 1.0)  # a draw at a time
        monkeypatch.setattr(simulating, "BATCH", 1)  # the same
        monkeypatch.setattr(weighing, "ARM_STEPS", 1e3)
        problem, known = fitted()
        worlds, _ = read_worlds(problem, known, 20, 0)
        policy = random_feasible(problem) if played else whittle(problem)
        if played:
            monkeypatch.setattr(tables, "MOST_STATES", 0)
        whole = weighing._weigh(policy, worlds, "gini:2", 3)
        parts = [weighing._weigh(policy, worlds, "gini:2", 3, (part, number)) for part in range(number)]
        joined = weighing._joined(parts)
        assert whole.exact != played
        assert joined.values.tobytes() == whole.values.tobytes() and len(joined.values) == 20
        if played:
            assert joined.returns.tobytes() == whole.returns.tobytes()
        assert sum(len(part.values) > 0 for part in parts) == number

    def test_batches_are_cut_without_gap_or_overlap(self):
        for number in range(6):
            for parts in range(1, 9):
                cut = [simulating.batches_of(number, (part, parts)) for part in range(parts)]
                assert [batch for run in cut for batch in run] == list(range(number))
