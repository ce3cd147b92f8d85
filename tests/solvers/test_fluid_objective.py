"""The relaxation under every criterion, over arms and groups, within floors, for any welfare: against cvxpy.

The programs here are written from the mathematics: one occupancy variable an arm, the criterion's own flow equations,
and the welfare as cvxpy knows it.
"""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InfeasibleError, NotApplicableError, OutOfDomainError, TooLargeError
from evenhand.model import Arm, CoupledMDP, Gini
from evenhand.solvers import ProgramSizes, model_of, solve_fluid, solve_model

from ..conftest import crossed, mentions
from ..oracles.fluid_lp import fluid_lp

CRITERIA = ["discounted", "average", "finite:1", "finite:4"]


class SoftMinimum:
    """-s log(mean exp(-v / s)): concave, symmetric, monotone, and neither rank-weighted nor homogeneous."""

    name = "soft-minimum"

    def __init__(self, scale):
        self.scale = scale

    def _shares(self, values, counts):
        values = np.asarray(values, dtype=float)
        counts = np.ones(values.shape[-1]) if counts is None else np.asarray(counts)
        lowest = values.min(axis=-1, keepdims=True)
        return counts / counts.sum() * np.exp((lowest - values) / self.scale), lowest[..., 0]

    def __call__(self, values, counts=None):
        parts, lowest = self._shares(values, counts)
        return lowest - self.scale * np.log(parts.sum(axis=-1))

    def supergradient(self, values, counts=None):
        parts, _ = self._shares(values, counts)
        return parts / parts.sum(axis=-1, keepdims=True)

    def check_domain(self, values):
        pass


class MeanLog:
    """mean log(v): not in units of value, and defined for positive values only."""

    name = "mean-log"

    def __call__(self, values, counts=None):
        self.check_domain(values)
        return np.average(np.log(values), weights=counts, axis=-1)

    def supergradient(self, values, counts=None):
        counts = np.ones(np.shape(values)[-1]) if counts is None else np.asarray(counts)
        return counts / counts.sum() / np.asarray(values)

    def check_domain(self, values):
        if np.min(values) <= 0:
            raise OutOfDomainError("mean-log needs positive values")


def random_arm(rng, num_resources, sparse):
    """Like a machine if it is sparse: it wears out, and any action that uses something may renew it."""
    states, actions = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    rows = rng.dirichlet(np.full(states, 0.7), size=(states, actions))
    usage = rng.integers(0, 3, (states, actions, num_resources)) * rng.uniform(0.5, 1.5)
    idle = rng.integers(actions)
    usage[:, idle] = 0
    if sparse:
        usage[:, np.arange(actions) != idle] += 0.5
        rows[:] = np.eye(states)[0]
        stay = rng.uniform(0.3, 0.9)
        rows[:, idle] = (
            stay * np.eye(states) + (1 - stay) * np.eye(states)[np.minimum(np.arange(states) + 1, states - 1)]
        )
    return Arm(rows, rng.random((states, actions)) + 0.1, usage, rng.dirichlet(np.ones(states)))


def random_problem(seed, criterion="discounted", num_resources=1, over="arms", floor=0.0, discount=0.9):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 5))
    arms = [random_arm(rng, num_resources, rng.random() < 0.5) for _ in range(number)]
    counts = rng.integers(1, 4, number)
    groups = [["north", "south", ""][g] for g in rng.integers(3, size=number)] if over == "groups" else ()
    floors = floor * rng.integers(0, 2, number)
    budget = rng.uniform(0.1, 0.4, num_resources) * counts.sum()
    if criterion == "average":  # where some action is beyond the budget, the average may depend on the start
        budget = np.maximum(budget, np.max([arm.usage.max(axis=(0, 1)) for arm in arms], axis=0))
    return CoupledMDP(arms, budget, discount, counts, (), groups, floors, criterion, over)


