"""From the records of a run to sheets: figures are looked up, put in their places and averaged over seeds.

Which sheets a target has follows from the kinds of its cells:

    optimum, fluid, named-policy, train   "welfare": a row a size, a column a method; "curve": learning curves
    timing                                "seconds": by number of arms; "shares": by share of arms that can be served
    lp                                    "sizes", "times": a row a quantity, a column a size
    fairness                              by instance: "outcomes": a row an idea of fairness; "groups": who gets what
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from evenhand.experiments.outcomes import (
    FairnessValues,
    Figures,
    FluidValues,
    OptimumValues,
    ProgramValues,
    TrainValues,
)
from evenhand.experiments.spec import Target
from evenhand.report.reproduction.found import Found
from evenhand.report.reproduction.points import (
    At,
    Point,
    PublishedFigures,
    entries,
    place_of,
    published_by_place,
    row_order,
)
from evenhand.report.reproduction.sheets import Entry, Sheet
from evenhand.report.words import capitalised

STAGES = {
    "data": "Data build",
    "build": "LP build",
    "solve": "LP solve",
    "wallclock": "LP solve, wall clock",
    "extract": "LP extract",
    "total": "Total",
}
SIZES = {"constraints": "Constraints", "variables": "Variables"}
SAME_AS_OUTCOME = ("utilitarian", "maximin")
"""Measures that are the mean and the worst-off arm."""

OUTCOMES = {"mean": "mean", "worst": "worst-off arm", "gini_coefficient": "Gini coefficient"}


def target_sheets(target: Target, cells: Sequence[Found]) -> tuple[Sheet, ...]:
    """The sheets of a target; those without an entry are left out."""
    sheets = [sheet for make in MAKERS for sheet in make(target, cells)]
    return tuple(sheet for sheet in sheets if sheet.entries)


# Welfare


KIN = {"WIP": "WIP exact", "CP-DRL": "CP-DRL(PS)", "V-DRL": "V-DRL(idle)"}
"""Methods of ours that are shown beside the figures of the paper's method."""

WELFARE_KINDS = ("optimum", "fluid", "named-policy", "train")


def welfare_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Welfare by size and method, and the learning curves of a target that is about them."""
    own = [cell for cell in cells if cell.kind in WELFARE_KINDS]
    # A linear program has its own sheets; its optimum is told there.
    if not own or any(cell.kind == "lp" for cell in cells):
        return []
    points = [point for cell in own for point in welfare_points(cell)]
    columns = {point.column for point in points}
    # Ours beside the paper's method: its published figures are shown with both.
    aliases = {method: [kin] for method, kin in KIN.items() if kin in columns}
    published = published_by_place(target, "welfare", aliases)
    made = tuple(_by_method(entries(points, published), [cell.planned.method for cell in own]))
    sheets = [Sheet("welfare", f"{target.title}: welfare (GGF)", made)]
    if target.curves:
        curve = tuple(entries((point for cell in own for point in curve_points(cell)), {}))
        # A curve is drawn, not tabulated.
        sheets.append(Sheet("curve", "Learning curves", curve, shown=lambda entry: False))
    return sheets


def _by_method(made: Iterable[Entry], methods: Sequence[str]) -> list[Entry]:
    """Columns in the order of the paper's, what it does not have behind its nearest kin."""
    order = {column: index for index, column in enumerate(ORDER)}
    # What the paper has in its order, then as the target names them.
    plan = {method: len(order) + index for index, method in enumerate(dict.fromkeys(methods))}
    rank = plan | order
    return sorted(made, key=lambda entry: (row_order(entry.at), rank.get(entry.column, len(rank))))


ORDER = (
    "fluid bound",
    "OPT",
    "WIP",
    "WIP exact",
    "CP-DRL",
    "CP-DRL(PS)",
    "CP-DRL(MT)",
    "CP-DRL(SC)",
    "PPO",
    "TD3",
    "SAC",
    "V-DRL",
    "V-DRL(idle)",
)
"""The order of the columns that the paper's tables have, others follow as the target names them."""


def welfare_points(cell: Found) -> Iterator[Point]:
    """The welfare of a cell; a network that was evaluated on several sizes has a point for each."""
    at, method = place_of(cell.planned.instance), cell.planned.method
    values = None if cell.outcome is None else cell.outcome.values
    if cell.kind == "train":
        yield from _trained_points(cell, at)
    elif isinstance(values, FluidValues):
        yield Point(at, method, values.upper_bound)
    elif isinstance(values, OptimumValues):
        yield Point(at, method, values.welfare)
    elif isinstance(values, Figures):
        yield _evaluated(at, method, values)
    else:
        yield Point(at, method, trouble=cell.trouble)


