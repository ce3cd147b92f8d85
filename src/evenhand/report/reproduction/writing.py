"""A report as files, in the folder of its run.

OUT/report.html         one self-contained file: figures as inline SVG, data as CSV inside, no scripts
OUT/tables.md, .tex     the same tables
OUT/csv/<target>.csv    every figure, unrounded
OUT/figures/<target>.svg
"""

from collections.abc import Sequence
from pathlib import Path

from evenhand.experiments.spec import Target
from evenhand.model.files import write_atomically
from evenhand.report.reproduction.claims import Claim
from evenhand.report.reproduction.formats import latex_sheet, markdown_sheet
from evenhand.report.reproduction.page import report_page
from evenhand.report.reproduction.report import Report, draw_report, read_report, target_command
from evenhand.report.reproduction.statements import Statements


def write_reproduction(folder: Path, targets: Sequence[Target], statements: Statements) -> Path:
    """Write the report of a run, with its tables, data and figures, into its folder; arguments as of `read_report`.

    Returns:
        The path of report.html.
    """
    report = read_report(folder, targets, statements)
    for name in ("csv", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    drawings = draw_report(report)
    for part in report.parts:
        _write(folder / "csv" / f"{part.target.name}.csv", part.csv)
    for name, drawn in drawings.items():
        if drawn.file is not None:
            _write(folder / "figures" / f"{name}.svg", drawn.file)
    _write(folder / "tables.md", tables_markdown(report))
    _write(folder / "tables.tex", tables_latex(report))
    _write(folder / "report.html", report_page(report, drawings))
    return folder / "report.html"


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8", errors="replace"))


# Tables for other papers and pages


def tables_markdown(report: Report) -> str:
    """All tables as Markdown, the verdicts first."""
    parts = [f"# {report.words.title or 'The targets'}: reproduced\n"]
    if report.quick:
        parts.append("> Quick run: sizes are reduced, and the numbers are not those of the full run.\n")
    parts += ["## What holds and what does not\n", claims_markdown((*report.claims, *report.findings))]
    for part in report.parts:
        parts += [f"## {part.target.source}: {part.target.title}\n", f"`{target_command(part.target.name, report)}`\n"]
        parts += [markdown_sheet(sheet) for sheet in part.sheets if sheet.visible]
    return "\n".join(parts)


def claims_markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown list."""
    return "".join(f"- **{claim.verdict}**: {claim.title}. {claim.evidence}\n" for claim in claims)


def tables_latex(report: Report) -> str:
    """All tables as LaTeX, to be included; needs booktabs."""
    head = "% Needs \\usepackage{booktabs} and, with pdfLaTeX, \\usepackage{textcomp}.\n"
    if report.quick:
        head += "% Quick run: sizes are reduced, and the numbers are not those of the full run.\n"
    tables = [
        latex_sheet(sheet, f"tab:{part.target.name}-{sheet.name}")
        for part in report.parts
        for sheet in part.sheets
        if sheet.visible
    ]
    return "\n".join([head, *tables])
