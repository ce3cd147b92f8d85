"""Column generation and the other methods against cvxpy, on product spaces that are written out by enumeration."""

from collections.abc import Callable
from functools import cache
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import OutOfDomainError
from evenhand.evaluation import exact_values
from evenhand.model import AlphaFair, Arm, CoupledMDP, Gini, Maximin, RankWeighted, Utilitarian, parse_welfare
from evenhand.planning import Solution
from evenhand.planning.solve import solve
from evenhand.problems import health_outreach
from evenhand.solvers import Counts, Joint, TabularPricing, best_mixture, occupancy_measure, project_types, values

from ..conftest import crossed
from ..theorems.product_space import (
    ProductSpace,
    best_concave,
    best_gini,
    best_leximin,
    best_weighted,
    gini_weights,
    random_arm,
    random_symmetric,
)


def mixed(
    seed: int,
    sizes: list[tuple[int, int]],
    counts: list[int] | None = None,
    budget: list[float] | None = None,
    discount: float = 0.9,
    scale: float = 1.0,
    shift: float = 0.0,
) -> CoupledMDP:
    """Arms that differ in everything, (states, actions) each; their usage depends on the state.

    Args:
        scale: all rewards are (reward + shift) * scale.
    """
    rng = np.random.default_rng(seed)
    budget = [1.0] if budget is None else budget
    arms = [random_arm(rng, states, actions, len(budget)) for states, actions in sizes]
    arms = [Arm(arm.transitions, scale * (arm.rewards + shift), arm.usage, arm.initial) for arm in arms]
    return CoupledMDP(arms, budget, discount, counts)


PROBLEMS: dict[str, Callable[[], CoupledMDP]] = {
    "two arms": lambda: mixed(0, [(3, 2), (2, 2)]),
    "three arms, many actions, two resources": lambda: mixed(1, [(2, 3), (3, 2), (2, 2)], budget=[2.0, 1.0]),
    "four arms": lambda: mixed(2, [(2, 2)] * 4, budget=[2.0]),
    "two types of two": lambda: mixed(3, [(2, 2), (2, 3)], counts=[2, 2], budget=[2.0, 2.0]),
    "types of three and one": lambda: mixed(4, [(2, 2), (3, 2)], counts=[3, 1], budget=[2.0]),
    "identical": lambda: random_symmetric(5, num_arms=3, num_actions=3, num_resources=2),
}

WELFARES = ["gini:2", "weights", "maximin", "maximin:0.1", "utilitarian"]
ALPHAS = ["alpha:0.5", "nash", "alpha:2", "alpha:10"]


@cache
def space_of(name: str) -> ProductSpace:
    return ProductSpace(PROBLEMS[name]())


def text_of(welfare: str, num_arms: int) -> str:
    if welfare != "weights":
        return welfare
    return "gini:" + ",".join({2: ["0.7", "0.3"], 3: ["0.5", "0.5", "0"], 4: ["0.4", "0.4", "0.15", "0.05"]}[num_arms])


@cache
def optimum(name: str, welfare: str) -> float:
    space = space_of(name)
    return oracle(space, text_of(welfare, space.num_arms))


def oracle(space: ProductSpace, welfare: str) -> float:
    return best_concave(space, lambda v: expression(v, welfare))


def expression(v: cp.Expression, welfare: str) -> cp.Expression:
    """A welfare in cvxpy's words: sums of the least values, and norms of negative order."""
    measure = parse_welfare(welfare, v.size)
    if isinstance(measure, AlphaFair):
        if measure.alpha == 1:
            return cp.geo_mean(v)
        power = 1 - measure.alpha
        return cp.pnorm(v, power) * v.size ** (-1 / power)
    assert isinstance(measure, RankWeighted)
    weights = np.append(measure.rank_weights(v.size), 0.0)
    steps = weights[:-1] - weights[1:]
    return sum(step * cp.sum_smallest(v, k + 1) for k, step in enumerate(steps) if step > 0)