def _trained_points(cell: Found, at: At) -> Iterator[Point]:
    planned = list(cell.settings.get("evaluate") or [{}])
    # A network for several sizes, or trained on a range of them, has a row for each size.
    several = len(planned) > 1 or ".." in cell.planned.instance
    places = [(("num_arms", int(size["num_arms"])),) if several else at for size in planned]
    found = cell.outcome.values.evaluations if cell.outcome and isinstance(cell.outcome.values, TrainValues) else ()
    for index, place in enumerate(places):
        if index < len(found):
            yield _evaluated(place, cell.planned.method, found[index])
        else:
            # A cell that failed has a trouble for every size that it should have had.
            yield Point(place, cell.planned.method, trouble=cell.trouble or "no evaluation was recorded")


def _evaluated(at: At, method: str, figures: Figures) -> Point:
    stderr = 0.0 if figures.exact else figures.stderr or 0.0
    return Point(at, method, figures.welfare, figures.plug_in, figures.exact, stderr)


def curve_points(cell: Found) -> Iterator[Point]:
    """The learning curve of a cell, by episode."""
    values = None if cell.outcome is None else cell.outcome.values
    if isinstance(values, TrainValues):
        horizon = float(cell.settings.get("horizon") or 1)
        for steps, score in values.curve:
            if score is not None:
                at = (*place_of(cell.planned.instance), ("episode", round(steps / horizon, 2)))
                yield Point(at, cell.planned.method, score, exact=values.exact)


# Times


def timing_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Time per episode, by number of arms at one share of the budget, and by share at one number of arms."""
    own = [cell for cell in cells if cell.kind == "timing"]
    if not own:
        return []
    sizes = {id(cell): _size_and_share(cell) for cell in own}
    # The sheet by size is at one share of the budget: the one with most sizes.
    share = _widest(sizes.values())
    # Sizes that were timed at several budgets make the other sheet.
    swept = {size for size, _ in sizes.values() if len({b for a, b in sizes.values() if a == size}) > 1}
    by_size = [_timing_point(c, (("num_arms", sizes[id(c)][0]),)) for c in own if sizes[id(c)][1] == share]
    by_share = [_timing_point(c, (("budget_share", sizes[id(c)][1]),)) for c in own if sizes[id(c)][0] in swept]
    caption = f"Time per episode of {own[0].settings.get('horizon', 300)} steps"
    fixed = f" (N = {', '.join(f'{size:g}' for size in sorted(swept))})"
    return [
        Sheet(
            "seconds", f"{caption}, by number of machines (b/N = {share:g})", tuple(entries(by_size, {})), "duration"
        ),
        Sheet("shares", f"{caption}, by budget{fixed}", tuple(entries(by_share, {})), "duration"),
    ]


def _size_and_share(cell: Found) -> tuple[int, float]:
    """How many machines were timed, and the share that can be replaced."""
    parameters = cell.settings.get("parameters") or {}
    size, budget = int(parameters.get("num_arms", 1)), float(parameters.get("budget", 1))
    return size, round(budget / size, 6)


def _widest(sizes: Iterable[tuple[int, float]]) -> float:
    """The share at which most numbers of machines were timed."""
    by_share: dict[float, set[int]] = {}
    for size, share in sizes:
        by_share.setdefault(share, set()).add(size)
    return max(by_share, key=lambda share: len(by_share[share]))


def _timing_point(cell: Found, at: At) -> Point:
    seconds, deviation = cell.timing("per_episode"), cell.timing("per_episode_deviation")
    return Point(at, cell.planned.method, seconds, deviation=deviation, trouble=cell.trouble)


# Linear programs


def program_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Sizes and times of a linear program."""
    own = [cell for cell in cells if cell.kind == "lp"]
    if not own:
        return []
    others = [cell for cell in cells if cell.kind == "optimum"]
    sizes = [point for cell in own for point in _size_points(cell)]
    # Another way to the same optimum is told beside the program.
    times = [point for cell in own for point in _stage_points(cell)] + [_other_total(cell) for cell in others]
    paper_sizes = _published_rows(target, SIZES)
    paper_times = _published_rows(target, STAGES)
    return [
        Sheet("sizes", f"{target.title}: sizes", _ordered(entries(sizes, paper_sizes)), "count"),
        Sheet("times", f"{target.title}: seconds", _ordered(entries(times, paper_times)), "seconds", "ratio", 4),
    ]


def _column(instance: str) -> str:
    """`N=2` as the head of a column."""
    return instance.replace("=", " = ") if " " not in instance else instance


