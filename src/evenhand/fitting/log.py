"""Logs: records of many arms, read, sorted and coded.

A row says: at this time this arm was in this state and then got this action; the next row of the arm has its next
state. The last row of an arm is censored: its action has no recorded outcome.

Faults belong to rows: a missing arm, time or state; an invalid time; two rows of an arm at one time; an arm of two
types; a missing action before the last row of an arm. Notes report what is unusual: unsorted rows, arms of one row, the
choice of the idle action, the length of a step.

Layouts of a log: rows are states at chosen times, changes at their own times, or stays.

    snapshots   a row is the state at a time that has nothing to do with it; between two rows anything may have happened
    events      a row is written when the state changes (or an action is given), and the state stays until the next row;
                from a row without a state on, nothing is known
    intervals   a row is a stay from its start to its stop; they are read as events, with a blank state at the stop

Read as snapshots, changes alone look like a chain that never rests. So a log is refused until its layout is given, if
hardly any row repeats the state of the row before it. A chain that is reversible in time is found in state i at least
as often as its share there says if it was in i before, after any time, so that of n pairs of rows at least

    n c pairs repeat a state,         c = sum over i of (share of rows in state i)^2

are expected. A log is suspicious if it has less than a tenth of them, and a binomial distribution of n pairs and chance
c as few with a probability of at most 1e-6: at least 20 pairs of two states. Chains that go round in circles may have
as few; they need their layout given.

Only pairs that the two layouts read differently are counted: those of more than one step, whose next state is not
exact. The last pair of an arm may end with where it was when the records ended; so pairs are counted with the last ones
and without, and either may be suspicious.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from scipy.special import bdtr

from evenhand.checks import check_memory
from evenhand.display import counted
from evenhand.errors import Fault, InvalidInputError, TableError, UnknownNameError
from evenhand.fitting import table_reader
from evenhand.fitting.options import Layout, LogOptions, Ties, listed, read_options
from evenhand.fitting.table_reader import (
    Coded,
    RowFaults,
    SourceTable,
    as_texts,
    clean_texts,
    code_names,
    read_covariate,
    read_floats,
    read_table,
)
from evenhand.fitting.times import Times, find_step, read_times, resolve_ties
from evenhand.model.labels import quoted
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

RARE, SURPRISE = 0.1, 1e-6
"""Share of the expected repetitions, and probability of as few, below which rows are taken for changes."""


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
    """True if all times of an arm are whole steps apart."""

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

    breaks: Bools | None = None
    """(row,) whether nothing is known between it and the next row; None if no row is such."""

    left: Bools | None = None
    """(arm,) whether it dropped out; None if all arms are active."""

    is_ordered: bool = True
    """True if the order of the states is meaningful: numbers, bins, or a given order."""

    notes: tuple[str, ...] = ()
    """Decisions and oddities of reading."""

    covariates: dict[str, Array] = field(default_factory=dict)
    """(row,) numbers or texts per covariate of the rates."""

    stratum: Indices | None = None
    """(row,) type by the covariates of the row; None if an arm has one type."""

    cuts: tuple[float, ...] = ()
    """Times at which rates change."""

    periods: tuple[str, ...] = ()
    """Names of the periods that begin there."""

    by_line: bool = False
    """True if rows are lines of a text file."""

    def faults(self, title: str) -> RowFaults:
        """Collector of the faults of its rows.

        Args:
            title: name of the records in messages.
        """
        return RowFaults(self.row, self.by_line, title)

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

    def find_states(self, names: Sequence[str]) -> list[int]:
        """Indices of states.

        Args:
            names: of states.

        Raises:
            UnknownNameError: a name is unknown.
        """
        for name in names:
            if name not in self.states:
                raise UnknownNameError("state", name, self.states)
        return [self.states.index(name) for name in names]

    @property
    def type_at(self) -> Indices:
        """(row,) type of the arm at that time."""
        return self.type_of[self.arm] if self.stratum is None else self.stratum

    @property
    def num_arms(self) -> int:
        """Number of arms."""
        return len(self.arms)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of types, states and actions."""
        return len(self.types), len(self.states), len(self.actions)

    @property
    def is_last(self) -> Bools:
        """(row,) whether it is the last of its arm."""
        return np.append(self.arm[1:] != self.arm[:-1], True)[: len(self.arm)]

    @property
    def has_next(self) -> Bools:
        """(row,) whether the next row is of the same arm, and nothing breaks the record between them."""
        return ~self.is_last if self.breaks is None else ~(self.is_last | self.breaks)

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
    columns: Mapping[str, str | None],
    records: LogOptions | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Log:
    """Read records, sort and code them.

    Args:
        source: a file name, a binary stream, a frame (pandas, polars, pyarrow), a list of rows, or columns.
        columns: names of the columns `arm`, `time`, `state` and perhaps `action` and `type`, as in `fit`.
        records: further columns and options, or a mapping of some of them.
        progress: function of the current task and its completed share.

    Raises:
        TableError: the records are invalid; with every fault and its row.
        InvalidInputError: an argument is invalid, or the step must be given.
    """
    report: Progress = progress or (lambda doing, share: None)
    options = read_options(LogOptions, records, "records")
    if options.ties not in (None, *get_args(Ties)):
        raise UnknownNameError("rule for ties", str(options.ties), get_args(Ties))
    is_intervals = options.layout in (None, "intervals") and options.stop is not None
    if not is_intervals and (options.layout == "intervals" or options.stop is not None or options.to is not None):
        raise InvalidInputError('stop: the column of ends belongs to layout="intervals"', argument="stop")
    resources = (options.used,) if isinstance(options.used, str) else tuple(options.used or ())
    roles = {**columns, "reward": options.reward, "group": options.group, "stop": options.stop, "to": options.to}
    roles |= {f"used {number}": column for number, column in enumerate(resources)}
    covariates = listed(options.covariates)
    roles |= {f"covariate {name}": name for name in covariates}
    report("reading records", 0.0)
    table = read_table(source, {role: name for role, name in roles.items() if name is not None}, options.format)
    if not len(table.frame):
        raise TableError([Fault("", "there are no rows in it")], table.source)
    num_ends = 0
    if options.stop is not None:
        table, num_ends = _with_ends(table)
    frame, faults = table.frame, table.faults()
    report("reading columns", 0.35)
    arms = code_names(frame["arm"])
    faults.flag(arms.codes < 0, "has no arm")
    times = read_times(frame["time"], faults)
    states, is_ordered = _read_states(frame["state"], options, faults)
    types = Coded(("all",), np.zeros(len(frame), dtype=np.int32))
    if columns.get("type") is not None:
        types = code_names(frame["type"]).sorted()
    rewards = None if options.reward is None else read_floats(frame["reward"], "reward", faults)
    amounts = np.zeros((len(frame), len(resources)))
    for number, name in enumerate(resources):
        amounts[:, number] = read_floats(frame[f"used {number}"], name, faults)
        faults.flag(amounts[:, number] < 0, f"{name} is negative")
    given = {name: read_covariate(frame[f"covariate {name}"], name, faults) for name in covariates}
    report("sorting rows", 0.6)
    order = _sorted(np.flatnonzero((arms.codes >= 0) & times.known), arms.codes, times.ticks)
    if num_ends:
        _check_intervals(faults, order, arms.codes, times, num_ends)
    notes: list[str] = []
    order, ticks = _resolved(order, arms.codes, times, options.ties, num_ends, notes)
    arm_codes = arms.codes[order]
    same: Bools = arm_codes[1:] == arm_codes[:-1]
    starts = np.append(True, ~same)[: len(order)]
    last = order[np.append(~same, True)[: len(order)]]
    _check_arms(faults, arms, types, order, starts, np.diff(ticks), frame["time"])
    if single := int((np.bincount(arm_codes, minlength=len(arms.names)) == 1).sum()):
        notes.append(f"{counted(single, 'arm')} of one row: their states are known, not their transitions")
    actions = Coded(("none",), np.zeros(len(frame), dtype=np.int32))
    if columns.get("action") is not None:
        known = order[states.codes[order] >= 0]
        acting = known[:-1][arms.codes[known[1:]] == arms.codes[known[:-1]]]
        actions = _read_actions(frame["action"], options, amounts, acting, faults, notes)
    if (late := int((same & (np.diff(order) < 0)).sum())) and not num_ends:
        notes.append(f"{counted(late, 'row')} came before an earlier one of the same arm; rows were sorted")
    groups = None
    if options.group is not None:
        groups = _read_groups(frame["group"], order, same, last, faults, notes)
    faults.raise_if_any()
    report("finding the step", 0.85)
    pace = find_step(times.kind, np.diff(ticks)[same], options.step)
    # Rates need times, also if these are whole steps.
    pace = pace._replace(regular=pace.regular and not covariates and not options.time_cuts)
    notes.insert(0, f"a step is {pace}" if pace.regular else f"times are irregular, and cut to steps of {pace}")
    origin = 0.0 if pace.unit != "step" else float(ticks.min())
    cuts, periods = _read_time_cuts(options.time_cuts, origin / pace.per_unit, np.ptp(ticks) / pace.per_unit)
    log = Log(
        arms=arms.names,
        types=types.names,
        states=states.names,
        actions=actions.names,
        type_of=types.codes[order][starts],
        arm=arm_codes,
        time=(ticks - ticks.min()) / (pace.ticks if pace.regular else pace.per_unit),
        state=states.codes[order],
        action=actions.codes[order],  # a missing name is coded as NOTHING is
        row=faults.rows[order],
        regular=pace.regular,
        step=pace.ticks / pace.per_unit,
        unit=pace.unit,
        reward=None if rewards is None else rewards[order],
        used=amounts[order] if resources else None,
        resources=resources,
        groups=() if groups is None else groups.names,
        group_of=None if groups is None else groups.codes[last],
        is_ordered=is_ordered,
        notes=tuple(notes),
        covariates={name: own[order] for name, own in given.items()},
        cuts=cuts,
        periods=periods,
        by_line=table.by_line,
    )
    return _without_blank_states(log, options)


