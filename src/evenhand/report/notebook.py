"""What a notebook shows of a problem, an arm, a policy or a result: a few facts and a small table, as HTML.

`html_of` looks up how a class is told (`told`), and the template `cell.html` makes HTML of it, with every text
escaped. Nothing is computed here, and no table is longer than a screen.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from evenhand.display import Shown, counted
from evenhand.evaluation.draws import UnderDraws, member_names, spread_of
from evenhand.evaluation.evaluate import Evaluation
from evenhand.fitting.clusters import Clusters
from evenhand.fitting.diagnostics import Diagnostics
from evenhand.fitting.diagnostics.phrases import probability_texts
from evenhand.fitting.fitted import Fitted
from evenhand.learning.seeds import Trainings
from evenhand.learning.training import Training
from evenhand.model.arm import Arm
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import capabilities
from evenhand.model.simulator import Problem, Simulator
from evenhand.planning.check import Check, listed, starts_in_words
from evenhand.planning.compare import Comparison, Row
from evenhand.planning.fairness import Fairness
from evenhand.planning.knowing import WorthKnowing
from evenhand.planning.plan import Decisions, Plan
from evenhand.planning.replay import Replay
from evenhand.planning.robust import Robust
from evenhand.planning.solution import Solution
from evenhand.policies.index import TypeIndices
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.policies.priority import PriorityPolicy
from evenhand.report import fairness
from evenhand.report.rendering import render
from evenhand.report.tables import Cell, Table, TableRow, results_table
from evenhand.report.words import (
    UNKNOWN,
    amount,
    bound_title,
    capitalised,
    decimals_of,
    duration,
    member,
    number,
    number_text,
    percent,
    shortened,
    type_names,
)
from evenhand.typing import Array, Floats

MOST_ROWS = 12
"""Rows of a table; the rest is counted."""

MOST_DECISIONS = 100
"""Arms whose actions are shown: today's table is read from end to end."""

MOST_STATES, MOST_ACTIONS = 12, 6
"""States and actions up to which an arm is shown in numbers."""


@dataclass(frozen=True)
class Curve:
    """A line without axes."""

    points: str
    """Of an SVG polyline, 320 wide and 64 high."""

    label: str
    """What it shows, in words."""


@dataclass(frozen=True)
class Told:
    """What is said of a thing."""

    title: str
    aside: str = ""
    """A few words after the title."""
    facts: Sequence[tuple[str, str]] = ()
    """Terms and what they are here."""
    curve: Curve | None = None
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()
    """Tables that are opened by a click."""
    text: str = ""
    """Set as it is, in letters of one width."""
    notes: Sequence[str] = ()


# What is told of anything


def html_of(thing: object) -> str:
    """The HTML that a notebook shows of a thing.

    Args:
        thing: a problem, an arm, a policy or a result.
    """
    return render("cell.html", it=told(thing))


@singledispatch
def told(thing: object) -> Told:
    """What is said of a thing; a class without words of its own is a policy."""
    return _policy(thing)


def shortened_table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    more: int = 0,
    words: Collection[str] = (),
) -> Table:
    """A table of texts.

    Args:
        caption: above it; may be empty.
        heads: of all columns.
        rows: a name and the other cells each.
        more: rows that are left out, counted in a last one.
        words: the heads of columns of words, which are set from the left.
    """
    # The first column is the name of the row.
    are_words = [head in words for head in heads]
    lines = [
        # Words from the left, numbers from the right.
        TableRow(name, tuple(Cell(text, is_text=says) for text, says in zip(texts, are_words[1:], strict=True)))
        for name, texts in rows
    ]
    if more > 0:
        lines.append(TableRow(f"… and {more:,} more", tuple(Cell("") for _ in heads[1:])))
    return Table(
        caption, tuple(Cell(head, is_text=says) for head, says in zip(heads, are_words, strict=True)), tuple(lines)
    )


# Problems


