"""Mixtures of weighted index policies, against exact optima, and what is said of them."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InfeasibleError, InvalidInputError, NotConvergedError, OutOfDomainError
from evenhand.evaluation import exact_values
from evenhand.model import (
    MixturePolicy,
    Objective,
    TimeVaryingPolicy,
    Utilitarian,
    as_welfare,
    is_exchangeable,
    policy_family,
)
from evenhand.planning import Samples, SolveMethod, Task, floors, fluid_policy, relax
from evenhand.planning import methods as playing
from evenhand.planning import mixture_search as mixed
from evenhand.policies import ExchangeablePriority, PriorityPolicy, never_act
from evenhand.solvers import model_of, solve_fluid
from evenhand.solvers.fluid import solve_weighted

from ..conftest import mentions


def outreach(**changes):
    return eh.problems.health_outreach(**{"num_arms": 6, "num_states": 2, "num_groups": 3, "budget": 1, **changes})


def brief(**changes):
    """Discounted so that few steps matter: for what does not hang on how long is played."""
    return outreach(**{"num_arms": 9, "discount": 0.8, **changes})


@pytest.fixture
def few_episodes(effort):
    effort(arm_steps=1e5, report_steps=1e6, inequality_steps=1e4)


@pytest.mark.parametrize("welfare", ["gini:2", "maximin"])
def test_a_mixture_comes_within_a_third_of_a_percent_of_the_optimum(welfare, few_episodes):
    """Fluid policies by themselves stay 4 to 6 % below."""
    problem = outreach()
    best = eh.solve(problem, welfare).welfare
    found = eh.solve(problem, welfare, "fluid")
    assert found.welfare >= 0.997 * best - 3 * found.welfare_stderr
    assert found.welfare <= best + 3 * found.welfare_stderr
    assert len(found.parts) > 1
    assert sum(part.share for part in found.parts) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "welfare", "best"),
    [
        (outreach(), "gini:2", 7.0689),
        (outreach(), "maximin", 6.9838),
        (outreach(num_arms=8, num_groups=4), "gini:2", 5.6271),
        (outreach(num_arms=8, num_groups=4), "maximin", 5.5926),
        (eh.problems.heterogeneous_machine_replacement(num_arms=6), "maximin", 11.6687),
        (eh.problems.heterogeneous_machine_replacement(num_arms=8), "maximin", 11.7402),
        (eh.problems.heterogeneous_machine_replacement(num_arms=6), "gini:2", 12.3316),
        (eh.problems.heterogeneous_machine_replacement(num_arms=8), "gini:2", 12.3224),
    ],
)
def test_mixtures_near_exact_optima(problem, welfare, best):
    found = eh.solve(problem, welfare, "fluid")
    assert found.welfare >= 0.997 * best - 3 * found.welfare_stderr


@pytest.mark.slow
@pytest.mark.parametrize("welfare", ["gini:2", "gini:1.1", "maximin"])
def test_sixty_people_near_the_bound(welfare):
    found = eh.solve(eh.problems.health_outreach(num_arms=60), welfare, "fluid")
    assert found.welfare >= 0.994 * found.upper_bound - 3 * found.welfare_stderr


def test_rounds_never_lose(few_episodes):
    history = [welfare for _, welfare in eh.solve(brief(), "gini:2", "fluid").history]
    assert len(history) > 1
    assert (np.diff(history) >= -1e-6 * abs(history[0])).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_plan(few_episodes, effort):
    effort(rounds=2)
    problem = brief(num_arms=6)
    first, second, other = (eh.solve(problem, "gini:2", "fluid", rng=seed) for seed in (1, 1, 2))
    assert first.welfare == second.welfare and first.parts == second.parts
    assert other.welfare != first.welfare


@pytest.mark.slow
def test_the_same_generator_gives_the_same_plan(few_episodes, effort):
    effort(rounds=2)
    problem = brief(num_arms=6)
    drawn = [eh.solve(problem, rng=np.random.default_rng(3), method="fluid").welfare for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_the_time_ends_the_search(few_episodes, monkeypatch):
    ticks = iter(range(10**6))
    for module in (mixed, playing):
        monkeypatch.setattr(module, "work_clock", lambda: float(next(ticks)))
    hurried = eh.solve(brief(), "gini:2", eh.SolveMethod("fluid", seconds=4.0))
    whole = eh.solve(brief(), "gini:2", "fluid")
    assert hurried.stopped and not whole.stopped
    assert whole.history[-1][0] > hurried.history[-1][0]
    with pytest.raises(InvalidInputError, check=mentions("seconds")):
        eh.solve(outreach(), method=eh.SolveMethod(seconds=0))


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:300"])
def test_all_stages_together_take_no_more_than_twice_the_time(criterion, few_episodes, monkeypatch):
    """On a clock that goes by steps of arms: 1e5 are a second."""
    played = []

    def count(play):
        def counted(problem, policy, num_episodes, horizon, *more, **named):
            played.append(num_episodes * horizon * problem.num_arms)
            return play(problem, policy, num_episodes, horizon, *more, **named)

        return counted

    for module in ("planning.mixture_search", "planning.policy_scoring", "evaluation.evaluate", "evaluation.long_run"):
        place = import_module(f"evenhand.{module}")
        monkeypatch.setattr(place, "simulate", count(place.simulate))
    for module in (mixed, playing):
        monkeypatch.setattr(module, "work_clock", lambda: sum(played) / 1e5, raising=False)
    arms = [eh.Arm(*own) for own in _random_arms(50)]
    problem = eh.CoupledMDP(arms, [10], 0.99, criterion=criterion)
    found = eh.solve(problem, "gini:half=0.75", eh.SolveMethod("fluid", seconds=3.0))
    assert found.stopped
    assert sum(played) / 1e5 <= 6.0


def _random_arms(number):
    rng = np.random.default_rng(0)
    return [(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), [[0], [1]]) for _ in range(number)]


def test_the_memory_ends_the_search(few_episodes, effort):
    effort(memory=0.0)
    found = eh.solve(outreach(num_arms=9), "gini:2", "fluid")
    assert found.history[-1][0] == 1 and found.welfare > 0


def test_short_episodes_are_many(few_episodes, effort):
    """With a finite horizon nothing stands for chance but more episodes: all steps that there are for a policy."""
    problem = outreach(num_arms=9, num_states=3, budget=2).with_criterion("finite:5")
    effort(rounds=1)
    task = Task(problem, as_welfare("gini:2", 9), SolveMethod(tolerance=1e-5), None)
    plan = mixed.find_mixture(task, relax(problem, "gini:2"))
    assert len(plan.columns[0].returns) > 1e5 // (9 * 5) > 500


class TestRotating:
    @pytest.mark.slow
    def test_both_are_reported(self, few_episodes):
        problem = brief(num_arms=6)
        kept, drawn = (
            eh.solve(problem, "maximin", eh.SolveMethod("fluid", redraw_every=redraw_every))
            for redraw_every in (None, 4)
        )
        assert kept.policy.redraw_every is None and drawn.policy.redraw_every == 4
        assert drawn.welfare_without_redraw == kept.welfare
        assert kept.welfare_without_redraw is None
        again = eh.evaluate(problem, drawn.policy, "maximin", 400, rng=5)
        assert again.welfare == pytest.approx(
            drawn.welfare, abs=4 * np.hypot(again.welfare_stderr, drawn.welfare_stderr)
        )

    def test_drawing_anew_is_fairer_within_an_episode(self, few_episodes):
        """Two arms, each of which one of two policies always serves: kept, one starves; drawn anew, both eat."""
        arm = eh.Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0], [1]])
        problem = eh.CoupledMDP([arm, eh.Arm(np.ones((1, 2, 1)), [[0.0, 1.1]], [[0], [1]])], [1], 0.95)
        parts = [PriorityPolicy(problem, np.array(scores)[:, None, None] + [0.0, 0.0]) for scores in ([2, 1], [1, 2])]
        kept = MixturePolicy(parts, [0.5, 0.5])
        first, second = (
            eh.evaluate(problem, policy, "gini:2", 200, rng=0) for policy in (kept, kept.with_redraw_every(1))
        )
        assert first.realised_gini_coefficient == pytest.approx(0.5, abs=1e-9)
        assert second.realised_gini_coefficient < 0.2
        assert second.welfare == pytest.approx(first.welfare, abs=4 * second.welfare_stderr)

    def test_parts_by_steps_go_on_at_the_present_step(self):
        """A mixture of one policy with itself is that policy, however often it is drawn: also where steps differ."""
        arm = eh.Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0], [1]])
        problem = eh.CoupledMDP([arm, arm], [1], 1.0, criterion="finite:6")
        serve, wait = PriorityPolicy(problem, np.ones(problem.types.valid.shape)), never_act(problem)
        policy = TimeVaryingPolicy([wait, wait, wait, wait, serve, serve])
        twice = MixturePolicy([policy, policy], [0.5, 0.5], redraw_every=2)
        for drawn in (twice, MixturePolicy([twice, twice], [0.5, 0.5], redraw_every=3)):
            assert eh.evaluate(problem, drawn, "utilitarian", 20, rng=0).mean == pytest.approx(1.0)

    def test_resolving_looks_at_its_prices_when_it_is_drawn(self):
        problem = outreach(num_arms=9, num_states=3).with_criterion("finite:12")
        policy = fluid_policy(problem, "gini:2", "re-solving")
        drawn = MixturePolicy([policy, policy], [0.5, 0.5], redraw_every=3)
        alone, anew = (eh.evaluate(problem, it, "utilitarian", 400, rng=0) for it in (policy, drawn))
        assert anew.mean >= alone.mean - 4 * np.hypot(alone.mean_stderr, anew.mean_stderr)

    def test_nonsense_is_refused(self):
        with pytest.raises(InvalidInputError, check=mentions("redraw_every")):
            eh.solve(outreach(), method=eh.SolveMethod(redraw_every=0))


@pytest.mark.slow
def test_candidates_that_tell_equal_arms_apart_are_judged_by_arms(few_episodes):
    problem = outreach()
    first = PriorityPolicy(problem, np.ones(problem.types.valid.shape))
    assert not is_exchangeable(first)
    found = eh.solve(problem, "gini:2", eh.SolveMethod(candidates={"the first": first}))
    assert not found.by_type and found.unit_values.shape == (6,)
    exact = eh.solve(problem, "gini:2").welfare
    assert found.welfare <= exact + 4 * found.welfare_stderr


@pytest.mark.slow
def test_a_candidate_that_tells_more_types_apart_is_judged_by_arms(few_episodes):
    """Made for groups, it favours one of two groups of equal arms: their mean would hide that."""
    problem = eh.CoupledMDP(outreach().arms[:1] * 2, [2], 0.95, counts=[8, 8], groups=["north", "south"])
    by_groups = problem.with_criterion(over="groups")
    scores = np.zeros(by_groups.types.valid.shape)
    scores[0, :, 1], scores[1, :, 1] = 2, 1
    partial = ExchangeablePriority(by_groups, scores)
    found = eh.solve(problem, "maximin", eh.SolveMethod(candidates={"partial": partial}))
    assert not found.by_type
    apart = eh.evaluate(problem, partial, "maximin", 100, rng=0)
    judged = mixed.PolicyScorer(problem, False, 2e5, 0)(
        "partial", partial, mixed.choice_of(problem, relaxed_visits(problem))
    )
    assert judged.values.min() == pytest.approx(apart.worst, abs=0.2)
    assert judged.values[8:].mean() < judged.values[:8].mean() - 0.5
    told = eh.evaluate(problem, MixturePolicy([partial, found.policy], [0.5, 0.5]), "maximin", 100, rng=0)
    assert not told.by_type and not told.exact


def relaxed_visits(problem):
    return relax(problem, "utilitarian").occupancy


def test_a_candidate_is_tried_however_little_time_there_is(few_episodes):
    problem = outreach()
    best = eh.solve(problem, "gini:2")
    found = eh.solve(problem, "gini:2", eh.SolveMethod(seconds=1e-9, candidates={"best": best.policy}))
    assert found.welfare >= best.welfare - 1e-6 - 3 * found.welfare_stderr


class Nash:
    """A welfare of a user's own that is defined for positive values only."""

    name = "nash"

    def __call__(self, values, counts=None):
        self.check_domain(values)
        return float(self._shares(values, counts) @ np.log(values))

    def supergradient(self, values, counts=None):
        return self._shares(values, counts) / values

    def check_domain(self, values):
        if (np.asarray(values) <= 0).any():
            raise OutOfDomainError("needs positive values")

    @staticmethod
    def _shares(values, counts):
        counts = np.ones(len(values)) if counts is None else np.asarray(counts)
        return counts / counts.sum()


