"""Contract of plans that `solve` finds by simulation, over problems, welfares and policies.

1. No policy of the roster, and no plan for another welfare, is better by the requested welfare.
2. A larger budget, or one resource more, gives no worse plan.
3. Identical arms have identical values; so have groups.
4. The upper bound is not below any value.
5. By leximin a plan is compared level by level: at the first that differs by more, it is the better one.

Each within three standard errors. Policies are judged anew, on episodes of the test's own. The default run has few
welfares, a fleet of which few steps matter, and plans that are looked for on few episodes: the promises hold for them
all the same.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from evenhand import solve
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.evaluation import evaluate, mean_by_type, simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import Arm, CoupledMDP, MixturePolicy, Objective, is_exchangeable
from evenhand.planning import REGISTRY, PolicyScorer, choice_of, relax
from evenhand.problems import health_outreach, heterogeneous_machine_replacement

from ..conftest import slow_after


class Quadratic:
    """A welfare of a user's own: concave, symmetric, monotone where values are below 100."""

    name = "quadratic"

    def __call__(self, values, counts=None):
        share = np.ones(len(values)) if counts is None else np.asarray(counts)
        share = share / share.sum()
        return float((share * (values - values**2 / 200)).sum())

    def supergradient(self, values, counts=None):
        share = np.ones(len(values)) if counts is None else np.asarray(counts)
        return share / share.sum() * (1 - values / 100)

    def check_domain(self, values):
        pass


FEW = ("gini:2", "maximin", "leximin", "alpha:2", "utilitarian")
MORE = ("gini:1.1", "gini:1.5", "maximin:0.5", "alpha:0.5", "alpha:1", "alpha:5", "quadratic")


def welfare_of(name):
    return Quadratic() if name == "quadratic" else name


def van(wear, loss, mending):
    """Four states; servicing takes a technician, an overhaul a bay and two technicians."""
    moves, rewards = np.zeros((4, 3, 4)), np.zeros((4, 3))
    for state in range(4):
        moves[state, 0, min(state + 1, 3)] += wear
        moves[state, 0, state] += 1 - wear
        moves[state, 1, max(state - 1, 0)] += mending
        moves[state, 1, state] += 1 - mending
        moves[state, 2, 0] += 0.95
        moves[state, 2, state] += 0.05
        rewards[state] = 1 - loss * (0, 0.2, 0.6, 1)[state] - np.array([0, 0.1, 0.3])
    return Arm(transitions=moves, rewards=rewards, usage=[[0, 0], [0, 1], [1, 2]], initial=[1, 0, 0, 0])


def fleet(bays=2, technicians=3, over="arms", criterion=None, discount=0.95, counts=(6, 6, 4)):
    arms = [van(0.25, 0.9, 0.8), van(0.35, 0.7, 0.7), van(0.15, 1.0, 0.6)]
    groups = ["north", "south", "south"]
    problem = CoupledMDP(arms, [bays, technicians], discount, counts=list(counts), groups=groups)
    return problem.with_criterion(criterion, over)


def many_vans(criterion):
    return fleet(8, 11, "groups", criterion, counts=(16, 16, 10))


PROBLEMS = {
    "health": lambda: health_outreach(num_arms=12, num_groups=3, budget=3),
    "machines": lambda: heterogeneous_machine_replacement(num_arms=12, budget=1),
    "fleet": fleet,
    "brief fleet": lambda: fleet(discount=0.8),
    "fleet by groups": lambda: fleet(over="groups"),
    "fleet on average": lambda: fleet(criterion="average"),
    "fleet of 20 steps": lambda: fleet(criterion="finite:20"),
}

LARGER = {
    "42 vans by groups on average": lambda: many_vans("average"),
    "42 vans by groups, 20 steps": lambda: many_vans("finite:20"),
    "12 people on average": lambda: health_outreach(num_arms=12).with_criterion("average"),
    "12 people, 20 steps": lambda: health_outreach(num_arms=12).with_criterion("finite:20"),
    "30 people, 20 steps": lambda: health_outreach(num_arms=30).with_criterion("finite:20"),
}


