"""The page of the price of fairness: the best plan for each welfare, weighed by all, and who gains and loses."""

from typing import TYPE_CHECKING

from evenhand._version import __version__
from evenhand.errors import InvalidInput
from evenhand.model.io import Location, write_atomically
from evenhand.model.objective import num_members
from evenhand.planning.fairness import Fairness, FairnessRow
from evenhand.report import words
from evenhand.report.figures import MARKS
from evenhand.report.pictures import Picture, pictured
from evenhand.report.rendering import render
from evenhand.report.svg import BLUE, FAINT, INK, drawn
from evenhand.report.tables import MOST_TYPES, Cell, Table, TableRow, more_types, types_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_OTHERWISE = ("utilitarian", "maximin", "leximin")
"""Welfares that need no column of their own in a table that has the mean and the worst-off."""


def write_fairness(
    found: Fairness, path: Location, title: str | None = None, command: str = "", seed: int | None = None
) -> None:
    """Write the page into a file, wholly or not at all.

    Args:
        found: what came out.
        path: the HTML file; one that is there is replaced.
        title: the heading; one is made up when absent.
        command: what a person typed to get here, told at the end of the page.
        seed: where the randomness started, if that is known.
    """
    write_atomically(path, fairness_page(found, title, command, seed).encode("utf-8", errors="replace"))


def fairness_page(found: Fairness, title: str | None = None, command: str = "", seed: int | None = None) -> str:
    """The page; arguments as of `write_fairness`."""
    # None where a table of types would say nothing.
    types = types_table(found.problem)
    return render(
        "fairness.html",
        title=title or f"What fairness costs: {words.counted(len(found.rows), 'idea')} of it",
        lead=_lead(found),
        cards=_cards(found),
        results=results_table(found),
        taken=_taken_over(found),
        left_out=sorted(found.left_out.items()),
        spread=_values_figure(found),
        values=values_table(found),
        groups=groups_table(found),
        trade=_trade_figure(found),
        problem=words.problem_words(found.problem),
        types=types,
        more_types=more_types(found.problem) if types else "",
        reading=_reading(found),
        command=command,
        making=_making(seed),
    )


# Words


def _fairest(found: Fairness) -> FairnessRow:
    """The row in which the worst-off member has most; of several the one with the best mean."""
    # Six digits decide; what is equal to them is told apart by the mean.
    return max(found.rows, key=lambda row: (float(f"{row.worst:.6g}"), row.mean))


def _lead(found: Fairness) -> list[str]:
    best, fairest, who = found.rows[0], _fairest(found), words.member(found.problem)
    first = (
        f"The best mean that was found is {words.number(best.mean)} a{'n' if who == 'arm' else ''} {who}; "
        f"the worst-off {who} then has {words.number(best.worst)}."
    )
    # More than rounding, or there is nothing to tell.
    if fairest.worst <= best.worst * (1 + 1e-6) or fairest is best:
        return [first, f"No plan here does more for the worst-off {who}: fairness costs nothing."]
    cost = f"for {words.percent(fairest.price)} of the mean"
    # A price within the error is no price.
    if not found.is_dearer(fairest):
        cost = f"and what it costs of the mean ({words.percent(fairest.price)}) cannot be told from nothing"
    second = f"The plan for {fairest.welfare} lifts it to {words.number(fairest.worst)}, {cost}."
    return [f"{first} {second}", _gains_and_losses(found, fairest)]


def _gains_and_losses(found: Fairness, row: FairnessRow) -> str:
    """Who gains most and who loses most, beyond what chance explains."""
    best = found.rows[0]
    sure = {
        name: gain
        for name, gain in row.gains.items()
        # Three errors of both plans, and more than rounding.
        if abs(gain) > 3 * (best.values_stderr[name] + row.values_stderr[name]) + 1e-6 * abs(best.values[name])
    }
    up = [name for name in sorted(sure, key=lambda name: -sure[name]) if sure[name] > 0]
    down = [name for name in sorted(sure, key=lambda name: sure[name]) if sure[name] < 0]
    told = [_most(names, verb, sure[names[0]], found.who) for verb, names in (("gain", up), ("lose", down)) if names]
    return " ".join(told) or "Nobody gains or loses beyond what chance explains."


def _most(names: list[str], verb: str, gain: float, who: str) -> str:
    """As `Opel gains most (5.299 an arm), and two other types gain, too`."""
    each = " an arm" if who == "type" else ""
    first = f"{names[0]} {verb}s{' most' if len(names) > 1 else ''} ({words.number(abs(gain))}{each})"
    rest = len(names) - 1
    others = f"{words.spelled(rest)} other {who}{'s' if rest > 1 else ''} {verb}{'' if rest > 1 else 's'}, too"
    return words.capitalised(f"{first}, and {others}." if rest else f"{first}.")


