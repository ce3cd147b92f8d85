"""Table, notes and page of a comparison of policies."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from evenhand.display import counted
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.model.labels import arm_names, own_names, type_names
from evenhand.model.simulator import Problem
from evenhand.planning.budget_sweep import BudgetComparison, BudgetRow, BudgetSweep
from evenhand.planning.compare import Comparison, Row
from evenhand.planning.policy_registry import REGISTRY
from evenhand.report.format import amount, capitalised, duration, fixed, listed, number, percent, shortened, spelled
from evenhand.report.html import seed_sentence
from evenhand.report.models import (
    budget_text,
    member,
    problem_section,
    setting,
    weights_of_time,
    welfare_meaning,
)
from evenhand.report.summary import (
    MOST_ROWS,
    Cell,
    Figure,
    Section,
    Summary,
    Table,
    TableRow,
    summarise,
    summary_of,
    table,
)
from evenhand.typing import Floats
from evenhand.uncertainty import ScenarioComparison, ScenarioValues
from evenhand.uncertainty.scenario_evaluation import spread_of

MOST_TYPES = 12
"""Types or groups up to which a table has a column for each."""

SAME = 1e-9
"""Relative difference below which two figures are equal."""


# -- the table and its notes -----------------------------------------------------------------------------------------


def results_table(comparison: Comparison) -> Table:
    """Return one row per policy, best first, below the bound."""
    bound, is_share = comparison.upper_bound, comparison.upper_bound is not None and comparison.upper_bound > 0
    of_bound = [] if bound is None else ["of bound" if is_share else "below bound"]
    heads = ("policy", "welfare", "±", *of_bound, "mean", "worst", "Gini", "budget used", "time")
    rows = []
    if bound is not None:
        kind = comparison.bound_name if comparison.bound_name not in ("optimum", "") else ""
        note = f"{kind}: no policy can have more" if kind else "no policy can have more"
        cells = [fixed(bound), "", percent(1.0) if is_share else fixed(0.0), "", "", "", "", ""]
        rows.append(TableRow(comparison.bound_name or "bound", tuple(map(Cell, cells)), note=note, kind="bound"))
    for row in comparison.rows:
        found, welfare = row.evaluation, comparison.shown_welfare(row)
        reached = [] if bound is None else [percent(welfare / bound) if is_share else fixed(bound - welfare)]
        figures = [*reached, fixed(found.mean), fixed(found.worst), fixed(found.gini_coefficient)]
        used = ", ".join(percent(float(share)) for share in found.budget_used)
        error = Cell("exact", is_quiet=True) if found.exact else Cell(fixed(found.welfare_stderr))
        own = (Cell(fixed(welfare), is_strong=True), error, *map(Cell, (*figures, used, duration(found.seconds))))
        rows.append(TableRow(row.policy, own, *_abbreviation_and_summary(row.policy)))
    return Table("Policies by welfare, best first", tuple(map(Cell, heads)), tuple(rows))


def _abbreviation_and_summary(policy: str) -> tuple[str, str]:
    return next(((entry.abbreviation, entry.summary) for entry in REGISTRY if entry.name == policy), ("", ""))


def promise_notes(found: Evaluation) -> list[str]:
    """Return the share of promised waits that are broken; empty if there are none."""
    if found.broken_promises is None or not found.broken_promises[0]:
        return []
    share, error = found.broken_promises
    return [f"{100 * share:.2g} ± {100 * error:.1g} % of the services that are due come too late"]


def floor_notes(found: Evaluation) -> list[str]:
    """Return the types or arms that are served less often than their floors."""
    kind = "type" if found.by_type else "arm"
    names = (own_names if found.by_type else arm_names)(found.problem) if found.floors_missed else []
    notes = [
        f"{kind} {f'{missed.unit} {names[missed.unit]}'.strip()} is served {percent(missed.served)} of the time, "
        f"and must be {percent(missed.floor)}"
        for missed in found.floors_missed[:MOST_ROWS]
    ]
    more = len(found.floors_missed) - MOST_ROWS
    return [*notes, f"... {more} more"] if more > 0 else notes


@summary_of.register
def _(row: Row) -> Summary:
    found = summarise(row.evaluation)
    return Summary(row.policy, found.aside, found.facts, found.tables)


@summary_of.register
def _(comparison: Comparison) -> Summary:
    policies = counted(len(comparison.rows), "policy", "policies")
    title = f"{policies} on {counted(comparison.problem.num_arms, 'arm')}, welfare {comparison.welfare.name}"
    tables = [results_table(comparison)] if comparison.rows else []
    notes = [
        f"tie: {row.policy} with the {comparison.bound_name or 'bound'}: it played {fixed(row.evaluation.welfare)} ± "
        f"{fixed(row.evaluation.welfare_stderr)}, more only by chance"
        for row in comparison.rows
        if comparison.is_above_bound(row)
    ]
    cut = [(row.evaluation.truncation_bound or 0.0, row.evaluation.welfare_stderr) for row in comparison.rows]
    if any(bound > error for bound, error in cut):
        notes.append(
            f"warning: simulated values end at the horizon and may be off by {max(cut)[0]:.2g}; use a longer one"
        )
    for row in comparison.rows:
        notes += [f"floor missed: {row.policy}: {line}" for line in floor_notes(row.evaluation)]
        notes += [f"promises broken: {row.policy}: {line}" for line in promise_notes(row.evaluation)]
    return Summary(title + setting(comparison.problem), tables=tables, notes=[*notes, *left_out_notes(comparison)])


def left_out_notes(comparison: Comparison, at: str = "") -> list[str]:
    """Return the policies and the bound that are missing, with reasons.

    Args:
        comparison: the comparison.
        at: budget, as ` at bays 2`, if there are several.
    """
    notes = [f"left out{at}: {name}: {reason}" for name, reason in comparison.policies_left_out.items()]
    return notes + ([f"no upper bound{at}: {comparison.no_bound}"] if comparison.no_bound else [])


# -- several budgets -------------------------------------------------------------------------------------------------


@summary_of.register
def _(sweep: BudgetSweep) -> Summary:  # type: ignore[type-arg]
    names, is_compared = list(sweep.rows[0].budget), isinstance(sweep.rows[0], BudgetComparison)
    cells: list[list[str]] = []
    notes: list[str] = []
    shown: dict[str, float] = {}
    for row in sweep.rows:
        at = budget_text(row.budget)
        found, bounded = (row.evaluation, row.comparison) if is_compared else (row.solution, row.solution)
        bound, error = bounded.upper_bound, found.welfare_stderr
        shown[at] = found.welfare
        if bound is not None and error > 0 and found.welfare > bound:  # as in a comparison, a tie
            shown[at] = bound
            played = f"it played {fixed(found.welfare)} ± {fixed(error)}, more only by chance"
            notes.append(f"tie at {at}: with the upper bound; {played}")
        figures = [fixed(shown[at]), _error_text(error), fixed(bound)]
        figures += [] if is_compared else [f"{row.solution.gap:.2g}"]
        step, gains = row.step, ["", "", ""]
        if step is not None:
            gain = f"{shown[at] - shown[budget_text(step.since)]:+.4f}"
            since = ",".join(amount(value) for value in step.since.values())
            gains = [gain if step.measurable else "no measurable difference", _error_text(step.stderr), since]
        last = row.best if is_compared else _plan_name(row)
        cells.append([*map(amount, row.budget.values()), *figures, *gains, last])
    heads = [*(["budget"] if names == ["resource 0"] else names), "welfare", "±", "upper bound"]
    heads += [*["gap"] * (not is_compared), "step", "± of step", "step from", "best policy" if is_compared else "plan"]
    if all(row.step is not None and row.step.since == last.budget for last, row in pairwise(sweep.rows)):
        place = heads.index("step from")  # always the row above
        for texts in (heads, *cells):
            del texts[place]
    tables = [table("", heads, cells, text=heads[-1:])]
    if is_compared:
        tables.append(_every_policy(sweep.rows))
        notes += [n for row in sweep.rows for n in left_out_notes(row.comparison, f" at {budget_text(row.budget)}")]
    return Summary(f"Budgets, welfare {sweep.welfare}{setting(bounded.problem)}", tables=tables, notes=notes)


def _error_text(error: float) -> str:
    return fixed(error) if error else "exact"


def _plan_name(row: BudgetRow) -> str:
    """Return the origin of a plan in short."""
    if row.reused_from is not None:
        return f"that for {budget_text(row.reused_from)}"
    parts = row.solution.parts
    if len(parts) > 1:
        return f"a mixture of {len(parts)}"
    return parts[0].name if parts else f"by {row.solution.method}"


def _every_policy(rows: Sequence[BudgetComparison]) -> Table:
    found = [{row.policy: row.evaluation.welfare for row in one.comparison.as_shown().rows} for one in rows]
    names = list(dict.fromkeys(name for one in found for name in one))
    heads = ["policy", *(f"at {budget_text(row.budget)}" for row in rows)]
    return table("welfare of every policy", heads, [[name, *(fixed(one.get(name)) for one in found)] for name in names])


# -- draws of a posterior --------------------------------------------------------------------------------------------

SPREAD = ("5 %", "50 %", "95 %", "worst tenth")


@summary_of.register
def _(found: ScenarioComparison) -> Summary:
    return replace(rivals_summary(found), tables=[scenario_table(found, row) for row in found.rows])


def scenario_table(found: ScenarioComparison, row: ScenarioValues) -> Table:
    """Return the quantiles of one policy's welfare and values over draws."""
    names = ("welfare", *found.member_names(row))
    pairs = list(zip(names, (row.welfare, *row.members.T), strict=True))[: MOST_ROWS + 1]
    how = "exact" if row.exact else f"{row.num_episodes} episodes in each, noise {row.noise:.2g} removed"
    caption = f"{row.policy}: over {found.num_draws} draws of the posterior, {how}"
    rows = [[name, *_spread_cells(values)] for name, values in pairs]
    return table(caption, ["of", *SPREAD], rows, len(names) - MOST_ROWS - 1)


