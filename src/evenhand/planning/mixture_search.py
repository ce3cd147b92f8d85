"""Fair plans for many arms that differ: mixtures of weighted index policies, found by column generation.

The welfare of expected values is concave, so the best plan is a mixture of policies, max_theta W(sum_i theta_i v^i),
and a policy is worth adding if it does better than the mixture at the weights g of `solvers.column_generation`. The
oracle here needs no joint table. For weights g it solves the weighted-mean relaxation, which falls apart into single
arms at prices lambda,

    min_{lambda >= 0}  sum_n max_q [ g_n q.r_n + phi_n q.[d_n > 0] - lambda.(q.d_n) ] + lambda.B,

and takes the policies that its weights, prices and occupancy measures give: `fair_index` and `occupancy_priority`. Each
is near the best for g where arms are many; what a single one cannot give (whom to favour, and when) the mixture can.

    begin    policies of the relaxations of this welfare, the mean, leximin, a milder and a harsher Gini; the policies
             that need no relaxation; those of the user
    rounds   `improve`: shares and weights by the master, new policies by the oracle, until nothing is gained beyond
             the error of simulation, the bound is met, or the time is over
    polish   the parts of the mixture are played again on other episodes, and the shares chosen anew on all of them;
             parts of hardly any share are left out
    report   on episodes that no choice has seen. The bias of the selection is reported: `selection_bias`

Members are types or arms (`Judge`). With floors, shares of time join the vectors, less MARGIN standard errors.

Policies of one round are evaluated in parallel, if the task has a backend; results do not depend on it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from evenhand.checks import available_memory
from evenhand.errors import InfeasibleError, NotApplicableError, NotConvergedError, OutOfDomainError, TooLargeError
from evenhand.evaluation.evaluate import treats_alike
from evenhand.kernels.compilation import work_clock
from evenhand.model.base_policy import described
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import JUDGED
from evenhand.model.objective import Objective, num_members
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.welfare import Gini, Welfare, as_welfare
from evenhand.parallel import Pool
from evenhand.planning.floors import MARGIN, floor_columns
from evenhand.planning.policy_registry import REGISTRY
from evenhand.planning.policy_scoring import (
    FEWEST_HURRIED,
    Asked,
    Column,
    Judge,
    judge_all,
    judge_those_that_settle,
    law_of,
)
from evenhand.planning.relaxation import FLUID_TOLERANCE, MOST_FOLLOWED, build_policy, relax, tightest
from evenhand.planning.solution import Samples
from evenhand.planning.task import Task
from evenhand.policies.fluid import LEAST_WEIGHT, fair_index, occupancy_priority
from evenhand.simulation import simulate
from evenhand.solvers.column_generation import Mixture, Priced, Round, best_shares, improve
from evenhand.solvers.fluid import FluidSolution, model_of, solve_weighted
from evenhand.typing import Floats, Indices, Ints, Progress, Rng

MOST_EPISODES, MOST_SHORT = 500, 4000
"""Episodes at the most in which they are spent; with a finite horizon, where rewards are played as they are, more."""

POLISHING = 8.0
"""Factor of what is spent on the parts of the mixture, by their shares, before these are settled; a part gets
at least half of what a policy is evaluated by."""

LEAST_GAP = 1e-4
"""The relative gap at which no more columns are looked for: policies of single arms do not come nearer."""

LEAST_GAIN = 2e-4
"""Gain of a few rounds together, as a share of the bound, below which the search ends."""

LEAST_HASTE = 0.05
"""The least share of its steps that a policy is evaluated by where time is short, as far as there is time for it."""

TRYING, SEARCHING, POLISHED, REPORTED, WATCHED = 0.25, 0.5, 0.15, 0.2, 0.1
"""Shares of the time given: for the first policies, until the search ends, and for what comes after it, one by one."""

PILOT = 50
"""Steps of two episodes by which it is found how many steps a second has."""

MOST_AT_ONCE = 100
"""Policies that are evaluated together at the most."""

MEMORY = 0.25
"""The share of the free memory that policies and what they are worth may take."""

LEAST_SHARE, LEAST_FLOORED = 1e-2, 1e-6
"""Parts of a smaller share are left out, without and with floors, which a small part may be needed to keep."""

DOUBT = 1.0
"""Standard errors of a level that the stages of leximin give up, if need be, for the levels after it; twice as many of
the first, for where all policies do the same for the worst-off, the luckiest of many looks better by more than one."""

AS_GOOD = 1e-8
"""Welfare that differs by less than this share of itself is the same."""

SHARE_DIGITS, FLOORED_DIGITS = 4, 8
"""Digits of a share, without and with floors."""

PRICE_SCALES = (1.0, 1.25, 0.8, 1.6)
"""Factors of the relaxation's prices, round after round: where arms are few, what is scarce is not quite
what the relaxation takes it for, and the master finds out which of these does best."""

SPREADS = (2.0, 8.0)
"""The logarithm of how much more the worst-off weighs than the best-off, in a milder and a harsher Gini."""


@dataclass(frozen=True, eq=False)
class Blend:
    """A mixture of policies, before it is reported."""

    columns: tuple[Column, ...]
    """Its parts."""

    shares: Floats
    """(part,)"""

    welfare: float
    """By the episodes on which parts and shares were chosen."""

    tried: int
    """Policies that were tried."""

    rounds: int
    """Rounds of column generation."""

    history: tuple[tuple[int, float], ...] = ()
    """After each round, how many policies there were, and the welfare of the best mixture of them."""

    stopped: bool = False
    """True if the time that was given ended the search."""

    pace: float = np.inf
    """Steps of arms that were played in a second, where time is short."""

    upper_bound: float | None = None
    """Upper bound, if there was time to find it."""


@dataclass(frozen=True, eq=False)
class Reported:
    """Values of a plan, on separate episodes."""

    values: Floats
    """(unit,)"""

    welfare: float
    """Of these values."""

    stderr: float
    """Its standard error; 0 where all parts are evaluated exactly."""

    samples: Samples
    """Episodes behind the error."""


@dataclass
class WeightedIndices:
    """The oracle: policies of single arms at given weights; remembers all columns."""

    problem: CoupledMDP
    objective: Objective
    judge: Judge
    sweep: Pool = field(default_factory=Pool)
    columns: list[Column] = field(default_factory=list)
    asked: int = 0
    unsettled: NotConvergedError | None = None

    def __post_init__(self) -> None:
        self.model = model_of(self.problem)
        self.floored = np.flatnonzero(self.objective.floors > 0)

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """New policies at these weights, and the relaxation's bound on the weighted sum.

        Where the relaxation does not close its gap there is nothing new: the mixture so far is a plan all the same. The
        tolerance is for exact oracles; this one comes as near as policies of single arms do.
        """
        per_arm, pay, slack = self._of_types(weights)
        rows = len(self.objective.sizes) + len(self.floored)
        try:
            relaxed = solve_weighted(self.model, per_arm, pay, FLUID_TOLERANCE)
        except NotConvergedError:
            return Priced(np.zeros((rows, 0)), np.inf)
        before, number = len(self.columns), self.asked + 1
        law = law_of(self.problem, relaxed.occupancy)
        made = self._policies(relaxed, per_arm, pay)
        self.add([Asked(f"{name}, round {number}", policy, law) for name, policy in made])
        found = [self.vector(column) for column in self.columns[before:]]
        return Priced(np.column_stack(found) if found else np.zeros((rows, 0)), relaxed.upper_bound + slack)

    def _policies(
        self, relaxed: FluidSolution, weights: Floats, pay: Floats | None
    ) -> Iterator[tuple[str, Policy | StatefulPolicy]]:
        prices, scale = relaxed.prices, PRICE_SCALES[self.asked % len(PRICE_SCALES)]
        self.asked += 1
        yield "fair-index", fair_index(self.problem, weights, scale * prices, pay)
        if self.problem.num_arms <= MOST_FOLLOWED:
            yield "occupancy-priority", occupancy_priority(self.problem, relaxed.occupancy, weights, prices, pay)

    def _of_types(self, weights: Floats) -> tuple[Floats, Floats | None, float]:
        """(type,) what a unit of one arm's value is worth, and of its time served; from weights of the objectives.

        And what any policy's weighted sum may lose by weights that were raised: with them, losses weigh more.
        """
        number = len(self.objective.sizes)
        units, kinds = self.objective.spread(weights[:number]), self._kinds
        exact = np.bincount(kinds, weights=units) / self.problem.type_counts
        per_arm = np.maximum(exact, LEAST_WEIGHT * exact.max())
        worst = np.where(self.problem.types.valid, self.problem.types.rewards, 0.0).min(axis=(1, 2), initial=0.0)
        slack = float((per_arm - exact) * self.problem.type_counts @ -worst) * self.problem.criterion.total
        if not len(self.floored):
            return per_arm, None, slack
        pay = np.bincount(kinds[self.floored], weights=weights[number:], minlength=self.problem.num_types)
        return per_arm, pay / (self.problem.type_counts * self.problem.criterion.total), slack

    @property
    def _kinds(self) -> Indices:
        """(unit,) the type of each unit."""
        every = np.arange(self.problem.num_types, dtype=np.int32)
        return every if self.judge.by_type else self.problem.type_of_arm

    def add(self, asked: Sequence[Asked], progress: Progress | None = None) -> None:
        """Judge policies and keep them, those that there is none like."""
        new: list[Asked] = []
        known = [column.policy for column in self.columns]
        for one in asked:
            if not any(_same(one.policy, other) for other in known):
                new.append(one)
                known.append(one.policy)
        for found in judge_those_that_settle(self.sweep, [self.judge] * len(new), new, progress):
            if isinstance(found, Column):
                self.columns.append(found)
            else:
                self.unsettled = found

    def add_while(self, go_on: Callable[[], bool], asked: Iterable[Asked], at_once: int, progress: Progress) -> None:
        """The same as long as one may, as many at a time as there is room for."""
        coming = iter(asked)
        while go_on() and (some := list(islice(coming, max(1, min(at_once, self.room))))):
            self.add(some, progress)

    @property
    def room(self) -> int:
        """Return the number of further columns that fit in their share of the memory."""
        rows = 2 * self.judge.episodes(by_counts=False) * self.objective.num_values
        size = 8.0 * (rows + 4 * self.problem.types.valid.size * self.problem.criterion.num_layers)
        return int(MEMORY * available_memory() / size) - len(self.columns) - 1

    @property
    def is_full(self) -> bool:
        """True if one more column would take more than its share of the memory."""
        return self.room < 1

    def may_grow(self, until_defined: bool = False) -> bool:
        """Return whether more columns fit; or, on request, whether no mixture of them has a welfare yet."""
        return not self.is_full or (until_defined and not _is_defined(self.objective, self.columns))

    def vector(self, column: Column) -> Floats:
        """(objective,) the members of welfare, then the shares of time that floors are for, with a margin."""
        served = (column.shares_served - MARGIN * column.served_error)[self.floored]
        return np.concatenate([self.objective.members(column.values), served])

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        largest = float(np.abs(self.problem.types.rewards[self.problem.types.valid]).max())
        values = np.full(len(self.objective.sizes), largest * self.problem.criterion.total)
        return np.concatenate([values, np.ones(len(self.floored))])

    def error(self, shares: Floats, weights: Floats) -> float:
        """The standard error of a mixture's weighted sum: (policy,) shares of the columns, (member,) weights."""
        return _error(self.objective, self.columns, shares, weights)


