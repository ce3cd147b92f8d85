"""One problem under several budgets: what each step is worth, and that more is never worse."""

from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand import SolveMethod, compare, solve
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.planning import budget_sweep as module
from evenhand.planning.promises import share_broken
from evenhand.planning.task import limited_effort
from evenhand.policies.deadlines import keep_promises
from evenhand.policies.look_ahead import LookAhead


def outreach():
    return eh.problems.health_outreach(num_arms=6, num_states=2, budget=1)


def test_exact_steps_are_differences_of_optima():
    problem = outreach()
    rows = solve(problem, "maximin", budgets=[1, 2, 4])
    best = [eh.solve(problem.with_budget(budget), "maximin").welfare for budget in (1, 2, 4)]
    assert [row.solution.welfare for row in rows] == best
    assert [row.budget for row in rows] == [{"resource 0": 1.0}, {"resource 0": 2.0}, {"resource 0": 4.0}]
    assert rows[0].step is None
    for row, before, after in zip(rows[1:], best, best[1:], strict=False):
        assert (row.step.welfare, row.step.stderr) == (pytest.approx(after - before), 0.0)
        assert row.step.welfare > 0
        assert row.reused_from is None


def test_rows_stay_in_the_order_in_which_budgets_came():
    rows = solve(outreach(), "utilitarian", budgets=[[2], [1]])
    assert [row.budget["resource 0"] for row in rows] == [2.0, 1.0]
    assert rows[1].step is None


def test_a_step_is_from_the_largest_smaller_budget_above():
    """More of one thing and less of another is no step."""
    crew = eh.problems.crew_maintenance(num_arms=2, num_states=3, num_types=2)
    budgets = [[2, 1], [2, 2], [3, 1], [3, 3], [1, 9], [3, 4]]
    rows = solve(crew, "utilitarian", budgets=budgets)
    since = [row.step and list(row.step.since.values()) for row in rows]
    assert since == [None, [2, 1], [2, 1], [3, 1], None, [3, 3]]
    for row in rows:
        if row.step is not None:
            before = next(other for other in rows if other.budget == row.step.since)
            assert row.step.welfare == pytest.approx(row.solution.welfare - before.solution.welfare)
            assert row.step.welfare >= -1e-9
    shown = compare(crew, ["fair-index"], "utilitarian", rng=0, budgets=budgets[:3])
    assert [row.step and list(row.step.since.values()) for row in shown] == since[:3]


def test_what_is_useless_is_worth_nothing():
    """With more calls than people, nothing is gained, and the bound stays."""
    rows = solve(outreach(), budgets=[6, 9])
    assert rows[1].step.welfare == pytest.approx(0, abs=1e-6)
    assert rows[1].step.welfare >= 0


def test_a_larger_budget_is_never_worse_by_playing(monkeypatch):
    """However unlucky the search: here that for the largest budget comes out 5 too low."""
    search, asked = module.solve, {}

    def unlucky(problem, *arguments, **options):
        asked[problem.budget[0]] = list(arguments[1].candidates)
        found = search(problem, "gini:2", "counts")  # quicker
        return replace(found, welfare=found.welfare - 5.0, parts=()) if problem.budget[0] == 3 else found

    monkeypatch.setattr(module, "solve", unlucky)
    less, most, more = solve(outreach(), "gini:2", SolveMethod("fluid", seconds=0.1), budgets=[1, 3, 2])
    assert asked == {1.0: [], 2.0: ["plan for 1"], 3.0: ["plan for 1", "plan for 2"]}
    assert more.solution.welfare > less.solution.welfare
    assert most.reused_from == more.budget
    assert most.solution.welfare == more.solution.welfare
    assert most.solution.policy is more.solution.policy
    assert most.solution.upper_bound > more.solution.upper_bound
    assert most.solution.problem.budget.tolist() == [3]
    assert more.step.since == less.budget
    assert most.step.since == less.budget


