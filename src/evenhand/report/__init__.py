"""Summaries of results, and their renderers: HTML pages, notebook cells and figures.

summary     Summary, Section, Table: one structure for every result; summarise
results     summaries of results, with models, comparison, fairness, studies, fits and records
html        pages and notebook cells
plots       figures with matplotlib; fit_plots those of a fit
format      numbers and lists as text

Names are imported on first use: a command that only prints a number draws nothing.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.report.comparison import (
        comparison_report,
        left_out_notes,
        rivals_summary,
        truncation_entries,
        values_by_type,
    )
    from evenhand.report.fairness import fairness_report
    from evenhand.report.fits import fit_report
    from evenhand.report.format import number
    from evenhand.report.html import cell, page, write_page
    from evenhand.report.models import budget_text, setting, weights_of_time, welfare_meaning
    from evenhand.report.plots import lorenz_rows, quantile, spread_plot
    from evenhand.report.summary import MOST_ROWS, Summary, summarise

__getattr__, __dir__ = attach(__name__, __file__)
