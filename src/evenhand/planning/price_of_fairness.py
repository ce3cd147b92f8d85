"""Price of fairness: the best plan per welfare, evaluated by all welfares, with gains and losses.

    rows      a welfare each: the plan that is best for it, what that gives the members, and its price, the share of the
              best mean that is given up
    columns   what every welfare makes of that plan

Plans are found one by one, by `solve`. A plan that was found for another welfare may be better for this one than its
own, where plans are found by playing: then it is taken over, so that no plan of the table is better in the column of a
welfare than the one in its row. The exception is leximin. It is an order, not a number: plans are compared level by
level, each within DOUBT standard errors, and the column has the first level alone. So another row may have a larger
figure there, by less than those errors. All plans are reported on the same episodes, or exactly.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evenhand.checks import as_seed
from evenhand.display import (
    FrameLibrary,
    Shown,
    as_frame,
    counted,
    from_report,
    progress_or_none,
    task_progress,
    with_progress_bar,
)
from evenhand.errors import InvalidInputError, OutOfDomainError
from evenhand.evaluation.inequality import gini_coefficient, relative_loss
from evenhand.evaluation.long_run import mean_by_type
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.model import CoupledMDP, Criterion, Leximin, Objective, Welfare, read_welfare, type_names
from evenhand.model.io import Location
from evenhand.model.simulator import needs_tables
from evenhand.planning.solution import Solution
from evenhand.planning.solve import solve
from evenhand.planning.task import FAILURES, SolveMethod
from evenhand.typing import Floats, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDEAS = ("utilitarian", None, "gini:2", "alpha:1", "maximin", "leximin")
"""Welfares by default; None is the problem's own."""

REFERENCE = "utilitarian"
"""Reference of prices, gains and losses: the best mean."""

AS_GOOD = 1e-6
"""Welfare that differs by less than this share of itself is the same."""

DOUBT = 2.0
"""Standard errors within which a level of leximin is the same."""


