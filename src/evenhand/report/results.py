"""Summaries of solutions, evaluations, plans, scenarios and trained policies.

Nothing is computed here: resource prices and shares of time served are shown only if they were computed before.
"""

from collections.abc import Mapping

import numpy as np

from evenhand.display import counted
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.long_run import Mixing
from evenhand.learning.training import Training, TrainingRuns
from evenhand.model.composite import redraw_period
from evenhand.model.labels import arm_names, own_names
from evenhand.model.objective import num_members
from evenhand.model.parquet import StoredArms
from evenhand.model.simulator import Problem
from evenhand.model.welfare import weight_of_worst
from evenhand.planning.check import Check, TypeFacts
from evenhand.planning.check import listed as shown_labels
from evenhand.planning.plan import Decisions, Plan, plan_of
from evenhand.planning.plan_summary import (
    SLOPE_OF_BOUND,
    drawn_words,
    often_each,
    parts_of,
    varies_by_step,
    worth_of_more,
)
from evenhand.planning.solution import Solution
from evenhand.policies.index import TypeIndices
from evenhand.report.comparison import floor_notes, promise_notes
from evenhand.report.format import amount, duration, fixed, number, percent, printable
from evenhand.report.models import setting
from evenhand.report.summary import MOST_ROWS, Summary, Table, summarise, summary_of, table
from evenhand.solvers.information_relaxation import InformationBound
from evenhand.typing import Floats
from evenhand.uncertainty import CVaRResult, ScenarioPlan, ValueOfInformation

MOST_PARTS, MOST_COMMON = 6, 3
"""Parts of a mixture that are described, and common first states of all parts."""

MOST_DECISIONS, MOST_TYPES = 200, 50
"""Arms whose decision is listed, and types in tables of a model."""

MOST_STEPS = 7
"""Steps of a finite horizon whose indices are listed; of more the first two, the middle and the last three."""

LARGE_GAP = 0.01
"""Gap from which on a summary warns that the time limit ended the search."""


# -- values of types, arms and groups --------------------------------------------------------------------------------


def units_table(problem: Problem, by_type: bool, columns: Mapping[str, Floats | None]) -> Table:
    """Return the figures of the first types or arms; columns that are None are omitted.

    Args:
        problem: problem whose types or arms they are.
        by_type: whether the figures are per type rather than per arm.
        columns: (unit,) figures by their heads; `served` is a share.
    """
    given = {name: values for name, values in columns.items() if values is not None}
    kind, names = ("type", own_names(problem)) if by_type else ("arm", arm_names(problem))
    rows = []
    for unit, name in enumerate(names[:MOST_ROWS]):
        cells = [percent(v[unit]) if head == "served" else fixed(float(v[unit])) for head, v in given.items()]
        rows.append([f"{unit} {name}".strip(), str(problem.type_counts[unit]) if by_type else "1", *cells])
    return table(f"values by {kind}", [kind, "arms", *given], rows, len(names) - MOST_ROWS)


def groups_table(groups: Mapping[str, float], errors: Floats | None) -> Table:
    """Return the values of the first groups, with standard errors if there are any."""
    rows = [[name, fixed(value)] for name, value in list(groups.items())[:MOST_ROWS]]
    for row, error in zip(rows, [] if errors is None else errors.tolist(), strict=False):
        row.append(fixed(error))
    return table("values by group", ["group", "value", *["±"] * (errors is not None)], rows, len(groups) - MOST_ROWS)


def _realised(level: float | None, error: float | None, over: str) -> str:
    """Return the inequality within an episode, as the continuation of a sentence."""
    if level is None:
        return ""
    known = "" if error is None or fixed(error) == fixed(None) else f" ± {error:.1g}"
    return f"; {fixed(level)}{known} of what {over} really get in an episode"


# -- solutions -------------------------------------------------------------------------------------------------------