@pytest.fixture(autouse=True)
def few_episodes(effort):
    effort(arm_steps=1e5, report_steps=5e5, inequality_steps=1e4)


@dataclass
class Judged:
    """Parts of a policy, each played on episodes of the test's own."""

    shares: np.ndarray
    columns: list

    @property
    def values(self):
        return sum(share * column.returns.mean(axis=0) for share, column in zip(self.shares, self.columns, strict=True))

    def error(self, weights):
        own = [share * column.error(weights) for share, column in zip(self.shares, self.columns, strict=True)]
        return float(np.sqrt(np.square(own).sum()))


def judge(problem, policy):
    parts, shares = (policy.parts, policy.shares) if isinstance(policy, MixturePolicy) else ((policy,), np.ones(1))
    law = choice_of(problem, relax(problem, "utilitarian").occupancy)
    play = PolicyScorer(problem, True, 3e5, 987)
    return Judged(shares, [play("part", part, law) for part in parts])


def make(kind):
    return (PROBLEMS | LARGER)[kind]()


@cache
def plan(kind, name):
    return solve(make(kind), welfare_of(name), "fluid")


def roster(problem):
    for entry in REGISTRY:
        try:
            if entry.name != "optimal":
                yield entry.name, entry.build(problem, "gini:2")
        except (NotApplicableError, InvalidInputError):
            continue


@cache
def rivals(kind, names):
    problem = make(kind)
    found = {f"plan for {name}": judge(problem, plan(kind, name).policy) for name in names}
    return found | {name: judge(problem, policy) for name, policy in roster(problem)}


def check_no_rival_is_better(kind, names):
    problem = make(kind)
    for name in names:
        objective = Objective.of_types(problem, welfare_of(name))
        own = rivals(kind, names)[f"plan for {name}"]
        reached, bound = objective(own.values), plan(kind, name).upper_bound
        for rival, other in rivals(kind, names).items():
            if objective.welfare.name.startswith("alpha") and (objective.members(other.values) <= 0).any():
                continue
            weights = objective.supergradient(other.values)
            error = np.hypot(own.error(objective.supergradient(own.values)), other.error(weights))
            assert objective(other.values) <= reached + 3 * error + 1e-6 * abs(reached), (name, rival)
            assert objective(other.values) <= bound + 3 * other.error(weights) + 1e-6 * abs(bound), (name, rival)


