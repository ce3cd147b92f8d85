"""`solve`: choice of the method, refusals and reasons."""

from collections.abc import Callable

import numpy as np
import pytest

import evenhand as eh
from evenhand import solve
from evenhand.errors import InvalidInputError, NotApplicableError, OutOfDomainError, TooLargeError, UnknownNameError
from evenhand.evaluation import evaluate
from evenhand.model import Arm, CoupledMDP, Gini
from evenhand.planning import METHODS, SolveMethod, choose_method, methods, task
from evenhand.problems import machine_replacement
from evenhand.solvers import TypedPlan, plan_types

from ..conftest import mentions
from ..theorems.product_space import random_arm


def different(num_arms: int, num_states: int = 2, counts: list[int] | None = None) -> CoupledMDP:
    rng = np.random.default_rng(0)
    arms = [random_arm(rng, num_states, 2, 1) for _ in range(num_arms)]
    return CoupledMDP(arms, [1.0], 0.9, counts)


class TestMethods:
    @pytest.mark.parametrize(("typed", "meant"), [("cuonts", "counts"), ("jont", "joint"), ("joint_lp", "joint-lp")])
    def test_unknown_name(self, typed: str, meant: str) -> None:
        with pytest.raises(UnknownNameError, check=mentions(typed, meant)) as caught:
            solve(different(2), "gini:2", typed)
        assert all(name in str(caught.value) for name in ["auto", *METHODS])

    @pytest.mark.parametrize("welfare", ["alpha:2", "nash", "leximin"])
    def test_joint_lp_is_for_weights(self, welfare: str) -> None:
        with pytest.raises(NotApplicableError, check=mentions("joint-lp", "welfare")):
            solve(different(2), welfare, "joint-lp")

    @pytest.mark.parametrize("welfare", ["gini:2", "maximin", "nash"])
    def test_count_lp_is_for_the_mean_or_identical_arms(self, welfare: str) -> None:
        with pytest.raises(NotApplicableError, check=mentions("2 types")):
            solve(different(2), welfare, "count-lp")

    @pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-3, float("nan"), float("inf")])
    def test_tolerance_is_between_0_and_1(self, tolerance: float) -> None:
        with pytest.raises(InvalidInputError, match="tolerance: expected a number between 0 and 1"):
            solve(different(2), method=SolveMethod(tolerance=tolerance))

    def test_welfare_for_another_number_of_arms(self) -> None:
        with pytest.raises(InvalidInputError, check=mentions("3 arms", 2)):
            solve(different(2), Gini([0.5, 0.3, 0.2]))

    @pytest.mark.parametrize("method", METHODS)
    def test_a_looser_tolerance_still_brackets(self, method: str) -> None:
        problem = machine_replacement(num_arms=3, budget=1, discount=0.8)
        loose, tight = solve(problem, method=SolveMethod(method, tolerance=1e-2)), solve(problem, method=method)
        assert loose.welfare <= tight.upper_bound + 1e-9
        assert loose.upper_bound >= tight.welfare - 1e-9
        assert loose.gap <= (5e-2 if method in ("whittle", "fluid") else 1e-2)  # the fluid bound is not tight


class TestTooLarge:
    """Refused before any work, with the size and a way on."""

    @pytest.mark.parametrize("method", ["joint", "joint-lp"])
    def test_forty_different_arms_on_the_product_space(self, method: str) -> None:
        with pytest.raises(TooLargeError) as caught:
            solve(different(40, num_states=3), "gini:2", method)
        assert mentions("3^40", "10^19")(str(caught.value))
        assert "Use fewer arms, or counts if many arms are identical" in str(caught.value)

    @pytest.mark.parametrize("method", ["counts", "count-lp"])
    def test_forty_different_arms_by_counts(self, method: str) -> None:
        with pytest.raises(TooLargeError, check=mentions("10^19")):
            solve(different(40, num_states=3), "utilitarian", method)

    def test_no_table_is_begun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: object, **kwargs: object) -> None:
            raise AssertionError("work was begun")

        monkeypatch.setattr(methods, "TabularPricing", fail)
        monkeypatch.setattr(np, "column_stack", fail)
        with pytest.raises(TooLargeError):
            solve(different(40, num_states=3), "gini:2", "joint")

    def test_no_exact_method_by_counts_of_many_states(self) -> None:
        rng = np.random.default_rng(0)
        problem = CoupledMDP([random_arm(rng, 30, 2, 1)], [1.0], 0.9, [1000])
        with pytest.raises(TooLargeError):
            solve(problem, "gini:2", "counts")


class TestAuto:
    def test_identical_arms_by_counts(self) -> None:
        solution = solve(machine_replacement(num_arms=4, budget=1))
        assert solution.method == "counts"
        assert mentions("4 arms", "15 states")(solution.reason)

    def test_few_types_by_counts(self) -> None:
        solution = solve(different(2, counts=[3, 2]))
        assert solution.method == "counts"
        assert mentions("2 types", "12 states", "32 states")(solution.reason)

    def test_different_arms_by_the_product_space(self) -> None:
        solution = solve(different(3))
        assert solution.method == "joint"
        assert mentions("3 types", "8 states")(solution.reason)

    def test_requested(self) -> None:
        assert solve(different(2), method="joint").reason == "requested"

    def test_names_the_limit_and_the_method_that_lifts_it(self, effort: Callable[..., None]) -> None:
        """Whichever limit is the reason, its size is in the words, and the method that does without it works."""
        effort(joint_states=7, operations=10.0)
        method, reason = choose_method(different(3))
        assert method == "fluid"
        assert mentions("joint", "8 states", 7)(reason)
        assert solve(different(3), method="joint").method == "joint"
        method, reason = choose_method(machine_replacement(num_arms=3))
        assert method == "fluid"
        assert mentions("counts", 10)(reason)

    @pytest.mark.parametrize("problem", [different(2), different(2, counts=[2, 1]), machine_replacement(num_arms=3)])
    def test_solves_by_the_chosen_method(self, problem: CoupledMDP) -> None:
        method, reason = choose_method(problem)
        solution = solve(problem)
        assert (solution.method, solution.reason) == (method, reason)


