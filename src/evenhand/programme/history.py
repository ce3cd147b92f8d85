"""History of an arm: observations, decisions, overrides, records, and their expectations.

The expectation of an observation is the model's distribution of the state, from the observation before and the actions
since (`belief`); that of a decision is the reward of the step in the observed or most likely state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from evenhand.programme import schema
from evenhand.programme.action_records import records_of
from evenhand.programme.belief import Beliefs, done_between, kept_chance, most_likely
from evenhand.programme.named_model import Words
from evenhand.programme.observations import observations_of
from evenhand.programme.roster import RosterArm


@dataclass(frozen=True)
class HistoryEntry:
    """Something that happened to an arm."""

    event: int
    """The number of the event."""

    step: int
    """The step that it is about."""

    kind: str
    """`joined`, `left`, `seen`, `decided` (a plan was accepted), or `recorded`."""

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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without what is absent."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    order = ("joined", "seen", "decided", "recorded", "left")
    return sorted(entries, key=lambda entry: (entry.event, order.index(entry.kind), entry.step))


def _entries(tx: Connection, words: Words, arm: RosterArm, step: int) -> Iterator[HistoryEntry]:
    table = schema.arms
    row = tx.execute(select(table).where(table.c.id == arm.id)).one()
    yield HistoryEntry(row.joined_event, arm.joined_step, "joined")
    yield from _seen(tx, words, arm, step)
    yield from _decided(tx, words, arm)
    for record in records_of(tx, arm.id):
        same = {name: record[name] for name in ("event", "step", "action", "reward", "source", "at")}
        yield HistoryEntry(kind="recorded", **same)
    if arm.left_step is not None:
        yield HistoryEntry(row.left_event, arm.left_step, "left", why=arm.left_why)


def _seen(tx: Connection, words: Words, arm: RosterArm, step: int) -> Iterator[HistoryEntry]:
    """Every report, with what was expected; late ones are compared with the steps before them."""
    block, beliefs = words.blocks[arm.type, arm.group], Beliefs(words)
    reports = observations_of(tx, arm.id)
    last = {report["step"]: report["state"] for report in reports}
    done = done_between(tx, [arm.id], 0, max([step, *last]) + 1)
    for report in reports:
        at, state = report["step"], report["state"]
        before = max((other for other in last if other < at), default=None)
        first = min(arm.joined_step, at) if before is None else before
        start = None if before is None else words.state_number(block, last[before])
        names = [done.get((arm.id, number)) for number in range(first, at)]
        actions = tuple(None if name is None else words.action_number(block, name) for name in names)
        distribution = beliefs.distribution(block, start, actions)
        same = {name: report[name] for name in ("event", "source", "at")}
        yield HistoryEntry(
            step=at,
            kind="seen",
            state=state,
            expected=words.states(block)[most_likely(distribution)[0]],
            chance=kept_chance(distribution[words.state_number(block, state)]),
            **same,
        )


def _decided(tx: Connection, words: Words, arm: RosterArm) -> Iterator[HistoryEntry]:
    table, plans = schema.decisions, schema.plans
    request = (
        select(table, plans.c.step, plans.c.accepted_event, plans.c.accepted_at)
        .join(plans, plans.c.id == table.c.plan)
        .where(table.c.arm == arm.id, plans.c.status == schema.ACCEPTED)
    )
    block = words.blocks[arm.type, arm.group]
    for row in tx.execute(request):
        cell = (block, words.state_number(block, row.state), words.action_number(block, row.accepted))
        yield HistoryEntry(
            event=row.accepted_event,
            step=row.step,
            kind="decided",
            state=row.state,
            known=row.known,
            planned=row.planned,
            action=row.accepted,
            overridden=row.accepted != row.planned,
            chance=row.chance,
            expected_reward=float(words.model.tables.rewards[cell]),
            who=row.who,
            why=row.why,
            plan=row.plan,
            at=row.accepted_at,
        )
