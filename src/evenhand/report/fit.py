"""The page of a fit: what the records say, how surely, and what they cannot say."""

import re
from typing import TYPE_CHECKING

import numpy as np

from evenhand._version import __version__
from evenhand.fitting.diagnostics.diagnose import Diagnostics
from evenhand.fitting.diagnostics.effects import Effect, Effects
from evenhand.fitting.diagnostics.format import chance, interval, signed
from evenhand.fitting.diagnostics.homogeneity import BetweenTypes
from evenhand.fitting.diagnostics.markov_order import Gain
from evenhand.fitting.diagnostics.sparse_rows import FEW, SparseRows
from evenhand.fitting.result import Fitted
from evenhand.model.files import Location, write_atomically
from evenhand.report import fit_figures, words
from evenhand.report.clusters import HEIGHT, draw_clusters
from evenhand.report.notebook import told
from evenhand.report.pictures import draw_replay, replay_height
from evenhand.report.rendering import render
from evenhand.report.svg import drawn
from evenhand.report.tables import Cell, Table, TableRow

if TYPE_CHECKING:
    from evenhand.fitting.clusters import Clusters
    from evenhand.planning.replay import Replay

SHOWN_ROWS = 40
"""Rows of a table; the rest is counted."""

TOPICS = {
    "memory": "Memory",
    "time": "Time",
    "types": "Types",
    "shares": "Shares of states",
    "sparse rows": "Sparse rows",
    "effect": "Effects",
    "choice": "Who was served",
    "tests": "Tests",
    "not asked": "Not asked",
}
"""How the page calls what was asked."""


def write_fit(
    fitted: Fitted,
    path: Location,
    title: str | None = None,
    command: str = "",
    source: str = "the records",
    replay: "Replay | None" = None,
) -> None:
    """Write the page of a fit into a file, wholly or not at all.

    Args:
        fitted: what came out.
        path: the HTML file; one that is there is replaced.
        title: the heading; one is made up when absent.
        command: what a person typed to get here, told at the end of the page.
        source: what the log is called.
        replay: the records replayed in the model, if that was done; a section of its own.
    """
    write_atomically(path, fit_page(fitted, title, command, source, replay).encode("utf-8", errors="replace"))


def fit_page(
    fitted: Fitted,
    title: str | None = None,
    command: str = "",
    source: str = "the records",
    replay: "Replay | None" = None,
) -> str:
    """The page; arguments as of `write_fit`."""
    # Sections that have nothing to show are None, and the template leaves them out.
    found, clusters = fitted.diagnostics, fitted.clusters
    rows = fit_figures.small_rows(fitted, FEW)
    # Effects without an action that was ever given are none.
    acted = found.effects is not None and bool(found.effects.each)
    return render(
        "fit.html",
        title=title or f"What {source} say{'s' if source != 'the records' else ''}",
        lead=_lead(fitted),
        cards=_cards(fitted),
        # What has a section of its own is not told twice.
        said=_by_topic(found, ({"effect"} if acted else set()) | ({"choice"} if found.choices else set())),
        memory=_memory_table(found),
        effects=fit_figures.effects_figure(found.effects) if acted and found.effects else None,
        effects_words=[_sentence(effect.words) for effect in found.effects.overall] if found.effects else [],
        effects_caption=_effects_caption(found.effects) if acted and found.effects else "",
        effects_table=_effects_table(found.effects) if acted and found.effects else None,
        alone=list(found.effects.alone[:SHOWN_ROWS]) if found.effects else [],
        choices=fit_figures.choices_figure(found.choices) if found.choices else None,
        choices_words=[_sentence(said) for said in found.choices.words] if found.choices else [],
        shares=fit_figures.shares_figure(found.shares) if found.shares else None,
        replay=None if replay is None else _replay_figure(replay),
        replay_facts=None if replay is None else told(replay).facts,
        clusters=None if clusters is None or not clusters.tried else _clusters_figure(clusters),
        members=None if clusters is None else _members_table(clusters),
        members_words="" if clusters is None else _sentence(clusters.words),
        types=_types_table(found.between_types) if found.between_types and found.between_types.each else None,
        rows=rows,
        # Rows without a picture are counted.
        more_rows=_more_rows(found.thin_rows.total - len(rows)),
        scale=(fit_figures.LEFT, fit_figures.LEFT + fit_figures.WIDE),
        thin=_thin_table(found.thin_rows) if found.thin_rows.rows else None,
        notes=[words.capitalised(note) for note in fitted.notes],
        reading=_reading(found),
        command=command,
        making=_making(fitted, source),
    )


# Words


