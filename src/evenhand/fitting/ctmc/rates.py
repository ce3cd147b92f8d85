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
from evenhand.typing import Floats


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
        return [
            {
                "type": self.types[t],
                "action": self.actions[a],
                "state": self.states[i],
                "next_state": self.states[j],
                **_interval("rate", self.rates[:, t, a, i, j]),
                **_interval("probability", self.next_state[:, t, a, i, j], "probability_"),
            }
            for t, a, i, j in np.argwhere(self.rates[2] > 0).tolist()
        ]

    def stays(self) -> list[dict[str, Any]]:
        """One row per type, action and state: its mean sojourn time with its interval."""
        return [
            {
                "type": self.types[t],
                "action": self.actions[a],
                "state": self.states[i],
                **_interval("mean", self.sojourn[:, t, a, i]),
            }
            for t, a, i in np.argwhere(np.isfinite(self.sojourn[0])).tolist()
        ]

    def effect_rows(self) -> list[dict[str, Any]]:
        """One row per effect and jump: its hazard ratio with its interval."""
        return [
            {
                "effect": self.effects[e],
                "state": self.states[i],
                "next_state": self.states[j],
                **_interval("hazard_ratio", self.hazard_ratios[:, e, i, j]),
            }
            for e, i, j in np.argwhere(np.isfinite(self.hazard_ratios[0])).tolist()
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "unit": self.unit,
            "jumps": self.jumps(),
            "sojourn_times": self.stays(),
            "hazard_ratios": self.effect_rows(),
        }

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


def _interval(name: str, ends: Floats, prefix: str = "") -> dict[str, float]:
    """Estimate and ends by name."""
    return dict(zip((name, f"{prefix}lower", f"{prefix}upper"), ends.tolist(), strict=True))