@told.register
def _(problem: CoupledMDP) -> Told:
    kinds = "all identical" if problem.is_symmetric else f"of {counted(problem.num_types, 'type')}"
    facts = [
        (f"budget: {name}", f"{amount(b)} a step")
        for name, b in zip(problem.resource_names, problem.budget, strict=True)
    ]
    # One resource without a name needs no name in the fact.
    if problem.num_resources == 1 and not problem.resources:
        facts = [("budget", f"{amount(float(problem.budget[0]))} a step")]
    facts.append(("values", _criterion_words(problem)))
    if problem.over == "groups":
        facts.append(("welfare over", counted(len(problem.group_names), "group")))
    # Identical arms: what one of them does is worth a table, folded.
    alone = problem.is_symmetric
    folded = [_choices_table(problem.types[0])] if alone and _is_small(problem.types[0]) else []
    return Told(counted(problem.num_arms, "arm"), kinds, facts, tables=[_types_table(problem)], folded=folded)


def _criterion_words(problem: Problem) -> str:
    name = problem.criterion.name
    return f"discounted by {amount(problem.discount)}" if name == "discounted" else name


def _types_table(problem: Problem) -> Table:
    types, names = problem.types, type_names(problem)
    heads = ["type", "arms", "states", "actions"]
    heads += ["group"] * (problem.over == "groups") + ["floor"] * problem.has_floors
    rows = []
    for kind in range(min(problem.num_types, MOST_ROWS)):
        cells = [f"{problem.type_counts[kind]:,}", str(types.num_states[kind]), str(types.num_actions[kind])]
        if problem.over == "groups":
            cells.append(problem.group_names[problem.group_of_type[kind]])
        if problem.has_floors:
            cells.append(percent(float(problem.type_floors[kind])))
        rows.append((shortened(names[kind], 40), cells))
    return shortened_table("", heads, rows, problem.num_types - MOST_ROWS, ["group"])


def _is_small(arm: Arm) -> bool:
    return arm.num_states <= MOST_STATES and arm.num_actions <= MOST_ACTIONS


@told.register
def _(found: Check) -> Told:
    heads = ("type", "arms", "states", "starts in", "served by", "service adds at most")
    rows = [
        (
            one.name or f"arms[{one.block}]",
            (
                f"{one.count:,}",
                listed(one.states),
                starts_in_words(one),
                listed(one.served_by) or "nothing",
                UNKNOWN if one.service_worth is None else number(one.service_worth),
            ),
        )
        for one in found.types[:MOST_ROWS]
    ]
    words = ("type", "states", "starts in", "served by")
    table = shortened_table("", heads, rows, len(found.types) - MOST_ROWS, words)
    return Told(found.summary, facts=found.facts, tables=[table], notes=[str(note) for note in found.notes])


@told.register
def _(fitted: Fitted) -> Told:
    log, counts = fitted.log, fitted.moves.departures
    lower, upper = fitted.interval
    # Unseen rows are not a number; they are not shown, but must not break what is.
    mean = np.nan_to_num(fitted.posterior.mean)
    # Rows that were seen; the others are counted.
    seen = np.argwhere(~fitted.unseen).tolist()
    rows = []
    for t, s, a in seen[:MOST_ROWS]:
        # Rounded, so that of equal next states the first is told.
        most = int(np.argmax(np.round(mean[t, s, a], 12)))
        middle, low, high = probability_texts(*(array[t, s, a, most] for array in (mean, lower, upper)))
        cells = log.states[s], log.actions[a], f"{counts[t, s, a]:,}", log.states[most], middle
        rows.append((log.types[t], (*cells, f"{low} to {high}")))
    heads = ("type", "state", "action", "moves", "most often to", "probability", "95 %")
    table = shortened_table("", heads, rows, len(seen) - len(rows), ("state", "action", "most often to", "95 %"))
    facts = [
        ("records", f"{counted(len(log.arm), 'row')} of {counted(log.num_arms, 'arm')}"),
        ("a step", log.step_in_words),
        ("log-likelihood", number(fitted.log_likelihood, 2)),
        ("never seen", counted(int(fitted.unseen.sum()), "pair")),
    ]
    sizes = (len(log.types), "type"), (len(log.states), "state"), (len(log.actions), "action")
    aside = ", ".join(counted(*size) for size in sizes)
    return Told("A model of records", aside, facts, tables=[table], notes=[capitalised(note) for note in fitted.notes])


