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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_positive_int
from evenhand.display import FrameLibrary, Shown, as_frame, counted, heard, shows_bar, told_by
from evenhand.errors import InvalidInputError, NotApplicableError, OutOfDomainError, PolicyError, TooLargeError
from evenhand.evaluation.exact import exact_values, is_quick
from evenhand.evaluation.inequality import gini_coefficient, lorenz_curve, relative_loss
from evenhand.evaluation.long_run import LongRun, LongRunLimits, mean_by_type, play_long_run
from evenhand.evaluation.standard_errors import CONFIDENCE, bias_error, standard_errors, welfare_error
from evenhand.kernels.compilation import work_clock
from evenhand.model.composite import components_for_good
from evenhand.model.coupled import CoupledMDP, Over
from evenhand.model.criterion import USUAL_AVERAGE_HORIZON, Criterion
from evenhand.model.naming import arm_names, told_names
from evenhand.model.objective import Objective, read_welfare
from evenhand.model.policy import Policy, StatefulPolicy, is_exchangeable, plays_by_counts
from evenhand.model.same_arms import all_made_for
from evenhand.model.simulator import Problem, Simulator, check_problem, needs_tables
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool
from evenhand.policies.resize import fitted
from evenhand.simulation.counts import simulate_counts
from evenhand.simulation.rollout import Rollout, part_of, share_of_budget, simulate
from evenhand.typing import Floats, Indices, Ints, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Method = Literal["auto", "exact", "monte-carlo"]

FOLLOW_ARMS_UP_TO = 3e9
"""Arm-steps beyond which an exchangeable policy is simulated by counts instead of arm by arm."""

FEWEST_EPISODES = 40
"""Minimum number of episodes of slow arms under an average, if as many are requested."""

MISSED_BY = 3.0
"""Standard errors by which a share of time must lie below its floor to be reported."""

FLOOR_ROUNDING = 1e-6
"""Tolerance of floors in exact shares: linear programs satisfy their constraints about as closely."""


# -- results -------------------------------------------------------------------------------------------------------


class MissedFloor(NamedTuple):
    """Arms that are served less often than they must be."""

    unit: int
    """Number of the unit: a type, or an arm."""

    floor: float
    """The least share of time in which each of its arms is to be served."""

    served: float
    """The share in which they are."""