def _error(objective: Objective, columns: Sequence[Column], shares: Floats, weights: Floats) -> float:
    spread = objective.spread(weights)
    used = [(share, column) for share, column in zip(shares.tolist(), columns, strict=True) if share > 0]
    return float(np.sqrt(sum((share * column.error(spread)) ** 2 for share, column in used)))


def _same(one: object, other: object) -> bool:
    """Return whether two policies surely do the same."""
    return described(one).does_same(other)


def find_mixture(task: Task, relaxed: FluidSolution, begin: float | None = None) -> Blend:
    """The best mixture of policies of single arms, chosen on episodes of its own.

    Args:
        task: what is to be solved.
        relaxed: its relaxation.
        begin: when the time given began, by `work_clock`; now by default.

    Raises:
        NotConvergedError: no mixture was found that keeps the floors, or no policy reaches its long run in time.
    """
    choosing, polishing = np.random.default_rng(task.rng).spawn(3)[:2]
    by_type = all(treats_alike(task.problem, policy) for policy in task.candidates.values())
    objective = task.by_types if by_type else task.by_arms
    most = MOST_EPISODES if task.problem.criterion.is_stationary else MOST_SHORT
    judge = Judge(task.problem, by_type, task.effort.arm_steps, int(choosing.integers(2**63)), most_episodes=most)
    oracle, clock = WeightedIndices(task.problem, objective, judge, task.sweep), Clock(task, begin)
    own, named = law_of(task.problem, relaxed.occupancy), list(_named_policies(task, relaxed))
    wanted = [Asked(name, policy, own) for name, policy in task.candidates.items()]
    number = len(wanted) + len(named)
    if task.seconds is not None:
        clock.pace = _pace(task.problem, named[:3])
        oracle.judge = clock.hurried(judge, number)
    # Independent of the time: candidates were requested, and the first named policy is a plan.
    oracle.add(wanted, clock.trying)
    if task.seconds is not None:
        start = work_clock()
        oracle.add([named.pop(0)], clock.trying)
        if oracle.columns and not oracle.columns[-1].exact:  # on more episodes more steps are played in a second
            clock.pace = max(clock.pace, oracle.judge.work / max(work_clock() - start, 1e-9))
        oracle.judge = clock.hurried(judge, number)
    # None of the named ones may be better than the plan, unless they are too large for the time.
    hurried = oracle.judge.work > LEAST_HASTE * task.effort.arm_steps

    def go_on() -> bool:
        late = hurried and clock.is_over and _is_defined(objective, oracle.columns)
        return oracle.may_grow(until_defined=True) and not late

    oracle.add_while(go_on, named, MOST_AT_ONCE if not hurried else clock.at_once, clock.trying)
    others = _policies_for_others(task, clock)
    oracle.add_while(lambda: not clock.is_over and oracle.may_grow(), others, clock.at_once, clock.trying)
    if not oracle.columns and oracle.unsettled is not None:
        raise oracle.unsettled
    if task.problem.has_floors:
        task.tell("meeting the floors", 0.1)
        oracle.columns += floor_columns(task.problem, relaxed, task.welfare, oracle.judge, oracle.columns)
    # The least bound takes a program of its own: without time for it, that of the relaxation is one.
    bound = relaxed.upper_bound if clock.is_over else tightest(task.problem, task.welfare, relaxed).upper_bound
    mixture, history = _improve(oracle, objective, bound, clock)
    seed = int(polishing.integers(2**63))
    plan = _polish(oracle, objective, mixture.shares, mixture.rounds, tuple(history), seed, clock)
    return replace(plan, stopped=clock.is_over, pace=clock.pace, upper_bound=bound)


