"""Value of a policy: exact if possible, else by simulation with standard errors.

Values are of arms, by the problem's criterion. Welfare is over its members: the arms, or the groups, whose values are
the means over their arms (`Objective`). Figures are per *unit*: the types if the policy is exchangeable,
else the arms.

Monte Carlo. From M independent episodes the value of arm n is estimated by the mean return, and the welfare by

    plug-in:  W(mean_1, ..., mean_N)            the paper's figure; biased downwards where arms are equal, because a
                                                concave W punishes the estimation noise between them
    pooled:   W of the means over each type     used when the policy treats arms of one type alike; on a symmetric
                                                problem every Gini is then the overall mean, without bias

Mixtures that are drawn once are played part by part, each as often as its share says (at least twice), and
the means and errors of the parts are put together: which part was drawn by chance then adds nothing to the error.

The standard error of the welfare is by the delta method: the spread over episodes of g . returns, where g are the
weights (a supergradient) that the objective puts on the units at the estimate; near a kink it is larger
(`standard_errors`).
Episodes are cut off at the horizon T; no value changes by more than the weight of the time beyond it times max|r|, the
truncation bound. A simulator has none, as its largest reward is not known; it is never evaluated exactly. Neither has
an average: it is played until the arms have forgotten their start, and what a horizon that is given leaves of it is in
the standard errors (`long_run`).
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_positive_int
from evenhand.display import progress_or_none, task_progress, with_progress_bar
from evenhand.errors import InvalidInputError, NotApplicableError, OutOfDomainError, TooLargeError
from evenhand.evaluation.count_simulation import simulate_counts
from evenhand.evaluation.exact import exact_values, is_quick
from evenhand.evaluation.long_run import LongRun, LongRunLimits, Mixing, mean_by_type, play_long_run
from evenhand.evaluation.result import Evaluation
from evenhand.evaluation.rollout import Rollout, share_of_budget, simulate
from evenhand.evaluation.standard_errors import bias_error, standard_errors, welfare_error
from evenhand.kernels.compilation import work_clock
from evenhand.model.arm_matching import all_made_for
from evenhand.model.composite import components_for_good
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import USUAL_AVERAGE_HORIZON, Criterion
from evenhand.model.objective import Objective, read_welfare
from evenhand.model.policy import Policy, StatefulPolicy, check_acts, is_exchangeable, plays_by_counts
from evenhand.model.simulator import Problem, Simulator, check_problem, needs_tables
from evenhand.model.welfare import Welfare
from evenhand.policies.resize import fitted
from evenhand.typing import Floats, Indices, Ints, Progress, Rng

Method = Literal["auto", "exact", "monte-carlo"]

# -- evaluating ------------------------------------------------------------------------------------------------------


@with_progress_bar
def evaluate(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    welfare: str | Welfare | None = None,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    method: Method = "auto",
    progress: Progress | bool | None = None,
) -> Evaluation:
    """Evaluate a policy: exactly if possible, else by simulation.

    Args:
        problem: the problem, or a simulator.
        policy: the policy. `evenhand.evaluate` also takes a name or the file of a saved policy.
        welfare: the welfare, as text or object; by default the problem's own.
        num_episodes: episodes to play, where it must be simulated. Slow arms play fewer and longer ones of an average.
        horizon: steps an episode; by default the criterion's own: 300 discounted, the horizon itself where it is
            finite, and for an average 1000, or as many as the arms take to forget their start. The first quarter of
            these does not count. What a shorter one leaves of the start is part of the standard errors.
        rng: seed or generator; 0 by default, so that the same call gives the same numbers. None for others each time.
        method: "exact" (by a linear solve), "monte-carlo", or "auto": exact where policy and problem allow it and it
            takes seconds, or about as long as playing.
        progress: True shows a bar; a function is called with the current task and the share done.
        criterion: keyword of `evenhand.evaluate`; by default the problem's own.
        over: keyword of `evenhand.evaluate`: welfare over `arms` or `groups`; by default the problem's own.
        backend: keyword of `evenhand.evaluate`: where the scores of a large opened Parquet model are computed.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=5)
        >>> round(eh.evaluate(machines, "oldest-first", welfare="gini:2").welfare, 4)
        13.4292
    """
    if method not in ("auto", "exact", "monte-carlo"):
        raise InvalidInputError(f"method: expected 'auto', 'exact' or 'monte-carlo', got {method!r}")
    check_positive_int(num_episodes, "num_episodes")
    check_acts(policy)
    check_problem(problem, "evaluate(problem, policy)")
    policy = fitted(policy, problem)
    case = Case.of(policy, problem, welfare)
    requested = problem.criterion.simulated_steps(horizon)
    steps = requested if horizon is not None else problem.criterion.fixed_steps(requested)
    arm_steps = float(num_episodes) * (steps or USUAL_AVERAGE_HORIZON) * problem.num_arms
    # Exact if possible and quick; "auto" falls back on simulation, "exact" reports why not.
    try:
        if method == "exact" or (method == "auto" and _is_quick(case.played, policy, arm_steps)):
            return _exactly(policy, case)
    except (NotApplicableError, TooLargeError):
        if method == "exact":
            raise
    limits = LongRunLimits(thorough=True)
    return evaluate_within(problem, policy, welfare, num_episodes, steps, rng, limits, progress_or_none(progress))


# -- evaluated and simulated problem ---------------------------------------------------------------------------------


class Case(NamedTuple):
    """Evaluated and simulated problem: the types of a policy are those of the problem it was made for."""

    evaluated: Problem
    """The problem, with the requested criterion and members."""

    played: Problem
    """The same, its types cut as the policy knows them: only under `over = "groups"` are they cut at groups."""

    welfare: Welfare
    """The welfare."""

    @classmethod
    def of(cls, policy: object, evaluated: Problem, welfare: str | Welfare | None) -> "Case":
        """Return the case of a policy.

        Args:
            policy: the policy.
            evaluated: the problem, with the requested criterion and members.
            welfare: how members' values are weighed.
        """
        # Of a policy with parts the one with most types: the finest decides what can be pooled.
        made_for = max(all_made_for(policy), key=lambda problem: problem.num_types, default=None)
        played = evaluated if made_for is None else evaluated.with_criterion(over=made_for.over)
        return cls(evaluated, played, read_welfare(evaluated, welfare))

    def check_types(self, policy: object) -> None:
        """Raise NotApplicableError if the distribution of the policy, or of a part, is over other types."""
        if not knows_types(self.played, policy):
            raise NotApplicableError("the policy was made for other types of these arms, so it can only be simulated")

    def units(self, by_type: bool) -> tuple[Indices | slice, bool]:
        """Return the simulated column of each evaluated unit, and whether these units are types."""
        # The same cut on both sides: columns are units already.
        if not by_type or self.played.over == self.evaluated.over:
            return slice(None), by_type
        if self.played.over == "groups":  # arms of an evaluated type may differ: per arm
            return self.played.type_of_arm, False
        # Simulated over arms, evaluated over groups: each evaluated type lies within one simulated type.
        _, first = np.unique(self.evaluated.type_of_block, return_index=True)
        return self.played.type_of_block[first], True

    def objective(self, by_type: bool) -> Objective:
        """Return the objective over types or arms."""
        return (Objective.of_types if by_type else Objective.of_arms)(self.evaluated, self.welfare)


def treats_alike(problem: Problem, policy: object) -> bool:
    """Return whether arms of one type have equal values; not if the policy was made to distinguish some of them.

    Args:
        problem: the problem; its types may differ from those that the policy was made for.
        policy: the policy.
    """
    return is_exchangeable(policy) and all(
        _num_both(made_for, problem) == problem.num_types for made_for in all_made_for(policy)
    )


def knows_types(problem: Problem, policy: object) -> bool:
    """Return whether the types of the problem are those that the policy was made for, if it has any.

    Args:
        problem: the problem.
        policy: the policy.
    """
    return all(
        _num_both(made_for, problem) == made_for.num_types == problem.num_types for made_for in all_made_for(policy)
    )


def _num_both(one: Problem, other: Problem) -> int:
    """Return the number of types of both partitions together; of the second if the arms are not the same."""
    if one is other or one.num_arms != other.num_arms or one.num_types == 1:
        return other.num_types
    if other.num_types == 1:
        return one.num_types
    assert isinstance(one, CoupledMDP) and isinstance(other, CoupledMDP)  # the arms of a simulator are of one type
    # By blocks if they are as long as each other: there may be a billion arms. Both types in one number.
    by_blocks = np.array_equal(one.counts, other.counts)
    ours, theirs = (p.type_of_block if by_blocks else p.type_of_arm for p in (one, other))
    return len(np.unique(ours.astype(np.int64) * other.num_types + theirs))


# -- exactly ---------------------------------------------------------------------------------------------------------


def _exactly(policy: object, case: Case) -> Evaluation:
    start = work_clock()
    played = needs_tables(case.played, "exact evaluation")
    # The distribution of a policy is over types: these must be those that are simulated.
    case.check_types(policy)
    found = exact_values(played, policy)
    columns, by_type = case.units(found.by_type)
    # From simulated types to evaluated units.
    objective, values, served = case.objective(by_type), found.values[columns], found.served[columns]
    value = objective(values)
    return Evaluation(
        welfare=value,
        plug_in_welfare=value,
        mean=float(objective.members(values) @ objective.sizes / objective.sizes.sum()),
        unit_values=values,
        unit_stderr=np.zeros_like(values),
        unit_served=served,
        unit_served_stderr=np.zeros_like(served),
        member_stderr=np.zeros(len(objective.sizes)),
        by_type=by_type,
        budget_used=share_of_budget(case.evaluated.budget, found.used, objective.criterion.total),
        seconds=work_clock() - start,
        objective=objective,
        problem=case.evaluated,
    )


def _is_quick(problem: Problem, policy: object, arm_steps: float) -> bool:
    """Return whether exact values take little time beside so many simulated arm-steps."""
    return isinstance(problem, CoupledMDP) and knows_types(problem, policy) and is_quick(problem, policy, arm_steps)


# -- by simulation ---------------------------------------------------------------------------------------------------


def evaluate_within(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    welfare: str | Welfare | None,
    num_episodes: int,
    horizon: int | None,
    rng: Rng,
    limits: LongRunLimits,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluation by simulation, with limits on long runs.

    Args:
        problem: where the policy acts, with the requested criterion and members.
        policy: the policy.
        welfare: welfare of the members' values.
        num_episodes: episodes to play.
        horizon: steps per episode; None for as many as an average takes.
        rng: seed or generator.
        limits: limits on long runs.
        progress: called at intervals with the current task and the completed share.

    Raises:
        NotConvergedError: more would be needed.
    """
    start, case = work_clock(), Case.of(policy, problem, welfare)
    played, pooled = case.played, treats_alike(case.played, policy)
    # By counts a step costs the same for any number of arms, but arms are not followed.
    many = num_episodes * (horizon or USUAL_AVERAGE_HORIZON) * played.num_arms > limits.followed_arm_steps
    # Only crowds of equal arms are counts, and only where matrices are known.
    by_counts = many and pooled and plays_by_counts(policy) and isinstance(played, CoupledMDP)

    def play(part: Policy | StatefulPolicy, number: int, stream: Rng, tell: Progress | None) -> LongRun:
        if played.criterion.fixed_steps(1) is not None:
            run = (simulate_counts if by_counts else simulate)(played, part, number, horizon, stream, tell)
            return LongRun(run, run.returns, np.zeros(run.returns.shape[1]))

        def episodes(steps: float) -> int:
            # About as much work as requested; at least 40 episodes, to estimate their spread.
            few = min(number, 40)
            return number if horizon is not None else int(np.clip(number * USUAL_AVERAGE_HORIZON / steps, few, number))

        return play_long_run(played, part, episodes, stream, by_counts, horizon, tell, limits)

    strata = Strata.of(policy, num_episodes)
    # A single part plays with the stream that was given, as `simulate` would. Others have streams of their own: parts
    # are not compared here, and common numbers would correlate their errors.
    number = len(strata.parts)
    streams, runs = [rng] if number == 1 else as_generator(rng).spawn(number), list[LongRun]()
    for part, size, stream in zip(strata.parts, strata.sizes.tolist(), streams, strict=True):
        runs.append(play(part, size, stream, task_progress(progress, "", len(runs), number)))
    # An average may take fewer episodes.
    strata = strata._replace(sizes=np.array([len(run.estimates) for run in runs]))
    figures = [(run.estimates, run.rollout.served, run.rollout.returns, run.rollout.used) for run in runs]
    estimates, served, returns, used = (np.concatenate(parts) for parts in zip(*figures, strict=True))
    rollout = Rollout(returns, used, served, max(run.rollout.horizon for run in runs))
    bias = np.tensordot(strata.shares, [run.bias for run in runs], axes=1)
    # The paper's figure is of the arms, before types are pooled.
    plug_in = None if by_counts else _plug_in(case.objective(False), strata.mean(estimates))
    if pooled and not by_counts:
        estimates, served, bias = (mean_by_type(played, figures) for figures in (estimates, served, bias))
    columns, by_type = case.units(pooled)
    units = estimates[:, columns], served[:, columns], bias[columns]
    # The largest reward of a simulator is not known.
    largest = np.inf if isinstance(problem, Simulator) else float(np.abs(problem.types.rewards).max())
    bound = truncation_bound(problem.criterion, rollout.horizon, largest)
    facts: Any = {"plug_in_welfare": plug_in, "truncation_bound": bound, "by_type": by_type}
    mixings = [run.mixing for run in runs if run.mixing is not None]
    facts["mixing"] = Mixing.worst(mixings) if mixings else None
    return estimate(problem, case.objective(by_type), strata, rollout, *units, **facts, seconds=work_clock() - start)