def _cards(found: Fairness) -> list[tuple[str, str, str]]:
    best, fairest, who = found.rows[0], _fairest(found), words.member(found.problem)
    return [
        ("Best mean", words.number(best.mean), best.welfare),
        (
            f"Its worst-off {who}",
            words.number(best.worst),
            f"Gini coefficient {words.number(best.gini_coefficient, 3)}",
        ),
        (f"Worst-off {who}, at best", words.number(fairest.worst), fairest.welfare),
        ("Its price", words.percent(fairest.price), _of_the_mean(found, fairest)),
    ]


def _of_the_mean(found: Fairness, row: FairnessRow) -> str:
    told = row is found.rows[0] or found.is_dearer(row)
    return "of the mean" if told else "of the mean; it cannot be told from 0"


def _taken_over(found: Fairness) -> list[str]:
    # Told, so that nobody wonders about a plan for another welfare in a row.
    return [
        f"For {row.welfare} the plan for {row.plan_of} is shown: it is better than the one found for {row.welfare}."
        for row in found.rows
        if row.plan_of != row.welfare
    ]


def _reading(found: Fairness) -> list[tuple[str, str]]:
    who = words.member(found.problem)
    entries = [
        ("Best for", "The plan in this row was chosen to make this welfare as large as possible."),
        ("Price", "The share of the best mean that the plan gives up."),
        (f"Mean and worst {who}", f"The average value of the {who}s, and the value of the one that is worst off."),
        ("Gini coefficient", f"How unequal the values are: 0 when all {who}s have the same."),
        ("By …", "What each welfare makes of the plan. In the column of a welfare, the plan chosen for it is in bold."),
    ]
    if not all(row.exact for row in found.rows):
        entries.append(
            ("±", "A standard error: the plan was played by simulation. All plans met the same chance events.")
        )
    number = num_members(found.problem)
    meanings = [(row.welfare, words.welfare_words(row.solution.objective.welfare, who, number)) for row in found.rows]
    return [*entries, *meanings]


def _making(seed: int | None) -> str:
    told = f"It was computed with evenhand {__version__}."
    return (
        told
        if seed is None
        else f"{told} Randomness started from the seed {seed}: the same seed gives the same figures."
    )


# Tables


def results_table(found: Fairness) -> Table:
    """A row a welfare: its plan, and what all of them make of it."""
    # The mean and the worst-off have columns already.
    names = [row.welfare for row in found.rows if row.welfare not in SHOWN_OTHERWISE]
    decimals = words.decimals_of([value for row in found.rows for value in row.by.values()])
    heads = ["Best for", "Mean", "Price", f"Worst {words.member(found.problem)}", "Gini coefficient"]
    heads += [f"By {name}" for name in names]
    rows = []
    for row in found.rows:
        cells = [
            Cell(words.number_text(row.mean, decimals), is_strong=row.welfare == "utilitarian"),
            Cell(words.percent(row.price)),
            Cell(words.number_text(row.worst, decimals), is_strong=row.welfare in SHOWN_OTHERWISE[1:]),
            Cell(words.number_text(row.gini_coefficient, 3)),
            *(Cell(words.number_text(row.by[name], decimals), is_strong=name == row.welfare) for name in names),
        ]
        error = row.by_stderr[row.welfare]
        # Proved, or exact without a proof, or an estimate with its error.
        note = "proved to be the best" if row.is_proved else "" if row.exact else f"±\u00a0{words.number(error, 2)}"
        rows.append(TableRow(row.welfare, tuple(cells), note=note))
    caption = "Each plan, weighed by every welfare"
    return Table(caption, tuple(Cell(head) for head in heads), tuple(rows))


def values_table(found: Fairness) -> Table:
    """A row a type or group: what it has under each plan, and how much that is beside the best mean."""
    each = "Value of an arm" if found.who == "type" else "Value of a group, the mean of its arms"
    return _values(found, found.who, each, found.counts, [row.values for row in found.rows])


def groups_table(found: Fairness) -> Table | None:
    """The same of the model's groups, where welfare is over arms; None where there are none."""
    if not found.group_sizes:
        return None
    each = "Value of a group, the mean of its arms"
    return _values(found, "group", each, found.group_sizes, [row.groups for row in found.rows])


def _values(found: Fairness, who: str, each: str, sizes: dict[str, int], plans: list[dict[str, float]]) -> Table:
    first, *others = plans
    decimals = words.decimals_of([value for values in plans for value in values.values()])
    rows = []
    # The first few; the rest is counted in the caption.
    for name, count in list(sizes.items())[:MOST_TYPES]:
        cells = [Cell(f"{count:,}"), Cell(words.number_text(first[name], decimals))]
        for values in others:
            value, gain = (words.number_text(one, decimals) for one in (values[name], values[name] - first[name]))
            is_more = values[name] > first[name] and gain.strip("0.") != ""  # what is rounded to nothing has no sign
            cells.append(Cell(f"{value} ({'+' if is_more else ''}{gain})"))
        rows.append(TableRow(name, tuple(cells)))
    heads = (Cell(words.capitalised(who)), Cell("Arms"), *(Cell(row.welfare) for row in found.rows))
    more = len(sizes) - MOST_TYPES
    left = f"; {more:,} more are not shown" if more > 0 else ""
    return Table(f"{each}, and what that is more or less than for {found.rows[0].welfare}{left}", heads, tuple(rows))