@summary_of.register
def _(solution: Solution) -> Summary:
    problem, computed = solution.problem, vars(solution)
    low, high = solution.welfare_interval
    error = f"  (simulated; 95 % interval {fixed(low)} to {fixed(high)})" if solution.welfare_stderr else ""
    facts = [
        ("welfare", fixed(solution.welfare, 6) + error),
        ("upper bound", fixed(solution.upper_bound, 6)),
        ("gap", f"{solution.gap:.2g}"),
        *_weight_facts(solution),
        *_service_facts(solution),
        *_mixture_facts(solution),
        *_promise_facts(solution),
        *_price_facts(solution, computed.get("prices")),
        ("method", f"{solution.method}: {solution.reason}"),
        ("time", " + ".join(f"{duration(value)} {stage}" for stage, value in solution.seconds.items())),
    ]
    tables = [groups_table(solution.groups, solution.group_stderr)] if solution.groups else []
    columns = {"value": solution.unit_values, "±": solution.unit_stderr, "served": computed.get("unit_served")}
    tables.append(units_table(problem, solution.by_type, columns))
    notes = []
    if solution.stopped and solution.gap > LARGE_GAP:
        better = f"the best plan may be up to {percent(solution.gap)} better than this one"
        notes.append(f"warning: the time limit ended the search early; {better}. More seconds may find a better one")
    title = f"Solution, welfare {solution.objective.welfare.name}{setting(problem)}"
    return Summary(title, f"for {counted(problem.num_arms, 'arm')}", facts, tables, notes=notes)


def _weight_facts(solution: Solution) -> list[tuple[str, str]]:
    """Return the weight of the worst-off tenth; nothing if every plan has the same."""
    problem, welfare = solution.problem, solution.objective.welfare
    members = num_members(problem)
    worst, one = (weight_of_worst(welfare, part, members) for part in (0.1, 0.0))
    alike = problem.is_symmetric and problem.over == "arms"
    if worst is None or one is None or solution.objective.structure.is_mean or one[1] == 1 or alike:
        return []
    few, share = worst
    who = "groups" if problem.over == "groups" else "arms"
    have = f"{few} of {members} {who} {'has' if few == 1 else 'have'}"
    return [("weights", f"the worst-off {have} {percent(share)} of the weight")]


def _service_facts(solution: Solution) -> list[tuple[str, str]]:
    """Return the first cells in the order of service."""
    plan = plan_of(solution)
    parts, common = parts_of(plan)
    if not plan.is_mixture:
        when = "; at the first step" if varies_by_step(plan) and parts[0].order.ranked else ""
        return [("serves first" if parts[0].order.ranked else "serves most", parts[0].words + when)]
    facts = [("plan", f"one of these, {drawn_words(plan)}")]
    if common:
        more = f" and {len(common) - MOST_COMMON} more" if len(common) > MOST_COMMON else ""
        facts.append(("", f"all of them serve first {', '.join(common[:MOST_COMMON])}{more}; then"))
    shown, rest = parts[:MOST_PARTS], parts[MOST_PARTS:]
    others = [sum(one.part.share for one in rest)] if rest else []
    what = "starts" if redraw_period(plan.policy) is None else "times"
    texts = [*(part.words for part in shown), f"{len(rest)} others"]
    often = often_each([*(one.part.share for one in shown), *others], what)
    return facts + [("", f"{times}: {text}") for times, text in zip(often, texts, strict=False)]


def _mixture_facts(solution: Solution) -> list[tuple[str, str]]:
    """Return selection bias and inequality of a plan chosen by simulation."""
    if not solution.parts:
        return []
    facts = []
    if solution.welfare_without_redraw is not None:
        facts.append(("if drawn once", f"welfare {fixed(solution.welfare_without_redraw, 6)} with a single draw"))
    if solution.selection_bias is not None and solution.welfare_stderr > 0:
        bias = f"{solution.selection_bias:+.2g} of welfare on the episodes of the choice beside fresh ones"
        facts.append(("selection bias", bias))
    realised = _realised(solution.realised_gini, solution.realised_gini_stderr, solution.problem.over)
    facts.append(("inequality", f"Gini coefficient {fixed(solution.gini_coefficient)} of expected values{realised}"))
    return facts


def _promise_facts(solution: Solution) -> list[tuple[str, str]]:
    """Return the promised waits, how they are kept, and their price."""
    if (found := solution.promise) is None:
        return []
    held = f"always, by the {found.by}"
    if not found.sure:
        held = (
            f"by the {found.by}, while at most {found.most_at_once} of {found.arms} arms are in such states at once; "
        )
        late = (
            f"{100 * found.broken:.2g} ± {100 * found.broken_stderr:.1g} % of due services" if found.broken else "none"
        )
        held += f"{late} came too late in simulation. Waits of {counted(found.sure_wait, 'step')} always hold"
    error = f" ± {fixed(found.cost_stderr)}" if found.cost_stderr else ""
    price = f"{fixed(found.cost)}{error} of welfare; without promises it is {fixed(solution.welfare + found.cost)}"
    words = [("promised" if number == 0 else "", text) for number, text in enumerate(found.promises[:MOST_PARTS])]
    if found.upper_bound < solution.upper_bound:
        price += f"; no plan that keeps them has more than {fixed(found.upper_bound)}"
    return [*words, ("held", held), ("promises cost", price)]