def flow(arm, criterion, discount):
    """Occupancy variables by step, their constraints, and what each step weighs."""
    kind, _, steps = criterion.partition(":")
    if kind == "finite":
        q = [cp.Variable(arm.rewards.shape, nonneg=True) for _ in range(int(steps))]
        start, constraints = arm.initial, []
        for step in q:
            constraints.append(cp.sum(step, axis=1) == start)
            start = sum(arm.transitions[:, a].T @ step[:, a] for a in range(arm.num_actions))
        return q, constraints, discount ** np.arange(int(steps))
    q = cp.Variable(arm.rewards.shape, nonneg=True)
    arrive = sum(arm.transitions[:, a].T @ q[:, a] for a in range(arm.num_actions))
    if kind == "average":
        return [q], [cp.sum(q, axis=1) == arrive, cp.sum(q) == 1], np.ones(1)
    return [q], [cp.sum(q, axis=1) == arm.initial + discount * arrive], np.ones(1)


def members(problem, criterion, by_step):
    """The (member,) values, their counts, and all constraints."""
    kind, discount = criterion.partition(":")[0], problem.discount
    values, constraints, used = [], [], []
    for arm, floor, count in zip(problem.tables, problem.floors, problem.counts, strict=True):
        q, own, weights = flow(arm, criterion, discount)
        total = weights.sum() if kind != "discounted" else 1 / (1 - discount)
        constraints += own
        never = (arm.usage > problem.budget).any(axis=2)  # no policy chooses these
        constraints += [cp.multiply(never, step) == 0 for step in q]
        values.append(sum(w * cp.sum(cp.multiply(arm.rewards, step)) for w, step in zip(weights, q, strict=True)))
        served = (arm.usage > 0).any(axis=2).astype(float)
        share = sum(w * cp.sum(cp.multiply(served, step)) for w, step in zip(weights, q, strict=True))
        constraints.append(share >= floor * total)
        used.append(
            [
                int(count)
                * cp.hstack([cp.sum(cp.multiply(arm.usage[:, :, k], step)) for k in range(problem.num_resources)])
                for step in q
            ]
        )
    if kind == "finite" and by_step:
        constraints += [sum(steps) <= problem.usable_budget for steps in zip(*used, strict=True)]
    else:
        whole = sum(w * step for steps in used for w, step in zip(weights, steps, strict=True))
        constraints.append(whole <= problem.usable_budget * total)
    if problem.over == "arms":
        return cp.hstack(values), problem.counts, constraints
    sizes = np.bincount(problem.group_of_block, weights=problem.counts)
    means = [
        sum(problem.counts[n] * values[n] for n in np.flatnonzero(problem.group_of_block == g)) / size
        for g, size in enumerate(sizes)
    ]
    return cp.hstack(means), np.ones(len(sizes), dtype=int), constraints


def brute_force(problem, criterion, welfare, by_step=True):
    """The optimum by cvxpy; minus infinity if there is none."""
    values, counts, constraints = members(problem, criterion, by_step)
    number = int(counts.sum())
    if isinstance(welfare, SoftMinimum):
        goal = -welfare.scale * (cp.log_sum_exp(-values / welfare.scale + np.log(counts / number)))
        finish = float
    elif welfare in ("nash", "mean-log"):
        goal, finish = cp.geo_mean(values, [int(count) for count in counts]), float if welfare == "nash" else np.log
    elif welfare == "alpha:2":
        goal, finish = -cp.sum(cp.multiply(counts / number, cp.inv_pos(values))), lambda x: -1 / x
    elif welfare == "utilitarian":
        goal, finish = cp.sum(cp.multiply(counts / number, values)), float
    elif welfare in ("maximin", "leximin"):
        goal, finish = cp.min(values), float
    else:
        weights = Gini.geometric(number, float(welfare.partition(":")[2])).weights
        everyone = cp.hstack([values[n] for n in range(len(counts)) for _ in range(counts[n])])
        steps = np.append(weights[:-1] - weights[1:], weights[-1])
        goal = sum(step * cp.sum_smallest(everyone, n + 1) for n, step in enumerate(steps) if step > 0)
        finish = float
    if problem.floors.any():  # by a linear program: cones with logarithms do not know what is infeasible
        feasible = cp.Problem(cp.Maximize(cp.Constant(0)), members(problem, criterion, by_step)[2])
        feasible.solve(solver=cp.HIGHS)
        if feasible.status != "optimal":
            return -np.inf
    program = cp.Problem(cp.Maximize(goal), constraints)
    program.solve(solver=cp.CLARABEL)
    return finish(program.value)


