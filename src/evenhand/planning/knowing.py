"""What is worth knowing: which rows of transitions, if they were known, would make for a better plan.

Plans k have the welfare w_kd in draw d. Without more knowledge the best choice is the plan b with the best mean. Were
the truth known, the best plan of each draw would be taken, which is worth on average

    total  =  mean_d max_k (w_kd - w_bd)                       (expected value of perfect information)

A row x (one type, state and action) alone can be known: then the plan is chosen by what x tells of the others,

    worth(x)  =  E max_k E[w_k - w_b | x]                      (of partial perfect information)

The inner expectation is a regression of w_k - w_b on the row's drawn probabilities (Strong, Oakley and Brennan, Medical
Decision Making 34, 2014), here on their values and squares. A regression that sees the draw which it predicts finds
worth where there is none; so draws are predicted from the other FOLDS - 1 tenths of them, the plan is chosen by the
prediction, and counted is what it really gains in the draw:

    worth(x)  ~  mean_d gain_{k(x_d), d},      k(x_d) chosen without d

This is what a rule that was learned gains, no more than the best rule: on average an estimate from below, for every row
no more than `total`, and around 0 for a row that tells nothing. The plans are finitely many, those for the model and
for some draws, so that the total is from below, too: better plans may exist in each world. Where plans were played,
what chance adds to their differences is taken out as in `evaluation.draws`.

There are many rows, and of 36 that are worth nothing one or two lie two standard errors above 0. A row is named in
words where Holm's step-down test of them all tells it from 0, and where it is worth a notable share of the welfare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from evenhand.display import FrameLibrary, Shown, as_frame
from evenhand.evaluation.draws import PolicyDraws, difference
from evenhand.evaluation.worlds import Worlds
from evenhand.typing import Floats

FOLDS = 10
"""Parts of the draws, each predicted from the others."""

LEVEL = 0.05
"""The chance that any row is named in words although none is worth anything, whatever their number (Holm, 1979)."""

NOTABLE = 1e-3
"""Share of the welfare that a row must be worth to be named: recording costs something, too."""

RIDGE = 1e-3
"""How much coefficients are held back, as a share of the number of draws; regressors have variance 1."""

SQUARES_UP_TO = 20
"""Draws for each regressor from which squares are regressed on, too."""


class RowWorth(NamedTuple):
    """What it would be worth to know one row."""

    type: str
    """The type of arm."""

    state: str
    """Where it is."""

    action: str
    """What is done."""

    worth: float
    """Welfare that knowing the row would add, on average; not negative."""

    stderr: float
    """Its standard error."""


@dataclass(frozen=True, eq=False)
class WorthKnowing(Shown):
    """Which rows, if known, would make for a better plan."""

    total: float
    """Welfare that knowing all rows would add, on average: no row is worth more."""

    welfare: float
    """The mean welfare of the best plan without it."""

    best: str
    """That plan."""

    num_plans: int
    """Plans among which is chosen."""

    num_draws: int
    """Draws over which means are taken."""

    rows: tuple[RowWorth, ...]
    """The most worth first."""

    def __repr__(self) -> str:
        first = f", most of it by {_place(self.sure[0])}" if self.sure else ""
        return f"WorthKnowing(all of it {self.total:.3g} of {self.welfare:.6g}{first})"

    @cached_property
    def sure(self) -> tuple[RowWorth, ...]:
        """The rows that stand out: worth more than chance explains in so many rows, and a notable share of welfare."""
        # Holm's steps: the smallest chance must be below LEVEL / n, the next below LEVEL / (n - 1), until one is not.
        # Rounded, so that equal chances keep their order on every machine.
        chances = [_chance(row, self.num_draws) for row in self.rows]
        found = []
        for place, row in enumerate(sorted(range(len(chances)), key=lambda i: (round(chances[i], 12), i))):
            if chances[row] > LEVEL / (len(chances) - place):
                break
            found.append(row)
        # Significant and notable; told in the order of the rows, the most worth first.
        return tuple(self.rows[i] for i in sorted(found) if self.rows[i].worth >= NOTABLE * abs(self.welfare))

    @property
    def words(self) -> str:
        """What to record, in a sentence."""
        sure = self.sure[:3]
        if self.total <= 1e-6 * abs(self.welfare):
            return "knowing the transitions better would not change the plan"
        share = f"{100 * self.total / abs(self.welfare):.2g} %" if self.welfare else f"{self.total:.3g}"
        if not sure:
            return f"knowing everything would add {share}; no single row stands out"
        return f"record more of: {'; '.join(map(_place, sure))} (knowing everything would add {share})"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row for each row of transitions: type, state, action, worth and its standard error.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in RowWorth._fields}, library)

    def to_dict(self, most: int | None = None) -> dict[str, Any]:
        """The JSON form.

        Args:
            most: rows at the most; all when absent.
        """
        return {
            "total": self.total,
            "welfare": self.welfare,
            "best": self.best,
            "plans": self.num_plans,
            "words": self.words,
            "rows": [row._asdict() | {"stands_out": row in self.sure} for row in self.rows[:most]],
        }


def _chance(row: RowWorth, num_draws: int) -> float:
    """How likely a row that is worth nothing would seem to be worth as much."""
    if row.worth <= 0 or num_draws < 2:
        return 1.0
    # One-sided: only a gain makes a row worth knowing.
    return float(stdtr(num_draws - 1, -row.worth / row.stderr)) if row.stderr > 0 else 0.0


def _place(row: RowWorth) -> str:
    return ", ".join(part for part in (row.type, row.state, row.action) if part)


def worth_knowing(rows: Sequence[PolicyDraws], worlds: Worlds) -> WorthKnowing:
    """Which rows of transitions, if known, would make for a better plan.

    Args:
        rows: the plans among which is chosen, over the same draws.
        worlds: the draws.
    """
    means = np.array([row.mean for row in rows])
    # Of plans that are equal but for rounding, the first.
    best = int(np.argmax(np.round(means / (np.abs(means).max() or 1.0), 10)))
    # (plan, draw); the row of the best itself is 0.
    gains = np.stack([difference(row, rows[best]) for row in rows])
    # The head's `total`: the best is among the plans, so that no draw can lose.
    total = float(np.maximum(gains.max(axis=0), 0.0).mean())
    found = [RowWorth(*_called(worlds, place), *_worth(gains, features)) for place, features in _uncertain(worlds)]
    # Rounded, for a stable order of rows that are worth the same.
    found.sort(key=lambda row: -float(f"{row.worth:.9g}"))
    return WorthKnowing(total, float(means[best]), rows[best].policy, len(rows), len(worlds), tuple(found))


def _uncertain(worlds: Worlds) -> list[tuple[tuple[int, int, int], Floats]]:
    """Every (source, state, action) whose row differs between draws, with its (draw, regressor) probabilities."""
    drawn = worlds.transitions
    # Over draws; a row that never varies is known already.
    spread = drawn.std(axis=0)
    found = []
    for source, state, action in np.argwhere((spread > 1e-12).any(axis=-1)).tolist():
        varies = np.flatnonzero(spread[source, state, action] > 1e-12)[:-1]  # they sum to 1: the last tells no more
        found.append(((source, state, action), drawn[:, source, state, action][:, varies]))
    return found


def _called(worlds: Worlds, place: tuple[int, int, int]) -> tuple[str, str, str]:
    """The names of a row's type, state and action; numbers where they have none."""
    source, state, action = place
    block = int(np.flatnonzero(worlds.source_of_block == source)[0])
    labels = worlds.problem.tables.labels
    name, states, actions = labels[block] if labels else ("", (), ())
    return (
        name or f"type {source}",
        states[state] if states else f"state {state}",
        actions[action] if actions else f"action {action}",
    )