def _price_facts(solution: Solution, prices: dict[str, float] | None) -> list[tuple[str, str]]:
    """Return the largest increase of the bound per unit of each resource, since it is concave in the budget."""
    if not prices:
        return []
    if solution.problem.resources:
        rises = "; ".join(worth_of_more(solution.problem, prices, solution.welfare))
    else:
        rises = f"the bound rises by at most {', '.join(f'{fixed(p)} for {name}' for name, p in prices.items())}"
    whose = ", to the worst-off" if solution.objective.structure.lexicographic else ""
    return [("one unit more", f"{rises} (a step{whose}; {SLOPE_OF_BOUND})")]


# -- evaluations and comparisons -------------------------------------------------------------------------------------


@summary_of.register
def _(found: Evaluation) -> Summary:
    low, high = found.welfare_interval
    sure = "exact" if found.exact else f"95 % interval {fixed(low)} to {fixed(high)}"
    plug_in = "not followed arm by arm"
    if found.plug_in_welfare is not None:
        plug_in = f"{fixed(found.plug_in_welfare)} (the paper's figure; biased downwards where arms are equal)"
    realised = _realised(found.realised_gini_coefficient, found.realised_gini_stderr, found.over)
    facts = [
        ("welfare", f"{fixed(found.welfare)}  ({sure})"),
        *([("plug-in welfare", plug_in)] if not (found.exact or found.groups) else []),
        ("mean", fixed(found.mean) + ("" if found.exact else f" ± {fixed(found.mean_stderr)}")),
        ("worst group" if found.groups else "worst arm", fixed(found.worst)),
        ("Gini coefficient", fixed(found.gini_coefficient) + (realised and f" of expected values{realised}")),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        *_truncation_facts(found),
        ("time", duration(found.seconds)),
        *(("floor missed", line) for line in floor_notes(found)),
        *(("promises broken", line) for line in promise_notes(found)),
    ]
    errors = None if found.exact else found.unit_stderr
    tables = [groups_table(found.groups, None if found.exact else found.member_stderr)] if found.groups else []
    if not isinstance(found.problem, StoredArms):  # of a large opened model every row is a type
        served = found.unit_served if found.problem.has_floors else None
        columns = {"value": found.unit_values, "±": errors, "served": served}
        tables.append(units_table(found.problem, found.by_type, columns))
    played = "computed exactly"
    if found.num_episodes is not None and found.horizon is not None:
        played = f"{counted(found.num_episodes, 'episode')} of {counted(found.horizon, 'step')}"
    title = f"Evaluation, welfare {found.objective.welfare.name}{setting(found.problem)}"
    return Summary(title, played, facts, tables)


def _truncation_facts(found: Evaluation) -> list[tuple[str, str]]:
    """Return the effect of the horizon on simulated values."""
    if found.exact or found.truncation_bound == 0:
        return []
    if found.truncation_bound is None:
        steps = f"{found.horizon} steps, the first of which do not count; what is left of the start is in ±"
        return [("long run", steps), *([] if found.mixing is None else _mixing_facts(found.mixing))]
    facts = [("cut off at horizon", f"no value changes by more than {found.truncation_bound:.2g}")]
    if found.truncation_bound > found.welfare_stderr:
        facts.append(("warning", "the horizon is too short for these errors; use a longer one"))
    return facts