@told.register
def _(found: Clusters) -> Told:
    sizes = np.bincount(found.type_of, minlength=found.number)
    facts = [(name, counted(int(size), "arm")) for name, size in zip(found.names, sizes, strict=True)]
    facts.append(("mixture", found.words))
    return Told("Types of arms that move alike", facts=facts, notes=list(found.notes))


@told.register
def _(arm: Arm) -> Told:
    sizes = f"{counted(arm.num_states, 'state')}, {counted(arm.num_actions, 'action')}"
    resources = counted(arm.usage.shape[2], "resource")
    title = arm.name or "An arm"
    # Larger arms are better looked at as arrays.
    if not _is_small(arm):
        return Told(title, f"{sizes}, {resources}", notes=["Its arrays: transitions, rewards, usage, initial."])
    moves = [_moves_table(arm, action) for action in range(arm.num_actions)]
    return Told(title, f"{sizes}, {resources}", tables=[_choices_table(arm)], folded=moves)


def _labels(given: Sequence[str], size: int, what: str) -> list[str]:
    return [shortened(label, 24) for label in given] if given else [f"{what} {number}" for number in range(size)]


def _choices_table(arm: Arm) -> Table:
    """What each action earns and uses in each state."""
    actions = _labels(arm.actions, arm.num_actions, "action")
    # The same decimals in all cells, so that columns can be compared.
    decimals = decimals_of(arm.rewards.reshape(-1).tolist())
    rows = []
    for state, name in enumerate(_labels(arm.states, arm.num_states, "state")):
        pairs = zip(arm.rewards[state], arm.usage[state], strict=True)
        cells = [f"{number_text(float(reward), decimals)}{_use(use)}" for reward, use in pairs]
        rows.append((name, [percent(float(arm.initial[state])), *cells]))
    return shortened_table("Rewards, and in brackets what an action uses", ["state", "at first", *actions], rows)


def _use(use: Floats) -> str:
    return f" ({', '.join(amount(float(a)) for a in use)})" if use.any() else ""


def _moves_table(arm: Arm, action: int) -> Table:
    states = _labels(arm.states, arm.num_states, "state")
    rows = [
        # Impossible moves are left empty: the others are seen at once.
        (name, [percent(float(chance)) if chance else "" for chance in arm.transitions[state, action]])
        for state, name in enumerate(states)
    ]
    name = _labels(arm.actions, arm.num_actions, "action")[action]
    return shortened_table(f"Where {name} leads", ["from", *states], rows)


@told.register
def _(simulator: Simulator) -> Told:
    facts = [
        ("budget", f"{', '.join(amount(float(b)) for b in simulator.budget)} a step"),
        ("values", _criterion_words(simulator)),
        ("an arm has", f"{counted(simulator.num_states, 'state')}, {counted(simulator.num_actions, 'action')}"),
        ("sampled by", getattr(simulator.sample, "__qualname__", type(simulator.sample).__name__)),
    ]
    return Told(counted(simulator.num_arms, "arm"), "all identical, known by samples only", facts)


# Results


@told.register
def _(solution: Solution) -> Told:
    sure = "" if solution.welfare_stderr == 0 else f" ± {number(solution.welfare_stderr, 2)} (standard error)"
    facts = [
        (f"welfare, {solution.objective.welfare.name}", f"{number(solution.welfare, 6)}{sure}"),
        ("no policy has more than", number(solution.upper_bound, 6)),
        ("gap", percent(solution.gap, 3)),
        ("values", _criterion_words(solution.problem)),
        ("method", f"{solution.method}: {solution.reason}" if solution.reason else solution.method),
        ("policy", repr(solution.policy)),
        ("time", duration(sum(solution.seconds.values()))),
    ]
    # Types or arms, then groups, then the parts of a mixture.
    tables = [_units_table(solution.problem, solution.by_type, {"value": solution.unit_values})]
    tables += [_groups_table(solution.problem, solution.groups)] if solution.groups else []
    tables += [_parts_table([(p.name, p.share) for p in solution.parts])] if solution.parts else []
    return Told("A plan", f"for {counted(solution.problem.num_arms, 'arm')}", facts, tables=tables)


