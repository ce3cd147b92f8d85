"""The page of a comparison: one HTML file without scripts and without anything from elsewhere, for screens and paper.

What is said is put together here and in `words`, `tables` and `figures`; how it is set is in `templates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenhand._version import __version__
from evenhand.evaluation.evaluate import Evaluation
from evenhand.model.io import Location, write_atomically
from evenhand.model.objective import num_members
from evenhand.model.simulator import Problem
from evenhand.planning.compare import Comparison, Row
from evenhand.report import figures, tables, words
from evenhand.report.rendering import render
from evenhand.typing import Progress


def write_comparison(
    comparison: Comparison,
    problem: Problem,
    path: Location,
    title: str | None = None,
    command: str = "",
    progress: Progress | None = None,
    seed: int | None = None,
) -> None:
    """Write the page of a comparison into a file, wholly or not at all.

    Args:
        comparison: what came out.
        problem: what it came out for.
        path: the HTML file; one that is there is replaced.
        title: the heading; one is made up when absent.
        command: what a person typed to get here, told at the end of the page.
        progress: called now and then with what is being done and the share that is done.
        seed: where the randomness started, if that is known.
    """
    page = comparison_page(comparison, problem, title, command, progress, seed)
    write_atomically(path, page.encode("utf-8", errors="replace"))
    if progress is not None:
        progress("report", 1.0)


def comparison_page(
    comparison: Comparison,
    problem: Problem,
    title: str | None = None,
    command: str = "",
    progress: Progress | None = None,
    seed: int | None = None,
) -> str:
    """The page of a comparison; arguments as of `write_comparison`."""
    # Before they are shown at the bound: who was estimated above it is told at the end.
    ties = [row for row in comparison.rows if comparison.is_above_bound(row)]
    comparison = comparison.as_shown()
    heading = title or f"Comparison of {words.counted(len(comparison.rows), 'policy', 'policies')}"
    if progress is not None:
        progress("figures", 0.0)
    # Figures take most of the time.
    drawings = _drawings(comparison, problem) if comparison.rows else []
    if progress is not None:
        progress("report", 0.8)
    types = tables.types_table(problem)
    return render(
        "comparison.html",
        title=heading,
        lead=[" ".join(sentences) for sentences in words.summary(comparison, problem)],
        cards=_cards(comparison, problem) if comparison.rows else [],
        results=tables.results_table(comparison, problem) if comparison.rows else None,
        draws=tables.draws_table(comparison),
        floors_missed=tables.floors_missed(comparison, problem),
        left_out=_left_out(comparison),
        left_out_words=_left_out_words(comparison),
        no_bound=comparison.no_bound,
        drawings=drawings,
        problem=words.problem_words(problem),
        types=types,
        more_types=tables.more_types(problem) if types else "",
        reading=_reading(comparison, problem) + _ties(ties, comparison),
        command=command,
        making=" ".join(_making(comparison, seed)),
    )


# The parts


def _cards(comparison: Comparison, problem: Problem) -> list[tuple[str, str, str]]:
    """Term, figure and a remark."""
    best = comparison.rows[0]
    found, bound = best.evaluation, comparison.upper_bound
    sure = "exact" if found.exact else f"± {words.number(found.welfare_stderr, 2)}"
    entries = [("Best policy", best.policy, words.abbreviation_and_summary(best.policy)[0])]
    entries.append(("Its welfare", words.number(found.welfare), sure))
    # A share of a bound that is not positive would mislead: the Gini coefficient takes the place.
    if bound is not None and bound > 0:
        share = words.percent(1 - words.gap_to(bound, found.welfare), 2)
        entries.append((f"Of the {words.bound_title(comparison)}", share, f"which is {words.number(bound)}"))
    elif problem.num_arms > 1:
        entries.append(
            ("Its Gini coefficient", words.number_text(found.gini_coefficient, 3), "0 if all arms are equal")
        )
    if problem.num_arms > 1:
        note = "all arms are equal" if words.is_level(found) else f"mean {words.number(found.mean)}"
        entries.append((f"Its worst-off {words.member(problem)}", words.number(found.worst), note))
    return entries


def _left_out(comparison: Comparison) -> list[tuple[str, str]]:
    """The policies that do not apply, each with the reason."""
    return sorted(comparison.policies_left_out.items())


def _left_out_words(comparison: Comparison) -> str:
    count = len(_left_out(comparison))
    return f"{'One policy does' if count == 1 else f'{count} policies do'} not apply to this problem:"


@dataclass(frozen=True)
class Drawing:
    """A section with a figure, or with words in its place."""

    title: str
    picture: str | None
    """SVG."""
    words: str
    """The caption, or what there is to say without a figure."""
    table: tables.Table | None = None
    groups: tables.Table | None = None


def _drawings(comparison: Comparison, problem: Problem) -> list[Drawing]:
    found = [Drawing("Welfare", figures.welfare_figure(comparison), _welfare_caption(comparison))]
    if problem.num_arms > 1:
        found.append(_spread(comparison, problem))
    # Left out where all curves are nearly straight.
    if curves := figures.lorenz_figure(comparison):
        found.append(Drawing("How evenly it is shared", curves, _lorenz_caption(comparison)))
    return found


def _welfare_caption(comparison: Comparison) -> str:
    # Bars to the left of 0 are not longer but worse.
    positive = all(row.evaluation.welfare >= 0 for row in comparison.rows)
    caption = "Longer is better." if positive else "Further to the right is better."
    if any(not row.evaluation.exact for row in comparison.rows):
        caption += " Black whiskers are 95\u00a0% confidence intervals of simulated figures."
    if comparison.upper_bound is not None:
        caption += f" The dashed line is the {words.bound_title(comparison)}: no policy can get beyond it."
    return caption


def _spread(comparison: Comparison, problem: Problem) -> Drawing:
    title, picture = "Who gets how much", figures.spread_figure(comparison, problem)
    if picture is None:
        return Drawing(title, None, _level_words(comparison, problem))
    return Drawing(
        title,
        picture,
        _spread_caption(comparison, problem),
        tables.values_table(comparison, problem),
        tables.groups_table(comparison, problem),
    )


def _level_words(comparison: Comparison, problem: Problem) -> str:
    alike = "All arms are identical, and" if problem.is_symmetric else "Although the arms differ,"
    policies = "every policy" if len(comparison.rows) > 1 else "the policy"
    return (
        f"{alike} {policies} gives each arm the same value: nobody is worse off than anybody else, and welfare, "
        "mean and worst arm are one number."
    )


def _spread_caption(comparison: Comparison, problem: Problem) -> str:
    found = [row.evaluation for row in comparison.rows]
    # Policies may be shown in either way: by dots, or by bands where there are many units.
    dots, bands = any(map(figures.shows_dots, found)), not all(map(figures.shows_dots, found))
    caption = "One row a policy, worse-off arms to the left; the thin line runs from the worst to the best arm."
    if dots:
        # Dots are units: types where arms of a type fare alike.
        grouped = problem.num_types < problem.num_arms and any(each.by_type for each in found)
        caption += " A dot is an arm" + (", or all arms of a type that fare alike." if grouped else ".")
    if bands:
        caption += " The thick line holds the middle half of the arms."
    # A single episode has no error to tell.
    errors = [float(each.unit_stderr.max()) for each in found if not each.exact]
    if errors and np.isfinite(errors).all():
        caption += f" Simulated values have standard errors of up to {words.number(max(errors), 2)}."
    return caption


def _lorenz_caption(comparison: Comparison) -> str:
    # The caption must say which ones, where not all are shown.
    shown = len(figures.lorenz_rows(comparison.rows))
    which = " Shown are the best, the most equal and the most unequal policy." if shown < len(comparison.rows) else ""
    return (
        "Sort the arms from worst to best and add up what they have: the further a curve hangs below the straight "
        f"line, the more unequal the shares.{which}"
    )


def _reading(comparison: Comparison, problem: Problem) -> list[tuple[str, str]]:
    name = words.shortened(comparison.welfare.name, 60)
    entries = [
        ("Policy", "A rule that decides at every step which arms are served, and how."),
        (
            f"Welfare ({name})",
            "One number for how well all arms do, fairness included; policies are ranked by it. "
            + words.welfare_words(comparison.welfare, words.member(problem), num_members(problem)),
        ),
    ]
    if comparison.upper_bound is not None:
        entries.append(_bound_entry(comparison))
    return [
        *entries,
        (
            f"Mean and worst {words.member(problem)}",
            f"The average value of the {words.member(problem)}s, and the value of the one that is worst off.",
        ),
        (
            "Gini coefficient",
            "How unequal the values are: 0 when all arms have the same, near 1 when one of many has everything. "
            "It says nothing about how much there is to share: a policy can be very equal and bad for all.",
        ),
        ("Budget used", f"The share of what could be used that was used{words.weights_of_time(problem)}."),
        *_precision(comparison),
        ("Time", "How long it took to measure the policy, not to run it in practice."),
    ]


def _bound_entry(comparison: Comparison) -> tuple[str, str]:
    if comparison.bound_name == "optimum":
        return "Optimum", "The largest welfare that any policy whatever can have, by an exact computation."
    kind = f" (here by the method “{comparison.bound_name}”)" if comparison.bound_name else ""
    return (
        "Upper bound",
        f"A number that provably no policy can exceed{kind}. The true optimum is at or below it, "
        "so a policy may be closer to the best than it seems.",
    )


def _ties(ties: Sequence[Row], comparison: Comparison) -> list[tuple[str, str]]:
    """Who was estimated above what no policy exceeds, as a reader of the table should know."""
    if not ties:
        return []
    played = words.listed([f"{row.policy} {_with_error(row.evaluation)}" for row in ties])
    top = words.bound_title(comparison)
    return [
        (
            "Tie",
            f"The simulation gave {played}, more than the {top}, which only chance can do. The page shows the {top} "
            "itself in its place.",
        )
    ]


def _with_error(found: Evaluation) -> str:
    return f"{words.number(found.welfare)}\u00a0±\u00a0{words.number(found.welfare_stderr, 2)}"


def _precision(comparison: Comparison) -> list[tuple[str, str]]:
    """Exact, simulated and cut off: only what occurs on this page."""
    found = [row.evaluation for row in comparison.rows]
    entries = []
    # Only what occurs is explained.
    if any(each.exact for each in found):
        entries.append(("Exact", "Computed by solving equations: no chance is involved."))
    if not all(each.exact for each in found):
        entries.append(
            (
                "Standard error",
                "The policy was played many times by simulation, and the figure is the average. The true one is "
                "most likely (95\u00a0%) within two standard errors of it. All policies met the same chance events.",
            )
        )
        if left_out := words.truncation_words(found):
            entries.append(left_out)
    return entries


def _making(comparison: Comparison, seed: int | None) -> list[str]:
    sentences = [f"It was computed with evenhand {__version__}.", *_plays(comparison)]
    if seed is not None:
        sentences.append(f"Randomness started from the seed {seed}: the same seed gives the same figures.")
    return sentences


def _plays(comparison: Comparison) -> list[str]:
    found = [row.evaluation for row in comparison.rows]
    exact = sum(each.exact for each in found)
    # Policies may have been played for different lengths.
    lengths = sorted({(each.num_episodes or 0, each.horizon or 0) for each in found if not each.exact})
    sentences = []
    if exact:
        sentences.append(f"{words.counted(exact, 'policy was', 'policies were')} evaluated exactly.")
    for episodes, horizon in lengths:
        count = sum((each.num_episodes, each.horizon) == (episodes, horizon) for each in found)
        plays = f"{words.counted(episodes, 'episode')} of {words.counted(horizon, 'step')}"
        sentences.append(f"{words.counted(count, 'policy was', 'policies were')} simulated: {plays} each.")
    return sentences