def _with_ends(table: SourceTable) -> tuple[SourceTable, int]:
    """Rows at the ends of intervals, with the state entered there if it is known, then all rows; and their number."""
    import polars

    frame = table.frame
    if frame["time"].dtype != frame["stop"].dtype:
        frame = frame.with_columns(as_texts(frame["time"]), as_texts(frame["stop"]))
    if "to" in frame.columns and frame["to"].dtype != frame["state"].dtype:
        frame = frame.with_columns(as_texts(frame["to"]), as_texts(frame["state"]))
    after = polars.col("to") if "to" in frame.columns else polars.lit(None)
    others = ("time", "stop", "state", "to", "action", "reward")
    shared = [column for column in frame.columns if column not in others and not column.startswith("used ")]
    ends = frame.select(*shared, polars.col("stop").alias("time"), after.alias("state"))
    ends = ends.filter(clean_texts(ends["time"]).is_not_null())
    begins = frame.drop("stop", "to", strict=False)
    return replace(table, frame=polars.concat([ends, begins], how="diagonal_relaxed")), len(ends)


def _check_intervals(faults: RowFaults, order: Ints, arm: Indices, times: Times, num_ends: int) -> None:
    """Flag intervals that stop before they start, or overlap the next one of their arm."""
    ends = np.arange(num_ends)
    begin = num_ends + np.searchsorted(faults.rows[num_ends:], faults.rows[:num_ends])
    early = times.known[begin] & times.known[ends] & (times.ticks[ends] <= times.ticks[begin])
    faults.flag(ends[early], "stops before it starts, or at once")
    following = np.full(len(times.ticks), -1)
    following[order[:-1]] = order[1:]
    after = following[begin]
    inside = (after >= num_ends) & (arm[after] == arm[begin]) & (times.ticks[after] < times.ticks[ends]) & ~early
    faults.flag(ends[inside], "overlaps the next interval of its arm")