def test_the_best_under_a_smaller_budget_can_be_kept():
    """Under a budget of 2 only one who never acts is asked: who was best with less is still there."""
    problem = outreach()
    rows = compare(problem, {"idle": eh.policies.never_act(problem)}, "maximin", rng=0, budgets=[1, 2])
    assert [row.best for row in rows] == ["idle", "idle"]
    assert rows[1].step.welfare == rows[1].step.stderr == 0
    named = compare(problem, ["oldest-first", "random"], "maximin", rng=0, budgets=[1, 2])
    for row in named:
        own = eh.compare(problem.with_budget(row.budget), ["oldest-first", "random"], "maximin", rng=0)
        assert row.evaluation.welfare == own.rows[0].evaluation.welfare
        assert row.comparison.upper_bound == own.upper_bound
    assert named[1].step.welfare == pytest.approx(named[1].evaluation.welfare - named[0].evaluation.welfare)


@pytest.mark.parametrize("budgets", [[], "4,4", 3, {"bays": 3}])
def test_budgets_are_a_list(budgets):
    with pytest.raises(InvalidInputError, match="expected a list of budgets"):
        solve(outreach(), budgets=budgets)


class TestAnotherBudget:
    def test_is_the_problem_made_with_it(self):
        for name, parameter in {
            "machine-replacement": "budget",
            "health-outreach": "budget",
            "random": "budget",
        }.items():
            made, replaced = eh.problems.build(name, {parameter: 2}), eh.problems.build(name).with_budget(2)
            assert made == replaced
            assert made.signature == replaced.signature
            np.testing.assert_array_equal(made.budget_limit, replaced.budget_limit)
        made = eh.problems.crew_maintenance(crew_hours=5, parts=4)
        crew = eh.problems.crew_maintenance()
        assert made == crew.with_budget([5, 4]) == crew.with_budget({"crew_hours": 5, "Parts": 4})
        assert crew.with_budget({"parts": 9}).budget.tolist() == [crew.budget[0], 9]

    def test_nothing_known_of_the_old_one_is_kept(self):
        problem = outreach()
        known = problem.signature, problem.budget_limit[0]
        other = problem.with_budget(3)
        assert (other.signature, other.budget_limit[0]) != known
        assert problem.budget.tolist() == [1] and not other.budget.flags.writeable
        assert problem.with_budget([1.0]) is problem

    @pytest.mark.parametrize(
        ("budget", "told"),
        [
            ([1, 2, 3], r"expected 2 numbers \(crew hours, parts\), got 3"),
            (4, "expected 2 numbers"),
            ([1, -2], "parts: .*-2"),
            ([float("nan"), "x"], r"(?s)crew hours: .*got nan.*parts: .*got 'x'"),
            ({"part": 1}, "part: there is no such resource; did you mean parts"),
            ({"fuel": 1}, "there is crew hours, parts"),
            ([True, 1], "crew hours: .*got True"),
        ],
    )
    def test_faults_speak_of_resources(self, budget, told):
        with pytest.raises(eh.errors.ModelError, match=told):
            eh.problems.crew_maintenance().with_budget(budget)


def random_problem(rng):
    """A few arms of two types with random tables, and one resource."""
    arms = [
        eh.Arm(rng.dirichlet(np.ones(3), size=(3, 2)), rng.random((3, 2)), usage=[[0], [1]], initial=[1, 0, 0])
        for _ in range(2)
    ]
    return eh.CoupledMDP(arms, [2], 0.7, [3, 3])


