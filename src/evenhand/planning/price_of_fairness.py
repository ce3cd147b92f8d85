"""Price of fairness: the best plan per welfare, evaluated by all welfares, with gains and losses.

    rows      a welfare each: the plan that is best for it, what that gives the members, and its price, the share of the
              best mean that is given up
    columns   what every welfare makes of that plan

A welfare is over the problem's members, or over others: `maximin over groups`. Plans are found one by one, by `solve`.
If plans are found by playing, those of the welfares before compete, and one that was found for another welfare may be
better for this one than its own: then it is taken over, so that no plan of the table is better in the column of a
welfare than the one in its row. The exception is leximin. It is an order, not a number: plans are compared level by
level, each within DOUBT standard errors, and the column has the first level alone. So another row may have a larger
figure there, by less than those errors. All plans are reported on the same episodes, or exactly.

One row is recommended. Of the plans that give up at most a share (`price_limit`) of the best mean over arms, it is the
one whose worst-off group (arm, if the model has no groups) has most; of those that agree in that to three digits, the
one with the best mean over arms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from evenhand.checks import as_seed, check_fraction
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
from evenhand.kernels.compilation import work_clock
from evenhand.model import CoupledMDP, Criterion, Leximin, Objective, Utilitarian, Welfare, read_welfare, type_names
from evenhand.model.io import Location
from evenhand.model.simulator import needs_tables
from evenhand.planning.solution import Samples, Solution
from evenhand.planning.solve import choose_method, solve
from evenhand.planning.task import FAILURES, SolveMethod
from evenhand.typing import Floats, Indices, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDEAS = ("utilitarian", None, "gini:half=0.6", "gini:half=0.75", "maximin")
"""Welfares by default, and GROUPS if the model has groups; None is the problem's own."""

