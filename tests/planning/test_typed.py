"""Counts of several types solved type by type: against the explicit table, enumeration, and simulation."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand import solve
from evenhand.errors import InfeasibleError, NotApplicableError, PolicyError
from evenhand.evaluation import evaluate, exact_values
from evenhand.model import Arm, CoupledMDP, MixturePolicy, TimeVaryingPolicy
from evenhand.planning import Solution, choose_method, limited_effort, load_policy, save_policy
from evenhand.problems import crew_maintenance
from evenhand.solvers import Counts, TypedChoices

from ..conftest import crossed, mentions, slow_after

WELFARES = ["utilitarian", "gini:2", "gini:1.2", "maximin", "maximin:0.3", "leximin"]
CRITERIA = ["discounted", "average", "finite:3"]


@pytest.fixture
def roads():
    """The same problem by both roads."""
    return both_roads


def both_roads(*task, **options) -> tuple[Solution, Solution]:
    with limited_effort(tabulated_pairs=0):
        typed = solve(*task, method="counts", **options)
    with limited_effort(tabulated_pairs=np.inf):
        return typed, solve(*task, method="counts", **options)


def random_types(seed: int, floors: bool = False, positive: bool = False) -> CoupledMDP:
    """Two or three types in two groups, that move anywhere; usage depends on the state, in tenths."""
    rng = np.random.default_rng(seed)
    number, resources = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    arms = []
    for _ in range(number):
        S, A = int(rng.integers(2, 4)), int(rng.integers(2, 4))
        usage = rng.integers(1, 4, size=(S, A, resources)) / 10
        usage[np.arange(S), rng.integers(A, size=S)] = 0.0
        rewards = rng.random((S, A)) + 0.1 if positive else rng.normal(size=(S, A))
        arms.append(Arm(rng.dirichlet(np.ones(S), size=(S, A)), rewards, usage, rng.dirichlet(np.ones(S))))
    return CoupledMDP(
        arms,
        budget=rng.choice([0.3, 0.4, 0.7], size=resources),
        discount=0.8,
        counts=rng.integers(1, 3, size=number),
        groups=["north", "south", "north"][:number],
        floors=np.where(rng.random(number) < 0.6, 0.1, 0.0) if floors else None,
    )


def check_roads(typed: Solution, table: Solution) -> None:
    """Both certified, and their bounds overlap."""
    slack = 1e-7 * max(1.0, abs(table.upper_bound))
    assert typed.welfare <= table.upper_bound + slack
    assert table.welfare <= typed.upper_bound + slack
    assert typed.welfare == pytest.approx(table.welfare, abs=slack)
    assert typed.welfare == pytest.approx(typed.objective(typed.unit_values), abs=1e-12)
    found = exact_values(typed.problem, typed.policy)  # small spaces are tabulated: a third road
    assert found.values == pytest.approx(typed.unit_values, abs=1e-9)


@pytest.mark.parametrize(("welfare", "criterion", "seed"), crossed(WELFARES, CRITERIA, range(3)))
def test_welfares_and_criteria(welfare, criterion, seed, roads):
    check_roads(*roads(random_types(seed), welfare, criterion=criterion))


@pytest.mark.parametrize(("welfare", "seed"), crossed(["alpha:0.5", "nash", "alpha:2"], range(3)))
def test_power_means(welfare, seed, roads):
    check_roads(*roads(random_types(seed, positive=True), welfare))


@pytest.mark.parametrize("number", slow_after(1, [3, 6]))
@pytest.mark.parametrize(("over", "criterion"), crossed(["arms", "groups"], CRITERIA))
def test_floors_and_groups(over, criterion, number, roads):
    met = 0
    for seed in range(number):
        problem = random_types(seed, floors=True)
        try:
            typed, table = roads(problem, "gini:2", criterion=criterion, over=over)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                roads(problem, "gini:2", criterion=criterion, over=over)
            continue
        check_roads(typed, table)
        served = exact_values(typed.problem, typed.policy).served
        assert (served >= typed.problem.type_floors - 1e-8).all()
        met += problem.has_floors
    assert met >= number // 3


@given(seed=st.integers(0, 10**6), criterion=st.sampled_from(CRITERIA), welfare=st.sampled_from(WELFARES))
def test_random_problems(seed, criterion, welfare):
    check_roads(*both_roads(random_types(seed), welfare, criterion=criterion))


@pytest.mark.parametrize("seed", [29, 31, 96])
def test_later_stages_of_leximin_hold_the_first_level_within_the_tolerance(seed):
    """Their slack once left gaps of 1.0e-8 to 1.6e-8."""
    check_roads(*both_roads(random_types(seed), "leximin", criterion="discounted"))


@pytest.mark.parametrize("name", ["two types", "all different"])
def test_the_best_mean_is_that_of_enumeration(name, problems, brute_force, roads):
    problem = problems[name]()
    typed, _ = roads(problem, "utilitarian")
    assert typed.welfare == pytest.approx(brute_force(problem).optimum(), abs=1e-8)


def test_identical_arms_with_a_floor(roads):
    """One type, which the road of identical arms does not treat: the table and the types do."""
    problem = eh.problems.machine_replacement(num_arms=4, budget=1)
    problem = CoupledMDP(list(problem.arms), problem.budget, problem.discount, problem.counts, floors=[0.2])
    typed, table = roads(problem, "maximin")
    check_roads(typed, table)
    assert typed.policy.parts if isinstance(typed.policy, MixturePolicy) else isinstance(typed.policy, TypedChoices)


def test_an_average_that_depends_on_the_start_goes_by_tables(effort):
    """Each arm keeps its state for ever: bounds over all states cannot meet, and the table knows where arms start."""
    stay = np.eye(2)[:, None].repeat(2, axis=1)
    arms = [Arm(stay, [[0.0, 1.0], [2.0, 2.5]], [[0.0], [1.0]], initial=[1.0, 0.0]) for _ in range(2)]
    arms[1] = Arm(stay, [[0.0, 2.0], [2.0, 2.5]], [[0.0], [1.0]], initial=[1.0, 0.0])
    problem = CoupledMDP(arms, [1.0], 0.9, criterion="average")
    effort(tabulated_pairs=0)
    solution = solve(problem, "maximin", method="counts")
    assert solution.welfare == pytest.approx(2 / 3)  # x = 2 (1 - x) of the time
    effort(tabulated_states=3)
    with pytest.raises(NotApplicableError):
        solve(problem, "maximin", method="counts")


class TestPolicies:
    """What the road returns acts, is evaluated exactly, and is saved and read."""

    @pytest.fixture(params=["discounted", "finite:3"])
    def solution(self, request: pytest.FixtureRequest, effort) -> Solution:
        effort(tabulated_pairs=0)
        return solve(random_types(4), "maximin", method="counts", criterion=request.param)

    def test_parts_are_choices(self, solution):
        parts = solution.policy.parts if isinstance(solution.policy, MixturePolicy) else [solution.policy]
        for part in parts:
            steps = part.parts if isinstance(part, TimeVaryingPolicy) else [part]
            assert all(isinstance(step, TypedChoices) for step in steps)
            assert len(steps) == (solution.problem.criterion.num_steps or 1)

    def test_exactly_evaluated_without_tables(self, solution):
        by_tables = exact_values(solution.problem, solution.policy)
        found = exact_values(solution.problem, solution.policy, most_states=0)
        for name in ("values", "used", "served"):
            assert getattr(found, name) == pytest.approx(getattr(by_tables, name), abs=1e-9)
        assert found.values == pytest.approx(solution.unit_values, abs=1e-9)

    def test_a_simulation_agrees(self, solution):
        played = evaluate(solution.problem, solution.policy, "maximin", 3000, rng=0, method="monte-carlo")
        off = np.abs(played.values - solution.values)
        assert (off <= 5 * played.values_stderr + played.truncation_bound).all()

    def test_saved_and_read(self, solution, tmp_path):
        path = tmp_path / "x.policy"
        save_policy(solution.problem, solution.policy, path)
        again = load_policy(path, solution.problem)
        played = [eh.simulate(solution.problem, policy, 50, rng=1).returns for policy in (solution.policy, again)]
        assert np.array_equal(*played)
        found = exact_values(solution.problem, again)
        assert found.values == pytest.approx(solution.unit_values, abs=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"picks": lambda p: p + 200}, id="rows that are not there"),
        pytest.param({"picks": lambda p: p[:-1]}, id="too few states"),
        pytest.param({"picks": lambda p: p[:, :1]}, id="too few types"),
        pytest.param({"picks": lambda p: p[::-1]}, id="other states"),
        pytest.param({"allocations": lambda a: a[:, :, :-1]}, id="too few actions"),
        pytest.param({"allocations": lambda a: a * 2}, id="too many arms"),
        pytest.param({"allocations": lambda a: a * 0}, id="nobody"),
        pytest.param({"allocations": lambda a: a.astype(float)}, id="no whole numbers"),
    ],
)
def test_forged_choices_are_refused(change, tmp_path, monkeypatch, effort):
    effort(tabulated_pairs=0)
    problem = random_types(0)
    policy = solve(problem, "utilitarian", method="counts").policy
    assert isinstance(policy, TypedChoices)
    forged = TypedChoices(problem, policy.allocations, policy.picks)
    for name, alter in change.items():
        setattr(forged, name, alter(getattr(forged, name)))
    path = Path(tmp_path) / "x.policy"
    if forged.allocations.dtype.kind == "f":
        monkeypatch.setattr("evenhand.solvers.counts.reduction.np.min_scalar_type", lambda value: np.dtype(np.float64))
    save_policy(problem, forged, path)
    monkeypatch.undo()
    with pytest.raises(PolicyError, check=mentions("x.policy")):
        load_policy(path, problem)


def test_choices_beyond_the_budget_are_refused_when_evaluated(tmp_path, effort):
    effort(tabulated_pairs=0)
    problem = crew_maintenance(num_arms=3, num_types=2)
    policy = solve(problem, "utilitarian", method="counts").policy
    space, served = Counts(problem), policy.allocations.copy()
    served[:, :, 2] = served.sum(axis=2)  # all arms are replaced, always
    served[:, :, :2] = 0
    greedy = TypedChoices(problem, served, policy.picks)
    save_policy(problem, greedy, tmp_path / "x.policy")
    again = load_policy(tmp_path / "x.policy", problem)
    assert np.array_equal(again.allocate(space.states, np.random.default_rng(0)).sum(axis=-1), space.states)
    with pytest.raises(PolicyError, check=mentions(3, "crew hours", 2)):
        evaluate(problem, again, num_episodes=5, horizon=5, rng=0, method="monte-carlo")
    for states in (0, 6000):
        with pytest.raises(PolicyError, check=mentions("budget")):
            exact_values(problem, again, most_states=states)


class TestDefaults:
    @pytest.mark.slow
    def test_the_default_crew_is_solved_by_counts_and_reported_from_the_start(self):
        problem, told = crew_maintenance(), []
        solution = solve(problem, "gini:2", progress=lambda *news: told.append(news))
        assert (solution.method, solution.gap <= 1e-8) == ("counts", True)
        # what the explicit table gave for it, in two to three minutes
        assert solution.welfare == pytest.approx(10.585531117651861, abs=1e-8)
        assert told[0] == ("counts: listing the allocations", 0.0)
        assert all(what.startswith("counts") for what, _ in told)
        assert any("policy 2, gap" in what for what, _ in told)
        assert all(0 <= share <= 1 for _, share in told)
        assert told[-1][1] == 1.0
        found = evaluate(problem, solution.policy, "gini:2", method="exact")
        assert found.welfare == pytest.approx(solution.welfare, abs=1e-9)

    @pytest.mark.slow
    def test_auto_takes_counts_as_long_as_it_takes_minutes(self):
        assert choose_method(crew_maintenance(num_arms=14))[0] == "counts"
        method, reason = choose_method(crew_maintenance(num_arms=30))
        assert method == "fluid"
        assert "too many for an exact method in reasonable time" in reason