def _is_defined(objective: Objective, columns: Sequence[Column]) -> bool:
    """Return whether the welfare of equal shares of all columns is defined: else it may be that no mixture's is."""
    if not columns:
        return False
    try:
        objective.check_domain(np.mean([column.values for column in columns], axis=0))
    except OutOfDomainError:
        return False
    return True


class Clock:
    """Progress and remaining time."""

    def __init__(self, task: Task, begin: float | None = None) -> None:
        self.task, self.begin = task, work_clock() if begin is None else begin
        self.pace = np.inf  # steps of arms in a second

    def tell(self, what: str, share: float) -> None:
        """Pass on what is being done."""
        self.task.tell(what, share)

    def trying(self, what: str, share: float) -> None:
        """Policies are tried before the first mixture is made."""
        self.task.tell(f"trying {what}", 0.05 + 0.05 * share)

    @property
    def at_once(self) -> int:
        """Policies after which the time is checked: all of them without a time limit."""
        return MOST_AT_ONCE if self.task.seconds is None else self.task.sweep.num_workers

    @property
    def is_over(self) -> bool:
        """True if half of the time is over: the other half is for the end."""
        return self.task.seconds is not None and work_clock() - self.begin > SEARCHING * self.task.seconds

    def steps(self, share: float) -> float:
        """Steps of arms that a share of the time has; infinite without a time limit."""
        return np.inf if self.task.seconds is None else share * self.task.seconds * self.pace

    def hurried(self, judge: Judge, number: int) -> Judge:
        """A judge of so few steps that this many policies take a quarter of the time, or of the least that is shown."""
        return judge.limited(max(self.steps(TRYING) / number, LEAST_HASTE * self.task.effort.arm_steps))


