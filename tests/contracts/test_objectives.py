"""Contract of every method for every objective: welfare x method x criterion x over x floors, against the oracle.

The oracle (`tests/oracles/product_space_lp.py`) is one program over the product space and shares no code with the
library. Every combination is met on one problem of the fixed list, in turn; the long run meets all of them on all.

    exact methods   value = optimum = upper bound, to 1e-6; the gap says so
    all methods     value <= optimum <= upper bound; the policy is worth what the solution says, exactly; it serves arms
                    as often as their floors ask; values have the welfare that is reported
    refusals        in words, and only where `may_refuse` says why
"""

import re
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import EvenhandError, InvalidInputError, NotApplicableError
from evenhand.model import MixturePolicy, TimeVaryingPolicy, begin
from evenhand.model import criterion as criteria
from evenhand.planning import relax
from evenhand.solvers import Joint, JointTable

from ..conftest import crossed, mentions
from ..oracles.problems import FIXED, problems, replaced
from ..oracles.product_space_lp import ProductSpace, plain_arms, read_problem, welfare_of

CLOSE = 1e-6
EXACT = ("joint-lp", "joint", "count-lp", "counts")
BY_ARMS = ("whittle", "fluid")
METHODS = (*EXACT, *BY_ARMS, "auto")
CRITERIA = ("discounted", "average", "finite:3")
OVER = ("arms", "groups")


class Kolm:
    """-log mean exp(-v): smooth, concave, symmetric, monotone, and of no family that the library knows."""

    name = "kolm"

    def __call__(self, values, counts=None):
        values, shares = np.asarray(values, dtype=float), self._shares(values, counts)
        least = values.min(axis=-1, keepdims=True)
        found = least[..., 0] - np.log((np.exp(least - values) * shares).sum(axis=-1))
        return float(found) if values.ndim == 1 else found

    def supergradient(self, values, counts=None):
        values, shares = np.asarray(values, dtype=float), self._shares(values, counts)
        weights = np.exp(values.min(axis=-1, keepdims=True) - values) * shares
        return weights / weights.sum(axis=-1, keepdims=True)

    def check_domain(self, values):
        """Every vector is fine."""

    @staticmethod
    def _shares(values, counts):
        counts = np.ones(np.shape(values)[-1]) if counts is None else np.asarray(counts, dtype=float)
        return counts / counts.sum()


class Halfway:
    """Half the mean and half the worst: kinked, and rank-weighted without saying so."""

    name = "halfway"

    def __call__(self, values, counts=None):
        values = np.asarray(values, dtype=float)
        found = ((values * Kolm._shares(values, counts)).sum(axis=-1) + values.min(axis=-1)) / 2
        return float(found) if values.ndim == 1 else found

    def supergradient(self, values, counts=None):
        values, shares = np.asarray(values, dtype=float), Kolm._shares(values, counts)
        worst = (values == values.min(axis=-1, keepdims=True)) * shares
        return (shares + worst / worst.sum(axis=-1, keepdims=True)) / 2

    def check_domain(self, values):
        """Every vector is fine."""


def falling(number):
    """Gini weights proportional to n, n - 1, ..., 1, as text."""
    weights = np.arange(number, 0, -1) * 2 / (number * (number + 1))
    return "gini:" + ",".join(repr(float(w)) for w in weights) if number > 1 else "gini:1"


WELFARES = {
    "gini:2": lambda number: "gini:2",
    "gini, explicit": falling,
    "utilitarian": lambda number: "utilitarian",
    "maximin": lambda number: "maximin",
    "maximin:0.01": lambda number: "maximin:0.01",
    "leximin": lambda number: "leximin",
    "alpha:0.5": lambda number: "alpha:0.5",
    "nash": lambda number: "nash",
    "alpha:2": lambda number: "alpha:2",
    "open, smooth": lambda number: Kolm(),
    "open, kinked": lambda number: Halfway(),
}
NOT_RANK_WEIGHTED = {"leximin", "alpha:0.5", "nash", "alpha:2", "open, smooth", "open, kinked"}