@pytest.mark.parametrize(("seconds", "within"), [pytest.param(None, 1e-2, marks=pytest.mark.slow), (1e-9, 0.2)])
def test_a_welfare_that_single_policies_are_no_domain_of(seconds, within, few_episodes):
    """Who is never served has nothing: the policies that serve one arm alone are of use in a mixture only."""
    arms = [eh.Arm(np.ones((1, 2, 1)), [[0.0, reward]], [[0], [1]]) for reward in (1.0, 1.1)]
    found = eh.solve(eh.CoupledMDP(arms, [1], 0.95), Nash(), eh.SolveMethod("fluid", seconds=seconds))
    assert found.welfare == pytest.approx(np.log([10, 11]).mean(), abs=within)


@pytest.mark.slow
def test_a_relaxation_that_does_not_converge_ends_no_search(few_episodes, monkeypatch):
    def fail(*given):
        raise NotConvergedError("not today")

    monkeypatch.setattr(mixed, "solve_weighted", fail)
    found = eh.solve(brief(), "gini:2", "fluid")
    assert found.policy is not None and len(found.history) > 1


def test_floors_that_are_known_exactly_are_kept_exactly(few_episodes):
    problem = brief(num_arms=6)
    floors = [0.13, 0.17, 0.11]
    floored = eh.CoupledMDP(problem.arms, problem.budget, problem.discount, counts=problem.counts, floors=floors)
    found = eh.evaluate(floored, eh.solve(floored, "gini:2", "fluid").policy, "gini:2")
    assert found.exact and not found.floors_missed