def check_certificate(solution: Solution, best: float) -> None:
    """The optimum lies between the bounds, the policy is worth what was said, and the gap is what the bounds say."""
    slack = 1e-6 * max(1.0, abs(best))
    assert solution.welfare == pytest.approx(best, abs=slack)
    assert solution.upper_bound == pytest.approx(best, abs=slack)
    assert solution.welfare <= solution.upper_bound + 1e-9
    found = exact_values(solution.problem, solution.policy)
    welfare = solution.objective(found.values)
    assert welfare == pytest.approx(solution.welfare, rel=1e-8, abs=1e-9)
    expected = max(0.0, solution.upper_bound - solution.welfare) / abs(solution.upper_bound)
    assert solution.gap == pytest.approx(expected, abs=1e-11)
    assert len(solution.values) == solution.problem.num_arms
    assert float(solution.objective.welfare(solution.values)) == pytest.approx(solution.welfare, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(("name", "welfare", "method"), crossed(PROBLEMS, [*WELFARES, *ALPHAS], ["joint", "counts"]))
def test_column_generation_finds_the_optimum(name: str, welfare: str, method: str) -> None:
    problem = space_of(name).problem
    check_certificate(solve(problem, text_of(welfare, problem.num_arms), method), optimum(name, welfare))


@pytest.mark.parametrize(("welfare", "name"), crossed(WELFARES, PROBLEMS))
def test_joint_lp_finds_the_optimum(name: str, welfare: str) -> None:
    problem = space_of(name).problem
    check_certificate(solve(problem, text_of(welfare, problem.num_arms), "joint-lp"), optimum(name, welfare))


@pytest.mark.parametrize("name", PROBLEMS)
def test_count_lp_finds_the_best_mean(name: str) -> None:
    check_certificate(solve(space_of(name).problem, "utilitarian", "count-lp"), optimum(name, "utilitarian"))


@pytest.mark.parametrize("welfare", [*WELFARES, *ALPHAS, "leximin"])
def test_count_lp_serves_every_welfare_of_identical_arms(welfare: str) -> None:
    problem = space_of("identical").problem
    solution = solve(problem, text_of(welfare, problem.num_arms), "count-lp")
    check_certificate(solution, optimum("identical", "utilitarian"))


@pytest.mark.parametrize(("method", "name"), crossed(["joint", "counts"], PROBLEMS))
def test_leximin_raises_each_arm_in_turn(name: str, method: str) -> None:
    space = space_of(name)
    solution = solve(space.problem, "leximin", method)
    np.testing.assert_allclose(np.sort(solution.values), best_leximin(space), atol=1e-6)
    check_certificate(solution, optimum(name, "maximin"))


@pytest.mark.parametrize(
    ("seed", "num_arms"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow if case[0] > 2 else ()) for case in product(range(8), (2, 3, 4))),
        *((seed, 4) for seed in (44, 79, 94, 171)),
    ],
)
def test_leximin_of_random_arms(seed: int, num_arms: int) -> None:
    """Some arms are better off by so much that nobody holds them down: each stage must fix the right ones."""
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, 2, 2, 1) for _ in range(num_arms)]
    level = rng.integers(0, 2, size=num_arms)
    arms = [Arm(a.transitions, a.rewards + up, a.usage, a.initial) for a, up in zip(arms, level, strict=True)]
    problem = CoupledMDP(arms, [float(rng.integers(1, 4))], 0.8)
    solution = solve(problem, "leximin", "joint")
    np.testing.assert_allclose(np.sort(solution.values), best_leximin(ProductSpace(problem)), atol=1e-6)