class Strata(NamedTuple):
    """The parts of a mixture and the episodes that each plays, one after another; any other policy is one part."""

    parts: tuple[Policy | StatefulPolicy, ...]

    shares: Floats
    """(part,)"""

    sizes: Ints
    """(part,) episodes."""

    @classmethod
    def of(cls, policy: Policy | StatefulPolicy, num_episodes: int) -> "Strata":
        """Allots episodes by the shares; a mixture of more parts than there are episodes for is played as one."""
        parts, shares = components_for_good(policy)
        # Two episodes per part at least, or it would have no standard error. With too few episodes for all parts, the
        # mixture draws its parts itself, which adds a little noise.
        if parts == (policy,) or num_episodes < 2 * len(parts):
            return cls((policy,), np.ones(1), np.array([num_episodes]))
        free = num_episodes - 2 * len(parts)
        # Rounded running sums: what parts get beside their two differs from the shares by less than one episode, and
        # adds up.
        ends = np.floor(np.cumsum(shares) * free + 0.5).astype(np.int64)
        return cls(parts, shares, 2 + np.diff(ends, prepend=0))

    @property
    def weights(self) -> Floats:
        """(episode,) weight of each in a mean."""
        return np.repeat(self.shares / self.sizes, self.sizes)

    def mean(self, samples: Floats) -> Floats:
        """(...,) the mean of (episode, ...) samples."""
        return np.asarray(np.tensordot(self.shares, [part.mean(axis=0) for part in self.split(samples)], axes=1))

    def split(self, samples: Floats) -> list[Floats]:
        """Return the samples of each part."""
        return np.split(samples, np.cumsum(self.sizes)[:-1])

    def errors(self, samples: Floats) -> Floats:
        """(...,) its standard errors: those of the parts, put together."""
        own = [standard_errors(part) for part in self.split(samples)]
        # Parts are independent: variances add up, each by the square of its share.
        return np.asarray(np.sqrt(np.tensordot(self.shares**2, np.square(own), axes=1)))


