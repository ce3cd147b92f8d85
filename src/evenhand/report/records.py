"""Summaries of cleaned records, fitted models, clusters, diagnostics and backtests; and the page of a fit."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import counted
from evenhand.fitting.cleaning import CleanedRecords, Finding
from evenhand.fitting.clusters import Clusters
from evenhand.fitting.ctmc.rates import Rates
from evenhand.fitting.diagnostics import Diagnostics
from evenhand.fitting.diagnostics.diagnose import FEW
from evenhand.fitting.diagnostics.effects import Effects
from evenhand.fitting.diagnostics.format import chance, interval, probability_texts, signed
from evenhand.fitting.result import FitResult
from evenhand.planning.backtest import Backtest
from evenhand.planning.trajectory_forecast import Forecast
from evenhand.report.format import capitalised, fixed, number, percent, spelled
from evenhand.report.summary import MOST_ROWS, Figure, Section, Summary, Table, summarise, table

MOST_TRANSITIONS, MOST_NEXT = 60, 3
"""Rows of transitions that are listed, and next states per row."""


# -- fits ------------------------------------------------------------------------------------------------------------


@summarise.register
def fit_summary(fitted: FitResult) -> Summary:
    """Return the summary of a fitted model and of its diagnostics."""
    log = fitted.log
    sizes = (len(log.arm), "row"), (len(log.arms), "arm"), (len(log.types), "type"), (len(log.states), "state")
    facts = [
        ("records", ", ".join(counted(*size) for size in sizes)),
        ("step", log.step_in_words),
        ("actions", ", ".join(log.actions)),
        ("log-likelihood", fixed(fitted.log_likelihood, 2)),
    ]
    if fitted.clusters is not None:
        facts.append(("types found", fitted.clusters.words))
    if fitted.unseen_anywhere.any():
        whose = ", in any type" if len(log.types) > 1 else ""
        facts.append((f"never seen{whose}", "; ".join(log.pair_names(fitted.unseen_anywhere))))
    tables = [transitions_table(fitted), *([] if fitted.rates is None else rates_summary(fitted.rates).tables)]
    return Summary("Model fitted to records", facts=facts, tables=tables, notes=list(fitted.notes))


@summarise.register
def rates_summary(found: Rates) -> Summary:
    """Return mean sojourn times with the largest rates out of each state, and hazard ratios."""
    places = np.argwhere(np.isfinite(found.sojourn[0])).tolist()
    rows = []
    for t, a, i in places[:MOST_TRANSITIONS]:
        rates = found.rates[:, t, a, i]
        order = [j for j in np.argsort(-np.round(rates[0], 12), kind="stable").tolist() if rates[0, j] > 0]
        jumps = ", ".join(f"{found.states[j]} {_with_ends(*rates[:, j])}" for j in order[:MOST_NEXT])
        names = found.types[t], found.states[i], found.actions[a]
        rows.append([*names, _with_ends(*found.sojourn[:, t, a, i]), jumps])
    heads = ["type", "state", "action", "stays", "rates of jumps to"]
    caption = f"mean sojourn times and rates per {found.unit}, with intervals of 95 %"
    tables = [table(caption, heads, rows, len(places) - MOST_TRANSITIONS, heads[1:])]
    if effects := found.effect_rows():
        keys = ("hazard_ratio", "lower", "upper")
        rows = [
            [one["effect"], one["state"], one["next_state"], _with_ends(*(one[key] for key in keys))]
            for one in effects[:MOST_TRANSITIONS]
        ]
        heads, caption = ["effect", "from", "to", "hazard ratio"], "hazard ratios, with intervals of 95 %"
        tables.append(table(caption, heads, rows, len(effects) - MOST_TRANSITIONS, heads[1:]))
    return Summary("Rates of jumps", tables=tables)


def _with_ends(estimate: float, lower: float, upper: float) -> str:
    """Return `0.52 (0.31–0.87)`."""
    return f"{estimate:.3g} ({lower:.3g}–{upper:.3g})"


def transitions_table(fitted: FitResult) -> Table:
    """Return the estimated rows of transitions, with the most likely next states and their intervals."""
    log, counts = fitted.log, fitted.moves.departures
    seen = np.argwhere(np.isfinite(fitted.posterior.mean).all(axis=-1)).tolist()
    rows = [
        [log.types[t], log.states[s], log.actions[a], f"{counts[t, s, a]:,}", _next_states(fitted, t, s, a)]
        for t, s, a in seen[:MOST_TRANSITIONS]
    ]
    heads = ["type", "state", "action", "moves", "then"]
    caption = "transitions, with intervals of 95 %"
    return table(caption, heads, rows, len(seen) - MOST_TRANSITIONS, ["state", "action", "then"])


def _next_states(fitted: FitResult, t: int, s: int, a: int) -> str:
    """Return `good 0.900 (0.85–0.94), fair 0.100 (0.06–0.15)`."""
    mean = fitted.posterior.mean[t, s, a]
    lower, upper = (bound[t, s, a] for bound in fitted.interval)
    order = np.argsort(-np.round(mean, 12), kind="stable")[:MOST_NEXT].tolist()
    texts = {fitted.log.states[k]: probability_texts(mean[k], lower[k], upper[k]) for k in order if mean[k] > 0}
    return ", ".join(f"{state} {middle} ({low}–{high})" for state, (middle, low, high) in texts.items())


@summarise.register
def clusters_summary(found: Clusters) -> Summary:
    """Return the summary of types found by clustering."""
    facts = [("mixture", found.words)]
    return Summary("Types found by clustering", facts=facts, tables=[_members_table(found)], notes=list(found.notes))


def _members_table(found: Clusters) -> Table:
    sizes = np.bincount(found.type_of, minlength=found.number)
    own = found.probabilities[np.arange(len(found.arms)), found.type_of]
    sums = np.bincount(found.type_of, weights=own, minlength=found.number)
    rows = [
        [name, f"{size:,}", percent(total / size) if size else fixed(None)]
        for name, size, total in zip(found.names, sizes.tolist(), sums.tolist(), strict=True)
    ]
    return table("types found", ["type", "arms", "mean probability of their type"], rows)


@summarise.register
def diagnostics_summary(found: Diagnostics) -> Summary:
    """Return the sentences of the diagnostics by topic, and the effects of actions."""
    topics = ["", *(topic for topic, _ in found.words)]
    facts = [("" if topic == last else topic, text) for last, (topic, text) in zip(topics, found.words, strict=False)]
    tables = [_effects_table(found.effects)] if found.effects is not None and found.effects.each else []
    return Summary("What the records say", facts=facts, tables=tables)


def _effects_table(found: Effects) -> Table:
    effects = [*found.overall, *found.each]
    typed, unit = any(effect.type for effect in effects), effects[0].unit
    gain = [] if unit is None else ["gain" if unit == "reward" else f"places towards {effects[0].ends[1]}"]
    heads = ["action", "in", "given", "idle", *gain, "more come to", "in 100"]
    rows = []
    for effect in effects[:MOST_ROWS]:
        where = effect.state + (f" ({effect.type})" if typed and effect.type else "")
        gains = [] if effect.gain is None else [interval(*effect.gain)]
        rise = "{:+.0f} [{:.0f}, {:.0f}]".format(*(100 * value for value in effect.rise))
        row = [effect.action, where or "all", f"{effect.visits:,}", f"{effect.idle_visits:,}", *gains, effect.to, rise]
        rows.append(row)
    caption = "effect of an action one step later, beside the idle one (intervals of 95 %)"
    return table(caption, heads, rows, len(effects) - MOST_ROWS, ["in", "more come to"])


# -- backtests -------------------------------------------------------------------------------------------------------


@summarise.register
def backtest_summary(found: Backtest) -> Summary:
    """Return the summary of a backtest."""
    borrowed = int(found.shares.borrowed.sum())
    decisions = f"{found.shares.numbers.sum():,} decisions"
    policy = f"shares of actions by type and state, the same at all times, from {decisions}"
    if borrowed:
        policy += f"; a type was never seen in {borrowed} of its states, and takes the shares of the others there"
    steps = f"{len(found.steps):,}, with {found.present.min():,} to {found.present.max():,} arms"
    facts = [("policy", policy), ("steps", steps)]
    for place, action in enumerate(found.actions[1:]):
        inside = found.served.inside[:, place]
        facts.append((f"{action} in a step", f"{int(inside.sum())} of {len(inside)} steps lie in their intervals"))
    for name, forecast in (("reward in a step", found.rewards), ("arms in a state", found.occupied)):
        facts.append((name, f"{percent(float(forecast.inside.mean()))} of the records lie in their intervals"))
    level = f"of {percent(found.level)}, of chance alone: the shares and the model were fitted to these records"
    facts.append(("intervals", level))
    for place, (name, budget) in enumerate(found.problem.named_budget.items()):
        used, over = found.used[:, place], int(found.over_budget[place])
        text = f"{used.mean():.3g} a step of {budget:.10g}, at most {used.max():.10g}"
        facts.append((f"used of {name}", f"{text}; {over} of {len(used)} steps used more than the budget"))
    notes = ["the behaviour policy has no budget in the model; other policies have"] if len(found.worth) > 1 else []
    aside = "the behaviour policy in the model, beside the records"
    return Summary("Backtest", aside, facts, _backtest_tables(found), notes=notes)


def _backtest_tables(found: Backtest) -> list[Table]:
    heads, rows = ["type"], []
    for action in (*found.actions[1:], "reward"):
        heads += [action, "expected", "interval"]
    for t, name in enumerate(found.types):
        row = [name]
        for place in range(len(found.actions) - 1):
            row += _forecast_cells(found.totals, (t, place), 1)
        rows.append([*row, *_forecast_cells(found.total_rewards, (t,), 4)])
    actions = table("number of each action, and the mean reward of a step; * is outside its interval", heads, rows)
    first, rows = found.worth[0], []
    for one in found.worth:
        used = ", ".join(percent(share) for share in one.budget_used.values())
        error = fixed(one.welfare_stderr) if one.welfare_stderr else "exact"
        rows.append([one.policy, fixed(one.welfare), error, used])
    caption = f"welfare in the model: {found.criterion}, from where all arms were first seen"
    welfare = table(caption, ["policy", "welfare", "±", "budget used"], rows)
    names = list(first.groups or first.values)
    values = [[name, *(fixed((one.groups or one.values)[name]) for one in found.worth)] for name in names]
    heads = ["group" if first.groups else "type", *(one.policy for one in found.worth)]
    return [actions, welfare, table("values", heads, values)]


def _forecast_cells(found: Forecast, place: tuple[int, ...], decimals: int) -> list[str]:
    mean, low, high = (fixed(float(getattr(found, name)[place]), decimals) for name in ("mean", "lower", "upper"))
    seen = fixed(float(found.seen[place]), 0 if decimals == 1 else decimals)
    return [seen + ("" if np.asarray(found.inside)[place] else " *"), mean, f"{low} to {high}"]


# -- the page of a fit -----------------------------------------------------------------------------------------------


def fit_report(fitted: FitResult, source: str = "the records") -> Summary:
    """Return the page of a fit, for `html.page` and `html.write_page`.

    Args:
        fitted: the fit.
        source: name of the log.
    """
    sizes = f"{counted(len(fitted.log.arm), 'record')} of {counted(len(fitted.log.arms), 'arm')}"
    found, plain = fitted.diagnostics, fit_summary(fitted)
    said = diagnostics_summary(found)
    sections = [Section("What the records say", facts=said.facts, tables=_memory_tables(found))]
    sections += _diagnostic_sections(found, said.tables)
    sections += _type_sections(fitted)
    thin = [_thin_table(found)] if found.thin_rows.rows else []
    sections.append(Section("Transitions", facts=plain.facts, tables=[*plain.tables, *thin], notes=plain.notes))
    sections.append(Section("How to read this", facts=_glossary(found)))
    return Summary(
        f"What {source} say{'s' if source != 'the records' else ''}",
        lead=_lead(fitted),
        cards=_cards(fitted),
        sections=sections,
        made=f"Folds and draws start from a fixed seed. To cite it: {source}, {sizes}, fitted with this version.",
    )


def _lead(fitted: FitResult) -> list[str]:
    log, found = fitted.log, fitted.diagnostics
    kinds = "" if len(log.types) == 1 else f" of {spelled(len(log.types))} types"
    size = f"{counted(len(log.arm), 'record')} of {counted(len(log.arms), 'arm')}{kinds}"
    size += f", in {counted(len(log.states), 'state')} with {counted(len(log.actions), 'action')}"
    sentences = [effect.words for effect in found.effects.overall] if found.effects else []
    sentences += [found.choices.words[0]] if found.choices is not None else []
    return [size, *sentences[:4]]


def _cards(fitted: FitResult) -> list[tuple[str, str, str]]:
    found, gaps = fitted.diagnostics, int(fitted.moves.gaps.number.sum())
    thin = f"{len(found.thin_rows.rows):,} of them seen fewer than {FEW} times"
    cards = [
        ("Moves", f"{int(fitted.moves.counts.sum()) + gaps:,}", f"{gaps:,} over missed steps" if gaps else ""),
        ("Rows", f"{found.thin_rows.total:,}", thin if found.thin_rows.rows else f"all seen {FEW} times or more"),
        ("Log-likelihood", number(fitted.log_likelihood), "of the records under the model"),
    ]
    if found.state is not None:
        cards.append(("Gain by the state", number(found.state.gain, 2), "nats per step beyond a model without it"))
    return cards


def _memory_tables(found: Diagnostics) -> list[Table]:
    rows = []
    for gain in (found.state, found.before):
        if gain is not None:
            name = "the state" if gain.order == 1 else "the state before last"
            figures = [fixed(gain.shorter), fixed(gain.longer), signed(gain.gain, 4), fixed(gain.stderr)]
            rows.append([name, *figures, f"{gain.steps:,}", f"{gain.arms:,}", "yes" if gain.is_sure else "not seen"])
    heads = ["does it predict?", "without", "with", "gain", "±", "steps", "arms", "verdict"]
    return [table("held-out log-likelihood, nats per step", heads, rows)] if rows else []


def _diagnostic_sections(found: Diagnostics, effects: Sequence[Table]) -> list[Section]:
    from evenhand.report import fit_plots

    sections = []
    if found.effects is not None and found.effects.each:
        caption = f"Means and intervals of 95 %; grey ones include 0. {capitalised(found.effects.words)}."
        figure = Figure(fit_plots.effects_plot(found.effects).svg(), caption)
        alone = found.effects.alone[:MOST_ROWS]
        sections.append(Section("Effects of actions", figures=[figure], tables=effects, notes=alone))
    if found.choices is not None:
        caption = "States of arms that were served, and of the others."
        figure = Figure(fit_plots.choices_plot(found.choices).svg(), caption)
        sections.append(Section("Arms that were served", found.choices.words, figures=[figure]))
    if found.shares is not None:
        caption = "Dots or thin lines are the records; thick lines the model from the first records on."
        figure = Figure(fit_plots.shares_plot(found.shares).svg(), caption)
        sections.append(Section("Shares of states over time", figures=[figure]))
    return sections


def _type_sections(fitted: FitResult) -> list[Section]:
    from evenhand.report import fit_plots

    clusters, between = fitted.clusters, fitted.diagnostics.between_types
    tables, figures, sentences = [], [], []
    if clusters is not None:
        tables.append(_members_table(clusters))
        sentences.append(clusters.words)
        if clusters.tried:
            caption = "Held-out log-likelihood and BIC by the number of types; the dotted line is the number chosen."
            figures.append(Figure(fit_plots.clusters_plot(clusters).svg(), caption))
    if between and between.each:
        rows = []
        for one in between.each[:MOST_ROWS]:
            place, where = one.apart, ""
            if place is not None:
                own, others = (percent(share, 0) for share in place.shares)
                where = f"{place.action} in {place.state}: {own} come to {place.to}, {others} of the others"
            rows.append([one.type, chance(one.test.adjusted), signed(one.test.gain, 4), where])
        heads = ["type", "p", "nats per step", "largest difference"]
        caption = "each type against all others; p adjusted for the number of types"
        tables.append(table(caption, heads, rows, len(between.each) - MOST_ROWS, heads[3:]))
    return [Section("Types", sentences, figures, tables=tables)] if tables else []


def _thin_table(found: Diagnostics) -> Table:
    rows = [
        [f"{row.type}: {row.state}, {row.action}", f"{row.visits:,}", f"{row.elsewhere:,}", fixed(row.width, 2)]
        for row in found.thin_rows.rows[: 2 * MOST_ROWS]
    ]
    heads = ["row", "moves", "in other types", "widest interval"]
    caption = f"rows seen fewer than {FEW} times, the least seen first"
    return table(caption, heads, rows, len(found.thin_rows.rows) - 2 * MOST_ROWS)


def _glossary(found: Diagnostics) -> list[tuple[str, str]]:
    entries = [
        ("Row", "Distribution of the next state of an arm of a type, given its state and action."),
        ("Interval", "Credible interval of 95 %, given the records and the shrinkage of sparse rows."),
    ]
    if found.state or found.before:
        text = "Gain in held-out log-likelihood: 0.01 is 1 % more probability of the next state; ± is its error."
        entries.append(("Nats per step", text))
    if found.num_tests or found.in_time or found.between_types or found.before:
        entries.append(("p", "Probability of a difference as large by chance, adjusted by Holm's method per question."))
    if found.effects:
        text = "Distribution of the next state under the action, less that under the idle action in the same state."
        entries.append(("Effect", text))
    return entries


# -- cleaned records ---------------------------------------------------------------------------------------------------


@summarise.register
def _cleaned(cleaned: CleanedRecords) -> Summary:
    frame = cleaned.frame
    facts = [
        ("rows", f"{cleaned.num_rows:,} read, {len(frame):,} clean"),
        ("arms", f"{frame['arm'].n_unique():,}"),
        ("times", cleaned.span),
    ]
    for role in ("state", "action", "type", "group"):
        if role in frame.columns:
            names = frame[role].drop_nulls().unique(maintain_order=True)
            facts.append((f"{role}s", f"{', '.join(names.head(8))}{f' and {len(names) - 8} more' * (len(names) > 8)}"))
    odd = "oddities and proposed rules" if cleaned.is_proposal else "oddities that the rules do not cover"
    tables = [_findings_table(odd, cleaned.findings)] if cleaned.findings else []
    if cleaned.effects:
        tables.append(_findings_table("effects of the rules", cleaned.effects))
    return Summary("records", counted(len(frame), "clean row"), facts=facts, tables=tables)


def _findings_table(caption: str, findings: Sequence[Finding]) -> Table:
    rows = [
        [finding.kind, f"{finding.count:,}" if finding.count else "", finding.message, "; ".join(finding.examples)]
        for finding in findings
    ]
    return table(caption, ["kind", "rows", "", "examples"], rows, text=("", "examples"))