def test_leximin_goes_beyond_maximin() -> None:
    """A poor arm that nothing helps: maximin is content with it, leximin goes on to share among the others."""
    poor = Arm(np.ones((1, 2, 1)), [[0.0, 0.0]], [[0.0], [1.0]])
    other = Arm(np.ones((1, 2, 1)), [[1.0, 2.0]], [[0.0], [1.0]])
    more = Arm(np.ones((1, 2, 1)), [[1.0, 3.0]], [[0.0], [1.0]])
    problem = CoupledMDP([poor, other, more], [1.0], 0.5)
    solution = solve(problem, "leximin", "joint")
    # With a share z of the steps for `other`: 2 + 2 z = 2 + 4 (1 - z), so z = 2/3.
    np.testing.assert_allclose(solution.values, [0.0, 10 / 3, 10 / 3], atol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_random_weights_on_random_arms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = mixed(seed, [(2, 2), (2, 3), (2, 2)], budget=[float(rng.integers(1, 4))], shift=float(-rng.random()))
    weights = gini_weights(rng, 3)
    welfare = "gini:" + ",".join(repr(float(w)) for w in weights)
    space = ProductSpace(problem)
    for method in ("joint", "joint-lp"):
        solution = solve(problem, welfare, method)
        best = best_gini(space, weights)
        assert solution.welfare == pytest.approx(best, abs=1e-6)
        assert solution.welfare - 1e-7 <= best <= solution.upper_bound + 1e-7


@pytest.mark.parametrize(
    ("welfare", "discount"), crossed(["gini:2", "maximin", "leximin", "nash", "alpha:10"], [0.0, 0.999])
)
def test_extreme_discounts(discount: float, welfare: str) -> None:
    problem = mixed(6, [(2, 2), (3, 2), (2, 2)], discount=discount)
    best = oracle(ProductSpace(problem), "maximin" if welfare == "leximin" else welfare)
    for method in ("joint", "counts"):
        check_certificate(solve(problem, welfare, method), best)


@pytest.mark.parametrize("welfare", ["gini:2", "maximin", "alpha:2"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale: float, welfare: str) -> None:
    sizes = [(2, 2), (3, 2), (2, 2)]
    usual, scaled = (solve(mixed(6, sizes, scale=factor), welfare, "joint") for factor in (1.0, scale))
    assert scaled.welfare == pytest.approx(scale * usual.welfare, rel=1e-7)
    assert scaled.gap <= 1e-7


def uneven(seed: int, levels: list[float], discount: float) -> CoupledMDP:
    """Arms that earn very differently."""
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, 2, 2, 1) for _ in levels]
    arms = [Arm(a.transitions, level * a.rewards, a.usage, a.initial) for a, level in zip(arms, levels, strict=True)]
    return CoupledMDP(arms, [1.0], discount)


@pytest.mark.parametrize(("welfare", "seed"), crossed(["gini:2", "maximin", "leximin", "nash"], range(3)))
def test_arms_that_earn_very_differently(seed: int, welfare: str) -> None:
    problem = uneven(seed, [1.0, 0.1, 0.01], 0.9)
    best = oracle(ProductSpace(problem), "maximin" if welfare == "leximin" else welfare)
    assert solve(problem, welfare, "joint").welfare == pytest.approx(best, rel=1e-5)


def test_units_do_not_matter_for_leximin() -> None:
    sizes, scale = [(2, 2), (3, 2), (2, 3)], 1e-6
    usual, scaled = (solve(mixed(4, sizes, scale=factor), "leximin", "joint") for factor in (1.0, scale))
    np.testing.assert_allclose(scaled.values, scale * usual.values, rtol=1e-4)


def test_leximin_of_arms_that_earn_very_differently() -> None:
    problem = uneven(4, [1.0, 0.01, 0.01], 0.5)
    solution = solve(problem, "leximin", "joint")
    np.testing.assert_allclose(np.sort(solution.values), best_leximin(ProductSpace(problem)), atol=1e-6)


def test_a_small_optimum_is_certified_in_few_rounds() -> None:
    """Two arms of two states: a handful of vectors is enough."""
    problem = uneven(0, [1e-4, 1.0], 0.99)
    best = oracle(ProductSpace(problem), "maximin")
    pricing = TabularPricing(Joint(problem).mdp)
    mixture = best_mixture(pricing, Maximin(), np.ones(2, dtype=np.int64), max_rounds=40)
    assert mixture.welfare == pytest.approx(best, rel=1e-4)


def test_joint_lp_of_patient_arms() -> None:
    """Which of these fail depends on the solver's mood; none may."""
    for seed, welfare in ((249, "maximin:0.01"), (249, "gini:2"), (18, "maximin:0.01"), (83, "maximin:0.1")):
        rng = np.random.default_rng(seed)
        arms = []
        for _ in range(rng.integers(2, 5)):
            arm = random_arm(rng, 2, 2, 1)
            rewards = arm.rewards * 10.0 ** -rng.integers(0, 4) - (rng.random() < 0.3)
            arms.append(Arm(arm.transitions, rewards, arm.usage, arm.initial))
        problem = CoupledMDP(arms, [float(rng.integers(0, 2))], 0.99)
        best = solve(problem, welfare, "joint").welfare
        assert solve(problem, welfare, "joint-lp").welfare == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("welfare", ["gini:2", "maximin", "leximin", "utilitarian", "nash", "alpha:10"])
