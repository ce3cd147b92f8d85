"""What an action changes: the law of the next state against that of the idle action in the same state.

For type t, state s and action a, with rows p drawn from the posterior,

    rise = p[t, s, a, j] − p[t, s, idle, j]            j the next state whose probability rises most (by the means)
    gain = Σ_j (p[t, s, a, j] − p[t, s, idle, j]) u[t, j]

where u is what a state is worth: the reward of a step there under the idle action, or where no rewards are known the
state's place in the order of states. The gain is that of one step later; what the action itself costs is not in it.
`Overall` takes the mean of the gains over states and types, weighted by how often the action was given there.

Intervals are equal-tailed, 95 %, from draws. A pair that was not seen in a type is left out: its row is borrowed.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evenhand.fitting.diagnostics.phrases import MINUS, interval
from evenhand.fitting.posterior import Posterior
from evenhand.typing import Bools, Floats, Ints

DRAWS = 1000
"""Draws of the posterior, where they fit."""

FEWEST_DRAWS = 100

MOST_BYTES = 2.5e8
"""That the draws may take."""

LEVEL = 0.95


@dataclass(frozen=True)
class Effect:
    """What an action does in a state."""

    type: str
    """Of the arms; empty where there is one type."""

    state: str
    """In which it is given."""

    action: str
    """Which."""

    visits: int
    """How often it was given there."""

    idle_visits: int
    """How often the idle action was."""

    to: str
    """The next state whose probability rises most."""

    rise: tuple[float, float, float]
    """By how much: mean, lower and upper end."""

    gain: tuple[float, float, float]
    """In what the next state is worth: mean, lower and upper end."""

    unit: Literal["reward", "places"]
    """What the gain is counted in."""

    ends: tuple[str, str]
    """The first and the last state: from where and to where places are counted."""

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the gain leaves 0 out."""
        return self.gain[1] > 0 or self.gain[2] < 0

    @property
    def words(self) -> str:
        """A sentence."""
        where = f"{self.action} in {self.state}" + (f" ({self.type})" if self.type else "")
        return f"{_verdict(where, self.gain, self.unit, self.ends)}; {_rising(self.to, self.rise)}"


@dataclass(frozen=True)
class Overall:
    """What an action did where it was given."""

    action: str
    """Which."""

    visits: int
    """How often it was given, in rows where the idle action was seen too."""

    gain: tuple[float, float, float]
    """In what the next state is worth: mean, lower and upper end."""

    unit: Literal["reward", "places"]
    """What the gain is counted in."""

    ends: tuple[str, str]
    """The first and the last state."""

    @property
    def words(self) -> str:
        """A sentence."""
        return f"{_verdict(f'{self.action}, where it was given,', self.gain, self.unit, self.ends)}"


@dataclass(frozen=True)
class Effects:
    """What the actions do."""

    overall: tuple[Overall, ...]
    """One for each action that can be judged."""

    each: tuple[Effect, ...]
    """By type, state and action."""

    alone: tuple[str, ...]
    """Pairs of which only one side was seen, in words: what the action does there cannot be told."""

    draws: int
    """Of the posterior."""

    @property
    def words(self) -> str:
        """How many intervals there are, and what chance does to them."""
        sure = sum(effect.is_sure for effect in self.each)
        return f"{sure} of {len(self.each)} intervals by state leave 0 out; if no action did anything 1 in 20 would"


def effects(
    visits: Ints,
    posterior: Posterior,
    names: tuple[tuple[str, ...], ...],
    worth: Floats | None,
    rng: np.random.Generator,
) -> Effects:
    """Compare each action with the idle one.

    Args:
        visits: (type, state, action) how often each pair was seen.
        posterior: of the transition rows.
        names: of types, states and actions.
        worth: (type, state) what a step there brings under the idle action; None counts places in the order of states.
        rng: of the draws.
    """
    judged = _judged(visits)
    means = posterior.mean
    number = int(np.clip(MOST_BYTES / max(1, 8 * means.size), FEWEST_DRAWS, DRAWS))
    places = np.broadcast_to(np.arange(visits.shape[1], dtype=np.float64), visits.shape[:2])
    value = places if worth is None else worth
    unit: Literal["reward", "places"] = "places" if worth is None else "reward"
    # Rows that nothing is known of are not numbers; nobody asks for them below.
    means, drawn = np.nan_to_num(means), np.nan_to_num(posterior.draw(number, rng))
    to = _rising_most(means)
    ends = (names[1][0], names[1][-1])
    gains = _with_interval(_gains(means, value), _gains(drawn, value))
    rises = _with_interval(_rises(means, to), _rises(drawn, to))
    each = [
        Effect(
            names[0][t] if len(names[0]) > 1 else "",
            names[1][s],
            names[2][a],
            int(visits[t, s, a]),
            int(visits[t, s, 0]),
            names[1][to[t, s, a]],
            rises(t, s, a),
            gains(t, s, a),
            unit,
            ends,
        )
        for t, s, a in np.argwhere(judged).tolist()
    ]
    overall = _overall(np.where(judged, visits, 0), _gains(means, value), _gains(drawn, value))
    told = [Overall(names[2][a], number_, gain, unit, ends) for a, number_, gain in overall]
    return Effects(tuple(told), tuple(each), _one_sided(visits, names), len(drawn))


