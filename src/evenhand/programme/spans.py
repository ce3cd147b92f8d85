"""A span of steps as it is stored: where arms were seen, what was planned, accepted and done, step by step.

Rows with later events than the one asked for are left out, so that an audit can be read as it would have been then. Of
several reports on an arm and step the last counts. Arms that were not seen at the first step are looked for further
back, to the step at which each of them was last seen: their laws are pushed forward from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from evenhand.errors import InvalidInput
from evenhand.model.coupled import CoupledMDP
from evenhand.programme import schema
from evenhand.programme.modelling import Words
from evenhand.programme.promises import UNKNOWN, Courses
from evenhand.programme.roster import Arm, arms_as_of, check_step
from evenhand.typing import Bools, Floats, Ints

Models = Callable[[str], tuple[CoupledMDP, Words]]
"""A model by its digest, with its names."""


@dataclass(frozen=True)
class Override:
    """A decision other than the plan's."""

    step: int
    """When."""

    arm: str
    """Which arm."""

    type: str
    """Its type."""

    group: str
    """Its group."""

    planned: str
    """What the plan said."""

    accepted: str
    """What was decided."""

    who: str
    """Who decided so."""

    why: str
    """Why."""

    place: int
    """The number of the arm among those of the span."""


@dataclass(frozen=True, eq=False)
class Span:
    """What is known of a span. Arrays begin at step `since`, which is `first` or before."""

    first: int
    """The first step."""

    last: int
    """The last one; it belongs to the span."""

    event: int
    """What was known then; nothing of later events."""

    since: int
    """The step of the first column."""

    arms: tuple[Arm, ...]
    """Those who take part in the span."""

    digests: tuple[str, ...]
    """(step,) the model of each step's plan; nothing where no plan was accepted."""

    texts: Mapping[str, np.ndarray[Any, Any]]
    """`state`, `planned`, `accepted`, `done`: (arm, step) names, None where nothing is known."""

    reward: Floats
    """(arm, step) what was recorded; nan where nothing was."""

    late: Bools
    """(arm, step) seen, but told only after the step's plan was accepted."""

    corrected: Bools
    """(arm, step) told otherwise at first."""

    overrides: tuple[Override, ...]
    """Those of the span."""

    @property
    def num_steps(self) -> int:
        """Of the span itself."""
        return self.last + 1 - self.first

    @cached_property
    def columns(self) -> slice:
        """The columns of the span itself."""
        return slice(self.first - self.since, self.last + 1 - self.since)

    @cached_property
    def present(self) -> Bools:
        """(arm, step of the span) who takes part."""
        steps = np.arange(self.first, self.last + 1)
        joined = np.array([arm.joined_step for arm in self.arms])[:, None]
        never = self.last + 1
        left = np.array([never if arm.left_step is None else arm.left_step for arm in self.arms])[:, None]
        return np.asarray((joined <= steps) & (steps < left))

    def runs(self) -> list[tuple[int, int, str]]:
        """The steps of the span under one model each: first, last, and its digest."""
        found: list[tuple[int, int, str]] = []
        for step in range(self.first, self.last + 1):
            digest = self.digests[step - self.since]
            if found and found[-1][2] == digest:
                found[-1] = (found[-1][0], step, digest)
            else:
                found.append((step, step, digest))
        return found

    def courses(self, words: Words, first: int, last: int) -> Courses:
        """What is known of the arms over some of the steps, in the numbers of a model.

        Args:
            words: of the model.
            first: the first step.
            last: the last one.
        """
        block = np.array([words.blocks[arm.type, arm.group] for arm in self.arms], dtype=np.int64)
        numbers = self._numbers(words, block)
        joined = np.array([arm.joined_step for arm in self.arms])
        left = np.array([last + 1 if arm.left_step is None else arm.left_step for arm in self.arms])
        begin = np.clip(joined, first, last + 1) - first
        end = np.maximum(np.clip(left, first, last + 1) - first, begin)
        start, was_seen = self._start(words.model, block, numbers, joined, first)
        own = slice(first - self.since, last + 1 - self.since)
        cut = {name: table[:, own] for name, table in numbers.items()}
        until = np.full(len(self.arms), self.last + 1 - first)
        rewards = self.reward[:, own]
        return Courses(block, begin, end, **cut, reward=rewards, start=start, was_seen=was_seen, until=until)

    def _numbers(self, words: Words, block: Ints) -> dict[str, Ints]:
        """(arm, step) numbers in place of names; what was done is what was accepted, where nobody said otherwise."""
        states = [{name: i for i, name in enumerate(words.states(b))} for b in range(len(words.model.tables))]
        actions = [{name: i for i, name in enumerate(words.actions(b))} for b in range(len(words.model.tables))]
        found = {
            name: np.array(
                [
                    [(states if name == "state" else actions)[b].get(text, UNKNOWN) for text in row]
                    for b, row in zip(block.tolist(), table.tolist(), strict=True)
                ],
                dtype=np.int64,
            ).reshape(table.shape)
            for name, table in self.texts.items()
        }
        idle = words.model.tables.idle[block, 0][:, None]
        found["planned"] = np.where(found["planned"] == UNKNOWN, idle, found["planned"])
        for name, otherwise in (("accepted", "planned"), ("done", "accepted")):
            found[name] = np.where(found[name] == UNKNOWN, found[otherwise], found[name])
        return found

    def _start(
        self, model: CoupledMDP, block: Ints, numbers: Mapping[str, Ints], joined: Ints, first: int
    ) -> tuple[Floats, Bools]:
        """(arm, state) laws at the first step, from where each arm was last seen; and whether it was seen at all."""
        tables = model.tables
        law, seen = tables.initial[block].copy(), np.zeros(len(block), dtype=np.bool_)
        for column in range(first - self.since):
            there = np.flatnonzero(joined <= self.since + column)
            state = numbers["state"][there, column]
            told = state != UNKNOWN
            law[there[told]] = np.arange(law.shape[1]) == state[told, None]
            seen[there[told]] = True
            done = numbers["done"][there, column]
            law[there] = np.einsum("ns,nsz->nz", law[there], tables.transitions[block[there], :, done])
        return law, seen