def _lead(fitted: Fitted) -> list[str]:
    log, found = fitted.log, fitted.diagnostics
    kinds = "" if len(log.types) == 1 else f" of {words.spelled(len(log.types))} types"
    size = (
        f"{words.counted(len(log.arm), 'record')} of {words.counted(len(log.arms), 'arm')}{kinds}, in "
        f"{words.counted(len(log.states), 'state')} with {words.counted(len(log.actions), 'action')}"
        f"{'' if log.unit == 'step' else f', a step being {log.step_in_words}'}."
    )
    # What actions do comes first, then who was served.
    told = [*(effect.words for effect in found.effects.overall)] if found.effects else []
    if found.choices is not None:
        told.append(found.choices.words[0])
    return [size, *map(_sentence, told[:4])]


def _cards(fitted: Fitted) -> list[tuple[str, str, str]]:
    found = fitted.diagnostics
    # Moves of one step, and those over gaps.
    moves = int(fitted.moves.counts.sum() + fitted.moves.gaps.number.sum())
    gaps = int(fitted.moves.gaps.number.sum())
    entries = [
        ("Moves", f"{moves:,}", f"{gaps:,} over missed or uneven steps" if gaps else "each of one step"),
        (
            "Rows",
            f"{found.thin_rows.total:,}",
            f"{len(found.thin_rows.rows):,} of them seen fewer than {FEW} times"
            if found.thin_rows.rows
            else f"all seen {FEW} times or more",
        ),
        ("Log-likelihood", words.number(fitted.log_likelihood), "of the records under the model"),
    ]
    if found.state is not None:
        note = "nats a step better than without the state"
        entries.append(("What the state tells", words.number(found.state.gain, 2), note))
    return entries


def _by_topic(found: Diagnostics, elsewhere: set[str]) -> list[tuple[str, list[str]]]:
    """Topics with their sentences, but for those that have a section of their own."""
    topics: dict[str, list[str]] = {}
    for topic, said in found.words:
        if topic in elsewhere:
            continue
        # In the words of the page, which are those of its sections.
        topics.setdefault(TOPICS[topic], []).append(_sentence(said))
    return list(topics.items())


def _sentence(said: str) -> str:
    """With a capital and a full stop; what belongs together stays on one line."""
    # A sign stays with its number: no line breaks between them.
    tied = re.sub(
        r" (%|± |[<=] )", lambda found: f"\u00a0{found[1].rstrip()}" + "\u00a0" * found[1].endswith(" "), said
    )
    return f"{words.capitalised(tied)}."


def _effects_caption(found: Effects) -> str:
    return (
        "A dot is the mean, a line the interval that holds the truth with a probability of 95\u00a0%; grey ones "
        f"include 0. Diamonds are means over all states in which the action was given. {_sentence(found.words)}"
    )


def _more_rows(number: int) -> str:
    return f"{number:,} more rows are not shown; those seen most often are." if number > 0 else ""


def _reading(found: Diagnostics) -> list[tuple[str, str]]:
    entries = [
        (
            "Row",
            "What happens next to an arm of a type, in a state, that gets an action: a probability for each next "
            "state.",
        ),
        (
            "Interval",
            "Where a number lies with a probability of 95\u00a0%, given the records and the way sparse rows lean "
            "on others.",
        ),
    ]
    # Terms are explained only where they occur.
    if found.state or found.before:
        entries.append(
            (
                "Nats a step",
                "How much better a chain predicts: 0.01 is 1\u00a0% more of the probability given to the state that "
                "came. Chains are scored on arms that they were not fitted to; ± is the standard error over arms.",
            )
        )
    if found.num_tests or found.in_time or found.between_types or found.before:
        entries.append(
            (
                "p",
                "How probable a difference as large would be by chance if there were none; tests of one question allow "
                "for each other (Holm). Small differences are found in many records, so nats a step say how large "
                "they are.",
            )
        )
    if found.effects:
        entries.append(
            (
                "Effect",
                "The law of the next state under the action, less that of the idle action in the same state. It is "
                "what came one step later, before what the action costs.",
            )
        )
    return entries


def _making(fitted: Fitted, source: str) -> list[str]:
    cite = (
        f"To cite it: {source}, {words.counted(len(fitted.log.arm), 'record')} of "
        f"{words.counted(len(fitted.log.arms), 'arm')}, fitted with evenhand {__version__}."
    )
    return [f"It was computed with evenhand {__version__}. Folds and draws start from a fixed seed.", cite]


def _replay_figure(found: "Replay") -> str:
    label = f"How often each action was taken so far, recorded and expected: {', '.join(found.actions[1:])}"
    return drawn("replay", label, replay_height(found), lambda figure: draw_replay(figure, found))


def _clusters_figure(found: "Clusters") -> str:
    told = "; ".join(f"{words.counted(one.number, 'type')} {words.number(one.held_out)}" for one in found.tried)
    label = f"Held-out log-likelihood of an arm by the number of types: {told}"
    return drawn("clusters", label, HEIGHT, lambda figure: draw_clusters(figure, found))


# Tables