def _resolved(
    order: Ints, arm: Indices, times: Times, ties: Ties | None, num_ends: int, notes: list[str]
) -> tuple[Ints, Array]:
    """Sorted rows without ties, and their times. An end gives way to a row that begins at its time."""
    ticks = times.ticks[order]

    def repeated() -> Bools:
        """(row,) whether the next row is of the same arm and time."""
        return np.append((arm[order[1:]] == arm[order[:-1]]) & (np.diff(ticks) == 0), False)[: len(order)]

    if num_ends:
        remain = ~(repeated() & (order < num_ends))
        order, ticks = order[remain], ticks[remain]
    if ties is None or not (number := int(repeated().sum())):
        return order, ticks
    remain, ticks = resolve_ties(arm[order], ticks, ties, 1e-3 if times.kind == "number" else 1)
    done = "each moved after the one before" if ties == "shift" else f"left out; the {ties} counts"
    notes.append(f"{counted(number, 'row')} at the time of another of the same arm: {done}")
    return order[remain], ticks[remain]


def _without_blank_states(log: Log, options: LogOptions) -> Log:
    """The same records without rows that have no state.

    Snapshots: nothing was observed then, and the pair of rows around it is a gap; if an action was given there that a
    gap does not have, the pair is left out. Events: the state lasted until then, and nothing is known from there on.
    """
    blank = log.state < 0
    if not blank.any():
        return log
    before = np.maximum.accumulate(np.where(blank, -1, np.arange(len(blank))))
    # A row of the same arm before it has a state.
    known = (before >= 0) & (log.arm[np.maximum(before, 0)] == log.arm)
    is_events = options.layout == "events" or options.stop is not None
    state, breaks, action = log.state.copy(), np.zeros(len(blank), dtype=np.bool_), log.action
    if is_events:
        ends = blank & known & np.append(False, ~blank[:-1])
        state[ends] = log.state[before[ends]]
        breaks[ends] = True
        action = np.where(ends, 0, action)
        remain = ~blank | ends
    else:
        carried = log.action[np.maximum(before, 0)] if options.carry_action else 0
        other = blank & known & (action != NOTHING) & (action != carried)
        breaks[before[other]] = True
        remain = ~blank
    shown = int(blank.sum()) if not is_events or options.stop is None else 0
    notes = [f"{counted(shown, 'row')} without a state: not observed then"] if shown else []
    if (lost := int(breaks.sum())) and not is_events:
        notes.append(f"{counted(lost, 'pair')} of rows left out: an action was given in between in an unknown state")
    columns = {name: getattr(log, name) for name in ("arm", "time", "row", "reward", "used")}
    rows: dict[str, Any] = {name: None if column is None else column[remain] for name, column in columns.items()}
    arms, place = np.unique(rows["arm"], return_inverse=True)
    if len(arms) < log.num_arms:
        notes.append(f"{counted(log.num_arms - len(arms), 'arm')} without any state left out")
    found = replace(
        log,
        **(rows | {"arm": place.astype(np.int32)}),
        arms=tuple(log.arms[arm] for arm in arms),
        type_of=log.type_of[arms],
        group_of=None if log.group_of is None else log.group_of[arms],
        state=state[remain],
        action=action[remain].astype(np.int32),
        breaks=breaks[remain],
        covariates={name: values[remain] for name, values in log.covariates.items()},
        notes=(*log.notes, *notes),
    )
    if not found.has_next.any():
        raise TableError([Fault("", "no arm has two rows with a state, so no transition can be counted")], "the log")
    return found