def _pace(problem: CoupledMDP, asked: Sequence[Asked]) -> float:
    """Steps of arms that are played in a second, by a few steps of some policies."""
    horizon = problem.criterion.judging_steps()
    horizon = min(horizon, PILOT) if problem.criterion.is_stationary else horizon
    start = work_clock()
    for one in asked:
        simulate(problem, one.policy, FEWEST_HURRIED, horizon, 0)
    played = float(len(asked) * FEWEST_HURRIED * horizon * problem.num_arms)
    return played / max(work_clock() - start, 1e-9)


def _named_policies(task: Task, relaxed: FluidSolution) -> Iterator[Asked]:
    """The policies that have names, each with a law that it follows more or less."""
    problem = task.problem
    own = law_of(problem, relaxed.occupancy)
    for name in ("fair-index", "occupancy-priority", "re-solving"):
        with contextlib.suppress(NotApplicableError, TooLargeError):
            yield Asked(name, build_policy(problem, relaxed, name), own)
    for entry in (entry for entry in REGISTRY if entry.is_heuristic):
        with contextlib.suppress(NotApplicableError, TooLargeError):
            yield Asked(entry.name, entry.build(problem), own)


def _policies_for_others(task: Task, clock: Clock) -> Iterator[Asked]:
    """Policies of the relaxations of other welfares, and their laws."""
    problem = task.problem
    for welfare in other_welfares(problem):
        if clock.is_over:
            return
        with contextlib.suppress(
            NotApplicableError, TooLargeError, NotConvergedError, OutOfDomainError, InfeasibleError
        ):
            other = relax(problem, welfare)
            law = law_of(problem, other.occupancy)
            for name in ("fair-index", "occupancy-priority"):
                with contextlib.suppress(NotApplicableError, TooLargeError):
                    yield Asked(f"{name} for {welfare.name}", build_policy(problem, other, name), law)