def _units_table(problem: Problem, by_type: bool, figures: Mapping[str, Floats]) -> Table:
    """The first types or arms with their figures."""
    names, size = type_names(problem), len(next(iter(figures.values())))
    # Errors need fewer digits than values.
    decimals = {name: decimals_of(values.tolist(), 2 if name == "± error" else 5) for name, values in figures.items()}
    rows = []
    for unit in range(min(size, MOST_ROWS)):
        # An arm is told with the name of its type.
        kind = unit if by_type else int(problem.type_of_arm[unit])
        who = names[kind] if by_type else f"{unit} {names[kind]}"
        cells = [f"{problem.type_counts[kind]:,}"] if by_type else []
        cells += [_figure(name, float(values[unit]), decimals[name]) for name, values in figures.items()]
        rows.append((shortened(who, 40), cells))
    heads = ["type", "arms", *figures] if by_type else ["arm", *figures]
    return shortened_table("", heads, rows, size - MOST_ROWS)


def _figure(name: str, value: float, decimals: int | None) -> str:
    return percent(value) if name == "served" else number_text(value, decimals)


def _groups_table(problem: Problem, groups: Mapping[str, float]) -> Table:
    decimals = decimals_of(list(groups.values()))
    rows = [(name, [number_text(value, decimals)]) for name, value in list(groups.items())[:MOST_ROWS]]
    return shortened_table("", ["group", "value"], rows, len(groups) - MOST_ROWS)


def _parts_table(parts: Sequence[tuple[str, float]]) -> Table:
    rows = [(name, [percent(share)]) for name, share in parts[:MOST_ROWS]]
    return shortened_table("", ["part of the mixture", "drawn in"], rows, len(parts) - MOST_ROWS)


@told.register
def _(plan: Plan) -> Told:
    # The first line is the title, the rest is set as it is.
    title, _, rest = plan.show().partition("\n")
    return Told(title, text=rest.strip("\n"))


@told.register
def _(found: Decisions) -> Told:
    used = [
        (name, f"{amount(float(found.used[name]))} of {amount(float(found.budget[name]))} used") for name in found.used
    ]
    drawn = [] if found.part is None else [("drawn", f"part {found.part.number} of the mixture, {found.part.name}")]
    heads = ["arm", "type", "state", "action", "reason"]
    rows = [(row.arm, [row.type, row.state, row.action, row.reason]) for row in found.rows[:MOST_DECISIONS]]
    table = shortened_table("", heads, rows, len(found.rows) - MOST_DECISIONS, heads[1:])
    notes = [found.note] if found.note else []
    return Told(
        "What to do now", f"with {counted(len(found.rows), 'arm')}", [*used, *drawn], tables=[table], notes=notes
    )


@told.register
def _(found: UnderDraws) -> Told:
    heads = ("of", "5 %", "50 %", "95 %", "worst tenth")
    tables = []
    for row in found.rows[:MOST_ROWS]:
        names = ("welfare", *member_names(found.problem, row.found.by_type))
        draws = (row.welfare, *row.members.T)
        lines = [
            # Without the mean, which is the first of the figures.
            (shortened(name, 40), [number(figure, 6) for figure in list(spread_of(own).values())[1:]])
            for name, own in list(zip(names, draws, strict=True))[:MOST_ROWS]
        ]
        tables.append(shortened_table(row.policy, heads, lines, len(names) - MOST_ROWS))
    how = "weighed exactly" if all(row.exact for row in found.rows) else "played"
    return Told("Over draws of what the records allow", f"{counted(found.num_draws, 'draw')}, {how}", tables=tables)


@told.register
def _(found: WorthKnowing) -> Told:
    rows = [
        (shortened(row.type, 40), [row.state, row.action, number(row.worth, 3), number(row.stderr, 2)])
        for row in found.rows[:MOST_ROWS]
    ]
    heads = ("type", "state", "action", "worth", "± error")
    table = shortened_table("", heads, rows, len(found.rows) - MOST_ROWS, ("type", "state", "action"))
    facts = [("knowing everything adds", number(found.total, 3)), ("to a mean welfare of", number(found.welfare, 6))]
    return Told("What is worth knowing", found.words, facts, tables=[table])


