"""From the records of a run to sheets: figures are looked up, put in their places and averaged over seeds.

Which sheets a target has follows from the kinds of its cells:

    optimum, fluid, named-policy, train   "welfare": a row a size, a column a method; "curve": learning curves
    timing                                "seconds": by number of arms; "shares": by share of arms that can be served
    lp                                    "sizes", "times": a row a quantity, a column a size
    fairness                              by instance: "outcomes": a row an idea of fairness; "groups": who gets what
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from evenhand.experiments.records import Record, Run
from evenhand.experiments.spec import Cell, Planned, Published, Target
from evenhand.report.reproduction_tables import NOT_FOR_IT, NOT_RUN, Entry, Key, Sheet
from evenhand.report.words import capitalised

At: TypeAlias = tuple[tuple[str, Key], ...]

KEYS = {"N": "num_arms", "b": "budget", "b/N": "budget_share"}
"""What the names in an instance such as `N=10, b/N=0.5` stand for."""

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


@dataclass(frozen=True)
class Found:
    """A cell of a target, and what came of it."""

    planned: Planned
    record: Record | None
    """None if it was not run."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Its values; empty unless it is done."""
        return self._part("values")

    @property
    def timings(self) -> Mapping[str, Any]:
        """Its seconds; empty unless it is done."""
        return self._part("timings")

    def _part(self, name: str) -> Mapping[str, Any]:
        if self.record is None or self.record.get("status") != "done":
            return {}
        part = self.record.get(name)
        return part if isinstance(part, Mapping) else {}

    @property
    def trouble(self) -> str | None:
        """Why there is no result; None if there is one."""
        if self.record is None:
            return NOT_RUN
        if self.record.get("status") != "done":
            return str(self.record.get("error") or "no reason was recorded")
        if self.values.get("applies") is False:
            return f"{NOT_FOR_IT}: {self.values.get('reason')}"
        return None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.planned.cell.settings


def found_cells(target: Target, run: Run) -> list[Found]:
    """The cells of a target with their records: as the manifest names them, for files of targets change after a run."""
    plan = target.plan(bool(run.manifest.get("quick")))
    named = (run.manifest.get("targets") or {}).get(target.name)
    if named is None:
        return [Found(planned, None) for planned in plan]
    planned_as = {(planned.method, planned.instance, planned.seed): planned.cell for planned in plan}
    return [_found(target.name, label, run, planned_as) for label in named]


def _found(
    target: str, label: Mapping[str, Any], run: Run, planned_as: Mapping[tuple[str, str, int | None], Cell]
) -> Found:
    method, instance = str(label.get("method")), str(label.get("instance"))
    record = run.records.get(str(label.get("id")))
    if record is None:
        cell = planned_as.get((method, instance, label.get("seed")), Cell("named-policy", {}))
    else:
        cell = Cell(str(record.get("kind")), dict(record.get("settings") or {}))
    return Found(Planned(cell, target, method, instance), record)


def target_sheets(target: Target, run: Run) -> tuple[Sheet, ...]:
    """The sheets of a target; those without an entry are left out."""
    cells = found_cells(target, run)
    sheets = [sheet for make in MAKERS for sheet in make(target, cells)]
    return tuple(sheet for sheet in sheets if sheet.entries)


def cell_seconds(target: Target, run: Run) -> float:
    """How long the cells of a target took, one after the other."""
    return sum(float(cell.record.get("seconds") or 0.0) for cell in found_cells(target, run) if cell.record)


# Points: one figure of one cell


@dataclass(frozen=True)
class Point:
    """One figure of one cell, and its place."""

    at: At
    column: str
    value: float | None = None
    plug_in: float | None = None
    exact: bool = True
    stderr: float = 0.0
    deviation: float | None = None
    trouble: str | None = None


def entries(points: Iterable[Point], published: Mapping[tuple[At, str], tuple[float, float | None]]) -> list[Entry]:
    """Points gathered by place, beside what was published there; in the order of rows.

    Args:
        points: of all seeds.
        published: figure and deviation by place; places without points become entries that were not run.
    """
    gathered: dict[tuple[At, str], list[Point]] = {}
    for point in points:
        gathered.setdefault((point.at, point.column), []).append(point)
    for place in published:
        gathered.setdefault(place, [Point(*place, trouble=NOT_RUN)])
    made = [_entry(place, own, published.get(place, (None, None))) for place, own in gathered.items()]
    return sorted(made, key=lambda entry: _order(entry.at))


def _order(at: At) -> tuple[tuple[str, float], ...]:
    """Numbers rise; texts stay in the order they came, as sorting is stable."""
    return tuple(("", value) if isinstance(value, int | float) else ("text", 0.0) for _, value in at)


