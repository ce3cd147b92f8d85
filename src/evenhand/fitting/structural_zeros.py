"""Structural zeros: impossible transitions, and records that contradict them.

`only_worse`: under the idle action no earlier state in the order of states comes next. `impossible`: a table with the
columns `state`, `next_state` and optionally `action`. `absorbing`: states that are never left.

Records that contradict them are faults, reported with their rows. A gap contradicts if no path through it is possible.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenhand.checks import Faults
from evenhand.errors import Fault, InvalidInputError, TableError, shortened
from evenhand.fitting.log import Log
from evenhand.fitting.missing_steps import Missed, with_paths
from evenhand.fitting.stated_values import Names, raise_faults, read_statements, source_name
from evenhand.fitting.transition_counts import Gaps
from evenhand.model.io.text_table import SHOWN_FAULTS
from evenhand.model.places import quoted
from evenhand.typing import Bools, Ints

LONGEST_GAP = 1000
"""Steps of the longest gap that is summed out; longer ones carry almost no information on a step."""


def possible_transitions(
    log: Log, only_worse: bool = False, impossible: Any = None, absorbing: Sequence[str] = ()
) -> Bools:
    """(state, action, next_state) possible transitions.

    Args:
        log: names and their order.
        only_worse: whether a state never improves under the idle action.
        impossible: a file or table of impossible transitions.
        absorbing: names of absorbing states.

    Raises:
        InvalidInputError: an order is needed, or a name is unknown; with every fault.
    """
    number = len(log.states)
    possible = np.ones((number, len(log.actions), number), dtype=bool)
    if only_worse:
        if not log.is_ordered:
            raise InvalidInputError("only_worse: states must be given in their order, the best first")
        possible[:, 0] = np.triu(possible[:, 0])
    if impossible is not None:
        keys = ("state", "action", "next_state")
        rows, _ = read_statements(impossible, Names(log), "impossible", (), keys, required=("state", "next_state"))
        for row in rows:
            possible[tuple(slice(None) if place is None else place for place in row.cell[1:])] = False
    for state in absorbing_states(log, absorbing):
        possible[state] = False
        possible[state, :, state] = True
    faults = Faults()
    for s, a in np.argwhere(~possible.any(axis=-1)).tolist():
        faults.add("", f"state {quoted(log.states[s])}, action {quoted(log.actions[a])}: no next state is possible")
    raise_faults(faults, source_name(impossible))
    return possible


def absorbing_states(log: Log, names: Sequence[str]) -> list[int]:
    """Indices of states.

    Args:
        log: the records.
        names: of states.

    Raises:
        TableError: with every name that is unknown.
    """
    faults, known = Faults(), Names(log)
    found = [known.find("state", name.strip(), "", faults) for name in names]
    raise_faults(faults, "absorbing")
    return [state for state in found if state is not None]


def refuse_contradictions(log: Log, possible: Bools, carry_action: bool = False) -> None:
    """Raise TableError if records show an impossible transition.

    Args:
        log: records whose times are whole steps apart.
        possible: (state, action, next_state) possible transitions.
        carry_action: whether an action goes on through missing steps.
    """
    if not possible.all():
        first = np.flatnonzero(log.arm[1:] == log.arm[:-1])
        wrong = first[~_is_possible(log, first, possible, carry_action)]
        _raise_moves(log, wrong, _contradiction, "the records contradict the structural zeros")


def refuse_long_gaps(log: Log) -> None:
    """Raise TableError if an arm was absent for longer than can be summed out.

    Args:
        log: records whose times are whole steps apart.
    """
    steps = np.where(log.arm[1:] == log.arm[:-1], np.diff(log.time), 0)
    _raise_moves(log, np.flatnonzero(steps > LONGEST_GAP + 0.5), _absence, "gaps that are too long")


def _raise_moves(log: Log, moves: Ints, describe: Callable[[Log, int], str], title: str) -> None:
    """Raise TableError with a fault per move, at the row it ends in."""
    if len(moves):
        moves = moves[np.argsort(log.row[moves + 1], kind="stable")]
        shown = moves[:SHOWN_FAULTS]
        rows = log.row_names(log.row[shown + 1].tolist())
        faults = [Fault(row, describe(log, i)) for row, i in zip(rows, shown.tolist(), strict=True)]
        raise TableError(shortened(faults, SHOWN_FAULTS, len(moves)), title)


def _absence(log: Log, i: int) -> str:
    return (
        f"arm {quoted(log.arms[log.arm[i]])} reappears after {log.time[i + 1] - log.time[i]:,.0f} steps of "
        f"{log.step_in_words}; gaps are summed out up to {LONGEST_GAP:,} steps. Check its time, give the arm another "
        "name from there on, or give a longer step"
    )


def _contradiction(log: Log, i: int) -> str:
    before, after = quoted(log.states[log.state[i]]), quoted(log.states[log.state[i + 1]])
    action, steps = quoted(log.actions[log.action[i]]), int(np.rint(log.time[i + 1] - log.time[i]))
    over = "" if steps == 1 else f" in {steps} steps"
    return f"arm {quoted(log.arms[log.arm[i]])} moved from {before} to {after} under {action}{over}: impossible"


def _is_possible(log: Log, first: Ints, possible: Bools, carry_action: bool) -> Bools:
    """(pair of rows,) whether some path leads from one to the next."""
    steps = np.rint(log.time[first + 1] - log.time[first])
    state, action, after = log.state[first], log.action[first], log.state[first + 1]
    fine: Bools = np.ones(len(first), dtype=bool)
    one = steps == 1
    fine[one] = possible[state[one], action[one], after[one]]
    if (~one).any():  # equal moves together: there are far fewer of them than rows
        kinds = np.stack([state[~one], action[~one], after[~one], steps[~one].astype(np.int64)], axis=1)
        kinds, back = np.unique(kinds, axis=0, return_inverse=True)
        zeros, before, given, end = (np.zeros(len(kinds), np.int32), *(kinds[:, i].astype(np.int32) for i in range(3)))
        gaps = Gaps(zeros, before, given, end, kinds[:, 3].astype(np.float64), np.ones(len(kinds), dtype=np.int64))
        missed = Missed(gaps, possible.shape[1] if carry_action else 1)
        fine[~one] = with_paths(missed, np.zeros((1, *possible.shape)), possible)[back.ravel()]
    return fine