def _worth(gains: Floats, probabilities: Floats) -> tuple[float, float]:
    """What choosing by a row is worth, and its standard error.

    Args:
        gains: (plan, draw) what each plan has more than the best without knowledge.
        probabilities: (draw, regressor) what is told of the row.
    """
    number = gains.shape[1]
    features = _standardised(probabilities)
    # Squares only where the draws can bear twice as many coefficients.
    if features.shape[1] * 2 * SQUARES_UP_TO <= number:
        features = np.column_stack([features, _standardised(np.square(features))])
    fold, chosen = np.arange(number) % FOLDS, np.zeros(number)
    # Cross-fitting: every draw is decided by a regression that has not seen it.
    for part in range(FOLDS):
        out = fold == part
        guess = _predicted(features[~out], gains[:, ~out], features[out])
        # What the chosen plan gains in the draw itself, not what was predicted of it.
        chosen[out] = np.take_along_axis(gains[:, out], guess.argmax(axis=0)[None], axis=0)[0]
    # A rule that loses would not be followed.
    return max(0.0, float(chosen.mean())), float(chosen.std(ddof=1) / np.sqrt(number))


def _standardised(columns: Floats) -> Floats:
    # A column that is constant stays 0.
    return np.asarray((columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-300))


def _predicted(known: Floats, gains: Floats, asked: Floats) -> Floats:
    """(plan, draw) what is expected of each plan, by a regression held back a little."""
    centre, level = known.mean(axis=0), gains.mean(axis=1, keepdims=True)
    apart = known - centre
    # Ridge: regressors have variance 1, so that one number holds back all of them alike.
    squares = apart.T @ apart + RIDGE * len(known) * np.eye(apart.shape[1])
    slopes = np.linalg.solve(squares, apart.T @ (gains - level).T)
    return np.asarray(level + ((asked - centre) @ slopes).T)