def other_welfares(problem: CoupledMDP) -> list[Welfare]:
    """Welfares whose relaxations give good policies to begin with, from the mildest to the harshest.

    Args:
        problem: the problem.
    """
    number = num_members(problem)
    ratios = [float(np.round(np.exp(spread / max(number - 1, 1)), 4)) for spread in SPREADS]
    ginis = [Gini.geometric(number, ratio) for ratio in ratios if ratio > 1]
    return [as_welfare("utilitarian", number), *ginis, as_welfare("leximin", number)]


def _improve(
    oracle: WeightedIndices, objective: Objective, upper: float, clock: Clock
) -> tuple[Mixture, list[tuple[int, float]]]:
    """Column generation from the columns so far."""
    history: list[tuple[int, float]] = []

    def go_on(now: Round) -> bool:
        history.append((len(oracle.columns), now.welfare))
        clock.tell(f"mixing {len(oracle.columns)} policies", 0.1 + 0.6 * now.number / clock.task.effort.rounds)
        return not (clock.is_over or oracle.is_full)

    mixture = improve(
        oracle,
        objective.welfare,
        objective.sizes,
        np.column_stack([oracle.vector(column) for column in oracle.columns]),
        objective.floors[oracle.floored],
        upper_bound=upper,
        tolerance=LEAST_GAP,
        least_gain=lambda shares, support: max(
            0.2 * oracle.error(shares, support.weights[: len(objective.sizes)]), LEAST_GAIN * abs(upper)
        ),
        most_rounds=clock.task.effort.rounds,
        go_on=go_on,
        error=lambda shares, weights: DOUBT * oracle.error(shares, weights),
    )
    return mixture, history


def _polish(
    oracle: WeightedIndices,
    objective: Objective,
    shares: Floats,
    rounds: int,
    history: tuple[tuple[int, float], ...],
    seed: int,
    clock: Clock,
) -> Blend:
    """Play the parts again on other episodes, and settle their shares on all of them."""
    used = _worth_another_look(oracle, objective, shares)
    steps = [oracle.judge.arm_steps * max(POLISHING * float(shares[i]), 0.5) for i in used]
    # By the time that there is, if it is short, each its part of it.
    given = [clock.steps(POLISHED) * number / sum(steps) for number in steps]
    judges = [
        replace(oracle.judge, seed=seed, arm_steps=number).limited(most)
        for number, most in zip(steps, given, strict=True)
    ]
    parts = [oracle.columns[i] for i in used]
    if not (clock.is_over and len(used) == 1):  # one part has no share to be settled
        again = judge_all(oracle.sweep, judges, [_asked(part) for part in parts])
        parts = [part.pooled(column) for part, column in zip(parts, again, strict=True)]
    settled = np.asarray(shares[used] / shares[used].sum())
    while True:
        settled = _settle(oracle, objective, parts, settled)
        least = LEAST_FLOORED if len(oracle.floored) else LEAST_SHARE
        large = settled >= min(least, settled.max())
        if large.all():
            break
        parts = [part for part, keep in zip(parts, large, strict=True) if keep]
        settled = settled[large] / settled[large].sum()
    parts, settled = _simplest(oracle, objective, parts, settled)
    welfare = objective(np.column_stack([part.values for part in parts]) @ settled)
    return Blend(tuple(parts), settled, welfare, len(oracle.columns), rounds, history)


