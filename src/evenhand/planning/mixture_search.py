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

Members are types or arms (`PolicyScorer`). With floors, shares of time join the vectors, less MARGIN standard errors.

Policies of one round are evaluated in parallel, if the task has a backend; results do not depend on it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from evenhand.checks import available_memory
from evenhand.errors import InfeasibleError, NotApplicableError, NotConvergedError, OutOfDomainError, TooLargeError
from evenhand.evaluation import simulate
from evenhand.evaluation.evaluate import treats_alike
from evenhand.kernels.compilation import work_clock
from evenhand.model import CoupledMDP, Gini, Welfare, as_welfare
from evenhand.model.criterion import JUDGED
from evenhand.model.objective import Objective, num_members
from evenhand.model.policy import Policy, StatefulPolicy, described
from evenhand.parallel import Pool
from evenhand.planning.floors import MARGIN, floor_columns
from evenhand.planning.policy_registry import REGISTRY
from evenhand.planning.policy_scoring import (
    Candidate,
    PolicyScorer,
    ScoredPolicy,
    score_all,
    score_settled,
)
from evenhand.planning.relaxation import FLUID_TOLERANCE, MOST_FOLLOWED, build_policy, relax, tightest
from evenhand.planning.solution import Samples
from evenhand.planning.task import FAILURES, Task
from evenhand.policies.fluid import LEAST_WEIGHT, choice_of, fair_index, occupancy_priority
from evenhand.policies.look_ahead import look_ahead
from evenhand.solvers.column_generation import Mixture, Priced, Round, best_shares, improve
from evenhand.solvers.fluid import FluidSolution, model_of, solve_weighted
from evenhand.typing import Floats, Progress, Rng

HASTE = 0.05
"""Least share of its steps by which a policy is evaluated if time is short."""

AS_GOOD = 1e-8
"""Relative difference of welfare below which two plans are equally good."""

PRICE_SCALES = (1.0, 1.25, 0.8, 1.6)
"""Factors of the relaxation's prices, one per round: if arms are few, the relaxation misjudges what is scarce, and the
master finds out which factor does best."""

SPREADS = (2.0, 8.0)
"""Logarithms of the weight of the worst-off relative to the best-off, in a milder and a harsher Gini."""


@dataclass(frozen=True, eq=False)
class Blend:
    """A mixture of policies, before it is reported."""

    columns: tuple[ScoredPolicy, ...]
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
    """Steps of arms that were played in a second, if there is a time limit."""

    upper_bound: float | None = None
    """Upper bound, if there was time to find it."""


