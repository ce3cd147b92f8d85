"""Notes on questions that the records leave open, and arms lost to follow-up.

An arm that died, or whose records end well before those of the others, informs the transitions as any other does, and
is not counted in the model: it need not be served. A note says how many there are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.checks import is_number
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.options import listed
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.model.labels import quoted

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
    following = log.has_next[:-1]
    notes = [
        f"no arm was seen to leave {quoted(log.states[state])}: if none can, give it as `absorbing`"
        for state in _never_left(log)
        if log.states[state] not in listed(absorbing)
    ]
    steps = np.where(following & log.regular, np.rint(np.diff(log.time)), 0)
    if (long := np.flatnonzero(steps > LONG)).size:
        order = long[np.argsort(-steps[long], kind="stable")][:5]
        rows = log.faults("")
        named = ", ".join(f"{log.arms[log.arm[i]]} after {int(steps[i])} steps ({rows.name(i + 1)})" for i in order)
        notes.append(f"{counted(len(long), 'time')} an arm reappears after more than {LONG} steps: {named}")
    return notes


def _never_left(log: Log) -> list[int]:
    """States that an arm was seen to enter or stay in, and none to leave."""
    following = log.has_next[:-1]
    before, after = log.state[:-1][following], log.state[1:][following]
    states: list[int] = np.setdiff1d(after, before[before != after]).tolist()
    return states


def without_departed(log: Log, gone_after: float | None = None, ended: Sequence[int] = ()) -> Log:
    """The same records, with the arms marked that died or dropped out: they inform the model and do not count in it.

    By default an arm has dropped out if it was last seen more than LONG steps before the end of the records, and twice
    as long as nearly all pauses between rows; none has if times may be counted from each arm's own start.

    Args:
        log: the records.
        gone_after: steps without a row before the end of the records after which an arm has dropped out.
        ended: states in which an arm is no longer served, such as death; those that an arm was seen to leave are not.

    Raises:
        InvalidInputError: `gone_after` is not a number of steps.
    """
    if gone_after is not None and not (is_number(gone_after) and gone_after >= 0):
        raise InvalidInputError(f"gone_after: expected a number of steps, at least 0, got {gone_after!r}")
    left_states = log.state[:-1][log.has_next[:-1] & (log.state[1:] != log.state[:-1])]
    ended = [state for state in ended if state not in left_states]
    ends, dead = log.ends, np.isin(log.state[log.is_last], ended)
    limit = gone_after
    if limit is None:
        # Numbers that start alike for all arms are counted from each arm's own start if most arms end earlier than the
        # last one: on a calendar most arms are recorded until the end.
        starts = log.time[np.append(True, log.is_last[:-1])]
        is_own_clock = log.unit == "step" and np.ptp(starts) < 1e-6 and np.mean(ends < 1e-6) < 0.5
        pauses = np.diff(log.time)[log.has_next[:-1]] / (1.0 if log.regular else log.step)
        limit = np.inf if is_own_clock else max(LONG, 2 * np.quantile(pauses, 0.99)) if len(pauses) else LONG
    # A whole number of steps is not exceeded by rounding.
    departed = ~dead & (ends > limit + 1e-9 * (1 + limit)) if limit < np.inf else np.zeros_like(dead)
    notes = []
    for which, what in (
        (dead, f"ended in {', '.join(quoted(log.states[state]) for state in ended)}"),
        (departed, f"last seen more than {limit:.4g} steps before the end of the records"),
    ):
        if which.any():
            number, first = int(which.sum()), [log.arms[arm] for arm in np.flatnonzero(which)[:5]]
            named = ", ".join([*first, "..."] if number > 5 else first)
            notes.append(f"{counted(number, 'arm')} {what}: not counted in the model ({named})")
    left = dead | departed
    if left.all():
        return replace(
            log, notes=(*log.notes, "no arm is active at the end of the records: the model counts all of them")
        )
    gone = [name for t, name in enumerate(log.types) if left[log.type_of == t].all()]
    if gone:
        notes.append(f"no arm is left of {', '.join(map(quoted, gone))}, which the model leaves out")
    return replace(log, left=left if left.any() else None, notes=(*log.notes, *notes))