@dataclass(frozen=True, eq=False)
class FairnessRow:
    """The best plan for one welfare."""

    welfare: str
    """Its welfare."""

    plan_of: str
    """The welfare that it was found for: another one, where that plan came out better."""

    mean: float
    """The mean value of the members: the arms, or the groups."""

    worst: float
    """The value of the worst-off member."""

    gini_coefficient: float
    """Inequality of the members' values: 0 when all are equal."""

    price: float
    """The share of the best mean that is given up."""

    by: dict[str, float]
    """Its value by every welfare; nan if undefined."""

    by_stderr: dict[str, float]
    """Standard errors; 0 if it is exact."""

    values: dict[str, float]
    """The value of an arm of each type, or of each group."""

    values_stderr: dict[str, float]
    """Standard errors; 0 if it is exact."""

    gains: dict[str, float]
    """Gain of each type or group over the best mean; negative for a loss."""

    groups: dict[str, float]
    """The value of each group of the model, the mean of its arms, where welfare is over arms; else empty."""

    solution: Solution = field(repr=False)
    """The plan, its bound and how it was found."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("welfare", "plan_of", "mean", "worst", "gini_coefficient", "price", "by", "by_stderr", "values")
        found = {name: getattr(self, name) for name in (*names, "values_stderr", "gains", "exact")}
        if self.groups:
            found["groups"] = self.groups
        solution = self.solution
        return found | {
            "upper_bound": solution.upper_bound,
            "method": solution.method,
            "seconds": solution.seconds,
        }

    @property
    def exact(self) -> bool:
        """True if these are exact values rather than estimates."""
        return not any(self.values_stderr.values())

    @property
    def is_proved(self) -> bool:
        """True if the plan is proved optimal for its welfare, to five digits."""
        return self.exact and self.solution.gap <= 1e-5


@dataclass(frozen=True, eq=False)
class PriceOfFairness(Shown):
    """The price of fairness."""

    rows: tuple[FairnessRow, ...]
    """One per welfare, the best mean first."""

    left_out: dict[str, str]
    """Welfares without a plan, with the reason."""

    who: Literal["type", "group"]
    """Unit of the reported values."""

    counts: dict[str, int]
    """Arms per type or group."""

    group_sizes: dict[str, int]
    """Arms per group of the model, if welfare is over arms; else empty."""

    problem: CoupledMDP = field(repr=False)
    """The problem, with the requested criterion and members."""

    def __repr__(self) -> str:
        dearest = max(self.rows, key=lambda row: round(row.price, 6))  # of equals the first
        price = f", up to {100 * dearest.price:.1f} % of the mean for {dearest.welfare}"
        return f"PriceOfFairness({counted(len(self.rows), 'welfare')} on {self.members_words}{price})"

    def is_dearer(self, row: FairnessRow) -> bool:
        """Return whether a plan's mean is below the best one by more than chance explains.

        Args:
            row: one of the rows.
        """
        best = self.rows[0]
        error = math.hypot(self._mean_stderr(best), self._mean_stderr(row))
        # A difference below rounding is none, even where both are exact and errors are 0.
        return best.mean - row.mean > CONFIDENCE * error + 1e-9 * abs(best.mean)

    def _mean_stderr(self, row: FairnessRow) -> float:
        """Of types or groups as if they were apart: they share a budget, so that luck of one is hardly all others'."""
        # Over arms the mean weighs each type by its arms; over groups each group counts once.
        weights = self.counts if self.who == "type" else dict.fromkeys(self.counts, 1)
        return math.hypot(*(weights[name] * row.values_stderr[name] for name in weights)) / sum(weights.values())

    @property
    def members_words(self) -> str:
        """`6 arms`, or `2 groups of 6 arms` where welfare is over groups."""
        arms = counted(self.problem.num_arms, "arm")
        return arms if self.who == "type" else f"{counted(len(self.counts), 'group')} of {arms}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "criterion": self.problem.criterion.name,
            "over": self.problem.over,
            "budget": self.problem.named_budget,
            "who": self.who,
            "counts": self.counts,
            "rows": [row.to_dict() for row in self.rows],
            "left_out": self.left_out,
        }

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per welfare: mean, price, worst, what every welfare makes of the plan, and the values of all.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        columns: dict[str, list[Any]] = {}
        for name in ("welfare", "plan_of", "mean", "price", "worst", "gini_coefficient", "exact"):
            columns[name] = [getattr(row, name) for row in self.rows]
        for name in self.rows[0].by:
            columns[f"by {name}"] = [row.by[name] for row in self.rows]
        for name in self.counts:
            columns[f"value: {name}"] = [row.values[name] for row in self.rows]
        for name in self.group_sizes:
            columns[f"group: {name}"] = [row.groups[name] for row in self.rows]
        return as_frame(columns, library)

    def plot(self, kind: Literal["values", "trade"] = "values") -> "Figure":
        """Return a figure of the report.

        Args:
            kind: `values` (of each type or group under each plan) or `trade` (the worst-off against the mean).
        """
        figure: Figure = from_report("plots", "fairness_figure")(self, kind)
        return figure

    def report(self, path: Location, title: str | None = None, seed: int | None = None) -> None:
        """Write the report: one HTML page with its tables and figures, that needs nothing else.

        Args:
            path: the HTML file; one that is there is replaced.
            title: heading; generated by default.
            seed: random seed, stated on the page.
        """
        from_report("html", "write_page")(from_report("fairness", "fairness_report")(self, title, seed), path)