def _judged(visits: Ints) -> Bools:
    """(type, state, action) whether an action and the idle one were both seen there; never the idle one itself."""
    judged = (visits > 0) & (visits[:, :, :1] > 0)
    judged[:, :, 0] = False
    return np.asarray(judged)


def _gains(rows: Floats, value: Floats) -> Floats:
    """(..., type, state, action) from (..., type, state, action, next_state) rows."""
    expected = np.einsum("...tsaj,tj->...tsa", rows, value)
    return np.asarray(expected - expected[..., :1])


def _rising_most(means: Floats) -> Ints:
    """(type, state, action) the next state; of those that rise alike the first."""
    return np.asarray(np.round(means - means[:, :, :1], 9).argmax(axis=3))


def _rises(rows: Floats, to: Ints) -> Floats:
    """(..., type, state, action) by how much the probability of `to` is larger than under the idle action."""
    index = np.broadcast_to(to[..., None], (*rows.shape[:-1], 1))
    own = np.take_along_axis(rows, index, axis=-1)[..., 0]
    idle = np.take_along_axis(np.broadcast_to(rows[..., :1, :], rows.shape), index, axis=-1)[..., 0]
    return np.asarray(own - idle)


class _with_interval:  # noqa: N801  # called like a function
    """Means with equal-tailed intervals, entry by entry."""

    def __init__(self, mean: Floats, drawn: Floats) -> None:
        self.mean = mean
        self.lower, self.upper = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)

    def __call__(self, *place: int) -> tuple[float, float, float]:
        return float(self.mean[place]), float(self.lower[place]), float(self.upper[place])


def _overall(weights: Ints, mean: Floats, drawn: Floats) -> list[tuple[int, int, tuple[float, float, float]]]:
    """Action, visits and gain, of the actions that were seen beside the idle one."""
    found = []
    for action in np.flatnonzero(weights.sum(axis=(0, 1))):
        share = weights[:, :, action] / weights[:, :, action].sum()
        gain = _with_interval((mean[:, :, action] * share).sum(), (drawn[..., action] * share).sum(axis=(-1, -2)))
        found.append((int(action), int(weights[:, :, action].sum()), gain()))
    return found


def _one_sided(visits: Ints, names: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """States in which only one action was ever seen, type by type, in words."""
    told = []
    for t, s in np.argwhere((visits.sum(axis=2) > 0) & ((visits > 0).sum(axis=2) == 1)).tolist():
        whose = f" ({names[0][t]})" if len(names[0]) > 1 else ""
        only = int(visits[t, s].argmax())
        told.append(f"in {names[1][s]}{whose} every arm got {names[2][only]}")
    return tuple(told)


def _verdict(what: str, gain: tuple[float, float, float], unit: str, ends: tuple[str, str]) -> str:
    """`overhaul in poor helps: +0.42 [0.31, 0.52] reward a step later`."""
    mean, lower, upper = gain
    if unit == "reward":
        verb = "helps" if lower > 0 else "harms" if upper < 0 else "is not seen to help or harm"
        return f"{what} {verb}: {interval(*gain)} reward a step later"
    if lower > 0 or upper < 0:
        towards = (mean, lower, upper) if lower > 0 else (-mean, -upper, -lower)
        return f"{what} moves {interval(*towards).lstrip('+')} places towards {ends[lower > 0]}"
    return f"{what} is not seen to move arms: {interval(*gain)} places towards {ends[1]}"


def _rising(to: str, rise: tuple[float, float, float]) -> str:
    """`25 points [20, 30] more go to good`."""
    mean, lower, upper = (f"{100 * value:.0f}".replace("-", MINUS) for value in rise)
    return f"{mean} in 100 [{lower}, {upper}] more come to {to}"
