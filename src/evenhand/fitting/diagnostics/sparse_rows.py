"""Sparse rows: pairs that were observed rarely or never."""

from dataclasses import dataclass

import numpy as np

from evenhand.display import counted
from evenhand.fitting.posterior import Posterior
from evenhand.typing import Ints

FEW = 10
"""Visits below which a row is called sparse."""


@dataclass(frozen=True)
class SparseRow:
    """A row of which little is known."""

    type: str
    """Of the arms."""

    state: str
    """Where they were."""

    action: str
    """What they got."""

    visits: int
    """How often that was seen."""

    elsewhere: int
    """How often it was seen in other types, which the row leans on."""

    width: float
    """Of the widest interval of the row, 95 %."""


@dataclass(frozen=True)
class SparseRows:
    """Rows of which little is known, and how many there are in all."""

    rows: tuple[SparseRow, ...]
    """Those seen fewer than ten times, the least seen first."""

    total: int
    """Rows in all: types, states and actions multiplied."""

    @property
    def words(self) -> str:
        """A sentence."""
        never = sum(not row.visits for row in self.rows)
        nowhere = sum(not row.visits and not row.elsewhere for row in self.rows)
        if not self.rows:
            return f"every row was seen {FEW} times or more"
        said = f"{len(self.rows):,} of {counted(self.total, 'row')} were seen fewer than {FEW} times"
        if never:
            said += f", {never:,} never" + (f" ({nowhere:,} in no type)" if nowhere and nowhere < never else "")
        return f"{said}; their probabilities are wide guesses"


def thin_rows(visits: Ints, posterior: Posterior, names: tuple[tuple[str, ...], ...]) -> SparseRows:
    """Find them.

    Args:
        visits: (type, state, action) how often each pair was seen.
        posterior: of the transition rows.
        names: of types, states and actions.
    """
    lower, upper = posterior.interval(0.95)
    widths = (upper - lower).max(axis=3)
    everywhere = visits.sum(axis=0)
    places = np.argwhere(visits < FEW)
    places = places[np.argsort(visits[tuple(places.T)], kind="stable")]
    rows = [
        SparseRow(
            names[0][t],
            names[1][s],
            names[2][a],
            int(visits[t, s, a]),
            int(everywhere[s, a] - visits[t, s, a]),
            float(widths[t, s, a]),
        )
        for t, s, a in places.tolist()
    ]
    return SparseRows(tuple(rows), int(visits.size))