def _simplest(
    oracle: WeightedIndices, objective: Objective, parts: list[Column], shares: Floats
) -> tuple[list[Column], Floats]:
    """One part alone, the first, where it is as good as the mixture but for rounding; else the mixture."""
    floors = objective.floors[oracle.floored]
    reached = np.column_stack([part.values for part in parts]) @ shares
    for part in parts:
        within = (oracle.vector(part)[len(objective.sizes) :] >= floors).all()
        if within and _is_as_good(objective, part, reached):
            return [part], np.ones(1)
    return parts, shares


def _is_as_good(objective: Objective, part: Column, reached: Floats) -> bool:
    """Return whether a part alone has the welfare of some values; by leximin, the values themselves."""
    if objective.structure.lexicographic:
        short = objective.members(reached) - objective.members(part.values)
        return bool((short <= AS_GOOD * np.abs(reached).max()).all())
    most = objective(reached)
    return _welfare_of(objective, part) >= most - AS_GOOD * abs(most)


def _worth_another_look(oracle: WeightedIndices, objective: Objective, shares: Floats) -> Ints:
    """The parts, in the order in which they were tried, the plainest first; with floors the best by itself, too.

    Shares of time are known to a margin that more episodes make smaller: what just missed it may well keep the floors.
    """
    used = set(np.flatnonzero(shares > 0).tolist())
    if len(oracle.floored):
        floors = objective.floors[oracle.floored]
        within = [i for i, column in enumerate(oracle.columns) if _keeps(column, oracle.floored, floors)]
        used |= {max(within, key=lambda i: _welfare_of(objective, oracle.columns[i]))} if within else set()
    return np.array(sorted(used))


def _keeps(column: Column, floored: Ints, floors: Floats) -> bool:
    return bool((column.shares_served[floored] >= floors).all())


def _welfare_of(objective: Objective, column: Column) -> float:
    try:
        return objective(column.values)
    except OutOfDomainError:
        return -np.inf


def _asked(column: Column, rng: Rng = None) -> Asked:
    return Asked(column.name, column.policy, column.law, rng)


def _settle(oracle: WeightedIndices, objective: Objective, parts: Sequence[Column], shares: Floats) -> Floats:
    """The best shares of the parts, to a few digits; as they were if the floors are out of reach on new episodes.

    With floors the digits are more: those that are known exactly must not be missed by rounding.
    """
    matrix = np.column_stack([oracle.vector(part) for part in parts])
    floors = objective.floors[oracle.floored]

    def doubt(mixed: Floats, weights: Floats) -> float:
        return DOUBT * _error(objective, parts, mixed, weights)

    with contextlib.suppress(InfeasibleError, OutOfDomainError):
        shares, _ = best_shares(matrix, objective.welfare, objective.sizes, floors, 1e-7, doubt)
    rounded = np.round(shares, FLOORED_DIGITS if len(floors) else SHARE_DIGITS)
    return np.asarray(rounded / rounded.sum())


def report_parts(
    task: Task, columns: Sequence[Column], shares: Floats, objective: Objective, most: float = np.inf
) -> Reported:
    """Return the values of a mixture, on episodes that no choice has seen.

    What lies beyond the horizon of a discount very near 1 is in the value, and the whole of it in the error.

    Args:
        task: what was solved.
        columns: the parts.
        shares: (part,) their shares.
        objective: by types or by arms, as the columns are.
        most: steps of arms that there is time for.
    """
    stream = np.random.default_rng(task.rng).spawn(3)[2]
    by_type = objective.num_values == task.problem.num_types
    steps = task.effort.report_steps
    most = max(most, LEAST_HASTE * steps)
    judges = [
        Judge(task.problem, by_type, steps * share, 0, 6, 4000, left_out=JUDGED, thorough=True).limited(most * share)
        for share in shares.tolist()
    ]
    asked = [_asked(column, own) for column, own in zip(columns, stream.spawn(len(columns)), strict=True)]
    found = judge_all(task.sweep, judges, asked, lambda what, done: task.tell(f"playing {what}", 0.8 + 0.2 * done))
    values = np.zeros(objective.num_values)
    for share, part in zip(shares.tolist(), found, strict=True):
        values += share * part.returns.mean(axis=0)
    noisy = [number for number, part in enumerate(found) if not part.exact]
    parts = zip(shares.tolist(), found, strict=True)
    beyond = sum((share * part.beyond for share, part in parts if part.beyond is not None), np.zeros(len(values)))
    samples = Samples(shares[noisy], tuple(found[number].returns for number in noisy), beyond)
    return Reported(values, objective(values), samples.error(objective, values), samples)