def check(problem, solution):
    """What a solution says of itself, recomputed."""
    types, counts, q = problem.types, problem.type_counts, solution.occupancy
    criterion = problem.criterion
    # Floors may need the whole budget, and are met as programs meet them; without floors the budget holds exactly.
    over_budget = 1.01e-7 if problem.has_floors else 1e-9
    assert (q >= 0).all()
    assert np.allclose(q.reshape(len(q), -1).sum(axis=1), criterion.total, rtol=1e-9)
    steps = q if q.ndim == 4 else q[:, None]
    assert (steps[:, :, ~types.valid.any(axis=0)] == 0).all()
    if criterion.num_steps is not None:
        weights = criterion.time_weights(criterion.num_steps)
        assert np.allclose(steps[:, 0].sum(axis=-1), types.initial)
        for t in range(1, criterion.num_steps):
            arrive = np.einsum("tsa,tsaj->tj", steps[:, t - 1], types.transitions) * problem.discount
            assert np.allclose(steps[:, t].sum(axis=-1), arrive, atol=1e-9)
        if solution.by_step:
            used = np.einsum("n,nusa,nsak->uk", counts, steps, types.usage)
            assert (used <= weights[:, None] * problem.budget * (1 + over_budget) + 1e-12).all()
    else:
        arrive = criterion.factor * np.einsum("tsa,tsaj->tj", q, types.transitions)
        arrive += 0 if criterion.is_average else types.initial
        assert np.allclose(q.sum(axis=-1), arrive, atol=1e-8)
    assert (counts @ solution.use <= problem.budget * criterion.total * (1 + over_budget)).all()
    summed = steps.sum(axis=1)
    assert np.allclose(solution.values, (summed * types.rewards).sum(axis=(1, 2)))
    assert np.allclose(solution.served, (summed * types.served).sum(axis=(1, 2)) / criterion.total)
    assert (solution.served >= problem.type_floors - 1e-6).all()
    assert solution.welfare <= solution.upper_bound
    assert (solution.prices >= 0).all() and (solution.floor_prices >= 0).all()


def agrees(problem, criterion, welfare, tolerance=1e-6, known=None):
    best = brute_force(problem, criterion, known or welfare)
    if best == -np.inf:
        with pytest.raises(InfeasibleError):
            solve_fluid(problem, welfare, tolerance)
        return
    solution = solve_fluid(problem, welfare, tolerance)
    check(problem, solution)
    assert solution.gap <= tolerance
    scale = max(abs(best), 1e-3)
    assert solution.upper_bound >= best - 1e-6 * scale
    assert solution.welfare == pytest.approx(best, rel=3 * tolerance, abs=3e-6 * scale)


@given(
    seed=st.integers(0, 10**6),
    criterion=st.sampled_from(CRITERIA),
    num_resources=st.integers(1, 2),
    over=st.sampled_from(["arms", "groups"]),
    floor=st.sampled_from([0.0, 0.05, 0.15]),
    welfare=st.sampled_from(["gini:2", "gini:1.2", "utilitarian", "maximin", "leximin", "nash", "alpha:2"]),
)
def test_the_relaxation_is_that_of_cvxpy(seed, criterion, num_resources, over, floor, welfare):
    agrees(random_problem(seed, criterion, num_resources, over, floor), criterion, welfare)


def test_errors_of_programs_do_not_join_classes_of_states():
    """A program that is right to 1e-8 left one class of this problem by 7e-9 and came back by 9e-10."""
    agrees(random_problem(572954, "average", 2), "average", "leximin")


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("over", "floor", "num_resources"), [("arms", 0.0, 1), ("groups", 0.05, 2)])
@pytest.mark.parametrize("welfare", [SoftMinimum(0.3), MeanLog()], ids=["soft-minimum", "mean-log"])
def test_a_welfare_of_ones_own(criterion, over, floor, num_resources, welfare):
    problem = random_problem(11, criterion, num_resources, over, floor)
    agrees(problem, criterion, welfare, known="mean-log" if isinstance(welfare, MeanLog) else None)


