"""Logs: records of many arms, read, sorted and coded.

A row says: at this time this arm was in this state and then got this action; the next row of the arm has its next
state. The last row of an arm is censored: its action has no recorded outcome.

Faults belong to rows: a missing arm, time or state; an invalid time; two rows of an arm at one time; an arm of two
types; a missing action before the last row of an arm. Notes report what is unusual: unsorted rows, arms of one row, the
choice of the idle action, the length of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import InvalidInputError, nearest
from evenhand.fitting.bins import Bins, cut
from evenhand.fitting.columns import Coded, LogFaults, code_names, natural_order, read_floats
from evenhand.fitting.options import LogOptions, read_options
from evenhand.fitting.table_reader import read_table, row_names
from evenhand.fitting.times import find_step, read_times
from evenhand.model.places import quoted
from evenhand.typing import Array, Bools, Floats, Indices, Ints, Progress

NOTHING = -1
"""Code of an action that was not recorded."""

IDLE_NAMES = (
    "idle", "none", "nothing", "no", "no action", "no_action", "noop", "wait", "waiting", "do nothing", "passive",
    "rest", "keep", "0", "false", "off", "n",
)  # fmt: skip
"""Usual names of an idle action, in lower case."""

MOST_STATES = 2000
"""More are measurements, and need bins."""


@dataclass(frozen=True, eq=False)
class Log:
    """Valid records, sorted by arm and by time within an arm."""

    arms: tuple[str, ...]
    """(arm,) names."""

    types: tuple[str, ...]
    """(type,) names; one type, called `all`, if the records have none."""

    states: tuple[str, ...]
    """(state,) names, in a meaningful order if the records have one."""

    actions: tuple[str, ...]
    """(action,) names, the idle action first."""

    type_of: Indices
    """(arm,) type of each."""

    arm: Indices
    """(row,) arm of each; never falls."""

    time: Floats
    """(row,) since the earliest row, in steps if `regular`, else in `unit`; rises within an arm."""

    state: Indices
    """(row,) state of the arm."""

    action: Indices
    """(row,) action that followed; NOTHING if it was not recorded."""

    row: Ints
    """(row,) number of the row in the source, from 0."""

    regular: bool = True
    """Whether all times of an arm are whole steps apart."""

    step: float = 1.0
    """Length of a step of the model, in `unit`."""

    unit: str = "step"
    """Unit of a step: `step`, or of dates and moments `month`, `week`, `day`, `hour`, `minute`, `second`."""

    reward: Floats | None = None
    """(row,) reward of the step, if recorded; NaN if missing."""

    used: Floats | None = None
    """(row, resource) amounts that the action used, if recorded."""

    resources: tuple[str, ...] = ()
    """(resource,) names of what is used."""

    groups: tuple[str, ...] = ()
    """(group,) names; none if the records have none."""

    group_of: Indices | None = None
    """(arm,) group of each, by its last row; None if the records have none."""

    left: Bools | None = None
    """(arm,) whether it dropped out; None if all arms are active."""

    is_ordered: bool = True
    """Whether the order of the states is meaningful: numbers, bins, or a given order."""

    notes: tuple[str, ...] = ()
    """Decisions and oddities of reading."""

    by_line: bool = False
    """Whether rows are lines of a text file."""

    def row_names(self, rows: Sequence[int]) -> list[str]:
        """`line 4` of a text file, `row 3` of any other source.

        Args:
            rows: numbers in the source, from 0, in any order.
        """
        return row_names(rows, self.by_line)

    def pair_name(self, kind: int, state: int, action: int) -> str:
        """`type "Ford", state "poor", action "overhaul"`, without the type if there is only one.

        Args:
            kind: the type.
            state: the state.
            action: the action.
        """
        own = f"type {quoted(self.types[kind])}, " if len(self.types) > 1 else ""
        return f"{own}state {quoted(self.states[state])}, action {quoted(self.actions[action])}"

    def pair_names(self, pairs: Bools, most: int = 20) -> list[str]:
        """Names of pairs up to a limit, and the number of the others.

        Args:
            pairs: (type, state, action) mask.
            most: the limit.
        """
        found = np.argwhere(pairs).tolist()
        more = [f"and {len(found) - most} more"] if len(found) > most else []
        return [self.pair_name(*pair) for pair in found[:most]] + more

    @property
    def num_arms(self) -> int:
        """Number of arms."""
        return len(self.arms)

    @property
    def is_last(self) -> Bools:
        """(row,) whether it is the last of its arm."""
        last: Bools = np.append(self.arm[1:] != self.arm[:-1], True)
        return last

    @property
    def ends(self) -> Floats:
        """(arm,) steps between its last row and the end of the records."""
        steps = self.time if self.regular else self.time / self.step
        return np.asarray(steps.max(initial=0.0) - steps[self.is_last])

    @property
    def step_in_words(self) -> str:
        """Length of a step: `1 month`, `7 days`."""
        return f"1 {self.unit}" if self.step == 1 else f"{self.step:g} {self.unit}s"


def read_log(
    source: Any,
    *,
    arm: str,
    time: str,
    state: str,
    action: str,
    type: str | None = None,
    records: LogOptions | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Log:
    """Read records, sort and code them.

    Args:
        source: a file name, a binary stream, a frame (pandas, polars, pyarrow), a list of rows, or columns.
        arm: column of arm names.
        time: column of times: integers, numbers, dates, moments, months (2026-05) or weeks (2026-W05).
        state: column of states.
        action: column of actions; it may be missing in the last row of an arm.
        type: column of types; all arms are of one type by default.
        records: further columns and options, or a mapping of some of them.
        progress: function of the current task and its completed share.

    Raises:
        TableError: the records are invalid; with every fault and its row.
        InvalidInputError: an argument is invalid, or the step must be given.
    """
    report: Progress = progress or (lambda doing, share: None)
    options = read_options(LogOptions, records, "records")
    used = options.used
    resources = (used,) if isinstance(used, str) else tuple(used or ())
    roles = {"arm": arm, "time": time, "state": state, "action": action, "type": type}
    roles |= {"reward": options.reward, "group": options.group}
    columns = {role: column for role, column in roles.items() if column is not None}
    columns |= {f"used {number}": column for number, column in enumerate(resources)}
    report("reading records", 0.0)
    table = read_table(source, columns, options.format)
    frame, faults, notes = table.frame, LogFaults(table), []
    if not len(frame):
        faults.add("there are no rows in it")
        faults.raise_if_any()
    report("reading columns", 0.35)
    arms = code_names(frame["arm"])
    faults.flag(arms.codes < 0, "has no arm")
    times = read_times(frame["time"], faults)
    coded_states, is_ordered = _read_states(frame["state"], options.bins, options.states, faults)
    coded_types = Coded(("all",), np.zeros(len(frame), dtype=np.int32))
    if type is not None:
        coded_types = code_names(frame["type"])
        faults.flag(coded_types.codes < 0, "has no type")
        coded_types = coded_types.in_order_of(natural_order(coded_types.names))
    amounts = _read_used(frame, resources, faults)
    rewards = None if options.reward is None else read_floats(frame["reward"], "reward", faults)
    report("sorting rows", 0.6)
    order = np.flatnonzero((arms.codes >= 0) & times.known)
    order, late = _sorted(order, arms.codes, times.ticks)
    if late:
        notes.append(f"{counted(late, 'row')} came before an earlier one of the same arm; rows were sorted")
    arm_codes, ticks = arms.codes[order], times.ticks[order]
    same: Bools = arm_codes[1:] == arm_codes[:-1]
    last = order[np.append(~same, np.ones(min(len(order), 1), bool))]
    _check_arms(faults, arms, coded_types, order, same, np.diff(ticks), frame["time"])
    group_names, group_of = (
        _read_groups(code_names(frame["group"]), order, same, last, faults, notes) if options.group else ((), None)
    )
    coded_actions, action_note = _read_actions(
        frame["action"], options.actions, options.idle, amounts, np.setdiff1d(order, last), faults
    )
    faults.raise_if_any()
    report("finding the step", 0.85)
    pace = find_step(times.kind, np.diff(ticks)[same], options.step)
    single = int((np.bincount(arm_codes, minlength=len(arms.names)) == 1).sum())
    notes = [
        f"a step is {pace}" if pace.regular else f"times are irregular, and cut to steps of {pace}",
        *([f"{counted(single, 'arm')} of one row: their states are known, not their transitions"] if single else []),
        *([action_note] if action_note else []),
        *notes,
    ]
    return Log(
        arms=arms.names,
        types=coded_types.names,
        states=coded_states.names,
        actions=coded_actions.names,
        type_of=coded_types.codes[order][np.flatnonzero(np.append(True, ~same))],
        arm=arm_codes,
        time=(ticks - ticks.min()) / (pace.ticks if pace.regular else pace.per_unit),
        state=coded_states.codes[order],
        action=np.where(coded_actions.codes[order] < 0, NOTHING, coded_actions.codes[order]).astype(np.int32),
        row=faults.rows[order],
        regular=pace.regular,
        step=pace.ticks / pace.per_unit,
        unit=pace.unit,
        reward=None if rewards is None else rewards[order],
        used=None if amounts is None else amounts[order],
        resources=resources,
        groups=group_names,
        group_of=group_of,
        is_ordered=is_ordered,
        notes=tuple(notes),
        by_line=table.by_line,
    )


# Columns


def _read_states(
    column: Any, bins: Bins | None, given: str | Sequence[str] | None, faults: LogFaults
) -> tuple[Coded, bool]:
    """States, and whether their order is meaningful."""
    import polars

    if bins is not None:
        if given is not None:
            raise InvalidInputError("states: bins are ordered by themselves; give either states or bins")
        coded, is_ordered = cut(read_floats(column, "state", faults, needed=True), bins), True
    else:
        coded = code_names(column)
        faults.flag(coded.codes < 0, "has no state")
        if given is not None:
            return _among("state", coded, given, faults), True
        # Enum of polars, ordered categorical of pandas.
        categories = column.dtype.categories.to_list() if isinstance(column.dtype, polars.Enum) else []
        order = [name for name in categories if name in set(coded.names)] or natural_order(coded.names)
        is_ordered = bool(categories) or all(any(map(str.isdigit, name)) for name in coded.names)
        coded = coded.in_order_of(order)
    if len(coded.names) > MOST_STATES:
        faults.add(f"there are {len(coded.names):,} states; cut measurements into fewer by bins")
    return coded, is_ordered


def _among(kind: str, coded: Coded, given: str | Sequence[str], faults: LogFaults) -> Coded:
    """Names in the given order; rows with others are faults."""
    order = [name.strip() for name in (given.split(",") if isinstance(given, str) else map(str, given))]
    if len(set(order)) < len(order) or not all(order):
        raise InvalidInputError(f"{kind}s: expected different names, got {', '.join(order)}")
    moved = coded.in_order_of(order)
    unknown = (moved.codes < 0) & (coded.codes >= 0)
    faults.flag(unknown, lambda place: _unknown(kind, coded.names[coded.codes[place]], order))
    return moved


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    hint = f" Did you mean {quoted(near)}?" if near else ""
    return f"unknown {kind} {quoted(name)}.{hint} Known are {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}"


def _read_used(frame: Any, resources: Sequence[str], faults: LogFaults) -> Floats | None:
    if not resources:
        return None
    columns = [read_floats(frame[f"used {number}"], name, faults) for number, name in enumerate(resources)]
    for name, column in zip(resources, columns, strict=True):
        faults.flag(column < 0, f"{name} is negative")
    return np.stack(columns, axis=1)


def _read_actions(
    column: Any,
    given: str | Sequence[str] | None,
    idle: str | None,
    amounts: Floats | None,
    before_last: Ints,
    faults: LogFaults,
) -> tuple[Coded, str]:
    """Actions, the idle one first, and how it was found."""
    coded = code_names(column)
    missing = before_last[coded.codes[before_last] < 0]
    coded = coded.in_order_of(natural_order(coded.names)) if given is None else _among("action", coded, given, faults)
    names = list(coded.names)
    if idle is not None and idle not in names and len(missing):
        coded = coded.in_order_of([idle, *names])
        return Coded(coded.names, np.maximum(coded.codes, 0)), f"a missing action is the idle one, {idle}"
    faults.flag(missing, "has no action; if nothing was done, give the idle action a name that no row has")
    if not names:
        faults.add("no row has an action")
        return coded, ""
    chosen, note = _find_idle(coded, amounts, idle, faults)
    return coded.in_order_of([chosen, *(name for name in names if name != chosen)]), note


def _find_idle(coded: Coded, amounts: Floats | None, idle: str | None, faults: LogFaults) -> tuple[str, str]:
    names = coded.names
    if idle is not None:
        if idle not in names:
            faults.add(f"idle: {_unknown('action', idle, names)}")
        return (idle if idle in names else names[0]), f"the idle action is {idle}"
    busy = set() if amounts is None else set(coded.codes[(amounts > 0).any(axis=1)].tolist())
    free = [] if amounts is None else [name for number, name in enumerate(names) if number not in busy]
    if len(free) == 1:
        return free[0], f"the idle action is {free[0]}, which uses nothing"
    usual = [name for name in (free or names) if name.lower() in IDLE_NAMES]
    if len(usual) == 1:
        return usual[0], f"the idle action is {usual[0]}, by its name"
    faults.add(f"the idle action, which uses nothing, must be given; actions are {', '.join(names[:12])}")
    return names[0], ""


# Arms


def _sorted(order: Ints, arm: Indices, ticks: Array) -> tuple[Ints, int]:
    """Rows by arm, then by time, and how many came before an earlier one of their arm."""
    step, pause = np.diff(arm[order]), np.diff(ticks[order])
    if (step >= 0).all() and (pause[step == 0] >= 0).all():
        return order, 0
    own, time = arm[order].astype(np.int64), ticks[order]
    span = int(time.max()) - int(time.min()) + 1
    if time.dtype.kind == "i" and (int(own.max()) + 1) * span < 2**62:  # one key is sorted faster than two
        order = order[np.argsort(own * span + (time - time.min()), kind="stable")]
    else:
        order = order[np.lexsort((time, own))]
    return order, int(np.sum((np.diff(order) < 0) & (np.diff(arm[order]) == 0)))


def _check_arms(
    faults: LogFaults, arms: Coded, types: Coded, order: Ints, same: Bools, pauses: Array, times: Any
) -> None:
    """Flag arms with two rows at one time, or of two types; and logs without any move."""
    again = np.flatnonzero(same & (pauses == 0))
    pairs = np.sort(np.stack([order[again], order[again + 1]]), axis=0)
    first = dict(zip(pairs[1].tolist(), pairs[0].tolist(), strict=True))

    def name(place: int) -> str:
        return quoted(arms.names[arms.codes[place]])

    faults.flag(
        pairs[1], lambda place: f"arm {name(place)} is also in {faults.name(first[place])} at time {times[place]}"
    )
    codes = types.codes[order]
    start = np.flatnonzero(np.append(np.ones(min(len(order), 1), bool), ~same))
    initial = np.repeat(codes[start], np.diff(np.append(start, len(codes))))
    other = np.flatnonzero((codes != initial) & (codes >= 0) & (initial >= 0))
    before = dict(zip(order[other].tolist(), initial[other].tolist(), strict=True))
    faults.flag(
        order[other],
        lambda place: (
            f"arm {name(place)} is of type {quoted(types.names[types.codes[place]])}, and "
            f"was of type {quoted(types.names[before[place]])}"
        ),
    )
    if not same.any() and len(order):
        faults.add("no arm has two rows, so no transition can be counted")


def _read_groups(
    groups: Coded, order: Ints, same: Bools, last: Ints, faults: LogFaults, notes: list[str]
) -> tuple[tuple[str, ...], Indices]:
    """Names of groups, and (arm,) the group of each arm's last row; a note counts arms that changed groups."""
    faults.flag(last[groups.codes[last] < 0], "has no group, and is the last row of its arm")
    own = groups.codes[order]
    moved = same & (own[1:] != own[:-1]) & (own[1:] >= 0) & (own[:-1] >= 0)
    arm_of_row = np.append(0, np.cumsum(~same))
    if number := len(np.unique(arm_of_row[1:][moved])):
        notes.append(f"{counted(number, 'arm')} changed groups; the group of an arm's last row counts")
    ordered = groups.in_order_of(natural_order(groups.names))
    return ordered.names, ordered.codes[last]
