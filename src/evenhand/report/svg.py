"""From a drawing to inline SVG: real text, no metadata, no dates, the same bytes for the same data.

Text stays text, so it can be searched, is drawn in the reader's font, and needs no glyphs in the file. Every id gets
the figure's own prefix, because several figures share one page. Colours are those of Okabe and Ito, told apart by
the colour-blind too, and never carry a meaning alone: dots differ in shape, lines in dashes.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, FAINT = "#222222", "#8a8a8a"
WIDTH = 4.6
"""Inches. Narrow, so that text has about the page's size on a wide screen and can be read on a phone."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar in a name is a dollar
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
}


def drawn(name: str, label: str, height: float, draw: Callable[["Figure"], None]) -> str:
    """Draw a figure and give its SVG element, which is safe to stand in a page.

    Args:
        name: of the figure, unique on the page.
        label: what it shows, in words; escaped here.
        height: inches.
        draw: puts axes into an empty figure.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    stream = io.StringIO()
    with styled({"svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _inline(stream.getvalue(), name, label)


@contextmanager
def styled(more: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Whatever is drawn within has the style of the reports, and nothing of the user's own settings.

    Args:
        more: settings of matplotlib besides.
    """
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # The reader's browser has glyphs that the font used for measuring lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, **(more or {})})
        yield


def _inline(svg: str, name: str, label: str) -> str:
    """The SVG element of a file, fit to stand in a page beside others."""
    body = re.sub(r"<!--.*?-->\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    rest = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", rest)
    rest = re.sub(r"font: (\S+) [^;\"]*", r"font-size: \1", rest)
    return f'<svg {box[0] if box else ""} role="img" aria-label="{escape(label)}">{rest.strip()}'
