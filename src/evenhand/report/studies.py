"""A study: its summary, its figure and its LaTeX table."""

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.planning.study import PairedTests, Study, StudyRow
from evenhand.report.format import UNKNOWN, decimals_of, fixed, percent
from evenhand.report.summary import MOST_ROWS, Summary, summary_of, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from evenhand.report.plots import NotebookFigure


@summary_of.register
def _(study: Study) -> Summary:
    """One row per problem, size and policy."""
    decimals = decimals_of([row.welfare for row in study.rows])
    rows = []
    for row in study.rows[:MOST_ROWS]:
        error = "" if row.exact else fixed(row.welfare_stderr, None if decimals is None else decimals + 1)
        bound = UNKNOWN if row.upper_bound is None else fixed(row.upper_bound, decimals)
        rows.append([row.problem, str(row.size), row.policy, fixed(row.welfare, decimals), error, bound])
        rows[-1].append(percent(row.share_of_bound, 2))
    heads = ["problem", "size", "policy", "welfare", "±", "bound", "share of bound"]
    tables = [table("", heads, rows, len(study.rows) - MOST_ROWS, text=("policy",))]
    seeds = f"{counted(len(study.seeds), 'seed')}; ± is the standard error of simulated figures, the others are exact"
    notes = [f"{name} is left out: {reason}" for name, reason in list(study.left_out.items())[:MOST_ROWS]]
    return Summary(f"Study, welfare {study.welfare}", seeds, tables=tables, notes=notes)


@summary_of.register
def _(found: PairedTests) -> Summary:
    """One row per test."""
    rows = []
    for row in found.rows[:MOST_ROWS]:
        figures = [f"{row.difference:+.4g}", f"{row.stderr:.2g}", f"{row.p:.2g}", f"{row.p_holm:.2g}"]
        rows.append([row.problem, str(row.size), f"{row.first} less {row.second}", *figures])
    heads = ["problem", "size", "policies", "difference", "±", "p", "p (Holm)"]
    tables = [table("", heads, rows, len(found.rows) - MOST_ROWS, text=("policies",))]
    return Summary(f"Paired {found.test} tests", f"over {counted(found.num_seeds, 'seed')}", tables=tables)


# -- the figure ------------------------------------------------------------------------------------------------------


def study_figure(study: Study, quantity: str) -> "NotebookFigure":
    """Return curves against the size, one panel per problem."""
    from evenhand.report.plots import Plot, figure_of  # they load all results that have a figure

    measure = _measure(study, quantity)
    names = list(dict.fromkeys(row.problem for row in study.rows))
    policies = list(dict.fromkeys(row.policy for row in study.rows))

    def draw(figure: "Figure") -> None:
        """Draw the panels and one legend."""
        panels = figure.subplots(len(names), squeeze=False)[:, 0]
        for panel, name in zip(panels, names, strict=True):
            _draw_panel(panel, [row for row in study.rows if row.problem == name], policies, quantity, measure)
            if len(names) > 1:
                panel.set_title(name, fontsize=9, loc="left")
        panels[-1].set_xlabel("size")
        handles = {
            label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, columnspacing=1.4)

    return figure_of(Plot(0.7 + 2.2 * len(names) + 0.2 * math.ceil(len(policies) / 3), draw))