class TestSolution:
    def test_time_of_planning_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]

        def plan(problem: CoupledMDP) -> TypedPlan:
            clock[0] += 100.0
            return plan_types(problem)

        monkeypatch.setattr(methods, "plan_types", plan)
        monkeypatch.setattr(task, "work_clock", lambda: clock[0])
        assert solve(different(2, counts=[2, 1]), method="counts").seconds == {"build": 100.0, "solve": 0.0}

    @pytest.mark.parametrize("method", METHODS)
    def test_progress_and_times(self, method: str) -> None:
        told: list[tuple[str, float]] = []
        solution = solve(
            machine_replacement(num_arms=3, budget=1, discount=0.8),
            "gini:2",
            method,
            progress=lambda *news: told.append(news),
        )
        played = {"play"} if method in ("whittle", "fluid") else set()
        assert set(solution.seconds) - {"compile"} == {"build", "solve"} | played
        assert min(solution.seconds.values()) >= 0
        if method in ("counts", "joint"):
            assert told
            assert all(what.startswith((f"{method}, round ", f"{method}: ")) for what, _ in told)
            assert all(0 <= share <= 1 for _, share in told)
            assert told[-1][1] == 1.0

    @pytest.mark.parametrize("method", ["counts", "joint"])
    def test_types_are_distinguished(self, method: str) -> None:
        """Arms written as first, second, first: values come in that order, whatever the method groups by."""
        rng = np.random.default_rng(1)
        first, second = random_arm(rng, 2, 2, 1), random_arm(rng, 3, 2, 1)
        problem = CoupledMDP([first, second, first], [1.0], 0.9)
        solution = solve(problem, "gini:2", method)
        found = evaluate(problem, solution.policy, "gini:2", method="exact")
        np.testing.assert_allclose(solution.values, found.values, atol=1e-9)
        assert found.welfare == pytest.approx(solution.welfare, abs=1e-9)
        assert solution.by_type is (method == "counts")
        if method == "counts":
            assert solution.values[0] == solution.values[2] != solution.values[1]

    def test_a_simulation_agrees(self) -> None:
        problem = different(2, counts=[2, 1])
        solution = solve(problem, "maximin")
        played = evaluate(problem, solution.policy, "maximin", 2000, 120, rng=0, method="monte-carlo")
        assert abs(played.worst - solution.welfare) <= 5 * played.member_stderr.max() + played.truncation_bound

    def test_gap_of_a_zero_bound(self) -> None:
        arm = Arm(np.ones((1, 2, 1)), [[0.0, 0.0]], [[0.0], [1.0]])
        solution = solve(CoupledMDP([arm], [1.0], 0.9, [2]))
        assert (solution.welfare, solution.upper_bound, solution.gap) == (0.0, 0.0, 0.0)


def apart(rewards, floor, initial=(0.5, 0.5)):
    """One arm in one of two states that it never leaves; to serve it uses the whole budget."""
    moves = np.repeat(np.eye(2)[:, None], 2, axis=1)
    arm = Arm(moves, rewards, [[0], [1]], initial=initial)
    return CoupledMDP([arm], [1.0], 0.9, floors=[floor], criterion="average")


@pytest.mark.parametrize("method", ["counts", "joint", "count-lp", "joint-lp"])
def test_an_average_meets_its_floors_from_every_state(method):
    """Both states are closed, so the measure falls apart: each part must do its share in both of them."""
    problem = apart(np.ones((2, 2)), 0.5)
    solution = solve(problem, "gini:2", method)
    found = evaluate(problem, solution.policy, method="exact")
    assert found.served[0] >= 0.5 - 1e-9
    assert solution.welfare == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["joint", "counts"])
def test_a_best_mean_of_nothing_is_found(method):
    """No relative gap can be closed at 0."""
    moves = np.array([[2 / 7, 4 / 7, 1 / 7], [1 / 7, 1 / 7, 5 / 7], [0.0, 0.0, 1.0]])[:, None]
    arm = Arm(moves, [[0.625], [0.25], [0.0]], [[0, 0]], initial=np.array([3, 1.5, 2.5]) / 7)
    problem = CoupledMDP([arm], [4.0, 4.0], 0.5, [2], criterion="average", over="groups")
    solution = solve(problem, "maximin", method)
    assert solution.welfare == pytest.approx(0.0, abs=1e-12)
    assert solution.upper_bound == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:4"])
def test_alpha_below_one_needs_arms_that_can_have_something(criterion):
    rich = eh.Arm([[[1.0]] * 2], [[1, 2]], [[0], [1]], name="rich")
    poor = eh.Arm([[[1.0]] * 2], [[0, -1]], [[0], [1]], name="poor")
    problem = eh.CoupledMDP([rich, poor], [1], 0.9, criterion=criterion)
    with pytest.raises(OutOfDomainError, check=mentions("poor")):
        eh.solve(problem, "alpha:0.5")
    assert eh.solve(eh.CoupledMDP([rich, rich], [1], 0.9, criterion=criterion), "alpha:0.5").welfare > 0