class TestKnownPlans:
    """The plan in use competes: a hasty search for what-ifs must not contradict it."""

    @pytest.mark.parametrize("welfare", ["gini:2", "utilitarian", "alpha:2"])
    @pytest.mark.parametrize("seed", range(3))
    def test_more_is_never_worse_than_the_plan_in_use(self, seed, welfare):
        problem = random_problem(np.random.default_rng(seed))
        today = eh.solve(problem, welfare, "counts")
        rows = solve(problem, welfare, SolveMethod("fluid", seconds=1e-3, plans=[today]), budgets=[3, 2, 2.5, 1])
        by_budget = {row.budget["resource 0"]: row for row in rows}
        for smaller, larger in ((1, 2), (2, 2.5), (2.5, 3)):
            assert by_budget[smaller].solution.welfare <= by_budget[larger].solution.welfare
            assert by_budget[smaller].solution.upper_bound <= by_budget[larger].solution.upper_bound
        for row in rows:
            (beside,) = row.beside
            assert beside.since == {"resource 0": 2.0}
            assert beside.welfare == row.solution.welfare - today.welfare
            # The optimum of today's budget is known: nothing exceeds it there, and nothing larger falls below it.
            if row.budget["resource 0"] >= 2:
                assert row.solution.welfare >= today.welfare
        own = by_budget[2]
        assert own.solution.welfare == pytest.approx(today.welfare, abs=4 * own.solution.welfare_stderr + 1e-9)
        if own.reused_from:
            assert own.solution.welfare == today.welfare
            assert not own.beside[0].measurable

    def test_a_plan_for_a_larger_budget_competes_resized(self, monkeypatch):
        problem, tried = random_problem(np.random.default_rng(0)), {}
        today = eh.solve(problem, "gini:2", eh.SolveMethod("fluid", seconds=1e-3))
        search = module.solve

        def watched(problem, *arguments, **options):
            tried.update(arguments[1].candidates)
            return search(problem, *arguments, **options)

        monkeypatch.setattr(module, "solve", watched)
        (row,) = solve(problem, "gini:2", SolveMethod("fluid", seconds=1e-3, plans=[today]), budgets=[1])
        (resized,) = tried.values()
        played = eh.evaluate(problem.with_budget(1), resized, "gini:2")
        assert played.budget_used[0] <= 1
        assert row.solution.welfare >= played.welfare - 4 * np.hypot(row.solution.welfare_stderr, played.welfare_stderr)

    def test_a_saved_plan_has_its_figures_with_it(self, tmp_path):
        problem = random_problem(np.random.default_rng(1))
        today = eh.solve(problem, "gini:2", "counts")
        eh.save_solution(today, tmp_path / "today.zip")
        plan = eh.load_plan(tmp_path / "today.zip")
        (row,) = solve(problem, "gini:2", SolveMethod("fluid", seconds=1e-3, plans=[plan]), budgets=[2])
        assert row.beside[0].welfare == row.solution.welfare - today.welfare >= 0

    def test_a_plan_judged_by_another_welfare_is_evaluated(self):
        problem = random_problem(np.random.default_rng(2))
        today = eh.solve(problem, "maximin", "counts")
        (row,) = solve(problem, "utilitarian", SolveMethod("counts", plans=[today]), budgets=[2])
        own = eh.evaluate(problem, today.policy, "utilitarian")
        assert row.beside[0].welfare == pytest.approx(row.solution.welfare - own.welfare)

    def test_its_evaluation_reports_progress(self, monkeypatch):
        problem, news = random_problem(np.random.default_rng(2)), []
        today = eh.solve(problem, "maximin", "counts")
        evaluate = module.evaluate

        def watched(*arguments, progress, **options):
            progress("playing", 0.5)
            return evaluate(*arguments, progress=progress, **options)

        monkeypatch.setattr(module, "evaluate", watched)
        how = SolveMethod("counts", plans=[today])
        solve(problem, "utilitarian", how, budgets=[2], progress=lambda *what: news.append(what))
        shares = [share for _, share in news]
        assert 0.25 in shares and shares == sorted(shares)

    def test_a_plan_that_misses_the_floors_is_refused(self):
        problem = random_problem(np.random.default_rng(3))
        idle = eh.solve(problem, "utilitarian", "counts")
        floored = replace(idle, policy=eh.policies.never_act(problem))
        strict = eh.CoupledMDP(problem.types, [2], 0.7, [3, 3], floors=[0.2, 0.2])
        with pytest.raises(InvalidInputError, match="floors"):
            solve(strict, "utilitarian", SolveMethod(plans=[floored]), budgets=[2])

    def test_a_plan_for_other_arms_is_refused(self):
        today = eh.solve(random_problem(np.random.default_rng(0)), "gini:2", "counts")
        with pytest.raises(eh.errors.NotApplicableError):
            solve(random_problem(np.random.default_rng(1)), "gini:2", SolveMethod(plans=[today]), budgets=[2])


