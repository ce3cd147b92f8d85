"""Tables: our figures beside the published ones.

The tables of a target follow from the kinds of its cells:

    optimum, fluid, named-policy, train   "welfare": a row per instance, a column per method; "curve": learning curves
    timing                                "seconds": by number of arms; "shares": by share of arms that can be served
    lp                                    "sizes", "times": a row per quantity, a column per instance
    fairness                              per instance "outcomes": a row per welfare; "groups": the value per group
"""

import csv
import io
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paper.run import Record
from paper.targets import Cell, Target

Found = Sequence[tuple[Cell, Record | None]]
"""The cells of a target with their records."""

COLUMNS = (
    *("fluid bound", "OPT", "WIP", "WIP exact", "CP-DRL", "CP-DRL(PS)", "CP-DRL(MT)", "CP-DRL(SC)"),
    *("PPO", "TD3", "SAC", "V-DRL", "V-DRL(idle)"),
)
"""Methods in the order of the paper's tables; others follow in the order of the target."""

VARIANTS = {"WIP": "WIP exact", "CP-DRL": "CP-DRL(PS)", "V-DRL": "V-DRL(idle)"}
"""Methods of ours that are shown beside the published figures of the paper's method."""

STAGES = {
    "data": "Data build",
    "build": "LP build",
    "solve": "LP solve",
    "wallclock": "LP solve, wall clock",
    "extract": "LP extract",
    "total": "Total",
}
ROUNDING = 1e-9
"""A deviation below which figures of several seeds are equal but for rounding."""


