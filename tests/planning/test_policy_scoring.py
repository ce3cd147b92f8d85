"""Values of columns: exact where they can be, else unbiased, with less noise than plain playing."""

from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.evaluation import exact_values, mean_by_type, simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import MixturePolicy
from evenhand.planning import PolicyScorer, ScoredPolicy, choice_of, mix, relax
from evenhand.planning import policy_scoring as judging
from evenhand.policies import never_act, random_feasible, worst_first

from ..conftest import crossed
from ..oracles.problems import FIXED
from ..oracles.relaxation import fluid_policies

CRITERIA = ["discounted", "average", "finite:6"]


@pytest.fixture
def played(effort):
    """Nothing is so small that it is evaluated exactly."""
    effort(exact_states=0)


@pytest.mark.parametrize(("criterion", "name"), crossed(CRITERIA, ["symmetric", "typed"]))
def test_played_values_are_those_of_exact_evaluation(name, criterion, played):
    problem = FIXED[name]().with_criterion(criterion)
    law = choice_of(problem, relax(problem, "gini:2").occupancy)
    judge = PolicyScorer(problem, True, 4e5, 5, most_episodes=800, left_out=1e-6)
    for make in (worst_first, random_feasible, never_act):
        column, exact = judge("it", make(problem), law), exact_values(problem, make(problem))
        error = standard_errors(column.returns)
        np.testing.assert_array_less(np.abs(column.values - exact.values), 4.5 * error + 2e-3 * np.abs(exact.values))
        spread = 4.5 * column.served_error + 2e-3
        np.testing.assert_array_less(np.abs(column.shares_served - exact.served), spread)


def test_the_control_variate_takes_noise_away(played):
    problem = eh.problems.health_outreach(num_arms=12, budget=3)
    found = relax(problem, "gini:2")
    policy = fluid_policies(problem, found)["fair-index"]
    judge = PolicyScorer(problem, True, 3e5, 5)
    column = judge("it", policy, choice_of(problem, found.occupancy))
    plain = mean_by_type(problem, simulate(problem, policy, len(column.returns), judge.horizon, 5).returns)
    assert (standard_errors(column.returns) ** 2).sum() < 0.6 * (standard_errors(plain) ** 2).sum()


