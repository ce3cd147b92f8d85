"""Logs of arms that move by known rows under a known rule, and what a test counts of them with plain loops."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from evenhand.fitting import Gaps, Log, Moves
from evenhand.typing import Floats, Indices, Ints, Rng

Rule = Callable[[int, Indices, Indices, np.random.Generator], Indices]
"""From the time, the states before and the states now to actions."""

GOOD_FAIR_POOR = ("good", "fair", "poor")

WEAR = np.array(
    [
        [[0.8, 0.2, 0.0], [0.9, 0.1, 0.0]],
        [[0.0, 0.7, 0.3], [0.6, 0.4, 0.0]],
        [[0.0, 0.0, 1.0], [0.7, 0.2, 0.1]],
    ]
)
"""(state, action, next_state): arms wear, and serving them helps."""


def by_chance(share: float) -> Rule:
    """Everyone alike, whatever the state."""
    return lambda time, before, state, rng: (rng.random(len(state)) < share).astype(np.int32)


def by_state(shares: list[float]) -> Rule:
    """With a probability for each state."""
    return lambda time, before, state, rng: (rng.random(len(state)) < np.array(shares)[state]).astype(np.int32)


def simulated(
    rows: Floats,
    num_arms: int,
    num_rows: int,
    rng: Rng = 0,
    rule: Rule | None = None,
    memory: Callable[[int, Indices], Floats] | None = None,
    states: tuple[str, ...] = GOOD_FAIR_POOR,
    actions: tuple[str, ...] = ("wait", "serve"),
    types: tuple[str, ...] = ("all",),
    start: list[float] | None = None,
) -> Log:
    """A log at whole steps.

    Args:
        rows: (type, state, action, next_state) or without types, by which arms move.
        num_arms: of all types, which take turns.
        num_rows: of each arm.
        rng: of arms and rule.
        rule: who is served; nobody if absent.
        memory: gives (arm, state, action, next_state) rows from the time and the states before, instead of `rows`.
        states: names.
        actions: names.
        types: names.
        start: law of the first states; uniform if absent.
    """
    rng = np.random.default_rng(rng)
    rows = rows if rows.ndim == 4 else rows[None]
    kind = np.arange(num_arms) % len(types)
    state = rng.choice(len(states), size=num_arms, p=start).astype(np.int32)
    before = state
    seen, given = np.empty((2, num_arms, num_rows), dtype=np.int32)
    for time in range(num_rows):
        seen[:, time] = state
        given[:, time] = rule(time, before, state, rng) if rule else 0
        law = rows[kind] if memory is None else memory(time, before)
        cumulated = law[np.arange(num_arms), state, given[:, time]].cumsum(axis=1)
        after = (rng.random(num_arms)[:, None] > cumulated).sum(axis=1)
        before, state = state, np.minimum(after, len(states) - 1).astype(np.int32)
    size = num_arms * num_rows
    return Log(
        tuple(f"arm {number}" for number in range(num_arms)),
        types,
        states,
        actions,
        kind.astype(np.int32),
        np.repeat(np.arange(num_arms, dtype=np.int32), num_rows),
        np.tile(np.arange(num_rows, dtype=np.float64), num_arms),
        seen.reshape(-1),
        given.reshape(-1),
        np.arange(size),
    )


def counted_moves(log: Log) -> Moves:
    """One step at a time, in a loop; gaps of whole steps are kept one by one."""
    shape = (len(log.types), len(log.states), len(log.actions), len(log.states))
    counts, gaps = np.zeros(shape, dtype=np.int64), []
    for i in range(len(log.arm) - 1):
        if log.arm[i] == log.arm[i + 1] and log.action[i] >= 0:
            kind, apart = log.type_of[log.arm[i]], log.time[i + 1] - log.time[i]
            if apart == 1:
                counts[kind, log.state[i], log.action[i], log.state[i + 1]] += 1
            else:
                gaps.append((kind, log.state[i], log.action[i], log.state[i + 1], apart))
    columns = np.array(gaps, dtype=np.float64).reshape(-1, 5).T
    codes = [column.astype(np.int32) for column in columns[:4]]
    return Moves(counts, Gaps(*codes, columns[4], np.ones(len(gaps), dtype=np.int64)))


class Rows:
    """Dirichlet rows, by scipy alone; one that has no concentration is not known."""

    def __init__(self, concentration: Ints | Floats) -> None:
        self.concentration = np.asarray(concentration, dtype=np.float64)

    @property
    def mean(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return self.concentration / self.concentration.sum(axis=-1, keepdims=True)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        rest = self.concentration.sum(axis=-1, keepdims=True) - self.concentration
        law = stats.beta(np.maximum(self.concentration, 1e-9), np.maximum(rest, 1e-9))
        return law.ppf((1 - level) / 2), law.ppf((1 + level) / 2)

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        shape = (num_draws, *self.concentration.shape)
        drawn = np.random.default_rng(rng).gamma(np.broadcast_to(self.concentration, shape))
        with np.errstate(invalid="ignore"):
            return drawn / drawn.sum(axis=-1, keepdims=True)