@dataclass
class WeightedIndices:
    """The oracle: policies of single arms at given weights; remembers all columns."""

    problem: CoupledMDP
    objective: Objective
    scorer: PolicyScorer
    sweep: Pool = field(default_factory=Pool)
    memory: float = 0.25
    columns: list[ScoredPolicy] = field(default_factory=list)
    rounds: int = 0
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
        before, scale = len(self.columns), PRICE_SCALES[self.rounds % len(PRICE_SCALES)]
        self.rounds += 1
        made: dict[str, Policy | StatefulPolicy] = {
            "fair-index": fair_index(self.problem, per_arm, scale * relaxed.prices, pay)
        }
        if self.problem.num_arms <= MOST_FOLLOWED:
            arguments = relaxed.occupancy, per_arm, relaxed.prices, pay
            made["occupancy-priority"] = occupancy_priority(self.problem, *arguments)
        with contextlib.suppress(TooLargeError):
            made["lp-update"] = look_ahead(self.problem, per_arm, relaxed.prices, pay, steps=12)
        choice = choice_of(self.problem, relaxed.occupancy)
        candidates = [Candidate(f"{name}, round {self.rounds}", policy, choice) for name, policy in made.items()]
        self.add([one for one in candidates if self.scorer.affords(one, 20)])
        found = [self.vector(column) for column in self.columns[before:]]
        return Priced(np.column_stack(found) if found else np.zeros((rows, 0)), relaxed.upper_bound + slack)

    def _of_types(self, weights: Floats) -> tuple[Floats, Floats | None, float]:
        """(type,) what a unit of one arm's value is worth, and of its time served; from weights of the objectives.

        And what any policy's weighted sum may lose by weights that were raised: with them, losses weigh more.
        """
        number = len(self.objective.sizes)
        units = self.objective.spread(weights[:number])
        kinds = np.arange(self.problem.num_types) if self.scorer.by_type else self.problem.type_of_arm
        exact = np.bincount(kinds, weights=units) / self.problem.type_counts
        per_arm = np.maximum(exact, LEAST_WEIGHT * exact.max())
        worst = np.where(self.problem.types.valid, self.problem.types.rewards, 0.0).min(axis=(1, 2), initial=0.0)
        slack = float((per_arm - exact) * self.problem.type_counts @ -worst) * self.problem.criterion.total
        if not len(self.floored):
            return per_arm, None, slack
        pay = np.bincount(kinds[self.floored], weights=weights[number:], minlength=self.problem.num_types)
        return per_arm, pay / (self.problem.type_counts * self.problem.criterion.total), slack

    def add(self, candidates: Sequence[Candidate], progress: Progress | None = None) -> None:
        """Evaluate policies, except those that surely do the same as an earlier one."""
        new: list[Candidate] = []
        known = [column.policy for column in self.columns]
        for one in candidates:
            if not any(described(one.policy).does_same(other) for other in known):
                new.append(one)
                known.append(one.policy)
        for found in score_settled(self.sweep, [self.scorer] * len(new), new, progress):
            if isinstance(found, ScoredPolicy):
                self.columns.append(found)
            else:
                self.unsettled = found

    def add_until(
        self, enough: Callable[[], bool], candidates: Iterable[Candidate], at_once: int, progress: Progress
    ) -> None:
        """Add policies until there are enough, as many at a time as the memory allows."""
        coming = iter(candidates)
        while not enough() and (some := list(islice(coming, max(1, min(at_once, self.room))))):
            self.add(some, progress)

    @property
    def room(self) -> int:
        """Number of further columns that fit in their share of the memory."""
        rows = 2 * self.scorer.episodes(by_counts=False) * self.objective.num_values
        size = 8.0 * (rows + 4 * self.problem.types.valid.size * self.problem.criterion.num_layers)
        return int(self.memory * available_memory() / size) - len(self.columns) - 1

    @property
    def is_defined(self) -> bool:
        """True if the welfare of equal shares of all columns is defined: else that of no mixture may be."""
        return _welfare_of(self.objective, np.mean([column.values for column in self.columns], axis=0)) > -np.inf

    def vector(self, column: ScoredPolicy, margin: float = 0.0) -> Floats:
        """(objective,) the members of welfare, then the shares of time that floors are for, with a margin.

        Args:
            column: the policy.
            margin: standard errors by which the members are lowered.
        """
        served = (column.shares_served - MARGIN * column.served_error)[self.floored]
        return np.concatenate([self.objective.members(column.values - margin * column.values_error), served])

    @property
    def units(self) -> Floats:
        """(objective,) largest magnitude of each objective."""
        largest = float(np.abs(self.problem.types.rewards[self.problem.types.valid]).max())
        values = np.full(len(self.objective.sizes), largest * self.problem.criterion.total)
        return np.concatenate([values, np.ones(len(self.floored))])


def _error(objective: Objective, columns: Sequence[ScoredPolicy], shares: Floats, weights: Floats) -> float:
    spread = objective.spread(weights)
    used = [(share, column) for share, column in zip(shares.tolist(), columns, strict=True) if share > 0]
    return float(np.sqrt(sum((share * column.error(spread)) ** 2 for share, column in used)))


