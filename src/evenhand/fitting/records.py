"""Records to a log: columns are read, rows put in order, and every fault told with its row.

What is wrong is wrong with rows: an arm, time or state is missing; a time is not like the others; an arm is there twice
at one time, or has two types; an action is missing before the last row of an arm. What is only unusual is told in the
log's notes: rows that were not in order, arms of one row, which action was taken for idle, how long a step is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import InvalidInput, nearest
from evenhand.fitting.bins import Bins, cut
from evenhand.fitting.columns import Coded, LogFaults, code_names, in_meaning, read_floats
from evenhand.fitting.log import NOTHING, Log
from evenhand.fitting.tables import Records, read_records
from evenhand.fitting.times import Step, Times, find_step, read_times
from evenhand.model.places import quoted
from evenhand.model.whereabouts import TableFormat
from evenhand.typing import Bools, Floats, Indices, Ints, Progress

IDLE_NAMES = (
    "idle", "none", "nothing", "no", "no action", "no_action", "noop", "wait", "waiting", "do nothing", "passive",
    "rest", "keep", "0", "false", "off", "n",
)  # fmt: skip
"""What an idle action is usually called, in small letters."""

SHOWN_NAMES = 12
"""Names that are listed where one is unknown."""

MOST_COMPARED = 300
"""Names that are compared with each other, to see whether one is another mistyped."""

SELDOM = 0.02
"""The share of the rows of a name that one has at most which may be the same mistyped."""

MOST_STATES = 2000
"""More are measurements, and want bins."""

ROOMY = 4
"""Places that there may be for each row, for rows to be put there instead of sorted."""

ALL = "all"
"""The type of every arm, where the records tell of none."""


def read_log(
    source: Any,
    *,
    arm: str,
    time: str,
    state: str,
    action: str,
    type: str | None = None,
    group: str | None = None,
    reward: str | None = None,
    used: str | Sequence[str] | None = None,
    idle: str | None = None,
    step: str | float | None = None,
    bins: Bins | None = None,
    states: str | Sequence[str] | None = None,
    actions: str | Sequence[str] | None = None,
    format: TableFormat | None = None,
    progress: Progress | None = None,
) -> Log:
    """Read records, sort and code them.

    Args:
        source: the name of a file, a binary stream, a frame (pandas, polars, pyarrow), a list of rows, or columns.
        arm: the column that names the arm.
        time: the column of times: whole numbers, numbers, dates, moments, months (2026-05) or weeks (2026-W05).
        state: the column of states.
        action: the column of actions; an entry may be missing in the last row of an arm.
        type: the column of types; all arms are of one type when absent.
        group: the column of groups; that of an arm's last row counts.
        reward: the column of rewards.
        used: the columns of what was used, one a resource.
        idle: the idle action; found by its name, or because it uses nothing, when absent. A name that no row has is
            what a missing action means.
        step: how long a step is: a number, or `7 days`, `month`, `12 hours`; found when absent.
        bins: how to cut a numeric column of states: a width, cuts, or `quantile:10`.
        states: the states in their order, by name; rows may have no others.
        actions: the actions by name; rows may have no others.
        format: csv, parquet or json; by the name of the file when absent.
        progress: told what is being done.

    Raises:
        TableError: the records are not sound; with every fault and its row.
        InvalidInput: something has to be said first, such as which action is idle.
    """
    tell: Progress = progress or (lambda doing, share: None)
    resources = (used,) if isinstance(used, str) else tuple(used or ())
    asked = {"arm": arm, "time": time, "state": state, "action": action, "type": type, "reward": reward, "group": group}
    columns = {role: column for role, column in asked.items() if column is not None}
    columns |= {f"used {number}": column for number, column in enumerate(resources)}
    tell("reading records", 0.0)
    records = read_records(source, columns, format)
    tell("reading columns", 0.35)
    read = _Columns(records, resources, bins, states, actions)
    tell("putting rows in order", 0.6)
    ordered = _Ordered(read)
    named = _read_actions(read, ordered, idle)
    read.faults.raise_if_any()
    tell("finding the step", 0.85)
    pace = find_step(read.times.kind, ordered.pauses, step)
    return _as_log(read, ordered, named, pace)


class _Columns:
    """The columns, each read; faults are noted."""

    def __init__(
        self,
        records: Records,
        resources: Sequence[str],
        bins: Bins | None,
        states: str | Sequence[str] | None,
        actions: str | Sequence[str] | None,
    ) -> None:
        frame = records.frame
        self.records, self.resources = records, tuple(resources)
        self.faults = LogFaults(records)
        if not len(frame):
            self.faults.add("there are no rows in it")
            self.faults.raise_if_any()
        self.notes: list[str] = []
        self.states_mean = True  # something by their order, unless they are names that nobody ordered
        self.arms = code_names(frame["arm"])
        self.faults.flag(self.arms.codes < 0, "has no arm")
        self.times: Times = read_times(frame["time"], self.faults)
        self.states = self._read_states(bins, states)
        self.types = self._read_types()
        self.groups = code_names(frame["group"]) if "group" in frame.columns else None
        self.actions, self.actions_listed = self._read_actions(actions), actions is not None
        self.has_action = code_names(frame["action"]).codes >= 0 if actions is not None else self.actions.codes >= 0
        has_rewards = "reward" in frame.columns
        self.rewards = read_floats(frame["reward"], "reward", self.faults) if has_rewards else None
        self.used = self._read_used()

    def _read_states(self, bins: Bins | None, given: str | Sequence[str] | None) -> Coded:
        column = self.records.frame["state"]
        if bins is not None:
            if given is not None:
                raise InvalidInput("--states: an order of names is not for measurements that --bins cuts; give one")
            coded = cut(read_floats(column, "state", self.faults, needed=True), bins)
        else:
            coded = code_names(column)
            missing = coded.codes < 0
            self.faults.flag(missing, "has no state")
            coded = self._in_order(coded, given, missing)
        if len(coded.names) > MOST_STATES:
            self.faults.add(f"there are {len(coded.names):,} states; cut measurements into fewer with --bins")
        return coded

    def _in_order(self, coded: Coded, given: str | Sequence[str] | None, missing: Bools) -> Coded:
        """States in the user's order, in that of the column, or by number and name."""
        if given is None:
            own = self.records.orders.get("state") or _categories(self.records)
            seen = set(coded.names)
            self.notes += nearly_alike("state", coded, "--states")
            self.states_mean = bool(own) or all(any(map(str.isdigit, name)) for name in coded.names)
            return coded.in_order_of([name for name in own if name in seen] or in_meaning(coded.names))
        return self._among("state", coded, given, missing)

    def _read_actions(self, given: str | Sequence[str] | None) -> Coded:
        coded = code_names(self.records.frame["action"])
        if given is None:
            self.notes += nearly_alike("action", coded, "--actions")
            return coded
        return self._among("action", coded, given, coded.codes < 0)

    def _among(self, kind: str, coded: Coded, given: str | Sequence[str], missing: Bools) -> Coded:
        """Names in the user's order, who may have left some out that rows have: they are told."""
        order = [name.strip() for name in (given.split(",") if isinstance(given, str) else map(str, given))]
        if len(set(order)) < len(order) or not all(order):
            raise InvalidInput(f"--{kind}s: expected different names, got {', '.join(order)}")
        moved = coded.in_order_of(order)
        unknown = (moved.codes < 0) & ~missing
        self.faults.flag(unknown, lambda place: _unknown(kind, coded.names[coded.codes[place]], order))
        return moved

    def _read_types(self) -> Coded:
        if "type" not in self.records.frame.columns:
            return Coded((ALL,), np.zeros(len(self.records.frame), dtype=np.int32))
        coded = code_names(self.records.frame["type"])
        self.faults.flag(coded.codes < 0, "has no type")
        self.notes += nearly_alike("type", coded, "")
        return coded.in_order_of(in_meaning(coded.names))

    def _read_used(self) -> Floats | None:
        if not self.resources:
            return None
        frame = self.records.frame
        columns = [read_floats(frame[f"used {k}"], name, self.faults) for k, name in enumerate(self.resources)]
        for name, column in zip(self.resources, columns, strict=True):
            self.faults.flag(column < 0, f"{name} is negative")
        return np.stack(columns, axis=1)


