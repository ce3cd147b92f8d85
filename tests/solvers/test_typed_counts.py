"""Counts of several types, applied type by type, against the explicit count table, enumeration, and NumPy."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import NotApplicableError, TooLargeError
from evenhand.kernels import Best, lattice_size, movers_distribution, support_of_movers, type_sweeps
from evenhand.model import Arm, CoupledMDP, Finite
from evenhand.problems import crew_maintenance
from evenhand.solvers import (
    Counts,
    Operators,
    Visits,
    occupancy_measure,
    plan_types,
    solve_types,
    solve_weighted,
    total_visits,
    typed_policy,
)
from evenhand.typing import Floats

from ..conftest import crossed
from ..oracles import type_sweeps as plain_sweeps

CRITERIA = ["discounted", "average", "finite:4"]


def random_arm(rng: np.random.Generator, num_resources: int, sparse: bool) -> Arm:
    """An arm with usage that depends on the state, in tenths, and maybe rows with zeros or rows that occur twice."""
    S, A = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    rows = rng.dirichlet(np.ones(S), size=(S, A))
    if sparse and S > 1:
        rows[rng.random((S, A)) < 0.4] = np.eye(S)[int(rng.integers(S))]
        rows[0, -1] = rows[-1, 0]
    usage = rng.integers(0, 4, size=(S, A, num_resources)) / 10
    usage[np.arange(S), rng.integers(A, size=S)] = 0.0
    return Arm(rows, rng.normal(size=(S, A)), usage, rng.dirichlet(np.ones(S)))


def random_problem(seed: int, criterion: str = "discounted", most_arms: int = 3) -> CoupledMDP:
    rng = np.random.default_rng(seed)
    num_types, num_resources = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    arms = [random_arm(rng, num_resources, sparse=bool(rng.random() < 0.5)) for _ in range(num_types)]
    budget = rng.choice([0.0, 0.1, 0.3, 0.4, 0.7, 5.0], size=num_resources)
    counts = rng.integers(1, most_arms + 1, size=num_types)
    return CoupledMDP(arms, budget, 0.9, counts, criterion="discounted").with_criterion(criterion)


def ergodic(problem: CoupledMDP) -> CoupledMDP:
    """The same arms, from every state with a chance to go anywhere: the long run does not depend on the start."""
    arms = [
        Arm(0.9 * arm.transitions + 0.1 / arm.num_states, arm.rewards, arm.usage, arm.initial) for arm in problem.arms
    ]
    return CoupledMDP(arms, problem.budget, problem.discount, problem.counts).with_criterion(problem.criterion)


SEEDS = st.integers(0, 10**6)


def use(kernel: str, problem: CoupledMDP, **pieces: int) -> Operators:
    """Operators with compiled loops or their NumPy versions."""
    return Operators(plan_types(problem), type_sweeps if kernel == "compiled" else plain_sweeps, **pieces)


def pair_values(mdp, weights: Floats, value: Floats) -> Floats:
    return mdp.rewards @ weights + mdp.criterion.factor * (mdp.kernel @ value)[mdp.outcomes]


def check_choice(problem: CoupledMDP, made: Operators, picks: np.ndarray) -> tuple[np.ndarray, Counts]:
    """(state, type, state, action) the allocations of a policy, which must be possible."""
    space = Counts(problem)
    allocations = typed_policy(problem, [moves.allocations for moves in made.types], picks).allocate(
        space.states, np.random.default_rng(0)
    )
    assert (allocations >= 0).all()
    assert np.array_equal(allocations.sum(axis=-1), space.states)
    assert (space.usage_of(allocations) <= problem.budget_limit + 1e-12).all()
    return allocations, space


@pytest.mark.parametrize("kernel", ["numpy", "compiled"])
class TestOperators:
    @given(seed=SEEDS)
    def test_the_maximum_is_that_of_the_table(self, kernel, seed):
        problem = random_problem(seed)
        made, mdp, rng = use(kernel, problem), Counts(problem).mdp, np.random.default_rng(seed)
        weights, value = rng.random(problem.num_types), rng.normal(size=mdp.num_states)
        gains = [weight * moves.rewards for weight, moves in zip(weights, made.types, strict=True)]
        best, picks = made.improve(gains, mdp.criterion.factor * value, 1e-14)
        expected = np.maximum.reduceat(pair_values(mdp, weights, value), mdp.offsets[:-1])
        assert best == pytest.approx(expected, abs=1e-12)
        allocations, space = check_choice(problem, made, picks)
        table = space.tabulate(np.arange(space.num_states), allocations)
        assert pair_values(table, weights, value) == pytest.approx(expected, abs=1e-12)

    @given(seed=SEEDS)
    def test_following_and_pushing_are_those_of_the_table(self, kernel, seed):
        problem = random_problem(seed)
        made, rng = use(kernel, problem), np.random.default_rng(seed)
        value = rng.normal(size=made.plan.num_states)
        _, picks = made.improve([moves.rewards for moves in made.types], value, 1e-14)
        allocations, space = check_choice(problem, made, picks)
        table, fixed = space.tabulate(np.arange(space.num_states), allocations), made.fix(picks)
        law = rng.dirichlet(np.ones(space.num_states))
        assert fixed.follow(value) == pytest.approx(table.transitions @ value, abs=1e-13)
        assert fixed.push(law) == pytest.approx(table.transitions.T @ law, abs=1e-14)
        assert made.first_law == pytest.approx(space.initial, abs=1e-14)

    @given(seed=SEEDS)
    def test_it_is_at_least_what_another_policy_has(self, kernel, seed):
        made, rng = use(kernel, random_problem(seed)), np.random.default_rng(seed)
        gains = [rng.random() * moves.rewards for moves in made.types]
        first, second = rng.normal(size=(2, made.plan.num_states))
        _, picks = made.improve(gains, first, 1e-14)
        other = sum(own[pair] for own, pair in zip(gains, picks, strict=True)) + made.fix(picks).follow(second)
        assert (made.improve(gains, second, 1e-14)[0] >= other - 1e-12).all()


@given(seed=SEEDS)
def test_compiled_and_numpy_choose_the_same(seed):
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    plain, compiled = use("numpy", problem), use("compiled", problem)
    gains = [rng.random() * moves.rewards for moves in plain.types]
    value = rng.normal(size=plain.plan.num_states)
    (best, picks), (other, same) = (made.improve(gains, value, 1e-12) for made in (plain, compiled))
    assert other == pytest.approx(best, abs=1e-13)
    assert np.array_equal(picks, same)  # a tie is one to both: the first is kept


def test_of_equal_decisions_the_first_is_chosen():
    """Nothing is gained and nothing is worth anything: everybody stays idle, in the cheapest way."""
    problem = crew_maintenance(num_arms=4, num_types=2)
    for kernel in ("numpy", "compiled"):
        made = use(kernel, problem)
        _, picks = made.improve(
            [np.zeros(len(moves.rewards)) for moves in made.types], np.zeros(made.plan.num_states), 0
        )
        allocations, space = check_choice(problem, made, picks)
        assert not space.usage_of(allocations).any()


@pytest.mark.parametrize(("block", "parts"), crossed([1, 7, 10**6], [1, 3]))
def test_blocks_and_pieces_change_nothing(block, parts):
    problem = crew_maintenance(num_arms=6)
    usual = use("compiled", problem)
    rng = np.random.default_rng(0)
    value, law = rng.normal(size=usual.plan.num_states), rng.dirichlet(np.ones(usual.plan.num_states))
    gains = [moves.rewards for moves in usual.types]
    best, picks = usual.improve(gains, value, 1e-13)
    other = use("compiled", problem, block=block, parts=parts)
    again, same = other.improve(gains, value, 1e-13)
    assert np.array_equal(best, again)
    assert np.array_equal(picks, same)
    before, after = usual.fix(picks), other.fix(same)
    assert sum(len(leaves.rows) for _, leaves in after.parts) == len(before.leaves.rows)
    assert np.array_equal(after.follow(value), before.follow(value))
    assert after.push(law) == pytest.approx(before.push(law), abs=1e-16)


@given(seed=SEEDS)
def test_kernels_one_by_one(seed):
    """Each compiled kernel against its twin, on boxes with several lanes, as they come with three types."""
    rng = np.random.default_rng(seed)
    moves = plan_types(random_problem(seed)).types[0]
    rows, size = moves.laws(), moves.num_points
    lanes, rest = int(rng.integers(1, 150)), int(rng.integers(1, 4))
    values = rng.normal(size=(lanes, size, rest))
    first = int(rng.integers(len(moves.movers)))
    last = int(rng.integers(first, len(moves.movers))) + 1
    expanded = plain_sweeps.expand(rows, first, last, values)
    assert type_sweeps.expand(rows, first, last, values) == pytest.approx(expanded, abs=1e-14)
    gains = rng.normal(size=len(moves.rewards))
    spans = np.array([[0, first], [first, last]])
    flat = np.ascontiguousarray(values[:, :, 0])
    plain = plain_sweeps.best_last(rows, moves.pairs, gains, spans, 3, flat, 1e-12)
    compiled = type_sweeps.best_last(rows, moves.pairs, gains, spans, 3, flat, 1e-12)
    assert compiled[0] == pytest.approx(plain[0], abs=1e-13)
    assert np.array_equal(compiled[1][np.isfinite(plain[0])], plain[1][np.isfinite(plain[0])])
    found = Best(expanded, rng.integers(1000, size=expanded.shape))
    kept = [Best(np.full(values.shape, 0.1), np.full(values.shape, -1)) for _ in range(2)]
    plain_sweeps.keep_best(moves.pairs, gains, first, last, 1000, found, kept[0], 1e-12)
    type_sweeps.keep_best(moves.pairs, gains, first, last, 1000, found, kept[1], 1e-12)
    assert np.array_equal(kept[0].values, kept[1].values)
    assert np.array_equal(kept[0].codes, kept[1].codes)


class TestMoves:
    @given(seed=SEEDS)
    def test_pairs_stand_in_the_order_of_outcomes_and_uses(self, seed):
        problem = random_problem(seed)
        for t, moves in enumerate(plan_types(problem).types):
            assert np.array_equal(np.diff(moves.pairs.starts), np.bincount(moves.outcomes, minlength=len(moves.movers)))
            use_of_outcome = np.repeat(np.arange(len(moves.uses)), np.diff(moves.starts))
            assert moves.spent == pytest.approx(moves.uses[use_of_outcome[moves.outcomes]], abs=1e-12)
            assert (moves.movers.sum(axis=1) == problem.type_counts[t]).all()
            assert len(np.unique(moves.allocations.reshape(len(moves.allocations), -1), axis=0)) == len(
                moves.allocations
            )

    def test_all_allocations_of_two_arms(self):
        """Two arms of two states and two actions, one unit in hand: 2 x 2 of the 10 allocations serve two."""
        arm = Arm(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), [[0.0], [1.0]], [0.5, 0.5])
        other = Arm(np.eye(2)[[[0, 1], [1, 0]]], np.zeros((2, 2)), [[0.0], [1.0]], [0.5, 0.5])
        same, moved = plan_types(CoupledMDP([arm, other], [1.0], 0.9, [2, 2])).types
        assert len(same.allocations) == len(moved.allocations) == 7
        assert same.uses.tolist() == [[0.0], [1.0]]
        assert len(same.movers) == 2  # one row only: nothing but the use tells outcomes apart
        assert len(moved.movers) == 3 + 3

    def test_laws_are_those_of_movers(self):
        moves = plan_types(crew_maintenance(num_arms=7)).types[0]
        rows, whole = moves.laws(), movers_distribution(moves.movers, moves.rows)
        for o, (begin, end) in enumerate(pairwise(rows.starts)):
            assert np.array_equal(np.flatnonzero(whole[o]), np.sort(rows.columns[begin:end]))
            assert rows.weights[begin:end].sum() == pytest.approx(1, abs=1e-14)
        assert (support_of_movers(moves.movers, moves.rows) >= (whole > 0).sum(axis=1) - 1e-6).all()


@pytest.mark.parametrize("criterion", CRITERIA)
class TestWeightedSums:
    @given(seed=SEEDS)
    def test_the_optimum_is_that_of_the_table(self, criterion, seed):
        problem = ergodic(random_problem(seed, criterion))
        made, mdp = use("compiled", problem), Counts(problem).mdp
        weights = np.random.default_rng(seed).random(problem.num_types)
        gains = [weight * moves.rewards for weight, moves in zip(weights, made.types, strict=True)]
        found = solve_types(made, gains, 1e-9)
        exact = solve_weighted(mdp, weights, 1e-10)
        slack = 1e-8 * max(1.0, abs(exact.upper_bound))
        assert found.lower_bound - slack <= exact.upper_bound
        assert found.upper_bound + slack >= exact.lower_bound
        assert found.upper_bound - found.lower_bound <= slack
        again = solve_types(made, gains, 1e-9, found.value_function)
        assert again.upper_bound == pytest.approx(found.upper_bound, abs=slack)

    @given(seed=SEEDS)
    def test_values_are_those_of_the_table(self, criterion, seed):
        problem = random_problem(seed, criterion)
        made, rng = use("compiled", problem), np.random.default_rng(seed)
        visits, facts = Visits(made), [np.column_stack([m.rewards, m.served, m.spent]) for m in made.types]
        for _ in range(2):  # the second begins where the first ended
            steps = [
                made.improve([m.rewards for m in made.types], rng.normal(size=made.plan.num_states), 1e-14)[1]
                for _ in range(problem.criterion.num_steps or 1)
            ]
            picks = np.stack(steps) if problem.criterion.num_steps else steps[0]
            sums = np.stack(visits.sums(picks, facts))
            values, served, used = table_facts(problem, made, steps)
            assert sums[:, 0] == pytest.approx(values, abs=1e-9)
            assert sums[:, 1] == pytest.approx(served, abs=1e-9)
            assert sums[:, 2:].sum(axis=0) == pytest.approx(used, abs=1e-9)


def table_facts(problem: CoupledMDP, made: Operators, steps: list[np.ndarray]) -> tuple[Floats, Floats, Floats]:
    """Values and visits to serving actions of types, and use, from tables that have one decision a state."""
    space = Counts(problem)
    allocations = [check_choice(problem, made, picks)[0] for picks in steps]
    if problem.criterion.num_steps is None:
        table = space.tabulate(np.arange(space.num_states), allocations[0])
        laws = [total_visits(occupancy_measure(table, np.ones(table.num_pairs)))]
    else:
        laws, law = [], space.initial
        for own in allocations:
            laws.append(law)
            law = problem.criterion.factor * (space.tabulate(np.arange(space.num_states), own).transitions.T @ law)
    pairs = list(zip(laws, allocations, strict=True))
    return (
        sum(law @ space.mean_rewards(own) for law, own in pairs),
        sum(law @ space.mean_served(own) for law, own in pairs),
        sum(law @ space.usage_of(own) for law, own in pairs),
    )


def test_an_average_that_depends_on_the_start_is_refused():
    stuck = Arm(np.eye(2)[:, None].repeat(2, axis=1), [[0.0, 0.0], [1.0, 1.0]], [[0.0], [1.0]], [0.5, 0.5])
    moving = Arm(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), [[0.0], [1.0]], [0.5, 0.5])
    problem = CoupledMDP([stuck, moving], [1.0], 0.9, [2, 2]).with_criterion("average")
    made = use("compiled", problem)
    with pytest.raises(NotApplicableError):
        solve_types(made, [moves.rewards for moves in made.types])


class TestPlans:
    def test_states_and_work_grow_with_the_arms(self):
        plans = [plan_types(crew_maintenance(num_arms=n)) for n in (7, 10, 14)]
        assert [plan.num_states for plan in plans] == [2000, 14_000, 109_760]
        for less, more in pairwise(plans):
            assert less.improving < more.improving
            assert less.following < more.following
            assert less.operations < more.operations
            assert less.size_in_bytes < more.size_in_bytes

    @given(seed=SEEDS)
    def test_the_work_is_counted_as_the_tree_has_it(self, seed):
        """By walking down the uses one by one, where the plan counts equal beginnings together."""
        plan = plan_types(random_problem(seed))
        rests = [int(np.prod(plan.sizes[t + 1 :])) for t in range(len(plan.types))]

        def walk(kind: int, used: Floats, lanes: float) -> float:
            if kind == len(plan.types):
                return 0.0
            moves, total = plan.types[kind], 0.0
            for i, own in enumerate(moves.uses):
                if (used + own <= plan.limit).all():
                    number = float(moves.starts[i + 1] - moves.starts[i])
                    total += lanes * (moves.entries[i] + moves.pairs_of_uses[i]) * rests[kind]
                    total += walk(kind + 1, used + own, lanes * number)
            return total

        assert plan.improving == pytest.approx(walk(0, np.zeros_like(plan.limit), 1.0), rel=1e-9)

    @given(seed=SEEDS)
    def test_as_many_pairs_as_the_table_has(self, seed):
        problem = random_problem(seed)
        assert plan_types(problem).num_pairs == Counts(problem).mdp.num_pairs

    def test_too_many_states_are_refused_before_any_work(self):
        with pytest.raises(TooLargeError):
            plan_types(crew_maintenance(num_arms=120))

    def test_too_many_allocations_are_refused(self):
        arm = Arm(np.full((3, 3, 3), 1 / 3), np.zeros((3, 3)), [[0], [1], [1]])
        with pytest.raises(TooLargeError):
            plan_types(CoupledMDP([arm], budget=[80], discount=0.9, counts=[80]))

    def test_too_much_memory_or_work_is_refused(self, monkeypatch):
        plan = plan_types(crew_maintenance(num_arms=10).with_criterion("finite:5"))
        plan.check()
        with pytest.raises(TooLargeError):
            replace(plan, criterion=Finite(10**6)).check()
        monkeypatch.setattr("evenhand.checks.available_memory", lambda: 1e5)
        with pytest.raises(TooLargeError):
            plan.check()

    def test_memory_is_reported_about_right(self):
        """The boxes of values and the laws, counted by hand for one problem."""
        plan = plan_types(crew_maintenance(num_arms=10))
        made = Operators(plan)
        laws = sum(array.nbytes for array in made.laws[:3])
        assert laws < plan.size_in_bytes
        assert plan.size_in_bytes >= 8.0 * plan.num_states * 30
        assert plan.num_states == lattice_size(4, 4) * lattice_size(3, 4) ** 2