def test_an_arm_that_the_budget_never_serves_has_no_floor(few_episodes):
    """In expectation half of a service fits that takes twice the budget; in no step does it."""
    arm = eh.Arm([[[0.5, 0.5], [1, 0]], [[0.2, 0.8], [1, 0]]], [[1, 0.9], [0, 0.2]], [[0], [2]])
    floored = eh.CoupledMDP([arm], [1.0], 0.9, floors=[0.2])
    with pytest.raises(InfeasibleError):
        eh.solve(floored, "gini:2", "fluid")


@pytest.mark.slow
def test_a_candidate_by_arms_goes_with_floors(few_episodes, effort):
    """Policies that treat equal arms alike are judged by the means of types, or some arm would seem to miss a floor."""
    effort(rounds=1)
    problem = brief(num_arms=60, num_states=3, budget=12)
    floored = eh.CoupledMDP(problem.arms, problem.budget, problem.discount, counts=problem.counts, floors=[0.1] * 3)
    first = PriorityPolicy(floored, np.ones(floored.types.valid.shape))
    found = eh.solve(floored, "gini:2", eh.SolveMethod(candidates={"the first": first}))
    assert not eh.evaluate(floored, found.policy, "gini:2", 200, rng=1).floors_missed


@pytest.mark.slow
def test_leximin_goes_on_where_the_worst_off_cannot_be_helped(few_episodes, effort):
    effort(rounds=6)
    dull = eh.Arm(np.ones((1, 2, 1)), [[0.01, 0.01]], [[0], [1]])
    problem = outreach(num_arms=8, num_groups=4)
    hopeless = eh.CoupledMDP([*problem.arms, dull], problem.budget, problem.discount, counts=[*problem.counts, 1])
    found, best = (eh.solve(hopeless, "leximin", method) for method in ("fluid", "counts"))
    np.testing.assert_allclose(np.sort(found.unit_values)[:2], np.sort(best.unit_values)[:2], rtol=0.01)
    assert len(found.parts) > 1