class Case:
    """A problem under a criterion, with welfare over someone, and its oracle."""

    def __init__(self, problem, criterion, over):
        self.problem, self.criterion, self.over = problem, criterion, over
        self.oracle = read_problem(problem, criterion, over)
        self.seen = problem.with_criterion(criterion, over)
        self.optima = {}

    def optimum(self, welfare):
        if welfare not in self.optima:
            self.optima[welfare] = self.oracle.best(self.welfare(welfare))
        return self.optima[welfare]

    def welfare(self, name):
        return WELFARES[name](self.oracle.num_members)

    def solve(self, welfare, method):
        return eh.solve(self.problem, self.welfare(welfare), method=method, criterion=self.criterion, over=self.over)

    def evaluate(self, policy, welfare, problem=None):
        return eh.evaluate(
            problem or self.problem,
            policy,
            self.welfare(welfare),
            criterion=self.criterion,
            over=self.over,
            method="exact",
        )

    def scale(self, best):
        """Scale of errors: the optimum, unless that is nearly 0."""
        return max(
            abs(best), 1e-3 * self.oracle.total * max(np.abs(arm.rewards).max() for arm in self.oracle.space.arms)
        )


def may_refuse(case, welfare, method):
    """Why a method may refuse this, or nothing."""
    typed, mean = case.seen.num_types > 1, welfare == "utilitarian"
    if method == "joint-lp" and welfare in NOT_RANK_WEIGHTED:
        return "joint-lp is for rank-weighted welfare"
    if method == "count-lp" and typed and not mean:
        return "count-lp maximises the mean"
    if method == "whittle" and (case.problem.has_floors or not has_indices(case)):
        return "no Whittle indices, or none that keep floors"
    if case.criterion == "average" and not forgets_its_start(case, method):
        return "the best long-run mean may depend on the start"
    return ""


def forgets_its_start(case, method):
    """Return whether every weighting's best long-run mean is the same from every state, of all arms or of each one."""
    if method not in BY_ARMS:
        return case.oracle.space.num_end_components == 1
    budgets = (case.problem.budget, np.full(case.problem.num_resources, np.inf))
    alone = [ProductSpace([arm], budget) for arm in plain_arms(case.problem) for budget in budgets]
    return all(space.num_end_components == 1 for space in alone)


def has_indices(case):
    """One resource, an idle action and one that always uses the same; in the long run, one chain whatever is done."""
    for arm in plain_arms(case.problem):
        if arm.usage.shape[1:] != (2, 1) or np.ptp(arm.usage, axis=0).max() != 0 or not arm.usage[0, 1, 0] > 0:
            return False
        if case.criterion == "average" and not all(
            one_chain(arm, acts) for acts in product(*[(0, 1)] * len(arm.rewards))
        ):
            return False
    return True


def one_chain(arm, actions):
    moves = np.array([arm.transitions[s, a] for s, a in enumerate(actions)])
    reached = np.linalg.matrix_power((np.eye(len(moves)) + moves) / 2, 2**20)
    return bool(np.abs(reached - reached[0]).max() < 1e-6)


def check(case, welfare, method):
    """One combination; returns what was refused, if it was."""
    try:
        solution = case.solve(welfare, method)
    except NotApplicableError as refusal:
        assert may_refuse(case, welfare, method), f"refused without a documented reason: {refusal}"
        assert len(str(refusal).split()) > 4, "a refusal says why, in words"
        return str(refusal)
    check_bounds(case, welfare, method, solution)
    check_values(case, welfare, solution)
    check_policy(case, welfare, solution)
    return ""


def check_bounds(case, welfare, method, solution):
    best = case.optimum(welfare)
    room = CLOSE * case.scale(best.welfare)
    chance = 5 * solution.welfare_stderr
    assert solution.welfare <= best.bound + room + chance, "better than the best"
    assert solution.upper_bound >= best.welfare - room, "an upper bound below the optimum"
    if method in EXACT or (method == "auto" and solution.method in EXACT):
        assert solution.welfare_stderr == 0
        assert solution.welfare >= best.welfare - room
        assert solution.upper_bound <= best.bound + room
        assert solution.gap <= 2 * CLOSE
        if welfare == "leximin":
            members = np.sort(case.oracle.averaging @ solution.values)
            assert members == pytest.approx(best.members, abs=10 * room)


def check_values(case, welfare, solution):
    assert solution.values.shape == (case.problem.num_arms,)
    found = welfare_of(case.welfare(welfare), case.oracle.averaging @ solution.values)
    # Where arms were simulated, the welfare of means over equal arms is not that of the means of each.
    assert found == pytest.approx(solution.welfare, rel=CLOSE, abs=3 * solution.welfare_stderr + 1e-12)


