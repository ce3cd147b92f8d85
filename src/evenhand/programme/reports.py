"""Reports on arms: observed states, actions done with their rewards, and the history of an arm.

Reports are never changed: of several on an arm and step the last counts. One on an earlier step is *late*; one that
says something else than the report before it is a *correction*. Both are stored beside the old ones, and plans say
which they knew. A next state in a record of an action is an observation of the step after, and is stored as one.

In a history, the expectation of an observation is the model's distribution of the state, from the observation before
and the actions since (`belief`); that of a decision is the reward of the step in the observed or most likely state.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam, func, select

from evenhand.errors import ConflictError, Fault
from evenhand.model import SHOWN_FAULTS, quoted
from evenhand.model.io.text_table import Table
from evenhand.programme import schema
from evenhand.programme.belief import Beliefs, done_between, most_likely, rounded_chance
from evenhand.programme.ledger import Result, add_rows, fetch, now
from evenhand.programme.named_model import Words
from evenhand.programme.roster import MOST_STEP, RosterArm, in_order, match_names, raise_faults, unknown_arm
from evenhand.programme.vocabulary import vocabulary_of

T = TypeVar("T")


@dataclass(frozen=True)
class Observed(Result):
    """Result of a table of observations."""

    event: int
    """The number of the event."""

    observations: int
    """Number of rows."""

    late: int
    """Number of rows on steps before the present one."""

    corrected: int
    """Number of rows that differ from the report before."""

    blank: int = 0
    """Number of rows without a state: not seen."""


@dataclass(frozen=True)
class ReportRow:
    """One row of a table that is about arms at steps."""

    arm: RosterArm
    step: int
    number: int
    """Its place in the table, from 0."""


def _read_reports(
    table: Table,
    arms: Sequence[RosterArm],
    usual: int,
    read: Callable[[ReportRow, bool], T | list[str]],
    content: Sequence[str],
) -> list[T]:
    """Read every row of a table about arms at steps; raise all faults.

    Args:
        table: with the column arm, and perhaps step.
        arms: every arm that ever joined.
        usual: the step of rows that name none.
        read: returns the report of a row or its faults, with hints if requested.
        content: columns of which a row has at least one entry; rows without any say that nothing was seen or done.
    """
    named: dict[str, list[RosterArm]] = {}
    for arm in arms:
        named.setdefault(arm.name, []).append(arm)
    match = match_names(named)
    rows: list[ReportRow] = []
    faults: list[Fault] = []
    places: dict[tuple[int, int], str] = {}
    blank = [""] * len(table.rows)
    steps = table.columns.get("step", blank)
    filled = list(map(any, zip(*(table.columns.get(name, blank) for name in content), strict=True)))
    if not any(filled) and not table.faults:
        faults.append(Fault("", f"no row has an entry in {' or '.join(content)}"))
    for number, (place, name, text) in enumerate(zip(table.rows, table.columns["arm"], steps, strict=True)):
        if not filled[number]:
            continue
        step, name = _step(text, usual), match(name)
        found = next((arm for arm in named.get(name, []) if arm.takes_part(step)), None)
        if step < 0:
            faults.append(Fault(place, f"step {quoted(text)} must be a whole number from 0"))
        elif name not in named:
            faults.append(Fault(place, unknown_arm(name, named, len(faults) < SHOWN_FAULTS)))
        elif found is None:
            faults.append(Fault(place, f"arm {quoted(name)} does not take part at step {step}"))
        elif (found.id, step) in places:
            faults.append(Fault(place, f"arm {quoted(name)} is also in {places[found.id, step]}, at the same step"))
        else:
            places[found.id, step] = place
            rows.append(ReportRow(found, step, number))
    reports: list[T] = []
    wrong: list[Fault] = []
    for row in rows:
        report = read(row, len(wrong) < SHOWN_FAULTS)
        if isinstance(report, list):
            wrong += [Fault(table.rows[row.number], content) for content in report]
        else:
            reports.append(report)
    raise_faults(in_order([*faults, *wrong, *table.faults]), table.source)
    return reports


def _step(text: str, usual: int) -> int:
    """The step that was typed; -1 if invalid."""
    if not text:
        return usual
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= MOST_STEP else -1


def read_observations(
    table: Table, arms: Sequence[RosterArm], words: Words, usual: int, present: int
) -> list[tuple[ReportRow, str]]:
    """The rows of a table, each with the name of a state.

    Args:
        table: with the columns arm and state, and perhaps step.
        arms: every arm that ever joined.
        words: of the model.
        usual: the step of rows that name none.
        present: the present step, the last that can have been observed.

    Raises:
        TableError: with every fault and its row.
    """

    def read(row: ReportRow, hint: bool) -> tuple[ReportRow, str] | list[str]:
        block = words.blocks[row.arm.type, row.arm.group]
        state = words.state(block, table.columns["state"][row.number], hint)
        if isinstance(state, str):
            return [state]
        if row.step > present:
            return [f"step {row.step} is still to come; the present one is step {present}"]
        return row, words.states[block][state]

    return _read_reports(table, arms, usual, read, ["state"])


def question_observations(
    tx: Connection, words: Words, found: Sequence[tuple[ReportRow, str]], fewest: int = 5, rare: float = 0.001
) -> None:
    """Refuse observations that look like those of an earlier step.

    They do if every arm is in the state in which it was seen at the last observed step before, and the chance of that
    is small by the model.

    Args:
        tx: a transaction.
        words: of the model.
        found: rows of a table; only one whose rows are about one step is looked at.
        fewest: number of rows from which on it is.
        rare: chance below which it is refused.

    Raises:
        ConflictError: code `same-as-earlier`.
    """
    table, steps = schema.observations, {row.step for row, _ in found}
    if len(found) < fewest or len(steps) > 1:
        return
    (step,) = steps
    counted = schema.valid(table)
    earlier = tx.execute(select(func.max(table.c.step)).where(table.c.step < step, *counted)).scalar()
    if earlier is None:
        return
    at_step = select(table.c.arm, table.c.state).where(table.c.step == earlier, *counted)
    before = {(arm, state) for arm, state in tx.execute(at_step)}
    if not all((row.arm.id, state) in before for row, state in found):
        return
    done = done_between(tx, [row.arm.id for row, _ in found], earlier, step)
    beliefs, chance = Beliefs(words), 1.0
    for row, name in found:
        block = words.blocks[row.arm.type, row.arm.group]
        state = words.states[block].index(name)
        actions = words.actions_done(block, done, row.arm.id, range(earlier, step))
        chance *= float(beliefs.distribution(block, state, actions)[state])
    if chance < rare:
        _raise_same(tx, len(found), step, earlier)


def question_records(tx: Connection, found: "Sequence[Record]", differing: int, fewest: int = 5) -> None:
    """Refuse records that look like those of the step before: the same actions, and not those that were accepted.

    Args:
        tx: a transaction.
        found: rows of a table; only one whose rows are about one step is looked at.
        differing: number of rows that differ from the accepted action.
        fewest: number of rows from which on it is.

    Raises:
        ConflictError: code `same-as-earlier`.
    """
    steps = {one.step for one in found}
    if len(found) < fewest or len(steps) > 1 or not differing:
        return
    (step,) = steps
    before = done_between(tx, [one.arm.id for one in found], step - 1, step)
    if all(before.get((one.arm.id, step - 1)) == one.action for one in found):
        _raise_same(tx, len(found), step, step - 1)


def _raise_same(tx: Connection, rows: int, step: int, earlier: int) -> None:
    name = vocabulary_of(tx).the
    raise ConflictError(
        f"all {rows} rows say the same as those of {name(earlier)}. Is it the file of {name(step)}? If so, confirm it",
        code="same-as-earlier",
    )


def store_reports(tx: Connection, table: Any, rows: Sequence[dict[str, Any]], source: str, event: int) -> None:
    """Write observations or records.

    Args:
        tx: a transaction from `Store.writing`.
        table: of observations or records.
        rows: with arm's number, step, and state, or action and reward.
        source: source of the report.
        event: the event that says so.
    """
    same = {"source": source, "at": now(), "event": event}
    add_rows(tx, table, [row | same for row in rows])


def last_observations(tx: Connection, step: int) -> dict[int, dict[int, tuple[str, int]]]:
    """Return state and event of the last report on each arm and step, up to a step, in the order of the steps.

    History is left out: the model may have been fitted to it.
    """
    table, found = schema.observations, defaultdict[int, dict[int, tuple[str, int]]](dict)
    for row in reports(tx, table, table.c.step >= 0, table.c.step <= step):
        found[row.arm][row.step] = row.state, row.event
    return {arm: dict(sorted(by_step.items())) for arm, by_step in found.items()}


def reports(tx: Connection, table: Any, *where: Any, undone: bool = False) -> Any:
    """Rows of the table of observations or records that count, or all of them, in the order in which they came."""
    counted = [] if undone else schema.valid(table)
    return tx.execute(select(table).where(*counted, *where).order_by(table.c.event, table.c.id))


def last_reports(
    tx: Connection, table: sa.Table, steps: Iterable[int], arms: Iterable[int] = (), most: int = 500
) -> Any:
    """The last report on each arm at some steps: of some arms, and perhaps of others.

    Args:
        tx: a transaction.
        table: of observations or records.
        steps: the steps.
        arms: numbers of the arms; by default all.
        most: number of arms up to which only theirs are read.
    """
    own, at = list(set(arms)), list(set(steps))
    if len(own) == len(at) == 1:
        return fetch(tx, _last_reports(table, "one"), own=own[0], at=at[0])
    if 0 < len(own) <= most:
        return tx.execute(_last_reports(table, "some"), {"own": own, "at": at})
    return tx.execute(_last_reports(table, "all"), {"at": at})


@cache
def _last_reports(table: sa.Table, many: str) -> Any:
    """Query of the last reports on one arm and step, on some arms and steps, or on all arms at some steps."""
    bound: dict[str, Any] = {name: bindparam(name, expanding=many != "one") for name in ("own", "at")}
    if many == "one":
        own = select(table).where(table.c.arm == bound["own"], table.c.step == bound["at"], *schema.valid(table))
        return own.order_by(table.c.event.desc(), table.c.id.desc()).limit(1)
    within = [table.c.step.in_(bound["at"]), *([table.c.arm.in_(bound["own"])] if many == "some" else [])]
    newest = select(func.max(table.c.id)).where(*within, *schema.valid(table)).group_by(table.c.arm, table.c.step)
    return select(table).where(table.c.id.in_(newest))


# Actions done


@dataclass(frozen=True)
class Recorded(Result):
    """Result of a table of records."""

    event: int
    """The number of the event."""

    records: int
    """Number of rows."""

    late: int
    """Number of rows on steps before the last accepted one."""

    corrected: int
    """Number of rows that differ from the record before."""

    differing: int
    """Number of rows that differ from the accepted action."""

    observations: int
    """Number of rows with a next state."""

    blank: int = 0
    """Number of rows without an action: of these nothing is known to be done."""


@dataclass(frozen=True)
class Record:
    """Record of one arm at one step."""

    arm: RosterArm
    step: int
    action: str | None
    """None if only the next state is known."""
    reward: float | None
    next_state: str | None


@dataclass(frozen=True)
class Unrecorded:
    """A step of which it is not known of all arms what was done."""

    step: int
    plan: int
    """The plan that was accepted for it."""

    arms: int
    """Of how many it is not known."""


def read_records(table: Table, arms: Sequence[RosterArm], words: Words, present: int) -> list[Record]:
    """The rows of a table with the columns arm and action, and perhaps step, reward and next_state.

    Args:
        table: as it was given.
        arms: every arm that ever joined.
        words: of the model.
        present: the step that is not yet accepted.

    Raises:
        TableError: with every fault and its row.
    """
    blank = [""] * len(table.rows)
    actions, rewards, states = (table.columns.get(name, blank) for name in ("action", "reward", "next_state"))

    def read(row: ReportRow, hint: bool) -> Record | list[str]:
        block = words.blocks[row.arm.type, row.arm.group]
        is_done = actions[row.number] or rewards[row.number]
        action = words.action(block, actions[row.number], hint) if is_done else None
        state = words.state(block, states[row.number], hint) if states[row.number] else None
        reward = read_reward(rewards[row.number])
        faults = [content for content in (action, state) if isinstance(content, str)]
        if reward is not None and math.isnan(reward):
            faults.append(f"reward {quoted(rewards[row.number])} must be a number")
        if row.step >= present:
            faults.append(f"step {row.step} has no accepted plan yet: what was done is recorded afterwards")
        if faults or isinstance(action, str) or isinstance(state, str):
            return faults
        after = None if state is None else words.states[block][state]
        return Record(row.arm, row.step, None if action is None else words.actions[block][action], reward, after)

    return _read_reports(table, arms, max(present - 1, 0), read, ["action", "reward", "next_state"])


def read_reward(text: str) -> float | None:
    """A reward that was typed; None without one, and NaN if it is not a number, or beyond all sense."""
    try:
        found = float(text) if text else None
    except ValueError:
        return math.nan
    return found if found is None or abs(found) < 1e100 else math.nan


def known_records(
    tx: Connection, steps: Iterable[int], arms: Iterable[int] = ()
) -> dict[tuple[int, int], tuple[str, float | None]]:
    """Return the last record of each arm at some steps: action and reward; at least of some arms, by default of all."""
    rows = last_reports(tx, schema.records, steps, arms)
    return {(row.arm, row.step): (row.action, row.reward) for row in rows}


# History


@dataclass(frozen=True)
class HistoryEntry(Result):
    """Something that happened to an arm."""

    event: int
    """The number of the event."""

    step: int
    """The step that it is about."""

    kind: str
    """`joined`, `left`, `moved`, `seen`, `decided` (a plan was accepted), or `recorded`."""

    state: str | None = None
    """Observed or most likely state."""

    known: str | None = None
    """Of a decision: whether the state was `seen` or `believed`."""

    planned: str | None = None
    """Planned action."""

    action: str | None = None
    """Accepted or recorded action."""

    overridden: bool = False
    """Whether it differs from the plan."""

    reward: float | None = None
    """Recorded reward."""

    expected: str | None = None
    """Of a state: the one that was most likely. None where nothing was known before."""

    chance: float | None = None
    """Of a state: how likely it was, by what was known before. Of a decision: how likely the arm was where it was taken
    to be."""

    expected_reward: float | None = None
    """Of a decision: the reward of the step, by the model."""

    who: str | None = None
    """Author of the override or of the event."""

    why: str | None = None
    """Reason of the override, or of leaving."""

    source: str | None = None
    """Source of the report."""

    plan: int | None = None
    """The number of the plan."""

    at: str | None = None
    """When it was written down."""

    group: str | None = None
    """Of a move: the new group."""

    undone: int | None = None
    """The event by which it was undone."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without what is absent."""
        return {name: value for name, value in vars(self).items() if value is not None}