def read_span(tx: Connection, first: int | None, last: int | None, event: int | None) -> Span:
    """A span of steps, as it was known at an event.

    Args:
        tx: a transaction.
        first: the first step; that of the programme when absent.
        last: the last one; the last that was accepted when absent.
        event: what was known then; now when absent.

    Raises:
        InvalidInput: there is no such span.
    """
    known = int(tx.execute(select(schema.programme.c.last_event)).scalar_one())
    as_of = known if event is None else _check_event(event, known)
    first, last = _check_span(tx, first, last, as_of)
    arms = [arm for arm in arms_as_of(tx, as_of) if _takes_part(arm, first, last)]
    if not arms:
        raise InvalidInput(f"nobody takes part from step {first} to step {last}")
    since = _look_back(tx, arms, first, as_of)
    reading = _Reading(tx, arms, since, last, as_of)
    reading.plans()
    reading.observations()
    reading.records()
    return reading.span(first)


def _check_event(event: object, known: int) -> int:
    if isinstance(event, bool) or not isinstance(event, int) or not 1 <= event <= known:
        raise InvalidInput(f"event: expected a number from 1 to {known}, the last event, got {event!r}")
    return event


def _check_span(tx: Connection, first: int | None, last: int | None, as_of: int) -> tuple[int, int]:
    plans = schema.plans
    accepted = select(func.min(plans.c.step), func.max(plans.c.step)).where(plans.c.accepted_event <= as_of)
    begun, ended = tx.execute(accepted).one()
    if begun is None:
        raise InvalidInput("no plan was accepted yet: there is nothing to audit")
    first = begun if first is None else check_step(first)
    last = ended if last is None else check_step(last)
    if last > ended:
        raise InvalidInput(f"step {last} was not accepted yet; the last step that was is {ended}")
    if first < begun:
        raise InvalidInput(f"no plan was accepted at step {first}; the first is of step {begun}")
    if first > last:
        raise InvalidInput(f"the first step, {first}, comes after the last, {last}")
    return first, last


def _takes_part(arm: Arm, first: int, last: int) -> bool:
    return arm.joined_step <= last and (arm.left_step is None or arm.left_step > max(first, arm.joined_step))


