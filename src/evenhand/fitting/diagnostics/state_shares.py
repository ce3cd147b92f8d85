"""Shares of states over time: those that were seen, and those that the fitted rows give from the start on.

For each type the expected numbers x of arms in each state are pushed from time to time,

    x[τ+1, s'] = Σ_s x[τ, s] κ[τ, s] Σ_a b[τ, s, a] p[s, a, s']  +  e[τ+1, s']

with what was recorded of everything that is not a transition: b, the shares of the actions given at time τ in state s;
κ, the share of the arms there that were seen again one step later; and e, the arms that come in, at their first row or
after a gap. If the model has arms in a state that was not observed at τ, b and κ are those of this state over
all time (of all states, where it was never seen with an action). States are never set right on the way: errors of the
rows add up, and show.

A gap is said to be more than chance where it is beyond 1.96 √(p (1 − p) / n + 1/(4 n²)), n arms seen: what n arms that
move by the model would do. The rows are themselves fitted to these records, so that this is a guide and no test.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.fitting.diagnostics.format import percent
from evenhand.fitting.diagnostics.steps import follows
from evenhand.fitting.log import NOTHING, Log
from evenhand.typing import Floats, Ints

MOST_CELLS = 50_000_000
"""Times, types, states and actions multiplied: more are not pushed through."""

Z = 1.96
"""Normal quantile of 95 % intervals."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Observed and predicted shares, over all types."""

    times: Ints | Floats
    """(time,) steps since the earliest record, where an arm was seen."""

    arms: Ints
    """(time,) how many were seen."""

    observed: Floats
    """(time, state) their shares."""

    predicted: Floats
    """(time, state) the model's."""

    states: tuple[str, ...]
    """(state,) their names."""

    distance: float
    """Mean total variation distance over arms: half the sum of the absolute differences."""

    errors: Floats | None = None
    """(time, state) posterior standard deviations of the predicted shares, if times are irregular."""

    @property
    def spread(self) -> Floats:
        """(time, state) how far apart both are at most in 95 % of cases, by chance."""
        arms = self.arms[:, None]
        known = 0.0 if self.errors is None else self.errors**2
        return np.asarray(Z * np.sqrt(self.predicted * (1 - self.predicted) / arms + 1 / (4.0 * arms**2) + known))

    @property
    def outside(self) -> float:
        """The share of times and states, by arms, at which the gap is more than chance; about 0.05 if all is well."""
        is_outside = np.abs(self.observed - self.predicted) > self.spread
        return float(is_outside.mean(axis=1) @ self.arms / self.arms.sum())

    @property
    def words(self) -> str:
        """A sentence."""
        # The largest gap in units of chance.
        gaps = np.round(np.abs(self.observed - self.predicted) / self.spread, 9)
        time, state = np.unravel_index(int(gaps.argmax()), gaps.shape)
        seen, given = self.observed[time, state], self.predicted[time, state]
        far = f"predicted and observed shares of states are {percent(self.distance)} apart on average"
        where = (
            f"at step {self.times[time]:g} in {self.states[state]}: {percent(seen)} seen, {percent(given)} predicted"
        )
        more = "none is further apart than chance allows (19 in 20)"
        if self.outside:
            more = (
                f"{percent(self.outside)} are further apart than chance allows, and about 5 % would be by chance alone"
            )
        return f"{far}, most {where}; {more}"


def shares_over_time(log: Log, transitions: Floats) -> Shares | str:
    """Push the arms of a log through the model; or say why not.

    Args:
        log: the records, at whole steps.
        transitions: (type, state, action, next_state) of the model.
    """
    if not log.regular:
        return "times are irregular: shares at a time cannot be counted"
    times = np.rint(log.time).astype(np.int64)
    span = int(times.max()) + 1 if len(times) else 0
    types, states, actions = transitions.shape[:3]
    if span < 2:
        return "all records are of one time"
    if span * types * states * actions > MOST_CELLS:
        return f"there are too many times ({span:,}) to push {types * states * actions:,} rows through"
    shape = (span, types, states, actions)
    place = np.ravel_multi_index((times, log.type_of[log.arm], log.state), shape[:3])
    steps = follows(log) & (log.action != NOTHING)
    came = np.append(False, steps[:-1])
    # Arms seen and arms coming in (time, type, state), and steps (time, type, state, action).
    seen, entered = (
        np.bincount(rows, minlength=span * types * states).reshape(shape[:3]) for rows in (place, place[~came])
    )
    given = np.bincount(place[steps] * actions + log.action[steps], minlength=int(np.prod(shape))).reshape(shape)
    transitions = np.nan_to_num(transitions)  # unknown rows, which no observed arm enters
    # A state that was never seen with an action gets the type's usual ones, and a type without any the idle action.
    idle = np.broadcast_to(np.eye(actions)[0], shape[1:])
    usual = _shares(given.sum(axis=0), _shares(given.sum(axis=(0, 2))[:, None], idle))
    usual_stay = _shares(given.sum(axis=(0, 3)), np.zeros(shape[1:3]), seen.sum(axis=0))
    expected = entered.astype(np.float64)
    for time in range(span - 1):
        stay = _shares(given[time].sum(axis=2), usual_stay, seen[time])
        policy = _shares(given[time], usual)
        expected[time + 1] += np.einsum("ts,tsa,tsaj->tj", expected[time] * stay, policy, transitions)
    total, model = seen.sum(axis=1), expected.sum(axis=1)
    arms = total.sum(axis=1)
    shown = np.flatnonzero((arms > 0) & (model.sum(axis=1) > 0))
    observed, arms = total[shown] / arms[shown, None], arms[shown]
    predicted = model[shown] / model[shown].sum(axis=1, keepdims=True)
    distance = float(np.abs(observed - predicted).sum(axis=1) / 2 @ arms / arms.sum())
    return Shares(shown, arms, observed, predicted, log.states, distance)


def _shares(part: Ints, otherwise: Floats, whole: Ints | None = None) -> Floats:
    """Shares of the whole, by default of the sum over actions; those of `otherwise` if it is 0."""
    whole = part.sum(axis=-1, keepdims=True) if whole is None else whole
    return np.where(whole > 0, part / np.maximum(whole, 1), otherwise)