def test_a_candidate_that_is_optimal_is_taken(few_episodes):
    problem = outreach()
    best = eh.solve(problem, "gini:2")
    found = eh.solve(problem, "gini:2", eh.SolveMethod(candidates={"best": best.policy}))
    assert found.welfare >= best.welfare - 1e-6 - 3 * found.welfare_stderr


@pytest.mark.parametrize("candidates", [{"m": 3}, ["fair-index"]])
def test_candidates_that_are_no_policies_are_refused(candidates):
    with pytest.raises(InvalidInputError, check=mentions("candidates")):
        eh.solve(outreach(), method=eh.SolveMethod(candidates=candidates))


def test_what_joins_for_the_floors_is_named_after_its_policy(few_episodes, monkeypatch):
    """So that a plan knows why a condition has no rank."""
    plain = brief()
    problem = eh.CoupledMDP(plain.arms, plain.budget, plain.discount, counts=plain.counts, floors=[0.05] * 3)
    given = problem, relax(problem, "gini:2"), as_welfare("gini:2", 9), mixed.PolicyScorer(problem, True, 1e5, 0)
    raised = floors.floor_columns(*given, [])
    monkeypatch.setattr(floors, "_raise_floors", lambda *given: [])
    unserved = mixed.PolicyScorer(problem, True, 1e5, 0)("never-act", never_act(problem), raised[0].choice)
    paid = floors.floor_columns(*given, [unserved])
    assert raised and paid
    assert {policy_family(column.name) for column in raised} == {"occupancy-priority"}
    assert {policy_family(column.name) for column in paid} == {"fair-index"}


