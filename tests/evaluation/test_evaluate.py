"""Values of policies: exact if possible, else with standard errors that cover."""

import json

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, NotApplicableError, OutOfDomainError, PolicyError
from evenhand.evaluation import LongRunLimits, evaluate, evaluate_within
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import Arm, CoupledMDP, Gini, Maximin, MixturePolicy
from evenhand.policies import PriorityPolicy, RoundRobin, myopic, never_act, random_feasible, worst_first
from evenhand.problems import crew_maintenance, heterogeneous_machine_replacement, machine_replacement

from ..conftest import crossed, mentions

FIVE = machine_replacement(num_arms=5)
PLAY = {"method": "monte-carlo", "num_episodes": 200, "horizon": 60, "rng": 0}


def first_come(problem):
    return PriorityPolicy(problem, np.zeros(problem.types.valid.shape))


def short_sighted(problem):
    """The same problem at a discount that makes the cut-off negligible."""
    return CoupledMDP(problem.arms, problem.budget, 0.4, problem.counts)


class TestExact:
    @pytest.mark.parametrize(
        ("policy", "welfare"),
        [(random_feasible, 9.4272), (worst_first, 13.4292), (myopic, 13.1113), (never_act, 2.7739)],
    )
    def test_known_welfare_of_five_machines(self, policy, welfare):
        found = evaluate(FIVE, policy(FIVE))
        assert found.exact and found.welfare == pytest.approx(welfare, abs=5e-5)

    def test_equals_enumeration(self, small_problem, brute_force):
        oracle = brute_force(small_problem)
        values, used = oracle.evaluate(oracle.greedy(lambda *_: 0.0, stop=True))
        found = evaluate(small_problem, random_feasible(small_problem), "gini:2")
        weights = 0.5 ** np.arange(len(values))
        assert found.welfare == pytest.approx(np.sort(values) @ weights / weights.sum())
        assert found.mean == pytest.approx(values.mean()) and found.worst == pytest.approx(values.min())
        assert found.values == pytest.approx(values)
        whole = small_problem.budget / (1 - small_problem.discount)
        shares = np.where(whole > 0, used / np.where(whole > 0, whole, 1), 0)
        assert found.budget_used == pytest.approx(shares)

    def test_has_no_error_and_no_horizon(self):
        found = evaluate(FIVE, worst_first(FIVE))
        assert (found.welfare_stderr, found.mean_stderr, found.truncation_bound) == (0, 0, 0)
        assert (found.num_episodes, found.horizon, found.returns) == (None, None, None)
        assert not found.values_stderr.any() and found.welfare_interval == (found.welfare, found.welfare)
        assert found.plug_in_welfare == found.welfare


