"""The moves of one step of a log, row by row: what the tests of a fit count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.fitting.log import NOTHING, Log
from evenhand.typing import Array, Bools, Floats, Indices, Ints

UNKNOWN = -1
"""The code of a state before that was not recorded."""

NEARLY = 1e-6
"""Tolerance of a pause of one step: times are read from texts."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Rows whose action is recorded and that are followed, one step later, by a row of the same arm."""

    arm: Indices
    """(step,) arm."""

    type: Indices
    """(step,) of the arm."""

    before: Indices
    """(step,) the state one step earlier; UNKNOWN if that was not recorded."""

    state: Indices
    """(step,) state."""

    action: Indices
    """(step,) action."""

    next_state: Indices
    """(step,) next state."""

    time: Floats
    """(step,) time in `state`."""

    def __len__(self) -> int:
        return len(self.arm)

    def where(self, selected: Bools) -> "Steps":
        """Only these steps.

        Args:
            selected: (step,) mask.
        """
        return self if selected.all() else Steps(**{name: values[selected] for name, values in vars(self).items()})


def follows(log: Log) -> Bools:
    """(row,) whether the next row is of the same arm, one step later."""
    found = np.zeros(len(log.arm), dtype=np.bool_)
    if log.regular:
        found[:-1] = (log.arm[1:] == log.arm[:-1]) & (np.abs(np.diff(log.time) - 1) < NEARLY)
    return found


def one_steps(log: Log) -> Steps:
    """The moves of one step; none if times are irregular.

    Args:
        log: the records.
    """
    followed = follows(log)
    came = np.append(False, followed[:-1])
    rows = np.flatnonzero(followed & (log.action != NOTHING))
    before = np.where(came[rows], log.state[rows - 1], UNKNOWN).astype(np.int32)
    arm = log.arm[rows]
    return Steps(arm, log.type_of[arm], before, log.state[rows], log.action[rows], log.state[rows + 1], log.time[rows])


def tally(columns: Sequence[Array], shape: tuple[int, ...]) -> Ints:
    """Contingency table: the number of records with each combination of codes.

    Args:
        columns: (record,) codes of each axis, from 0.
        shape: number of possible codes per axis.
    """
    return np.bincount(np.ravel_multi_index(columns, shape), minlength=int(np.prod(shape))).reshape(shape)


def late(time: Floats) -> Bools | None:
    """(step,) whether it is of the later half: cut between two times, as near to the middle as they allow.

    Args:
        time: (step,) when; None comes back where all times are one.
    """
    if not len(time) or time.min() == time.max():
        return None
    middle = float(np.partition(time, len(time) // 2)[len(time) // 2])
    after, before = time > middle, time < middle
    # The middle time itself goes to the smaller side.
    return np.asarray(after if after.sum() > before.sum() else ~before)