@pytest.mark.parametrize(("seed", "welfare"), [(0, "gini:2"), (1, "maximin"), (2, "alpha:2")])
def test_more_is_never_worse_by_simulation(seed, welfare):
    """Arms that are too many for exact values, and a search that is over before it began."""
    rng = np.random.default_rng(seed)
    arms = [
        eh.Arm(rng.dirichlet(np.ones(3), size=(3, 2)), rng.random((3, 2)), usage=[[0], [1]], initial=[1, 0, 0])
        for _ in range(4)
    ]
    problem = eh.CoupledMDP(arms, [6], 0.8, [6] * 4)
    hasty = SolveMethod("fluid", seconds=1e-3)
    with limited_effort(paired_steps=1e5):
        first = solve(problem, welfare, hasty, budgets=[6])
        today = first[0].solution
        rows = solve(problem, welfare, replace(hasty, plans=[today]), budgets=[6, 7, 8, 10, 5])
        again = solve(problem, welfare, replace(hasty, plans=[today, rows[2].solution]), budgets=[9])
        judge = module.CommonEpisodes.of(problem, today.objective.welfare, 0)
        resized = judge.resized(rows[3].solution, problem)
    played = eh.evaluate(problem, resized.policy, welfare)
    assert resized.problem.budget.tolist() == [6] and played.budget_used[0] <= 1 + 1e-9
    assert resized.welfare == pytest.approx(
        played.welfare, abs=4 * np.hypot(resized.welfare_stderr, played.welfare_stderr)
    )
    assert today.welfare_stderr > 0
    own, *more, less = rows
    welfares = [less.solution.welfare, today.welfare, *(row.solution.welfare for row in more)]
    assert own.solution.welfare >= today.welfare == rows.known[0].welfare == again.known[0].welfare
    assert sorted(welfares[1:]) == welfares[1:]
    assert again[0].solution.welfare >= rows[2].solution.welfare
    for row in more:
        step = row.beside[0]
        apart = np.hypot(row.solution.welfare_stderr, today.welfare_stderr)
        assert step.welfare == row.solution.welfare - today.welfare >= 0
        assert step.stderr <= apart
        assert step.measurable == (step.welfare > max(step.stderr, 1e-8 * abs(row.solution.welfare)))


def test_the_error_of_a_paired_difference_is_that_of_many_repetitions():
    problem = eh.CoupledMDP(
        [eh.Arm(np.random.default_rng(5).dirichlet(np.ones(3), size=(3, 2)), [[1, 1], [0.5, 0.5], [0, 0]], [[0], [1]])],
        [6],
        0.8,
        [24],
    )
    policies = [eh.policies.worst_first(problem.with_budget(budget)) for budget in (6, 7)]
    found = []
    for seed in range(40):
        before, after = (
            eh.evaluate(problem.with_budget(b), p, "utilitarian", 50, 30, rng=seed, method="monte-carlo")
            for b, p in zip((6, 7), policies, strict=True)
        )
        found.append(module.step_between(before, after, problem))
    spread = np.std([step.welfare for step in found], ddof=1)
    assert np.mean([step.stderr for step in found]) == pytest.approx(spread, rel=0.35)


def test_a_difference_below_its_error_is_not_measurable():
    found = replace(eh.solve(outreach(), "maximin"), upper_bound=100.0)
    for more, error, measurable in ((0.5, 0.1, True), (0.05, 0.1, False), (1e-9, 0.0, False), (-0.5, 0.1, True)):
        after = replace(found, welfare=found.welfare + more, welfare_stderr=error, unit_values=found.unit_values + 1)
        step = module.step_between(found, after, found.problem)
        assert (step.measurable, step.stderr) == (measurable, error)


class TestOtherPromises:
    """Known plans that were made for other promised waits, or for none."""

    @pytest.fixture
    def free(self):
        useless = eh.Arm([[[1.0], [1.0]]], [[1.0, 1.0]], [[0], [1]], states=["here"])
        good = eh.Arm([[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]], [[1, 1], [0, 0]], [[0], [1]], states=["up", "down"])
        return eh.CoupledMDP([useless, good], [1.0], 0.9, counts=[2, 4])

    @pytest.mark.parametrize("method", ["fluid", "auto"])
    def test_a_plan_without_promises_competes_under_them(self, free, method):
        before = eh.solve(free, "utilitarian", eh.SolveMethod("fluid", seconds=0.2))
        promised = free.with_max_wait({"here": 3})
        how = eh.SolveMethod(method, seconds=0.2, plans=[before])
        sweep = eh.solve(promised, "utilitarian", how, budgets=[1.0])
        assert sweep.known[0].welfare < before.welfare - 0.5
        found = sweep[0].solution
        assert found.welfare <= found.upper_bound + 3 * found.welfare_stderr
        assert share_broken(promised, found.policy, 0, 1e4)[0] == 0

    def test_waiting_times_of_other_promises_are_refused(self, free):
        plan = eh.solve(free.with_max_wait({"here": 3}), "utilitarian", "counts")
        for other in (free, free.with_max_wait({"here": 5})):
            with pytest.raises(NotApplicableError):
                eh.solve(other, "utilitarian", eh.SolveMethod("fluid", seconds=0.5, plans=[plan]), budgets=[1.0])