@told.register
def _(found: Robust) -> Told:
    facts = []
    for name, trade in (("in draws chosen on", found.seen), ("in draws held out", found.held_out)):
        if trade is not None:
            facts.append((f"worst draws, {name}", f"{number(trade.plain_tail, 6)} → {number(trade.robust_tail, 6)}"))
            facts.append((f"mean, {name}", f"{number(trade.plain_mean, 6)} → {number(trade.robust_mean, 6)}"))
    return Told("The plan for the worst draws", found.words, facts)


@told.register
def _(found: Evaluation) -> Told:
    who = member(found.problem)
    played = "exactly computed"
    # Exact figures have no episodes.
    if found.num_episodes is not None and found.horizon is not None:
        played = f"{counted(found.num_episodes, 'episode')} of {counted(found.horizon, 'step')}"
    facts = [
        (f"welfare, {found.objective.welfare.name}", _with_error(found.welfare, found.welfare_stderr, found.exact)),
        (f"mean {who}", _with_error(found.mean, found.mean_stderr, found.exact)),
        (f"worst {who}", number(found.worst, 6)),
        ("Gini coefficient", number_text(found.gini_coefficient, 4)),
        ("budget used", _used(found)),
        ("values", _criterion_words(found.problem)),
        ("time", duration(found.seconds)),
    ]
    figures = {"value": found.unit_values}
    # Errors where there are any, beside the values.
    if not found.exact:
        figures["± error"] = found.unit_stderr
    figures["served"] = found.unit_served
    tables = [_units_table(found.problem, found.by_type, figures)]
    tables += [_groups_table(found.problem, found.groups)] if found.groups else []
    return Told("What a policy is worth", played, facts, tables=tables)


def _with_error(value: float, error: float, exact: bool) -> str:
    return number(value, 6) if exact else f"{number(value, 6)} ± {number(error, 2)} (standard error)"


def _used(found: Evaluation) -> str:
    names = found.problem.resource_names
    shares = [percent(float(share)) if np.isfinite(share) else UNKNOWN for share in found.budget_used]
    return shares[0] if len(shares) == 1 else ", ".join(f"{n} {s}" for n, s in zip(names, shares, strict=True))


@told.register
def _(row: Row) -> Told:
    # As its evaluation, under its own name.
    found = told(row.evaluation)
    return Told(row.policy, found.aside, found.facts, tables=found.tables)


@told.register
def _(comparison: Comparison) -> Told:
    title = f"{counted(len(comparison.rows), 'policy', 'policies')} on {counted(comparison.problem.num_arms, 'arm')}"
    aside = f"by {comparison.welfare.name}, best first"
    tables = []
    if comparison.rows:
        # As people are told it: nobody above the bound.
        table = results_table(comparison.as_shown(), comparison.problem)
        tables = [Table("", table.heads, table.rows)]
    # A reason for each policy that is missing, and for a missing bound.
    notes = [_missing(name, reason) for name, reason in list(comparison.left_out.items())[:MOST_ROWS]]
    if comparison.upper_bound is not None and comparison.bound_name not in ("optimum", ""):
        notes.insert(0, f"{capitalised(bound_title(comparison))}: {comparison.bound_name}; no policy can have more.")
    return Told(title, aside, tables=tables, notes=[*_ties(comparison), *notes])


def _ties(comparison: Comparison) -> list[str]:
    """Whose welfare is shown other than it was played, because no policy exceeds the bound."""
    top = bound_title(comparison)
    return [
        f"Tie: {row.policy} with the {top}: it played {number(row.evaluation.welfare, 6)} ± "
        f"{number(row.evaluation.welfare_stderr, 2)}, more only by chance; the table shows the {top} in its place."
        for row in comparison.rows[:MOST_ROWS]
        if comparison.is_above_bound(row)
    ]


def _missing(name: str, reason: str) -> str:
    return f"No upper bound: {reason}." if name == "upper bound" else f"Left out: {name}: {reason}"


@told.register
def _(found: Fairness) -> Told:
    title = f"What fairness costs: {counted(len(found.rows), 'welfare')} on {found.members_words}"
    notes = [f"Left out: {name}: {reason}" for name, reason in found.left_out.items()]
    # Rows whose own plan was beaten by another's.
    taken = [row for row in found.rows if row.plan_of != row.welfare]
    notes += [f"Best for {row.welfare}: the plan for {row.plan_of}, which is better than its own." for row in taken]
    return Told(title, tables=[fairness.results_table(found), fairness.values_table(found)], notes=notes)