# Figures


def _values_figure(found: Fairness) -> str:
    """The value of an arm of each type or group, a row a welfare."""
    told = "; ".join(
        f"{row.welfare} from {words.number(row.worst)}, mean {words.number(row.mean)}" for row in found.rows
    )
    label = f"Values by {found.who}: {told}"
    return drawn("values", label, _values_height(found), lambda figure: _draw_values(figure, found))


def fairness_picture(found: Fairness, kind: str) -> Picture:
    """What `Fairness.plot` gives: the figures of the page.

    Args:
        found: what came out.
        kind: `values` or `trade`.
    """
    if kind == "values":
        return pictured(_values_height(found), lambda figure: _draw_values(figure, found))
    if kind == "trade":
        return pictured(3.2, lambda figure: _draw_trade(figure.subplots(), _places(found), found))
    raise InvalidInput(f"kind: expected 'values' or 'trade', got {kind!r}")


def _values_height(found: Fairness) -> float:
    return 1.0 + 0.36 * len(found.rows) + (0.25 if len(found.counts) <= len(MARKS) else 0.0)


def _draw_values(figure: "Figure", found: Fairness) -> None:
    axes, few = figure.subplots(), len(found.counts) <= len(MARKS)
    names = list(found.counts)
    for y, row in enumerate(found.rows):
        values = list(row.values.values())
        axes.plot([min(values), max(values)], [y, y], color="#b5b5b5", linewidth=1.2, solid_capstyle="round")
        for index, value in enumerate(values):
            # With few types each has its mark; with many a dot is enough.
            colour, shape = MARKS[index] if few else (BLUE, "o")
            # A little above each other, so that equal values do not hide each other.
            shift = (index - (len(values) - 1) / 2) * min(0.2, 0.6 / len(values)) if few else 0.0
            axes.plot(
                [value], [y + shift], shape, color=colour, markersize=5.5, markeredgecolor="white", markeredgewidth=0.5
            )
        axes.plot([row.mean], [y], "|", color=INK, markersize=11, markeredgewidth=1.4, zorder=5)
    axes.plot([], [], "|", color=INK, markersize=9, markeredgewidth=1.4, label="mean")
    if few:
        for (colour, shape), name in zip(MARKS, names, strict=False):
            axes.plot([], [], shape, color=colour, markersize=5, linestyle="", label=words.shortened(name, 22))
    axes.set_yticks(range(len(found.rows)), [words.shortened(row.welfare, 22) for row in found.rows])
    axes.set_ylim(len(found.rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.margins(x=0.04)
    axes.set_xlabel("value of an arm" if found.who == "type" else "value of a group")
    figure.legend(loc="outside lower center", ncols=4, handletextpad=0.3, columnspacing=1.4)


def _trade_figure(found: Fairness) -> str | None:
    """What the worst-off has against the mean; None where all plans do the same."""
    places = _places(found)
    if len(places) < 2:
        return None
    told = "; ".join(f"{row.welfare} {words.number(row.mean)} and {words.number(row.worst)}" for row in found.rows)
    label = f"Mean and worst-off by welfare: {told}"
    return drawn("trade", label, 3.2, lambda figure: _draw_trade(figure.subplots(), places, found))


def _places(found: Fairness) -> list[list[FairnessRow]]:
    """The rows by where they stand in the figure: those that cannot be told apart by eye together."""
    places: dict[tuple[str, str], list[FairnessRow]] = {}
    for row in found.rows:
        # Three digits: nearer than that two marks are one.
        places.setdefault((f"{row.mean:.3g}", f"{row.worst:.3g}"), []).append(row)
    return list(places.values())


def _draw_trade(axes: "Axes", places: list[list[FairnessRow]], found: Fairness) -> None:
    who = words.member(found.problem)
    means = [rows[0].mean for rows in places]
    middle = (min(means) + max(means)) / 2
    for (colour, shape), rows in zip(MARKS * len(places), places, strict=False):
        at = rows[0].mean, rows[0].worst
        axes.plot(*at, shape, color=colour, markersize=7, markeredgecolor="white")
        # To the side that has more room.
        side = at[0] <= middle
        axes.annotate(
            words.shortened(", ".join(row.welfare for row in rows), 40),
            at,
            xytext=(7 if side else -7, 0),
            textcoords="offset points",
            ha="left" if side else "right",
            va="center",
            fontsize=8,
        )
    axes.axvline(max(means), color=FAINT, linewidth=0.7, linestyle=(0, (4, 2)))
    axes.set(xlabel=f"mean value of the {who}s", ylabel=f"value of the worst-off {who}")
    axes.grid()
    axes.margins(x=0.12, y=0.12)