@pytest.mark.parametrize("kind", ["brief fleet"])
def test_no_policy_is_better_and_the_bound_holds(kind):
    check_no_rival_is_better(kind, FEW[:1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["brief fleet"])
def test_no_policy_is_better_by_two_welfares(kind):
    check_no_rival_is_better(kind, FEW[:2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROBLEMS)
def test_no_policy_is_better_by_any_welfare(kind):
    check_no_rival_is_better(kind, FEW + MORE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGER)
def test_no_policy_is_better_without_a_control_variate(kind):
    check_no_rival_is_better(kind, ("gini:2", "maximin"))


def check_more_is_no_worse(kind, more, name):
    first, second = plan(kind, name), solve(more, welfare_of(name), "fluid")
    error = np.hypot(first.welfare_stderr, second.welfare_stderr)
    assert second.welfare >= first.welfare - 3 * error - 1e-6 * abs(first.welfare)


@pytest.mark.parametrize("name", ["gini:2"])
def test_a_larger_budget_gives_no_worse_plan(name):
    check_more_is_no_worse("brief fleet", fleet(2, 4, discount=0.8), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW + MORE)
@pytest.mark.parametrize("step", [(1, 0), (0, 1), (0, 2)])
def test_larger_budgets_give_no_worse_plans(name, step):
    check_more_is_no_worse("fleet", fleet(2 + step[0], 3 + step[1]), name)
    budgets = {"health": 3, "machines": 1}
    for kind, budget in budgets.items():
        check_more_is_no_worse(kind, replace_budget(PROBLEMS[kind](), budget + sum(step)), name)


def replace_budget(problem, budget):
    return CoupledMDP(problem.arms, [budget], problem.discount, counts=problem.counts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_after(1, ["brief fleet", "fleet", "fleet by groups"]))
def test_identical_arms_have_identical_values(kind):
    found = plan(kind, "gini:2")
    assert found.by_type
    assert is_exchangeable(found.policy)
    returns = simulate(found.problem, found.policy, 300, 60, rng=4).returns
    apart = returns - mean_by_type(found.problem, returns)[:, found.problem.type_of_arm]
    assert (np.abs(apart.mean(axis=0)) <= 4.5 * standard_errors(apart) + 1e-9).all()


def test_equal_groups_have_equal_values():
    """Two groups of the same vans: equal in expectation, whatever the plan draws."""
    arms = [van(0.25, 0.9, 0.8), van(0.25, 0.9, 0.8)]
    problem = CoupledMDP(arms, [1, 2], 0.8, counts=[4, 4], groups=["north", "south"]).with_criterion(over="groups")
    found = solve(problem, "gini:2", "fluid")
    judged = judge(problem, found.policy)
    apart = np.array([1.0, -1.0])
    assert abs(judged.values @ apart) <= 3 * judged.error(apart) + 1e-9


def with_poor(budget):
    """Nobody can help the poor, three of twelve, but by whom they are visited their luck is another."""
    others = health_outreach(num_arms=9, num_groups=3, budget=budget)
    moves = np.stack([np.tile(law, (3, 1)) for law in ([0.5, 0, 0.5], [0.25, 0.5, 0.25])], axis=1)
    poor = Arm(moves, np.repeat([[0.0], [0.05], [0.1]], 2, axis=1), [[0], [1]], [0.5, 0, 0.5])
    arms, counts = [*others.arms, poor], [*others.counts, 3]
    return CoupledMDP(arms, others.budget, others.discount, counts=counts, criterion="finite:20")


def forty_vans(bays, technicians):
    makes = [van(0.25, 0.9, 0.8), van(0.35, 0.7, 0.7), van(0.15, 1.0, 0.6)]
    return CoupledMDP(makes, [bays, technicians], 0.97, counts=[15, 15, 10])


def members(problem, policy, num_episodes=600):
    """The members' values from the worst to the best, with their errors, on episodes of the test's own."""
    horizon = problem.criterion.judging_steps(1e-4)
    found = evaluate(problem, policy, "leximin", num_episodes, horizon, 77, method="monte-carlo")
    order = np.argsort(found.members)
    return found.members[order], found.member_stderr[order]


def is_worse(one, other):
    """Return whether the first level that differs by more than three standard errors is lower."""
    apart, errors = one[0] - other[0], np.hypot(one[1], other[1])
    return next((bool(gain < 0) for gain, error in zip(apart, errors, strict=True) if abs(gain) > 3 * error), False)


def check_levels(less, more):
    """More of a resource, and leximin rather than another welfare, give no plan that is worse by leximin."""
    before = members(less, solve(less, "leximin", "fluid").policy)
    found = members(more, solve(more, "leximin", "fluid").policy)
    assert not is_worse(found, before)
    for name in ("gini:2", "maximin"):
        assert not is_worse(found, members(more, solve(more, name, "fluid").policy)), name


def test_levels_are_distinguished():
    first = np.array([1.0, 5.0, 9.0]), np.full(3, 0.1)
    assert is_worse(first, (np.array([1.3, 6.0, 8.0]), np.full(3, 0.1)))
    assert not is_worse(first, (np.array([1.3, 4.0, 12.0]), np.full(3, 0.1)))


@pytest.mark.slow
def test_noise_of_the_worst_off_does_not_decide():
    """By the luck of the poor alone, `oldest-first` is the best policy: and costs the second-worst a fifth."""
    problem = with_poor(2)
    found, other = (members(problem, solve(problem, name, "fluid").policy) for name in ("leximin", "gini:2"))
    assert not is_worse(found, other)
    assert found[0][1] > 1.15 * 5.0


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_no_policy_is_better_level_by_level(budget):
    check_levels(with_poor(budget), with_poor(budget + 1))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [(3, 5), (3, 6), (4, 8), (4, 10)])
def test_forty_vans_level_by_level(budget, monkeypatch):
    monkeypatch.undo()  # as many episodes as a user has
    check_levels(forty_vans(*budget), forty_vans(budget[0], budget[1] + 1))