class TestOracle:
    def test_a_weighted_relaxation_of_equal_weights_is_the_mean(self):
        problem = outreach()
        equal = np.full(3, 1 / 6)
        weighted = solve_weighted(model_of(problem), equal, tolerance=1e-7)
        plain = solve_fluid(problem, Utilitarian(), 1e-7)
        assert weighted.upper_bound == pytest.approx(plain.upper_bound, rel=1e-6)
        assert weighted.prices == pytest.approx(plain.prices, rel=1e-4)

    def test_its_bound_is_above_every_policy(self):
        problem, rng = outreach(), np.random.default_rng(0)
        for _ in range(5):
            weights = rng.dirichlet(np.ones(3)) / problem.type_counts
            bound = solve_weighted(model_of(problem), weights).upper_bound
            for welfare in ("utilitarian", "maximin"):
                values = exact_values(problem, eh.solve(problem, welfare).policy).values
                assert (problem.type_counts * weights) @ values <= bound * (1 + 1e-9)

    def test_pay_for_service_serves(self):
        problem = outreach()
        weights, pay = np.full(3, 1 / 6), np.array([0.0, 0.0, 50.0])
        plain, paid = (solve_weighted(model_of(problem), weights, given) for given in (None, pay))
        assert paid.served[2] > plain.served[2] + 0.1

    def test_vectors_are_members_and_shares_of_time(self, few_episodes):
        problem = outreach()
        floored = eh.CoupledMDP(
            problem.arms, problem.budget, problem.discount, counts=problem.counts, floors=[0.05] * 3
        )
        objective = Objective.of_types(floored, "gini:2")
        judge = mixed.PolicyScorer(floored, True, 1e5, 0)
        oracle = mixed.WeightedIndices(floored, objective, judge)
        priced = oracle(np.concatenate([np.full(3, 1 / 3), np.zeros(3)]), 1e-4)
        assert priced.vectors.shape == (6, len(oracle.columns))
        np.testing.assert_allclose(priced.vectors[:3, 0], oracle.columns[0].values)
        assert (priced.vectors[3:] <= 1).all()
        assert oracle.units.shape == (6,)

    def test_the_bound_is_one_at_the_weights_themselves(self, few_episodes):
        """Tiny weights are raised for the policies; an arm that loses much must not lower the bound by that."""
        usage = [[0], [1]]
        plain = eh.Arm([[[1.0], [1.0]]], [[0.0, 1.0]], usage)
        costly = eh.Arm([[[1.0], [1.0]]], [[-1e6, -1e6]], usage)
        problem = eh.CoupledMDP([plain, costly], [1], 0.5)
        oracle = mixed.WeightedIndices(
            problem, Objective.of_types(problem, "gini:2"), mixed.PolicyScorer(problem, True, 1e3, 0)
        )
        assert 2.0 - 1e-6 <= oracle(np.array([1.0, 0.0]), 1e-4).bound <= 2.1

    @pytest.mark.parametrize("criterion", ["discounted", "finite:4"])
    def test_the_same_policy_is_not_tried_twice(self, criterion, few_episodes):
        problem = outreach().with_criterion(criterion)
        task = Task(problem, as_welfare("gini:2", 6), SolveMethod(tolerance=1e-5), None)
        judge = mixed.PolicyScorer(problem, True, 1e5, 0)
        oracle = mixed.WeightedIndices(problem, task.by_types, judge)
        for _ in range(2):
            named = mixed._named_policies(task, relax(problem, "gini:2"))
            asked = [*named, *mixed._policies_for_others(task, mixed.Clock(task))]
            # Two are told apart by what they are.
            oracle.add([one for one in asked if one.name not in ("equal-resources", "re-solving")])
        assert len({column.name for column in oracle.columns}) == len(oracle.columns) > 5