# Columns


def _read_time_cuts(given: Any, origin: float, span: float) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Cuts since the earliest record, and the names of the periods that begin there."""
    try:
        cuts = [float(cut) for cut in (listed(given) if isinstance(given, str) else given)]
    except (TypeError, ValueError):
        cuts = [np.nan]
    if cuts and not (np.diff([origin, *cuts, origin + span]) > 0).all():
        message = "time_cuts: expected increasing numbers between the first and the last time of the records"
        raise InvalidInputError(f"{message}, got {given!r}", argument="time_cuts")
    names = [f"time {start:g}–{end:g}" for start, end in pairwise(cuts)] + [f"time from {cut:g}" for cut in cuts[-1:]]
    return tuple(cut - origin for cut in cuts), tuple(names)


def _read_states(column: Any, options: LogOptions, faults: RowFaults) -> tuple[Coded, bool]:
    """States, and whether their order is meaningful."""
    import polars

    if options.bins is not None:
        if options.states is not None:
            raise InvalidInputError("states: bins are ordered by themselves; give either states or bins")
        return table_reader.cut(read_floats(column, "state", faults), options.bins), True
    coded = code_names(column)
    if not coded.names:
        faults.add("no row has a state")
    if options.states is not None:
        return _among("state", coded, options.states, faults), True
    if len(coded.names) > MOST_STATES:
        faults.add(f"there are {len(coded.names):,} states; cut measurements into fewer by bins")
    # Enum of polars, ordered categorical of pandas.
    categories = column.dtype.categories.to_list() if isinstance(column.dtype, polars.Enum) else []
    order = [name for name in categories if name in set(coded.names)] or table_reader.natural_order(coded.names)
    is_ordered = bool(categories) or all(any(map(str.isdigit, name)) for name in coded.names)
    return coded.in_order_of(order), is_ordered


def _among(kind: str, coded: Coded, given: str | Sequence[str], faults: RowFaults) -> Coded:
    """Names in the given order; rows with others are faults."""
    order = [name.strip() for name in (given.split(",") if isinstance(given, str) else map(str, given))]
    if len(set(order)) < len(order) or not all(order):
        raise InvalidInputError(f"{kind}s: expected different names, got {', '.join(order)}")
    return coded.among(order, kind, faults)


def _read_actions(
    column: Any, options: LogOptions, amounts: Floats, before_last: Ints, faults: RowFaults, notes: list[str]
) -> Coded:
    """Actions, the idle one first; a note says how it was found."""
    coded, given, idle = code_names(column), options.actions, options.idle
    missing = before_last[coded.codes[before_last] < 0]
    coded = coded.sorted() if given is None else _among("action", coded, given, faults)
    names = list(coded.names)
    if idle is not None and len(missing):
        coded = coded.in_order_of([idle, *(name for name in names if name != idle)])
        notes.append(f"a missing action is the idle one, {idle}")
        return Coded(coded.names, np.maximum(coded.codes, 0))
    faults.flag(missing, "has no action; if nothing was done, give the idle action as `idle`")
    busy = set(coded.codes[(amounts > 0).any(axis=1)].tolist())
    free = [name for number, name in enumerate(names) if number not in busy and amounts.size]
    usual = [name for name in free or names if name.lower() in IDLE_NAMES]
    chosen = idle or (free if len(free) == 1 else usual or [""])[0]
    if not names:
        faults.add("no row has an action")
    elif idle is not None and idle not in names:
        faults.add(f"idle: {table_reader.unknown_name('action', idle, names)}")
    elif idle is None and len(free) != 1 and len(usual) != 1:
        faults.add(f"the idle action, which uses nothing, must be given; actions are {', '.join(names[:12])}")
    why = "" if idle is not None else ", which uses nothing" if len(free) == 1 else ", by its name"
    notes.append(f"the idle action is {chosen}{why}")
    return coded.in_order_of([chosen, *(name for name in names if name != chosen)])


# Arms


def _read_groups(column: Any, order: Ints, same: Bools, last: Ints, faults: RowFaults, notes: list[str]) -> Coded:
    """Groups, of which that of an arm's last row counts; a note counts arms that changed groups."""
    groups = code_names(column).sorted()
    faults.flag(last[groups.codes[last] < 0], "has no group, and is the last row of its arm")
    own = groups.codes[order]
    moved = same & (own[1:] != own[:-1]) & (own[1:] >= 0) & (own[:-1] >= 0)
    if number := len(np.unique(np.cumsum(~same)[moved])):
        notes.append(f"{counted(number, 'arm')} changed groups; the group of an arm's last row counts")
    return groups


