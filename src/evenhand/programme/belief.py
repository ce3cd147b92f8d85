"""Beliefs: the state of every arm at a step, observed or inferred.

An arm with a report on the step is *seen*. Any other has a belief, the distribution of its state given all reports and
actions, by the model:

    b(s)      = 1 for the last observed state; the initial distribution, at the first step, if there is none
    b'(s')    = sum over s of b(s) p(s' | s, a)          at every step since, with a the action done

The action done is the recorded one, else the accepted one, else idling. An arm idles in states in which the action is
infeasible. A policy acts on states: it is given the most likely one, the first of
several that are equally likely, with its probability.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, func, select

from evenhand.programme import schema
from evenhand.programme.named_model import Words
from evenhand.programme.roster import RosterArm
from evenhand.typing import Floats

SEEN, BELIEVED = "seen", "believed"

Conditions = Sequence[ColumnElement[bool]]

ALIKE = 1e-9
"""Chances that differ by less are equal: sums differ in their last bits from machine to machine."""


@dataclass(frozen=True)
class Known:
    """State of one arm at a step."""

    arm: RosterArm
    block: int
    """Of the model."""

    state: int
    """Index of the observed or most likely state."""

    known: str
    """`seen` or `believed`."""

    seen_step: int | None
    """The step at which it was last seen; None where it never was."""

    chance: float
    """Probability of that state; 1 if observed."""

    waiting: int = 0
    """Steps in states with a promised wait without service, up to this one."""

    unserved: int = 0
    """Steps since it was last served, or since it is known."""


def know(tx: Connection, words: Words, arms: Sequence[RosterArm], step: int, event: int | None = None) -> list[Known]:
    """(arm,) what is known at a step; as of an event, or now.

    Args:
        tx: a transaction.
        words: of the model by which beliefs move.
        arms: who takes part.
        step: the step.
        event: later events are ignored; by default none.
    """
    table = schema.observations
    known = schema.valid(table, event)
    newest = (table.c.event, table.c.id)
    at_step = select(table.c.arm, table.c.state).where(table.c.step == step, *known).order_by(*newest)
    now = {row.arm: row.state for row in tx.execute(at_step)}
    absent = [arm.id for arm in arms if arm.id not in now]
    earlier = [table.c.step < step, *known]

    def last_seen(part: Conditions) -> Any:
        there = [*part, *earlier]
        last = select(table.c.arm, func.max(table.c.step).label("step")).where(*there).group_by(table.c.arm).subquery()
        same = (table.c.arm == last.c.arm) & (table.c.step == last.c.step)
        return select(table.c.arm, table.c.step, table.c.state).join(last, same).where(*there).order_by(*newest)

    last = {arm: (at, state) for arm, at, state in _of_arms(tx, last_seen, table.c.arm, absent)}
    since = {arm.id: last[arm.id][0] if arm.id in last else arm.joined_step for arm in arms if arm.id not in now}
    done = done_between(tx, absent, min(since.values(), default=step), step, event)
    beliefs, found = Beliefs(words), []
    for arm in arms:
        block = words.blocks[arm.type, arm.group]
        if arm.id in now:
            found.append(Known(arm, block, words.states[block].index(now[arm.id]), SEEN, step, 1.0))
            continue
        seen = last.get(arm.id)
        start = None if seen is None else words.states[block].index(seen[1])
        actions = words.actions_done(block, done, arm.id, range(since[arm.id], step))
        state, chance = most_likely(beliefs.distribution(block, start, actions))
        found.append(Known(arm, block, state, BELIEVED, None if seen is None else seen[0], chance))
    return _with_waits(tx, words, found, step, event)


def _with_waits(tx: Connection, words: Words, known: list[Known], step: int, event: int | None) -> list[Known]:
    """(arm,) the same with waiting times, by the states of accepted plans and the actions done.

    They are counted back for 100 steps; of many arms for fewer, but for as many as promises need.
    """
    promised, limit = words.model.max_waits >= 0, int(words.model.max_waits.max())
    longest = max(limit, min(100, 2_000_000 // max(len(known), 1)))
    past = decided_between(tx, words, {row.arm.id: row.block for row in known}, step - longest, step, event)
    found = []
    for row in known if past else ():
        earlier = (past.get((row.arm.id, at)) for at in range(step - 1, step - longest - 1, -1))
        idle = list(takewhile(lambda one: one and not one[1], earlier))
        waits = takewhile(lambda one, of=row.block: one and promised[of, one[0]], idle)  # type: ignore[misc]
        waiting = sum(1 for _ in waits) if promised[row.block, row.state] else 0
        found.append(replace(row, waiting=waiting, unserved=len(idle)) if idle else row)
    return found or known


class Beliefs:
    """Laws of states by a model; the same beginnings are computed once."""

    def __init__(self, words: Words) -> None:
        """Keep the model.

        Args:
            words: of a settled model.
        """
        self.tables = words.model.tables
        self.distribution = lru_cache(maxsize=None)(self._distribution)
        self.matrix = lru_cache(maxsize=None)(self._matrix)

    def _distribution(self, block: int, start: int | None, actions: tuple[int | None, ...]) -> Floats:
        """Return (state,) the distribution after some actions, from a state or the initial distribution."""
        size = int(self.tables.num_states[block])
        distribution = np.asarray(self.tables.initial[block, :size]) if start is None else np.eye(size)[start]
        for action in actions:
            distribution = distribution @ self.matrix(block, action)
        return distribution

    def _matrix(self, block: int, action: int | None) -> Floats:
        """(state, next_state) how an arm moves; it idles where the action cannot be done."""
        size = int(self.tables.num_states[block])
        rows, idle = np.arange(size), np.asarray(self.tables.idle[block, :size])
        taken = idle if action is None else np.where(self.tables.valid[block, :size, action], action, idle)
        return np.asarray(self.tables.transitions[block, rows, taken, :size])


def most_likely(distribution: Floats) -> tuple[int, float]:
    """The first of the most likely states, and its chance.

    Args:
        distribution: (state,) chances.
    """
    state = int(np.flatnonzero(distribution >= distribution.max() - ALIKE)[0])
    return state, rounded_chance(distribution[state])


def rounded_chance(chance: float) -> float:
    """A chance as it is stored: nine digits, whatever the last bits of the sum that it came from.

    A number beyond all digits is added first: 0.95 ** 5 = 0.7737809375 lies between two numbers of nine digits, as do
    many products of short decimals, and the last bit of a sum would choose.
    """
    return round(float(chance) + 2.718281828e-13, 9)


def _of_arms(
    tx: Connection, query: Callable[[Conditions], Any], arm: Any, arms: Sequence[int], many: int = 2000
) -> Iterator[Any]:
    """Rows of a query about some arms, in parts: databases limit the number of parameters.

    Args:
        tx: a transaction.
        query: of conditions; its first column is the arm.
        arm: that column.
        arms: their numbers.
        many: number of arms from which all are read, and the others left out.
    """
    wanted = set(arms)
    if len(arms) >= many:
        yield from (row for row in tx.execute(query([])).cursor.fetchall() if row[0] in wanted)
        return
    for start in range(0, len(arms), 500):
        yield from tx.execute(query([arm.in_(arms[start : start + 500])]))


def accepted_between(
    tx: Connection, arms: Sequence[int], first: int, step: int, event: int | None = None
) -> dict[tuple[int, int], tuple[str, str]]:
    """Return the state that a plan assumed and the accepted action, by (arm, step).

    Args:
        tx: a transaction.
        arms: their numbers.
        first: the first step.
        step: the step after the last.
        event: as of an event, or now.
    """
    plans, table = schema.plans, schema.decisions
    closed = [plans.c.step >= first, plans.c.step < step, plans.c.accepted_event.is_not(None)]
    closed += schema.valid(plans, event, "accepted_event")
    query = select(table.c.arm, plans.c.step, table.c.state, table.c.accepted)
    query = query.join(plans, plans.c.id == table.c.plan).where(*closed)
    rows = _of_arms(tx, lambda part: query.where(*part), table.c.arm, arms)
    return {(arm, at): (state, action) for arm, at, state, action in rows}


def done_between(
    tx: Connection, arms: Sequence[int], first: int, step: int, event: int | None = None
) -> dict[tuple[int, int], str]:
    """Return the actions done, by (arm, step): as recorded, else as accepted.

    Args:
        tx: a transaction.
        arms: their numbers.
        first: the first step.
        step: the step after the last.
        event: as of an event, or now.
    """
    found = {cell: action for cell, (_, action) in accepted_between(tx, arms, first, step, event).items()}
    return found | _recorded_between(tx, arms, first, step, event)


def _recorded_between(
    tx: Connection, arms: Sequence[int], first: int, step: int, event: int | None
) -> dict[tuple[int, int], str]:
    """Return the recorded actions, by (arm, step); the last record counts."""
    table = schema.records
    within = [table.c.step >= first, table.c.step < step, *schema.valid(table, event)]
    query = select(table.c.arm, table.c.step, table.c.action).where(*within).order_by(table.c.event, table.c.id)
    rows = _of_arms(tx, lambda part: query.where(*part), table.c.arm, arms)
    return {(arm, at): action for arm, at, action in rows}


def decided_between(
    tx: Connection, words: Words, blocks: Mapping[int, int], first: int, step: int, event: int | None = None
) -> dict[tuple[int, int], tuple[int, bool]]:
    """Return the state that an accepted plan assumed, and whether the arm was served, by (arm, step).

    Before step 0, in the history, the state is the last one seen by then.

    Args:
        tx: a transaction.
        words: of the model; decisions in states or with actions that it does not have are left out.
        blocks: of the arms, by their numbers.
        first: the first step considered.
        step: the step after the last.
        event: as of an event, or now.
    """
    accepted, served = accepted_between(tx, list(blocks), first, step, event), words.model.tables.served
    found: dict[tuple[int, int], tuple[int, bool]] = {}
    assumed = {cell: name for cell, (name, _) in accepted.items()}
    done = {cell: action for cell, (_, action) in accepted.items()}
    done |= _recorded_between(tx, list(blocks), first, step, event)
    if first < 0:
        assumed |= _past_states(tx, words, blocks, first, done, event)
    for (arm, at), name in assumed.items():
        idle = words.idle_name(blocks[arm])
        state, action = words.state(blocks[arm], name), words.action(blocks[arm], done.get((arm, at), idle))
        if isinstance(state, int) and isinstance(action, int):
            found[arm, at] = state, bool(served[blocks[arm], state, action])
    return found


def _past_states(
    tx: Connection,
    words: Words,
    blocks: Mapping[int, int],
    first: int,
    done: Mapping[tuple[int, int], str],
    event: int | None,
) -> dict[tuple[int, int], str]:
    """Return the last state seen by each step of the history at which an arm was seen or served, by (arm, step)."""
    table = schema.observations
    query = select(table.c.arm, table.c.step, table.c.state).order_by(table.c.step, table.c.event, table.c.id)
    query = query.where(table.c.step < 0, *schema.valid(table, event))
    seen: dict[tuple[int, int], str] = {}
    for arm, at, state in _of_arms(tx, lambda part: query.where(*part), table.c.arm, list(blocks)):
        seen[arm, at] = state
    last: dict[int, str] = {}
    found: dict[tuple[int, int], str] = {}
    for arm, at in sorted({*seen, *(cell for cell in done if cell[1] < 0)}):
        last[arm] = seen.get((arm, at)) or last.get(arm) or words.states[blocks[arm]][0]
        if at >= first:
            found[arm, at] = last[arm]
    return found
