"""Summaries of fitted models, clusters and diagnostics; and the page of a fit."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import counted
from evenhand.fitting.clusters import Clusters
from evenhand.fitting.ctmc.rates import Rates
from evenhand.fitting.diagnostics import Diagnostics
from evenhand.fitting.diagnostics.diagnose import FEW
from evenhand.fitting.diagnostics.effects import Effects
from evenhand.fitting.diagnostics.format import chance, interval, probability_texts, signed
from evenhand.fitting.result import FitResult
from evenhand.report.format import capitalised, fixed, percent, spelled
from evenhand.report.summary import MOST_ROWS, Figure, Section, Summary, Table, summary_of, table

MOST_TRANSITIONS, MOST_NEXT = 60, 3
"""Rows of transitions that are listed, and next states per row."""


# -- fits ------------------------------------------------------------------------------------------------------------


@summary_of.register
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


@summary_of.register
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


@summary_of.register
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


@summary_of.register
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