def _size_points(cell: Found) -> Iterator[Point]:
    column, values = _column(cell.planned.instance), None if cell.outcome is None else cell.outcome.values
    # First as the paper counts, which is what its figures are beside; then as it is built here.
    for prefix, suffix in (("paper_", ""), ("", ", as we build it")):
        for key, name in SIZES.items():
            size = getattr(values, prefix + key) if isinstance(values, ProgramValues) else None
            yield Point((("quantity", name + suffix),), column, size, trouble=cell.trouble)


def _stage_points(cell: Found) -> Iterator[Point]:
    column = _column(cell.planned.instance)
    for key, name in STAGES.items():
        seconds, deviation = (cell.timing(part) for part in (key, f"{key}_deviation"))
        # A stage that was not timed is no trouble; a program that failed is told once, at its total.
        if seconds is not None or (cell.trouble is not None and key == "total"):
            yield Point((("quantity", name),), column, seconds, deviation=deviation, trouble=cell.trouble)


def _other_total(cell: Found) -> Point:
    """The time of another way to the same optimum."""
    row = f"Total, {cell.planned.method}"
    return Point((("quantity", row),), _column(cell.planned.instance), cell.timing("total"), trouble=cell.trouble)


def _published_rows(target: Target, names: Mapping[str, str]) -> PublishedFigures:
    found = {}
    for series in target.published:
        if series.quantity in names:
            spread: Sequence[float | None] = series.deviations or [None] * len(series.values)
            row: At = (("quantity", names[series.quantity]),)
            for instance, value, deviation in zip(target.instances, series.values, spread, strict=False):
                found[row, _column(instance)] = (value, deviation)
    return found


def _ordered(made: Sequence[Entry]) -> tuple[Entry, ...]:
    """Rows as named above, columns by size; what only the paper measured is not missing from ours."""
    rows = [*SIZES.values(), *(f"{name}, as we build it" for name in SIZES.values()), *STAGES.values()]
    rank = {row: index for index, row in enumerate(rows)}
    # Wall clock was measured by the paper only.
    told = [replace(entry, troubles=()) if entry.row == STAGES["wallclock"] else entry for entry in made]
    return tuple(sorted(told, key=lambda entry: (rank.get(entry.row, len(rank)), _size(entry.column))))


def _size(column: str) -> float:
    digits = re.search(r"\d+", column)
    return float(digits[0]) if digits else 0.0


# Fairness


def fairness_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """For each instance, what each idea of fairness leads to, and who gets how much."""
    own = [cell for cell in cells if cell.kind == "fairness"]
    sheets = []
    for index, instance in enumerate(dict.fromkeys(cell.planned.instance for cell in own), start=1):
        part = [cell for cell in own if cell.planned.instance == instance]
        outcomes = tuple(entries((point for cell in part for point in _outcome_points(cell)), {}))
        groups = tuple(entries((point for cell in part for point in _group_points(cell)), {}))
        sheets += [
            Sheet(f"outcomes-{index}", f"{capitalised(instance)}: the best policy for each idea", outcomes, decimals=3),
            Sheet(f"groups-{index}", f"{capitalised(instance)}: who gets how much", groups, decimals=3),
        ]
    return sheets


def _fairness_place(cell: Found) -> At:
    return (("instance", cell.planned.instance), ("idea", cell.planned.method))


def _outcome_points(cell: Found) -> Iterator[Point]:
    at, values = _fairness_place(cell), None if cell.outcome is None else cell.outcome.values
    if isinstance(values, FairnessValues):
        figures = {name: getattr(values, key) for key, name in OUTCOMES.items()}
        figures |= {f"by {idea}": value for idea, value in values.measures.items() if idea not in SAME_AS_OUTCOME}
        for name, value in figures.items():
            yield Point(at, name, value, exact=values.exact)
    else:
        ideas = [idea for idea in cell.settings.get("measures") or () if idea not in SAME_AS_OUTCOME]
        for name in (*OUTCOMES.values(), *(f"by {idea}" for idea in ideas)):
            yield Point(at, name, trouble=cell.trouble)


def _group_points(cell: Found) -> Iterator[Point]:
    at, values = _fairness_place(cell), None if cell.outcome is None else cell.outcome.values
    if isinstance(values, FairnessValues):
        names = [group.name for group in values.groups]
        for index, group in enumerate(values.groups, start=1):
            # Names that are not unique tell nobody apart.
            told = group.name if group.name and len(set(names)) == len(names) else f"arm {index}"
            count = f" ({group.count} arms)" if group.count > 1 else ""
            yield Point(at, told + count, group.value, exact=values.exact)


Maker: TypeAlias = Callable[[Target, Sequence[Found]], list[Sheet]]

MAKERS: tuple[Maker, ...] = (welfare_sheets, timing_sheets, program_sheets, fairness_sheets)
