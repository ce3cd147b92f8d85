"""The main results as one small table, for the front page: published figures and ours, side by side."""

from collections.abc import Mapping

from evenhand.report import words
from evenhand.report.reproduction.report import Report
from evenhand.report.reproduction.sheets import Entry, Sheet, figure_text, missing_word

HEADLINE_COLUMNS = (
    ("OPT", "OPT", "paper"),
    ("OPT, ours", "OPT", "ours"),
    ("WIP", "WIP", "paper"),
    ("WIP, same search", "WIP", "ours"),
    ("WIP, exact indices", "WIP exact", "ours"),
    ("CP-DRL", "CP-DRL", "paper"),
    ("CP-DRL, ours", "CP-DRL", "ours"),
    ("CP-DRL(MT)", "CP-DRL(MT)", "paper"),
    ("CP-DRL(MT), ours", "CP-DRL(MT)", "ours"),
)
"""Title, column of the sheet, and whose figure."""


def headline_table(report: Report, costs: Mapping[str, str]) -> str:
    """The main results as a Markdown table.

    Args:
        report: of the run.
        costs: the tables to take rows from, and what their costs are called.
    """
    heads = ["costs", "N", *(title for title, _, _ in HEADLINE_COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * 2}{'---:|' * len(HEADLINE_COLUMNS)}"]
    sheets = {part.target.name: part.sheets for part in report.parts}
    for target, kind in costs.items():
        for sheet in sheets.get(target, ())[:1]:
            lines += [f"| {kind} | {' | '.join(_headline_row(row, sheet))} |" for row in sheet.rows]
    return "\n".join(lines) + "\n"


def _headline_row(row: str, sheet: Sheet) -> list[str]:
    by_column = {entry.column: entry for entry in sheet.visible if entry.row == row}
    cells = [_headline_cell(by_column.get(column), whose, sheet) for _, column, whose in HEADLINE_COLUMNS]
    return [row.removeprefix("N = "), *cells]


def _headline_cell(entry: Entry | None, whose: str, sheet: Sheet) -> str:
    if entry is None:
        return words.UNKNOWN
    if whose == "paper":
        return figure_text(entry.paper, sheet)
    return missing_word(entry) if entry.ours is None else f"**{figure_text(entry.ours, sheet)}**"