def _entry(place: tuple[At, str], points: Sequence[Point], paper: tuple[float | None, float | None]) -> Entry:
    return Entry(
        at=place[0],
        column=place[1],
        paper=paper[0],
        paper_spread=paper[1],
        values=tuple(point.value for point in points if point.value is not None),
        plug_in=tuple(point.plug_in for point in points if point.plug_in is not None),
        exact=all(point.exact for point in points),
        stderr=max((point.stderr for point in points), default=0.0),
        deviation=next((point.deviation for point in points if point.deviation is not None), None),
        troubles=tuple(point.trouble for point in points if point.trouble is not None),
    )


def number_in(table: Mapping[str, Any], key: str) -> float | None:
    """A number of a record; None where it has none."""
    value = table.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def place_of(instance: str) -> At:
    """`N=10 b=5` as keys and numbers; any other text as an instance."""
    pairs = [re.fullmatch(r"([\w/]+)=(\d+(?:\.\d+)?)", part) for part in re.split(r"[,\s]+", instance.strip())]
    if all(pair is not None and pair[1] in KEYS for pair in pairs):
        return tuple((KEYS[pair[1]], _numeric(pair[2])) for pair in pairs if pair is not None)
    return (("instance", instance),)


def _numeric(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def published_by_place(
    target: Target, quantity: str, aliases: Mapping[str, Sequence[str]] | None = None
) -> dict[tuple[At, str], tuple[float, float | None]]:
    """The published figures of a quantity by place and method.

    Args:
        target: with its published numbers.
        quantity: which of them.
        aliases: columns beside which a published method is shown too.
    """
    found = {}
    for series in target.published:
        if series.quantity == quantity:
            for column in (series.method, *(aliases or {}).get(series.method, ())):
                for place, figures in _by_instance(target, series):
                    found[place, column] = figures
    return found


def _by_instance(target: Target, series: Published) -> Iterator[tuple[At, tuple[float, float | None]]]:
    spread: Sequence[float | None] = series.deviations or [None] * len(series.values)
    for instance, value, deviation in zip(target.instances, series.values, spread, strict=False):
        yield place_of(instance), (value, deviation)


# Welfare


KIN = {"WIP": "WIP exact", "CP-DRL": "CP-DRL(PS)", "V-DRL": "V-DRL(idle)"}
"""Methods of ours that are shown beside the figures of the paper's method."""

WELFARE_KINDS = ("optimum", "fluid", "named-policy", "train")


def welfare_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Welfare by size and method, and the learning curves of a target that is about them."""
    own = [cell for cell in cells if cell.planned.cell.kind in WELFARE_KINDS]
    if not own or any(cell.planned.cell.kind == "lp" for cell in cells):
        return []
    points = [point for cell in own for point in welfare_points(cell)]
    columns = {point.column for point in points}
    aliases = {method: [kin] for method, kin in KIN.items() if kin in columns}
    published = published_by_place(target, "welfare", aliases)
    made = tuple(_by_method(entries(points, published), [cell.planned.method for cell in own]))
    sheets = [Sheet("welfare", f"{target.title}: welfare (GGF)", made)]
    if is_about_learning(target):
        curve = tuple(entries((point for cell in own for point in curve_points(cell)), {}))
        sheets.append(Sheet("curve", "Learning curves", curve, shown=lambda entry: False))
    return sheets


def is_about_learning(target: Target) -> bool:
    """Whether a target shows how welfare rises while learning."""
    return target.name == "figure-1"


def _by_method(made: Iterable[Entry], methods: Sequence[str]) -> list[Entry]:
    """Columns in the order of the paper's, what it does not have behind its nearest kin."""
    order = {column: index for index, column in enumerate(ORDER)}
    plan = {method: len(order) + index for index, method in enumerate(dict.fromkeys(methods))}
    rank = plan | order
    return sorted(made, key=lambda entry: (_order(entry.at), rank.get(entry.column, len(rank))))


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
    if cell.planned.cell.kind == "train":
        yield from _trained_points(cell, at)
    elif cell.trouble is not None:
        yield Point(at, method, trouble=cell.trouble)
    elif cell.planned.cell.kind == "fluid":
        yield Point(at, method, number_in(cell.values, "upper_bound"))
    elif cell.planned.cell.kind == "optimum":
        yield Point(at, method, number_in(cell.values, "welfare"))
    else:
        yield _evaluated(at, method, cell.values)


def _trained_points(cell: Found, at: At) -> Iterator[Point]:
    planned = list(cell.settings.get("evaluate") or [{}])
    several = len(planned) > 1 or ".." in cell.planned.instance
    places = [(("num_arms", int(size["num_arms"])),) if several else at for size in planned]
    found = cell.values.get("evaluations") or []
    for index, place in enumerate(places):
        if cell.trouble is not None or index >= len(found):
            yield Point(place, cell.planned.method, trouble=cell.trouble or "no evaluation was recorded")
        else:
            yield _evaluated(place, cell.planned.method, found[index])


def _evaluated(at: At, method: str, values: Mapping[str, Any]) -> Point:
    exact = bool(values.get("exact"))
    stderr = 0.0 if exact else number_in(values, "stderr") or 0.0
    return Point(at, method, number_in(values, "welfare"), number_in(values, "plug_in"), exact, stderr)


def curve_points(cell: Found) -> Iterator[Point]:
    """The learning curve of a cell, by episode."""
    horizon = float(cell.settings.get("horizon") or 1)
    exact = bool(cell.values.get("exact", True))
    for steps, score in cell.values.get("curve") or []:
        if score is not None:
            at = (*place_of(cell.planned.instance), ("episode", round(steps / horizon, 2)))
            yield Point(at, cell.planned.method, float(score), exact=exact)


# Times


def timing_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Time per episode, by number of arms at one share of the budget, and by share at one number of arms."""
    own = [cell for cell in cells if cell.planned.cell.kind == "timing"]
    if not own:
        return []
    sizes = {id(cell): _size_and_share(cell) for cell in own}
    share = _widest(sizes.values())
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
    seconds = number_in(cell.timings, "per_episode")
    deviation = number_in(cell.timings, "per_episode_deviation")
    return Point(at, cell.planned.method, seconds, deviation=deviation, trouble=cell.trouble)


# Linear programs


def program_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """Sizes and times of a linear program."""
    own = [cell for cell in cells if cell.planned.cell.kind == "lp"]
    if not own:
        return []
    others = [cell for cell in cells if cell.planned.cell.kind == "optimum"]
    sizes = [point for cell in own for point in _size_points(cell)]
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
    column = _column(cell.planned.instance)
    for key, name in SIZES.items():
        yield Point((("quantity", name),), column, number_in(cell.values, f"paper_{key}"), trouble=cell.trouble)
    for key, name in SIZES.items():
        own = f"{name}, as we build it"
        yield Point((("quantity", own),), column, number_in(cell.values, key), trouble=cell.trouble)


def _stage_points(cell: Found) -> Iterator[Point]:
    column = _column(cell.planned.instance)
    for key, name in STAGES.items():
        if key in cell.timings or (cell.trouble is not None and key == "total"):
            seconds, deviation = (number_in(cell.timings, part) for part in (key, f"{key}_deviation"))
            yield Point((("quantity", name),), column, seconds, deviation=deviation, trouble=cell.trouble)


def _other_total(cell: Found) -> Point:
    """The time of another way to the same optimum."""
    row = f"Total, {cell.planned.method}"
    return Point(
        (("quantity", row),), _column(cell.planned.instance), number_in(cell.timings, "total"), trouble=cell.trouble
    )


def _published_rows(target: Target, names: Mapping[str, str]) -> dict[tuple[At, str], tuple[float, float | None]]:
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
    told = [replace(entry, troubles=()) if entry.row == STAGES["wallclock"] else entry for entry in made]
    return tuple(sorted(told, key=lambda entry: (rank.get(entry.row, len(rank)), _size(entry.column))))


def _size(column: str) -> float:
    digits = re.search(r"\d+", column)
    return float(digits[0]) if digits else 0.0


# Fairness


def fairness_sheets(target: Target, cells: Sequence[Found]) -> list[Sheet]:
    """For each instance, what each idea of fairness leads to, and who gets how much."""
    own = [cell for cell in cells if cell.planned.cell.kind == "fairness"]
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
    at, exact = _fairness_place(cell), bool(cell.values.get("exact", True))
    for key, name in OUTCOMES.items():
        yield Point(at, name, number_in(cell.values, key), exact=exact, trouble=cell.trouble)
    measures = cell.values.get("measures") or {}
    for measure in measures or cell.settings.get("measures") or ():
        if measure not in SAME_AS_OUTCOME:
            yield Point(at, f"by {measure}", number_in(measures, measure), exact=exact, trouble=cell.trouble)


def _group_points(cell: Found) -> Iterator[Point]:
    at, exact = _fairness_place(cell), bool(cell.values.get("exact", True))
    groups = cell.values.get("groups") or []
    names = [str(group.get("name") or "") for group in groups]
    for index, (group, name) in enumerate(zip(groups, names, strict=True), start=1):
        told = name if name and len(set(names)) == len(names) else f"arm {index}"
        count = int(group.get("count") or 1)
        yield Point(at, told + (f" ({count} arms)" if count > 1 else ""), number_in(group, "value"), exact=exact)


Maker: TypeAlias = Callable[[Target, Sequence[Found]], list[Sheet]]

MAKERS: tuple[Maker, ...] = (welfare_sheets, timing_sheets, program_sheets, fairness_sheets)