@dataclass(frozen=True)
class Evaluation(Shown):
    """Welfare and values of a policy."""

    welfare: float
    """The welfare of the members' values."""

    welfare_stderr: float
    """Its standard error, such that 1.96 of them cover it with 95 % on either side, near a kink too; 0 when exact."""

    plug_in_welfare: float | None
    """The paper's figure: the welfare of the arms' estimated means. None if arms were not followed one by one."""

    mean: float
    """Mean value over the members: the arms, or the groups."""

    mean_stderr: float
    """Its standard error; 0 when exact."""

    unit_values: Floats
    """(unit,) value of an arm of each unit; units are types if the policy treats equal arms alike, else arms."""

    unit_stderr: Floats
    """(unit,) standard errors; 0 when exact."""

    unit_served: Floats
    """(unit,) the share of the criterion's time in which an arm of each unit is served."""

    unit_served_stderr: Floats
    """(unit,) standard errors; 0 when exact."""

    member_stderr: Floats
    """(member,) standard errors of the members' values; 0 when exact."""

    by_type: bool
    """True if the units are the types rather than the arms."""

    budget_used: Floats
    """(resource,) mean share of the budget that is used, by the criterion's weights."""

    exact: bool
    """True if these are exact values rather than estimates."""

    truncation_bound: float | None
    """No value changes by more than this if episodes went on; 0 when exact, None if it is not known."""

    num_episodes: int | None
    """Episodes played; None when exact."""

    horizon: int | None
    """Steps an episode; None when exact."""

    seconds: float
    """Run time, without compilation."""

    objective: Objective = field(repr=False)
    """Welfare over the units."""

    problem: Problem = field(repr=False)
    """The problem, with the requested criterion and members."""

    returns: Floats | None = None
    """(episode, arm) raw returns; (episode, type) where counts were simulated; None when exact. The episodes of a
    mixture are those of its parts, one part after another."""

    episode_weights: Floats | None = None
    """(episode,) what each counts for in a mean; they sum to 1. They differ only where small parts of a mixture are
    played more often than their shares say. None when exact."""

    def __repr__(self) -> str:
        episodes = "exact"
        if self.num_episodes is not None and self.horizon is not None:
            episodes = f"{counted(self.num_episodes, 'episode')} of {counted(self.horizon, 'step')}"
        return (
            f"Evaluation({self.objective.welfare.name} {self.welfare_words}, mean {self.mean:.6g}, "
            f"worst {self.worst:.6g}, {episodes})"
        )

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row a type, or an arm where arms of a type differ: its value and share of time served, with errors.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        names = ("value", "stderr", "served", "served_stderr")
        figures = (self.unit_values, self.unit_stderr, self.unit_served, self.unit_served_stderr)
        found = dict(zip(names, figures, strict=True))
        return as_frame(unit_columns(self.problem, self.objective, self.by_type, found), library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        units = {"values": self.unit_values, "values_stderr": self.unit_stderr}
        groups = dict(zip(self.groups, self.member_stderr.tolist(), strict=True)) if self.groups else {}
        return {
            "criterion": self.criterion,
            "over": self.over,
            **self.figures(),
            "welfare_interval": list(self.welfare_interval),
            "served_by_type": self.served,
            "realised_gini_coefficient": self.realised_gini_coefficient,
            "realised_gini_stderr": self.realised_gini_stderr,
            **per_arm(self.problem, self.by_type, units),
            **({"groups_stderr": groups} if groups else {}),
        }

    def figures(self) -> dict[str, Any]:
        """Return the JSON form without the values of arms."""
        names = ("welfare", "welfare_stderr", "plug_in_welfare", "mean", "mean_stderr", "worst", "gini_coefficient")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found |= {
            "budget_used": self.budget_used.tolist(),
            "exact": self.exact,
            "truncation_bound": self.truncation_bound,
            "episodes": self.num_episodes,
            "horizon": self.horizon,
            "seconds": self.seconds,
        }
        if self.groups:
            found["groups"] = self.groups
        if self.problem.has_floors:
            kind = "type" if self.by_type else "arm"
            found["floors_missed"] = [{kind: m.unit, "floor": m.floor, "served": m.served} for m in self.floors_missed]
        return found

    def plot(self) -> "Figure":
        """A figure: what each type or arm gets, with 95 % error bars."""
        figure: Figure = told_by("plots", "evaluation_figure")(self)
        return figure

    @property
    def welfare_words(self) -> str:
        """The welfare as text, with its standard error where it is an estimate."""
        return f"{self.welfare:.6g}" if self.exact else f"{self.welfare:.6g} ± {self.welfare_stderr:.2g}"

    @property
    def criterion(self) -> str:
        """Criterion: `discounted`, `average` or `finite:T`."""
        return self.objective.criterion.name

    @property
    def over(self) -> Over:
        """Members of the welfare: `arms` or `groups`."""
        return self.problem.over

    @property
    def unit_counts(self) -> Ints:
        """(unit,) arms of each unit."""
        return self.objective.counts

    @property
    def values(self) -> Floats:
        """(arm,) the value of each arm."""
        return self.unit_values[self.problem.type_of_arm] if self.by_type else self.unit_values

    @property
    def values_stderr(self) -> Floats:
        """(arm,) the standard error of each arm's value."""
        return self.unit_stderr[self.problem.type_of_arm] if self.by_type else self.unit_stderr

    @property
    def members(self) -> Floats:
        """(member,) what welfare weighs: the values of the units, or of the groups."""
        return self.objective.members(self.unit_values)

    @property
    def groups(self) -> dict[str, float]:
        """The value of each group, the mean over its arms, where welfare is over groups; else empty."""
        if self.over != "groups":
            return {}
        return dict(zip(self.problem.group_names, self.members.tolist(), strict=True))

    @property
    def served(self) -> Floats:
        """(type,) the share of the criterion's time in which an arm of each type is served."""
        return self.unit_served if self.by_type else mean_by_type(self.problem, self.unit_served)

    @property
    def floors_missed(self) -> tuple[MissedFloor, ...]:
        """The units that are served less often than their floor asks for, by more than chance explains."""
        floors = self.objective.floors
        # Room for rounding, and three errors below.
        least = floors * (1 - FLOOR_ROUNDING) - FLOOR_ROUNDING - MISSED_BY * self.unit_served_stderr
        missed = np.flatnonzero((floors > 0) & (self.unit_served < least))
        return tuple(MissedFloor(int(i), float(floors[i]), float(self.unit_served[i])) for i in missed)

    @property
    def welfare_interval(self) -> tuple[float, float]:
        """A 95 % confidence interval of the welfare, horizon cut-off not included."""
        half = CONFIDENCE * self.welfare_stderr
        return self.welfare - half, self.welfare + half

    @property
    def worst(self) -> float:
        """The value of the worst-off member."""
        return float(self.members.min())

    @property
    def gini_coefficient(self) -> float:
        """Inequality of the members' values: 0 when all are equal."""
        return float(gini_coefficient(self.members, self.objective.sizes))

    @property
    def realised_gini_coefficient(self) -> float | None:
        """Inequality of what members really get in an episode, on average; None when exact, or played by counts.

        Equal expectations may go with unequal fortunes: this is the inequality that arms live through.
        """
        found = self._realised_coefficients
        return None if found is None else float(np.average(found, weights=self.episode_weights))

    @property
    def realised_gini_stderr(self) -> float | None:
        """Its standard error; None where there is none to tell."""
        found, mean, weights = self._realised_coefficients, self.realised_gini_coefficient, self.episode_weights
        if found is None or mean is None or weights is None:
            return None
        number = len(found)
        # The usual correction of a weighted variance for so many episodes.
        return float(np.sqrt(np.sum((weights * (found - mean)) ** 2) * number / (number - 1))) if number > 1 else np.inf

    @property
    def _realised_coefficients(self) -> Floats | None:
        """(episode,) of what members got in each; None when exact, or played by counts."""
        # By counts there are no arms to be unequal.
        if self.returns is None or self.returns.shape[1] != self.problem.num_arms:
            return None
        one_a_member = Objective.of_arms(self.problem, self.objective.welfare)
        return np.asarray(gini_coefficient(one_a_member.members(self.returns), one_a_member.sizes))

    @property
    def lorenz(self) -> tuple[Floats, Floats]:
        """The Lorenz curve: shares of members, poorest first, and the shares of all value that they have."""
        return lorenz_curve(self.members, self.objective.sizes)

    def price_of_fairness(self, reference: "Evaluation") -> float:
        """The share of the reference's mean value that this policy gives up."""
        return relative_loss(self.mean, reference.mean)


def unit_columns(
    problem: Problem, objective: Objective, by_type: bool, figures: Mapping[str, Floats]
) -> dict[str, Any]:
    """Columns of a frame with one row a unit: which it is, what it is called, and its figures.

    Args:
        problem: whose types or arms the units are.
        objective: the welfare; it knows how many arms a unit has.
        by_type: whether the units are the types.
        figures: (unit,) figures under their names.
    """
    number = len(objective.counts)
    # (unit,) the type of each.
    kinds = np.arange(number) if by_type else problem.type_of_arm
    columns: dict[str, Any] = {"type" if by_type else "arm": np.arange(number)}
    if problem.types.labels:
        columns["name"] = told_names(problem) if by_type else arm_names(problem)
    if problem.over == "groups":
        columns["group"] = [problem.group_names[group] for group in problem.group_of_type[kinds]]
    if by_type:
        columns["arms"] = problem.type_counts
    return columns | dict(figures)


MOST_LISTED = 1_000_000
"""Arms up to which the JSON form lists a figure per arm."""


def per_arm(problem: Problem, by_type: bool, units: Mapping[str, Floats]) -> dict[str, Any]:
    """Return figures per arm; beyond `MOST_LISTED` arms None, and the figures per type beside it.

    Args:
        problem: problem whose types or arms the units are.
        by_type: whether the units are the types.
        units: (unit,) figures by name.
    """
    if not by_type:
        return {name: values.tolist() for name, values in units.items()}
    if problem.num_arms <= MOST_LISTED:
        return {name: values[problem.type_of_arm].tolist() for name, values in units.items()}
    by_types = {f"{name}_by_type": values.tolist() for name, values in units.items()}
    return {**dict.fromkeys(units), **by_types, "counts_by_type": problem.type_counts.tolist()}


# -- evaluating ------------------------------------------------------------------------------------------------------


@shows_bar
def evaluate(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    welfare: str | Welfare | None = None,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    method: Method = "auto",
    progress: Progress | bool | None = None,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    backend: str | Pool | None = None,
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
        criterion: criterion, as text or object; by default the problem's own.
        over: welfare over `arms` or `groups`; by default the problem's own.
        backend: where blocks of a large opened Parquet model are simulated; problems in memory are evaluated in this
            process.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=5)
        >>> round(eh.evaluate(machines, "oldest-first", welfare="gini:2").welfare, 4)
        13.4292
    """
    if method not in ("auto", "exact", "monte-carlo"):
        raise InvalidInputError(f"method: expected 'auto', 'exact' or 'monte-carlo', got {method!r}")
    check_positive_int(num_episodes, "num_episodes")
    if not isinstance(policy, (Policy, StatefulPolicy)):
        raise PolicyError(f"policy: {type(policy).__name__} has no method act(states, rng); see check_policy")
    check_problem(problem, "evaluate(problem, policy)")
    if backend is not None:
        raise InvalidInputError("backend: for large opened models; one policy in memory is evaluated in this process")
    # The problem with the types that the policy knows, and the requested members.
    evaluated = problem.with_criterion(criterion, over)
    policy = fitted(policy, evaluated)
    case = Case.of(policy, evaluated, problem.over, welfare)
    requested = case.evaluated.criterion.simulated_steps(horizon)
    steps = requested if horizon is not None else case.evaluated.criterion.fixed_steps(requested)
    return _evaluate(policy, case, num_episodes, steps, rng, method, heard(progress))


def _evaluate(
    policy: Policy | StatefulPolicy,
    case: "Case",
    num_episodes: int,
    steps: int | None,
    rng: Rng,
    method: Method,
    progress: Progress | None,
) -> Evaluation:
    arm_steps = float(num_episodes) * (steps or USUAL_AVERAGE_HORIZON) * case.evaluated.num_arms
    if method == "exact" or (method == "auto" and case.is_quick(policy, arm_steps)):
        # Exact where that is possible; "auto" falls back on playing, "exact" says why not.
        try:
            return _exactly(policy, case)
        except (NotApplicableError, TooLargeError):
            if method == "exact":
                raise
    return _by_simulation(policy, case, num_episodes, steps, rng, progress)


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
    def of(cls, policy: object, evaluated: Problem, usual: Over, welfare: str | Welfare | None) -> "Case":
        """Return the case of a policy.

        Args:
            policy: what acts.
            evaluated: the problem, with the requested criterion and members.
            usual: whom welfare is over where the policy does not say what it was made for.
            welfare: how members' values are weighed.
        """
        # Of a policy with parts the one with most types: the finest decides what can be pooled.
        made_for = max(all_made_for(policy), key=lambda problem: problem.num_types, default=None)
        # Policies that know no problem are played with the types of the problem as it was given.
        played = evaluated.with_criterion(over=usual if made_for is None else made_for.over)
        return cls(evaluated, played, read_welfare(evaluated, welfare))

    def check_types(self, policy: object) -> None:
        """Raise NotApplicableError if the distribution of the policy, or of a part, is over other types."""
        if not knows_types(self.played, policy):
            raise NotApplicableError("the policy was made for other types of these arms, so it can only be simulated")

    def is_quick(self, policy: object, arm_steps: float) -> bool:
        """Return whether exact values take little time beside so many simulated arm-steps."""
        played = self.played
        return isinstance(played, CoupledMDP) and knows_types(played, policy) and is_quick(played, policy, arm_steps)

    def pools(self, policy: object) -> bool:
        """Return whether arms of one simulated type have one value."""
        return treats_alike(self.played, policy)

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
    # The law of a policy is over types: these must be those that are played.
    case.check_types(policy)
    found = exact_values(played, policy)
    columns, by_type = case.units(found.by_type)
    # From simulated types to evaluated units.
    objective, values, served = case.objective(by_type), found.values[columns], found.served[columns]
    value = objective(values)
    return Evaluation(
        welfare=value,
        welfare_stderr=0.0,
        plug_in_welfare=value,
        mean=_mean_member(objective, values),
        mean_stderr=0.0,
        unit_values=values,
        unit_stderr=np.zeros_like(values),
        unit_served=served,
        unit_served_stderr=np.zeros_like(served),
        member_stderr=np.zeros(len(objective.sizes)),
        by_type=by_type,
        budget_used=share_of_budget(case.evaluated, found.used, objective.criterion.total),
        exact=True,
        truncation_bound=0.0,
        num_episodes=None,
        horizon=None,
        seconds=work_clock() - start,
        objective=objective,
        problem=case.evaluated,
    )


def _mean_member(objective: Objective, values: Floats) -> float:
    return float(objective.members(values) @ objective.sizes / objective.sizes.sum())


# -- by playing ------------------------------------------------------------------------------------------------------


def evaluate_within(
    policy: Policy | StatefulPolicy,
    problem: Problem,
    welfare: str | Welfare | None,
    num_episodes: int,
    horizon: int | None,
    rng: Rng,
    limits: LongRunLimits,
) -> Evaluation:
    """Evaluation by simulation, with limits on long runs.

    Args:
        policy: what acts.
        problem: where it acts.
        welfare: welfare of the members' values.
        num_episodes: episodes to play.
        horizon: steps per episode; None for as many as an average takes.
        rng: seed or generator.
        limits: how long a long run may be.

    Raises:
        NotConvergedError: more would be needed.
    """
    case = Case.of(policy, problem, problem.over, welfare)
    return _by_simulation(policy, case, num_episodes, horizon, rng, None, limits)


def _by_simulation(
    policy: Policy | StatefulPolicy,
    case: Case,
    num_episodes: int,
    horizon: int | None,
    rng: Rng,
    progress: Progress | None,
    limits: LongRunLimits = LongRunLimits(thorough=True),  # noqa: B008  # a constant
) -> Evaluation:
    """Play; a horizon of None is as long as an average takes."""
    start = work_clock()
    played, pooled = case.played, case.pools(policy)
    # By counts a step costs the same for any number of arms, but arms are not followed.
    many = num_episodes * (horizon or USUAL_AVERAGE_HORIZON) * played.num_arms > FOLLOW_ARMS_UP_TO
    # Only crowds of equal arms are counts, and only where matrices are known.
    by_counts = many and pooled and plays_by_counts(policy) and isinstance(played, CoupledMDP)
    parts = _Strata.of(policy, num_episodes)
    strata, run = _play_parts(played, parts, horizon, rng, by_counts, progress, limits)
    # The paper's figure is of the arms, before anything is pooled.
    plug_in = None if by_counts else _plug_in(case.objective(False), strata.mean(run.estimates))
    returns, served, bias = run.estimates, run.rollout.served, run.bias
    if pooled and not by_counts:
        returns, served, bias = (mean_by_type(played, figures) for figures in (returns, served, bias))
    columns, by_type = case.units(pooled)
    units = _Played(case.objective(by_type), by_type, returns[:, columns], served[:, columns], bias[columns])
    return _summary(case.evaluated, run.rollout, units, strata, plug_in, work_clock() - start)


class _Strata(NamedTuple):
    """The parts of a mixture and the episodes that each plays, one after another; any other policy is one part."""

    parts: tuple[Policy | StatefulPolicy, ...]

    shares: Floats
    """(part,)"""

    sizes: Ints
    """(part,) episodes."""

    @classmethod
    def of(cls, policy: Policy | StatefulPolicy, num_episodes: int) -> "_Strata":
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
    def starts(self) -> Ints:
        """(part,) the first episode of each."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def weights(self) -> Floats:
        """(episode,) what each counts for."""
        return np.repeat(self.shares / self.sizes, self.sizes)

    def mean(self, samples: Floats) -> Floats:
        """(...,) the mean of (episode, ...) samples."""
        # Sums of each part, then parts by their shares.
        return np.asarray(np.tensordot(self.shares / self.sizes, np.add.reduceat(samples, self.starts), axes=1))

    def split(self, samples: Floats) -> list[Floats]:
        """The samples of each part."""
        return np.split(samples, self.starts[1:])

    def errors(self, samples: Floats) -> Floats:
        """(...,) its standard errors: those of the parts, put together."""
        own = [standard_errors(part) for part in self.split(samples)]
        # Parts are independent: variances add up, each by the square of its share.
        return np.asarray(np.sqrt(np.tensordot(self.shares**2, np.square(own), axes=1)))


def _play_parts(
    problem: Problem,
    strata: _Strata,
    horizon: int | None,
    rng: Rng,
    by_counts: bool,
    progress: Progress | None,
    limits: LongRunLimits,
) -> tuple[_Strata, LongRun]:
    """Play each part in a world of its own; an average may take fewer episodes, which the strata then say."""
    number = len(strata.parts)
    # A single part plays with the stream that was given, as `simulate` would. Others have streams of their own: parts
    # are not compared here, and common numbers would correlate their errors.
    streams, runs = [rng] if number == 1 else as_generator(rng).spawn(number), list[LongRun]()
    for part, size, stream in zip(strata.parts, strata.sizes.tolist(), streams, strict=True):
        tell = None if progress is None else part_of(progress, len(runs), number)
        runs.append(_play_part(problem, part, size, horizon, stream, by_counts, tell, limits))
    returns, used, served = (
        np.concatenate([getattr(run.rollout, name) for run in runs]) for name in ("returns", "used", "served")
    )
    longest = max(run.rollout.horizon for run in runs)
    bias = np.tensordot(strata.shares, [run.bias for run in runs], axes=1)
    whole = LongRun(Rollout(returns, used, served, longest), np.concatenate([run.estimates for run in runs]), bias)
    return strata._replace(sizes=np.array([len(run.estimates) for run in runs])), whole


def _play_part(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    number: int,
    horizon: int | None,
    rng: Rng,
    by_counts: bool,
    progress: Progress | None,
    limits: LongRunLimits,
) -> LongRun:
    if not problem.criterion.is_average:
        play = simulate_counts if by_counts else simulate
        rollout = play(problem, policy, number, horizon, rng, progress)
        return LongRun(rollout, rollout.returns, np.zeros(rollout.returns.shape[1]))

    def episodes(steps: float) -> int:
        # About as much work as requested; enough episodes to estimate their spread.
        few = min(number, FEWEST_EPISODES)
        return number if horizon is not None else int(np.clip(number * USUAL_AVERAGE_HORIZON / steps, few, number))

    return play_long_run(problem, policy, episodes, rng, by_counts, horizon, progress=progress, limits=limits)


def _plug_in(objective: Objective, means: Floats) -> float | None:
    try:
        return objective(means)
    except OutOfDomainError:  # noise alone can push the mean of an arm out of the domain
        return None


class _Played(NamedTuple):
    """Returns of each unit, per episode."""

    objective: Objective
    by_type: bool

    returns: Floats
    """(episode, unit)"""

    served: Floats
    """(episode, unit)"""

    bias: Floats
    """(unit,) what a horizon that is too short may have left of the start, under `average`."""


def _summary(
    problem: Problem, rollout: Rollout, units: _Played, strata: _Strata, plug_in: float | None, seconds: float
) -> Evaluation:
    objective, returns = units.objective, units.returns
    values = strata.mean(returns)
    # (episode, member); their means over episodes are the members' values, for members are linear in units.
    members = objective.members(returns)
    # (episode,) the mean over members, each counted by its size.
    means = members @ objective.sizes / objective.sizes.sum()
    chance, biases = (
        welfare_error(objective, values, strata.shares, strata.split(returns)),
        objective.members(units.bias),
    )
    return Evaluation(
        welfare=objective(values),
        welfare_stderr=math.hypot(chance, bias_error(objective, values, units.bias)),
        plug_in_welfare=plug_in,
        mean=float(strata.mean(means)),
        mean_stderr=math.hypot(strata.errors(means), biases @ objective.sizes / objective.sizes.sum()),
        unit_values=values,
        unit_stderr=np.hypot(strata.errors(returns), units.bias),
        unit_served=strata.mean(units.served),
        unit_served_stderr=strata.errors(units.served),
        member_stderr=np.hypot(strata.errors(members), biases),
        by_type=units.by_type,
        budget_used=strata.mean(rollout.used),
        exact=False,
        truncation_bound=_cut_off(problem, rollout.horizon),
        num_episodes=len(returns),
        horizon=rollout.horizon,
        seconds=seconds,
        objective=objective,
        problem=problem,
        returns=rollout.returns,
        episode_weights=strata.weights,
    )


def _cut_off(problem: Problem, horizon: int) -> float | None:
    """Return the largest value of the time beyond the horizon, if it is known."""
    # None where the criterion cannot tell, or the largest reward is not known.
    beyond = problem.criterion.beyond(horizon)
    if beyond is None or (beyond > 0 and isinstance(problem, Simulator)):
        return None
    return 0.0 if isinstance(problem, Simulator) else beyond * float(np.abs(problem.types.rewards).max())
