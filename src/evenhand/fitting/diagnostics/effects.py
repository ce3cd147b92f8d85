"""Effects of actions: the distribution of the next state, compared with the idle action in the same state.

For type t, state s and action a, with rows p drawn from the posterior,

    rise = p[t, s, a, j] − p[t, s, idle, j]            j the next state whose probability rises most (by the means)
    gain = Σ_j (p[t, s, a, j] − p[t, s, idle, j]) u[t, j]

where u is the value of a state: the reward of a step there under the idle action, or without rewards the place in the
order of states; without an order the gain is undefined. The gain is that of one step later, without the cost of the
action. `overall` takes means over states and types, weighted by the number of services there.

Intervals are equal-tailed, 95 %, from draws. A pair that was not observed in a type is left out: its row is borrowed.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evenhand.fitting.diagnostics.format import MINUS, interval
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Posterior
from evenhand.typing import Floats, Ints

DRAWS = 1000
"""Draws of the posterior, if they fit into `MOST_BYTES`."""

FEWEST_DRAWS = 100
"""Minimum number of draws."""

MOST_BYTES = 2.5e8
"""Maximum size of the draws in bytes."""

Unit = Literal["reward", "places"]
"""Unit of gains."""

Estimate = tuple[float, float, float]
"""Mean, lower and upper end."""


@dataclass(frozen=True)
class Effect:
    """Effect of an action."""

    type: str
    """Type of the arms; empty for a single type, or for all."""

    state: str
    """State; empty for all states in which the action was given."""

    action: str
    """Action."""

    visits: int
    """Number of services there."""

    idle_visits: int
    """Number of idle rows there."""

    to: str
    """The next state whose probability rises most."""

    rise: Estimate
    """Increase of its probability: mean, lower and upper end."""

    gain: Estimate | None
    """Increase of the value of the next state: mean, lower and upper end; None without rewards and order."""

    unit: Unit | None
    """Unit of the gain."""

    ends: tuple[str, str]
    """First and last state in the order."""

    @property
    def is_sure(self) -> bool:
        """Return whether the interval of the gain, or else of the rise, excludes 0."""
        _, lower, upper = self.rise if self.gain is None else self.gain
        return lower > 0 or upper < 0

    @property
    def words(self) -> str:
        """A sentence."""
        where = f"{self.action} in {self.state}" if self.state else f"{self.action}, where it was given,"
        what = where + (f" ({self.type})" if self.type else "")
        risen, low, high = (f"{100 * value:.0f}".replace("-", MINUS) for value in self.rise)
        rising = f"{risen} in 100 [{low}, {high}] more come to {self.to}"
        if self.gain is None:
            return f"{what} changes this: {rising}" if self.is_sure else f"{what} is not seen to change much: {rising}"
        mean, lower, upper = self.gain
        if self.unit == "reward":
            verb = "helps" if lower > 0 else "harms" if upper < 0 else "is not seen to help or harm"
            return f"{what} {verb}: {interval(*self.gain)} reward a step later; {rising}"
        if self.is_sure:
            towards = (mean, lower, upper) if lower > 0 else (-mean, -upper, -lower)
            places = f"{interval(*towards).lstrip('+')} places towards {self.ends[lower > 0]}"
            return f"{what} moves {places}; {rising}"
        return f"{what} is not seen to move arms: {interval(*self.gain)} places towards {self.ends[1]}; {rising}"


@dataclass(frozen=True)
class Effects:
    """Effects of all actions."""

    overall: tuple[Effect, ...]
    """Per comparable action, over all types and states in which it was given."""

    each: tuple[Effect, ...]
    """By type, state and action."""

    alone: tuple[str, ...]
    """States with a single observed action, in words: effects are not identified there."""

    draws: int
    """Number of draws of the posterior."""

    left_out: tuple[int, int] = (0, 0)
    """Services without a comparison, because no arm of the type was idle in the state; and all services."""

    @property
    def words(self) -> str:
        """Number of intervals that exclude 0, and the number expected by chance."""
        sure = sum(effect.is_sure for effect in self.each)
        more = " and a few more, because the next state that rises most is selected"
        often = f"1 in 20 would{more if self.each and self.each[0].gain is None else ''}"
        said = f"{sure} of {len(self.each)} intervals by state leave 0 out; if no action did anything {often}"
        left, total = self.left_out
        where = "not compared, given in states in which no arm of the type was seen idle"
        return f"{said}; {left:,} of {total:,} services {'is' if left == 1 else 'are'} {where}" if left else said


def effects(log: Log, visits: Ints, posterior: Posterior, worth: Floats | None, rng: np.random.Generator) -> Effects:
    """Compare each action with the idle one.

    Args:
        log: names, and whether the order of states is used without rewards.
        visits: (type, state, action) number of rows per pair.
        posterior: of the transition rows.
        worth: (type, state) reward of a step under the idle action; None if unknown.
        rng: of the draws.
    """
    number = int(np.clip(MOST_BYTES / max(1, 8 * visits.size * visits.shape[1]), FEWEST_DRAWS, DRAWS))
    # Unknown rows are not numbers and are not used below.
    means, drawn = np.nan_to_num(posterior.mean), np.nan_to_num(posterior.draw(number, rng))
    means, drawn = means - means[:, :, :1], drawn - drawn[:, :, :, :1]
    types, states, actions = log.types, log.states, log.actions
    places = np.broadcast_to(np.arange(len(states), dtype=np.float64), means.shape[:2]) if log.is_ordered else None
    value = places if worth is None else worth

    def effect(kind: str, state: str, a: int, t: Ints, s: Ints) -> Effect:
        """Mean effect of an action over some types and states, weighted by the services there."""
        share = visits[t, s, a] / visits[t, s, a].sum()
        at, gain = (t, s, np.full(len(t), a)), None
        mean, draws = (np.einsum("p,...pj->...j", share, rows) for rows in (means[at], drawn[:, *at]))
        if value is not None:
            gains = (np.einsum("p,...pj,pj->...", share, rows, value[t]) for rows in (means[at], drawn[:, *at]))
            gain = _estimate(*gains)
        to = int(np.round(mean, 9).argmax())
        unit: Unit | None = None if gain is None else "places" if worth is None else "reward"
        numbers = int(visits[t, s, a].sum()), int(visits[t, s, 0].sum())
        rise = _estimate(mean[to], draws[:, to])
        return Effect(kind, state, actions[a], *numbers, states[to], rise, gain, unit, (states[0], states[-1]))

    # Both actions must have been observed in the state.
    comparable = (visits > 0) & (visits[:, :, :1] > 0)
    comparable[:, :, 0] = False
    compared = np.flatnonzero(comparable.any(axis=(0, 1))).tolist()
    overall = [effect("", "", a, *np.nonzero(comparable[:, :, a])) for a in compared]
    each = [
        effect(types[t] if len(types) > 1 else "", states[s], a, np.array([t]), np.array([s]))
        for t, s, a in np.argwhere(comparable).tolist()
    ]
    alone: dict[tuple[int, int], list[str]] = {}
    for t, s in np.argwhere((visits > 0).sum(axis=2) == 1).tolist():
        alone.setdefault((t, int(visits[t, s].argmax())), []).append(states[s])
    whose = [f"{name}: " if len(types) > 1 else "" for name in types]
    lines = tuple(f"{whose[t]}every arm got {actions[a]} in {', '.join(where)}" for (t, a), where in alone.items())
    services = int(visits[:, :, 1:].sum())
    return Effects(tuple(overall), tuple(each), lines, number, (services - int(visits[comparable].sum()), services))


def _estimate(mean: float, drawn: Floats) -> Estimate:
    lower, upper = np.quantile(drawn, [0.025, 0.975])
    return float(mean), float(lower), float(upper)