@with_progress_bar
def price_of_fairness(
    problem: CoupledMDP,
    welfares: Sequence[str | Welfare] | None = None,
    method: str | SolveMethod = "auto",
    *,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
) -> PriceOfFairness:
    """Find the best plan for each of several welfares, and evaluate each plan by all of them.

    Args:
        problem: the problem.
        welfares: as text or objects; by default utilitarian, the problem's own, gini:2, alpha:1, maximin and leximin.
            The mean is always among them, and comes first.
        method: as of `solve`; its time limit is for all welfares together.
        criterion: criterion; by default the problem's own.
        over: welfare over `arms` or `groups`; by default the problem's own.
        rng: seed or generator of the simulations that some methods need; every welfare gets the same.
        progress: True shows a bar; a function is called with the current task and the share done.

    Raises:
        InvalidInputError: a welfare cannot be read. One without a plan is left out, with the reason.

    Example:
        >>> import evenhand as eh
        >>> people = eh.problems.health_outreach(num_arms=6, num_states=2, budget=1)
        >>> for row in eh.price_of_fairness(people, ["maximin"]).rows:
        ...     print(f"{row.welfare:11} mean {row.mean:.3f}, worst {row.worst:.3f}, price {100 * row.price:.1f} %")
        utilitarian mean 8.116, worst 5.164, price 0.0 %
        maximin     mean 7.579, worst 6.984, price 6.6 %
    """
    evaluated = needs_tables(problem, "price_of_fairness").with_criterion(criterion, over)
    ideas = _read(evaluated, welfares)
    # Every welfare gets the same seed, and so the same episodes: plans differ by what they do.
    seed = as_seed(rng)
    given = SolveMethod.of(method)
    settings = replace(given, seconds=None if given.seconds is None else given.seconds / len(ideas))
    found: dict[str, Solution] = {}
    left_out: dict[str, str] = {}
    for turn, (name, welfare) in enumerate(ideas.items()):
        tell = task_progress(progress_or_none(progress), name, turn, len(ideas))
        try:
            found[name] = solve(evaluated, welfare, settings, progress=tell, rng=seed)
        except FAILURES as error:
            if name == REFERENCE:  # without it there is nothing to compare with, and most likely no plan at all
                raise
            left_out[name] = str(error)
    return _summarise(evaluated, {name: ideas[name] for name in found}, found, left_out)


def _read(problem: CoupledMDP, welfares: Sequence[str | Welfare] | None) -> dict[str, Welfare]:
    """The welfares by name, the mean first; equal ones once."""
    if isinstance(welfares, str):
        welfares = [welfares]
    if welfares is not None and not len(welfares):
        raise InvalidInputError("welfares: expected at least one, got none")
    # The reference comes first; equal names count once.
    requested = [read_welfare(problem, welfare) for welfare in (IDEAS if welfares is None else (REFERENCE, *welfares))]
    return {welfare.name: welfare for welfare in requested}


# -- every plan by every welfare -------------------------------------------------------------------------------------


def _summarise(
    problem: CoupledMDP, ideas: Mapping[str, Welfare], found: Mapping[str, Solution], left_out: dict[str, str]
) -> PriceOfFairness:
    evaluated = {name: _evaluate_by_all(plan, ideas.values()) for name, plan in found.items()}
    # A plan that was found for another welfare may be better for this one than its own.
    chosen = {name: _best_for(welfare, found, evaluated) for name, welfare in ideas.items()}
    best = found[chosen[REFERENCE]]
    reference, best_mean = _reported(best)(best.unit_values), evaluated[chosen[REFERENCE]][0][REFERENCE]
    over_groups = problem.over == "groups"
    names = list(problem.group_names) if over_groups else type_names(problem)
    sizes = np.bincount(problem.group_of_block, weights=problem.counts).astype(np.int64).tolist()
    group_sizes = dict(zip(problem.group_names, sizes, strict=True))
    named_groups = group_sizes if problem.groups and not over_groups else {}
    rows = []
    for name in ideas:
        plan, (by, errors) = found[chosen[name]], evaluated[chosen[name]]
        members, reported = plan.objective.members(plan.unit_values), _reported(plan)
        values = reported(plan.unit_values)
        values_stderr = np.zeros(len(values)) if plan.samples is None else plan.samples.errors(reported)
        rows.append(
            FairnessRow(
                welfare=name,
                plan_of=chosen[name],
                mean=by[REFERENCE],
                worst=float(members.min()),
                gini_coefficient=float(gini_coefficient(members, plan.objective.sizes)),
                price=relative_loss(by[REFERENCE], best_mean),
                by=by,
                by_stderr=errors,
                values=dict(zip(names, values.tolist(), strict=True)),
                values_stderr=dict(zip(names, values_stderr.tolist(), strict=True)),
                gains=dict(zip(names, (values - reference).tolist(), strict=True)),
                groups=_group_means(plan) if named_groups else {},
                solution=_adopted(found[name], plan, by[name], errors[name]),
            )
        )
    counts = group_sizes if over_groups else dict(zip(names, problem.type_counts.tolist(), strict=True))
    return PriceOfFairness(tuple(rows), left_out, "group" if over_groups else "type", counts, named_groups, problem)


