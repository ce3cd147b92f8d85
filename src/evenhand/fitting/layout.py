"""Layouts of a log: whether rows are states at chosen times, or changes at their own times.

    snapshots   a row is the state at a time that has nothing to do with it; between two rows anything may have happened
    events      a row is written when the state changes (or an action is given), and the state stays until the next row

Read as snapshots, changes alone look like a chain that never rests. So a log is refused until its layout is given, if
hardly any row repeats the state of the row before it. A chain that is reversible in time is found in state i at least
as often as its share there says if it was in i before, after any time, so that of n pairs of rows at least

    n c pairs repeat a state,         c = sum over i of (share of rows in state i)^2

are expected. A log is suspicious if it has less than a tenth of them, and a binomial distribution of n pairs and chance
c as few with a probability of at most 1e-6: at least 20 pairs of two states. Chains that go round in circles may have
as few; they need their layout given.

Only pairs that the two layouts read differently are counted: those of more than one step, whose next state is not
exact. The last pair of an arm may end with where it was when the records ended; so pairs are counted with the last ones
and without, and either may be suspicious.
"""

from dataclasses import replace
from typing import get_args

import numpy as np
from scipy.special import bdtr

from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.fitting.log import Log
from evenhand.fitting.options import Layout
from evenhand.typing import Bools, Floats, Ints

RARE, SURPRISE = 0.1, 1e-6
"""Share of the expected repetitions, and probability of as few, below which rows are taken for changes."""


def with_layout(log: Log, layout: Layout | None, carry_action: bool = False, exact: tuple[int, ...] = ()) -> Log:
    """Return the log as its layout says: the steps between two events are filled in if times are whole steps.

    Args:
        log: the records.
        layout: what a row is; None for snapshots, unless hardly any row repeats a state.
        carry_action: whether an action goes on until the next row; else it acts for one step.
        exact: states of which every entry is a row anyway.

    Raises:
        InvalidInputError: the layout must be given.
    """
    if layout not in (None, *get_args(Layout)):
        raise UnknownNameError("layout", str(layout), get_args(Layout))
    if layout is None:
        _refuse_changes(log, exact)
    if layout != "events":
        return log
    note = "rows are changes, and a state stays until the next row"
    if not log.regular:
        return replace(log, notes=(*log.notes, note))
    filled = _filled(log, carry_action)
    return replace(filled, notes=(*log.notes, f"{note}: {len(filled.arm) - len(log.arm):,} steps were filled in"))


def _refuse_changes(log: Log, exact: tuple[int, ...]) -> None:
    ambiguous = (log.arm[1:] == log.arm[:-1]) & ~np.isin(log.state[1:], exact)
    if log.regular:
        ambiguous &= np.rint(np.diff(log.time)) > 1
    for pairs in (ambiguous, ambiguous & ~log.is_last[1:]):
        before, after = log.state[:-1][pairs], log.state[1:][pairs]
        number, repeated = len(before), int((before == after).sum())
        shares = np.bincount(np.concatenate([before, after])) / max(2 * number, 1)
        chance = float((shares**2).sum())
        if repeated < RARE * number * chance and bdtr(repeated, number, chance) < SURPRISE:
            raise InvalidInputError(
                f"rows look like changes: {repeated:,} of {number:,} pairs of rows repeat a state, and states at "
                f'chosen times would in about {number * chance:,.0f} or more. Say what a row is: layout="events" (a '
                'change; the state stays until the next row), or layout="snapshots" (the state at a chosen time)'
            )


def _filled(log: Log, carry_action: bool) -> Log:
    """The same records with a row for every step up to the next event of the arm."""
    steps: Ints = np.ones(len(log.arm), dtype=np.int64)
    steps[~log.is_last] = np.rint(np.diff(log.time)[~log.is_last[:-1]]).astype(np.int64)
    check_memory(64.0 * float(steps.sum()), "the steps between two changes", "Give a longer step.")
    source = np.repeat(np.arange(len(steps)), steps)
    later = np.arange(len(source)) - np.repeat(np.cumsum(steps) - steps, steps)
    own: Bools = later == 0

    def recorded(column: Floats | None) -> Floats | None:
        """A column with NaN in the rows that nothing was recorded in."""
        if column is None:
            return None
        return np.where(own.reshape(-1, *[1] * (column.ndim - 1)), column[source], np.nan)

    return replace(
        log,
        arm=log.arm[source],
        time=log.time[source] + later,
        state=log.state[source],
        action=log.action[source] if carry_action else np.where(own, log.action[source], 0).astype(np.int32),
        row=log.row[source],
        reward=recorded(log.reward),
        used=recorded(log.used),
    )
