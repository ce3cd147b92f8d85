"""Rates of a continuous-time Markov chain with intervals: what a statistician reads of a fit.

    q[i, j]                 rate of jumps from i to j per unit of time
    1 / q[i]                mean sojourn time in i,  q[i] = sum over j of q[i, j]
    q[i, j] / q[i]          probability that the next state after i is j
    exp(b[e, i, j])         hazard ratio of effect e: per unit of a number, of a level against the first one, or of a
                            period against the first one

Rates are those at the means of numbers, the first levels of names, and the first period. Intervals are of 95 %.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.typing import Bools, Floats


@dataclass(frozen=True, eq=False)
class Rates(Shown):
    """Rates with intervals; each array has the estimate, then the lower and the upper end. NaN is unknown."""

    rates: Floats
    """(3, type, action, state, next_state) jumps per unit of time."""

    sojourn: Floats
    """(3, type, action, state) mean sojourn times; infinite in a state that is never left."""

    next_state: Floats
    """(3, type, action, state, next_state) probabilities of the next state."""

    hazard_ratios: Floats
    """(3, effect, state, next_state) hazard ratios; NaN for jumps without a rate."""

    draws: Floats
    """(1 + draw, type, action, state, next_state) rates of the model's types: the estimate, and posterior draws."""

    exact: tuple[int, ...] = ()
    """States whose every entry is a row at its very time."""

    types: tuple[str, ...] = ()
    """(type,) names."""

    states: tuple[str, ...] = ()
    """(state,) names."""

    actions: tuple[str, ...] = ()
    """(action,) names."""

    effects: tuple[str, ...] = ()
    """(effect,) names of covariates, levels and periods."""

    unit: str = ""
    """Unit of time."""

    def jumps(self) -> list[dict[str, Any]]:
        """One row per type, action and jump: its rate and the probability of the next state, with intervals."""
        names = {"type": self.types, "action": self.actions, "state": self.states, "next_state": self.states}
        shown = self.rates[2] > 0
        shares = _rows({}, "probability", self.next_state, shown, "probability_")
        return [rate | share for rate, share in zip(_rows(names, "rate", self.rates, shown), shares, strict=True)]

    def stays(self) -> list[dict[str, Any]]:
        """One row per type, action and state: its mean sojourn time with its interval."""
        names = {"type": self.types, "action": self.actions, "state": self.states}
        return _rows(names, "mean", self.sojourn, np.isfinite(self.sojourn[0]))

    def effect_rows(self) -> list[dict[str, Any]]:
        """One row per effect and jump: its hazard ratio with its interval."""
        names = {"effect": self.effects, "state": self.states, "next_state": self.states}
        return _rows(names, "hazard_ratio", self.hazard_ratios, np.isfinite(self.hazard_ratios[0]))

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        rows = {"jumps": self.jumps(), "sojourn_times": self.stays(), "hazard_ratios": self.effect_rows()}
        return {"unit": self.unit, **rows}

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per type, action and jump; see `jumps`.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        rows = self.jumps()
        return as_frame({key: [row[key] for row in rows] for key in (rows[0] if rows else {})}, library)

    def __repr__(self) -> str:
        effects = f", {counted(len(self.effects), 'effect')}" if self.effects else ""
        return f"Rates({counted(len(self.jumps()), 'jump')} per {self.unit}{effects})"


def _rows(
    names: dict[str, tuple[str, ...]], figure: str, ends: Floats, shown: Bools, prefix: str = ""
) -> list[dict[str, Any]]:
    """Rows with the names of each axis, an estimate and its ends."""
    keys, figures = (figure, f"{prefix}lower", f"{prefix}upper"), np.moveaxis(ends, 0, -1)[shown].tolist()
    places = [
        {key: known[i] for (key, known), i in zip(names.items(), place, strict=False)} for place in np.argwhere(shown)
    ]
    return [place | dict(zip(keys, three, strict=True)) for place, three in zip(places, figures, strict=True)]
