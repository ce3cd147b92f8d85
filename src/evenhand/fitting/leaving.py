"""Arms that are there no more: their records end well before those of the others.

A machine that was replaced, or a patient who moved away, says how arms move as any other does. Whether it is to be
served tomorrow the records do not tell, for records also end where nobody wrote anything down: a person says it
(`gone_after`), and is asked where it may matter.
"""

from dataclasses import replace

import numpy as np

from evenhand.checks import is_number, plain
from evenhand.display import counted
from evenhand.errors import InvalidInput
from evenhand.fitting.log import Log
from evenhand.model.places import quoted

LONG = 10
"""Steps before the end of the records from which on it is told that an arm was last seen then."""

SHOWN = 5
"""Arms that a note names."""


def without_gone(log: Log, gone_after: float | None) -> Log:
    """The same records, in which arms no longer take part that were not seen for long.

    Args:
        log: the records.
        gone_after: how many steps before their end an arm may have been seen last; None for any number.

    Raises:
        InvalidInput: `gone_after` is no number of steps.
    """
    if gone_after is None:
        return log
    if not is_number(gone_after) or not 0 <= gone_after < np.inf:
        told = plain(gone_after) if is_number(gone_after) else repr(gone_after)
        raise InvalidInput(f"gone-after: expected a number of steps, at least 0, got {told}")
    # What is a whole number of steps is not a hair more than it.
    left = log.ends > gone_after + 1e-9 * (1 + gone_after)
    number = counted(int(left.sum()), "arm") if left.any() else "no arm"
    gone = [name for t, name in enumerate(log.types) if left[log.type_of == t].all()]
    more = f"; no arm is left of {', '.join(map(quoted, gone))}, which the model leaves out" if gone else ""
    note = f"{number} last seen more than {plain(gone_after)} steps before the end of the records: not counted{more}"
    return replace(log, left=left, notes=(*log.notes, note))


def notes_of_ends(log: Log) -> list[str]:
    """What a person should know of arms that were not seen for long, and are counted all the same.

    Args:
        log: the records.
    """
    ends = log.ends
    long = np.flatnonzero(ends > LONG)
    # Numbers that begin alike for all arms may be counted from each arm's own start. If most arms end earlier than the
    # last one they are: on a calendar most arms are recorded until the end.
    begins = log.time[np.append(True, log.is_last[:-1])]
    may_be_own = log.unit == "step" and np.ptp(begins) < 1e-6
    if log.left is not None or not len(long) or (may_be_own and np.mean(ends < 1e-6) < 0.5):
        return []
    order = long[np.argsort(-ends[long], kind="stable")]
    named = ", ".join(f"{log.arms[arm]} ({ends[arm]:.4g} steps)" for arm in order[:SHOWN].tolist())
    more = f" and {len(order) - SHOWN} more" if len(order) > SHOWN else ""
    what = counted(len(order), "arm was", "arms were")
    they = "it is" if len(order) == 1 else "they are"
    unless = ", unless times are counted from each arm's own start" if may_be_own else ""
    return [
        f"{what} last seen more than {LONG} steps before the end of the records, and {they} counted: {named}{more}. "
        f"Leave out who is gone{unless}: --gone-after {LONG}"
    ]