def history_of(tx: Connection, words: Words, arms: Sequence[RosterArm], step: int) -> list[HistoryEntry]:
    """All that happened to an arm, in the order in which it was written down.

    Args:
        tx: a transaction.
        words: of the model.
        arms: the times it took part, the first first.
        step: the present one.
    """
    found = [entry for arm in arms for entry in _entries(tx, words, arm, step)]
    table = schema.events
    query = select(table.c.id, table.c.who).where(table.c.id.in_({entry.event for entry in found}))
    who = {row.id: row.who for row in tx.execute(query)}
    entries = [replace(entry, who=entry.who or who.get(entry.event) or None) for entry in found]
    order = ("joined", "moved", "seen", "decided", "recorded", "left")
    return sorted(entries, key=lambda entry: (entry.event, order.index(entry.kind), entry.step))


def _entries(tx: Connection, words: Words, arm: RosterArm, step: int) -> Iterator[HistoryEntry]:
    table, records = schema.arms, schema.records
    row = tx.execute(select(table).where(table.c.id == arm.id)).one()
    yield HistoryEntry(row.joined_event, arm.joined_step, "joined")
    yield from _seen(tx, words, arm, step)
    yield from _decided(tx, words, arm)
    for one in reports(tx, records, records.c.arm == arm.id, undone=True):
        same = {"reward": one.reward, "source": one.source, "at": one.at, "undone": one.undone_event}
        yield HistoryEntry(one.event, one.step, "recorded", action=one.action, **same)
    moves = schema.transfers
    for one in tx.execute(select(moves).where(moves.c.arm == arm.id)):
        yield HistoryEntry(one.event, one.from_step, "moved", group=one.group_name, undone=one.undone_event)
    if arm.left_step is not None:
        yield HistoryEntry(row.left_event, arm.left_step, "left", why=arm.left_why)