def _spread_cells(values: Floats) -> list[str]:
    return [fixed(figure) for name, figure in spread_of(values).items() if name != "mean"]


def rivals_summary(found: ScenarioComparison) -> Summary:
    """Return the quantiles of each policy's welfare, and the probability that it is better than the first."""
    first = found.rows[0].policy
    rows = []
    for row in found.rows:
        better = "" if row.policy == first else percent(found.probability_better(row.policy, first))
        rows.append([row.policy, *_spread_cells(row.welfare), better])
    tables = [table("", ["policy", *SPREAD, f"better than {first}"], rows)]
    notes = [f"left out: {name}: {reason}" for name, reason in found.left_out.items()]
    return Summary(f"Welfare over {found.num_draws} draws of the posterior", tables=tables, notes=notes)


# -- the page --------------------------------------------------------------------------------------------------------


def comparison_report(
    comparison: Comparison,
    title: str | None = None,
    seed: int | None = None,
    scenarios: ScenarioComparison | None = None,
) -> Summary:
    """Return the page of a comparison, for `html.page` and `html.write_page`.

    Args:
        comparison: the comparison.
        title: heading; by default the number of policies.
        seed: random seed, if known.
        scenarios: the same policies over scenarios, if there are some.
    """
    plain, shown, problem = summarise(comparison), comparison.as_shown(), comparison.problem
    sections = []
    if comparison.rows or comparison.left_out:
        sections.append(Section("Policies", tables=plain.tables, notes=plain.notes))
    if scenarios is not None:
        over = rivals_summary(scenarios)
        sections.append(Section(over.title, tables=over.tables, notes=over.notes))
    if comparison.rows:
        sections += _figure_sections(shown, problem)
    return Summary(
        title or f"Comparison of {counted(len(comparison.rows), 'policy', 'policies')}",
        lead=_lead(shown, problem),
        sections=[*sections, problem_section(problem), Section("How to read this", facts=_glossary(shown, problem))],
        made=_made(comparison, seed),
    )