def check_policy(case, welfare, solution):
    """The policy is worth what was said, and serves arms often enough."""
    try:
        evaluation = case.evaluate(solution.policy, welfare)
    except NotApplicableError:
        assert solution.method in BY_ARMS, "the policy of an exact method can be evaluated exactly"
        return check_by_playing(case, solution)
    assert evaluation.exact
    if not solution.welfare_stderr:
        room = CLOSE * case.scale(solution.welfare)
        assert evaluation.welfare == pytest.approx(solution.welfare, abs=room)
        assert evaluation.values == pytest.approx(solution.values, abs=10 * room)
    if case.problem.has_floors:
        shares = served_shares(case, solution.policy)
        assert (shares >= case.oracle.floors - CLOSE).all(), "a floor is not kept"
        means = [shares[case.seen.type_of_arm == t].mean() for t in range(case.seen.num_types)]
        assert np.asarray(evaluation.served) == pytest.approx(means, abs=CLOSE)
    return None


def served_shares(case, policy):
    """(arm,) how often a policy serves each arm: its exact value where to be served is what pays.

    A constant for each type keeps types apart that differ in their rewards only.
    """
    kinds = case.seen.type_of_block
    arms = [case.problem.arms[b] for b in range(len(kinds))]
    paid = [
        eh.Arm(arm.transitions, (arm.usage > 0).any(axis=2) + 10.0 * kind, arm.usage, arm.initial)
        for arm, kind in zip(arms, kinds, strict=True)
    ]
    other = replaced(case.problem, arms=paid)
    values = case.evaluate(
        transplanted(policy, other.with_criterion(case.criterion, case.over)), "utilitarian", other
    ).values
    return values / case.oracle.total - 10.0 * case.seen.type_of_arm


def transplanted(policy, problem):
    """The same tables of joint states for a problem that differs in its rewards only."""
    if isinstance(policy, TimeVaryingPolicy):
        return TimeVaryingPolicy([transplanted(part, problem) for part in policy.parts])
    if isinstance(policy, MixturePolicy):
        return MixturePolicy([transplanted(part, problem) for part in policy.parts], policy.shares)
    return JointTable(Joint(problem), policy.probabilities) if isinstance(policy, JointTable) else policy


def time_weights(case):
    """(step,) what each step weighs, without what is beyond 1e-6 of the whole; of an average the first do not count."""
    kind, _, steps = case.criterion.partition(":")
    if kind == "average":
        return np.repeat([0.0, 1 / 200], [50, 200])
    discount = case.problem.discount
    enough = int(steps) if steps else int(np.ceil(np.log(1e-6) / np.log(discount))) if discount else 1
    return discount ** np.arange(enough)


def play(case, policy, num_episodes, seed=0):
    """(episode, arm) returns and shares of time served, by a plain loop of our own over steps."""
    arms, rng, weights = plain_arms(case.problem), np.random.default_rng(seed), time_weights(case)
    states = np.stack([rng.choice(len(a.initial), num_episodes, p=a.initial) for a in arms], axis=1).astype(np.int32)
    actor = begin(policy, num_episodes, rng)
    returns, served = np.zeros(states.shape), np.zeros(states.shape)
    for weight in weights:
        actions = np.asarray(actor.act(states, rng))
        used = sum(arm.usage[states[:, n], actions[:, n]] for n, arm in enumerate(arms))
        assert (used <= case.problem.budget * (1 + 1e-9)).all()
        following = np.empty_like(states)
        for n, arm in enumerate(arms):
            returns[:, n] += weight * arm.rewards[states[:, n], actions[:, n]]
            served[:, n] += weight / weights.sum() * arm.served[states[:, n], actions[:, n]]
            ends = np.cumsum(arm.transitions[states[:, n], actions[:, n]], axis=1)
            drawn = (rng.random(num_episodes)[:, None] > ends).sum(axis=1)
            following[:, n] = np.minimum(drawn, len(arm.initial) - 1)
        states = following
    return returns, served


