"""The dynamic program on counts under average and finite criteria, against dense programs on the explicit count table.

Average: the multichain linear program (Puterman, 9.3),  min sum g  s.t.  g >= P g,  g + h >= r + P h  for every pair,
whose g is the best long-run mean from each count state, and the program over stationary distributions. Finite: backward
induction over dense matrices.
"""

from math import comb

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.errors import NotApplicableError, NotConvergedError, TooLargeError
from evenhand.model import Arm, Average, CoupledMDP, Discounted, Finite, TimeVaryingPolicy, begin
from evenhand.problems import machine_replacement, random_coupled
from evenhand.solvers import CountChoices, CountOptimum, Counts, count_policy, plan_counts, solve_counts

from ..conftest import crossed, mentions
from ..oracles.count_allocations import allocations_of


def solve(problem: CoupledMDP, tolerance: float = 1e-8, small: float = 0) -> CountOptimum:
    return solve_counts(plan_counts(problem, small), problem.types.initial[0], tolerance)


class Table:
    """The count problem spelt out, dense."""

    def __init__(self, problem: CoupledMDP) -> None:
        self.counts = Counts(problem)
        mdp = self.counts.mdp
        self.state, self.num_states = mdp.state_of_pair, mdp.num_states
        self.transitions = mdp.transitions.toarray()
        self.rewards = mdp.rewards[:, 0]
        self.initial = mdp.initial

    def best_mean(self) -> float:
        """The largest mean reward of a stationary distribution."""
        balance = np.zeros((self.num_states, len(self.state)))
        balance[self.state, np.arange(len(self.state))] = 1.0
        balance -= self.transitions.T
        equal = np.vstack([balance, np.ones(len(self.state))])
        right = np.append(np.zeros(self.num_states), 1.0)
        found = linprog(-self.rewards, A_eq=equal, b_eq=right, method="highs")
        assert found.status == 0
        return -found.fun

    def best_means(self) -> np.ndarray:
        """(count state,) the best long-run mean from each of them."""
        S = self.num_states
        here = np.eye(S)[self.state]
        none = np.zeros_like(here)
        upper = np.block([[self.transitions - here, none], [-here, self.transitions - here]])
        right = np.concatenate([np.zeros(len(self.state)), -self.rewards])
        weights = np.concatenate([np.ones(S), np.zeros(S)])
        # Presolve has called a point with biases of 1e10 optimal that breaks rows by 11 (free columns, dense rows).
        found = linprog(
            weights, A_ub=upper, b_ub=right, bounds=(None, None), method="highs", options={"presolve": False}
        )
        assert found.status == 0
        assert (upper @ found.x - right).max() <= 1e-7
        return found.x[:S]

    def best_of_steps(self, num_steps: int, discount: float) -> float:
        """The best sum over so many steps."""
        value = np.zeros(self.num_states)
        for _ in range(num_steps):
            pairs = self.rewards + discount * self.transitions @ value
            value = np.full(self.num_states, -np.inf)
            np.maximum.at(value, self.state, pairs)
        return float(self.initial @ value)

    def chain(self, allocations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Dense transitions and rewards of one policy."""
        table = self.counts.tabulate(np.arange(self.num_states), allocations[:, None])
        return table.transitions.toarray(), table.rewards[:, 0]


def long_run_mean(chain: np.ndarray, rewards: np.ndarray, initial: np.ndarray) -> float:
    """mu P* r, with P* the limit of the damped chain by repeated squaring."""
    damped = (np.eye(len(chain)) + chain) / 2
    for _ in range(60):
        damped = damped @ damped
        damped /= damped.sum(axis=1, keepdims=True)
    return float(initial @ damped @ rewards)


def feasible(problem: CoupledMDP, counts: np.ndarray, allocations: np.ndarray) -> bool:
    used = np.einsum("xsa,sak->xk", allocations, problem.types.usage[0])
    whole = (allocations >= 0).all() and np.array_equal(allocations.sum(axis=2), counts)
    return bool(whole and (used <= problem.budget_limit + 1e-12).all())


def check_average(problem: CoupledMDP, tolerance: float = 1e-8, small: float = 0) -> CountOptimum | None:
    """Bounds that meet at the best mean, or a refusal where there is not one best mean."""
    problem = problem.with_criterion("average")
    table = Table(problem)
    means = table.best_means()
    try:
        optimum = solve(problem, tolerance, small)
    except NotApplicableError as refusal:
        several = "groups of states that no action leaves" in str(refusal)
        assert several or np.ptp(means) > 1e-7, (refusal, means)
        return None
    slack = 1e-8 * max(1.0, float(np.abs(means).max()))  # of the linear programs
    assert optimum.lower_bound - slack <= means.min()
    assert means.max() <= optimum.upper_bound + slack
    assert optimum.lower_bound - slack <= table.best_mean() <= optimum.upper_bound + slack
    width = tolerance * max(abs(optimum.upper_bound), 1e-6 * np.abs(problem.types.rewards).max())
    assert optimum.upper_bound - optimum.lower_bound <= width + 1e-12
    allocations = allocations_of(problem, optimum)
    assert feasible(problem, table.counts.states[:, 0], allocations)
    played = long_run_mean(*table.chain(allocations), table.initial)
    assert optimum.lower_bound - 1e-9 <= played <= optimum.upper_bound + 1e-9
    return optimum


def check_finite(problem: CoupledMDP, num_steps: int) -> CountOptimum:
    """The bounds hold the value of backward induction over dense matrices, and that of the returned choices."""
    problem = problem.with_criterion(f"finite:{num_steps}")
    table = Table(problem)
    optimum = solve(problem)
    exact = table.best_of_steps(num_steps, problem.discount)
    slack = 1e-12 * num_steps * max(1.0, float(np.abs(problem.types.rewards).max()))  # of the dense sums
    assert optimum.lower_bound - slack <= exact <= optimum.upper_bound + slack
    assert optimum.upper_bound - optimum.lower_bound <= 1e-10 * max(1.0, abs(exact))
    value = np.zeros(table.num_states)
    for step in reversed(range(num_steps)):
        allocations = allocations_of(problem, optimum, step)
        assert feasible(problem, table.counts.states[:, 0], allocations)
        chain, rewards = table.chain(allocations)
        value = rewards + problem.discount * chain @ value
    assert optimum.lower_bound - slack <= table.initial @ value <= optimum.upper_bound + slack
    return optimum


def random_problem(num_arms, num_states, num_actions, num_resources, sparsity, budget, integer, by_state, seed):
    return random_coupled(
        num_arms=num_arms,
        num_states=num_states,
        num_actions=num_actions,
        num_resources=num_resources,
        sparsity=sparsity,
        budget=budget,
        integer_usage=integer,
        state_dependent_usage=by_state,
        discount=0.9,
        seed=seed,
    )


def cycles(num_arms: int, num_states: int, budget: float, seed: int) -> CoupledMDP:
    """Idle arms go round; served ones jump somewhere, for sure: nothing is random but the start."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((num_states, 2, num_states))
    rows[np.arange(num_states), 0, (np.arange(num_states) + 1) % num_states] = 1.0
    rows[np.arange(num_states), 1, rng.integers(num_states, size=num_states)] = 1.0
    arm = Arm(transitions=rows, rewards=rng.random((num_states, 2)), usage=[[0.0], [1.0]])
    return CoupledMDP(arms=[arm], budget=[budget], discount=1.0, counts=[num_arms], criterion="finite:5")


def two_idle_actions(num_arms: int, seed: int) -> CoupledMDP:
    """Arms with two idle actions that move differently."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(3), size=(3, 3))
    arm = Arm(transitions=rows, rewards=rng.random((3, 3)), usage=[[0.0], [0.0], [1.0]])
    return CoupledMDP(arms=[arm], budget=[2.0], discount=0.9, counts=[num_arms])


def kept_alive(num_arms: int = 2) -> CoupledMDP:
    """Served arms live, idle ones sink. One arm alone can be brought back, but not all: the start matters."""
    rows = np.zeros((3, 2, 3))  # healthy, low, dead
    rows[[0, 1, 2], 0, [1, 2, 2]] = 1.0
    rows[[0, 1, 2], 1, [0, 0, 1]] = 1.0
    arm = Arm(transitions=rows, rewards=[[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]], usage=[[0.0], [1.0]])
    return CoupledMDP(arms=[arm], budget=[1.0], discount=0.9, counts=[num_arms])


def apart(num_arms: int = 3) -> CoupledMDP:
    """Two pairs of states, and no way from one to the other."""
    rows = np.zeros((4, 2, 4))
    rows[:2, :, :2] = 0.5
    rows[2:, :, 2:] = 0.5
    arm = Arm(transitions=rows, rewards=[[1.0, 2.0], [0.0, 0.0], [5.0, 6.0], [3.0, 3.0]], usage=[[0.0], [1.0]])
    return CoupledMDP(arms=[arm], budget=[1.0], discount=0.9, counts=[num_arms])


PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=8, budget=2),
    "machines, five states": lambda: machine_replacement(num_arms=4, num_states=5, budget=1),
    "machines, pure reset": lambda: machine_replacement(num_arms=7, budget=2, reset="pure"),
    "machines that may fail to reset": lambda: machine_replacement(num_arms=7, budget=2, reset_probability=0.7),
    "machines, ample budget": lambda: machine_replacement(num_arms=6, budget=50),
    "machines, no budget": lambda: machine_replacement(num_arms=6, budget=0),
    "machines, one arm": lambda: machine_replacement(num_arms=1, budget=1),
    "dense": lambda: random_coupled(num_arms=6, num_states=3, budget=4, seed=1),
    "dense, state-dependent": lambda: random_coupled(
        num_arms=5, num_states=3, num_actions=3, num_resources=2, budget=4, state_dependent_usage=True, seed=2
    ),
    "sparse": lambda: random_coupled(num_arms=5, num_states=3, sparsity=0.6, budget=3, seed=7),
    "one state": lambda: random_coupled(num_arms=6, num_states=1, num_actions=3, budget=5, seed=9),
    "two idle actions": lambda: two_idle_actions(4, seed=0),
    "cycles": lambda: cycles(4, 3, 1.0, seed=0),
    "cycles, never served": lambda: cycles(3, 4, 0.0, seed=1),
}

RANDOM = {
    "num_arms": st.integers(1, 5),
    "num_states": st.integers(2, 3),
    "num_actions": st.integers(2, 3),
    "num_resources": st.integers(1, 2),
    "sparsity": st.sampled_from([0.0, 0.5, 1.0]),
    "budget": st.floats(0.0, 5.0),
    "integer": st.booleans(),
    "by_state": st.booleans(),
    "seed": st.integers(0, 10**6),
}


# -- average ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "cycles, never served"])
def test_average_agrees_with_linear_programs(name):
    assert check_average(PROBLEMS[name]()) is not None


@given(**RANDOM)
def test_average_agrees_on_random_problems(**drawn):
    check_average(random_problem(**drawn))
    check_average(random_problem(**drawn), small=np.inf)


@settings(deadline=None, max_examples=40)
@given(num_arms=st.integers(1, 4), num_states=st.integers(2, 4), budget=st.integers(0, 3), seed=st.integers(0, 10**6))
@example(num_arms=4, num_states=4, budget=3, seed=400923)  # two classes with means that differ by 3e-5
def test_average_agrees_where_nothing_is_random(num_arms, num_states, budget, seed):
    check_average(cycles(num_arms, num_states, budget, seed), small=np.inf)


@pytest.mark.parametrize("name", ["machines", "machines, pure reset", "dense", "two idle actions"])
def test_average_is_the_limit_of_discounting(name):
    """(1 - discount) times the discounted optimum comes nearer in proportion to 1 - discount."""
    problem = PROBLEMS[name]()
    mean = solve(problem.with_criterion("average"), 1e-9).upper_bound
    apart_by = []
    for discount in (0.99, 0.999, 0.9999):
        optimum = solve(problem.with_criterion(Discounted(discount)), 1e-9)
        apart_by.append(abs((1 - discount) * optimum.upper_bound - mean))
    assert apart_by[0] > 5 * apart_by[1] > 25 * apart_by[2]
    assert apart_by[2] < 1e-3


def test_average_does_not_depend_on_the_start():
    problem = machine_replacement(num_arms=8, budget=1).with_criterion("average")
    plan = plan_counts(problem)
    found = [solve_counts(plan, law) for law in np.eye(3)]
    assert found[0].lower_bound == found[1].lower_bound == found[2].lower_bound


def test_average_refuses_states_that_are_apart():
    with pytest.raises(NotApplicableError):
        plan_counts(apart().with_criterion("average"))
    assert np.ptp(Table(apart()).best_means()) > 1
    solve(apart())  # discounted, there is nothing to refuse


def test_average_refuses_a_start_that_matters_only_to_all_arms_together():
    """No graph of one arm shows it: the bounds stop closing, and that is told."""
    assert np.ptp(Table(kept_alive()).best_means()) > 0.1
    with pytest.raises(NotApplicableError):
        solve(kept_alive().with_criterion("average"))
    assert check_average(kept_alive(num_arms=1)) is not None


def test_a_budget_that_affords_no_way_back_keeps_states_apart():
    """Which classes are closed depends on what can be afforded."""
    rows = np.zeros((2, 2, 2))
    rows[[0, 1], 0, [0, 1]] = 1.0
    rows[[0, 1], 1, [1, 0]] = 1.0
    arm = Arm(transitions=rows, rewards=[[1.0, 0.0], [0.0, 0.0]], usage=[[0.0], [1.0]])
    rich, poor = (
        CoupledMDP(arms=[arm], budget=[budget], discount=0.9, counts=[3], criterion="average") for budget in (1, 0)
    )
    assert solve(rich).lower_bound == pytest.approx(1.0)  # all arms are brought to the good state, and stay
    with pytest.raises(NotApplicableError, check=mentions("2 groups")):
        solve(poor)


def slow(forgets: float, num_arms: int = 5) -> CoupledMDP:
    """Arms that stay where they are but for once in 1 / forgets steps, up and down three states."""
    up = forgets * np.array([[-1.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -1.0]])
    served = forgets * np.array([[-1.0, 1.0, 0.0], [3.0, -4.0, 1.0], [0.0, 4.0, -4.0]])
    arm = Arm(
        transitions=np.eye(3)[:, None] + np.stack([up, served], axis=1),
        rewards=[[1.0, 0.9], [0.5, 0.4], [0.0, 0.0]],
        usage=[[0.0], [1.0]],
    )
    return CoupledMDP(arms=[arm], budget=[2], discount=0.9, counts=[num_arms])


def solve_by_policies(table: Table, discount: float) -> float:
    """The optimum by Howard's policy iteration with dense linear systems; the best mean, if the discount is 1.

    Undiscounted, the last count state has the value 0, and its place in the system is taken by the mean.
    """
    choice = np.searchsorted(table.state, np.arange(table.num_states))
    better = np.ones(1, dtype=bool)
    while better.any():
        system = np.eye(table.num_states) - discount * table.transitions[choice]
        if discount == 1:
            system[:, -1] = 1.0
        value = np.linalg.solve(system, table.rewards[choice])
        mean = value[-1] if discount == 1 else None
        if mean is not None:
            value[-1] = 0.0
        pairs = table.rewards + discount * table.transitions @ value
        best = np.full(table.num_states, -np.inf)
        np.maximum.at(best, table.state, pairs)
        better = best > pairs[choice] + 1e-9
        first = np.full(table.num_states, len(pairs))
        np.minimum.at(first, table.state, np.where(pairs == best[table.state], np.arange(len(pairs)), len(pairs)))
        choice = np.where(better, first, choice)
    return float(table.initial @ value if mean is None else mean)


@pytest.mark.parametrize("forgets", [1e-2, 1e-4])
def test_average_with_arms_that_forget_slowly(forgets):
    """Where linear programs no longer see the moves, policy iteration does."""
    problem = slow(forgets).with_criterion("average")
    optimum = solve(problem)
    exact = solve_by_policies(Table(problem), 1.0)
    assert optimum.lower_bound - 1e-9 <= exact <= optimum.upper_bound + 1e-9
    assert optimum.upper_bound - optimum.lower_bound <= 1e-8
    assert optimum.rounds < 20  # sweeps alone would take about 1 / forgets of them


def test_average_with_arms_that_forget_too_slowly_is_refused():
    """Relative values are as large as 1e6, and bounds as near as their rounding would be called closed."""
    with pytest.raises(NotConvergedError):
        solve(slow(1e-6).with_criterion("average"))


@pytest.mark.parametrize("build", [apart, kept_alive, lambda: slow(1e-4)])
def test_a_discount_next_to_one_does_where_an_average_does_not(build):
    """What the refusal of an average advises must be possible."""
    problem = build().with_criterion(Discounted(0.99999))
    optimum = solve(problem, 1e-7)
    exact = solve_by_policies(Table(problem), 0.99999)
    assert optimum.lower_bound - 1e-9 * exact <= exact <= optimum.upper_bound + 1e-9 * exact
    assert optimum.upper_bound - optimum.lower_bound <= 1e-7 * exact
    assert optimum.rounds < 20


def test_rounding_does_not_grow_with_the_rounds_of_an_average():
    problem = machine_replacement(num_arms=30, budget=3).with_criterion("average")
    finest = solve(problem, 1e-16)  # as fine as rounding allows
    assert 0 < finest.upper_bound - finest.lower_bound < 1e-12
    assert np.abs(finest.value_function).max() < 100


@pytest.mark.parametrize("criterion", [Average(), Finite(7, 0.9)])
@pytest.mark.parametrize(
    "name", ["machines", "machines, pure reset", "machines that may fail to reset", "dense, state-dependent"]
)
def test_sweeps_and_tables_solve_alike(name, criterion, monkeypatch):
    problem = PROBLEMS[name]().with_criterion(criterion)
    plain = solve(problem, small=np.inf)
    compiled = solve(problem)
    assert compiled.upper_bound == pytest.approx(plain.upper_bound, rel=1e-8)
    assert compiled.lower_bound == pytest.approx(plain.lower_bound, rel=1e-8)
    monkeypatch.setattr("evenhand.solvers.counts.post_decision.factorise", lambda matrix: None)
    by_laws = solve(problem)
    assert by_laws.upper_bound == pytest.approx(plain.upper_bound, rel=1e-8)


# -- finite ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "num_steps"), crossed(PROBLEMS, [1, 2, 9]))
def test_finite_agrees_with_backward_induction(name, num_steps):
    check_finite(PROBLEMS[name](), num_steps)


@given(num_steps=st.integers(1, 12), discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]), **RANDOM)
def test_finite_agrees_on_random_problems(num_steps, discount, **drawn):
    problem = random_problem(**drawn)
    arms = problem.tables
    check_finite(CoupledMDP(arms, problem.budget, discount, problem.counts, criterion=f"finite:{num_steps}"), num_steps)


def test_a_long_horizon_tends_to_the_endless_ones():
    problem = machine_replacement(num_arms=8, budget=1, discount=0.9)
    endless = solve(problem, 1e-12).upper_bound
    for num_steps in (20, 100, 300):
        finite = solve(problem.with_criterion(Finite(num_steps, 0.9))).upper_bound
        left_out = 0.9**num_steps * 10 * float(np.abs(problem.types.rewards).max())
        assert abs(endless - finite) <= left_out + 1e-9
    mean = solve(problem.with_criterion("average"), 1e-12).upper_bound
    apart_by = [abs(solve(problem.with_criterion(Finite(n))).upper_bound / n - mean) for n in (10, 100, 1000)]
    assert apart_by[0] > 5 * apart_by[1] > 25 * apart_by[2]


def test_finite_shows_its_steps():
    seen: list[tuple[int, float]] = []
    plan = plan_counts(machine_replacement(num_arms=10, budget=1).with_criterion("finite:4"))
    optimum = solve_counts(plan, np.ones(3) / 3, progress=lambda number, gap: seen.append((number, gap)))
    assert seen == [(1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)]
    assert optimum.rounds == 4
    assert optimum.choices.shape == (4, comb(12, 2), len(optimum.cells))


def test_a_finite_horizon_is_refused_before_its_choices_would_not_fit():
    plan = plan_counts(machine_replacement(num_arms=1000, budget=100).with_criterion("finite:1000000"))
    assert plan.size_in_bytes > 1e12
    with pytest.raises(TooLargeError, check=mentions(1000000)):
        solve_counts(plan, np.ones(3) / 3)


# -- policies --------------------------------------------------------------------------------------------------------


def test_a_policy_of_steps_shares_the_choices_and_plays_them():
    problem = machine_replacement(num_arms=6, budget=2).with_criterion("finite:5")
    optimum = solve(problem)
    policy = count_policy(problem, optimum.cells, optimum.base, optimum.choices)
    assert isinstance(policy, TimeVaryingPolicy)
    assert all(isinstance(part, CountChoices) and part.amounts.base is optimum.choices for part in policy.parts)
    counts = Counts(problem).states
    rng = np.random.default_rng(0)
    actor = begin(policy, len(counts), rng)
    for step in range(5):
        played = actor.allocate(counts, rng)[:, 0]
        assert np.array_equal(played, allocations_of(problem, optimum, step))


def test_a_policy_without_steps_is_one_table():
    problem = machine_replacement(num_arms=6, budget=2)
    optimum = solve(problem)
    policy = count_policy(problem, optimum.cells, optimum.base, optimum.choices)
    assert isinstance(policy, CountChoices)
    assert policy.amounts is optimum.choices


# -- one policy, any rewards -----------------------------------------------------------------------------------------
