"""Structural zeros: transitions that cannot be, whatever the records say of others.

Three ways to say so. `only_worse`: under the idle action a state never improves, that is, no state before it in the
order of states comes next. A mask: a table with the columns `state`, `next_state` and perhaps `action`, whose rows are
transitions that cannot be; an action that is absent, empty or * is every action. `absorbing`: states that nobody
leaves.

Records that contradict are faults of the records or of what was said, and only a person knows which: they are told with
their rows, and nothing is estimated. A gap contradicts if no path through it can be.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenhand.checks import Faults
from evenhand.errors import Fault, InvalidInput, TableError
from evenhand.fitting.gaps import Missed, with_paths
from evenhand.fitting.log import Log
from evenhand.fitting.moves import Gaps
from evenhand.fitting.told import SHOWN, Names, raise_faults
from evenhand.model.places import quoted
from evenhand.model.whereabouts import Table, as_table, read_table
from evenhand.typing import Bools, Ints

LONGEST = 1000
"""Steps of the longest gap that is summed out. A longer one is a mistyped time, or tells where arms are in the long
run, and nearly nothing of a step."""


def possible_transitions(log: Log, only_worse: bool = False, mask: Any = None, absorbing: Sequence[str] = ()) -> Bools:
    """(state, action, next_state) transitions that can be.

    Args:
        log: names and their order.
        only_worse: whether a state never improves under the idle action.
        mask: a file or table of transitions that cannot be.
        absorbing: names of states that nobody leaves.

    Raises:
        InvalidInput: an order is needed, or a name is unknown; with every fault.
    """
    number = len(log.states)
    possible = np.ones((number, len(log.actions), number), dtype=bool)
    if only_worse:
        if not log.is_ordered:
            raise InvalidInput("only-worse: say the order of the states, the best first: --states good,fair,poor")
        possible[:, 0] = np.triu(possible[:, 0])
    if mask is not None:
        _exclude(possible, mask, log)
    for state in absorbing_states(log, absorbing):
        possible[state] = False
        possible[state, :, state] = True
    _refuse_stuck(log, possible)
    return possible


def _refuse_stuck(log: Log, possible: Bools) -> None:
    faults = Faults()
    for state, action in np.argwhere(~possible.any(axis=-1)).tolist():
        where = f"state {quoted(log.states[state])}, action {quoted(log.actions[action])}"
        faults.add("", f"nothing can come after {where}: every next state is excluded")
    raise_faults(faults, "mask")


def absorbing_states(log: Log, names: Sequence[str]) -> list[int]:
    """The numbers of states, by their names.

    Args:
        log: the records.
        names: what was said.

    Raises:
        TableError: with every name that is unknown.
    """
    faults, known = Faults(), Names(log)
    found = [known.find("state", name.strip(), "", faults) for name in names]
    raise_faults(faults, "absorbing")
    return [state for state in found if state is not None]


def table_of(source: Any) -> Table:
    """A file, a frame, rows or columns, as a table."""
    return read_table(source) if isinstance(source, str) else as_table(source)


def _exclude(possible: Bools, mask: Any, log: Log) -> None:
    table, names, faults = table_of(mask), Names(log), Faults()
    title = table.file or "mask"
    for column in ("state", "next_state"):
        if column not in table.columns:
            faults.add("", f"there is no column {column}; the columns are: {', '.join(table.columns)}")
    for column in table.columns:
        if column not in ("state", "action", "next_state"):
            faults.add("", f"unknown column {quoted(column)}; expected state, action, next_state")
    raise_faults(faults, title)
    actions = table.columns.get("action", [""] * len(table.rows))
    rows = zip(table.rows, table.columns["state"], actions, table.columns["next_state"], strict=True)
    for where, state, action, after in rows:
        s, j = (names.find("state", name, where, faults) for name in (state, after))
        a = names.find("action", action, where, faults)
        places = tuple(slice(None) if place is None else place for place in (s, a, j))
        if not faults:
            possible[places] = False
    raise_faults(faults, title)


def refuse_contradictions(log: Log, possible: Bools, carry_action: bool = False) -> None:
    """Raise TableError if records show what cannot be.

    Args:
        log: records whose times are whole steps apart.
        possible: (state, action, next_state) transitions that can be.
        carry_action: whether an action goes on through missed steps.
    """
    if possible.all():
        return
    first = np.flatnonzero(log.arm[1:] == log.arm[:-1])
    fine = _can_be(log, first, possible, carry_action)
    wrong = first[~fine]
    if not len(wrong):
        return
    order = wrong[np.argsort(log.row[wrong + 1], kind="stable")]
    raise TableError(_told(log, order, _in_words), "the records contradict what cannot be")


def refuse_long_gaps(log: Log) -> None:
    """Raise TableError if an arm was away for longer than can be summed out.

    Args:
        log: records whose times are whole steps apart.
    """
    steps = np.where(log.arm[1:] == log.arm[:-1], np.diff(log.time), 0)
    long = np.flatnonzero(steps > LONGEST + 0.5)
    if len(long):
        order = long[np.argsort(log.row[long + 1], kind="stable")]
        raise TableError(_told(log, order, _away_in_words), "arms that were away for too long")


def _told(log: Log, moves: Ints, in_words: Callable[[Log, int], str]) -> list[Fault]:
    """A fault for each of the first moves, with the row it ends in, and how many more there are."""
    shown = moves[:SHOWN].tolist()
    rows = log.row_names(log.row[moves[:SHOWN] + 1].tolist())
    faults = [Fault(row, in_words(log, i)) for row, i in zip(rows, shown, strict=True)]
    return faults + (
        [Fault("", f"... and {(more := len(moves) - SHOWN):,} more", stands_for=more)] if len(moves) > SHOWN else []
    )


def _away_in_words(log: Log, i: int) -> str:
    return (
        f"arm {quoted(log.arms[log.arm[i]])} reappears after {log.time[i + 1] - log.time[i]:,.0f} steps of "
        f"{log.step_in_words}, and missed steps are summed out up to {LONGEST:,}. Is its time right? If it is, give "
        f"the arm another name from there on, or say a longer --step"
    )


def _can_be(log: Log, first: Ints, possible: Bools, carry_action: bool) -> Bools:
    """(pair of rows,) whether some path leads from one to the next."""
    steps = np.rint(log.time[first + 1] - log.time[first])
    state, action, after = log.state[first], log.action[first], log.state[first + 1]
    fine: Bools = np.ones(len(first), dtype=bool)
    one = steps == 1
    fine[one] = possible[state[one], action[one], after[one]]
    if (~one).any():  # like ones together: there are far fewer of them than rows
        kinds = np.stack([state[~one], action[~one], after[~one], steps[~one].astype(np.int64)], axis=1)
        kinds, back = np.unique(kinds, axis=0, return_inverse=True)
        zeros, before, given, end = (np.zeros(len(kinds), np.int32), *(kinds[:, i].astype(np.int32) for i in range(3)))
        gaps = Gaps(zeros, before, given, end, kinds[:, 3].astype(np.float64), np.ones(len(kinds), dtype=np.int64))
        missed = Missed(gaps, possible.shape[1] if carry_action else 1)
        fine[~one] = with_paths(missed, np.zeros((1, *possible.shape)), possible)[back.ravel()]
    return fine


def _in_words(log: Log, i: int) -> str:
    before, after = quoted(log.states[log.state[i]]), quoted(log.states[log.state[i + 1]])
    action, steps = quoted(log.actions[log.action[i]]), int(np.rint(log.time[i + 1] - log.time[i]))
    over = "" if steps == 1 else f", {steps} steps before"
    return f"arm {quoted(log.arms[log.arm[i]])} came to {after} from {before} under {action}{over}, which cannot be"