GROUPS = "maximin over groups"
"""Welfare of the worst-off group."""

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

    mean_of_arms: float
    """The mean value of the arms."""

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

    gaining: dict[str, int]
    """Arms of each group (type, if the model has no groups) whose value is above that under the best mean, beyond
    chance."""

    losing: dict[str, int]
    """Arms whose value is below it."""

    groups: dict[str, float]
    """The value of each group of the model, the mean of its arms, where welfare is over arms; else empty."""

    solution: Solution = field(repr=False)
    """The plan, its bound and how it was found."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("welfare", "plan_of", "mean", "mean_of_arms", "worst", "gini_coefficient", "price", "by", "by_stderr")
        more = ("values", "values_stderr", "gains", "gaining", "losing", "exact")
        found = {name: getattr(self, name) for name in (*names, *more)}
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
    def worst_group(self) -> float:
        """The value of the worst-off group of the model; of the worst-off member if there are no several groups."""
        return min(self.groups.values()) if len(self.groups) > 1 else self.worst

    @property
    def is_proved(self) -> bool:
        """True if the plan is proved optimal for its welfare, to five digits."""
        return self.exact and self.solution.gap <= 1e-5


@dataclass(frozen=True)
class Recommendation:
    """The recommended row."""

    welfare: str
    """Its welfare."""

    price_limit: float
    """Share of the best mean over arms that a recommended plan may give up."""

    price: float
    """Share that it gives up."""

    who: Literal["arm", "group"]
    """Whose worst-off counts."""

    worst: float
    """The value of the worst-off under it."""

    worst_of_mean: float
    """The value of the worst-off under the best mean."""

    gaining: int
    """Arms that gain by it beside the best mean."""

    losing: int
    """Arms that lose."""

    def reason(self, arm: str = "arm", arms: str = "arms", group: str = "group") -> str:
        """Return the rule, and what the row gives by it.

        Args:
            arm: word for an arm.
            arms: word for several.
            group: word for a group.
        """
        who = arm if self.who == "arm" else group
        rule = f"Of the plans that give up at most {100 * self.price_limit:g} % of the best mean over {arms}"
        if self.worst <= self.worst_of_mean + 1e-3 * abs(self.worst_of_mean):
            return f"{rule}, none does more for the worst-off {who} than the best mean."
        lifted = f"the worst-off {who} has most under it (to three digits)"
        lifted += f", {self.worst:.4g} rather than {self.worst_of_mean:.4g}"
        gain, lose = ("gains" if self.gaining == 1 else "gain"), ("loses" if self.losing == 1 else "lose")
        people = f"{counted(self.gaining, arm, arms)} {gain} beside the best mean, {self.losing:,} {lose}"
        return f"{rule}, {lifted}. It gives up {100 * self.price:.2g} % of that mean; {people}."


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

    recommended: Recommendation
    """The recommended row, with its reason."""

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
            "recommended": vars(self.recommended) | {"reason": self.recommended.reason()},
            "left_out": self.left_out,
        }

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per welfare: mean, price, worst, what every welfare makes of the plan, and the values of all.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        columns: dict[str, list[Any]] = {}
        for name in ("welfare", "plan_of", "mean", "mean_of_arms", "price", "worst", "gini_coefficient", "exact"):
            columns[name] = [getattr(row, name) for row in self.rows]
        for name in ("gaining", "losing"):
            columns[name] = [sum(getattr(row, name).values()) for row in self.rows]
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
    price_limit: float = 0.1,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
) -> PriceOfFairness:
    """Find the best plan for each of several welfares, evaluate each plan by all of them, and recommend one.

    Args:
        problem: the problem.
        welfares: as text or objects; by default utilitarian, the problem's own, gini:half=0.6, gini:half=0.75, maximin
            and, if the model has groups, `maximin over groups`. A text may end in `over groups` or `over arms`. The
            mean is always among them, and comes first.
        method: as of `solve`; its time limit is for all welfares together.
        criterion: criterion; by default the problem's own.
        over: welfare over `arms` or `groups`; by default the problem's own.
        price_limit: share of the best mean over arms that the recommended plan may give up.
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
    check_fraction(price_limit, "price_limit")
    given, begin = SolveMethod.of(method), work_clock()
    found: dict[str, Solution] = {}
    left_out: dict[str, str] = {}
    for turn, (name, idea) in enumerate(ideas.items()):
        tell = task_progress(progress_or_none(progress), name, turn, len(ideas))
        left = None if given.seconds is None else max(begin + given.seconds - work_clock(), 1e-3) / (len(ideas) - turn)
        by_search = given.name == "fluid" or (given.name == "auto" and choose_method(idea.problem)[0] == "fluid")
        others = {f"plan for {other}": plan.policy for other, plan in found.items()} if by_search else {}
        settings = replace(given, seconds=left, candidates={**given.candidates, **others})
        try:
            found[name] = solve(idea.problem, idea.welfare, settings, progress=tell, rng=seed)
        except FAILURES as error:
            if name == REFERENCE:  # without it there is nothing to compare with, and most likely no plan at all
                raise
            left_out[name] = str(error)
    return _summarise(evaluated, {name: ideas[name] for name in found}, found, left_out, price_limit)


class Idea(NamedTuple):
    """A welfare and the problem with its members."""

    welfare: Welfare
    problem: CoupledMDP


def _read(problem: CoupledMDP, welfares: Sequence[str | Welfare] | None) -> dict[str, Idea]:
    """The welfares by name, the mean first; equal ones once."""
    if isinstance(welfares, str):
        welfares = [welfares]
    if welfares is not None and not len(welfares):
        raise InvalidInputError("welfares: expected at least one, got none")
    usual = IDEAS if len(set(problem.groups)) < 2 or problem.over == "groups" else (*IDEAS, GROUPS)
    ideas = {}
    # The reference comes first; equal names count once.
    for given in usual if welfares is None else (REFERENCE, *welfares):
        text, _, members = given.partition(" over ") if isinstance(given, str) else (given, "", "")
        other = problem.with_criterion(over=members.strip() or None)
        welfare = read_welfare(other, text)
        ideas[welfare.name if other.over == problem.over else f"{welfare.name} over {other.over}"] = Idea(
            welfare, other
        )
    return ideas


# -- every plan by every welfare -------------------------------------------------------------------------------------


