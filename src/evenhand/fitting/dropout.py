"""Arms lost to follow-up: their records end well before those of the others.

Such an arm informs the transitions as any other does. Whether it still has to be served is not in the records, which
also end for other reasons: the user decides (`gone_after`), and a note asks if it may matter.
"""

from dataclasses import replace

import numpy as np

from evenhand.checks import is_number, plain
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.model.places import quoted

LONG = 10
"""Steps before the end of the records from which on a last row is reported."""


def without_dropouts(log: Log, gone_after: float | None) -> Log:
    """The same records, with the arms marked that dropped out.

    Args:
        log: the records.
        gone_after: steps without a row before the end of the records after which an arm has dropped out; None if none
            has.

    Raises:
        InvalidInputError: `gone_after` is not a number of steps.
    """
    if gone_after is None:
        return log
    if not is_number(gone_after) or not 0 <= gone_after < np.inf:
        raise InvalidInputError(f"gone_after: expected a number of steps, at least 0, got {gone_after!r}")
    # A whole number of steps is not exceeded by rounding.
    left = log.ends > gone_after + 1e-9 * (1 + gone_after)
    number = counted(int(left.sum()), "arm") if left.any() else "no arm"
    gone = [name for t, name in enumerate(log.types) if left[log.type_of == t].all()]
    more = f"; no arm is left of {', '.join(map(quoted, gone))}, which the model leaves out" if gone else ""
    note = f"{number} last seen more than {plain(gone_after)} steps before the end of the records: not counted{more}"
    return replace(log, left=left, notes=(*log.notes, note))


def dropout_notes(log: Log) -> list[str]:
    """Note on arms whose records end early, and which are counted all the same.

    Args:
        log: the records.
    """
    ends = log.ends
    long = np.flatnonzero(ends > LONG)
    # Numbers that start alike for all arms may be counted from each arm's own start. They are if most arms end earlier
    # than the last one: on a calendar most arms are recorded until the end.
    starts = log.time[np.append(True, log.is_last[:-1])]
    may_be_own = log.unit == "step" and np.ptp(starts) < 1e-6
    if log.left is not None or not len(long) or (may_be_own and np.mean(ends < 1e-6) < 0.5):
        return []
    order = long[np.argsort(-ends[long], kind="stable")]
    named = ", ".join(f"{log.arms[arm]} ({ends[arm]:.4g} steps)" for arm in order[:5].tolist())
    more = f" and {len(order) - 5} more" if len(order) > 5 else ""
    unless = ", unless times are counted from each arm's own start" if may_be_own else ""
    return [
        f"{counted(len(order), 'arm was', 'arms were')} last seen more than {LONG} steps before the end of the records "
        f"and counted: {named}{more}. Leave dropouts out{unless} by `gone_after`"
    ]