class TestMonteCarlo:
    def test_the_plug_in_is_biased_downwards_and_the_pooled_welfare_is_the_mean(self):
        for seed in range(5):
            found = evaluate(FIVE, random_feasible(FIVE), **PLAY | {"rng": seed})
            assert found.by_type and found.unit_counts.tolist() == [5]
            assert found.welfare == pytest.approx(found.mean, rel=1e-12)
            assert found.welfare_stderr == pytest.approx(found.mean_stderr, rel=1e-9)
            assert found.plug_in_welfare < found.welfare

    def test_the_plug_in_is_the_welfare_of_the_means(self):
        found = evaluate(FIVE, random_feasible(FIVE), **PLAY)
        assert found.plug_in_welfare == pytest.approx(Gini.geometric(5)(found.returns.mean(axis=0)))
        assert found.returns.shape == (200, 5)

    @pytest.mark.parametrize("policy", [first_come, RoundRobin])
    def test_units(self, policy):
        found = evaluate(FIVE, policy(FIVE), **PLAY)
        means = found.returns.mean(axis=0)
        if policy is RoundRobin:  # treats equal arms alike
            assert found.by_type and found.values == pytest.approx(np.full(5, means.mean()))
        else:
            assert not found.by_type and found.values == pytest.approx(means)
            assert found.plug_in_welfare == found.welfare
            assert found.unit_stderr == pytest.approx(found.returns.std(axis=0, ddof=1) / np.sqrt(200))

    def test_types_are_pooled_in_any_order_of_blocks(self, build_arm):
        one, two = (build_arm(seed, 2, [[0], [1]]) for seed in (0, 1))
        problem = CoupledMDP([one, two, one], budget=[2], discount=0.6, counts=[2, 1, 2])
        found = evaluate(problem, random_feasible(problem), **PLAY)
        means = found.returns.mean(axis=0)
        first, second = means[[0, 1, 3, 4]].mean(), means[2]
        assert found.unit_values == pytest.approx([first, second])
        assert found.values == pytest.approx([first, first, second, first, first])

    @pytest.mark.parametrize(("kind", "welfare"), crossed(["types", "machines"], ["gini:2", "alpha:1"]))
    def test_intervals_cover_the_exact_value(self, kind, welfare):
        """A 95 % interval holds the truth in about 95 % of repetitions."""
        problem = short_sighted(crew_maintenance(num_arms=3, num_types=2) if kind == "types" else FIVE)
        policy = random_feasible(problem)
        truth = evaluate(problem, policy, welfare).welfare
        held = 0
        for seed in range(200):
            options = PLAY | {"num_episodes": 30, "horizon": 12, "rng": seed}
            low, high = evaluate(problem, policy, welfare, **options).welfare_interval
            held += low <= truth <= high
        assert 0.88 * 200 <= held <= 0.99 * 200

    def test_the_truncation_bound(self):
        found = evaluate(FIVE, random_feasible(FIVE), **PLAY)
        largest = np.abs(FIVE.types.rewards).max()
        assert found.truncation_bound == pytest.approx(0.95**60 / 0.05 * largest)
        assert found.horizon == 60 and found.num_episodes == 200
        longer = evaluate(FIVE, random_feasible(FIVE), **PLAY | {"horizon": 300})
        assert np.abs(longer.returns - found.returns).max() <= found.truncation_bound

    def test_budget_used(self):
        spending, idle = (evaluate(FIVE, policy(FIVE), **PLAY) for policy in (worst_first, never_act))
        assert spending.budget_used == pytest.approx([1.0]) and idle.budget_used == pytest.approx([0.0])
        exact, played = (
            evaluate(FIVE, random_feasible(FIVE), **PLAY | {"method": m}) for m in ("exact", "monte-carlo")
        )
        assert played.budget_used == pytest.approx(exact.budget_used, abs=0.01)

    def test_one_episode_has_no_standard_error(self):
        found = evaluate(FIVE, random_feasible(FIVE), **PLAY | {"num_episodes": 1})
        assert found.welfare_stderr == np.inf

    def test_very_many_arms_are_simulated_by_counts(self):
        limits = LongRunLimits(followed_arm_steps=0)
        found = evaluate_within(FIVE, random_feasible(FIVE), None, 200, 60, 0, limits)
        assert found.plug_in_welfare is None and found.returns.shape == (200, 1)
        truth = evaluate(FIVE, random_feasible(FIVE)).welfare
        assert abs(found.welfare - truth) < 4 * found.welfare_stderr + found.truncation_bound
        assert found.values.shape == (5,)
        followed = evaluate_within(FIVE, first_come(FIVE), None, 200, 60, 0, limits)
        assert followed.returns.shape == (200, 5)

    def test_seeds_reproduce_and_differ(self):
        first, again, other = (evaluate(FIVE, random_feasible(FIVE), **PLAY | {"rng": seed}) for seed in (1, 1, 2))
        assert first.welfare == again.welfare != other.welfare

    def test_many_different_arms_are_evaluated(self):
        """Nothing enumerates the space on the way to finding it too large."""
        problem = heterogeneous_machine_replacement(num_arms=300)
        found = evaluate(problem, worst_first(problem), num_episodes=2, horizon=2, rng=0)
        assert not found.exact


class TestStandardErrors:
    def test_are_those_of_the_mean(self):
        samples = np.random.default_rng(0).normal(size=(50, 3))
        assert standard_errors(samples) == pytest.approx(samples.std(axis=0, ddof=1) / np.sqrt(50))
        assert standard_errors(samples[:, 0]) == pytest.approx(standard_errors(samples)[0])