def _categories(records: Records) -> Sequence[str]:
    """The categories of a column of polars that are in an order."""
    import polars

    kind = records.frame["state"].dtype
    return [str(name) for name in kind.categories] if isinstance(kind, polars.Enum) else ()


def nearly_alike(kind: str, coded: Coded, option: str) -> list[str]:
    """Names that differ from a more usual one by the size of a letter, or by one letter and are hardly ever met.

    Args:
        kind: state, action or type.
        coded: the column.
        option: what refuses other names, if there is such an option.
    """
    if len(coded.names) > MOST_COMPARED:
        return []
    rows = np.bincount(coded.codes + 1, minlength=len(coded.names) + 1)[1:]  # the first are missing
    notes = []
    for rare in np.argsort(rows, kind="stable").tolist():
        others = [i for i in range(len(rows)) if (rows[i], -i) > (rows[rare], -rare)]
        like = next((i for i in others if _is_slip(coded.names[rare], coded.names[i], rows[rare], rows[i])), None)
        if like is not None:
            name, usual = coded.names[rare], coded.names[like]
            seldom, often = (counted(int(rows[i]), "row") for i in (rare, like))
            how = f"; {option} with all that there are refuses others" if option else ""
            notes.append(
                f"{kind} {quoted(name)} ({seldom}): did you mean {quoted(usual)} ({often})? It counts as another{how}"
            )
    return notes


