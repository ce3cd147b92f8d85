"""Notes on states and pairs of which the records leave questions open."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import counted
from evenhand.fitting.estimate import Estimated
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.model.places import quoted

LONG = 10
"""Steps from which on an absence is reported."""


def borrowed_row_notes(log: Log, estimated: Estimated) -> list[str]:
    """Note on rows that are estimated from other types alone.

    Args:
        log: the records.
        estimated: from `estimate`.
    """
    number = int(estimated.lent.sum())
    named = "; ".join(log.pair_names(estimated.lent, 5))
    return [f"{counted(number, 'pair')} without records of the type, estimated from the others: {named}"] * bool(number)


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
    return [
        f"none of {number:,} moves under {log.actions[0]} was back towards {quoted(log.states[0])}, and the model has "
        f"up to {100 * mass[t, s]:.2g} % of it per step, in {quoted(log.states[s])}{of}. If states only get worse by "
        "themselves, give `only_worse`; for single impossible transitions, `impossible`"
    ]


def state_notes(log: Log, absorbing: Sequence[str] = ()) -> list[str]:
    """Notes on states that were never left, and on arms that were absent for long.

    Args:
        log: the records.
        absorbing: names of absorbing states.
    """
    return _never_left(log, absorbing) + _absences(log)


def _never_left(log: Log, absorbing: Sequence[str]) -> list[str]:
    following = log.arm[1:] == log.arm[:-1]
    before, after = log.state[:-1][following], log.state[1:][following]
    left, reached = (np.zeros(len(log.states), dtype=bool) for _ in range(2))
    left[before[before != after]] = True
    reached[after] = True
    return [
        f"no arm was seen to leave {quoted(log.states[state])}: if none can, give it as `absorbing`"
        for state in np.flatnonzero(reached & ~left).tolist()
        if log.states[state] not in absorbing
    ]


def _absences(log: Log) -> list[str]:
    steps = np.where(log.arm[1:] == log.arm[:-1], np.rint(np.diff(log.time)), 0)
    long = np.flatnonzero(steps > LONG)
    if not log.regular or not len(long):
        return []
    order = long[np.argsort(-steps[long], kind="stable")][:5]
    rows = log.row_names(log.row[order + 1].tolist())
    named = ", ".join(
        f"{log.arms[log.arm[i]]} after {int(steps[i])} steps ({row})" for i, row in zip(order, rows, strict=True)
    )
    return [f"{counted(len(long), 'time')} an arm reappears after more than {LONG} steps: {named}"]
