"""The methods that play: bounds that hold, estimates that repeat, and policies that come back from their files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand import compare, solve
from evenhand.errors import NotApplicableError, PolicyError, TooLargeError
from evenhand.evaluation import evaluate
from evenhand.model import Arm, CoupledMDP, as_welfare, begin, criterion
from evenhand.planning import (
    SolveMethod,
    choose_method,
    find_policy,
    load_policy,
    relax,
    save_policy,
    save_solution,
    solution,
)
from evenhand.planning import mixture_search as mixed
from evenhand.policies import Resolving, fair_index, whittle
from evenhand.problems import (
    crew_maintenance,
    health_outreach,
    heterogeneous_machine_replacement,
    machine_replacement,
)

from ..conftest import crossed, mentions
from ..oracles.relaxation import fluid_policies

KINDS = ("occupancy-priority", "fair-index", "re-solving")


@pytest.fixture(autouse=True)
def short(effort):
    """Fewer episodes than a user gets, and fewer rounds."""
    effort(arm_steps=1.0, report_steps=1.0, rounds=3, inequality_steps=1.0)


def different(num_arms=4, **settings):
    return heterogeneous_machine_replacement(num_arms=num_arms, **settings)


def brief(num_arms=12):
    """Discounted so that few steps matter: for what does not hang on how long is played."""
    return different(num_arms, discount=0.8)


SMALL = {
    "machines": lambda: different(4, budget=1),
    "two types": lambda: CoupledMDP(list(different(2).arms), [1.0], 0.95, [2, 2]),
    "identical": lambda: machine_replacement(num_arms=4),
}


class TestCertificate:
    @pytest.mark.parametrize(
        ("method", "name", "welfare"), crossed(["fluid", "whittle"], SMALL, ["gini:2", "nash", "utilitarian"])
    )
    def test_the_bound_holds_and_the_estimate_is_not_better_than_the_optimum(self, method, name, welfare):
        problem = SMALL[name]()
        best = solve(problem, welfare, SolveMethod(tolerance=1e-7))
        found = solve(problem, welfare, method)
        assert best.method in ("counts", "joint")
        assert found.upper_bound >= best.welfare - 1e-9
        assert 0.9 * best.welfare <= found.welfare <= best.upper_bound + 4 * found.welfare_stderr + 1e-6
        assert found.gap == pytest.approx(max(0.0, 1 - found.welfare / found.upper_bound), abs=1e-12)

    @pytest.mark.parametrize("method", ["fluid", "whittle"])
    def test_identical_arms_have_the_same_bound_by_any_welfare(self, method):
        problem = SMALL["identical"]()
        bounds = [solve(problem, welfare, method).upper_bound for welfare in ("gini:2", "utilitarian", "maximin")]
        np.testing.assert_allclose(bounds, bounds[0], rtol=1e-4)

    def test_exact_where_the_space_is_small(self):
        problem = SMALL["identical"]()
        found = solve(problem, method="whittle")
        assert found.welfare_stderr == 0
        assert found.welfare == pytest.approx(13.9430, abs=5e-5)

    @pytest.mark.slow
    def test_an_estimate_has_an_error(self):
        found = solve(brief(40), method="fluid")
        assert found.welfare_stderr > 0
        assert found.values.shape == (40,)
        assert as_welfare("gini:2", 40)(found.values) == pytest.approx(found.welfare)

    @pytest.mark.slow
    def test_agrees_with_a_long_simulation(self):
        problem = different(12)
        found = solve(problem, "utilitarian", "fluid", rng=1)
        played = evaluate(problem, found.policy, "utilitarian", 300, 225, rng=99)
        assert abs(played.welfare - found.welfare) <= 5 * np.hypot(found.welfare_stderr, played.welfare_stderr)

    def test_whittle_refuses_what_has_no_indices(self):
        with pytest.raises(NotApplicableError, check=mentions(2)):
            solve(crew_maintenance(num_arms=3), method="whittle")

    def test_discount_zero(self):
        problem = different(4, budget=1, discount=0.0)
        found = solve(problem, method="fluid")
        assert found.welfare <= solve(problem, method="joint").upper_bound + 4 * found.welfare_stderr

    @pytest.mark.parametrize("steps", [500, pytest.param(None, marks=pytest.mark.slow)], ids=["cut short", "as it is"])
    def test_a_discount_near_one(self, steps, monkeypatch):
        if steps is not None:
            monkeypatch.setattr(criterion, "MOST_JUDGED", steps)
        arms = [Arm(np.ones((1, 2, 1)), [[-1.0, -number]], [[0.0], [1.0]]) for number in (0.9, 0.8)]
        problem = CoupledMDP(arms, [1.0], 0.9999)
        found, best = solve(problem, "utilitarian", "fluid"), solve(problem, "utilitarian", "joint")
        assert found.welfare <= best.upper_bound + 1e-6 * abs(best.upper_bound)


class TestRandomness:
    @pytest.mark.slow
    def test_seeds_repeat(self):
        problem = brief()
        first, again, other = (solve(problem, method="fluid", rng=seed) for seed in (1, 1, 2))
        assert first.welfare == again.welfare
        np.testing.assert_array_equal(first.values, again.values)
        assert first.welfare != other.welfare
        assert first.upper_bound == other.upper_bound

    @pytest.mark.slow
    def test_a_generator_is_a_seed_too(self):
        problem = brief()
        found = [solve(problem, method="fluid", rng=np.random.default_rng(1)).welfare for _ in range(2)]
        assert found[0] == found[1]

    def test_chosen_on_one_stream_and_reported_on_another(self, monkeypatch):
        """All policies meet one world; parts are polished in a second, and reported in one that no choice has seen."""
        worlds = []
        judge = mixed.PolicyScorer.__call__

        def spy(self, name, policy, law, rng=None):
            worlds.append((name, self.seed, rng))
            return judge(self, name, policy, law, rng)

        monkeypatch.setattr(mixed.PolicyScorer, "__call__", spy)
        found = solve(brief(), method="fluid", rng=3)
        parts = [part.name for part in found.parts]
        reported, chosen = worlds[-len(parts) :], worlds[: -len(parts)]
        assert sorted(name for name, _, _ in reported) == sorted(parts)
        assert all(isinstance(rng, np.random.Generator) for _, _, rng in reported)
        seeds = [seed for _, seed, _ in chosen]
        assert all(rng is None for _, _, rng in chosen)
        assert len(set(seeds)) == 2 and seeds == sorted(seeds, key=seeds.index)

    def test_the_best_mixture_is_taken(self, monkeypatch):
        """Judged by what the judge says of each: here one policy has more for everyone."""
        judge = mixed.PolicyScorer.__call__

        def flatter(self, name, policy, law, rng=None):
            column = judge(self, name, policy, law, rng)
            return replace(column, returns=column.returns + 5.0) if name == "myopic" else column

        monkeypatch.setattr(mixed.PolicyScorer, "__call__", flatter)
        monkeypatch.setattr(solution, "check_bound", lambda *_: None)
        found = solve(brief(), method="fluid")
        assert [part.name for part in found.parts] == ["myopic"]
        assert found.parts[0].share == 1
        assert found.reason.endswith(": myopic")

    def test_progress_names_what_is_done(self):
        told = []
        solve(brief(), method="fluid", progress=lambda *news: told.append(news))
        names = [what for what, _ in told]
        assert names[0] == "fluid relaxation"
        assert names[1:4] == ["trying fair-index", "trying occupancy-priority", "trying re-solving"]
        assert any(name.startswith("mixing ") for name in names)
        assert names[-1].startswith("playing ")
        assert all(0 <= share <= 1 for _, share in told)


class TestAuto:
    def test_forty_different_arms(self):
        problem = brief(40)
        assert choose_method(problem)[0] == "fluid"
        found = solve(problem)
        assert found.method == "fluid"
        assert mentions("40 types", "10^19")(found.reason)

    def test_a_size_that_is_cut_is_not_reported_as_one(self):
        """exp(700) = 1.01423e+304 stands for everything above it."""
        reason = choose_method(brief(700))[1]
        assert mentions("10^300")(reason) and "e+" not in reason

    def test_identical_arms_of_many_states(self):
        rng = np.random.default_rng(0)
        arm = Arm(rng.dirichlet(np.ones(30), (30, 2)), rng.random((30, 2)), [[0.0], [1.0]])
        method, reason = choose_method(CoupledMDP([arm], [10.0], 0.9, [1000]))
        assert method == "fluid"
        assert mentions(1000)(reason)

    def test_optimal_is_not_what_fluid_finds(self):
        """Under the name of the optimum nothing else is played."""
        found = compare(different(40), ["never-act"], num_episodes=5, horizon=5, rng=0)
        assert found.bound_name == "fluid bound"
        assert "optimal" not in {row.policy for row in found.rows}
        with pytest.raises(TooLargeError):
            find_policy("optimal").build(different(40))


class TestCompare:
    def test_the_fluid_bound_is_above_every_row(self, effort):
        effort(optimum_states=0)
        found = compare(different(12), num_episodes=20, horizon=150, rng=0)
        assert found.bound_name == "fluid bound"
        assert set(KINDS) | {"whittle"} <= {row.policy for row in found.rows}
        for row in found.rows:
            assert row.evaluation.welfare <= found.upper_bound + 4 * row.evaluation.welfare_stderr

    def test_the_optimum_replaces_it_where_it_can_be_found(self):
        found = compare(SMALL["machines"](), ["fair-index"], num_episodes=20, horizon=100, rng=0)
        assert found.bound_name == "optimum"
        assert found.upper_bound < relax(SMALL["machines"](), as_welfare("gini:2", 4)).upper_bound

    def test_re_solving_is_left_out_for_three_resources(self):
        arms = [Arm(np.ones((1, 2, 1)), [[0.0, gain]], [[0, 0, 0], [1, 1, 1]]) for gain in (1.0, 2.0)]
        found = compare(CoupledMDP(arms, [1, 1, 1], 0.5), num_episodes=5, horizon=5, rng=0)
        assert "is for one or two resources" in found.left_out["re-solving"]  # the reason itself
        assert mentions(3)(found.left_out["whittle"])
        assert {"fair-index", "occupancy-priority"} <= {row.policy for row in found.rows}


def played(policy, problem, steps=25):
    """(step, episode, arm) actions of some episodes whose states are drawn at random."""
    rng, states = np.random.default_rng(5), np.random.default_rng(6)
    actor = begin(policy, 6, rng)
    sizes = problem.types.num_states[problem.type_of_arm]
    return np.array([actor.act(states.integers(0, sizes, (6, len(sizes))).astype(np.int32), rng) for _ in range(steps)])


class TestSaved:
    @pytest.mark.parametrize("name", KINDS)
    @pytest.mark.parametrize("problem", [different(12), crew_maintenance(num_arms=7)], ids=["machines", "crew"])
    def test_what_comes_back_does_the_same(self, name, problem, tmp_path: Path):
        policy = fluid_policies(problem, relax(problem, as_welfare("gini:2", problem.num_arms)))[name]
        save_policy(problem, policy, tmp_path / "policy.zip")
        again = load_policy(tmp_path / "policy.zip", problem)
        assert type(again) is type(policy)
        assert played(policy, problem).any()
        np.testing.assert_array_equal(played(again, problem), played(policy, problem))

    @pytest.mark.parametrize("paper_compat", [False, True])
    def test_whittle_with_its_threshold(self, paper_compat, tmp_path: Path):
        problem = machine_replacement(num_arms=6)
        policy = whittle(problem, paper_compat=paper_compat)
        save_policy(problem, policy, tmp_path / "policy.zip")
        again = load_policy(tmp_path / "policy.zip", problem)
        np.testing.assert_array_equal(played(again, problem), played(policy, problem))
        assert again.threshold == policy.threshold

    def test_how_often_prices_are_found(self, tmp_path: Path):
        problem = different(12)
        found = relax(problem, as_welfare("gini:2", 12))
        save_policy(problem, Resolving(problem, found.weights, found.prices, every=3), tmp_path / "policy.zip")
        assert load_policy(tmp_path / "policy.zip", problem).every == 3

    def test_how_many_prices_there_are(self, tmp_path: Path):
        problem = different(20)
        found = relax(problem, as_welfare("utilitarian", 20))
        policy = Resolving(problem, found.weights, found.prices, points=5)
        save_policy(problem, policy, tmp_path / "policy.zip")
        np.testing.assert_array_equal(load_policy(tmp_path / "policy.zip", problem).grid, policy.grid)

    def test_a_solution_with_its_certificate(self, tmp_path: Path):
        problem = brief()
        solution = solve(problem, method="fluid")
        save_solution(solution, tmp_path / "policy.zip")
        again = load_policy(tmp_path / "policy.zip", problem)
        np.testing.assert_array_equal(played(again, problem), played(solution.policy, problem))

    @pytest.mark.parametrize("name", KINDS)
    def test_for_another_problem_it_is_refused(self, name, tmp_path: Path):
        problem = different(12)
        policy = fluid_policies(problem, relax(problem, as_welfare("gini:2", 12)))[name]
        save_policy(problem, policy, tmp_path / "policy.zip")
        with pytest.raises(PolicyError, check=mentions("policy.zip", "transitions")):
            load_policy(tmp_path / "policy.zip", different(12, seed=1))

    def test_tables_that_do_not_fit_are_refused(self, tmp_path: Path):
        problem = different(12)
        policy = fair_index(problem, np.ones(12), np.zeros(1))
        policy.scores = policy.scores[:5]
        save_policy(problem, policy, tmp_path / "policy.zip")
        with pytest.raises(PolicyError, check=mentions("scores")):
            load_policy(tmp_path / "policy.zip", problem)

    def test_weights_that_do_not_fit_are_refused(self, tmp_path: Path):
        problem = different(12)
        found = relax(problem, as_welfare("gini:2", 12))
        policy = Resolving(problem, found.weights, found.prices)
        policy.weights = np.ones(1)
        save_policy(problem, policy, tmp_path / "policy.zip")
        with pytest.raises(PolicyError, check=mentions("weights", "type=12", "(1,)")):
            load_policy(tmp_path / "policy.zip", problem)


def test_candidates_do_not_displace_the_index_policy_when_time_is_short():
    """The plan of a smaller budget competes; the first policy of the method is tried beside it, whatever the time."""
    problem = health_outreach(num_arms=40, num_states=3, num_groups=3, budget=6).with_criterion("average")
    idle = eh.make_policy(problem, "never-act")
    plan = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", seconds=1e-3, candidates={"idle": idle}))
    assert plan.welfare > 2 * eh.evaluate(problem, idle, "gini:2").welfare