def _members_table(found: "Clusters") -> Table:
    sizes = np.bincount(found.type_of, minlength=found.number)
    chances = found.probabilities[np.arange(len(found.arms)), found.type_of]
    # How surely arms are of the type that they were given.
    sums = np.bincount(found.type_of, weights=chances, minlength=found.number)
    rows = tuple(
        TableRow(name, (Cell(f"{size:,}"), Cell(words.percent(total / size) if size else words.UNKNOWN)))
        for name, size, total in zip(found.names, sizes.tolist(), sums.tolist(), strict=True)
    )
    heads = (Cell("Type"), Cell("Arms"), Cell("Mean probability of their type"))
    return Table("Types that were found, and how surely arms are of them", heads, rows)


def _memory_table(found: Diagnostics) -> Table | None:
    gains = [gain for gain in (found.state, found.before) if gain is not None]
    if not gains:
        return None
    heads = ("Does it tell more?", "Without", "With", "Gain", "±\u00a0error", "Steps", "Arms")
    rows = tuple(TableRow(_asked(gain), _gain_cells(gain), note=_verdict(gain)) for gain in gains)
    return Table("Held-out log-likelihood, nats a step", tuple(Cell(head) for head in heads), rows)


def _asked(gain: Gain) -> str:
    return "The state" if gain.order == 1 else "The state before last"


def _verdict(gain: Gain) -> str:
    against = "order 0 against 1, the fitted chain" if gain.order == 1 else "order 1, the fitted chain, against 2"
    return f"{against}: {'yes' if gain.is_sure else 'not seen to'}"


def _gain_cells(gain: Gain) -> tuple[Cell, ...]:
    figures = [words.number_text(value, 4) for value in (gain.shorter, gain.longer)]
    return (
        *(Cell(figure) for figure in figures),
        Cell(signed(gain.gain, 4), is_strong=gain.is_sure),
        Cell(words.number_text(gain.stderr, 4)),
        Cell(f"{gain.steps:,}"),
        Cell(f"{gain.arms:,}"),
    )


def _effects_table(found: Effects) -> Table:
    effects = [*found.overall, *found.each]
    # All effects of a fit are counted in one unit.
    unit = effects[0].unit
    heads = [Cell("Action"), Cell("Given"), Cell("Idle")]
    if unit is not None:
        heads.append(Cell("Gain in reward" if unit == "reward" else f"Places towards {effects[0].ends[1]}"))
    heads.append(Cell("In 100, more come to"))
    # Tables are cut, and say so.
    rows = tuple(_effect_row(effect) for effect in effects[:SHOWN_ROWS])
    more = len(effects) - SHOWN_ROWS
    left = f"; {more:,} more are not shown" if more > 0 else ""
    return Table(f"One step later, beside the idle action in the same state{left}", tuple(heads), rows)


def _effect_row(effect: Effect) -> TableRow:
    where = f"in {effect.state}" + (f" ({effect.type})" if effect.type else "") if effect.state else "wherever given"
    gain = [] if effect.gain is None else [Cell(interval(*effect.gain), is_strong=effect.is_sure)]
    rise = "{} [{}, {}] to ".format(*(words.number_text(100 * value, 0) for value in effect.rise)) + effect.to
    cells = (
        Cell(f"{effect.visits:,}"),
        Cell(f"{effect.idle_visits:,}"),
        *gain,
        Cell(rise),
    )
    return TableRow(f"{effect.action} {where}", cells)


def _types_table(found: BetweenTypes) -> Table:
    rows = []
    for one in found.each[:SHOWN_ROWS]:
        place = one.apart
        where = ""
        if place is not None:
            own, others = (words.percent(share, 0) for share in place.shares)
            where = f"{place.action} in {place.state}: {own} come to {place.to}, {others} of the others"
        cells = (
            # The column is called p already.
            Cell(chance(one.test.adjusted).removeprefix("p = ").removeprefix("p "), is_strong=one.test.adjusted < 0.05),
            Cell(signed(one.test.gain, 4)),
            Cell(where, is_text=True),
        )
        rows.append(TableRow(one.type, cells))
    heads = (Cell("Type"), Cell("p"), Cell("Nats a step"), Cell("Where it differs most", is_text=True))
    return Table("Each type against all others; p adjusted for the number of types", heads, tuple(rows))


def _thin_table(found: SparseRows) -> Table:
    # With one type its name would be in every row.
    several = len({row.type for row in found.rows}) > 1
    heads = (Cell("Row"), Cell("Moves"), Cell("In other types"), Cell("Widest interval"))
    rows = tuple(
        TableRow(
            f"{row.type}: {row.state}, {row.action}" if several else f"{row.state}, {row.action}",
            (Cell(f"{row.visits:,}"), Cell(f"{row.elsewhere:,}"), Cell(words.number_text(row.width, 2))),
        )
        for row in found.rows[:SHOWN_ROWS]
    )
    more = len(found.rows) - SHOWN_ROWS
    left = f"; {more:,} more are not shown" if more > 0 else ""
    return Table(f"Rows seen fewer than {FEW} times, the least seen first{left}", heads, rows)
