"""A sheet as Markdown, LaTeX and CSV. For people figures are rounded, in CSV they are whole."""

import csv
import io
import math
from collections.abc import Sequence

from evenhand.report.reproduction.sheets import Entry, Sheet, grid, lines_of, place_text, remarks

# Markdown


def markdown_sheet(sheet: Sheet) -> str:
    """The sheet as a Markdown table, with its caption above and its remarks below."""
    if not sheet.visible:
        return ""
    table = _markdown_table(sheet_cells(sheet))
    notes = "\n".join(f"- {_markdown(note)}" for note in remarks(sheet))
    return f"**{_markdown(sheet.caption)}**\n\n{table}" + (f"\n\n{notes}" if notes else "") + "\n"


def sheet_cells(sheet: Sheet) -> list[list[str]]:
    """The sheet as rows of texts, the head first; the row's name stands at its first line only."""
    # Where one line is all there is, no column says which it is.
    places, several = grid(sheet), len(lines_of(sheet)) > 1
    table = [["", *([""] if several else []), *sheet.columns]]
    for row in sheet.rows:
        for index, line in enumerate(lines_of(sheet, row)):
            heads = [row if index == 0 else "", *([line.name] if several else [])]
            table.append(heads + [place_text(places, row, column, line, sheet) for column in sheet.columns])
    return table


def _markdown_table(cells: Sequence[Sequence[str]]) -> str:
    # A sheet with several lines a place has two heads: the row, and which line it is.
    heads = 2 if len(cells) > 1 and cells[0][:2] == ["", ""] else 1
    rule = ["---"] * heads + ["---:"] * (len(cells[0]) - heads)
    rows = [[_markdown(text) for text in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])


def _markdown(text: str) -> str:
    """Text that Markdown leaves as it is."""
    text = " ".join(text.split())
    # The backslash first, or it would escape the escapes.
    for character in "\\`*_[]|<":
        text = text.replace(character, f"\\{character}" if character != "<" else "&lt;")
    return text


# LaTeX

_TEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "×": r"$\times$",
    "÷": r"$/$",
    "≤": r"$\le$",
    "α": r"$\alpha$",
    "µ": r"\textmu{}",
    "–": "--",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "…": r"\ldots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_TEX.get(character, character) for character in text)


def latex_sheet(sheet: Sheet, label: str) -> str:
    """The sheet as a LaTeX table; it needs the package booktabs."""
    if not sheet.visible:
        return ""
    cells, several = sheet_cells(sheet), len(lines_of(sheet)) > 1
    heads = 2 if several else 1
    body: list[str] = []
    for row in cells[1:]:
        # A little room before each row of the sheet, which has several lines.
        if several and body and row[0]:
            body.append(r"\addlinespace")
        body.append(f"{' & '.join(latex(text) for text in row)} \\\\")
    notes = " ".join(latex(note) for note in remarks(sheet))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{latex(sheet.caption)}}}",
            f"\\label{{{label}}}",
            f"\\begin{{tabular}}{{{'l' * heads}{'r' * len(sheet.columns)}}}",
            r"\toprule",
            f"{' & '.join(latex(text) for text in cells[0])} \\\\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *([f"\\par\\smallskip {{\\small {notes}\\par}}"] if notes else []),
            r"\end{table}",
            "",
        ]
    )


# CSV

FIGURES = (
    "column",
    "paper",
    "paper_spread",
    "ours",
    "spread",
    "seeds",
    "exact",
    "as_the_paper_measures",
    "difference",
    "trouble",
)
"""Columns of the CSV after the sheet's name and the keys of the row."""


def csv_text(sheets: Sequence[Sheet]) -> str:
    """All entries of a target's sheets, one a line, unrounded; what does not exist is empty."""
    entries = [(sheet, entry) for sheet in sheets for entry in sheet.entries]
    # Keys differ from sheet to sheet; all of them are columns, in order of first appearance.
    keys = list(dict.fromkeys(key for _, entry in entries for key, _ in entry.at))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["sheet", *keys, *FIGURES], restval="", lineterminator="\n")
    writer.writeheader()
    for sheet, entry in entries:
        writer.writerow({"sheet": sheet.name, **dict(entry.at), **_figures(entry)})
    return stream.getvalue()


def _figures(entry: Entry) -> dict[str, object]:
    figures: dict[str, object] = {
        "column": entry.column,
        "paper": entry.paper,
        "paper_spread": entry.paper_spread,
        "ours": entry.ours,
        "spread": entry.spread,
        "seeds": len(entry.values),
        "exact": "" if not entry.values else str(entry.exact).lower(),
        "as_the_paper_measures": entry.protocol,
        "difference": entry.difference,
        "trouble": "; ".join(dict.fromkeys(entry.troubles)),
    }
    return {name: _whole(value) for name, value in figures.items()}


def _whole(value: object) -> object:
    """The shortest text that reads back as the same number; empty for what does not exist."""
    # A field that is empty is not the same as 0.
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else value