def _mixing_facts(found: Mixing) -> list[tuple[str, str]]:
    """Return the batches of a simulated average, and how well they mix."""
    facts = [("batches", f"{found.num_batches:,} independent ones of {counted(found.batch_length, 'step')}")]
    times, sizes = found.autocorrelation_time, found.effective_sample_size
    if times is not None and sizes is not None and np.isfinite(times).any():
        worth = f"as good as at least {number(float(np.nanmin(sizes)))} independent steps of an arm"
        facts.append(("autocorrelation time", f"at most {number(float(np.nanmax(times)))} steps; {worth}"))
    if found.forgetting_steps is not None:
        facts.append(("forgets its start", f"after {number(found.forgetting_steps)} steps, an arm by itself"))
    pairs = {"halves of batches": found.halves, "dispersed starts": found.starts}
    differ = [f"{name} by {number(value, 2)}" for name, value in pairs.items() if value is not None]
    return [*facts, *([("agreement", f"{', '.join(differ)} standard errors at most")] if differ else [])]


@summary_of.register
def _(plan: ScenarioPlan) -> Summary:
    found = summarise(plan.solution)
    parts = [summarise(one) for one in (plan.robust, plan.scenarios, plan.information) if one is not None]
    facts = [*found.facts, *(fact for part in parts for fact in part.facts)]
    tables = [*found.tables, *(table for part in parts for table in part.tables)]
    notes = [*found.notes, *(note for part in parts for note in part.notes)]
    return Summary(found.title, found.aside, facts, tables, found.folded, notes=notes)


@summary_of.register
def _(found: ValueOfInformation) -> Summary:
    shown = found.significant[:MOST_ROWS]
    rows = [[row.type, row.state, row.action, fixed(row.value), fixed(row.stderr)] for row in shown]
    heads = ["type", "state", "action", "value", "±"]
    facts = [("perfect information adds", fixed(found.total)), ("to a mean welfare of", fixed(found.welfare))]
    tables = [table("", heads, rows, text=heads[:3])] if rows else []
    return Summary("Value of information", facts=facts, tables=tables, notes=[found.words])


@summary_of.register
def _(found: CVaRResult) -> Summary:
    facts = []
    for name, trade in (("draws chosen on", found.seen), ("draws held out", found.held_out)):
        if trade is not None:
            worst = f"worst {percent(found.share)}: {fixed(trade.plain_tail)} -> {fixed(trade.robust_tail)}"
            facts.append((name, f"{worst}; mean: {fixed(trade.plain_mean)} -> {fixed(trade.robust_mean)}"))
    if found.bound is not None:
        facts.append(("at most", f"{fixed(found.bound)} in the worst {percent(found.share)}, by the draws' own bounds"))
    facts.append(("in words", found.words))
    return Summary(f"Robust plan for the worst {percent(found.share)} of {found.num_draws} draws", facts=facts)


@summary_of.register
def _(found: InformationBound) -> Summary:
    error = f"  (estimated; standard error {found.stderr:.2g})"
    facts = [
        ("upper bound", fixed(found.upper_bound, 6) + error),
        ("with 95 % confidence", f"at most {fixed(found.confidence_bound, 6)}"),
        ("proved bound", fixed(found.relaxation_bound, 6)),
    ]
    played = f"{counted(found.num_paths, 'path')} of {counted(found.num_steps, 'step')}"
    return Summary(f"Estimated bound by information relaxation, welfare {found.welfare}", played, facts)


# -- models, indices, plans -----------------------------------------------------------------------------------------


@summary_of.register
def _(found: Check) -> Summary:
    heads = ["type", "arms", "states", "starts in", "actions", "served by", "service adds at most"]
    heads += ["group"] * bool(found.groups) + ["floor"] * found.problem.has_floors
    rows = [[_type_facts(t, one)[head] for head in heads] for t, one in enumerate(found.types[:MOST_TYPES])]
    words = {"states", "starts in", "actions", "served by", "group"}
    types = table("types", heads, rows, len(found.types) - MOST_TYPES, words)
    return Summary(found.summary, facts=found.facts, tables=[types], notes=[str(note) for note in found.notes])


def _type_facts(t: int, one: TypeFacts) -> dict[str, str]:
    starts_anywhere = len(one.starts_in) == len(one.states) > 1
    return {
        "type": f"{t} {one.name}".strip(),
        "arms": str(one.count),
        "states": shown_labels(one.states),
        "starts in": "any state" if starts_anywhere else shown_labels(one.starts_in),
        "actions": shown_labels(one.actions),
        "served by": shown_labels(one.served_by) or "nothing",
        "service adds at most": fixed(one.service_worth),
        "group": one.group,
        "floor": percent(one.floor),
    }