def check_by_playing(case, solution, num_episodes=400):
    """Check a policy without a known distribution: values and floors, within chance. Equal arms are pooled."""
    returns, served = play(case, solution.policy, num_episodes)
    kinds = case.seen.type_of_arm
    room = 5 * returns.std(axis=0) / np.sqrt(num_episodes) + 5 * solution.welfare_stderr + 1e-3 * case.oracle.total
    for kind in range(case.seen.num_types):
        mine = kinds == kind
        assert abs(returns[:, mine].mean() - solution.values[mine].mean()) <= room[mine].max()
    error = 5 * served.std(axis=0) / np.sqrt(num_episodes) + CLOSE
    assert (served.mean(axis=0) >= case.oracle.floors - error).all(), "a floor is not kept"


# Every combination, each on one problem of the list in turn.


@cache
def fixed_case(name, criterion, over, floors, short=False):
    """With floors: shares, falling from block to block, of the largest that all arms can have at once.

    Short problems are discounted so that few steps matter: what is judged by playing takes as long as there are steps.
    """
    problem = FIXED[name]()
    if short:
        problem = replaced(problem, discount=min(problem.discount, 0.5))
    if floors:
        most = read_problem(problem, criterion).largest_common_floor(range(problem.num_arms))
        problem = replaced(problem, floors=[0.9 * most / (1 + b) for b in range(len(problem.counts))])
    return Case(problem, criterion, over)


SERVABLE = [name for name in FIXED if name != "nothing to give"]
OBJECTIVES = list(product(CRITERIA, OVER, (False, True), WELFARES))


def problem_in_turn(number):
    _, _, floors, _ = OBJECTIVES[number]
    names = SERVABLE if floors else list(FIXED)
    return names[number % len(names)]


def is_long(number, method):
    """Return whether a combination is in the slow run only.

    Each method meets every twelfth one: each welfare once, all criteria, and all four combinations of over and floors;
    the next method meets the welfare under the next criterion, so that all pairs of these are met by some method.
    """
    criterion, over, floors, welfare = OBJECTIVES[number]
    place = list(WELFARES).index(welfare) + METHODS.index(method)
    turn, other = place + OVER.index(over) + 2 * floors, place + CRITERIA.index(criterion)
    return turn % 4 > 0 or other % len(CRITERIA) > 0


COMBINATIONS = [(n, method) for n in range(len(OBJECTIVES)) for method in METHODS if not is_long(n, method)]


def test_the_default_run_covers_every_pair():
    found = [(method, *OBJECTIVES[number]) for number, method in COMBINATIONS]
    axes = [METHODS, CRITERIA, OVER, (False, True), WELFARES]
    for first, second in combinations(range(5), 2):
        assert len({(case[first], case[second]) for case in found}) == len(axes[first]) * len(axes[second])


def told(combination):
    number, method = combination
    return "-".join([method, problem_in_turn(number), *map(str, OBJECTIVES[number])])


@pytest.mark.parametrize("combination", COMBINATIONS, ids=told)
def test_every_objective(combination, monkeypatch):
    """Averages are played for fewer steps here: these problems forget their start within a few."""
    monkeypatch.setattr(criteria, "USUAL_AVERAGE_HORIZON", 100)
    number, method = combination
    criterion, over, floors, welfare = OBJECTIVES[number]
    check(fixed_case(problem_in_turn(number), criterion, over, floors, method in BY_ARMS), welfare, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FIXED)
def test_every_objective_on_every_problem(name, method):
    for criterion, over, floors, welfare in OBJECTIVES:
        if not (floors and name == "nothing to give"):
            check(fixed_case(name, criterion, over, floors, method in BY_ARMS), welfare, method)


# Random problems.


def check_random(problem, criterion, over, welfare, method):
    check(Case(problem, criterion, over), welfare, method)


ANY = {
    "criterion": st.sampled_from(CRITERIA),
    "over": st.sampled_from(OVER),
    "welfare": st.sampled_from(sorted(WELFARES)),
}


@settings(derandomize=True)
@given(problem=problems(most_pairs=64, least_reward=1), method=st.sampled_from((*EXACT, "auto")), **ANY)
def test_random_problems(problem, method, criterion, over, welfare):
    check_random(problem, criterion, over, welfare, method)


@pytest.mark.slow
@settings(derandomize=True)
@given(problem=problems(most_pairs=64, least_reward=1, discounts=(0.0, 0.5)), method=st.sampled_from(BY_ARMS), **ANY)
def test_random_problems_arm_by_arm(problem, method, criterion, over, welfare):
    check_random(problem, criterion, over, welfare, method)