@pytest.mark.slow
def test_named_policies_are_tried_however_short_the_time(few_episodes):
    problem = eh.problems.health_outreach(num_arms=12, budget=2)
    plan = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", seconds=1e-3))
    task = Task(problem, as_welfare("gini:2", 12), SolveMethod(tolerance=1e-5), None)
    named = list(mixed._named_policies(task, relax(problem, "gini:2")))
    assert len(named) - 1 <= plan.history[-1][0] <= len(named)  # two of them may be the same
    assert "stopped by the time given" in plan.reason
    whole = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", seconds=1e3))
    assert "stopped" not in whole.reason and whole.history[-1][0] > plan.history[-1][0]


def test_errors_of_units_are_those_of_the_parts_put_together():
    rng = np.random.default_rng(0)
    parts = tuple(rng.normal(size=(100, 2)) * scale for scale in (1.0, 3.0))
    shares, beyond = np.array([0.25, 0.75]), np.array([0.0, 0.5])
    errors = Samples(shares, parts, beyond).errors()
    own = [part.std(axis=0, ddof=1) / 10 for part in parts]
    chance = np.sqrt((0.25 * own[0]) ** 2 + (0.75 * own[1]) ** 2)
    assert errors == pytest.approx([chance[0], np.hypot(chance[1], 0.5)])
    assert not Samples(np.zeros(0), (), np.zeros(2)).errors().any()


@pytest.mark.slow
def test_one_policy_is_one(few_episodes, monkeypatch):
    found = playing.find_mixture
    monkeypatch.setattr(playing, "find_mixture", lambda *asked: replace(found(*asked), tried=1, rounds=1))
    assert mentions("1 policy", "1 round")(eh.solve(brief(num_arms=3), "gini:2", "fluid").reason)


class TestRealisedInequality:
    """What members really get is no more equal than what they may expect."""

    def test_haste_does_not_leave_it_to_a_few_episodes(self, effort):
        """Twenty episodes tell an inequality so roughly that it may seem below that of expected values."""
        effort(inequality_steps=1e5)
        task = Task(brief(), as_welfare("gini:2", 9), SolveMethod(seconds=1.0), None)
        policy = eh.policies.worst_first(task.problem)
        hasty, whole = (playing.play(task, policy, 1e5, most) for most in (1e2, np.inf))
        assert hasty.num_episodes == whole.num_episodes > 100
        assert hasty.realised_gini_stderr < 0.05 * hasty.realised_gini_coefficient

    @pytest.mark.slow
    def test_its_error_covers_it(self):
        problem = brief()
        policy = eh.policies.worst_first(problem)
        many = eh.evaluate(problem, policy, "gini:2", 2000, rng=1, method="monte-carlo")
        few = [eh.evaluate(problem, policy, "gini:2", 40, rng=seed, method="monte-carlo") for seed in range(20)]
        apart = [
            (one.realised_gini_coefficient - many.realised_gini_coefficient) / one.realised_gini_stderr for one in few
        ]
        assert 0.5 < np.std(apart) < 1.6
        assert many.realised_gini_stderr < 0.2 * few[0].realised_gini_stderr


def test_few_identical_arms_come_near_the_optimum(effort):
    """A look ahead of 24 steps is 1.9 % below the optimum of ten arms, and one of five steps at it."""
    effort(arm_steps=1e5, report_steps=1e6, inequality_steps=1e4)
    problem = eh.problems.three_states(10)
    best, found = (eh.solve(problem, "utilitarian", method).welfare for method in ("counts", "fluid"))
    assert 0.999 * best <= found <= best * (1 + 1e-9)