def _summarise(
    problem: CoupledMDP,
    ideas: Mapping[str, Idea],
    found: Mapping[str, Solution],
    left_out: dict[str, str],
    price_limit: float,
) -> PriceOfFairness:
    evaluated = {name: _evaluate_by_all(plan, ideas) for name, plan in found.items()}
    # A plan that was found for another welfare may be better for this one than its own.
    chosen = {name: _best_for(name, ideas, found, evaluated) for name in ideas}
    best = found[chosen[REFERENCE]]
    reference, best_mean = _figures(best, problem), evaluated[chosen[REFERENCE]][0][REFERENCE]
    over_groups = problem.over == "groups"
    names = list(problem.group_names) if over_groups else type_names(problem)
    sizes = np.bincount(problem.group_of_block, weights=problem.counts).astype(np.int64).tolist()
    group_sizes = dict(zip(problem.group_names, sizes, strict=True))
    named_groups = group_sizes if problem.groups and not over_groups else {}
    # Whose arms are counted: those of groups, or of types.
    of_block, whose = (
        (problem.group_of_block, list(problem.group_names)) if problem.groups else (problem.type_of_block, names)
    )
    of_arm = np.repeat(of_block, problem.counts)
    rows = []
    for name in ideas:
        plan, (by, errors) = found[chosen[name]], evaluated[chosen[name]]
        seen = _figures(plan, problem)
        objective = seen.objective(problem, ideas[REFERENCE].welfare)
        members = objective.members(seen.values)
        values, values_stderr = seen.reported(problem)
        more = plan.values - best.values
        sure = np.abs(more) > CONFIDENCE * np.hypot(_arm_errors(plan), _arm_errors(best)) + AS_GOOD * np.abs(
            best.values
        )
        rows.append(
            FairnessRow(
                welfare=name,
                plan_of=chosen[name],
                mean=by[REFERENCE],
                mean_of_arms=float(plan.values.mean()),
                worst=float(members.min()),
                gini_coefficient=float(gini_coefficient(members, objective.sizes)),
                price=relative_loss(by[REFERENCE], best_mean),
                by=by,
                by_stderr=errors,
                values=dict(zip(names, values.tolist(), strict=True)),
                values_stderr=dict(zip(names, values_stderr.tolist(), strict=True)),
                gains=dict(zip(names, (values - reference.reported(problem)[0]).tolist(), strict=True)),
                gaining=_count(of_arm[sure & (more > 0)], whose),
                losing=_count(of_arm[sure & (more < 0)], whose),
                groups=_group_means(plan) if named_groups else {},
                solution=_adopted(found[name], plan, ideas[name], by[name], errors[name]),
            )
        )
    counts = group_sizes if over_groups else dict(zip(names, problem.type_counts.tolist(), strict=True))
    who: Literal["type", "group"] = "group" if over_groups else "type"
    advice = _recommend(rows, "group" if len(named_groups) > 1 or over_groups else "arm", price_limit)
    return PriceOfFairness(tuple(rows), left_out, who, counts, named_groups, advice, problem)


def _count(places: Indices, names: Sequence[str]) -> dict[str, int]:
    return dict(zip(names, np.bincount(places, minlength=len(names)).tolist(), strict=True))


def _arm_errors(plan: Solution) -> Floats:
    """(arm,) standard errors of the values."""
    errors = np.zeros(len(plan.unit_values)) if plan.unit_stderr is None else plan.unit_stderr
    return errors[plan.problem.type_of_arm] if plan.by_type else errors


def _recommend(rows: Sequence[FairnessRow], who: Literal["arm", "group"], price_limit: float) -> Recommendation:
    best = max(row.mean_of_arms for row in rows)
    prices = {row.welfare: max(relative_loss(row.mean_of_arms, best), 0.0) for row in rows}
    cheap = [row for row in rows if prices[row.welfare] <= price_limit]
    most = max(row.worst_group for row in cheap)
    chosen = max((row for row in cheap if row.worst_group >= most - 1e-3 * abs(most)), key=lambda row: row.mean_of_arms)
    people = sum(chosen.gaining.values()), sum(chosen.losing.values())
    own = chosen.worst_group, rows[0].worst_group
    return Recommendation(chosen.welfare, price_limit, prices[chosen.welfare], who, *own, *people)


