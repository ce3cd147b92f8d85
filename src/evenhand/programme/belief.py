"""Beliefs: the state of every arm at a step, observed or inferred.

An arm with a report on the step is *seen*. Any other has a belief, the distribution of its state given all reports and
actions, by the model:

    b(s)      = 1 for the last observed state; the initial distribution, at the first step, if there is none
    b'(s')    = sum over s of b(s) p(s' | s, a)          at every step since, with a the action done

The action done is the recorded one, else the accepted one, else idling. An arm idles in states in which the action is
infeasible. A policy acts on states: it is given the most likely one, the first of
several that are equally likely, with its probability.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sqlalchemy import Connection, func, select

from evenhand.programme import schema
from evenhand.programme.named_model import Words
from evenhand.programme.roster import RosterArm
from evenhand.typing import Floats

SEEN, BELIEVED = "seen", "believed"

ALIKE = 1e-9
"""Chances that differ by less are equal: sums differ in their last bits from machine to machine."""

DIGITS = 9
"""Of a chance that is stored."""

OFF_TIES = 2.718281828e-13
"""Added before a chance is rounded: 0.95 ** 5 = 0.7737809375 lies between two numbers of nine digits, as do many
products of short decimals, and the last bit of a sum would choose."""

MOST_ASKED = 500
"""Arms that a database is asked about at once."""


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


def know(tx: Connection, words: Words, arms: Sequence[RosterArm], step: int, event: int | None = None) -> list[Known]:
    """(arm,) what is known at a step; as of an event, or now.

    Args:
        tx: a transaction.
        words: of the model by which beliefs move.
        arms: who takes part.
        step: the step.
        event: later events are ignored; by default none.
    """
    now = _seen_at(tx, step, event)
    absent = [arm for arm in arms if arm.id not in now]
    last = _last_seen(tx, absent, step, event)
    done = _done_since(tx, absent, last, step, event)
    beliefs = Beliefs(words)
    found = []
    for arm in arms:
        block = words.blocks[arm.type, arm.group]
        if arm.id in now:
            found.append(Known(arm, block, words.state_number(block, now[arm.id]), SEEN, step, 1.0))
            continue
        seen = last.get(arm.id)
        first = arm.joined_step if seen is None else seen[0]
        start = None if seen is None else words.state_number(block, seen[1])
        actions = tuple(_number(words, block, done.get((arm.id, number))) for number in range(min(first, step), step))
        state, chance = most_likely(beliefs.distribution(block, start, actions))
        found.append(Known(arm, block, state, BELIEVED, None if seen is None else seen[0], chance))
    return found


def _number(words: Words, block: int, action: str | None) -> int | None:
    return None if action is None else words.action_number(block, action)


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
    return state, kept_chance(distribution[state])


def kept_chance(chance: float) -> float:
    """A chance as it is stored: the same whatever the last bits of the sum that it came from."""
    return round(float(chance) + OFF_TIES, DIGITS)


def _parts(arms: Sequence[RosterArm]) -> Iterator[list[int]]:
    numbers = [arm.id for arm in arms]
    for start in range(0, len(numbers), MOST_ASKED):
        yield numbers[start : start + MOST_ASKED]


def _seen_at(tx: Connection, step: int, event: int | None) -> dict[int, str]:
    table = schema.observations
    limit = [table.c.step == step] + ([] if event is None else [table.c.event <= event])
    query = select(table.c.arm, table.c.state).where(*limit).order_by(table.c.event, table.c.id)
    return {row.arm: row.state for row in tx.execute(query)}


def _last_seen(tx: Connection, arms: Sequence[RosterArm], step: int, event: int | None) -> dict[int, tuple[int, str]]:
    """The last step before this one at which each arm was seen, and in what."""
    table = schema.observations
    limit = [table.c.step < step] + ([] if event is None else [table.c.event <= event])
    found: dict[int, tuple[int, str]] = {}
    for part in _parts(arms):
        last = (
            select(table.c.arm, func.max(table.c.step).label("step"))
            .where(table.c.arm.in_(part), *limit)
            .group_by(table.c.arm)
            .subquery()
        )
        there = (table.c.arm == last.c.arm) & (table.c.step == last.c.step)
        request = select(table.c.arm, table.c.step, table.c.state).join(last, there).where(*limit)
        found |= {arm: (at, state) for arm, at, state in tx.execute(request.order_by(table.c.event, table.c.id))}
    return found


def _done_since(
    tx: Connection, arms: Sequence[RosterArm], last: dict[int, tuple[int, str]], step: int, event: int | None
) -> dict[tuple[int, int], str]:
    """Actions done with each arm at each step since its last observation."""
    if not arms:
        return {}
    first = min(last[arm.id][0] if arm.id in last else arm.joined_step for arm in arms)
    return done_between(tx, [arm.id for arm in arms], first, step, event) if first < step else {}


def done_between(
    tx: Connection, arms: Sequence[int], first: int, step: int, event: int | None = None, recorded: bool = True
) -> dict[tuple[int, int], str]:
    """Return the actions done, by (arm, step): as recorded, else as accepted.

    Args:
        tx: a transaction.
        arms: their numbers.
        first: the first step.
        step: the step after the last.
        event: as of an event, or now.
        recorded: whether records are used, or only accepted actions.
    """
    plans, decisions, records = schema.plans, schema.decisions, schema.records
    closed = [plans.c.status == schema.ACCEPTED, plans.c.step >= first, plans.c.step < step]
    said = [records.c.step >= first, records.c.step < step]
    if event is not None:
        closed.append(plans.c.accepted_event <= event)
        said.append(records.c.event <= event)
    found: dict[tuple[int, int], str] = {}
    for start in range(0, len(arms), MOST_ASKED):
        part = list(arms[start : start + MOST_ASKED])
        accepted = (
            select(decisions.c.arm, plans.c.step, decisions.c.accepted)
            .join(plans, plans.c.id == decisions.c.plan)
            .where(decisions.c.arm.in_(part), *closed)
        )
        reported = select(records.c.arm, records.c.step, records.c.action).where(records.c.arm.in_(part), *said)
        found |= {(arm, at): action for arm, at, action in tx.execute(accepted)}
        if recorded:
            ordered = reported.order_by(records.c.event, records.c.id)
            found |= {(arm, at): action for arm, at, action in tx.execute(ordered)}
    return found


def decided_between(
    tx: Connection, words: Words, blocks: Mapping[int, int], first: int, step: int
) -> dict[int, list[tuple[int, bool]]]:
    """The states in which accepted plans took arms to be, and whether they were served, the last step first.

    Args:
        tx: a transaction.
        words: of the model.
        blocks: of the arms, by their numbers.
        first: the first step considered.
        step: the step after the last.

    Returns:
        By the numbers of the arms, for as many steps before the last as there is something of without a gap.
    """
    content = _decisions(tx, words, blocks, first, step)
    found: dict[int, list[tuple[int, bool]]] = {arm: [] for arm in blocks}
    for arm, steps in found.items():
        for at in range(step - 1, first - 1, -1):
            if (arm, at) not in content:
                break
            steps.append(content[arm, at])
    return found


def last_served(tx: Connection, words: Words, blocks: Mapping[int, int], first: int, step: int) -> dict[int, int]:
    """The last step at which each arm was served, by the numbers of the arms; those who were not are left out.

    Args:
        tx: a transaction.
        words: of the model.
        blocks: of the arms, by their numbers.
        first: the first step considered.
        step: the step after the last.
    """
    found: dict[int, int] = {}
    for (arm, at), (_, is_served) in _decisions(tx, words, blocks, first, step).items():
        if is_served:
            found[arm] = max(at, found.get(arm, at))
    return found


def _decisions(
    tx: Connection, words: Words, blocks: Mapping[int, int], first: int, step: int
) -> dict[tuple[int, int], tuple[int, bool]]:
    """The state that an accepted plan took an arm to be in, and whether it was served, by (arm, step)."""
    done = done_between(tx, list(blocks), first, step)
    plans, table, served = schema.plans, schema.decisions, words.model.tables.served
    span = (plans.c.status == schema.ACCEPTED) & (plans.c.step >= first) & (plans.c.step < step)
    query = select(table.c.arm, plans.c.step, table.c.state).join(plans, plans.c.id == table.c.plan).where(span)
    found: dict[tuple[int, int], tuple[int, bool]] = {}
    numbers = list(blocks)
    for start in range(0, len(numbers), MOST_ASKED):
        part = query.where(table.c.arm.in_(numbers[start : start + MOST_ASKED]))
        for arm, at, name in tx.execute(part):
            state, action = words.state(blocks[arm], name), words.action(blocks[arm], done[arm, at])
            # A name of a former model says nothing by this one.
            if isinstance(state, int) and isinstance(action, int):
                found[arm, at] = state, bool(served[blocks[arm], state, action])
    return found