@told.register
def _(found: Diagnostics) -> Told:
    said = [(topic, [text]) for topic, text in found.words]
    return Told("What the records say", tables=[shortened_table("", ["", ""], said, words=[""])])


@told.register
def _(found: Replay) -> Told:
    facts = [
        ("policy", f"shares of actions by type and state, from {int(found.shares.numbers.sum()):,} decisions"),
        ("steps", f"{len(found.steps):,}, with up to {counted(int(found.present.max()), 'arm')}"),
        ("numbers served in their intervals", percent(float(found.served.inside.mean()))),
        ("rewards of a step in theirs", percent(float(found.rewards.inside.mean()))),
    ]
    heads = ["type"]
    # Three columns an action: seen, expected, and the interval.
    for action in found.actions[1:]:
        heads += [shortened(action, 24), "expected", f"interval of {percent(found.level)}"]
    rows = [(shortened(name, 40), _replayed(found, t)) for t, name in enumerate(found.types[:MOST_ROWS])]
    tables = [shortened_table("", heads, rows, len(found.types) - MOST_ROWS)]
    return Told("The records, replayed", "in the model, beside what came", facts, tables=tables)


def _replayed(found: Replay, kind: int) -> list[str]:
    totals, cells = found.totals, []
    for place in range(len(found.actions) - 1):
        low, mean, high = (float(of[kind, place]) for of in (totals.lower, totals.mean, totals.upper))
        cells += [f"{totals.seen[kind, place]:,.0f}", f"{mean:,.1f}", f"{low:,.1f} to {high:,.1f}"]
    return cells


@told.register
def _(training: Training) -> Told:
    asked, first, last = training.settings, training.curve[0][1], training.curve[-1][1]
    facts = [
        (
            "score",
            f"{number(training.score, 6)}, {'exact' if training.exact else 'estimated'}: the mean value of an arm",
        ),
        ("steps", f"{training.steps:,} in {duration(training.seconds)}"),
        ("learner", f"{asked.get('algorithm', UNKNOWN)}, seed {asked.get('seed', UNKNOWN)}"),
        ("policy", repr(training.policy)),
        (
            "looks",
            f"{len(training.curve)}, from {number(first, 5)} at first to {number(last, 5)} at last",
        ),
    ]
    curve = _curve(training.curve) if len(training.curve) > 1 else None
    return Told("A trained policy", f"for {counted(training.problem.num_arms, 'arm')}", facts, curve)


@told.register
def _(found: Trainings) -> Told:
    heads, best = ("seed", "held out", "±", "best of its looks", "time"), found.rows[found.place_of_best]
    rows = [
        (
            str(row.seed),
            (
                number(row.held_out, 6),
                "exact" if found.best.exact else number(row.held_out_stderr),
                number(row.score, 6),
                duration(row.seconds),
            ),
        )
        for row in found.rows[:MOST_ROWS]
    ]
    facts = [("best", f"seed {best.seed}: {number(best.held_out, 6)}, the mean value of an arm")]
    table = shortened_table("", heads, rows, len(found.rows) - MOST_ROWS, ("seed",))
    return Told(f"Trained with {counted(len(found.rows), 'seed')}", facts=facts, tables=[table])


def _curve(points: Sequence[tuple[int, float]]) -> Curve:
    steps, scores = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    across = (steps - steps[0]) / max(steps[-1] - steps[0], 1.0)
    # A curve that is flat is drawn in the middle.
    up = (scores - scores.min()) / np.ptp(scores) if np.ptp(scores) else np.full(len(scores), 0.5)
    places = " ".join(f"{2 + 316 * x:.1f},{60 - 56 * y:.1f}" for x, y in zip(across, up, strict=True))
    return Curve(places, f"Learning curve from {number(float(scores[0]))} to {number(float(scores[-1]))}")


