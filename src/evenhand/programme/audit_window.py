"""Audit window: what is stored of the arms over some steps, as known at an event; waiting times; accounts.

Of several reports on an arm and step the last counts. Arms that were not observed at the first step are read from the
step of their last observation, from which their state distributions are propagated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri
from sqlalchemy import Connection, func, select

from evenhand.checks import check_positive_int
from evenhand.errors import InvalidInputError
from evenhand.model import CoupledMDP
from evenhand.planning import Plan
from evenhand.programme import expectations, schema
from evenhand.programme.belief import ALIKE
from evenhand.programme.expectations import SUMS, UNKNOWN, Account, Continuation, Trajectories
from evenhand.programme.ledger import last_event
from evenhand.programme.named_model import Words
from evenhand.programme.roster import RosterArm, arms_as_of, check_step
from evenhand.programme.settings import changes_between, values_between
from evenhand.programme.vocabulary import Vocabulary
from evenhand.typing import Bools, Floats, Ints

Models = Mapping[str, tuple[CoupledMDP, Words]]
"""Models and their names, by digest."""


@dataclass(frozen=True, eq=False)
class Span:
    """Records of a window. Arrays begin at step `since`, which is at most `first`."""

    first: int
    last: int
    """Last step, inclusive."""
    event: int
    """Last event that is taken into account."""
    since: int
    """Step of the first column."""
    arms: tuple[RosterArm, ...]
    """Arms that take part in the window."""
    digests: tuple[str, ...]
    """(step,) digest of the plan's model; empty without an accepted plan."""
    policies: tuple[tuple[str, tuple[float, ...], int | None], ...]
    """(step of the window,) digest of the plan's policy, (resource,) its budget, and its part of a mixture, from 1."""
    plans: tuple[tuple[str, str, tuple[float, ...], int, int | None], ...]
    """(step,) digests of the plan's model and policy, its budget, the event of its acceptance, and its part."""
    texts: Mapping[str, np.ndarray[Any, Any]]
    """`state`, `planned`, `accepted`, `done`: (arm, step) names, None if missing."""
    reward: Floats
    """(arm, step) recorded reward; nan if missing."""
    late: Bools
    """(arm, step) whether it was first observed after the plan was accepted."""
    corrected: Bools
    """(arm, step) whether an earlier report said otherwise."""
    overrides: tuple[tuple[int, Any], ...]
    """Stored decisions that were overridden, each with the index of its arm."""
    changes: tuple[str, ...]
    """Lasting changes that came into force in the window, in sentences."""
    moves: tuple[tuple[int, Mapping[int, tuple[str, str]]], ...]
    """Steps at which arms were transferred, each with types and groups before it, by their numbers."""
    budgets: Mapping[int, dict[str, float]]
    """Usual budgets that came into force after the first step, by their first steps."""
    new_from: int
    """First step of which something was read that was not known before."""
    content: object
    """The same for windows that differ in their event alone."""

    @cached_property
    def _translated(self) -> dict[Words, dict[str, Ints]]:
        """Tables of indices by the names of a model."""
        return {}

    def arm_at(self, place: int, step: int) -> RosterArm:
        """Return an arm with its type and group at a step."""
        arm = self.arms[place]
        kinds = (kinds[arm.id] for until, kinds in self.moves if step < until and arm.id in kinds)
        kind, group = next(kinds, (arm.type, arm.group))
        return arm if (kind, group) == (arm.type, arm.group) else replace(arm, type=kind, group=group)

    @cached_property
    def groups_then(self) -> tuple[list[str], Ints]:
        """Names of the groups of the window, also of those without arms at its end; (arm, step) the place of each."""
        before = {group for _, kinds in self.moves for _, group in kinds.values()}
        names = sorted({arm.group for arm in self.arms} | before)
        of = {name: place for place, name in enumerate(names)}
        now = np.array([[of[arm.group]] for arm in self.arms], dtype=np.int64)
        then: Ints = np.broadcast_to(now, (len(now), self.horizon))
        then = then.copy() if self.moves else then
        for until, kinds in reversed(self.moves):
            for place, arm in enumerate(self.arms):
                if arm.id in kinds:
                    then[place, : max(until - self.first, 0)] = of[kinds[arm.id][1]]
        return names, then

    @property
    def horizon(self) -> int:
        """Number of steps of the window."""
        return self.last + 1 - self.first

    @cached_property
    def columns(self) -> slice:
        """Columns of the window."""
        return slice(self.first - self.since, self.last + 1 - self.since)

    @cached_property
    def lives(self) -> tuple[Ints, Ints]:
        """(arm,) first step of each arm, and the step after its last."""
        left = [self.last + 1 if arm.left_step is None else arm.left_step for arm in self.arms]
        return np.array([arm.joined_step for arm in self.arms]), np.array(left)

    @cached_property
    def present(self) -> Bools:
        """(arm, step of the window) whether it takes part."""
        steps, (joined, left) = np.arange(self.first, self.last + 1), self.lives
        return np.asarray((joined[:, None] <= steps) & (steps < left[:, None]))

    def runs(self) -> list[tuple[int, int, str]]:
        """Return first step, last step and digest of each run of steps under one model."""
        own = self.digests[self.columns]
        starts = [place for place in range(len(own)) if place == 0 or own[place] != own[place - 1]]
        ends = [*(start - 1 for start in starts[1:]), len(own) - 1]
        return [(self.first + a, self.first + b, own[a]) for a, b in zip(starts, ends, strict=True)]

    def trajectories(self, words: Words, first: int, last: int) -> Trajectories:
        """Return the arms over some steps as indices of a model.

        Args:
            words: names of the model.
            first: first step.
            last: last step.
        """
        if words not in self._translated:
            self._translated[words] = self._numbers(words, words.blocks_of(self.arms))
        block, numbers = words.blocks_of(self.arms), self._translated[words]
        joined, left = self.lives
        begin = np.clip(joined, first, last + 1) - first
        end = np.maximum(np.clip(left, first, last + 1) - first, begin)
        start, was_seen = self._start(words.model, block, numbers, joined, first)
        own = slice(first - self.since, last + 1 - self.since)
        return Trajectories(
            block, begin, end, **{name: table[:, own] for name, table in numbers.items()},
            reward=self.reward[:, own], start=start, was_seen=was_seen,
            until=np.full(len(self.arms), self.last + 1 - first),
        )  # fmt: skip

    def _numbers(self, words: Words, block: Ints) -> dict[str, Ints]:
        """Translate names to indices; without a record the accepted action is assumed to be done."""
        blocks = range(len(words.model.tables))
        states = [{name: i for i, name in enumerate(words.states[b])} for b in blocks]
        actions = [{name: i for i, name in enumerate(words.actions[b])} for b in blocks]
        found = {}
        for name, table in self.texts.items():
            known = states if name == "state" else actions
            texts = table.reshape(-1).tolist()
            codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
            numbers = np.array([codes[text] for text in texts], dtype=np.int64).reshape(table.shape)
            meaning = np.array([[own.get(text, UNKNOWN) for text in codes] for own in known], dtype=np.int64)
            found[name] = meaning[block[:, None], numbers]
        idle = words.model.tables.idle[block, 0][:, None]
        found["planned"] = np.where(found["planned"] == UNKNOWN, idle, found["planned"])
        for name, otherwise in (("accepted", "planned"), ("done", "accepted")):
            found[name] = np.where(found[name] == UNKNOWN, found[otherwise], found[name])
        return found

    def _start(
        self, model: CoupledMDP, block: Ints, numbers: Mapping[str, Ints], joined: Ints, first: int
    ) -> tuple[Floats, Bools]:
        """Return (arm, state) distributions at a step, and whether each arm was observed before."""
        tables = model.tables
        now, seen = tables.initial[block].copy(), np.zeros(len(block), dtype=np.bool_)
        for column in range(first - self.since):
            # Arms count from where they were first seen, which may be before they joined: in the history.
            there = np.flatnonzero((joined <= self.since + column) | seen | (numbers["state"][:, column] != UNKNOWN))
            state = numbers["state"][there, column]
            known = state != UNKNOWN
            now[there[known]] = np.arange(now.shape[1]) == state[known, None]
            seen[there[known]] = True
            done = numbers["done"][there, column]
            now[there] = np.einsum("ns,nsz->nz", now[there], tables.transitions[block[there], :, done])
        return now, seen