def _sorted(order: Ints, arm: Indices, ticks: Array) -> Ints:
    """Rows by arm, then by time."""
    own, time = arm[order].astype(np.int64), ticks[order]
    step, pause = np.diff(own), np.diff(time)
    if (step >= 0).all() and (pause[step == 0] >= 0).all():
        return order
    span = int(time.max()) - int(time.min()) + 1
    if time.dtype.kind == "i" and (int(own.max()) + 1) * span < 2**62:  # one key is sorted faster than two
        return order[np.argsort(own * span + (time - time.min()), kind="stable")]
    return order[np.lexsort((time, own))]


def _check_arms(
    faults: RowFaults, arms: Coded, types: Coded, order: Ints, starts: Bools, pauses: Array, times: Any
) -> None:
    """Flag arms with two rows at one time, or of two types; and logs without any move."""
    previous, initial = np.zeros((2, len(arms.codes)), dtype=np.int64)
    previous[order[1:]] = order[:-1]
    initial[order] = types.codes[order][starts][np.cumsum(starts) - 1]

    def name(place: int) -> str:
        return f"arm {quoted(arms.names[arms.codes[place]])}"

    def again(place: int) -> str:
        return f"{name(place)} is also in {faults.name(previous[place])} at time {times[place]}"

    faults.flag(order[1:][~starts[1:] & (pauses == 0)], again)
    codes, first = types.codes[order], initial[order]
    several = np.unique(arms.codes[order[(codes != first) & (codes >= 0) & (first >= 0)]])
    without = np.unique(arms.codes[order[codes < 0]])
    for which, what in ((several, "several types"), (without, "rows without a type")):
        if len(which):
            named = ", ".join(arms.names[code] for code in which[:3])
            number = counted(len(which), "arm has", "arms have")
            faults.add(
                f"{number} {what}: {named}{' ...' if len(which) > 3 else ''}; `clean_records` gives each arm one"
            )
    if starts.all() and len(order):
        faults.add("no arm has two rows, so no transition can be counted")