@pytest.mark.parametrize("method", ["joint", "counts"])
def test_one_arm(method: str, welfare: str) -> None:
    """Every welfare of one arm is its value."""
    problem = mixed(7, [(3, 3)])
    check_certificate(solve(problem, welfare, method), oracle(ProductSpace(problem), "utilitarian"))


@pytest.mark.parametrize("budget", [0.0, 1e6], ids=["none", "plenty"])
@pytest.mark.parametrize("welfare", ["gini:2", "leximin", "nash"])
def test_without_competition_every_arm_does_its_own_best(welfare: str, budget: float) -> None:
    """With no budget or with plenty, arms do not meet: each has the optimum of its own problem."""
    problem = mixed(8, [(2, 2), (3, 2), (2, 3)], budget=[budget])
    alone = [solve(CoupledMDP([arm], problem.budget, problem.discount), "utilitarian").welfare for arm in problem.arms]
    for method in ("joint", "counts"):
        solution = solve(problem, welfare, method)
        expected = float(solution.objective.welfare(np.array(alone)))
        assert solution.welfare == pytest.approx(expected, abs=1e-6)
        assert solution.upper_bound == pytest.approx(expected, abs=1e-6)


class TestAlphaFairDomain:
    """Where rewards are negative, alpha-fairness may have no policy in its domain, or only some."""

    @pytest.mark.parametrize("welfare", ALPHAS)
    @pytest.mark.parametrize("method", ["joint", "counts"])
    def test_no_policy_is_in_it(self, method: str, welfare: str) -> None:
        problem = mixed(0, [(2, 2), (2, 2), (3, 2)], shift=-2.0)
        with pytest.raises(OutOfDomainError) as caught:
            solve(problem, welfare, method)
        worst = oracle(ProductSpace(problem), "maximin")
        if welfare != "alpha:0.5":  # which needs values of at least 0, and refuses before it solves
            assert f"{worst:.5g}"[:-1] in str(caught.value)

    @pytest.mark.parametrize("method", ["counts", "count-lp", "joint"])
    def test_no_policy_of_identical_arms_is_in_it(self, method: str) -> None:
        arm = Arm(np.ones((1, 2, 1)), [[-1.0, -0.5]], [[0.0], [1.0]])
        with pytest.raises(OutOfDomainError):
            solve(CoupledMDP([arm], [1.0], 0.5, [2]), "nash", method)

    @pytest.mark.parametrize("welfare", ALPHAS)
    @pytest.mark.parametrize("method", ["joint", "counts"])
    def test_the_best_mean_is_not_in_it(self, method: str, welfare: str) -> None:
        """All for the strong arm gives (-2, 6); only sharing lifts both above zero."""
        weak = Arm(np.ones((1, 2, 1)), [[-1.0, 1.0]], [[0.0], [1.0]])
        strong = Arm(np.ones((1, 2, 1)), [[-1.0, 3.0]], [[0.0], [1.0]])
        problem = CoupledMDP([weak, strong], [1.0], 0.5)
        np.testing.assert_allclose(solve(problem, "utilitarian", method).values, [-2.0, 6.0])
        check_certificate(solve(problem, welfare, method), oracle(ProductSpace(problem), welfare))

    def test_alpha_zero_is_the_mean_and_has_no_domain(self) -> None:
        problem = mixed(0, [(2, 2), (2, 2), (3, 2)], shift=-2.0)
        best = oracle(ProductSpace(problem), "utilitarian")
        assert solve(problem, "alpha:0", "joint").welfare == pytest.approx(best, abs=1e-6)

    @pytest.mark.parametrize("method", ["joint", "counts"])
    def test_an_arm_that_can_have_nothing_is_refused(self, method: str) -> None:
        nothing = Arm(np.ones((1, 2, 1)), [[0.0, 0.0]], [[0.0], [1.0]])
        something = Arm(np.ones((1, 2, 1)), [[1.0, 2.0]], [[0.0], [1.0]])
        problem = CoupledMDP([nothing, something], [1.0], 0.5)
        for welfare in ("alpha:0.5", "nash"):
            with pytest.raises(OutOfDomainError):
                solve(problem, welfare, method)


