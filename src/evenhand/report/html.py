"""Renderers of summaries as HTML: a notebook cell and a self-contained page.

Every text is escaped, and a name that a template uses without a value is an error. Signs and spaces of numbers are
typeset here: a minus is U+2212, and a unit stays with its number.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__
from evenhand.model.io import Location, write_atomically
from evenhand.report.format import sentence
from evenhand.report.summary import Summary

if TYPE_CHECKING:
    from jinja2 import Environment


def cell(thing: object) -> str:
    """Return the HTML that a notebook shows of a problem, an arm, a policy or a result."""
    from evenhand.report.summary import summarise

    return _render("cell.html", it=summarise(thing))


def page(summary: Summary, command: str = "") -> str:
    """Return a page without scripts or anything from elsewhere, for screens and paper.

    Args:
        summary: title, lead and sections.
        command: command line that made the page, stated at its end.
    """
    return _render("page.html", it=summary, command=command)


def write_page(summary: Summary, path: Location, command: str = "") -> None:
    """Write a page to a file, completely or not at all.

    Args:
        summary: title, lead and sections.
        path: HTML file; an existing one is replaced.
        command: command line that made the page, stated at its end.
    """
    write_atomically(path, page(summary, command).encode("utf-8", errors="replace"))


def seed_sentence(seed: int | None) -> str:
    """Return the sentence on a random seed; empty without one."""
    return "" if seed is None else f"Randomness started from the seed {seed}: the same seed gives the same figures."


def typeset(text: str) -> str:
    """Replace hyphens of negative numbers by minus signs, and spaces before units by ones that do not break."""
    text = re.sub(r"(?<![\w.)-])-(?=\d)", "−", text)
    return re.sub(r"(?<=\d) (?=(?:%|ms|s|min|h)(?!\w))|(?<=±) (?=\d)", "\u00a0", text)


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(version=__version__, **values)


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evenhand.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: typeset(value) if type(value) is str else value,
    )
    environment.filters["sentence"] = sentence
    return environment
