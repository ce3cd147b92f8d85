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
from evenhand.fitting.posterior import Posterior
from evenhand.typing import Bools, Floats, Ints

DRAWS = 1000
"""Draws of the posterior, if they fit into `MOST_BYTES`."""

FEWEST_DRAWS = 100
"""Minimum number of draws."""

MOST_BYTES = 2.5e8
"""Maximum size of the draws in bytes."""

LEVEL = 0.95
"""Probability of intervals."""


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
        rising = _rising(self.to, self.rise)
        if self.gain is None:
            return f"{what} changes this: {rising}" if self.is_sure else f"{what} is not seen to change much: {rising}"
        return f"{_verdict(what, self.gain, self.unit, self.ends)}; {rising}"


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
        often = "1 in 20 would"
        if self.each and self.each[0].gain is None:
            often = "1 in 20 would and a few more, because the next state that rises most is selected"
        said = f"{sure} of {len(self.each)} intervals by state leave 0 out; if no action did anything {often}"
        left, total = self.left_out
        where = "given in states in which no arm of the type was seen idle"
        return (
            f"{said}; {left:,} of {total:,} services {'is' if left == 1 else 'are'} not compared, {where}"
            if left
            else said
        )


def effects(
    visits: Ints,
    posterior: Posterior,
    names: tuple[tuple[str, ...], ...],
    worth: Floats | None,
    is_ordered: bool,
    rng: np.random.Generator,
) -> Effects:
    """Compare each action with the idle one.

    Args:
        visits: (type, state, action) number of rows per pair.
        posterior: of the transition rows.
        names: of types, states and actions.
        worth: (type, state) reward of a step under the idle action; None if unknown.
        is_ordered: whether the order of states is used instead.
        rng: of the draws.
    """
    number = int(np.clip(MOST_BYTES / max(1, 8 * visits.size * visits.shape[1]), FEWEST_DRAWS, DRAWS))
    # Unknown rows are not numbers and are not used below.
    means, drawn = np.nan_to_num(posterior.mean), np.nan_to_num(posterior.draw(number, rng))
    comparable = _comparable(visits)
    weights = np.where(comparable, visits, 0)
    comparison = _Comparison(
        weights, visits[:, :, 0], means - means[:, :, :1], drawn - drawn[:, :, :, :1], names, worth, is_ordered
    )
    overall = [comparison.overall(action) for action in np.flatnonzero(weights.sum(axis=(0, 1))).tolist()]
    each = [comparison.effect(*place) for place in np.argwhere(comparable).tolist()]
    services = int(visits[:, :, 1:].sum())
    left_out = services - int(weights.sum()), services
    return Effects(tuple(overall), tuple(each), _one_sided(visits, names), len(drawn), left_out)


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Changes of rows against the idle action, and what they are worth."""

    visits: Ints
    idle_visits: Ints
    means: Floats
    drawn: Floats
    names: tuple[tuple[str, ...], ...]
    worth: Floats | None
    is_ordered: bool

    def effect(self, t: int, s: int, a: int) -> Effect:
        """In one state."""
        whose = self.names[0][t] if len(self.names[0]) > 1 else ""
        value = self._value()
        gain = None if value is None else _estimate(self.means[t, s, a] @ value[t], self.drawn[:, t, s, a] @ value[t])
        numbers = int(self.visits[t, s, a]), int(self.idle_visits[t, s])
        return self._effect((whose, self.names[1][s], a), numbers, self.means[t, s, a], self.drawn[:, t, s, a], gain)

    def overall(self, a: int) -> Effect:
        """Over all states in which it was given, by how often it was."""
        weights = self.visits[:, :, a]
        share = weights / weights.sum()
        mean, drawn = (np.einsum("ts,...tsj->...tj", share, rows[..., a, :]) for rows in (self.means, self.drawn))
        value = self._value()
        gain = None if value is None else _estimate((mean * value).sum(), (drawn * value).sum(axis=(-1, -2)))
        numbers = int(weights.sum()), int(self.idle_visits[weights > 0].sum())
        return self._effect(("", "", a), numbers, mean.sum(axis=-2), drawn.sum(axis=-2), gain)

    def _value(self) -> Floats | None:
        """(type, state) what a state is worth, in rewards or in places."""
        if self.worth is None and self.is_ordered:
            return np.broadcast_to(np.arange(self.means.shape[1], dtype=np.float64), self.means.shape[:2])
        return self.worth

    def _effect(
        self, place: tuple[str, str, int], numbers: tuple[int, int], mean: Floats, drawn: Floats, gain: Estimate | None
    ) -> Effect:
        """Of a change of a row: (next_state,) and (draw, next_state)."""
        states = self.names[1]
        to = int(np.round(mean, 9).argmax())
        unit: Unit = "places" if self.worth is None else "reward"
        return Effect(
            place[0],
            place[1],
            self.names[2][place[2]],
            *numbers,
            states[to],
            _estimate(mean[to], drawn[:, to]),
            gain,
            None if gain is None else unit,
            (states[0], states[-1]),
        )


def _estimate(mean: float, drawn: Floats) -> Estimate:
    lower, upper = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(mean), float(lower), float(upper)


def _comparable(visits: Ints) -> Bools:
    """(type, state, action) whether an action and the idle one were both seen there; never the idle one itself."""
    comparable = (visits > 0) & (visits[:, :, :1] > 0)
    comparable[:, :, 0] = False
    return np.asarray(comparable)


def _one_sided(visits: Ints, names: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """States in which only one action was ever seen: a line for each type and action, in words."""
    found: dict[tuple[int, int], list[str]] = {}
    for t, s in np.argwhere((visits > 0).sum(axis=2) == 1).tolist():
        found.setdefault((t, int(visits[t, s].argmax())), []).append(names[1][s])
    return tuple(
        f"{f'{names[0][t]}: ' if len(names[0]) > 1 else ''}every arm got {names[2][a]} in {', '.join(states)}"
        for (t, a), states in found.items()
    )


def _verdict(what: str, gain: Estimate, unit: Unit | None, ends: tuple[str, str]) -> str:
    """`overhaul in poor helps: +0.42 [0.31, 0.52] reward a step later`."""
    mean, lower, upper = gain
    if unit == "reward":
        verb = "helps" if lower > 0 else "harms" if upper < 0 else "is not seen to help or harm"
        return f"{what} {verb}: {interval(*gain)} reward a step later"
    if lower > 0 or upper < 0:
        towards = (mean, lower, upper) if lower > 0 else (-mean, -upper, -lower)
        return f"{what} moves {interval(*towards).lstrip('+')} places towards {ends[lower > 0]}"
    return f"{what} is not seen to move arms: {interval(*gain)} places towards {ends[1]}"


def _rising(to: str, rise: Estimate) -> str:
    """`25 points [20, 30] more go to good`."""
    mean, lower, upper = (f"{100 * value:.0f}".replace("-", MINUS) for value in rise)
    return f"{mean} in 100 [{lower}, {upper}] more come to {to}"
