"""Result of an evaluation: welfare, values per unit and per member, standard errors, inequality.

Figures are per *unit*: the types if the policy is exchangeable, else the arms. Members are the units of the welfare:
arms, or groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report
from evenhand.evaluation.inequality import gini_coefficient, lorenz_curve
from evenhand.evaluation.long_run import Mixing, mean_by_type
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.model.coupled import Over
from evenhand.model.labels import arm_names, own_names
from evenhand.model.objective import Objective
from evenhand.model.simulator import Problem
from evenhand.typing import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MissedFloor(NamedTuple):
    """Arms that are served less often than they must be."""

    unit: int
    """Number of the unit: a type, or an arm."""

    floor: float
    """The least share of time in which each of its arms is to be served."""

    served: float
    """The share in which they are."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Shown):
    """Welfare and values of a policy.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> result = eh.evaluate(problem, "oldest-first")
        >>> result.exact, round(result.welfare, 3), result.values.round(3)
        (True, 12.33, array([12.33, 12.33, 12.33]))
    """

    welfare: float
    """The welfare of the members' values."""

    welfare_stderr: float = 0.0
    """Its standard error, such that 1.96 of them cover it with 95 % on either side, near a kink too; 0 when exact."""

    plug_in_welfare: float | None
    """The paper's figure: the welfare of the arms' estimated means. None if arms were not followed one by one."""

    mean: float
    """Mean value over the members: the arms, or the groups."""

    mean_stderr: float = 0.0
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

    exact: bool = True
    """True if these are exact values rather than estimates."""

    truncation_bound: float | None = 0.0
    """No value changes by more than this if episodes continued; 0 when exact, None if it is not known."""

    num_episodes: int | None = None
    """Episodes played; None when exact."""

    horizon: int | None = None
    """Steps per episode; None if exact."""

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

    mixing: Mixing | None = None
    """Batches, autocorrelation and forgotten starts of a simulated average; else None."""

    broken_promises: tuple[float, float] | None = None
    """Share of the services due by promised waits that were missed, and its standard error; None without promises."""

    def __repr__(self) -> str:
        episodes = "exact"
        if self.num_episodes is not None and self.horizon is not None:
            episodes = f"{counted(self.num_episodes, 'episode')} of {counted(self.horizon, 'step')}"
        return (
            f"Evaluation({self.objective.welfare.name} {self.welfare_words}, mean {self.mean:.6g}, "
            f"worst {self.worst:.6g}, {episodes})"
        )

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per type, or per arm where arms of a type differ: its value and share of time served, with errors.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        found = {"value": self.unit_values, "stderr": self.unit_stderr}
        found |= {"served": self.unit_served, "served_stderr": self.unit_served_stderr}
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
            **({} if self.mixing is None else {"mixing": self.mixing.to_dict()}),
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
        if self.broken_promises is not None:
            found |= dict(zip(("broken_promises", "broken_promises_stderr"), self.broken_promises, strict=True))
        return found

    def plot(self) -> "Figure":
        """A figure: what each type or arm gets, with 95 % error bars."""
        figure: Figure = from_report("plots", "evaluation_figure")(self)
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
        """(member,) arguments of the welfare: the values of the units, or of the groups."""
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
        """The units that are served less often than their floor, by more than chance explains."""
        floors = self.objective.floors
        # Linear programs satisfy constraints to 1e-6; and three standard errors below.
        least = floors * (1 - 1e-6) - 1e-6 - 3 * self.unit_served_stderr
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
        """Its standard error; None if there is none."""
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


def unit_columns(
    problem: Problem, objective: Objective, by_type: bool, figures: Mapping[str, Floats]
) -> dict[str, Any]:
    """Columns of a frame with one row a unit: which it is, what it is called, and its figures.

    Args:
        problem: whose types or arms the units are.
        objective: the welfare, with the number of arms per unit.
        by_type: whether the units are the types.
        figures: (unit,) figures under their names.
    """
    number = len(objective.counts)
    # (unit,) the type of each.
    kinds = np.arange(number) if by_type else problem.type_of_arm
    columns: dict[str, Any] = {"type" if by_type else "arm": np.arange(number)}
    if problem.types.labels:
        columns["name"] = own_names(problem) if by_type else arm_names(problem)
    if problem.over == "groups":
        columns["group"] = [problem.group_names[group] for group in problem.group_of_type[kinds]]
    if by_type:
        columns["arms"] = problem.type_counts
    return columns | dict(figures)


def per_arm(problem: Problem, by_type: bool, units: Mapping[str, Floats]) -> dict[str, Any]:
    """Return figures per arm; beyond a million arms None, and the figures per type beside it.

    Args:
        problem: problem whose types or arms the units are.
        by_type: whether the units are the types.
        units: (unit,) figures by name.
    """
    if not by_type:
        return {name: values.tolist() for name, values in units.items()}
    if problem.num_arms <= 1_000_000:
        return {name: values[problem.type_of_arm].tolist() for name, values in units.items()}
    by_types = {f"{name}_by_type": values.tolist() for name, values in units.items()}
    return {**dict.fromkeys(units), **by_types, "counts_by_type": problem.type_counts.tolist()}
