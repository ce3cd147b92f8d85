"""Solution of a problem: a policy, its values and the certificate."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from evenhand.display import FrameLibrary, Shown, as_frame, from_report
from evenhand.errors import ContradictionError
from evenhand.evaluation.evaluate import evaluate
from evenhand.evaluation.inequality import gini_coefficient
from evenhand.evaluation.result import per_arm, unit_columns
from evenhand.evaluation.standard_errors import CONFIDENCE, bias_error, standard_errors, welfare_error
from evenhand.model import CoupledMDP, Policy, StatefulPolicy, weight_of_worst
from evenhand.model.objective import Objective, num_members
from evenhand.planning.relaxation import resource_prices
from evenhand.typing import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- the certificate: rounding, and the check that no welfare exceeds its proved bound ------------------------------

SIGNIFICANT = 4.0
"""Standard errors beyond which a welfare above its bound contradicts it."""


def rounding(problem: CoupledMDP) -> float:
    """Largest error of a value by rounding: 16 units in the last place of the largest value, per step."""
    criterion = problem.criterion
    memory = 1 / (1 - criterion.factor) if criterion.factor < 1 else np.inf
    steps = min(memory, 1000.0) if criterion.is_stationary else criterion.num_layers
    largest = float(np.abs(problem.types.rewards).max()) * criterion.total
    return 16.0 * steps * float(np.finfo(float).eps) * largest


def check_bound(problem: CoupledMDP, welfare: float, stderr: float, num_episodes: int | None, bound: float) -> None:
    """Raise ContradictionError if a welfare lies above its bound by more than chance and rounding explain.

    Args:
        problem: the problem.
        welfare: exact, or an estimate.
        stderr: its standard error; 0 if it is exact.
        num_episodes: episodes behind the standard error; None if it is exact.
        bound: upper bound on the welfare of every policy.
    """
    # With few episodes their spread is uncertain itself: as rare as SIGNIFICANT errors are with many.
    quantile = -stdtrit(max((num_episodes or np.inf) - 1, 1), ndtr(-SIGNIFICANT)) if stderr else 0.0
    # Estimates extrapolate beyond their horizon; exact values are as exact as linear programs.
    close = 1e-5 if stderr else 1e-8
    if welfare - bound > stderr * float(quantile) + close * abs(bound) + rounding(problem):
        error = f" ± {stderr:.2g}" if stderr else ""
        raise ContradictionError(
            f"the welfare {welfare:.9g}{error} lies above its proved bound {bound:.9g}, so one of them is wrong. This "
            "is an error of the library: please report it with the model."
        )


# -- standard errors -------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One policy of a mixture."""

    name: str
    """Its name."""

    share: float
    """Its probability."""


class PromiseReport(NamedTuple):
    """Promised waits of a solution: how they are kept, and their price."""

    promises: list[str]
    """The promises in words."""

    by: str
    """`extended states` (the best policy that surely keeps them) or `deadline rule`."""

    sure: bool
    """True if no promise is ever broken."""

    arms: int
    """Number of arms with a promise."""

    most_at_once: int
    """Arms in promised states at once up to which the deadline rule keeps every promise."""

    sure_wait: int
    """The shortest wait that can be promised to all these arms alike and always holds."""

    broken: float
    """Share of due services that were missed in simulation."""

    broken_stderr: float
    """Its standard error."""

    upper_bound: float
    """No policy that keeps the promises has more welfare than this."""

    cost: float
    """Welfare that the promises cost."""

    cost_stderr: float
    """Its standard error."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Episodes on which a plan was reported, for the errors of its values."""

    shares: Floats
    """(part,) of those parts whose values are estimated; none where all of it is exact."""

    returns: tuple[Floats, ...]
    """For each such part, (episode, unit) unbiased estimates of the value."""

    beyond: Floats
    """(unit,) how much of the values is not played, but taken to go on as before."""

    def error(self, objective: Objective, values: Floats) -> float:
        """The standard error of the welfare of the values, whatever the welfare; 0 if they are exact.

        Args:
            objective: the welfare.
            values: (unit,) the estimates.
        """
        # What was not played counts as one more error, beside chance.
        error = welfare_error(objective, values, self.shares, self.returns)
        return float(np.hypot(error, bias_error(objective, values, self.beyond)))

    def errors(self, of: Callable[[Floats], Floats] = lambda values: values) -> Floats:
        """Standard errors of linear figures of the values; 0 if they are exact.

        Args:
            of: (..., unit) values to (..., figure); by default the values themselves.
        """
        # Figures first, then the error: units of one part were played together, and their errors do not add up. Parts
        # were played apart: variances add up, each by the square of its share.
        parts = zip(self.shares, self.returns, strict=True)
        unplayed = of(self.beyond)
        chance = sum(((share * standard_errors(of(part))) ** 2 for share, part in parts), np.zeros(len(unplayed)))
        return np.asarray(np.hypot(np.sqrt(chance), unplayed))