def _objective(plan: Solution, welfare: Welfare) -> Objective:
    """Another welfare of the values of a plan."""
    return (Objective.of_types if plan.by_type else Objective.of_arms)(plan.problem, welfare)


def _evaluate_by_all(plan: Solution, welfares: Iterable[Welfare]) -> tuple[dict[str, float], dict[str, float]]:
    """Values of a plan by every welfare, and their standard errors; nan if undefined."""
    by, errors = {}, {}
    for welfare in welfares:
        objective = _objective(plan, welfare)
        try:
            by[welfare.name] = objective(plan.unit_values)
            errors[welfare.name] = 0.0 if plan.samples is None else plan.samples.error(objective, plan.unit_values)
        except OutOfDomainError:  # a value of 0 has no logarithm
            by[welfare.name] = errors[welfare.name] = np.nan
    return by, errors


def _best_for(
    welfare: Welfare,
    found: Mapping[str, Solution],
    evaluated: Mapping[str, tuple[dict[str, float], dict[str, float]]],
) -> str:
    """The welfare whose plan is the best for this one: its own, unless another is better by more than rounding."""
    best = name = welfare.name
    for other in found:
        (ours, our_errors), (theirs, their_errors) = evaluated[best], evaluated[other]
        if not found[name].objective.structure.lexicographic:
            is_better = theirs[name] > ours[name] + AS_GOOD * abs(ours[name])
        else:
            first, second = (_levels(found[one], welfare) for one in (other, best))
            doubt = DOUBT * float(np.hypot(our_errors[name], their_errors[name]))
            is_better = Leximin().compare(first, second, doubt + AS_GOOD * float(np.abs(second).max())) > 0
        best = other if is_better else best
    return best


def _levels(plan: Solution, welfare: Welfare) -> Floats:
    """(member,) the value of every arm or group."""
    objective = _objective(plan, welfare)
    return np.repeat(objective.members(plan.unit_values), objective.sizes)


def _adopted(own: Solution, chosen: Solution, welfare: float, stderr: float) -> Solution:
    """The own solution, or that of another welfare as one for this."""
    if own is chosen:
        return own
    return replace(
        chosen,
        objective=_objective(chosen, own.objective.welfare),
        welfare=welfare,
        welfare_stderr=stderr,
        upper_bound=own.upper_bound,  # of this welfare, for any plan
        reason=f"the plan for {chosen.objective.welfare.name} is better than the one that was found for this welfare",
        selection_bias=None,
    )


# -- values by type or group -----------------------------------------------------------------------------------------


def _reported(plan: Solution) -> Callable[[Floats], Floats]:
    """Map (..., unit) values of a plan to those of types, or of the groups of the welfare."""
    if plan.problem.over == "groups":
        return plan.objective.members
    return (lambda values: values) if plan.by_type else (lambda values: mean_by_type(plan.problem, values))


def _group_means(plan: Solution) -> dict[str, float]:
    """Return the mean value of the arms of each group of the model."""
    groups = np.repeat(plan.problem.group_of_block, plan.problem.counts)  # arms are in the order of the blocks
    means = np.bincount(groups, weights=plan.values) / np.bincount(groups)
    return dict(zip(plan.problem.group_names, means.tolist(), strict=True))