def read_span(
    tx: Connection, first: int | None, last: int | None, event: int | None, known: Span | None = None
) -> Span:
    """Read a window of steps, as known at an event.

    Args:
        tx: transaction.
        first: first step; by default the first accepted one.
        last: last step; by default the last accepted one.
        event: last event that is taken into account; by default all are.
        known: a window that was read before, since when only `library.ROUTINE` events were written.

    Raises:
        InvalidInputError: no such steps were accepted.
    """
    newest = last_event(tx)
    if event is not None and (isinstance(event, bool) or not isinstance(event, int) or not 1 <= event <= newest):
        raise InvalidInputError(f"event: expected a number from 1 to {newest}, the last event, got {event!r}")
    as_of = newest if event is None else event
    plans = schema.plans
    accepted = select(func.min(plans.c.step), func.max(plans.c.step)).where(
        *schema.valid(plans, as_of, "accepted_event")
    )
    begun, ended = tx.execute(accepted).one()
    if begun is None:
        raise InvalidInputError("audit: no plan was accepted yet")
    first = begun if first is None else check_step(first)
    last = ended if last is None else check_step(last)
    if not begun <= first <= last <= ended:
        raise InvalidInputError(
            f"audit: steps {first} to {last} are not a window of accepted ones, which are steps {begun} to {ended}"
        )
    arms = [
        arm
        for arm in arms_as_of(tx, as_of, step=last)
        if arm.joined_step <= last and (arm.left_step is None or arm.left_step > max(first, arm.joined_step))
    ]
    if not arms:
        raise InvalidInputError(f"no arm takes part from step {first} to step {last}")
    table = schema.observations
    seen = select(table.c.arm, func.max(table.c.step)).where(table.c.step <= first, *schema.valid(table, as_of))
    found = {row[0]: row[1] for row in tx.execute(seen.group_by(table.c.arm))}
    since = min((found.get(arm.id, arm.joined_step) for arm in arms if arm.joined_step <= first), default=first)
    return _read(tx, arms, since, first, last, as_of, known)