def find_mixture(task: Task, relaxed: FluidSolution, begin: float | None = None) -> Blend:
    """Find the best mixture of policies of single arms, chosen on separate episodes.

    Args:
        task: problem, welfare and settings.
        relaxed: its relaxation.
        begin: when the time given began, by `work_clock`; now by default.

    Raises:
        NotConvergedError: no mixture was found that meets the floors, or no policy reaches its long run in time.
    """
    choosing, polishing = np.random.default_rng(task.rng).spawn(3)[:2]
    problem, effort, clock = task.problem, task.effort, Clock(task, begin)
    by_type = all(treats_alike(problem, policy) for policy in task.method.candidates.values())
    objective = task.by_types if by_type else task.by_arms
    # With a finite horizon rewards are played as they are: more and shorter episodes.
    most = 500 if problem.criterion.is_stationary else 4000
    scorer = PolicyScorer(problem, by_type, effort.arm_steps, int(choosing.integers(2**63)), most_episodes=most)
    named = list(_named_policies(task, relaxed))
    if task.method.seconds is not None:
        scorer = clock.hurried(scorer, named[0].policy, len(task.method.candidates) + len(named))
    oracle = WeightedIndices(problem, objective, scorer, task.sweep, effort.memory)
    # Candidates were requested, and the first named policy is a plan: both are independent of the time. None of the
    # other named ones may be better than the plan, unless they are too large for the time.
    own = choice_of(problem, relaxed.occupancy)
    requested = [Candidate(name, policy, own) for name, policy in task.method.candidates.items()]
    oracle.add([*requested, named[0]], clock.trying)
    is_large = scorer.work > HASTE * effort.arm_steps

    def enough() -> bool:
        over = oracle.room < 1 or (is_large and clock.is_over)
        return bool(oracle.columns) and over and oracle.is_defined

    at_once = 10**6 if task.method.seconds is None else task.sweep.num_workers
    named = [one for one in named if scorer.affords(one, 400)]
    oracle.add_until(enough, named[1:], at_once if is_large else 10**6, clock.trying)
    others = _policies_for_others(task, clock)
    oracle.add_until(lambda: clock.is_over or oracle.room < 1, others, at_once, clock.trying)
    if not oracle.columns and oracle.unsettled is not None:
        raise oracle.unsettled
    if problem.has_floors:
        task.tell("meeting the floors", 0.1)
        oracle.columns += floor_columns(problem, relaxed, task.welfare, scorer, oracle.columns)
    # The least bound takes a program of its own: without time for it, that of the relaxation is one.
    bound = relaxed.upper_bound if clock.is_over else tightest(problem, task.welfare, relaxed).upper_bound
    mixture, history = _improve(oracle, objective, bound, clock)
    parts, shares = _polish(oracle, objective, mixture.shares, int(polishing.integers(2**63)), clock)
    welfare = objective(np.column_stack([part.values for part in parts]) @ shares)
    return Blend(
        columns=tuple(parts),
        shares=shares,
        welfare=welfare,
        tried=len(oracle.columns),
        rounds=mixture.rounds,
        history=tuple(history),
        stopped=clock.is_over,
        pace=clock.pace,
        upper_bound=bound,
    )


class Clock:
    """Progress and remaining time.

    A quarter of a time limit is for the first policies. Half of it ends the search; then 15 % are for the parts of the
    mixture, 20 % for the report and 10 % for the realised inequality.
    """

    def __init__(self, task: Task, begin: float | None = None) -> None:
        self.task, self.begin = task, work_clock() if begin is None else begin
        self.pace = np.inf  # steps of arms in a second

    def trying(self, what: str, share: float) -> None:
        """Report the trial of policies before the first mixture."""
        self.task.tell(f"trying {what}", 0.05 + 0.05 * share)

    @property
    def is_over(self) -> bool:
        """True if half of the time is over."""
        return self.task.method.seconds is not None and work_clock() - self.begin > 0.5 * self.task.method.seconds

    def steps(self, share: float) -> float:
        """Steps of arms in a share of the time; infinite without a time limit."""
        return np.inf if self.task.method.seconds is None else share * self.task.method.seconds * self.pace

    def hurried(self, scorer: PolicyScorer, policy: Policy | StatefulPolicy, number: int) -> PolicyScorer:
        """Return a scorer of so few steps that this many policies take a quarter of the time, by the pace of one."""
        problem, least = scorer.problem, HASTE * scorer.arm_steps
        horizon = min(scorer.horizon, 50) if problem.criterion.is_stationary else scorer.horizon
        episodes = int(np.clip(least / (horizon * problem.num_arms), 2, scorer.most_episodes))
        start = work_clock()
        simulate(problem, policy, episodes, horizon, 0)
        self.pace = episodes * horizon * problem.num_arms / max(work_clock() - start, 1e-9)
        return scorer.limited(max(self.steps(0.25) / number, least))