def _made(comparison: Comparison, seed: int | None) -> str:
    ways: Counter[str] = Counter()
    for found in (row.evaluation for row in comparison.rows):
        sizes = f"{counted(found.num_episodes or 0, 'episode')} of {counted(found.horizon or 0, 'step')} each"
        ways["evaluated exactly" if found.exact else f"simulated: {sizes}"] += 1
    sentences = [f"{counted(count, 'policy was', 'policies were')} {way}." for way, count in sorted(ways.items())]
    return " ".join([*sentences, seed_sentence(seed)]).rstrip()


def bound_title(comparison: Comparison) -> str:
    """Return `optimum` or `upper bound`."""
    return "optimum" if comparison.bound_name == "optimum" else "upper bound"


def is_level(evaluation: Evaluation) -> bool:
    """Return whether all arms have the same value up to rounding."""
    values = evaluation.unit_values
    return float(np.ptp(values)) <= SAME * max(1.0, float(np.abs(values).max()))


def values_by_type(evaluation: Evaluation, problem: Problem) -> Floats:
    """Return the (type,) mean values of arms."""
    if evaluation.by_type:
        return evaluation.unit_values
    sums = np.bincount(problem.type_of_arm, weights=evaluation.unit_values, minlength=problem.num_types)
    return np.asarray(sums / problem.type_counts)