def _plug_in(objective: Objective, means: Floats) -> float | None:
    try:
        return objective(means)
    except OutOfDomainError:  # noise alone can push the mean of an arm out of the domain
        return None


def estimate(
    problem: Problem,
    objective: Objective,
    strata: Strata,
    rollout: Rollout,
    returns: Floats,
    served: Floats,
    bias: Floats,
    **facts: Any,
) -> Evaluation:
    """Return the estimates and standard errors of a simulation.

    Args:
        problem: the problem, with the requested criterion and members.
        objective: welfare over the units.
        strata: parts of a mixture that was simulated, or one part.
        rollout: the simulation.
        returns: (episode, unit) returns.
        served: (episode, unit) shares of time served.
        bias: (unit,) remaining influence of the start under `average`, if the horizon is too short.
        **facts: further fields of the evaluation.
    """
    values = strata.mean(returns)
    # (episode, member); their means over episodes are the members' values, for members are linear in units.
    members, biases = objective.members(returns), objective.members(bias)
    # (episode,) the mean over members, each weighted by its size.
    means = members @ objective.sizes / objective.sizes.sum()
    chance = welfare_error(objective, values, strata.shares, strata.split(returns))
    return Evaluation(
        welfare=objective(values),
        welfare_stderr=math.hypot(chance, bias_error(objective, values, bias)),
        mean=float(strata.mean(means)),
        mean_stderr=math.hypot(strata.errors(means), biases @ objective.sizes / objective.sizes.sum()),
        unit_values=values,
        unit_stderr=np.hypot(strata.errors(returns), bias),
        unit_served=strata.mean(served),
        unit_served_stderr=strata.errors(served),
        member_stderr=np.hypot(strata.errors(members), biases),
        budget_used=strata.mean(rollout.used),
        exact=False,
        num_episodes=len(returns),
        horizon=rollout.horizon,
        objective=objective,
        problem=problem,
        returns=rollout.returns,
        episode_weights=strata.weights,
        **facts,
    )


def truncation_bound(criterion: Criterion, horizon: int, largest: float) -> float | None:
    """Return the largest value of the time beyond the horizon, by the largest reward; None if it is not bounded."""
    beyond = criterion.beyond(horizon)
    if not beyond:
        return beyond
    return beyond * largest if largest < np.inf else None