def _named_policies(task: Task, relaxed: FluidSolution) -> Iterator[Candidate]:
    """The named policies, each with a choice of actions that it follows more or less."""
    problem = task.problem
    own = choice_of(problem, relaxed.occupancy)
    for name in (
        "fair-index",
        "occupancy-priority",
        "re-solving",
        "lp-update",
        "lp-index",
        "id",
        "ftva",
        "set-expansion",
        "two-set",
    ):
        with contextlib.suppress(NotApplicableError, TooLargeError):
            yield Candidate(name, build_policy(problem, relaxed, name), own)
    pay = relaxed.floor_prices if problem.has_floors else None
    for steps in (12, 5):  # a shorter look puts less off; the best one depends on the number of arms
        with contextlib.suppress(TooLargeError):
            policy = look_ahead(problem, relaxed.weights, relaxed.prices, pay, steps)
            yield Candidate(f"lp-update, {steps} steps", policy, own)
    for entry in (entry for entry in REGISTRY if entry.is_heuristic):
        with contextlib.suppress(NotApplicableError, TooLargeError):
            yield Candidate(entry.name, entry.build(problem), own)


def _policies_for_others(task: Task, clock: Clock) -> Iterator[Candidate]:
    """Policies of the relaxations of other welfares, and their choices."""
    problem = task.problem
    for welfare in other_welfares(problem):
        if clock.is_over:
            return
        with contextlib.suppress(*FAILURES):
            other = relax(problem, welfare)
            choice = choice_of(problem, other.occupancy)
            for name in ("fair-index", "occupancy-priority"):
                with contextlib.suppress(NotApplicableError, TooLargeError):
                    yield Candidate(f"{name} for {welfare.name}", build_policy(problem, other, name), choice)


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
    effort, history = clock.task.effort, list[tuple[int, float]]()

    def error(shares: Floats, weights: Floats) -> float:
        return _error(objective, oracle.columns, shares, weights)

    def go_on(now: Round) -> bool:
        history.append((len(oracle.columns), now.welfare))
        clock.task.tell(f"mixing {len(oracle.columns)} policies", 0.1 + 0.6 * now.number / effort.rounds)
        return not clock.is_over and oracle.room >= 1

    mixture = improve(
        oracle,
        objective.welfare,
        objective.sizes,
        np.column_stack([oracle.vector(column) for column in oracle.columns]),
        objective.floors[oracle.floored],
        upper_bound=upper,
        tolerance=effort.least_gap,
        least_gain=lambda shares, support: max(
            0.2 * error(shares, support.weights[: len(objective.sizes)]), effort.least_gain * abs(upper)
        ),
        most_rounds=effort.rounds,
        go_on=go_on,
        error=error,
    )
    return mixture, history


def _polish(
    oracle: WeightedIndices, objective: Objective, shares: Floats, seed: int, clock: Clock
) -> tuple[list[ScoredPolicy], Floats]:
    """Play the parts again on other episodes, and settle their shares on all of them."""
    effort, floors = clock.task.effort, objective.floors[oracle.floored]
    used = set(np.flatnonzero(shares > 0).tolist())
    # The largest of noisy estimates is too large: what is the best for sure may well be better on new episodes. Shares
    # of time are known to a margin that more episodes make smaller.
    used |= set(np.flatnonzero(_settle(oracle, objective, oracle.columns, shares) > 0).tolist())
    served = [i for i, one in enumerate(oracle.columns) if (one.shares_served[oracle.floored] >= floors).all()]
    used |= {max(served, key=lambda i: _sure_welfare(objective, oracle.columns[i]))} if served else set()
    places = sorted(used)  # in the order in which they were tried, the plainest first
    steps = [oracle.scorer.arm_steps * max(effort.polish * float(shares[i]), 0.5) for i in places]
    parts, settled = [oracle.columns[i] for i in places], shares[places]
    if len(parts) > 1:  # one part has no share to be settled
        scorers = [
            replace(oracle.scorer, seed=seed, arm_steps=number).limited(clock.steps(0.15) * number / sum(steps))
            for number in steps
        ]
        again = score_all(oracle.sweep, scorers, [_candidate(part) for part in parts])
        parts = [part.pooled(column) for part, column in zip(parts, again, strict=True)]
    while True:
        settled = _settle(oracle, objective, parts, settled / settled.sum())
        least = effort.least_share * (1e-4 if len(floors) else 1.0)
        large = settled >= min(least, settled.max())
        if large.all():
            break
        parts, settled = [part for part, keep in zip(parts, large, strict=True) if keep], settled[large]
    # One part alone, the first, if it is as good as the mixture but for rounding.
    reached = np.column_stack([part.values for part in parts]) @ settled
    for part in parts:
        within = (oracle.vector(part)[len(objective.sizes) :] >= floors).all()
        if within and _is_as_good(objective, part, reached):
            return [part], np.ones(1)
    return parts, settled