@pytest.mark.parametrize("by_type", [True, False])
def test_a_finite_horizon_is_followed_by_what_surprises(by_type, played):
    """Worst groups of mothers by a relaxed policy, per arm and by counts: a fraction of the variance of rewards."""
    problem = eh.problems.equitable("maternal")
    relaxed = relax(problem, "maximin")
    policy = eh.policies.fair_index(problem, relaxed.weights, relaxed.prices)
    choice = choice_of(problem, relaxed.occupancy)
    column = PolicyScorer(problem, by_type, 1e6, 5, most_episodes=300)("it", policy, choice)
    plain = mean_by_type(problem, simulate(problem, policy, 2000, 20, 7).returns)
    own = column.values if by_type else column.values[[0, 120, 160]]
    noise = standard_errors(column.returns) if by_type else standard_errors(column.returns)[[0, 120, 160]]
    error = np.hypot(noise, standard_errors(plain))
    np.testing.assert_array_less(np.abs(own - plain.mean(axis=0)), 4.5 * error)
    variance = noise**2 * len(column.returns)
    assert (variance < 0.5 * plain.var(axis=0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("by_counts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_arms_that_get_what_the_others_leave_are_known_as_well(by_counts, played, monkeypatch):
    """The relaxation serves them not at all, for they weigh nothing; with its values alone they would be all noise."""
    problem = eh.problems.health_outreach(num_arms=30, budget=12)
    found, weightless = relax(problem, "gini:2"), np.zeros(problem.types.valid.shape)
    policy, law = fluid_policies(problem, found)["fair-index"], choice_of(problem, weightless)
    monkeypatch.setattr(judging, "plays_by_counts", lambda policy: by_counts)
    judge = PolicyScorer(problem, True, 6e5, 5)
    column = judge("it", policy, law)
    alone = replace(judge, slope_episodes=np.inf)("it", policy, law)
    errors, without = standard_errors(column.returns), standard_errors(alone.returns)
    assert (errors < 0.85 * without).all() and errors.min() < 0.2 * without.min()
    np.testing.assert_array_less(np.abs(column.values - alone.values), 4.5 * np.hypot(errors, without))


def test_counts_and_arms_are_judged_alike(played, monkeypatch):
    problem = eh.problems.machine_replacement(num_arms=30, budget=6)
    found = relax(problem, "utilitarian")
    policy, law = fluid_policies(problem, found)["fair-index"], choice_of(problem, found.occupancy)
    judge = PolicyScorer(problem, True, 6e5, 0, most_episodes=200)
    by_counts = judge("it", policy, law)
    monkeypatch.setattr(judging, "plays_by_counts", lambda policy: False)
    by_arms = judge("it", policy, law, rng=1)
    error = np.hypot(by_counts.error(np.ones(1)), by_arms.error(np.ones(1)))
    assert by_arms.values[0] == pytest.approx(by_counts.values[0], abs=5 * error)
    assert by_arms.shares_served[0] == pytest.approx(
        by_counts.shares_served[0], abs=5 * float(np.hypot(by_counts.served_error[0], by_arms.served_error[0]))
    )


def test_long_runs_are_shorter_where_time_is_short():
    machines = eh.problems.machine_replacement(num_arms=3)
    for criterion, steps in (("average", (1000, 500, 200)), ("finite:7", (7, 7, 7))):
        judge = PolicyScorer(machines.with_criterion(criterion), True, 1e3, 0)
        assert tuple(judge.limited(share * judge.work).horizon for share in (1.0, 0.5, 0.01)) == steps


@pytest.mark.parametrize("by_type", [True, False])
def test_small_problems_are_judged_exactly(by_type):
    problem = FIXED["typed"]()
    law = choice_of(problem, relax(problem, "gini:2").occupancy)
    column = PolicyScorer(problem, by_type, 1e4, 0)("it", worst_first(problem), law)
    exact = exact_values(problem, worst_first(problem)).values
    assert column.exact and column.error(np.ones(len(column.values))) == 0
    np.testing.assert_allclose(column.values, exact if by_type else exact[problem.type_of_arm], rtol=1e-9)


def test_equal_arms_that_are_treated_alike_have_equal_values(played):
    problem = FIXED["typed"]()
    law = choice_of(problem, relax(problem, "gini:2").occupancy)
    one, types = (PolicyScorer(problem, by_type, 1e4, 0)("it", worst_first(problem), law) for by_type in (False, True))
    np.testing.assert_allclose(one.values, types.values[problem.type_of_arm], rtol=1e-9)
    np.testing.assert_allclose(one.shares_served, types.shares_served[problem.type_of_arm], rtol=1e-9)


def test_episodes_of_two_streams_are_pooled():
    problem, law = FIXED["typed"](), np.zeros(0)
    one, two = (
        ScoredPolicy("it", never_act(problem), law, np.full((n, 2), float(n)), np.zeros((n, 2))) for n in (1, 3)
    )
    assert one.pooled(two).values.tolist() == [2.5, 2.5]
    exact = ScoredPolicy("it", never_act(problem), law, np.ones((1, 2)), np.zeros((1, 2)), exact=True)
    assert one.pooled(exact) is exact and exact.pooled(one) is exact


def test_laws_are_choices_and_idle_where_nothing_goes():
    problem = FIXED["typed"]()
    law = choice_of(problem, np.zeros(problem.types.valid.shape))
    real = problem.types.valid.any(axis=2)
    np.testing.assert_array_equal(law.argmax(axis=2)[real], problem.types.idle[real])
    np.testing.assert_array_equal(law.sum(axis=2), 1)


def test_mixtures_among_the_parts_are_taken_apart():
    problem, law = FIXED["typed"](), np.zeros(0)
    inner = MixturePolicy([never_act(problem), random_feasible(problem)], [0.25, 0.75])
    turning = inner.with_redraw_every(3)
    columns = [ScoredPolicy("it", part, law, np.zeros((1, 2)), np.zeros((1, 2))) for part in (inner, turning)]
    mixed = mix(columns, np.array([0.4, 0.6]))
    assert mixed.shares.tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert mixed.parts[2] is turning
    assert mix(columns[1:], np.ones(1)) is turning


def test_what_lies_beyond_a_horizon_that_is_cut_short_goes_on_as_before(played, monkeypatch):
    """13 % of all time are not played; the law of the relaxation is not what the policy does."""
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=4, discount=0.999)
    monkeypatch.setattr("evenhand.model.criterion.MOST_JUDGED", 2000)
    policy = worst_first(problem)
    column = PolicyScorer(problem, True, 4e6, 3, left_out=1e-5)(
        "it", policy, choice_of(problem, relax(problem, "gini:2").occupancy)
    )
    exact, error = exact_values(problem, policy).values, standard_errors(column.returns)
    np.testing.assert_array_less(np.abs(column.values - exact), 4.5 * error + 0.02 * column.beyond + 1e-6)
    assert column.beyond.max() > 10 * error.max()