def promised_outreach():
    """A promise, and a plan that solves a program at every step."""
    problem = eh.problems.health_outreach(num_arms=30, num_states=3, budget=6, discount=0.8)
    relaxed = eh.planning.relax(problem, "utilitarian")
    plan = eh.Plan(eh.policies.look_ahead(problem, relaxed.weights, relaxed.prices, steps=5), problem)
    return problem.with_max_wait({"lapsed": 8}), plan


def test_a_hurried_search_under_more_budget_leaves_the_plan_in_use_resized(monkeypatch):
    """If nothing good is found, the plan in use serves more arms; it is not reused as it is."""
    problem, plan = promised_outreach()
    poor = eh.solve(problem, "utilitarian", SolveMethod("fluid", seconds=0.1))

    def nothing(budgeted, *_, **__):
        policy = keep_promises(budgeted, eh.policies.never_act(budgeted))
        return replace(poor, problem=budgeted, policy=policy, upper_bound=np.inf)

    monkeypatch.setattr(module, "solve", nothing)
    method = SolveMethod("fluid", plans=[plan])
    with limited_effort(arm_steps=2e4, paired_steps=1e5, report_steps=2e4):
        sweep = module.solve_budgets(problem, [7.0], eh.model.read_welfare(problem, "utilitarian"), method, None, 0)
    (row,) = sweep.rows
    assert row.reused_from is None
    assert row.beside[0].welfare > 0 and row.beside[0].measurable


def test_a_known_plan_is_not_played_longer_than_it_is_compared(monkeypatch):
    """Figures that others replace are those of few programs."""
    problem, plan = promised_outreach()
    solved = []
    original = LookAhead._solve
    monkeypatch.setattr(LookAhead, "_solve", lambda self, counts: solved.append(1) or original(self, counts))
    with limited_effort(arm_steps=2e4):
        found = module.figured(plan, problem, "utilitarian", 0)
    assert 0 < len(solved) < 3000
    assert found.welfare_stderr > 0


def test_the_share_of_broken_promises_takes_few_programs(monkeypatch):
    problem, plan = promised_outreach()
    solved = []
    original = LookAhead._solve
    monkeypatch.setattr(LookAhead, "_solve", lambda self, counts: solved.append(1) or original(self, counts))
    broken, _ = share_broken(problem, keep_promises(problem, plan.policy), 0, 1e5)
    assert 0 < len(solved) < 3000
    assert 0 <= broken <= 1


def test_a_part_that_is_played_briefly_does_not_shorten_the_others():
    """Programs play few episodes, ranks many: the value of their mixture is of all of them, as are differences."""
    _, plan = promised_outreach()
    problem = plan.problem
    ranks = eh.policies.worst_first(problem)
    found = replace(eh.solve(problem, "utilitarian", SolveMethod("fluid", seconds=0.1)), welfare_stderr=1.0)
    judge = module.CommonEpisodes.of(problem, found.objective.welfare, 0)
    with limited_effort(paired_steps=1e5):
        parts = [judge(replace(found, policy=one)) for one in (ranks, plan.policy)]
        mixed = judge(replace(found, policy=eh.model.MixturePolicy([ranks, plan.policy], [0.9, 0.1])))
    lengths = [len(one.samples.returns[0]) for one in (*parts, mixed)]
    assert lengths[0] > lengths[1] and lengths[2] == lengths[0]
    assert mixed.unit_values == pytest.approx(0.9 * parts[0].unit_values + 0.1 * parts[1].unit_values)
    assert mixed.welfare_stderr < parts[1].welfare_stderr
    assert module.step_between(parts[1], parts[0], problem).stderr > 0.5 * parts[1].welfare_stderr