def _read(
    tx: Connection, arms: list[RosterArm], since: int, first: int, last: int, event: int, known: Span | None
) -> Span:
    """Read what is stored of some arms; of a window that is known in part, what was written since."""
    place, width = {arm.id: number for number, arm in enumerate(arms)}, last + 1 - since
    places = np.full(1 + int(tx.execute(select(func.max(schema.arms.c.id))).scalar_one()), -1)
    places[list(place)] = np.arange(len(arms))
    if known is not None and ((known.first, known.since, known.arms) != (first, since, tuple(arms))
                              or known.last > last or known.event > event):  # fmt: skip
        known = None
    after, added = (0, width) if known is None else (known.event, last - known.last)

    def table(name: str, empty: Any, dtype: Any = object) -> Any:
        """(arm, step) what is known, with new steps."""
        new = np.full((len(arms), added), empty, dtype=dtype)
        if known is None:
            return new
        old = known.texts[name] if name in known.texts else getattr(known, name)
        return np.concatenate([old, new], axis=1)

    texts = {name: table(name, None) for name in ("state", "planned", "accepted", "done")}
    reward, late, corrected = (
        table("reward", np.nan, float),
        table("late", False, bool),
        table("corrected", False, bool),
    )
    cells = {name: one.reshape(-1) for name, one in texts.items()}  # views
    new_from = last + 1 - added

    def rows(query: Any, *columns: Any) -> tuple[Ints, list[Any]]:
        """Cells of the arms of the window, and values of columns; the query begins with arm and step."""
        nonlocal new_from
        found = tx.execute(query).cursor
        raw = list(zip(*(found.fetchall() if found else ()), strict=True))
        arm, step, *values = raw or [()] * (2 + len(columns))
        row, at = places[np.array(arm, dtype=np.int64)], np.array(step, dtype=np.int64)
        own, new_from = row >= 0, min([new_from, *set(step)])
        return (row * width + at - since)[own], [
            np.array(v, dtype=k)[own] for v, k in zip(values, columns, strict=True)
        ]

    plans, table_ = schema.plans, schema.decisions
    closed = [plans.c.accepted_event > after, *schema.valid(plans, event, "accepted_event")]
    closed += [plans.c.step >= since, plans.c.step <= last]
    of_step = [*(() if known is None else known.plans), *[("", "", (), event + 1, None)] * added]
    of_plan = ("step", "model", "policy", "budget_json", "accepted_event", "summary_json")
    for step, model, policy, budget, accepted, summary in tx.execute(
        select(*(plans.c[n] for n in of_plan)).where(*closed)
    ):
        part = json.loads(summary)["part"]
        of_step[step - since] = model, policy, tuple(json.loads(budget)), accepted, part and part["number"]
    joined = select(table_.c.arm, plans.c.step, table_.c.planned, table_.c.accepted)
    joined = joined.join(plans, plans.c.id == table_.c.plan).where(*closed)
    at, values = rows(joined, object, object)
    if len(at):
        cells["planned"][at], cells["accepted"][at] = values
    changed = select(plans.c.step, table_).join(plans, plans.c.id == table_.c.plan).where(*closed)
    changed = changed.where(table_.c.accepted != table_.c.planned, plans.c.step >= first)
    overrides = [] if known is None else list(known.overrides)
    for row in tx.execute(changed.order_by(plans.c.step, table_.c.place)):
        if row.arm in place:
            overrides.append((place[row.arm], row))

    def reports(table: Any, *columns: Any) -> Any:
        """Select the valid reports of the window that are not read yet."""
        new = (table.c.event > after) | (table.c.step > last - added)
        written = (
            *schema.valid(table, event),
            table.c.step >= since,
            table.c.step <= last,
            *([] if known is None else [new]),
        )
        return select(table.c.arm, table.c.step, *columns).where(*written).order_by(table.c.event, table.c.id)

    table_ = schema.observations
    at, values = rows(reports(table_, table_.c.state, table_.c.event), object, np.int64)
    if len(at):
        order = np.argsort(at, kind="stable")
        at, state, reported = at[order], *(value[order] for value in values)
        again = np.concatenate([[False], at[1:] == at[:-1]])
        before = np.where(again, np.concatenate([[None], state[:-1]]), cells["state"][at])
        is_new = ~given(before)
        accepted_at = np.array([plan[3] for plan in of_step])
        late.reshape(-1)[at[is_new & (reported > accepted_at[at % width])]] = True
        corrected.reshape(-1)[at[~is_new & (before != state)]] = True
        final = np.concatenate([~again[1:], [True]])
        cells["state"][at[final]] = state[final]
    table_ = schema.records
    at, values = rows(reports(table_, table_.c.action, table_.c.reward), object, float)
    if len(at):
        order = np.argsort(at, kind="stable")
        final = order[np.concatenate([at[order][1:] != at[order][:-1], [True]])]
        cells["done"][at[final]], reward.reshape(-1)[at[final]] = values[0][final], values[1][final]
    digests = tuple(one[0] for one in of_step)
    policies = tuple((policy, budget, part) for _, policy, budget, _, part in of_step[first - since :])
    return Span(first, last, event, since, tuple(arms), digests, policies, tuple(of_step), texts, reward, late,
                corrected, tuple(overrides), tuple(changes_between(tx, first, last, event)),
                _moves(tx, first, last, event), dict(values_between(tx, "budget", first + 1, last, event)), new_from,
                object() if known is None or new_from <= last else known.content)  # fmt: skip


