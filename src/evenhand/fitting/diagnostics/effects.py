"""What an action changes: the law of the next state against that of the idle action in the same state.

For type t, state s and action a, with rows p drawn from the posterior,

    rise = p[t, s, a, j] − p[t, s, idle, j]            j the next state whose probability rises most (by the means)
    gain = Σ_j (p[t, s, a, j] − p[t, s, idle, j]) u[t, j]

where u is what a state is worth: the reward of a step there under the idle action, or where no rewards are known the
state's place in the order of states; where that order means nothing there is no gain. The gain is that of one step
later; what the action itself costs is not in it. `Overall` takes means over states and types, weighted by how often the
action was given there.

Intervals are equal-tailed, 95 %, from draws. A pair that was not seen in a type is left out: its row is borrowed.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evenhand.fitting.diagnostics.format import MINUS, interval
from evenhand.fitting.posterior import Posterior
from evenhand.typing import Bools, Floats, Ints

DRAWS = 1000
"""Draws of the posterior, where they fit."""

FEWEST_DRAWS = 100

MOST_BYTES = 2.5e8
"""That the draws may take."""

LEVEL = 0.95


Unit = Literal["reward", "places"]
"""What gains are counted in."""

Estimate = tuple[float, float, float]
"""Mean, lower and upper end."""


@dataclass(frozen=True)
class Effect:
    """What an action does."""

    type: str
    """Of the arms; empty where there is one type, or all are meant."""

    state: str
    """In which it is given; empty where all states are meant in which it was given."""

    action: str
    """Which."""

    visits: int
    """How often it was given there."""

    idle_visits: int
    """How often the idle action was."""

    to: str
    """The next state whose probability rises most."""

    rise: Estimate
    """By how much: mean, lower and upper end."""

    gain: Estimate | None
    """In what the next state is worth: mean, lower and upper end; None where states have no worth and no order."""

    unit: Unit | None
    """What the gain is counted in."""

    ends: tuple[str, str]
    """The first and the last state: from where and to where places are counted."""

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the gain, or of the rise where there is none, leaves 0 out."""
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
    """What the actions do."""

    overall: tuple[Effect, ...]
    """One for each action that can be judged: over all types and states in which it was given."""

    each: tuple[Effect, ...]
    """By type, state and action."""

    alone: tuple[str, ...]
    """States in which one action alone was seen, in words: what others do there cannot be told."""

    draws: int
    """Of the posterior."""

    left_out: tuple[int, int] = (0, 0)
    """Services that no effect is about, for no arm of the type was seen idle in the state; and all services."""

    @property
    def words(self) -> str:
        """How many intervals there are, and what chance does to them."""
        sure = sum(effect.is_sure for effect in self.each)
        often = "1 in 20 would"
        if self.each and self.each[0].gain is None:
            often = "1 in 20 would and a few more, for the next state that rises most is told"
        said = f"{sure} of {len(self.each)} intervals by state leave 0 out; if no action did anything {often}"
        left, total = self.left_out
        where = "given in states in which no arm of the type was seen idle"
        return (
            f"{said}; {left:,} of {total:,} services {'is' if left == 1 else 'are'} not judged, {where}"
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
        visits: (type, state, action) how often each pair was seen.
        posterior: of the transition rows.
        names: of types, states and actions.
        worth: (type, state) what a step there brings under the idle action; None where that is not known.
        is_ordered: whether places in the order of states stand for it then.
        rng: of the draws.
    """
    number = int(np.clip(MOST_BYTES / max(1, 8 * visits.size * visits.shape[1]), FEWEST_DRAWS, DRAWS))
    # Rows that nothing is known of are not numbers; nobody asks for them below.
    means, drawn = np.nan_to_num(posterior.mean), np.nan_to_num(posterior.draw(number, rng))
    judged = _judged(visits)
    weights = np.where(judged, visits, 0)
    told = _Told(
        weights, visits[:, :, 0], means - means[:, :, :1], drawn - drawn[:, :, :, :1], names, worth, is_ordered
    )
    overall = [told.overall(action) for action in np.flatnonzero(weights.sum(axis=(0, 1))).tolist()]
    each = [told.effect(*place) for place in np.argwhere(judged).tolist()]
    services = int(visits[:, :, 1:].sum())
    left_out = services - int(weights.sum()), services
    return Effects(tuple(overall), tuple(each), _one_sided(visits, names), len(drawn), left_out)


@dataclass(frozen=True, eq=False)
class _Told:
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


def _judged(visits: Ints) -> Bools:
    """(type, state, action) whether an action and the idle one were both seen there; never the idle one itself."""
    judged = (visits > 0) & (visits[:, :, :1] > 0)
    judged[:, :, 0] = False
    return np.asarray(judged)


def _one_sided(visits: Ints, names: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """States in which only one action was ever seen: a line for each type and action, in words."""
    told: dict[tuple[int, int], list[str]] = {}
    for t, s in np.argwhere((visits > 0).sum(axis=2) == 1).tolist():
        told.setdefault((t, int(visits[t, s].argmax())), []).append(names[1][s])
    return tuple(
        f"{f'{names[0][t]}: ' if len(names[0]) > 1 else ''}every arm got {names[2][a]} in {', '.join(states)}"
        for (t, a), states in told.items()
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