def by_inequality(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with a Gini coefficient, the most equal first."""
    known = [row for row in rows if math.isfinite(row.evaluation.gini_coefficient)]
    return sorted(known, key=lambda row: row.evaluation.gini_coefficient)


def _figure_sections(comparison: Comparison, problem: Problem) -> list[Section]:
    from evenhand.report import plots

    simulated = not all(row.evaluation.exact for row in comparison.rows)
    captions = ["Error bars are 95 % confidence intervals."] * simulated
    if comparison.upper_bound is not None:
        captions.append(f"The dashed line is the {bound_title(comparison)}.")
    sections = [Section("Welfare", figures=[Figure(plots.welfare_plot(comparison).svg(), " ".join(captions))])]
    if problem.num_arms > 1:
        sections.append(_spread_section(comparison, problem))
    if rows := plots.lorenz_rows(comparison.rows):
        caption = (
            "Shares of the total value of the worst-off arms; the further a curve is below the diagonal, the more "
        )
        caption += "unequal. Of several policies the best, the most equal and the most unequal are shown."
        sections.append(Section("Lorenz curves", figures=[Figure(plots.lorenz_plot(rows, len(rows)).svg(), caption)]))
    return sections


def _spread_section(comparison: Comparison, problem: Problem) -> Section:
    from evenhand.report import plots

    title = "Values of the arms"
    if all(is_level(row.evaluation) for row in comparison.rows):
        return Section(title, ["Every policy gives each arm the same value."])
    caption = "One row per policy: a thin line from the worst to the best arm, a thick one for the middle half."
    errors = [float(row.evaluation.unit_stderr.max()) for row in comparison.rows if not row.evaluation.exact]
    if errors and np.isfinite(errors).all():
        caption += f" Simulated values have standard errors of up to {number(max(errors), 2)}."
    tables = []
    if 2 <= problem.num_types <= MOST_TYPES:
        cells = [[row.policy, *map(fixed, values_by_type(row.evaluation, problem))] for row in comparison.rows]
        tables.append(table("Mean value of an arm, by type", ["policy", *type_names(problem)], cells))
    if problem.over == "groups" and len(problem.group_names) <= MOST_TYPES:
        cells = [[row.policy, *map(fixed, row.evaluation.groups.values())] for row in comparison.rows]
        tables.append(table("Value of a group, the mean of its arms", ["policy", *problem.group_names], cells))
    return Section(title, figures=[Figure(plots.spread_plot(comparison).svg(), caption)], tables=tables)


# -- sentences -------------------------------------------------------------------------------------------------------


def _lead(comparison: Comparison, problem: Problem) -> list[str]:
    rows = comparison.rows
    if not rows:
        return [f"No policy was compared on this problem of {counted(problem.num_arms, 'arm')}."]
    policies = f"{capitalised(spelled(len(rows)))} {'policy was' if len(rows) == 1 else 'policies were'} compared on"
    arms = "one arm that uses" if problem.num_arms == 1 else f"{spelled(problem.num_arms)} arms that share"
    resources = f"{spelled(problem.num_resources)} resource{'s' if problem.num_resources > 1 else ''}"
    welfare = [f"{policies} {arms} {resources}."]
    if len(rows) > 1:
        in_short = getattr(comparison.welfare, "in_short", None)
        meaning = f", which {in_short(member(problem))}" if in_short is not None and problem.num_arms > 1 else ""
        welfare.append(f"They are ranked by the welfare “{shortened(comparison.welfare.name, 40)}”{meaning}.")
    paragraphs = [" ".join([*welfare, _best(comparison), *_rivals(rows)])]
    return paragraphs if problem.num_arms == 1 else [*paragraphs, " ".join(_fairness(rows, problem))]


def _best(comparison: Comparison) -> str:
    best, bound = comparison.rows[0], comparison.upper_bound
    found = best.evaluation
    sentence = f"The best is {best.policy}, with a welfare of {number(found.welfare)}"
    if bound is None:
        return f"{sentence}."
    optimum = bound_title(comparison) == "optimum"
    # Exact figures are as close as solvers get; simulated ones must be at the bound.
    if bound - found.welfare <= max(SAME * abs(bound), 1e-6 * abs(bound) if found.exact else 0.0):
        certain = "" if found.exact else ", within the errors of the simulation"
        return f"{sentence}, which is {'the optimum' if optimum else 'as much as any policy can have'}{certain}."
    name = f"the optimum of {number(bound)}" if optimum else f"an upper bound of {number(bound)}"
    gap = (bound - found.welfare) / abs(bound) if bound else math.nan
    below = percent(gap, 2 if gap >= 5e-5 else 4) if bound > 0 else number(bound - found.welfare)
    return f"{sentence}, {below} below {name}."


def _rivals(rows: Sequence[Row]) -> list[str]:
    best, equal, close = rows[0].evaluation, [], []
    for row in rows[1:]:
        difference, found = best.welfare - row.evaluation.welfare, row.evaluation
        chance = CONFIDENCE * math.hypot(best.welfare_stderr, found.welfare_stderr)
        cut = (best.truncation_bound or 0.0) + (found.truncation_bound or 0.0)
        if difference <= SAME * max(1.0, abs(best.welfare)) and found.welfare_stderr == best.welfare_stderr:
            equal.append(row.policy)
        elif difference <= chance + cut:
            close.append(row.policy)
    groups = {"Exactly as good": equal, "Within the error of the simulation": close}
    return [f"{title}: {listed(names)}." for title, names in groups.items() if names]


def _fairness(rows: Sequence[Row], problem: Problem) -> list[str]:
    """Return sentences on the worst-off under the best policy, and on the most unequal and the most equal policy."""
    best, found = rows[0].policy, rows[0].evaluation
    sentences = [f"Under {best} every arm has the same value."]
    if not is_level(found):
        values = f"with {number(found.worst)} against {number(found.mean)} on average"
        sentences = [f"Worst off under {best} {worst_off_unit(found, problem)}, {values}."]
    ordered = by_inequality(rows)
    if len(rows) == 1 or not ordered:
        return sentences
    if ordered[-1].evaluation.gini_coefficient < 5e-5:
        return [*sentences, "No policy treats the arms unequally."]
    for title, row in (("most unequal", ordered[-1]), ("most equal", ordered[0])):
        gini, worst = fixed(row.evaluation.gini_coefficient, 3), number(row.evaluation.worst)
        figures = f"Gini coefficient {gini}; worst-off {member(problem)} {worst}"
        sentences.append(f"The {title} policy is {row.policy} ({figures}).")
    return sentences


def worst_off_unit(found: Evaluation, problem: Problem) -> str:
    """Return `is arm 3`, `are the 4 arms of type 2` or `is the group north`."""
    if found.groups:
        return f"is the group {min(found.groups, key=found.groups.__getitem__)}"
    unit = int(found.unit_values.argmin())
    if not found.by_type:
        name = own_names(problem)[int(problem.type_of_arm[unit])]
        return f"is arm {unit}" + (f" ({name})" if name else "")
    name, count = type_names(problem)[unit], int(found.unit_counts[unit])
    return f"is the one arm of {name}" if count == 1 else f"are the {count:,} arms of {name}"


def _glossary(comparison: Comparison, problem: Problem) -> list[tuple[str, str]]:
    who, found = member(problem), [row.evaluation for row in comparison.rows]
    meaning = welfare_meaning(comparison.welfare, who)
    entries = [
        ("Policy", "A rule that decides at every step which arms are served, and how."),
        (f"Welfare ({shortened(comparison.welfare.name, 60)})", f"One number for the values of all {who}s. {meaning}"),
    ]
    if comparison.upper_bound is not None:
        is_optimum = comparison.bound_name == "optimum"
        how = "computed exactly" if is_optimum else f"by {comparison.bound_name or 'a relaxation'}"
        entries.append((capitalised(bound_title(comparison)), f"Upper bound of the welfare of any policy; {how}."))
    entries += [
        (f"Mean and worst {who}", f"The average value of the {who}s, and the smallest."),
        ("Gini coefficient", "Inequality of the values: 0 if all are equal, near 1 if one of many has everything."),
        ("Budget used", f"The share of the budget that was used{weights_of_time(problem)}."),
    ]
    if any(each.exact for each in found):
        entries.append(("Exact", "Computed by solving equations, without simulation."))
    if not all(each.exact for each in found):
        error = "Standard error of a simulated welfare. All policies were simulated with the same random numbers."
        entries += [("±", error), *truncation_entries(found)]
    return [*entries, ("Time", "Time of the evaluation, not of the policy in use.")]


def truncation_entries(found: Sequence[Evaluation]) -> list[tuple[str, str]]:
    """Return the effect of the horizon of simulations, if there is one."""
    bounds = [each.truncation_bound for each in found]
    most = max(bound or 0.0 for bound in bounds)
    if None in bounds and found[0].problem.criterion.is_average:
        text = "The first steps of an episode do not count; what is left of the start is in the errors."
        return [("Long run", text)]
    text = f"The end of an episode changes no value by more than {number(most, 2)}."
    if None in bounds:
        text = "An episode ends after a fixed number of steps; the rest cannot be bounded for a simulator."
    return [("Truncation", text)] if most or None in bounds else []