def _moves(tx: Connection, first: int, last: int, event: int) -> tuple[tuple[int, Mapping[int, tuple[str, str]]], ...]:
    """Steps of transfers within a window, each with types and groups before it."""
    table = schema.transfers
    within = [table.c.from_step > first, table.c.from_step <= last, *schema.valid(table, event)]
    rows = tx.execute(select(table.c.from_step, table.c.arm).where(*within).order_by(table.c.from_step)).all()
    moved, found = {row.arm for row in rows}, []
    for step in dict.fromkeys(row.from_step for row in rows):
        before = arms_as_of(tx, event, step=step - 1)
        found.append((step, {arm.id: (arm.type, arm.group) for arm in before if arm.id in moved}))
    return tuple(found)


def given(texts: Any) -> Bools:
    """(arm, step) whether there is a text."""
    nothing: Any = None
    return np.asarray(np.not_equal(texts, nothing), dtype=bool)


def count_waits(present: Bools, served: Bools, need: Bools) -> dict[str, Ints]:
    """Count waits and delays, (arm,) each.

        served         number of services
        longest_wait   longest wait
        waiting        steps since the last service, at the end of its time in the window
        needs          needs that ended by service or last at the end
        delay          sum of their delays
        longest_delay  longest of them
        in_need        steps in need without service, at the end

    Args:
        present: (arm, step) whether it takes part.
        served: (arm, step) whether it is served.
        need: (arm, step) whether it is in need.
    """
    waiting, longest, spell, total, ended, longest_delay = np.zeros((6, len(present)), dtype=np.int64)
    for there, got, needy in zip(present.T, (served & present).T, (need & present).T, strict=True):
        longest = np.where(there, np.maximum(longest, waiting), longest)
        # `spell` counts steps in need, this one included: service at once ends a spell of 1, without delay.
        spell = np.where(there, np.where(needy, spell + 1, 0), spell)
        met = got & (spell > 0)
        total, ended = total + np.where(met, spell - 1, 0), ended + met
        longest_delay = np.where(met, np.maximum(longest_delay, spell - 1), longest_delay)
        waiting, spell = np.where(there, np.where(got, 0, waiting + 1), waiting), np.where(got, 0, spell)
    return {
        "served": (served & present).sum(axis=1),
        "longest_wait": np.maximum(longest, waiting),
        "waiting": waiting,
        "needs": ended + (spell > 0),
        "delay": total + spell,
        "longest_delay": np.maximum(longest_delay, spell),
        "in_need": spell,
    }