# -- the solution ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Solution(Shown):
    """A policy with its certificate.

    Example:
        >>> import evenhand as eh
        >>> solution = eh.solve(eh.problems.machine_replacement(num_arms=3), welfare="maximin")
        >>> round(solution.welfare, 3), solution.values.round(3), solution.gap < 1e-6
        (14.079, array([14.079, 14.079, 14.079]), True)
    """

    method: str
    """Name of the method."""

    reason: str
    """Why this method, in a sentence."""

    objective: Objective
    """Criterion, welfare and members; its units are those of `unit_values`."""

    welfare: float
    """The welfare of the policy: a lower bound on the best possible one."""

    upper_bound: float
    """Upper bound of the welfare of any policy."""

    unit_values: Floats
    """(unit,) the value of an arm of each unit: the types, or the arms."""

    by_type: bool
    """True if the units are the types."""

    policy: Policy | StatefulPolicy = field(repr=False)
    """The policy."""

    problem: CoupledMDP = field(repr=False)
    """The problem."""

    seconds: dict[str, float]
    """Run time by stage: build the tables, solve, play if a policy is simulated, and compile if code had
    to be made ready, which happens once on a machine."""

    welfare_stderr: float = 0.0
    """Standard error of the welfare: 0 if it is exact, positive if the policy was simulated."""

    parts: tuple[Part, ...] = ()
    """The policies that were chosen by playing, the largest share first; empty for exact methods."""

    selection_bias: float | None = None
    """By how much the welfare was higher on the episodes that parts and shares were chosen on; None if none was."""

    welfare_without_redraw: float | None = None
    """Welfare of the mixture if it is drawn only once, for a policy that is redrawn."""

    realised_gini: float | None = None
    """The Gini coefficient of what arms, or groups, really get within an episode, on average; None if it was not
    played."""

    realised_gini_stderr: float | None = None
    """Its standard error."""

    unit_stderr: Floats | None = None
    """(unit,) standard errors of the values, where the policy was simulated; None if they are exact."""

    samples: Samples | None = field(default=None, repr=False)
    """The episodes on which it was reported; None for exact methods, or if a mixture is drawn again."""

    stopped: bool = False
    """True if the time limit ended the search."""

    promise: PromiseReport | None = None
    """Promised waits, if there are some."""

    history: tuple[tuple[int, float], ...] = ()
    """After each round of column generation, the policies so far and the welfare of the best mixture of them."""

    def __post_init__(self) -> None:
        episodes = min((len(part) for part in self.samples.returns), default=None) if self.samples else None
        check_bound(self.problem, self.welfare, self.welfare_stderr, episodes, self.upper_bound)

    def __repr__(self) -> str:
        # Exact answers have no error to tell.
        sure = "" if self.welfare_stderr == 0 else f" ± {self.welfare_stderr:.2g}"
        return (
            f"Solution({self.objective.welfare.name} {self.welfare:.6g}{sure}, at most {self.upper_bound:.6g}, "
            f"gap {100 * self.gap:.3f} %, by {self.method})"
        )

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per type, or per arm if arms of a type differ: its name, group, number of arms and value.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        return as_frame(unit_columns(self.problem, self.objective, self.by_type, {"value": self.unit_values}), library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; it computes prices, and shares of time served if there are floors."""
        worst = weight_of_worst(self.objective.welfare, 0.1, num_members(self.problem))
        units = {"values": self.unit_values, "values_stderr": self.unit_stderr, "served": self.unit_served}
        found: dict[str, Any] = {
            "method": self.method,
            "reason": self.reason,
            "welfare": {
                "name": self.objective.welfare.name,
                "value": self.welfare,
                "upper_bound": self.upper_bound,
                "gap": self.gap,
                "stderr": self.welfare_stderr,
                "interval": list(self.welfare_interval),
            },
            "criterion": self.problem.criterion.name,
            "over": self.problem.over,
            "weight_of_worst_tenth": worst[1] if worst is not None else None,
            "budget": self.problem.named_budget,
            "prices": self.prices,
            "gini_coefficient": self.gini_coefficient,
            **per_arm(self.problem, self.by_type, {name: v for name, v in units.items() if v is not None}),
            "seconds": self.seconds,
        }
        if self.promise is not None:
            found["promise"] = self.promise._asdict()
        if self.groups:
            found["groups"] = self.groups
            if self.group_stderr is not None:
                found["groups_stderr"] = dict(zip(self.groups, self.group_stderr.tolist(), strict=True))
        if self.parts:
            redraw_every = getattr(self.policy, "redraw_every", None)
            found |= {
                "realised_gini_coefficient": self.realised_gini,
                "realised_gini_stderr": self.realised_gini_stderr,
                "parts": [{"policy": part.name, "share": part.share} for part in self.parts],
                "selection_bias": self.selection_bias,
                "redraw_every": redraw_every,
                **({"welfare_without_redraw": self.welfare_without_redraw} if redraw_every else {}),
            }
        return found

    def plot(self) -> "Figure":
        """Return a figure: the value of each type or arm."""
        figure: Figure = from_report("plots", "solution_figure")(self)
        return figure

    @property
    def gini_coefficient(self) -> float:
        """Inequality of the members' expected values: 0 when all are equal."""
        return float(gini_coefficient(self.objective.members(self.unit_values), self.objective.sizes))

    @property
    def gap(self) -> float:
        """Relative gap `(upper bound - welfare) / |upper bound|`; 0 if the policy is proved optimal."""
        # A bound may lie below the welfare by rounding, or by chance where the welfare is an estimate.
        difference = max(0.0, self.upper_bound - self.welfare)
        if max(abs(self.upper_bound), difference) <= rounding(self.problem):  # an optimum of 0
            return 0.0
        return difference / abs(self.upper_bound) if self.upper_bound else float("inf")

    @property
    def welfare_interval(self) -> tuple[float, float]:
        """A 95 % confidence interval of the welfare; a point if it is exact."""
        half = CONFIDENCE * self.welfare_stderr
        return self.welfare - half, self.welfare + half

    @property
    def values(self) -> Floats:
        """(arm,) the value of each arm."""
        return self.unit_values[self.problem.type_of_arm] if self.by_type else self.unit_values

    @cached_property
    def prices(self) -> dict[str, float] | None:
        """Marginal welfare of one unit more of each resource per step, by the relaxation; None if there is none."""
        return resource_prices(self.problem, self.objective.welfare)

    @cached_property
    def unit_served(self) -> Floats | None:
        """(unit,) the share of time in which an arm of each unit is served, where there are floors; else None.

        Evaluated on first access: exactly if possible, else by a thousand episodes.
        """
        if not self.problem.has_floors:
            return None
        found = evaluate(self.problem, self.policy, self.objective.welfare, rng=0)
        # Convert to the units of this solution.
        if self.by_type:
            return found.served
        return found.unit_served[self.problem.type_of_arm] if found.by_type else found.unit_served

    @property
    def groups(self) -> dict[str, float]:
        """The mean value of the arms of each group, where welfare is over groups; else empty."""
        if self.problem.over != "groups":
            return {}
        return dict(zip(self.problem.group_names, self.objective.members(self.unit_values).tolist(), strict=True))

    @property
    def group_stderr(self) -> Floats | None:
        """(group,) standard errors of the values of groups; None if they are exact, or nothing is known of them."""
        # Episodes of a redrawn mixture are not stored.
        if not self.groups or self.unit_stderr is None or self.samples is None:
            return None
        return self.samples.errors(self.objective.members)