def _look_back(tx: Connection, arms: list[Arm], first: int, as_of: int) -> int:
    """The step from which on something must be known: where the arms that take part at the first were last seen."""
    table = schema.observations
    seen = select(table.c.arm, func.max(table.c.step)).where(table.c.step <= first, table.c.event <= as_of)
    found = {row[0]: row[1] for row in tx.execute(seen.group_by(table.c.arm))}
    there = [arm for arm in arms if arm.joined_step <= first]
    return min((found.get(arm.id, arm.joined_step) for arm in there), default=first)


class _Reading:
    """Tables of a span while they are filled."""

    def __init__(self, tx: Connection, arms: list[Arm], since: int, last: int, event: int) -> None:
        self.tx, self.arms, self.since, self.last, self.event = tx, tuple(arms), since, last, event
        self.place = {arm.id: number for number, arm in enumerate(arms)}
        shape = (len(arms), last + 1 - since)
        self.texts = {name: np.full(shape, None, dtype=object) for name in ("state", "planned", "accepted", "done")}
        self.reward = np.full(shape, np.nan)
        self.late, self.corrected = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
        self.digests = [""] * shape[1]
        self.accepted_at = [event + 1] * shape[1]
        self.overrides: list[Override] = []

    def plans(self) -> None:
        """What was planned and accepted."""
        plans, table = schema.plans, schema.decisions
        mine = (plans.c.step >= self.since, plans.c.step <= self.last, plans.c.accepted_event <= self.event)
        steps = {}
        for plan in self.tx.execute(
            select(plans.c.id, plans.c.step, plans.c.model, plans.c.accepted_event).where(*mine)
        ):
            steps[plan.id] = plan.step
            self.digests[plan.step - self.since] = plan.model
            self.accepted_at[plan.step - self.since] = plan.accepted_event
        wanted = select(table.c.plan, table.c.arm, table.c.planned, table.c.accepted, table.c.who, table.c.why)
        joined = wanted.join(plans, plans.c.id == table.c.plan).where(*mine).order_by(plans.c.step, table.c.place)
        for plan, arm, planned, accepted, who, why in self.tx.execute(joined):
            if arm not in self.place:
                continue
            cell = self.place[arm], steps[plan] - self.since
            self.texts["planned"][cell], self.texts["accepted"][cell] = planned, accepted
            if accepted is not None and accepted != planned:
                self._note_override(arm, steps[plan], planned, accepted, who, why)

    def _note_override(
        self, arm: int, step: int, planned: str, accepted: str, who: str | None, why: str | None
    ) -> None:
        place = self.place[arm]
        one = self.arms[place]
        told = (planned, accepted, who or "", why or "")
        self.overrides.append(Override(step, one.name, one.type, one.group, *told, place))

    def observations(self) -> None:
        """Where arms were seen; the last word counts."""
        table = schema.observations
        asked = select(table.c.arm, table.c.step, table.c.state, table.c.event).where(
            table.c.step >= self.since, table.c.step <= self.last, table.c.event <= self.event
        )
        states = self.texts["state"]
        for arm, step, state, event in self.tx.execute(asked.order_by(table.c.event, table.c.id)):
            if arm not in self.place:
                continue
            cell = self.place[arm], step - self.since
            late = event > self.accepted_at[cell[1]]
            self.late[cell] |= late and states[cell] is None
            self.corrected[cell] |= states[cell] is not None and states[cell] != state
            states[cell] = state

    def records(self) -> None:
        """What was done, and what came of it; the last word counts."""
        table = schema.records
        asked = select(table.c.arm, table.c.step, table.c.action, table.c.reward).where(
            table.c.step >= self.since, table.c.step <= self.last, table.c.event <= self.event
        )
        for arm, step, action, reward in self.tx.execute(asked.order_by(table.c.event, table.c.id)):
            if arm in self.place:
                cell = self.place[arm], step - self.since
                self.texts["done"][cell] = action
                self.reward[cell] = np.nan if reward is None else reward

    def span(self, first: int) -> Span:
        """All of it."""
        return Span(
            first=first,
            last=self.last,
            event=self.event,
            since=self.since,
            arms=self.arms,
            digests=tuple(self.digests),
            texts=self.texts,
            reward=self.reward,
            late=self.late,
            corrected=self.corrected,
            overrides=tuple(one for one in self.overrides if one.step >= first),
        )
