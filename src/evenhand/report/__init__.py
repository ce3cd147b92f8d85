"""Summaries of results, and their renderers: HTML pages, notebook cells and figures.

summary     Summary, Section, Table: one structure for every result
results     summarise: the summary of any result, with models, records, comparison, fairness and audit
html        pages and notebook cells
plots       figures with matplotlib; fit_plots those of a fit
format      numbers and lists as text
"""

from importlib import import_module
from typing import Any

_EXPORTS = {
    "MOST_ROWS": "summary",
    "budget_text": "models",
    "cell": "html",
    "left_out_notes": "comparison",
    "lorenz_rows": "plots",
    "number": "format",
    "quantile": "plots",
    "rivals_summary": "comparison",
    "setting": "models",
    "spread_plot": "plots",
    "truncation_entry": "comparison",
    "values_by_type": "comparison",
    "weights_of_time": "models",
    "welfare_meaning": "models",
    "Summary": "summary",
    "summarise": "results",
    "comparison_report": "comparison",
    "fairness_report": "fairness",
    "fit_report": "records",
    "page": "html",
    "write_page": "html",
}
"""Public names and their modules, imported on first use: a command that only prints a number draws nothing."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