def _seen(tx: Connection, words: Words, arm: RosterArm, step: int) -> Iterator[HistoryEntry]:
    """Every observation, with its expectation; late ones are compared with the steps before them."""
    block, beliefs = words.blocks[arm.type, arm.group], Beliefs(words)
    found = reports(tx, schema.observations, schema.observations.c.arm == arm.id, undone=True).all()
    last = {report.step: report.state for report in found if report.undone_event is None}
    steps = sorted(last)
    done = done_between(tx, [arm.id], min([0, *last]), max([step, *last]) + 1)
    for report in found:
        place = bisect_left(steps, report.step)
        before = steps[place - 1] if place else None
        first = min(arm.joined_step, report.step) if before is None else before
        start = None if before is None else words.states[block].index(last[before])
        actions = words.actions_done(block, done, arm.id, range(first, report.step))
        distribution = beliefs.distribution(block, start, actions)
        yield HistoryEntry(
            event=report.event,
            step=report.step,
            kind="seen",
            state=report.state,
            expected=words.states[block][most_likely(distribution)[0]],
            chance=rounded_chance(distribution[words.states[block].index(report.state)]),
            source=report.source,
            at=report.at,
            undone=report.undone_event,
        )


def _decided(tx: Connection, words: Words, arm: RosterArm) -> Iterator[HistoryEntry]:
    table, plans = schema.decisions, schema.plans
    request = (
        select(table, plans.c.step, plans.c.accepted_event, plans.c.accepted_at, plans.c.undone_event)
        .join(plans, plans.c.id == table.c.plan)
        .where(table.c.arm == arm.id, plans.c.accepted_event.is_not(None))
    )
    block = words.blocks[arm.type, arm.group]
    for row in tx.execute(request):
        cell = (block, words.states[block].index(row.state), words.actions[block].index(row.accepted))
        same = ("step", "state", "known", "planned", "chance", "who", "why", "plan")
        yield HistoryEntry(
            event=row.accepted_event,
            kind="decided",
            action=row.accepted,
            overridden=row.accepted != row.planned,
            expected_reward=float(words.model.tables.rewards[cell]),
            at=row.accepted_at,
            undone=row.undone_event,
            **{name: getattr(row, name) for name in same},
        )
