"""The reproduction of the paper, told: from the records of a run to tables, figures, verdicts and one page.

    records -> found -> points -> gathering -> sheets      figures put in their places, ours beside the paper's
    paper/report/*.toml -> statements -> measures -> claims, wording     what is claimed, and whether it holds
    sheets -> drawings, figures                            SVG
    sheets -> formats                                      Markdown, LaTeX, CSV
    report (all of it, as data), page (HTML), writing (as files), headline (one small table)

write_reproduction (into the run's folder), read_report, draw_report; read_statements (what the paper claims).
Nothing is computed here but means, differences and verdicts.
"""

from evenhand.report.reproduction.report import draw_report, read_report
from evenhand.report.reproduction.statements import read_statements
from evenhand.report.reproduction.writing import write_reproduction

__all__ = ["draw_report", "read_report", "read_statements", "write_reproduction"]