@pytest.mark.parametrize("welfare", ["gini:1.3", "utilitarian", "leximin", "nash"])
def test_programs_and_prices_agree(welfare):
    """Two algorithms through the library itself, at sizes at which cvxpy is slow."""
    problem = eh.problems.heterogeneous_machine_replacement(num_arms=12)
    floors = np.where(np.arange(12) % 2, 0.02, 0.0)
    names = [f"group {i % 5}" for i in range(12)]
    for criterion in ("discounted", "average"):
        for over in ("arms", "groups"):
            here = CoupledMDP(problem.arms, problem.budget, 0.95, None, (), names, floors, criterion, over)
            found, exact = solve_fluid(here, welfare, 1e-6), fluid_lp(here, welfare, 1e-6)
            check(here, found)
            assert found.welfare <= exact.upper_bound * (1 + 1e-9)
            assert exact.welfare <= found.upper_bound * (1 + 1e-9)
            if welfare == "leximin":
                mine, theirs = (model_of(here).members(one.values) for one in (found, exact))
                assert np.allclose(mine, theirs, rtol=1e-4)


@pytest.mark.parametrize(("welfare", "over"), crossed(["gini:2", "maximin", "alpha:2", "leximin"], ["arms", "groups"]))
def test_one_budget_for_all_steps_is_a_looser_bound(welfare, over):
    problem = random_problem(3, "finite:4", over=over)
    tight = solve_fluid(problem, welfare, 1e-7)
    assert tight.by_step and tight.prices.shape == (4, 1)
    loose = solve_model(model_of(problem), welfare, 1e-7, sizes=ProgramSizes(columns_by_step=0))
    check(problem, loose)
    assert not loose.by_step and loose.prices.shape == (1,)
    assert loose.welfare == pytest.approx(brute_force(problem, "finite:4", welfare, by_step=False), rel=1e-6)
    assert tight.upper_bound <= loose.upper_bound * (1 + 1e-9)
    if over == "arms" and welfare in ("gini:2", "alpha:2"):  # the worst arm alone needs no more than its share
        assert tight.upper_bound < loose.upper_bound * (1 - 1e-4)


@pytest.mark.parametrize("welfare", ["gini:1.5", "maximin", "nash"])
@pytest.mark.parametrize("over", ["arms", "groups"])
def test_the_average_is_the_limit_of_discounted(welfare, over):
    problem = random_problem(8, "average", over=over, floor=0.05)
    average = solve_fluid(problem, welfare, 1e-7).welfare
    for discount in (0.999, 0.99999):
        near = CoupledMDP(
            problem.arms, problem.budget, discount, problem.counts, (), problem.groups, problem.floors, over=over
        )
        scaled = (1 - discount) * solve_fluid(near, welfare, 1e-7).welfare
        assert scaled == pytest.approx(average, rel=30 * (1 - discount) + 1e-6)


@pytest.mark.slow
def test_a_long_finite_horizon_comes_near_the_average():
    problem = random_problem(8, "average", discount=1.0)
    average = solve_fluid(problem, "gini:2", 1e-7).welfare
    for steps in (100, 400):
        mean = solve_fluid(problem.with_criterion(f"finite:{steps}"), "gini:2", 1e-6).upper_bound / steps
        assert mean == pytest.approx(average, abs=5 / steps)


def test_arms_whose_average_depends_on_the_start_are_refused():
    stays = np.eye(2)[:, None].repeat(2, axis=1)
    two = Arm(stays, np.ones((2, 2)), [[0], [1]], name="stuck")
    fine = Arm(np.full((2, 2, 2), 0.5), np.ones((2, 2)), [[0], [1]])
    with pytest.raises(NotApplicableError, check=mentions("type 1", "stuck")):
        solve_fluid(CoupledMDP([fine, two], [1.0], 0.9, criterion="average"), "gini:2")
    # Leaving for good is optional: where it ends depends on the policy, and where it starts matters.
    leaves = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    lost = Arm(leaves, np.ones((2, 2)), [[0], [1]])
    with pytest.raises(NotApplicableError, check=mentions("0 depends")):
        solve_fluid(CoupledMDP([lost], [1.0], 0.9, criterion="average"), "gini:2")
    # Leaving for good that cannot be put off is fine: in the long run only the end counts.
    ends = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    arm = Arm(ends, [[5.0, 5.0], [1.0, 2.0]], [[0], [1]])
    solution = solve_fluid(CoupledMDP([arm], [1], 0.9, [4], criterion="average"), "gini:2")
    assert solution.welfare == pytest.approx(1.25)