@dataclass
class Entry:
    """One figure of ours, beside the published one."""

    paper: float | None = None
    paper_deviation: float | None = None
    values: list[float] = field(default_factory=list)
    """(seed,) our figures."""
    plug_in: list[float] = field(default_factory=list)
    """(seed,) our figures by the paper's protocol."""
    exact: bool = True
    stderr: float = 0.0
    """Largest standard error of our simulated figures."""
    repeat_deviation: float | None = None
    """Standard deviation over repeats of a time."""
    missing: str = "not run"
    """Reason if there is no figure of ours."""

    @property
    def ours(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def by_protocol(self) -> float | None:
        """The mean over seeds by the paper's protocol."""
        return statistics.fmean(self.plug_in) if self.plug_in else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds, or over repeats."""
        return statistics.stdev(self.values) if len(self.values) > 1 else self.repeat_deviation


@dataclass
class Table:
    """A grid of figures with a caption."""

    name: str
    caption: str
    style: str = "welfare"
    """welfare, count, seconds or duration."""
    decimals: int = 2
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    """(row, column) to its figures."""

    def at(self, row: str, column: str) -> Entry:
        """The entry of a place, created if it is new."""
        return self.entries.setdefault((row, column), Entry())

    @property
    def rows(self) -> list[str]:
        """Row names in order."""
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def columns(self) -> list[str]:
        """Column names in order."""
        return list(dict.fromkeys(column for _, column in self.entries))


def target_tables(target: Target, records: Mapping[str, Record], quick: bool) -> list[Table]:
    """The tables of a target from the records of a run."""
    found = [(cell, records.get(cell.key)) for cell in (target.quick if quick else target.full)]
    kinds = {cell.kind for cell, _ in found}
    if "lp" in kinds:
        return _program_tables(target, found)
    if "timing" in kinds:
        return _timing_tables(found)
    if "fairness" in kinds:
        return _fairness_tables(found)
    return [_welfare_table(target, found), *(_curve_table(found) if target.curves else [])]


# -- welfare ---------------------------------------------------------------------------------------------------------


def _welfare_table(target: Target, found: Found) -> Table:
    table = Table("welfare", f"{target.title}: welfare (GGF)")
    for cell, record in found:
        for row, values in _welfare_rows(cell, record):
            entry = table.at(row, cell.method)
            welfare = values.get("welfare", values.get("upper_bound"))
            if welfare is None:
                entry.missing = values.get("reason", entry.missing)
                continue
            entry.values.append(welfare)
            if values.get("plug_in") is not None:
                entry.plug_in.append(values["plug_in"])
            entry.exact &= values.get("exact", True)
            entry.stderr = max(entry.stderr, 0.0 if entry.exact else values.get("stderr") or 0.0)
    methods = table.columns
    for (quantity, method, instance), (value, deviation) in target.published.items():
        for column in (method, VARIANTS.get(method)):
            if quantity == "welfare" and column in methods:
                entry = table.at(row_name(instance), column)
                entry.paper, entry.paper_deviation = value, deviation
    rank = {column: index for index, column in enumerate(dict.fromkeys((*COLUMNS, *methods)))}
    places = sorted(table.entries, key=lambda place: (row_number(place[0]) or 0.0, rank[place[1]]))
    table.entries = {place: table.entries[place] for place in places}
    return table


def _welfare_rows(cell: Cell, record: Record | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows that a cell contributes to; a network that was evaluated on several sizes has one per size."""
    values = {} if record is None else record["values"]
    if cell.kind != "train":
        yield row_name(cell.instance), values
        return
    sizes = cell.settings["evaluate"]
    evaluations = values.get("evaluations", [{}] * len(sizes))
    for size, evaluation in zip(sizes, evaluations, strict=True):
        yield (f"N = {size['num_arms']}" if ".." in cell.instance else row_name(cell.instance)), evaluation


def row_name(instance: str) -> str:
    """`N=10 b=5` as `N = 10, b = 5`; any other text as it is."""
    if not re.fullmatch(r"\w+=[\d.]+( \w+=[\d.]+)*", instance):
        return instance
    pairs = [part.split("=") for part in instance.split()]
    return ", ".join(f"{name} = {float(value):,g}" for name, value in pairs)


def row_number(row: str) -> float | None:
    """The number of a row such as `N = 1,000`."""
    number = re.match(r"(?:N|b/N|episode) = ([\d,.]+)", row)
    return float(number[1].replace(",", "")) if number else None


def _curve_table(found: Found) -> list[Table]:
    """Learning curves: a row per instance and episode."""
    table = Table("curve", "Learning curves")
    for cell, record in found:
        if cell.kind == "train" and record is not None and ".." not in cell.instance:
            for steps, score in record["values"]["curve"]:
                if score is not None:
                    episode = round(steps / record["values"]["horizon"], 2)
                    table.at(f"episode = {episode:g}, {row_name(cell.instance)}", cell.method).values.append(score)
    return [table] if table.entries else []


# -- times, linear programs ------------------------------------------------------------------------------------------


def _timing_tables(found: Found) -> list[Table]:
    """Seconds per episode, by number of arms at one share of the budget, and by share at one number of arms."""
    sizes = [(cell, record, cell.settings["parameters"]) for cell, record in found]
    shares = [round(size["budget"] / size["num_arms"], 6) for _, _, size in sizes]
    # The share with the most sizes is the one at which times are shown by size.
    share = statistics.mode(shares)
    swept = min(size["num_arms"] for _, _, size in sizes)
    by_size = Table("seconds", f"Time per episode of 300 steps, by number of machines (b/N = {share:g})", "duration")
    by_share = Table("shares", f"Time per episode of 300 steps, by budget (N = {swept})", "duration")
    for (cell, record, size), own in zip(sizes, shares, strict=True):
        if own == share:
            _add_time(by_size.at(f"N = {size['num_arms']}", cell.method), record, "per_episode")
        if size["num_arms"] == swept:
            _add_time(by_share.at(f"b/N = {own:g}", cell.method), record, "per_episode")
    for table in (by_size, by_share):
        places = sorted(table.entries, key=lambda place: row_number(place[0]) or 0.0)
        table.entries = {place: table.entries[place] for place in places}
    return [table for table in (by_size, by_share) if len(table.rows) > 1]


def _add_time(entry: Entry, record: Record | None, stage: str) -> None:
    if record is not None and stage in record["timings"]:
        entry.values = [record["timings"][stage]]
        entry.repeat_deviation = record["timings"].get(f"{stage}_deviation")


def _program_tables(target: Target, found: Found) -> list[Table]:
    """Sizes and times of a linear program."""
    sizes = Table("sizes", f"{target.title}: sizes", "count")
    times = Table("times", f"{target.title}: seconds", "seconds", 4)
    counts = {"constraints": "Constraints", "variables": "Variables"}
    columns = list(dict.fromkeys(cell.instance for cell, _ in found))
    own = {(cell.kind, cell.instance): (cell, record) for cell, record in found}
    for prefix, suffix in (("paper_", ""), ("", ", as we build it")):
        for key, name in counts.items():
            for instance in columns:
                entry, (_, record) = sizes.at(name + suffix, row_name(instance)), own["lp", instance]
                entry.values = [] if record is None else [record["values"][prefix + key]]
                if not suffix:
                    entry.paper, _ = _published(target, key, instance)
    for stage, name in STAGES.items():
        for instance in columns:
            entry = times.at(name, row_name(instance))
            _add_time(entry, own["lp", instance][1], stage)
            entry.paper, entry.paper_deviation = _published(target, stage, instance)
            if stage == "wallclock":
                entry.missing = ""  # measured by the paper only
    for cell, record in found:
        if cell.kind == "optimum":  # another road to the same optimum
            _add_time(times.at(f"Total, {cell.method}", row_name(cell.instance)), record, "total")
    return [sizes, times]


def _published(target: Target, quantity: str, instance: str) -> tuple[float | None, float | None]:
    found = [numbers for key, numbers in target.published.items() if (key[0], key[2]) == (quantity, instance)]
    return found[0] if found else (None, None)


# -- fairness --------------------------------------------------------------------------------------------------------


def _fairness_tables(found: Found) -> list[Table]:
    tables = []
    for index, instance in enumerate(dict.fromkeys(cell.instance for cell, _ in found), start=1):
        title = instance[:1].upper() + instance[1:]
        outcomes = Table(f"outcomes-{index}", f"{title}: the best policy per welfare", decimals=3)
        groups = Table(f"groups-{index}", f"{title}: value per group", decimals=3)
        for cell, record in found:
            if cell.instance == instance and record is not None:
                values = record["values"]
                figures = {"mean": values["mean"], "worst-off arm": values["worst"]}
                figures["Gini coefficient"] = values["gini_coefficient"]
                # The mean and the worst-off arm are the measures utilitarian and maximin.
                others = {key: value for key, value in values["measures"].items() if ":" in key}
                figures |= {f"by {key}": value for key, value in others.items() if value is not None}
                for name, value in figures.items():
                    outcomes.entries[cell.method, name] = Entry(values=[value], exact=values["exact"])
                for name, value in _group_values(values["groups"]):
                    groups.entries[cell.method, name] = Entry(values=[value], exact=values["exact"])
        tables += [outcomes, groups]
    return tables


def _group_values(groups: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    unique = len({group["name"] for group in groups}) == len(groups)
    for number, group in enumerate(groups, start=1):
        name = group["name"] if unique and group["name"] else f"arm {number}"
        yield name + (f" ({group['count']} arms)" if group["count"] > 1 else ""), group["value"]


# -- text ------------------------------------------------------------------------------------------------------------


def figure_text(value: float | None, table: Table) -> str:
    """A figure in the style of the table."""
    if value is None:
        return "–"
    if table.style == "duration":
        unit, factor = next(
            pair for pair in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)) if value * pair[1] >= 1 or pair[0] == "µs"
        )
        return f"{value * factor:.2g}\u00a0{unit}" if value * factor < 100 else f"{value * factor:.0f}\u00a0{unit}"
    text = f"{value:,.0f}" if table.style == "count" else f"{value:,.{table.decimals}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")