class TestArguments:
    def test_methods(self):
        assert evaluate(FIVE, random_feasible(FIVE)).exact
        assert evaluate(FIVE, random_feasible(FIVE), method="exact").exact
        assert not evaluate(FIVE, random_feasible(FIVE), **PLAY).exact
        assert not evaluate(FIVE, RoundRobin(FIVE), **PLAY | {"method": "auto"}).exact
        with pytest.raises(NotApplicableError, check=mentions("allocations")):
            evaluate(FIVE, RoundRobin(FIVE), method="exact")
        with pytest.raises(InvalidInputError, check=mentions("method", "guess")):
            evaluate(FIVE, random_feasible(FIVE), method="guess")

    @pytest.mark.parametrize("bad", [0, -3, 1.5, True])
    def test_sizes_must_be_positive_whole_numbers(self, bad):
        for name in ("num_episodes", "horizon"):
            with pytest.raises(InvalidInputError, match=name):
                evaluate(FIVE, random_feasible(FIVE), **{name: bad})

    def test_welfare_is_text_or_an_object(self):
        problem = short_sighted(crew_maintenance(num_arms=3, num_types=2))
        policy = worst_first(problem)
        values = evaluate(problem, policy).values
        expected = {
            "utilitarian": values.mean(),
            "maximin": values.min(),
            "gini:0.5,0.3,0.2": np.sort(values) @ [0.5, 0.3, 0.2],
            "nash": np.exp(np.log(values).mean()),
            "alpha:2": 1 / np.mean(1 / values),
        }
        for text, welfare in expected.items():
            assert evaluate(problem, policy, text).welfare == pytest.approx(welfare)
        assert evaluate(problem, policy, Maximin()).welfare == pytest.approx(values.min())
        assert evaluate(problem, policy, Gini([0.5, 0.3, 0.2])).welfare == pytest.approx(expected["gini:0.5,0.3,0.2"])

    @pytest.mark.parametrize("bad", ["ginny:2", "gini:-1", "gini:0.5,0.5"])
    def test_bad_welfare_is_bad_input(self, bad):
        with pytest.raises(InvalidInputError, check=mentions("welfare", bad.partition(":")[0])):
            evaluate(FIVE, random_feasible(FIVE), bad)

    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    def test_alpha_fairness_of_negative_values_is_out_of_its_domain(self, build_arm, method):
        arm = build_arm(0, 2, [[0], [1]])
        losing = type(arm)(arm.transitions, arm.rewards - 2, arm.usage, arm.initial)
        problem = CoupledMDP([losing], budget=[1], discount=0.5, counts=[2])
        with pytest.raises(OutOfDomainError, check=mentions("alpha:1", -2.7)):
            evaluate(problem, random_feasible(problem), "alpha:1", **PLAY | {"method": method})
        assert evaluate(problem, random_feasible(problem), "gini:2", **PLAY | {"method": method}).welfare < 0

    def test_a_plug_in_figure_that_is_undefined_does_not_stop_the_rest(self):
        """Forty equal arms worth 0.2 each: the pooled mean is positive, some arm's estimate is not."""
        coin = Arm(transitions=np.full((2, 2, 2), 0.5), rewards=[[3, 3], [-2.8, -2.8]], usage=[[0], [1]])
        problem = CoupledMDP([coin], budget=[1], discount=0.5, counts=[40])
        found = evaluate(problem, random_feasible(problem), "alpha:1", **PLAY | {"num_episodes": 30})
        assert found.welfare == pytest.approx(found.mean) and found.mean > 0
        assert found.plug_in_welfare is None

    def test_a_policy_that_overspends_is_refused(self):
        richer = machine_replacement(num_arms=5, budget=2)
        with pytest.raises(PolicyError, check=mentions("step 0", 2, "resource 0", 1)):
            evaluate(FIVE, worst_first(richer), **PLAY)

    def test_progress_is_reported(self):
        told = []
        evaluate(FIVE, random_feasible(FIVE), **PLAY, progress=lambda what, share: told.append((what, share)))
        assert told and all(what == "playing" and 0 <= share <= 1 for what, share in told)


class TestFigures:
    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    def test_can_be_written_as_json(self, method):
        found = evaluate(FIVE, random_feasible(FIVE), **PLAY | {"method": method})
        names = [
            "welfare",
            "welfare_stderr",
            "plug_in_welfare",
            "mean",
            "mean_stderr",
            "worst",
            "gini_coefficient",
            "exact",
            "truncation_bound",
            "num_episodes",
            "horizon",
            "seconds",
            "by_type",
        ]
        written = {name: getattr(found, name) for name in names}
        written |= {name: getattr(found, name).tolist() for name in ("values", "values_stderr", "budget_used")}
        again = json.loads(json.dumps(written, allow_nan=False))
        assert again["welfare"] == found.welfare and again["exact"] is (method == "exact")

    def test_inequality(self):
        problem = short_sighted(crew_maintenance(num_arms=4, num_types=2))
        fair = evaluate(problem, worst_first(problem))
        values = fair.values
        differences = np.abs(values[:, None] - values[None]).mean()
        assert fair.gini_coefficient == pytest.approx(differences / (2 * values.mean()))
        shares, held = fair.lorenz
        assert shares[-1] == held[-1] == 1.0


def test_parts_of_a_mixture_are_weighted_by_their_shares():
    """Two episodes at the least: five are 3 and 2 of the parts, and not 4.9 and 0.1."""
    arm = Arm(np.ones((1, 2, 1)), [[1.0, 3.0]], [[0], [1]])
    problem = CoupledMDP([arm, arm], [1], 0.95)
    unfair = first_come(problem)
    found = evaluate(problem, MixturePolicy([unfair, never_act(problem)], [0.98, 0.02]), "utilitarian", 5, 60, rng=0)
    alone = evaluate(problem, unfair, "utilitarian", 2, 60, rng=0, method="monte-carlo")
    assert found.num_episodes == 5 and alone.realised_gini_coefficient == pytest.approx(0.25)
    assert found.realised_gini_coefficient == pytest.approx(0.98 * 0.25)
    assert found.mean == pytest.approx(0.98 * alone.mean + 0.02 * alone.mean / 2)
    assert found.episode_weights.sum() == pytest.approx(1)