def test_a_machine_with_several_classes_of_states():
    """Replaced at wear and left alone when broken, a machine has two closed classes: policies are not unichain."""
    problem = eh.problems.machine_replacement(num_arms=4, budget=1).with_criterion("average")
    for welfare in ("gini:2", "leximin", "nash"):
        agrees(problem, "average", welfare, known="utilitarian")


@pytest.mark.parametrize(
    ("criterion", "num_resources", "welfare"),
    crossed(["discounted", "average", "finite:5"], [1, 2], ["gini:2", SoftMinimum(1.0), "leximin", "alpha:2"]),
    ids=lambda given: "own" if isinstance(given, SoftMinimum) else str(given),
)
def test_floors_that_cannot_be_met_say_what_can(criterion, num_resources, welfare):
    arm = Arm(np.ones((1, 2, 1)), [[1.0, 2.0]], [[0] * num_resources, [1] * num_resources])
    other = Arm(np.ones((1, 2, 1)), [[1.0, 3.0]], [[0] * num_resources, [2] * num_resources])
    ten, budget = [10, 10], [9] * num_resources
    problem = CoupledMDP([arm, other], budget, 0.9, ten, floors=[0.4, 0.2], criterion=criterion)
    assert (solve_fluid(problem, welfare, 1e-6).served >= [0.4 - 1e-6, 0.2 - 1e-6]).all()
    hopeless = CoupledMDP([arm, other], budget, 0.9, ten, floors=[0.4, 0.35], criterion=criterion)
    with pytest.raises(InfeasibleError, check=mentions(0.3)):
        solve_fluid(hopeless, welfare, 1e-6)


@pytest.mark.parametrize(
    ("criterion", "welfare"),
    crossed(["discounted", "average", "finite:10", "finite:30"], ["utilitarian", "gini:2", "leximin", "alpha:2"]),
)
@pytest.mark.slow
def test_floors_that_take_the_whole_budget(criterion, welfare):
    """Then nothing uses less, and rounding cannot be bought off with what does."""
    for seed in (0, 30):
        rngs = [np.random.default_rng(seed + i) for i in range(2)]
        arms = [Arm(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), [[0], [1]]) for rng in rngs]
        problem = CoupledMDP(arms, [2.0], 0.9, [2, 2], floors=[0.5, 0.5], criterion=criterion)
        solution = solve_fluid(problem, welfare, 1e-5)
        np.testing.assert_allclose(solution.served, 0.5, rtol=1e-6)
        assert problem.type_counts @ solution.use <= 2 * problem.criterion.total * (1 + 1e-6)


def test_an_arm_that_can_never_be_served_cannot_have_a_floor():
    arm = Arm(np.ones((1, 2, 1)), [[1.0, 2.0]], [[0], [0]])
    with pytest.raises(InfeasibleError, check=mentions(0)):
        solve_fluid(CoupledMDP([arm], [1.0], 0.9, floors=[0.1]), "gini:2")


def test_floor_prices_are_what_a_floor_costs():
    """By the envelope theorem the derivative of the optimum in a floor is minus its price, times arms and total."""
    problem = random_problem(3, "discounted")
    for floor in (0.4, 0.45):
        floors = np.zeros(len(problem.floors))
        floors[0] = floor
        parts = [
            solve_fluid(
                CoupledMDP(problem.arms, 10 * problem.budget, 0.9, problem.counts, floors=floors + step * (floors > 0)),
                "utilitarian",
                1e-9,
            )
            for step in (0.0, 1e-4)
        ]
        slope = (parts[1].welfare - parts[0].welfare) / 1e-4
        price = parts[0].floor_prices @ (problem.type_counts * (problem.type_floors >= 0)) * 10
        assert slope == pytest.approx(-price, rel=1e-3, abs=1e-6)


def test_programs_that_are_too_large_are_refused():
    with pytest.raises(TooLargeError):
        solve_model(model_of(random_problem(1)), SoftMinimum(1.0), sizes=ProgramSizes(entries=10))