def lines(table: Table) -> list[list[str]]:
    """The table as rows of text, the heading first: up to four lines per row, of which those with content are shown."""
    several = any(entry.paper is not None or entry.plug_in for entry in table.entries.values())
    head = ["", *([""] if several else []), *table.columns]
    body = []
    for row in table.rows:
        own = [table.entries.get((row, column)) for column in table.columns]
        shown = [(name, [_text(name, entry, table) for entry in own]) for name in LINES]
        kept = [(name, texts) for name, texts in shown if name == "ours" or any(texts)]
        for index, (name, texts) in enumerate(kept):
            body.append([row if index == 0 else "", *([name] if several else []), *texts])
    return [head, *body]


LINES = ("paper", "ours", "ours (plug-in)", "ours − paper", "paper ÷ ours")


def _text(line: str, entry: Entry | None, table: Table) -> str:
    if entry is None:
        return ""
    if line == "paper":
        deviation = "" if entry.paper_deviation is None else f" ±\u00a0{entry.paper_deviation:.2f}"
        return "" if entry.paper is None else figure_text(entry.paper, table) + deviation
    if line == "ours":
        if entry.ours is None:
            return "–" if entry.missing not in ("not run", "") else entry.missing
        sign = "" if entry.exact or table.style != "welfare" else "≈\u00a0"
        return sign + figure_text(entry.ours, table) + _deviation(entry.deviation, table)
    if line == "ours (plug-in)":
        spread = statistics.stdev(entry.plug_in) if len(entry.plug_in) > 1 else None
        return "" if entry.by_protocol is None else figure_text(entry.by_protocol, table) + _deviation(spread, table)
    if entry.ours is None or entry.paper is None or (line == "paper ÷ ours") != (table.style == "seconds"):
        return ""
    if line == "paper ÷ ours":
        ratio = entry.paper / entry.ours
        return f"{ratio:,.0f}\u00a0×" if ratio >= 10 else f"{ratio:.2g}\u00a0×"
    text = figure_text(entry.ours - entry.paper, table)
    return text if text.startswith("−") or not text.strip("0.,") else f"+{text}"