def with_layout(log: Log, layout: Layout | None, carry_action: bool = False, exact: tuple[int, ...] = ()) -> Log:
    """Return the log as its layout says: the steps between two events are filled in if times are whole steps.

    Args:
        log: the records.
        layout: what a row is; None for snapshots, unless hardly any row repeats a state.
        carry_action: whether an action goes on until the next row; else it acts for one step.
        exact: states of which every entry is a row anyway.

    Raises:
        InvalidInputError: the layout must be given.
    """
    if layout not in (None, *get_args(Layout)):
        raise UnknownNameError("layout", str(layout), get_args(Layout))
    if layout is None:
        _refuse_changes(log, exact)
    if layout in (None, "snapshots"):
        return log
    note = "rows are changes, and a state stays until the next row"
    if not log.regular:
        return replace(log, notes=(*log.notes, note))
    filled = _filled(log, carry_action)
    return replace(filled, notes=(*log.notes, f"{note}: {len(filled.arm) - len(log.arm):,} steps were filled in"))


def _refuse_changes(log: Log, exact: tuple[int, ...]) -> None:
    ambiguous = log.has_next[:-1] & ~np.isin(log.state[1:], exact)
    if log.regular:
        ambiguous &= np.rint(np.diff(log.time)) > 1
    for pairs in (ambiguous, ambiguous & ~log.is_last[1:]):
        before, after = log.state[:-1][pairs], log.state[1:][pairs]
        number, repeated = len(before), int((before == after).sum())
        shares = np.bincount(np.concatenate([before, after])) / max(2 * number, 1)
        chance = float((shares**2).sum())
        if repeated < RARE * number * chance and bdtr(repeated, number, chance) < SURPRISE:
            seen = f"{repeated:,} of {number:,} pairs of rows repeat a state"
            usual = f"states at chosen times would in about {number * chance:,.0f} or more"
            layouts = 'layout="events" (a change; the state stays until the next row), or layout="snapshots"'
            message = f"rows look like changes: {seen}, and {usual}. State the layout of the rows: {layouts}"
            raise InvalidInputError(message, code="unclear-layout")


def _filled(log: Log, carry_action: bool) -> Log:
    """The same records with a row for every step up to the next event of the arm."""
    steps: Ints = np.ones(len(log.arm), dtype=np.int64)
    steps[log.has_next] = np.rint(np.diff(log.time)[log.has_next[:-1]]).astype(np.int64)
    check_memory(64.0 * float(steps.sum()), "the steps between two changes", "Give a longer step.")
    source = np.repeat(np.arange(len(steps)), steps)
    later = np.arange(len(source)) - np.repeat(np.cumsum(steps) - steps, steps)
    own: Bools = later == 0
    recorded = np.where(own, 1.0, np.nan)  # nothing was recorded in the new rows
    return replace(
        log,
        arm=log.arm[source],
        time=log.time[source] + later,
        state=log.state[source],
        action=log.action[source] if carry_action else np.where(own, log.action[source], 0).astype(np.int32),
        row=log.row[source],
        reward=None if log.reward is None else log.reward[source] * recorded,
        used=None if log.used is None else log.used[source] * recorded[:, None],
        breaks=None if log.breaks is None else log.breaks[source] & (later == steps[source] - 1),
    )
