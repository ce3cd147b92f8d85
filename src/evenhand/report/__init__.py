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
    "cell": "html",
    "left_out_notes": "results",
    "lorenz_rows": "plots",
    "lorenz_svg": "plots",
    "number": "format",
    "problem_facts": "description",
    "quantile": "plots",
    "spread_svg": "plots",
    "truncation_entry": "comparison",
    "types_table": "description",
    "values_by_type": "comparison",
    "weights_of_time": "description",
    "welfare_meaning": "description",
    "Summary": "summary",
    "summarise": "results",
    "comparison_page": "comparison",
    "write_comparison": "comparison",
    "fairness_page": "fairness",
    "write_fairness": "fairness",
    "fit_page": "records",
    "write_fit": "records",
}
"""Public names and their modules, imported on first use: a command that only prints a number draws nothing."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