def _deviation(deviation: float | None, table: Table) -> str:
    if deviation is None or deviation < ROUNDING or table.style == "count":
        return ""
    return f" ±\u00a0{figure_text(deviation, table)}"


def remarks(table: Table) -> list[str]:
    """Notes on simulated figures, deviations, and figures that are missing."""
    entries, notes = table.entries, []
    simulated = [entry for entry in entries.values() if not entry.exact and entry.values]
    if table.style == "welfare" and simulated:
        error = max(entry.stderr for entry in simulated)
        known = f" (standard error at most {error:.2g})" if error else ""
        notes.append(f"≈ marks figures that are simulated{known}; our others are computed exactly.")
    for over, several in (("seeds", True), ("repeats", False)):
        shown = [e for e in entries.values() if (e.deviation or 0) >= ROUNDING and (len(e.values) > 1) == several]
        if shown and table.style != "count":
            notes.append(f"± after our figures is the standard deviation over {over}.")
    reasons: dict[tuple[str, str], list[str]] = {}
    for (row, column), entry in entries.items():
        if not entry.values and entry.missing not in ("not run", ""):
            reasons.setdefault((column, entry.missing), []).append(row)
    return notes + [f"{column} at {', '.join(rows)}: {reason}" for (column, reason), rows in reasons.items()]


def markdown(table: Table) -> str:
    """The table as Markdown, with its caption above and its remarks below."""
    grid = [[text.replace("|", "\\|").replace("\u00a0", " ") for text in row] for row in lines(table)]
    names = 2 if grid[0][:2] == ["", ""] else 1
    rule = ["---"] * names + ["---:"] * (len(grid[0]) - names)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in (grid[0], rule, *grid[1:]))
    notes = "".join(f"\n- {note}" for note in remarks(table))
    return f"**{table.caption}**\n\n{rows}\n" + (f"{notes}\n" if notes else "")


def latex(table: Table) -> str:
    """The table as LaTeX; needs booktabs."""
    special = {
        "&": r"\&",
        "%": r"\%",
        "_": r"\_",
        "#": r"\#",
        "−": "$-$",
        "±": r"$\pm$",
        "≈": r"$\approx$",
        "÷": r"$\div$",
    }
    special |= {"×": r"$\times$", "\u00a0": "~", "µ": r"$\mu$", "–": "--", "α": r"$\alpha$"}

    def escaped(text: str) -> str:
        return "".join(special.get(character, character) for character in text)

    grid = [" & ".join(map(escaped, row)) + r" \\" for row in lines(table)]
    layout = "l" * (len(lines(table)[0]) - len(table.columns)) + "r" * len(table.columns)
    body = "\n".join([grid[0], r"\midrule", *grid[1:]])
    return (
        f"\\begin{{table}}\n\\caption{{{escaped(table.caption)}}}\n\\begin{{tabular}}{{{layout}}}\n\\toprule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def csv_text(tables: Sequence[Table]) -> str:
    """Every figure, unrounded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "row", "column", "paper", "paper_deviation", "ours", "deviation", "plug_in", "exact"))
    for table in tables:
        for (row, column), entry in table.entries.items():
            ours = (entry.ours, entry.deviation, entry.by_protocol, entry.exact)
            writer.writerow((table.name, row, column, entry.paper, entry.paper_deviation, *ours))
    return file.getvalue()
