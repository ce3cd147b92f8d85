"""Notes on questions that the records leave open, and arms lost to follow-up.

An arm whose records end well before those of the others informs the transitions as any other does. Whether it still
has to be served is not in the records, which also end for other reasons: the user decides (`gone_after`), and a note
asks if it may matter.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.checks import is_number, plain
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.options import listed
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.model.places import quoted

LONG = 10
"""Steps from which on an absence is reported, between two rows or before the end of the records."""


def recovery_notes(log: Log, moves: Moves, posterior: Posterior) -> list[str]:
    """Note on recoveries under the idle action that were never observed, and have a probability in the model.

    Args:
        log: the records, whose states are in order, the best first.
        moves: transition counts.
        posterior: of the rows.
    """
    better = np.tril(np.ones((len(log.states),) * 2, dtype=bool), -1)
    idle, mean = moves.counts[:, :, 0], np.nan_to_num(posterior.mean[:, :, 0])
    number = int(idle.sum(axis=(0, 2))[1:].sum())
    gaps = moves.gaps
    back = idle[:, better].any() or ((gaps.action == 0) & (gaps.next_state < gaps.state)).any()
    mass = (mean * better).sum(axis=-1)
    t, s = (int(i) for i in np.unravel_index(int(np.round(mass, 9).argmax()), mass.shape))
    # 20 idle moves and a probability of 0.005 are enough to ask.
    if not log.is_ordered or not log.regular or back or number < 20 or mass[t, s] < 0.005:
        return []
    of = f" ({quoted(log.types[t])})" if len(log.types) > 1 else ""
    seen = f"none of {number:,} moves under {log.actions[0]} was back towards {quoted(log.states[0])}"
    model = f"the model has up to {100 * mass[t, s]:.2g} % of it per step, in {quoted(log.states[s])}{of}"
    hint = "If states only get worse by themselves, give `only_worse`; for single impossible transitions, `impossible`"
    return [f"{seen}, and {model}. {hint}"]


def state_notes(log: Log, absorbing: str | Sequence[str] = ()) -> list[str]:
    """Notes on states that were never left, and on arms that were absent for long.

    Args:
        log: the records.
        absorbing: names of absorbing states.
    """
    following = log.arm[1:] == log.arm[:-1]
    before, after = log.state[:-1][following], log.state[1:][following]
    never_left = np.setdiff1d(after, before[before != after]).tolist()
    notes = [
        f"no arm was seen to leave {quoted(log.states[state])}: if none can, give it as `absorbing`"
        for state in never_left
        if log.states[state] not in listed(absorbing)
    ]
    steps = np.where(following & log.regular, np.rint(np.diff(log.time)), 0)
    if (long := np.flatnonzero(steps > LONG)).size:
        order = long[np.argsort(-steps[long], kind="stable")][:5]
        rows = log.faults("")
        named = ", ".join(f"{log.arms[log.arm[i]]} after {int(steps[i])} steps ({rows.name(i + 1)})" for i in order)
        notes.append(f"{counted(len(long), 'time')} an arm reappears after more than {LONG} steps: {named}")
    return notes


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
    early = (
        f"{counted(len(order), 'arm was', 'arms were')} last seen more than {LONG} steps before the end of the records"
    )
    return [f"{early} and counted: {named}{more}. Leave dropouts out{unless} by `gone_after`"]
