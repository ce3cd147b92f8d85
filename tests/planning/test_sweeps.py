"""Plans whose policies are tried, and draws weighed, as cells: the same bits in this process, in others and on Ray."""

import threading

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.fitting import Dirichlet, Named
from evenhand.parallel import Pool
from evenhand.policies import random_feasible
from evenhand.uncertainty import compare_scenarios, draw_scenarios, plan_scenarios

from ..conftest import mentions

pytestmark = pytest.mark.xdist_group("ray")

STATES, ACTIONS = ("good", "worn", "bad"), ("wait", "mend")


@pytest.fixture(autouse=True)
def short(effort):
    """Fewer episodes than a user gets, and fewer rounds."""
    effort(arm_steps=1.0, report_steps=1.0, rounds=2, inequality_steps=1.0)


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def executor(request):
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
    return (
        found.welfare,
        found.upper_bound,
        found.unit_values.tobytes(),
        getattr(found, "parts", None),
        getattr(found, "history", None),
    )


def plan_bits(problem, known, number, on, **arguments):
    scenarios = draw_scenarios(problem, known, number, held_out=True)
    found = plan_scenarios(scenarios, eh.solve(problem, "gini:2", **arguments), 0.2, backend=on)
    rows = [row.values.tobytes() for row in found.scenarios.rows]
    return bits(found.solution), rows, found.information.rows, found.robust.to_dict()


class TestColumns:
    def test_a_mixture_is_the_same_wherever_its_policies_are_tried(self, executor):
        problem = eh.problems.random_coupled(num_arms=5, num_types=5, budget=2)
        mine = {"mine": random_feasible(problem)}
        here = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", candidates=mine))
        assert len(here.parts) > 1 or here.history[-1][0] > 5
        assert bits(eh.solve(problem, "gini:2", eh.SolveMethod("fluid", candidates=mine), backend=executor)) == bits(
            here
        )

    @pytest.mark.slow
    @pytest.mark.parametrize(("criterion", "floor"), [("average", 0.0), ("finite:6", 0.02)])
    def test_under_every_criterion_and_with_floors(self, executor, criterion, floor):
        one = eh.problems.health_outreach(num_arms=6, budget=3)
        problem = eh.CoupledMDP(one.arms, one.budget, one.discount, one.counts, floors=[floor] * len(one.counts))
        asked = {"method": "fluid", "criterion": criterion}
        assert bits(eh.solve(problem, "maximin", backend=executor, **asked)) == bits(
            eh.solve(problem, "maximin", **asked)
        )

    @pytest.mark.slow
    def test_the_time_may_be_limited_elsewhere_too(self, executor):
        problem = eh.problems.random_coupled(num_arms=6, num_types=6, budget=2)
        found = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", seconds=1e-3), backend=executor)
        assert "stopped by the time given" in found.reason

    def test_what_runs_in_this_process_alone_is_refused_or_reported(self):
        problem = eh.problems.machine_replacement(num_arms=3)
        with pytest.raises(InvalidInputError, check=mentions("counts")):
            eh.solve(problem, method="counts", backend="processes:2")
        with pytest.raises(InvalidInputError, check=mentions("moon")):
            eh.solve(problem, method="fluid", backend="moon")
        assert mentions("processes:2")(eh.solve(problem, backend="processes:2").reason)

    def test_a_candidate_that_cannot_be_sent_is_reported(self):
        problem = eh.problems.machine_replacement(num_arms=3)

        class Mine:
            def __init__(self):
                self.lock = threading.Lock()

            def act(self, states, rng):
                return states * 0

        with pytest.raises(InvalidInputError, check=mentions("mine")):
            eh.solve(problem, method=eh.SolveMethod(candidates={"mine": Mine()}), backend="processes:2")


class TestScenarios:
    def test_plans_over_scenarios_do_not_depend_on_the_backend(self, executor):
        problem, known = fitted()
        assert plan_bits(problem, known, 24, executor) == plan_bits(problem, known, 24, None)

    @pytest.mark.slow
    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:5"])
    def test_simulated_plans_do_not_depend_on_the_backend(self, executor, criterion):
        problem, known = fitted((30, 20), 6)
        arguments = {"criterion": criterion, "method": "fluid"}
        judged = problem.with_criterion(criterion)
        assert plan_bits(judged, known, 20, executor, **arguments) == plan_bits(judged, known, 20, None, **arguments)

    def test_comparisons_do_not_depend_on_the_backend(self, executor):
        problem, known = fitted()
        compared = eh.compare(problem, ["whittle", "random"], "gini:2", num_episodes=5, backend=executor)
        scenarios = draw_scenarios(problem, known, 20)
        here, there = (compare_scenarios(scenarios, compared.policies, "gini:2", backend=on) for on in (None, executor))
        assert here.to_dict() == there.to_dict()