def test_an_optimum_of_zero_is_proved_optimal() -> None:
    rng = np.random.default_rng(3)
    arms = [random_arm(rng, 2, 2, 1) for _ in range(3)]
    poor = Arm(arms[0].transitions, np.zeros((2, 2)), arms[0].usage)
    solution = solve(CoupledMDP([poor, *arms[1:]], [1.0], 0.9), "maximin", "joint")
    assert solution.welfare == 0.0
    assert solution.upper_bound == pytest.approx(0.0, abs=1e-9)
    assert solution.gap <= 1e-6


class TestBestMixture:
    """The mixture itself, apart from the methods built on it."""

    @pytest.mark.parametrize("welfare", ["gini:2", "maximin", "leximin", "nash"])
    def test_shares_values_and_policy_agree(self, welfare: str) -> None:
        space = space_of("three arms, many actions, two resources")
        joint = Joint(space.problem)
        pricing = TabularPricing(joint.mdp)
        mixture = best_mixture(pricing, parse_welfare(welfare, 3), np.ones(3, dtype=np.int64))
        assert len(mixture.shares) == len(pricing.choices) == mixture.rounds
        assert mixture.shares.min() >= 0
        assert mixture.shares.sum() == pytest.approx(1.0)
        priced = zip(pricing.choices, pricing.visits, strict=True)
        vectors = [visits @ joint.mdp.rewards[choices] for choices, visits in priced]
        np.testing.assert_allclose(mixture.shares @ vectors, mixture.values, atol=1e-9)
        policy = pricing.mixed_parts(mixture.shares)[0][1]
        np.testing.assert_allclose(values(joint.mdp, occupancy_measure(joint.mdp, policy)), mixture.values, atol=1e-8)
        assert mixture.welfare == pytest.approx(float(parse_welfare(welfare, 3)(mixture.values)))

    @given(st.integers(0, 2**32 - 1))
    def test_mixing_policies_mixes_values(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        joint = Joint(mixed(seed, [(2, 2), (3, 2)]))
        pricing = TabularPricing(joint.mdp)
        priced = np.array([pricing(rng.dirichlet(np.ones(2)), 1e-9).vectors[:, 0] for _ in range(4)])
        shares = rng.dirichlet(np.ones(4)) * (np.arange(4) != seed % 4)
        shares /= shares.sum()
        mixed_values = values(joint.mdp, occupancy_measure(joint.mdp, pricing.mixed_parts(shares)[0][1]))
        np.testing.assert_allclose(mixed_values, shares @ priced, atol=1e-9)

    @given(st.integers(0, 2**32 - 1))
    def test_a_price_is_an_upper_bound(self, seed: int) -> None:
        """However loose the tolerance, no policy has more than the bound, and the vector is the policy's own."""
        rng = np.random.default_rng(seed)
        space = ProductSpace(mixed(seed, [(2, 2), (3, 2)], shift=-0.5))
        joint = Joint(space.problem)
        weights = rng.dirichlet(np.ones(2))
        for tolerance in (0.5, 1e-3, 1e-9):
            priced = TabularPricing(joint.mdp)(weights, tolerance)
            vector, bound = priced.vectors[:, 0], priced.bound
            best = best_weighted(space, weights)
            assert weights @ vector <= best + 1e-7
            assert best <= bound + 1e-7
            assert bound - weights @ vector <= tolerance * max(1.0, abs(bound)) + 1e-9

    def test_types_weigh_as_many_arms_as_they_have(self) -> None:
        space = space_of("types of three and one")
        counts = Counts(space.problem)
        mixture = best_mixture(TabularPricing(counts.mdp), Utilitarian(), space.problem.type_counts)
        assert mixture.values @ [0.75, 0.25] == pytest.approx(
            optimum("types of three and one", "utilitarian"), abs=1e-6
        )

    def test_progress_is_reported_and_the_gap_ends_small(self) -> None:
        told: list[tuple[int, float]] = []
        joint = Joint(space_of("four arms").problem)
        best_mixture(
            TabularPricing(joint.mdp),
            Maximin(),
            np.ones(4, dtype=np.int64),
            1e-6,
            lambda rounds, gap: told.append((rounds, gap)),
        )
        assert [rounds for rounds, _ in told] == sorted(rounds for rounds, _ in told)
        assert told[-1][1] <= 1e-6 < told[0][1]

    @pytest.mark.parametrize("welfare", ["maximin", "gini:2", "nash", "leximin"])
    def test_too_few_rounds_leave_a_true_gap(self, welfare: str) -> None:
        name = "three arms, many actions, two resources"
        pricing = TabularPricing(Joint(space_of(name).problem).mdp)
        ones = np.ones(3, dtype=np.int64)
        mixture = best_mixture(pricing, parse_welfare(welfare, 3), ones, max_rounds=1)
        best = optimum(name, "maximin" if welfare == "leximin" else welfare)
        assert mixture.welfare <= best + 1e-6
        assert mixture.upper_bound >= best - 1e-6
        if welfare != "leximin":  # which prices once more in its first stage
            assert mixture.upper_bound - mixture.welfare > 1e-3 * mixture.upper_bound


def projected(point: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(arm,) every arm a type of its own."""
    return project_types(point, np.ones(len(point), dtype=np.int64), Gini(weights))


class TestProjectionOnPermutahedron:
    """The nearest point in the hull of all permutations of the weights."""

    @given(st.integers(0, 2**32 - 1), st.integers(1, 6))
    def test_against_a_quadratic_program(self, seed: int, num_arms: int) -> None:
        """The hull is all Q w with Q doubly stochastic (Birkhoff)."""
        rng = np.random.default_rng(seed)
        weights, point = gini_weights(rng, num_arms), rng.normal(size=num_arms) / num_arms
        mixing = cp.Variable((num_arms, num_arms), nonneg=True)
        constraints = [cp.sum(mixing, axis=0) == 1, cp.sum(mixing, axis=1) == 1]
        nearest = cp.Problem(cp.Minimize(cp.sum_squares(mixing @ weights - point)), constraints)
        nearest.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        np.testing.assert_allclose(projected(point, weights), mixing.value @ weights, atol=1e-5)

    @given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.floats(1e-3, 1e3))
    def test_it_is_majorised_by_the_weights(self, seed: int, num_arms: int, spread: float) -> None:
        """A point is in the hull just if its k largest entries sum to no more than those of w, and all to as much."""
        rng = np.random.default_rng(seed)
        weights, point = gini_weights(rng, num_arms), spread * rng.normal(size=num_arms)
        member = projected(point, weights)
        excess = np.cumsum(np.sort(member)[::-1]) - np.cumsum(weights)
        slack = 1e-12 * (1 + spread) * num_arms
        assert excess.max() <= slack
        assert abs(excess[-1]) <= slack
        again = projected(member, weights)
        np.testing.assert_allclose(again, member, atol=slack)

    @given(st.integers(0, 2**32 - 1), st.integers(2, 8))
    def test_members_stay_and_equal_entries_stay_equal(self, seed: int, num_arms: int) -> None:
        rng = np.random.default_rng(seed)
        weights = gini_weights(rng, num_arms)
        member = np.mean([rng.permutation(weights) for _ in range(3)], axis=0)
        np.testing.assert_allclose(projected(member, weights), member, atol=1e-12)
        point = rng.normal(size=num_arms)
        point[1] = point[0]
        member = projected(point, weights)
        assert member[0] == pytest.approx(member[1], abs=1e-12)
        alike = project_types(point[1:], np.array([2] + [1] * (num_arms - 2)), Gini(weights))
        np.testing.assert_allclose(alike, member[1:], atol=1e-12)

    def test_a_far_point_meets_a_corner(self) -> None:
        weights = np.array([0.5, 0.3, 0.2])
        np.testing.assert_allclose(projected(np.array([-90.0, 90.0, 0.0]), weights), [0.2, 0.5, 0.3])
        np.testing.assert_allclose(projected(np.zeros(3), weights), [1 / 3] * 3)


@pytest.mark.parametrize("method", ["counts", "auto"])
def test_imprecise_multipliers_priced_one_policy_for_ever(method: str) -> None:
    """The master's program was out by the solver's tolerance: 2000 policies, of which 18 were different."""
    problem = health_outreach(num_arms=8, num_states=2, num_groups=4, budget=1)
    solution = solve(problem, "maximin", method)
    assert solution.gap <= 1e-8
    assert solution.welfare == pytest.approx(5.5926065, abs=1e-6)