@told.register
def _(found: TypeIndices) -> Told:
    # With a horizon, the first step.
    problem, table = found.problem, found.indices if found.indices.ndim == 2 else found.indices[:, 0]
    names = type_names(problem)
    labels = {states for _, states, _ in problem.types.labels}
    # Labels only where all types share them.
    shared = next(iter(labels)) if len(labels) == 1 else ()
    size = min(table.shape[1], MOST_STATES)
    heads = ["type", "arms", "indexable", *_labels(shared, table.shape[1], "state")[:size]]
    rows = [
        (
            shortened(names[kind], 40),
            [f"{problem.type_counts[kind]:,}", _verdict(found, kind), *_numbers(table[kind, :size])],
        )
        for kind in range(min(problem.num_types, MOST_ROWS))
    ]
    notes = ["The other states are in to_frame()."] if table.shape[1] > size else []
    if found.indices.ndim == 3:
        notes.append("These are the indices of the first step; to_frame() and plot() have every step.")
    aside = f"{problem.criterion.name}; the charge per active step at which idling is as good"
    shown = shortened_table("", heads, rows, problem.num_types - MOST_ROWS)
    return Told("Whittle indices", aside, tables=[shown], notes=notes)


def _verdict(found: TypeIndices, kind: int) -> str:
    if found.indexable[kind]:
        return "yes"
    return "undefined" if kind in found.result.refused else "no"


def _numbers(values: Array) -> list[str]:
    decimals = decimals_of(values.tolist())
    return [number_text(float(value), decimals) for value in values]


# Policies


def _policy(policy: object) -> Told:
    """A policy by its class, for whom it was made, and what it can do."""
    # The first line of the class's docstring says what it is.
    summary = (type(policy).__doc__ or "").strip().partition("\n")[0]
    facts = [*_made_for(policy), ("can", _abilities(policy))]
    return Told(type(policy).__name__, summary, facts, tables=_insides(policy))


def _made_for(policy: object) -> list[tuple[str, str]]:
    problem = getattr(policy, "problem", None) or getattr(getattr(policy, "reduction", None), "problem", None)
    return [("made for", repr(problem))] if isinstance(problem, Shown) else []


def _abilities(policy: object) -> str:
    can = capabilities(policy)
    # From the least that a policy can do to what makes it quick and exact.
    told = ["act on the states of arms" if can.starts is None else "act, with a memory"]
    told += ["be played by counts"] if can.by_counts else []
    told += ["be evaluated exactly"] if can.law or can.table or can.tabulates else []
    return ", ".join(told)


def _insides(policy: object) -> list[Table]:
    if isinstance(policy, Mixture):
        return [
            _parts_table([(repr(part), float(share)) for part, share in zip(policy.parts, policy.shares, strict=True)])
        ]
    if isinstance(policy, BySteps):
        rows = [(str(step), [repr(part)]) for step, part in enumerate(policy.parts[:MOST_ROWS])]
        return [shortened_table("", ["step", "policy"], rows, len(policy.parts) - MOST_ROWS, ["policy"])]
    if isinstance(policy, PriorityPolicy):
        return [_ranks_table(policy)]
    # Somebody else's model has no layers that are known.
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)) and isinstance(policy.network, Network):
        layers = [(str(layer), [str(w.shape[0]), str(w.shape[1])]) for layer, w in enumerate(policy.network.weights)]
        return [shortened_table("", ["layer", "inputs", "outputs"], layers)]
    return []


def _ranks_table(policy: PriorityPolicy) -> Table:
    """Who is served first: the best cells, by falling score."""
    problem, ranks = policy.problem, policy.ranks
    # In the order of service; equal ranks in the order of types and states.
    cells = np.argwhere(ranks >= 0)
    order = np.argsort(ranks[tuple(cells.T)], kind="stable")
    names, labels = type_names(problem), problem.types.labels
    rows = []
    for kind, state, action in cells[order[:MOST_ROWS]].tolist():
        states, actions = (labels[kind][1], labels[kind][2]) if labels else ((), ())
        where = states[state] if states else f"state {state}"
        what = actions[action] if actions else f"action {action}"
        place = str(ranks[kind, state, action] + 1)
        score = number(float(policy.scores[kind, state, action]))
        rows.append((place, [shortened(names[kind], 30), shortened(where, 30), shortened(what, 30), score]))
    heads, words = ["rank", "type", "in", "gets", "score"], ["type", "in", "gets"]
    return shortened_table("Who is served first", heads, rows, len(cells) - MOST_ROWS, words)