def _is_as_good(objective: Objective, part: ScoredPolicy, reached: Floats) -> bool:
    """Return whether a part alone has the welfare of some values; by leximin, the values themselves."""
    if objective.structure.lexicographic:
        short = objective.members(reached) - objective.members(part.values)
        return bool((short <= AS_GOOD * np.abs(reached).max()).all())
    most = objective(reached)
    return _welfare_of(objective, part.values) >= most - AS_GOOD * abs(most)


def _welfare_of(objective: Objective, values: Floats) -> float:
    """Return the welfare of (unit,) values; -inf outside its domain."""
    try:
        return objective(values)
    except OutOfDomainError:
        return -np.inf


def _sure_welfare(objective: Objective, column: ScoredPolicy) -> float:
    """Return the welfare of a policy less two standard errors; by leximin without, and -inf outside the domain."""
    welfare = _welfare_of(objective, column.values)
    if column.exact or objective.structure.lexicographic or welfare == -np.inf:
        return welfare
    return welfare - 2 * column.error(objective.supergradient(column.values))


def _candidate(column: ScoredPolicy, rng: Rng = None) -> Candidate:
    return Candidate(column.name, column.policy, column.choice, rng)


def _settle(oracle: WeightedIndices, objective: Objective, parts: Sequence[ScoredPolicy], shares: Floats) -> Floats:
    """The best shares of the parts, to a few digits; as they were if the floors are out of reach on new episodes.

    Values are lowered by their errors, which differ by policy. With floors the digits are more: those that are known
    exactly must not be missed by rounding.
    """
    matrix = np.column_stack([oracle.vector(part, margin=MARGIN) for part in parts])
    floors = objective.floors[oracle.floored]
    with contextlib.suppress(InfeasibleError, OutOfDomainError):
        shares, _ = best_shares(
            matrix, objective.welfare, objective.sizes, floors, 1e-7, lambda *mix: _error(objective, parts, *mix)
        )
    rounded = np.round(shares, 8 if len(floors) else 4)
    return np.asarray(rounded / rounded.sum())


def report_parts(
    task: Task, columns: Sequence[ScoredPolicy], shares: Floats, objective: Objective, most: float = np.inf
) -> tuple[Floats, Samples]:
    """Return the (unit,) values of a mixture on separate episodes, and the episodes behind their errors.

    What lies beyond the horizon of a discount very near 1 is in the value, and the whole of it in the error.

    Args:
        task: problem, welfare and settings.
        columns: the parts.
        shares: (part,) their shares.
        objective: by types or by arms, as the columns are.
        most: steps of arms that there is time for.
    """
    stream = np.random.default_rng(task.rng).spawn(3)[2]
    by_type = objective.num_values == task.problem.num_types
    steps = task.effort.report_steps
    most = max(most, HASTE * steps)
    scorers = [
        PolicyScorer(task.problem, by_type, steps * share, 0, 6, 4000, left_out=JUDGED, thorough=True).limited(
            most * share
        )
        for share in shares.tolist()
    ]
    candidates = [_candidate(column, own) for column, own in zip(columns, stream.spawn(len(columns)), strict=True)]
    found = score_all(
        task.sweep, scorers, candidates, lambda what, done: task.tell(f"playing {what}", 0.8 + 0.2 * done)
    )
    values = np.zeros(objective.num_values)
    for share, part in zip(shares.tolist(), found, strict=True):
        values += share * part.returns.mean(axis=0)
    noisy = [number for number, part in enumerate(found) if not part.exact]
    parts = zip(shares.tolist(), found, strict=True)
    beyond = sum((share * part.beyond for share, part in parts if part.beyond is not None), np.zeros(len(values)))
    samples = Samples(shares[noisy], tuple(found[number].returns for number in noisy), beyond)
    return values, samples