@summary_of.register
def _(found: TypeIndices) -> Summary:
    problem, criterion = found.problem, found.problem.criterion
    num_steps = None if criterion.is_stationary else criterion.num_layers
    rows: list[list[str]] = []
    for t in range(min(problem.num_types, MOST_TYPES)):
        verdict = "yes" if found.indexable[t] else "undefined" if t in found.result.refused else "no"
        first = [f"{t} {found.names[t]}".strip(), str(problem.type_counts[t]), verdict]
        if num_steps is None:
            rows.append([*first, _indices_text(found, t, found.indices[t])])
            continue
        for step in _listed_steps(num_steps) if found.indexable[t] else [0]:
            rows.append([*first, str(step), str(num_steps - step), _indices_text(found, t, found.indices[t, step])])
            first = ["", "", ""]
    heads = ["type", "arms", "indexable", *(["step", "steps to go"] if num_steps is not None else []), "index by state"]
    words = ["indexable", "index by state"]
    without = [t for t in range(problem.num_types) if not found.indexable[t]][:MOST_TYPES]
    name = problem.criterion.name
    title = "Whittle indices" if name == "discounted" else f"Whittle indices, {name}"
    tables = [table("", heads, rows, problem.num_types - MOST_TYPES, words)]
    notes = [f"type {t}: {found.result.explain(t)}" for t in without]
    return Summary(title, "the charge per active step at which idling is as good", tables=tables, notes=notes)


def _listed_steps(num_steps: int) -> list[int]:
    last = [num_steps - 3, num_steps - 2, num_steps - 1]
    return list(range(num_steps)) if num_steps <= MOST_STEPS else [0, 1, num_steps // 2, *last]


def _indices_text(found: TypeIndices, t: int, indices: Floats) -> str:
    types = found.problem.types
    states = types.labels[t][1] if types.labels else ()
    size = int(types.num_states[t])
    return ", ".join(f"{states[s] if states else s}: {fixed(float(indices[s]))}" for s in range(size))


@summary_of.register
def _(plan: Plan) -> Summary:
    title, _, rest = plan.show().partition("\n")
    return Summary(title, text=rest.strip("\n"))


@summary_of.register
def _(found: Decisions) -> Summary:
    used = ", ".join(f"{name} {amount(v)} of {amount(found.budget[name])}" for name, v in found.used.items())
    heads = ["arm", "type", "state", "action", "reason"]
    rows = [[printable(getattr(row, head)) for head in heads] for row in found.by_priority[:MOST_DECISIONS]]
    decisions = table("", heads, rows, len(found.rows) - MOST_DECISIONS, heads)
    aside = "" if found.step is None else f"step {found.step}"
    if found.part is not None:
        aside += f"{'; ' if aside else ''}part {found.part.number} of the mixture, {found.part.name}"
    notes = [f"used: {used}", *([f"note: {found.note}"] if found.note else [])]
    return Summary(f"Decisions for {counted(len(found.rows), 'arm')}", aside, tables=[decisions], notes=notes)


# -- training --------------------------------------------------------------------------------------------------------


@summary_of.register
def _(training: Training) -> Summary:
    how = "exact" if training.exact else "simulated on a held-out stream"
    counts = training.settings.get("architecture", "counts") in ("counts", "types")  # joint networks favour some arms
    best = f"{fixed(training.score)}  ({how}; the best of {len(training.curve)} evaluations)"
    facts = [
        ("welfare" if counts else "mean", best),
        ("last", fixed(training.curve[-1][1])),
        ("steps", f"{training.steps} in {duration(training.seconds)}"),
        ("algorithm", f"{training.settings.get('algorithm')}, seed {training.settings.get('seed')}"),
        ("policy", repr(training.policy)),
    ]
    return Summary("Trained policy", f"for {counted(training.problem.num_arms, 'arm')}", facts)


@summary_of.register
def _(found: TrainingRuns) -> Summary:
    rows = []
    for place, row in enumerate(found.rows):
        name = f"{row.seed} *" if place == found.place_of_best else f"{row.seed}"
        error = "exact" if found.best.exact else fixed(row.held_out_stderr)
        rows.append([name, fixed(row.held_out), error, fixed(row.score), duration(row.seconds)])
    heads = ["seed", "held out", "±", "best evaluation", "time"]
    caption = "all seeds; * is the best in a held-out evaluation"
    best = summarise(found.best)
    return Summary(best.title, best.aside, best.facts, tables=[table(caption, heads, rows)])
