"""The picture of types that were found: how well each number of them explains arms that were held out, and BIC."""

from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from evenhand.errors import NotApplicable
from evenhand.fitting.clusters import CLEARLY, Clusters
from evenhand.report.pictures import Picture, pictured
from evenhand.report.svg import BLUE, GREEN, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 2.8
"""Inches."""


def clusters_picture(found: Clusters) -> Picture:
    """Two panels over the number of types: held-out log-likelihood an arm, and BIC.

    Args:
        found: the types.
    """
    if not found.tried:
        raise NotApplicable("there is nothing to draw: the number of types was told, or the arms have too few moves")
    return pictured(HEIGHT, lambda figure: draw_clusters(figure, found))


def draw_clusters(figure: "Figure", found: Clusters) -> None:
    """Put the panels into an empty figure.

    Args:
        figure: of matplotlib.
        found: the types.
    """
    held, bic = figure.subplots(1, 2)
    numbers = [one.number for one in found.tried]
    errors = [CLEARLY * one.error for one in found.tried]
    held.errorbar(numbers, [one.held_out for one in found.tried], errors, marker="o", color=BLUE, capsize=3)
    held.set_ylabel("log-likelihood of an arm\nthat was held out")
    bic.plot(numbers, [one.bic for one in found.tried], marker="o", color=GREEN)
    bic.set_ylabel("BIC (smaller is better)")
    for panel in (held, bic):
        panel.axvline(found.number, color=INK, linewidth=0.8, linestyle=":")
        panel.set_xlabel("types")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