@settings(derandomize=True)
@given(
    problem=problems(most_pairs=64, least_reward=-8),
    method=st.sampled_from(EXACT),
    **ANY | {"welfare": st.sampled_from(sorted(w for w in WELFARES if w not in ("alpha:0.5", "nash", "alpha:2")))},
)
def test_rewards_below_zero(problem, method, criterion, over, welfare):
    check_random(problem, criterion, over, welfare, method)


@pytest.mark.slow
@settings(max_examples=1500)
@given(problem=problems(most_pairs=400, least_reward=1), method=st.sampled_from((*EXACT, "auto")), **ANY)
def test_many_random_problems(problem, method, criterion, over, welfare):
    check_random(problem, criterion, over, welfare, method)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    problem=problems(most_pairs=100, least_reward=1, discounts=(0.0, 0.5, 0.9)), method=st.sampled_from(BY_ARMS), **ANY
)
def test_many_random_problems_arm_by_arm(problem, method, criterion, over, welfare):
    check_random(problem, criterion, over, welfare, method)


# Refusals.


@pytest.mark.parametrize("welfare", sorted(NOT_RANK_WEIGHTED))
@pytest.mark.parametrize("criterion", CRITERIA)
def test_joint_lp_refuses_a_welfare_that_is_not_rank_weighted(welfare, criterion):
    case = fixed_case("different", criterion, "arms", False)
    with pytest.raises(NotApplicableError, check=mentions("joint-lp")):
        case.solve(welfare, "joint-lp")


@pytest.mark.parametrize(
    ("name", "welfare", "method"), crossed(["dying", "clocks", "forks"], ["utilitarian", "gini:2"], EXACT)
)
def test_a_long_run_that_depends_on_the_start_is_treated_rightly_or_refused(name, welfare, method):
    case = fixed_case(name, "average", "arms", False)
    assert case.oracle.space.num_end_components > 1
    refusal = check(case, welfare, method)
    assert not refusal or "start" in refusal or welfare != "utilitarian", "says what the matter is"


def test_the_start_does_matter_there():
    for name in ("clocks", "forks"):
        case = fixed_case(name, "average", "arms", False)
        assert np.ptp(case.oracle.best_means(np.ones(case.problem.num_arms))) > 0.1


@pytest.mark.parametrize(
    ("name", "method"),
    crossed(
        ["symmetric", "one arm", "four alike", "typed", "different", "two resources", "fading", "turning"],
        [*EXACT, "fluid", "auto"],
    ),
)
def test_a_long_run_that_forgets_its_start_is_never_refused(name, method):
    if method == "fluid":  # whether it refuses is seen without playing
        assert relax(fixed_case(name, "average", "arms", False).seen, "gini:2").welfare > 0
        return
    case = fixed_case(name, "average", "arms", False)
    assert case.oracle.space.num_end_components == 1
    assert check(case, "utilitarian", method) == ""


@pytest.mark.parametrize(
    ("name", "criterion", "method"),
    crossed(["symmetric", "typed", "two resources"], CRITERIA, [*EXACT, "fluid", "auto"]),
)
def test_infeasible_floors_are_refused_with_the_largest_feasible_share(name, criterion, method):
    free = fixed_case(name, criterion, "arms", False)
    largest = free.oracle.largest_common_floor(range(free.problem.num_arms))
    case = Case(replaced(free.problem, floors=[0.5 + largest / 2] * len(free.problem.counts)), criterion, "arms")
    assert not case.oracle.feasible
    with pytest.raises(InvalidInputError, check=mentions("floor")) as refusal:
        case.solve("utilitarian", method)
    numbers = [float(x) for x in re.findall(r"\d+\.\d+|\d+", str(refusal.value))]
    if method == "fluid":  # it knows how often arms can be served at most
        assert max(x for x in numbers if x <= 1) >= largest * (1 - 1e-3)
        return
    assert min(abs(x - largest) for x in numbers) <= 1e-3 * largest, f"{largest} is not in: {refusal.value}"


def test_a_welfare_without_a_supergradient_is_refused():
    class Nameless:
        name = "nameless"

        def __call__(self, values, counts=None):
            return float(np.min(values))

    with pytest.raises(InvalidInputError, check=mentions("welfare")):
        eh.solve(FIXED["typed"](), Nameless())


# Found by this suite.