def _is_slip(name: str, usual: str, rows: int, usual_rows: int) -> bool:
    """Whether one name is probably another that was mistyped."""
    if name.casefold() == usual.casefold():
        return True
    seldom = rows <= max(2, SELDOM * usual_rows) and rows < usual_rows
    return seldom and min(len(name), len(usual)) >= 4 and _one_letter_apart(name.casefold(), usual.casefold())


def _one_letter_apart(one: str, other: str) -> bool:
    """Whether a letter, and no digit, is left out, put in, changed, or changed places with the next."""
    if any(map(str.isdigit, one + other)) or abs(len(one) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    hint = f" Did you mean {quoted(near)}?" if near else ""
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return f"{quoted(name)} is no {kind}.{hint} Known are {', '.join(known[:SHOWN_NAMES])}{more}"


class _Ordered:
    """The rows arm by arm, in the order of time."""

    def __init__(self, read: _Columns) -> None:
        arm, ticks = read.arms.codes, read.times.ticks
        self.order = np.flatnonzero((arm >= 0) & read.times.known)
        if not _rises(arm[self.order], ticks[self.order]):
            self._sort(read, arm, ticks)
        arm, ticks = arm[self.order], ticks[self.order]
        self.same: Bools = arm[1:] == arm[:-1]
        """(row but the last,) whether the next row is of the same arm."""
        self.is_last: Bools = np.concatenate([~self.same, np.ones(min(len(arm), 1), dtype=np.bool_)])
        """(row,) whether the records of the arm end here."""
        pauses = np.diff(ticks)
        self.pauses = pauses[self.same]
        """(move,) ticks."""
        self._find_twice(read, pauses)
        self._find_two_types(read)
        self._find_groups(read)
        if not self.same.any() and len(self.order):
            read.faults.add("no arm has two rows, so that it can be seen to move")

    def _sort(self, read: _Columns, arm: Indices, ticks: Any) -> None:
        self.order = self.order[_by_arm_and_time(arm[self.order], ticks[self.order])]
        late = int(np.sum((np.diff(self.order) < 0) & (np.diff(arm[self.order]) == 0)))
        if late:
            read.notes.append(f"{counted(late, 'row')} came before an earlier one of the same arm; rows were sorted")

    def _find_twice(self, read: _Columns, pauses: Any) -> None:
        again = np.flatnonzero(self.same & (pauses == 0))
        pairs = np.sort(np.stack([self.order[again], self.order[again + 1]]), axis=0)
        first = dict(zip(pairs[1].tolist(), pairs[0].tolist(), strict=True))
        names, codes, times = read.arms.names, read.arms.codes, read.records.frame["time"]
        read.faults.flag(
            pairs[1],
            lambda place: (
                f"arm {quoted(names[codes[place]])} is also in {read.faults.name(first[place])} at time {times[place]}"
            ),
        )

    def _find_two_types(self, read: _Columns) -> None:
        types, kinds, names = read.types.codes[self.order], read.types.names, read.arms.names
        start = np.flatnonzero(np.concatenate([np.ones(min(len(types), 1), dtype=np.bool_), ~self.same]))
        first = np.repeat(types[start], np.diff(np.append(start, len(types))))
        other = np.flatnonzero((types != first) & (types >= 0) & (first >= 0))
        was = dict(zip(self.order[other].tolist(), first[other].tolist(), strict=True))
        codes = read.types.codes
        read.faults.flag(
            self.order[other],
            lambda place: (
                f"arm {quoted(names[read.arms.codes[place]])} is of type {quoted(kinds[codes[place]])}, and "
                f"was of type {quoted(kinds[was[place]])}"
            ),
        )

    def _find_groups(self, read: _Columns) -> None:
        """The last row of an arm says its group; an arm that was in several is told."""
        self.group_of: Indices | None = None
        if read.groups is None:
            return
        codes, last = read.groups.codes, self.order[self.is_last]
        read.faults.flag(last[codes[last] < 0], "has no group, and is the last row of its arm")
        own = codes[self.order]
        moved = self.same & (own[1:] != own[:-1]) & (own[1:] >= 0) & (own[:-1] >= 0)
        if number := len(np.unique(read.arms.codes[self.order][1:][moved])):
            read.notes.append(f"{counted(number, 'arm')} changed groups; the group of an arm's last row counts")
        order = in_meaning(read.groups.names)
        self.groups = tuple(order)
        self.group_of = read.groups.in_order_of(order).codes[last]


def _rises(arm: Indices, ticks: Any) -> bool:
    """Whether arms never fall, and times do not within an arm."""
    step = np.diff(arm)
    return bool((step >= 0).all() and (np.diff(ticks)[step == 0] >= 0).all())


def _by_arm_and_time(arm: Indices, ticks: Any) -> Ints:
    """(row,) the order of rows by arm, then by time; rows that are there twice may come in any order."""
    if ticks.dtype.kind == "i" and len(ticks):
        span = int(ticks.max()) - int(ticks.min()) + 1
        size = (int(arm.max()) + 1) * span
        if size < 2**62:  # one key is sorted several times faster than two
            key = arm * np.int64(span) + (ticks - ticks.min())
            order = _by_places(key, size) if size <= ROOMY * len(key) else None
            return np.argsort(key) if order is None else order
    return np.lexsort((ticks, arm))


def _by_places(key: Ints, size: int) -> Ints | None:
    """The order of keys that are all different, by putting each row into the place of its key; else None."""
    places: Ints = np.full(size, -1, dtype=np.int64)
    places[key] = np.arange(len(key))
    order: Ints = places[places >= 0]
    return order if len(order) == len(key) else None


# Actions


@dataclass(frozen=True, eq=False)
class _Actions:
    """Actions, the idle one first."""

    coded: Coded
    note: str


def _read_actions(read: _Columns, ordered: _Ordered, idle: str | None) -> _Actions:
    names = list(read.actions.names) if read.actions_listed else in_meaning(read.actions.names)
    missing = ordered.order[~read.has_action[ordered.order] & ~ordered.is_last]
    if idle is not None and idle not in names and len(missing):  # a name for what is left empty
        coded = read.actions.in_order_of([idle, *names])
        return _Actions(Coded(coded.names, np.maximum(coded.codes, 0)), f"a missing action is the idle one, {idle}")
    read.faults.flag(missing, "has no action; if nothing was done then, give that a name with --idle NAME")
    if not names:
        read.faults.add("no row has an action")
        return _Actions(read.actions, "")
    chosen, note = _find_idle(read, names, idle)
    return _Actions(read.actions.in_order_of([chosen, *(name for name in names if name != chosen)]), note)


def _find_idle(read: _Columns, names: Sequence[str], idle: str | None) -> tuple[str, str]:
    """The idle action and how it was found; the fault of not finding it is noted."""
    if idle is not None:
        if idle not in names:
            read.faults.add(f"--idle: {_unknown('action', idle, names)}")
        return (idle if idle in names else names[0]), f"the idle action is {idle}"
    free = _use_nothing(read, names)
    if len(free) == 1:
        return free[0], f"the idle action is {free[0]}, which uses nothing"
    usual = [name for name in (free or names) if name.lower() in IDLE_NAMES]
    if len(usual) == 1:
        return usual[0], f"the idle action is {usual[0]}, by its name"
    listed = ", ".join(names[:SHOWN_NAMES])
    read.faults.add(f"which action is idle, that is, uses nothing? Say it with --idle NAME; actions are {listed}")
    return names[0], ""


def _use_nothing(read: _Columns, names: Sequence[str]) -> list[str]:
    """The actions that used nothing in any row."""
    if read.used is None:
        return []
    codes = read.actions.in_order_of(names).codes
    busy = np.unique(codes[(read.used > 0).any(axis=1) & (codes >= 0)])
    return [name for number, name in enumerate(names) if number not in busy]


# The log


def _as_log(read: _Columns, ordered: _Ordered, named: _Actions, pace: Step) -> Log:
    order = ordered.order
    ticks = read.times.ticks[order]
    origin, length = ticks.min(), pace.ticks if pace.regular else pace.per_unit
    # Arms are numbered as they first appear among rows that are in order; every arm has a row here.
    arm = read.arms.codes[order]
    type_of = read.types.codes[order][np.flatnonzero(np.concatenate([[True], ~ordered.same]))]
    return Log(
        arms=read.arms.names,
        types=read.types.names,
        states=read.states.names,
        actions=named.coded.names,
        type_of=type_of,
        arm=arm,
        time=(ticks - origin) / length,
        state=read.states.codes[order],
        action=np.where(named.coded.codes[order] < 0, NOTHING, named.coded.codes[order]).astype(np.int32),
        row=_rows(read)[order],
        regular=pace.regular,
        step=pace.ticks / pace.per_unit,
        unit=pace.unit,
        reward=None if read.rewards is None else read.rewards[order],
        used=None if read.used is None else read.used[order],
        resources=read.resources,
        groups=() if ordered.group_of is None else ordered.groups,
        group_of=ordered.group_of,
        is_ordered=read.states_mean,
        notes=tuple(_notes(read, ordered, named, pace)),
        text=read.records.text,
    )


def _rows(read: _Columns) -> Ints:
    return read.faults.rows


def _notes(read: _Columns, ordered: _Ordered, named: _Actions, pace: Step) -> list[str]:
    rows = np.bincount(read.arms.codes[ordered.order], minlength=len(read.arms.names))
    single = int((rows == 1).sum())
    told = [f"a step is {pace}" if pace.regular else f"times are irregular, and cut to steps of {pace}"]
    if single:
        told.append(f"{counted(single, 'arm')} of one row: where they are is known, not how they move")
    return [*read.times.notes, *read.faults.notes, *told, *([named.note] if named.note else []), *read.notes]