def _draw_panel(
    axes: "Axes",
    rows: Sequence[StudyRow],
    policies: Sequence[str],
    quantity: str,
    measure: Callable[[StudyRow], tuple[float, float]],
) -> None:
    """Draw the curves of one problem, and its bound."""
    from matplotlib.ticker import NullLocator

    from evenhand.report.plots import FAINT, INK, MARKS

    for place, policy in enumerate(policies):
        own = sorted((row for row in rows if row.policy == policy), key=lambda row: row.size)
        points = np.array([(row.size, *measure(row)) for row in own if math.isfinite(measure(row)[0])])
        if not len(points):
            continue
        x, y, errors = points.T
        errors = np.where(np.isfinite(errors), CONFIDENCE * errors, 0.0)
        colour, shape = MARKS[place % len(MARKS)]
        dashes = ("-", (0, (5, 2)), (0, (1.5, 1.5)))[place // len(MARKS) % 3]
        style: dict[str, Any] = {"marker": shape, "markersize": 4.5, "linewidth": 1.2, "capsize": 2}
        axes.errorbar(x, y, errors, color=colour, linestyle=dashes, label=policy, **style)
    bounds = {row.size: row.upper_bound for row in rows if row.upper_bound is not None}
    if quantity != "welfare" and bounds:
        axes.axhline(
            100 if quantity == "share" else 0, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label="upper bound"
        )
    elif bounds:
        sizes = sorted(bounds)
        axes.plot(sizes, [bounds[size] for size in sizes], "_--", color=INK, linewidth=0.9, label="upper bound")
    sizes = sorted({row.size for row in rows})
    if sizes[-1] >= 8 * sizes[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_ylabel({"share": "share of bound, %", "gap": "gap to the bound, %"}.get(quantity, quantity))
    axes.grid(axis="y")
    axes.spines["bottom"].set_color(FAINT)


def _measure(study: Study, quantity: str) -> Callable[[StudyRow], tuple[float, float]]:
    """Return a function of a row: the quantity and its standard error."""
    measures: dict[str, Callable[[StudyRow], tuple[float, float]]] = {
        "share": lambda row: (100 * row.share_of_bound, 100 * row.gap_stderr),
        "gap": lambda row: (100 * row.gap, 100 * row.gap_stderr),
        "welfare": lambda row: (row.welfare, row.welfare_stderr),
    }
    if quantity not in measures:
        raise InvalidInputError(f"quantity: expected 'share', 'gap' or 'welfare', got {quantity!r}")
    if not any(math.isfinite(measures[quantity](row)[0]) for row in study.rows):
        reason = "a share needs a positive upper bound, a gap any but 0"
        raise NotApplicableError(f"no problem of this study has a {quantity}: {reason}. Use 'gap' or 'welfare'")
    return measures[quantity]


# -- the table -------------------------------------------------------------------------------------------------------

_SPECIAL = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def escaped(text: str) -> str:
    """Return text for LaTeX."""
    return re.sub(r"[\\&%$#_{}~^]", lambda found: _SPECIAL[found[0]], text)


def study_latex(study: Study, quantity: str) -> str:
    """Return a booktabs table: one row per problem and size, one column per policy, and the bound."""
    measure = _measure(study, quantity)
    policies = list(dict.fromkeys(row.policy for row in study.rows))
    heads = ["problem", "size", *map(escaped, policies), "upper bound"]
    lines = [rf"\begin{{tabular}}{{lr{'r' * len(policies)}r}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    last = ""
    for problem, size in dict.fromkeys(row[:2] for row in study.rows):
        rows = {row.policy: row for row in study.rows if row[:2] == (problem, size)}
        decimals = decimals_of([measure(row)[0] for row in study.rows if row.problem == problem]) or 0
        # Of values that look alike, all are in bold.
        shown = {policy: f"{measure(row)[0]:.{decimals}f}" for policy, row in rows.items()}
        first = min if quantity == "gap" else max
        best = first((float(text) for text in shown.values() if text != "nan"), default=math.nan)
        cells = [escaped(problem) if problem != last else "", str(size)]
        for policy in policies:
            if policy not in rows or shown[policy] == "nan":
                cells.append("--")
                continue
            text = rf"\mathbf{{{shown[policy]}}}" if float(shown[policy]) == best else shown[policy]
            error = "" if rows[policy].exact else rf" \pm {measure(rows[policy])[1]:.2g}"
            cells.append(f"${text}{error}$")
        bound = next(iter(rows.values())).upper_bound
        shown_bound = {"share": 100.0, "gap": 0.0}.get(quantity, bound)
        cells.append("--" if bound is None or shown_bound is None else f"${shown_bound:.{decimals}f}$")
        lines.append(" & ".join(cells) + r" \\")
        last = problem
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