@pytest.mark.slow
@pytest.mark.parametrize("method", ["joint", "counts"])
def test_values_that_nearly_cancel(method):
    """Gains of 5/8 and losses of 5/8 in turn, hardly discounted: the optimum is tiny beside what it is made of."""
    moves = [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]]
    arm = eh.Arm(moves, [[0.625, 0.0], [-0.625, -0.625]], [[0.0], [2.0]], [1 / 3, 2 / 3])
    check(Case(eh.CoupledMDP([arm], [0.0], 0.999, counts=[3]), "discounted", "arms"), "maximin:0.01", method)


# What criteria and groups mean, without the oracle.


@pytest.mark.parametrize(("name", "method"), crossed(["symmetric", "typed", "two resources"], EXACT))
def test_criteria_meet_at_their_ends(name, method):
    problem = FIXED[name]()

    def best(criterion, discount=problem.discount):
        changed = replaced(problem, discount=discount, criterion="average" if discount == 1 else "discounted")
        return eh.solve(changed, "utilitarian", method=method, criterion=criterion).welfare

    assert best("finite:1") == pytest.approx(best("discounted", 0.0), rel=CLOSE)
    assert best("finite:12", 0.2) == pytest.approx(best("discounted", 0.2), rel=CLOSE)
    assert best("average", 1.0) == pytest.approx(best("average", 0.5), rel=CLOSE)
    assert 0.001 * best("discounted", 0.999) == pytest.approx(best("average"), rel=1e-2)
    if not method.endswith("lp"):  # a linear program of a hundred steps takes its time
        assert best("finite:100", 1.0) - best("finite:99", 1.0) == pytest.approx(best("average"), rel=CLOSE)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("method", ["joint", "counts"])
def test_every_block_a_group_is_over_types_and_one_group_is_the_mean(method, criterion):
    problem = replaced(FIXED["typed"](), groups=("all", "all"))
    solved = eh.solve(problem, "gini:2", method=method, criterion=criterion, over="groups")
    mean = eh.solve(problem, "utilitarian", method=method, criterion=criterion)
    assert solved.welfare == pytest.approx(mean.welfare, rel=CLOSE)


@pytest.mark.parametrize("where", ["argument", "problem"])
def test_the_objective_of_the_problem_is_the_default(where):
    problem = FIXED["typed"]()
    given = {"criterion": "finite:3", "over": "groups"}
    if where == "problem":
        found = eh.solve(replaced(problem, **given), "gini:2", method="joint")
    else:
        found = eh.solve(problem, "gini:2", method="joint", **given)
    best = fixed_case("typed", "finite:3", "groups", False).optimum("gini:2")
    assert found.welfare == pytest.approx(best.welfare, rel=CLOSE)


@pytest.mark.parametrize(
    ("name", "floors", "method"),
    crossed(["symmetric", "typed", "different"], [False, True], ["joint", "counts", "joint-lp", "fluid"]),
)
def test_a_plan_of_three_steps_computed_by_hand(name, floors, method):
    case = fixed_case(name, "finite:3", "arms", floors)
    solution = case.solve("gini:2", method)
    check_by_playing(case, solution, 20_000)


@pytest.mark.parametrize(("criterion", "method"), crossed(CRITERIA, ["joint", "fluid"]))
def test_a_user_defined_welfare_is_compared(criterion, method):
    case = fixed_case("typed", criterion, "arms", False)
    welfare = Kolm()
    solution = eh.solve(case.problem, welfare, method=method, criterion=criterion)
    assert isinstance(welfare, eh.Welfare)
    assert solution.upper_bound >= case.optimum("open, smooth").welfare * (1 - CLOSE)
    rows = eh.compare(case.problem, welfare=welfare, policies=["myopic", "random"], criterion=criterion).rows
    assert len(rows) == 2
    for row in rows:
        found = row.evaluation
        assert found.welfare <= case.optimum("open, smooth").bound * (1 + CLOSE) + 5 * found.welfare_stderr


def test_the_lists_are_whole():
    """Each method that has a name is here, so that a new one is tested."""
    from evenhand.planning import METHODS as KNOWN

    assert set(METHODS) == {*KNOWN, "auto"}
    assert issubclass(NotApplicableError, EvenhandError)
    assert all(ProductSpace(plain_arms(build()), build().budget).states for build in FIXED.values())
