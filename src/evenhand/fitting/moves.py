"""What records say of transitions: how often each was seen, and how often over more than one step."""

from dataclasses import dataclass

import numpy as np

from evenhand.typing import Bools, Floats, Indices, Ints


@dataclass(frozen=True, eq=False)
class Moves:
    """Pairs of rows that follow each other, counted."""

    counts: Ints
    """(type, state, action, next_state) moves of one step."""

    gaps: "Gaps"
    """Moves over more than one step, or over times that are no whole steps."""

    carry_action: bool = False
    """Whether an action goes on through steps that were missed; they are idle when not."""

    @property
    def pairs(self) -> Ints:
        """(type, state, action, next_state) pairs of rows that follow each other, in one step or in another time."""
        gaps, seen = self.gaps, self.counts.copy()
        np.add.at(seen, (gaps.type, gaps.state, gaps.action, gaps.next_state), gaps.number)
        return seen

    @property
    def exposure(self) -> Floats:
        """(type, state, action) time between rows that follow each other, in the unit of the times."""
        gaps = self.gaps
        time: Floats = self.counts.sum(axis=-1).astype(np.float64)
        np.add.at(time, (gaps.type, gaps.state, gaps.action), gaps.number * gaps.time)
        return time

    @property
    def departures(self) -> Ints:
        """(type, state, action) how often arms were seen to leave each pair, in one step or in another time."""
        departures: Ints = self.pairs.sum(axis=-1)
        return departures

    @property
    def unseen(self) -> Bools:
        """(type, state, action) the pairs that no arm of the type was seen to leave."""
        return np.asarray(self.departures == 0)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Moves whose states in between were not recorded, like ones together."""

    type: Indices
    """(kind,) of the arm."""

    state: Indices
    """(kind,) before."""

    action: Indices
    """(kind,) taken at the first step; the steps that were missed are idle, or carry it on."""

    next_state: Indices
    """(kind,) after."""

    time: Floats
    """(kind,) steps, or the time in between."""

    number: Ints
    """(kind,) how often it was seen."""