# Accounts

LEVEL = 0.95
"""Probability of intervals; the error probability of warnings is at most the rest."""


@dataclass(frozen=True)
class Earned:
    """Promised and realised rewards, as means per step."""

    realised: float
    """Recorded rewards, else the model's of observed states and actions done."""
    promised: float
    """Promise of the plans."""
    lower: float
    """Lower end of the prediction interval."""
    upper: float
    """Upper end of the prediction interval."""
    overrides: float
    """Difference due to overrides."""
    undone: float
    """Difference due to decisions not carried out."""
    moves: float
    """Difference due to transitions better or worse than the model's."""
    rewards: float
    """Difference due to recorded rewards other than the model's."""


class Books:
    """Accounts of a window, also of parts of it."""

    def __init__(
        self,
        span: Span,
        models: Models,
        plans: Mapping[str, Plan],
        welfare: str | None,
        need: tuple[Mapping[int, Sequence[str]], str],
        words: Vocabulary,
        waits: Ints,
        promises: tuple[Mapping[int, Words], Ints],
        level: float = LEVEL,
        parts: dict[tuple[int, int], "WindowPart"] | None = None,
    ) -> None:
        """Look up the names of the window; accounts are computed on request.

        Args:
            span: records of the window.
            models: models by digest.
            plans: policies of the window by digest.
            welfare: welfare of the programme.
            need: states of need from some steps on, none for those of the relaxation, and their origin.
            words: words of the programme.
            waits: (wait, arm) waiting times at the first step by which plans decide: of promises, and since service.
            promises: names of the model, with the promises in force from some steps on; and (arm,) waits at the first
                step by the first of them.
            level: probability of intervals.
            parts: parts of the window that are known, by first and last step; others are added.
        """
        self.span, self.models, self.plans, self.welfare, self.level = span, models, plans, welfare, level
        self.need, self.words, self.waits, self.event = need, words, waits, span.event
        self.promises = promises
        self.parts = {} if parts is None else parts
        self.state_names = sorted({name for _, names in models.values() for own in names.states for name in own})
        self.continuation = lru_cache(maxsize=None)(self._continuation)
        self.groups = sorted({arm.group for arm in span.arms})
        self.types = sorted({arm.type for arm in span.arms})
        self.group = np.array([self.groups.index(arm.group) for arm in span.arms], dtype=np.int64)
        self.type = np.array([self.types.index(arm.type) for arm in span.arms], dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Books) and (other.span.content, other.level) == (self.span.content, self.level)

    def __hash__(self) -> int:
        return hash((self.span.content, self.level))

    def _continuation(self, digest: str) -> Continuation:
        """Return the continuation under a model, by the relaxation of the arms present at first, kind by kind.

        The average roster would not do: arms may leave or join because of how they fared.
        """
        model, words = self.models[digest]
        there = np.zeros((len(model.tables), self.span.horizon), dtype=np.int64)
        np.add.at(there, words.blocks_of(self.span.arms), self.span.present)
        counts = there[np.arange(len(there)), (there > 0).argmax(axis=1)]
        return expectations.continue_by(model, counts, self.welfare)

    def between(self, first: int, last: int) -> Account:
        """Return the accounts of some steps, each until the model changes, which ends a promise.

        Besides those of `decompose`, (arm, step): `mode`, the most likely state, `state`, its place in `state_names`,
        `served`, `planned`, whether the plan serves it, and `need`.
        """
        parts = [
            self._run(max(first, begin), min(last, end), digest)
            for begin, end, digest in self.span.runs()
            if begin <= last and end >= first
        ]
        found = {name: np.sum([part[name] for part in parts], axis=0) for name in (*SUMS, "evidence", "impossible")}
        by_step = ("served", "planned", "need", "mode", "state")
        return found | {name: np.concatenate([part[name] for part in parts], axis=1) for name in by_step}

    def _run(self, first: int, last: int, digest: str) -> Account:
        continuation = self.continuation(digest)
        words = self.models[digest][1]
        arms = self.span.trajectories(words, first, last)
        strengths = expectations.choose_strengths(continuation, arms, self.group, len(self.groups), 1 - self.level)
        found = expectations.decompose(continuation, arms, strengths)
        likely = found["probabilities"]
        mode = (likely >= likely.max(axis=2, keepdims=True) - ALIKE).argmax(axis=2)
        block, names = arms.block[:, None], {name: place for place, name in enumerate(self.state_names)}
        places = np.zeros(continuation.needs.shape, dtype=np.int64)
        for number, own in enumerate(words.states):
            places[number, : len(own)] = [names[name] for name in own]
        served = continuation.model.tables.served
        needs = np.array([words.mask(names) if names else continuation.needs for names in self.need[0].values()])
        times = np.searchsorted(list(self.need[0]), np.arange(first, last + 1), side="right") - 1
        return found | {
            "mode": mode,
            "state": places[block, mode],
            "served": served[block, mode, arms.done],
            "planned": served[block, mode, arms.planned],
            "need": needs[times, block, mode],
        }

    def earned(self, sums: Account, arms: Bools | Ints) -> Earned:
        """Return the means of some arms over their steps.

        Args:
            sums: accounts.
            arms: (arm,) mask, or indices.
        """
        means = self.means({name: sums[name][arms].sum() for name in SUMS})
        return Earned(**{name: float(value) for name, value in means.items()})

    def means(self, total: Account) -> dict[str, Floats]:
        """Return the fields of `Earned` from sums over steps, each of one arm or of several."""
        steps = np.maximum(total["steps"], 1.0)
        reach = ndtri(0.5 + self.level / 2) * np.sqrt(total["variance"] + total["reward_variance"]) / steps
        promised = (total["expected"] + total["plans"]) / steps
        parts = {name: total[name] / steps for name in ("overrides", "undone", "moves", "rewards")}
        ends = {"lower": promised - reach, "upper": promised + reach}
        return {"realised": total["realised"] / steps, "promised": promised, **ends, **parts}


@dataclass(frozen=True)
class WindowPart:
    """Promised and realised rewards of groups in a part of a window."""

    first: int
    last: int
    """Last step, inclusive."""
    groups: dict[str, Earned]
    """Groups that took part."""


def fairness_over_time(books: Books, parts: int = 12) -> tuple[WindowPart, ...]:
    """Return promised and realised rewards of groups by parts of a window.

    Args:
        books: accounts of the window, from `Programme.books`.
        parts: maximum number of parts, of equal length but for the last.
    """
    first, last = books.span.first, books.span.last
    size = -(-(last - first + 1) // check_positive_int(parts, "parts"))
    found = []
    for begin in range(first, last + 1, size):
        end = min(begin + size - 1, last)
        if (begin, end) not in books.parts:
            sums = books.between(begin, end)
            own = {name: books.group == number for number, name in enumerate(books.groups)}
            earned = {name: books.earned(sums, arms) for name, arms in own.items() if sums["steps"][arms].any()}
            books.parts[begin, end] = WindowPart(begin, end, earned)
        found.append(books.parts[begin, end])
    return tuple(found)