def test_a_welfare_that_is_not_defined_within_the_budget():
    arm = Arm(np.ones((1, 2, 1)), [[-1.0, 1.0]], [[0], [1]])
    with pytest.raises(OutOfDomainError):
        solve_fluid(CoupledMDP([arm], [2], 0.9, [10]), MeanLog())
    assert solve_fluid(CoupledMDP([arm], [8], 0.9, [10]), MeanLog()).welfare == pytest.approx(np.log(0.6 / 0.1))


class TestFloorsAtTheEdgeOfReach:
    """Arms that can be served every other step: a floor beyond 1/2 by rounding is one of 1/2, either way."""

    def problem(self, criterion, floor):
        moves = np.tile([[0.0, 1.0], [1.0, 0.0]], (2, 1, 1)).swapaxes(0, 1)
        usage = np.zeros((2, 2, 1))
        usage[0, 1] = 1  # in the second state both actions are free, and one of them is worth something
        arm = Arm(moves, [[0, 1], [0, 2]], usage, initial=[0.5, 0.5])
        return CoupledMDP([arm, arm], [2], 0.9, floors=[floor] * 2).with_criterion(criterion)

    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
    @pytest.mark.parametrize("welfare", ["gini:2", "alpha:2"])
    def test_what_is_beyond_by_rounding_is_met(self, criterion, welfare):
        best = solve_fluid(self.problem(criterion, 0.5), welfare)
        for beyond in (1e-16, 1e-10, 5e-8):
            near = solve_fluid(self.problem(criterion, 0.5 * (1 + beyond)), welfare)
            assert near.upper_bound == pytest.approx(best.upper_bound, rel=1e-6)
            assert near.welfare == pytest.approx(best.welfare, rel=1e-6)

    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
    def test_what_is_further_beyond_is_refused(self, criterion):
        with pytest.raises(InfeasibleError, check=mentions(0.5)):
            solve_fluid(self.problem(criterion, 0.5 * (1 + 3e-7)), "gini:2")


@pytest.mark.parametrize("num_resources", [1, 2])
@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:4"])
def test_floors_that_are_easily_met_are_not_blamed_for_a_welfare_out_of_its_domain(criterion, num_resources):
    """Every arm can be served a quarter of the time, and has a positive value from half of the time on."""
    arm = Arm(np.ones((1, 2, 1)), [[-1.0, 1.0]], [[0] * num_resources, [1, 0.5][:num_resources]])
    problem = CoupledMDP([arm], [1] * num_resources, 0.9, [4], floors=[0.1]).with_criterion(criterion)
    for welfare in ("alpha:2", "alpha:0.5"):
        with pytest.raises(OutOfDomainError):
            solve_fluid(problem, welfare)
    assert solve_fluid(problem, "gini:2").served == pytest.approx([0.25], rel=1e-3)


def tight_floors(seed):
    """Two resources, and floors that leave little of the budget."""
    rng, arms, floors = np.random.default_rng(seed), [], []
    for _ in range(int(rng.integers(1, 4))):
        usage = np.zeros((4, 2))
        usage[1], usage[2], usage[3] = [1, 0], [0, 1], rng.integers(1, 3, 2)
        arms.append(Arm(rng.dirichlet(np.full(3, 0.7), (3, 4)), rng.random((3, 4)), usage))
        floors.append(float(rng.choice([0.2, 0.3, 0.4, 0.5])))
    budget, counts = [1.0, float(rng.integers(1, 3))], rng.integers(1, 4, len(arms))
    criterion, welfare = rng.choice(["discounted", "average"]), rng.choice(["gini:2", "utilitarian", "alpha:1"])
    return CoupledMDP(arms, budget, 0.9, counts, criterion=str(criterion), floors=floors), str(welfare)


def test_solutions_with_tight_floors_keep_the_budget_and_close():
    """Rounding may exceed the allowance of a resource of which the cheapest measures use more."""
    solved = 0
    for seed in (0, 32, 87, 92, 150, 161, 208, 224, *range(1, 9)):
        problem, welfare = tight_floors(seed)
        try:
            found = solve_fluid(problem, welfare)
        except InfeasibleError:
            continue
        solved += 1
        allowance = problem.budget * problem.criterion.total
        assert (problem.type_counts @ found.use <= allowance * (1 + 1e-6)).all(), seed
        assert found.gap <= 2e-4, seed
    assert solved >= 10