class _Figures(NamedTuple):
    """(unit,) values of a plan and their samples; units are types or arms."""

    by_type: bool
    values: Floats
    samples: Samples | None

    def objective(self, problem: CoupledMDP, welfare: Welfare) -> Objective:
        """Return a welfare of these units."""
        return (Objective.of_types if self.by_type else Objective.of_arms)(problem, welfare)

    def reported(self, problem: CoupledMDP) -> tuple[Floats, Floats]:
        """Return values of the types, or of the groups of a welfare over groups, and their standard errors."""
        objective = self.objective(problem, Utilitarian())

        def of(values: Floats) -> Floats:
            """(..., figure) of (..., unit) values."""
            if problem.over == "groups":
                return objective.members(values)
            return values if self.by_type else mean_by_type(problem, values)

        values = of(self.values)
        return values, np.zeros(len(values)) if self.samples is None else self.samples.errors(of)


def _figures(plan: Solution, problem: CoupledMDP) -> _Figures:
    """Return the figures of a plan for the members of a problem: per arm, if its types are those of other members."""
    if plan.problem.over == problem.over or not plan.by_type:
        return _Figures(plan.by_type, plan.unit_values, plan.samples)
    kinds, samples = plan.problem.type_of_arm, plan.samples
    if samples is not None:
        samples = replace(
            samples, returns=tuple(part[:, kinds] for part in samples.returns), beyond=samples.beyond[kinds]
        )
    return _Figures(False, plan.values, samples)


def _evaluate_by_all(plan: Solution, ideas: Mapping[str, Idea]) -> tuple[dict[str, float], dict[str, float]]:
    """Values of a plan by every welfare, and their standard errors; nan if undefined."""
    by, errors = {}, {}
    for name, idea in ideas.items():
        seen = _figures(plan, idea.problem)
        objective = seen.objective(idea.problem, idea.welfare)
        try:
            by[name] = objective(seen.values)
            # Without samples, a welfare is at most as uncertain as the most uncertain value: it moves by no more.
            most = float(_arm_errors(plan).max())
            errors[name] = most if seen.samples is None else seen.samples.error(objective, seen.values)
        except OutOfDomainError:  # a value of 0 has no logarithm
            by[name] = errors[name] = np.nan
    return by, errors


def _best_for(
    name: str,
    ideas: Mapping[str, Idea],
    found: Mapping[str, Solution],
    evaluated: Mapping[str, tuple[dict[str, float], dict[str, float]]],
) -> str:
    """The welfare whose plan is the best for this one: its own, unless another is better by more than rounding."""
    best = name
    for other in found:
        (ours, our_errors), (theirs, their_errors) = evaluated[best], evaluated[other]
        if not found[name].objective.structure.lexicographic:
            is_better = theirs[name] > ours[name] + AS_GOOD * abs(ours[name])
        else:
            first, second = (_levels(found[one], ideas[name]) for one in (other, best))
            doubt = DOUBT * float(np.hypot(our_errors[name], their_errors[name]))
            is_better = Leximin().compare(first, second, doubt + AS_GOOD * float(np.abs(second).max())) > 0
        best = other if is_better else best
    return best


def _levels(plan: Solution, idea: Idea) -> Floats:
    """(member,) the value of every arm or group."""
    seen = _figures(plan, idea.problem)
    objective = seen.objective(idea.problem, idea.welfare)
    return np.repeat(objective.members(seen.values), objective.sizes)


def _adopted(own: Solution, chosen: Solution, idea: Idea, welfare: float, stderr: float) -> Solution:
    """The own solution, or that of another welfare as one for this."""
    if own is chosen:
        return own
    seen = _figures(chosen, idea.problem)
    return replace(
        chosen,
        objective=seen.objective(idea.problem, idea.welfare),
        by_type=seen.by_type,
        unit_values=seen.values,
        unit_stderr=None if chosen.unit_stderr is None else chosen.unit_stderr if seen.by_type else _arm_errors(chosen),
        samples=seen.samples,
        problem=idea.problem,
        welfare=welfare,
        welfare_stderr=stderr,
        upper_bound=own.upper_bound,  # of this welfare, for any plan
        reason=f"the plan for {chosen.objective.welfare.name} is better than the one that was found for this welfare",
        selection_bias=None,
    )


def _group_means(plan: Solution) -> dict[str, float]:
    """Return the mean value of the arms of each group of the model."""
    groups = np.repeat(plan.problem.group_of_block, plan.problem.counts)  # arms are in the order of the blocks
    means = np.bincount(groups, weights=plan.values) / np.bincount(groups)
    return dict(zip(plan.problem.group_names, means.tolist(), strict=True))
