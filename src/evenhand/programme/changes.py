"""Lasting changes of a running programme, each with its effect before it is adopted; and undo.

A change holds from a step on: another budget, welfare or promised wait, a group that closes and whose arms go to
another one, arms that are transferred to another group or type. It is written as settings (`settings`) and transfers
(`roster`); plans of that step and later ones go by them, earlier ones stay as they are. A block of the model that the
new group lacks is added with the tables of the old one (`named_model.with_kinds`).

The effect is the welfare of the best plan found after the change beside that of the plan in use, which competes; and
the mean value of the arms of each group, before and after. Of a change of the budget alone it is that of a what-if
(`counterfactuals`); otherwise both plans are evaluated on the same episodes.

Undo is an event of its own. It deletes nothing: rows of the undone event have the number of the undo, and count no
longer from there on; what was planned before can still be recomputed.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, or_, select

from evenhand.errors import ConflictError, Fault, InvalidInputError, ModelError, NotApplicableError
from evenhand.model import SHOWN_FAULTS, CoupledMDP, quoted, read_welfare
from evenhand.planning import SolveMethod
from evenhand.planning.budget_sweep import CommonEpisodes, figured, step_between
from evenhand.planning.promises import check_promises
from evenhand.planning.solve import solve
from evenhand.programme import ledger, roster, schema
from evenhand.programme.certificates import (
    METHOD,
    Certificate,
    certificate_for,
    certificate_of,
    numbers_of,
    plan_in_use,
)
from evenhand.programme.counterfactuals import PlanInUse, suppose_budgets
from evenhand.programme.cycle import Cycle
from evenhand.programme.library import Library
from evenhand.programme.named_model import Words, of_roster, with_kinds, with_promises
from evenhand.programme.settings import add_setting, closed_at, sentences, setting, values_between
from evenhand.programme.vocabulary import Vocabulary, vocabulary_of
from evenhand.typing import Progress


@dataclass(frozen=True)
class LastingChange(ledger.Result):
    """A change that holds from a step on."""

    from_step: int
    """First step at which it holds."""

    budget: dict[str, float] | None = None
    """Amount per resource and step."""

    welfare: str | None = None
    """Welfare, as text."""

    max_wait: list[dict[str, Any]] | None = None
    """Promised waits that it changes: state, steps, and perhaps type and group."""

    closed: dict[str, str] = field(default_factory=dict)
    """Groups that close, each with the group to which its arms go."""

    transfers: tuple[tuple[str, str, str], ...] = ()
    """Arms that change: name, new type and new group."""

    said: tuple[str, ...] = ()
    """The change in sentences."""

    @property
    def receiving(self) -> list[str]:
        """Groups to which arms go; they are open from then on."""
        return list(dict.fromkeys([*self.closed.values(), *(group for _, _, group in self.transfers)]))


@dataclass(frozen=True)
class GroupEffect:
    """Mean value of the arms of a group, before and after a change."""

    group: str
    """The group in which they are before."""
    arms: int
    before: float | None
    """None without a plan in use."""
    after: float


@dataclass(frozen=True)
class ChangePreview(ledger.Result):
    """Effect of a change that is not adopted."""

    change: LastingChange
    before: Certificate | None
    """Certificate of the plan in use without the change, by the welfare after it; None without a plan."""
    after: Certificate
    """Certificate of the best plan found for the changed programme."""
    difference: float | None
    """Welfare after less that before."""
    stderr: float
    """Its standard error."""
    measurable: bool
    """Whether the difference is larger than its standard error."""
    groups: tuple[GroupEffect, ...]
    by_plan: float = 0.0
    """Part of the difference that a better plan gives without the change; 0 if it is not measurable."""


@dataclass(frozen=True)
class ChangeAdopted(ledger.Result):
    """Result of a lasting change."""

    event: int
    """The number of the event."""
    change: LastingChange


@dataclass(frozen=True)
class Undone(ledger.Result):
    """Result of an undo."""

    event: int
    """The number of the event."""
    undone: int
    """The event that counts no longer."""
    kind: str
    """Kind of that event."""
    rows: int
    """Number of rows that count no longer."""


INSTEAD = {
    "undone": "Send or accept it again",
    "left": "Let the arm join again",
    "adopted": "Adopt the model that was in use before",
    "worded": "Change the words again",
    "planned": "Make the plan again",
}
"""Ways back from events that cannot be undone."""


class LastingChanges:
    """Lasting changes, and undo."""

    def __init__(self, library: Library, cycle: Cycle) -> None:
        """Use the store, models and policies of a programme, and its plans."""
        self._library, self._cycle = library, cycle

    # Lasting changes

    def preview_change(
        self, given: Mapping[str, Any], *, seconds: float | None = None, progress: Progress | bool | None = None
    ) -> ChangePreview:
        """Evaluate a change; nothing is stored.

        Args:
            given: `budget` (amounts in a list or under names), `welfare` (text), `max_wait` (rows with state
                and steps, None for no promise, and perhaps type and group), `close` (groups, each with
                the group to which its arms go), `transfer` (a list of rows with arm, and group or type), and `start`,
                the step or the date from which on it holds; by default the present step.
            seconds: approximate time limit of the search for a plan.
            progress: called with phase and share completed.

        Raises:
            InvalidInputError: with every fault.
        """
        with self._library.store.reading() as tx:
            change, kinds = self._read(tx, given)
            arms, then, today, problem = self._problems(tx, change, kinds)
            policy, digest = self._cycle.policy_in_use(tx)
            own_welfare = self._library.welfare(tx, change.from_step)
        present, _, seed = self._cycle.present_problem()
        before, plan = None, None
        if policy is not None:
            with suppress(NotApplicableError):  # arms of a kind that the plan in use does not know
                before = self._cycle.certificate() if today == present else None
                before = before or certificate_for(policy, digest, numbers_of(arms), today)
                plan = plan_in_use(policy, before, today)
        method = SolveMethod(METHOD, seconds=seconds)
        only_budget = problem.with_budget(today.budget) == today
        if only_budget and read_welfare(today, own_welfare).name == read_welfare(today, None).name:
            beside = (
                None
                if plan is None or before is None
                else PlanInUse(plan, before, seed, own_welfare=True, with_states=False)
            )
            budgets = [problem.budget]
            (found,) = suppose_budgets(today, numbers_of(then), beside, budgets, None, method, progress, seed)
            after = Certificate(**{one.name: getattr(found, one.name) for one in fields(Certificate)})
            step = found.difference
        else:
            if plan is not None and not problem.has_floors:  # the plan in use may miss floors by chance
                with suppress(NotApplicableError):
                    plan.fitted(problem)
                    method = replace(method, plans=[plan])
            sweep = solve(problem, method=method, budgets=[problem.budget], progress=progress, rng=seed)
            after, step = certificate_of(sweep[0].solution, "", numbers_of(then)), None
            if plan is not None and before is not None:
                # Other arms or promises: the plan in use under those of before, on the same episodes.
                welfare = read_welfare(today, None)
                judge = CommonEpisodes.of(today, welfare, seed)
                now = sweep.known[0] if only_budget and sweep.known else judge(figured(plan, today, welfare, seed))
                step = vars(step_between(now, sweep[0].solution, today))
                own = certificate_of(replace(now, upper_bound=before.upper_bound), digest, before.numbers)
                before = replace(own, for_roster=before.for_roster)
        effects = _effects(arms, then, before, after)
        if step is None:
            return ChangePreview(change, None, after, None, after.stderr, False, effects)
        measured = step["welfare"], step["stderr"], bool(step["measurable"])
        return ChangePreview(change, before, after, *measured, effects, step.get("by_plan", 0.0))

    def _problems(
        self, tx: Connection, change: LastingChange, kinds: list[list[str]]
    ) -> tuple[list[roster.RosterArm], list[roster.RosterArm], CoupledMDP, CoupledMDP]:
        """Arms at the first step of a change, before and after it, and their problems, both with the later welfare."""
        step = change.from_step
        arms, (model, words) = roster.taking_part(tx, step), self._library.model(tx, step=step)
        if not arms:
            raise InvalidInputError(f"no arm takes part at {vocabulary_of(tx).the(step)}")
        welfare = change.welfare or self._library.welfare(tx, step)
        changed = with_kinds(model if change.budget is None else model.with_budget(change.budget), kinds)
        changed = with_promises(changed, change.max_wait or [])
        moved = {name: kind for name, *kind in change.transfers}
        later = [moved.get(arm.name, (arm.type, arm.group)) for arm in arms]
        then = [replace(arm, type=kind, group=group) for arm, (kind, group) in zip(arms, later, strict=True)]
        today = of_roster(model, words.blocks_of(arms), welfare)
        return arms, then, today, of_roster(changed, Words(changed).blocks_of(then), welfare)

    def change(
        self, given: Mapping[str, Any], *, why: str = "", who: str = "", key: str | None = None
    ) -> ChangeAdopted:
        """Adopt a change: plans from its step on go by it. A plan that is open must be made again.

        Args:
            given: as of `preview_change`.
            why: a reason, written into the event.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: with every fault.
        """
        reason = ledger.check_text(why, "why", empty=True)
        request = [ledger.plain(dict(given)), reason]

        def do(tx: Connection) -> ChangeAdopted:
            change, kinds = self._read(tx, given)
            step, staying = change.from_step, _staying(tx, change.from_step)
            event = ledger.append(tx, "changed", who, _body(tx, change, staying) | {"why": reason})
            known = setting(tx, "kinds", 0) or []
            more = [kind for kind in kinds if kind not in known]
            for name, value, since in (
                ("budget", change.budget, step),
                ("welfare", change.welfare, step),
                ("max_wait", change.max_wait, step),
                ("closed", dict.fromkeys(change.receiving) | change.closed or None, step),
                ("kinds", [*known, *more] if more else None, 0),
            ):
                if value is not None:
                    add_setting(tx, name, value, since, event)
            moved = {name: {"type": kind, "group_name": group} for name, kind, group in change.transfers}
            rows = [
                {"arm": arm.id, **moved[arm.name], "from_step": step, "event": event}
                for arm in staying
                if arm.name in moved
            ]
            ledger.add_rows(tx, schema.transfers, rows)
            return ChangeAdopted(event, change)

        return self._library.change(ChangeAdopted, "change", request, key, do, lambda tx: self._read(tx, given))

    def recent(self, most: int = 20) -> list[dict[str, Any]]:
        """Return the last events that can be undone, the newest first, each with the event that undid it.

        Args:
            most: at most so many.
        """
        table = schema.events
        with self._library.store.reading() as tx:
            columns = (table.c.id.label("event"), table.c.kind, table.c.who, table.c.at)
            query = select(*columns).where(table.c.kind.in_(REPORTED)).order_by(table.c.id.desc()).limit(most)
            rows = [dict(row._mapping) for row in tx.execute(query)]
            small = select(table).where(table.c.kind.in_(("undone", "changed")))
            small = small.where(table.c.id >= min((row["event"] for row in rows), default=0))
            found = tx.execute(small).all()
            bodies = dict(
                zip((row.id for row in found), ledger.named(tx, *(row.body_json for row in found)), strict=True)
            )
        undone = {body["undone"]: event for event, body in bodies.items() if "undone" in body}
        said = {event: ". ".join(sentences(body)) for event, body in bodies.items() if "said" in body}
        return [row | {"undone": undone.get(row["event"]), "said": said.get(row["event"], "")} for row in rows]

    def _read(self, tx: Connection, given: Mapping[str, Any]) -> tuple[LastingChange, list[list[str]]]:
        """Check a change as it was given; also the blocks that the model must get (`with_kinds`)."""
        faults: list[Fault] = []
        names = ("budget", "welfare", "max_wait", "close", "transfer", "start")
        faults += [Fault(name, f"expected one of {', '.join(names)}") for name in given if name not in names]
        given = {name: value for name, value in given.items() if not _is_blank(value)}
        if not given.keys() - {"start"}:
            faults.append(
                Fault("", "nothing is changed: give a budget, welfare, promises, groups that close, or transfers")
            )
        words, present = vocabulary_of(tx), roster.present_step(tx)
        step = _step(given.get("start"), words, present, faults)
        model, blocks = self._library.model(tx, step=step)
        arms, budget, welfare = _staying(tx, step), None, given.get("welfare")
        if "budget" in given:
            try:
                budget = model.with_budget(given["budget"]).named_budget
            except ModelError as error:
                faults += error.faults
        rows = [
            {name: row.get(name) for name in ("state", "steps", "type", "group")} for row in given.get("max_wait", [])
        ]
        for row in rows:
            try:
                with_promises(model, [row])
            except InvalidInputError as error:
                faults += error.faults or [Fault("max_wait", str(error))]
        moved = _moves(given, arms, model, faults)
        kinds = _kinds(moved, arms, blocks, faults)
        closing = {group for _, one in values_between(tx, "closed", step + 1, roster.MOST_STEP) for group in one}
        closing &= closed_at(tx, roster.MOST_STEP).keys()
        later = {*given.get("close", {}).values(), *(group for _, group in moved.values())} & closing
        faults += [Fault("group", f"{quoted(group)} closes later: name another group") for group in sorted(later)]
        if faults:
            refusal = InvalidInputError("\n".join(["change:", *(f"  {fault}" for fault in faults)]))
            refusal.faults = tuple(faults)
            raise refusal
        transfers = tuple((arm.name, *moved[arm.name]) for arm in arms if arm.name in moved)
        change = LastingChange(step, budget, welfare, rows or None, given.get("close", {}), transfers)
        problem = self._problems(tx, change, kinds)[-1]
        read_welfare(problem, None)
        if problem.has_max_wait:
            check_promises(problem)
        called = {arm.id: arm.name for arm in arms}
        lines = [
            "".join(called[part["arm"]] if isinstance(part, dict) else part for part in line)
            for line in _sentences(tx, change, arms, words)
        ]
        return replace(change, said=tuple(lines)), kinds

    # Undo

    def undo(self, event: int, why: str = "", *, who: str = "", key: str | None = None) -> Undone:
        """Let an upload, a record, an acceptance, a join or a lasting change count no longer; nothing is deleted.

        Args:
            event: its number.
            why: a reason, written into the event.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            NotFoundError: unknown event.
            ConflictError: it was undone before; it is of another kind; or other events must be undone first, which
                are in `faults`.
        """
        reason = ledger.check_text(why, "why", empty=True)

        def do(tx: Connection) -> Undone:
            row = ledger.find_row(tx, schema.events, event, "event")
            tables = REPORTED.get(row.kind)
            if tables is None:
                way = INSTEAD.get(row.kind)
                raise ConflictError(
                    f"event {event} ({row.kind}) cannot be undone" + (f". {way}" if way else ""), code="not-undoable"
                )
            found = [(table, number, undone) for table in tables for number, undone in _rows_of(tx, table, event)]
            if undone := [by for _, _, by in found if by is not None]:
                raise ConflictError(f"event {event} was undone already (event {undone[0]})", code="undone-already")
            _check_unused(tx, row)
            about = {} if row.kind == "joined" else {"why": reason}  # a reason to leave is sealed
            number = ledger.append(tx, "undone", who, {"undone": event, "kind": row.kind} | about)
            for table in tables:
                rows = [{"id": one, "undone_event": number} for of, one, _ in found if of is table]
                ledger.change_rows(tx, table, rows)
            if row.kind == "accepted":
                _reopen(tx, number)
            if row.kind == "joined":
                arms = tx.execute(select(schema.arms).where(schema.arms.c.joined_event == event)).all()
                left = {"left_event": number, "left_why": reason or "joined by mistake"}
                ledger.change_rows(
                    tx,
                    schema.arms,
                    [{"id": one.id, "name": one.name, "left_step": one.joined_step, **left} for one in arms],
                )
            return Undone(number, event, row.kind, len(found))

        return self._library.change(Undone, "undo", [event, reason], key, do)


REPORTED: dict[str, tuple[Table, ...]] = {
    "observed": (schema.observations,),
    "recorded": (schema.records, schema.observations),
    "imported": (schema.records, schema.observations),
    "joined": (schema.observations,),
    "accepted": (schema.plans,),
    "changed": (schema.settings, schema.transfers),
}
"""Kinds of events that can be undone, with the tables whose rows then no longer count."""


def _rows_of(tx: Connection, table: Table, event: int) -> list[tuple[int, int | None]]:
    """Numbers of the rows of an event, each with the event that undid it."""
    own = table.c.accepted_event if table is schema.plans else table.c.event
    query = select(table.c.id, table.c.undone_event).where(own == event)
    if table is schema.settings:  # blocks of the model stay: plans that were made with them are recomputed by them
        query = query.where(table.c.name != "kinds")
    return [(int(number), undone) for number, undone in tx.execute(query)]


def _check_unused(tx: Connection, row: Any) -> None:
    """Refuse to undo an event on which later ones rest."""
    present, name = roster.present_step(tx), vocabulary_of(tx).the
    arms, plans, decided = schema.arms, schema.plans, schema.decisions
    rest, advice = [], "Undo first:"
    if row.kind == "accepted":
        step = int(tx.execute(select(plans.c.step).where(plans.c.accepted_event == row.id)).scalar_one())
        later = select(plans.c.accepted_event).where(plans.c.step > step, plans.c.status == schema.ACCEPTED)
        rest = [(f"event {one}", "a later plan was accepted") for one in tx.execute(later).scalars()]
        seen, done = f"something was seen at {name(step + 1)}", f"something was recorded of {name(step)}"
        for table, since, what in ((schema.records, step, done), (schema.observations, step + 1, seen)):
            query = select(table.c.event).where(table.c.step >= since, *schema.valid(table)).distinct()
            rest += [(f"event {one}", what) for one in tx.execute(query.order_by(table.c.event.desc())).scalars()]
    elif row.kind == "joined":
        own = arms.c.joined_event == row.id
        used = select(arms.c.name).join(decided, decided.c.arm == arms.c.id).join(plans, plans.c.id == decided.c.plan)
        used = used.where(own, plans.c.status == schema.ACCEPTED).distinct()
        gone = select(arms.c.name).where(own, arms.c.left_event.is_not(None))
        rest = [(str(arm), "has an accepted plan") for arm in tx.execute(used).scalars()]
        rest += [(str(arm), "left since") for arm in tx.execute(gone).scalars()]
        advice = "Let these leave instead:"
    elif row.kind == "changed":
        step = json.loads(row.body_json)["from_step"]
        rest = [(name(step), "its plan was accepted by this change")] if step < present else []
        advice = "Make another change that holds from now on:"
    if rest:
        faults = [Fault(*one) for one in rest]
        raise ConflictError(
            f"event {row.id} cannot be undone, since others rest on it. {advice}", faults, code="undo-first"
        )


def _reopen(tx: Connection, event: int) -> None:
    """Open a step again: its plan and the proposal of the next one are superseded."""
    table = schema.plans
    there = or_(table.c.undone_event == event, table.c.status == schema.PROPOSED)
    rows = tx.execute(select(table.c.id).where(there)).scalars()
    ledger.change_rows(tx, table, [{"id": number, "status": schema.SUPERSEDED} for number in rows])


# Reading a change


def _staying(tx: Connection, step: int) -> list[roster.RosterArm]:
    """Arms that take part at a step or later."""
    return [arm for arm in roster.arms_as_of(tx, step=step) if arm.stays(step)]


def _step(start: object, words: Vocabulary, present: int, faults: list[Fault]) -> int:
    """The first step of a change, given as a step or a date."""
    step = present if start is None else start
    if isinstance(step, str) and step.isascii() and step.isdecimal() and len(step) < 10:
        step = int(step)
    elif isinstance(step, str):
        step = words.step_of(step)
    if isinstance(step, bool) or not isinstance(step, int) or not present <= step <= roster.MOST_STEP:
        expected = "a step, or a date if the programme has a calendar"
        message = f"expected {expected}, not before {words.the(present)}, the present one; got {str(start)[:40]!r}"
        faults.append(Fault("start", message))
        return present
    return step


def _moves(
    given: Mapping[str, Any], arms: Sequence[roster.RosterArm], model: CoupledMDP, faults: list[Fault]
) -> dict[str, tuple[str, str]]:
    """Type and group of each arm that moves, by name: those of groups that close, and those that are transferred."""
    groups, closed = {*model.group_names, *(arm.group for arm in arms)}, dict(given.get("close", {}))
    unknown = [group for pair in closed.items() for group in pair if group not in groups]
    faults += [
        Fault("close", f"{quoted(new)} closes, too: name another group") for new in closed.values() if new in closed
    ]
    found = {arm.name: (arm.type, str(closed[arm.group])) for arm in arms if arm.group in closed}
    named, listed = {arm.name: arm for arm in arms}, set[str]()
    match = roster.match_names(named)
    for number, row in enumerate(given.get("transfer", []), 1):
        name = match(str(row.get("arm") or ""))
        if name not in named:
            faults.append(Fault(f"row {number}", roster.unknown_arm(name, named, number <= SHOWN_FAULTS)))
            continue
        if name in listed:
            faults.append(Fault(f"row {number}", f"{quoted(name)} is listed twice"))
        listed.add(name)
        arm = named[name]
        found[name] = row.get("type") or arm.type, row.get("group") or arm.group
        unknown += [found[name][1]] if found[name][1] not in groups else []
        if found[name] == (arm.type, arm.group):
            faults.append(Fault(f"row {number}", f"{quoted(name)} is of this type and in this group already"))
        if found[name][1] in closed:
            faults.append(Fault(f"row {number}", f"{quoted(found[name][1])} closes: name another group"))
    known = ", ".join(sorted(groups)[:20])
    faults += [Fault("group", f"unknown group {quoted(one)}. Known are {known}") for one in dict.fromkeys(unknown)]
    return found


def _kinds(
    moved: Mapping[str, tuple[str, str]], arms: Sequence[roster.RosterArm], words: Words, faults: list[Fault]
) -> list[list[str]]:
    """Blocks that the model lacks for some transfers, each with the group whose tables it takes."""
    kinds: dict[tuple[str, str], str] = {}
    refused: set[tuple[str, str]] = set()
    for arm in arms:
        kind, group = moved.get(arm.name, (arm.type, arm.group))
        own = [other for type_, other in words.blocks if type_ == kind]
        if arm.name not in moved or (arm.type, kind) in refused:
            continue
        if not own:
            refused.add((arm.type, kind))
            faults.append(Fault(arm.name, f"unknown type {quoted(kind)}"))
            continue
        source = arm.group if arm.type == kind else group if group in own else own[0]
        old, new = words.blocks[arm.type, arm.group], words.blocks[kind, source]
        if (words.states[old], words.actions[old]) != (words.states[new], words.actions[new]):
            refused.add((arm.type, kind))
            why = f"states or actions of type {quoted(kind)} differ from those of {quoted(arm.type)}"
            faults.append(Fault(arm.name, f"{why}: let it leave, and join again"))
        elif (kind, group) not in words.blocks:
            kinds.setdefault((kind, group), source)
    return [[*kind, source] for kind, source in kinds.items()]


def _body(tx: Connection, change: LastingChange, arms: Sequence[roster.RosterArm]) -> dict[str, Any]:
    """Return a change as its event holds it: arms by their numbers, also in sentences."""
    numbers = {arm.name: ledger.of_arm(arm.id) for arm in arms}
    moved = [[numbers[name], kind, group] for name, kind, group in change.transfers]
    return change.to_dict() | {"transfers": moved, "said": _sentences(tx, change, arms, vocabulary_of(tx))}


def _sentences(
    tx: Connection, change: LastingChange, arms: Sequence[roster.RosterArm], words: Vocabulary
) -> list[str | list[str | dict[str, int]]]:
    """The change in the words of the programme; a sentence that names an arm is in parts (`ledger.of_arm`)."""
    since, found = f"From {words.the(change.from_step)} on", list[str | list[str | dict[str, int]]]()
    if change.budget is not None:
        found.append(f"{since} there are {words.share(change.budget)} per {words.step.one}")
    if change.welfare is not None:
        found.append(f"{since} the welfare is {change.welfare}")
    for row in change.max_wait or []:
        whom = ", ".join(row[of] for of in ("type", "group") if row[of]) or "all"
        wait = "may wait for any time" if row["steps"] is None else f"wait {words.step.counted(row['steps'])} at most"
        found.append(f"{since} {words.arm.many} in {row['state']} ({whom}) {wait}")
    for old, new in change.closed.items():
        many = sum(arm.group == old for arm in arms)
        found.append(f"{since} {old} is closed, and its {words.arm.counted(many)} are in {new}")
    again = [group for group in change.receiving if group in closed_at(tx, change.from_step)]
    found += [f"{since} {group} is open again" for group in again]
    was = {arm.name: arm for arm in arms}
    alone = [(name, kind, group) for name, kind, group in change.transfers if was[name].group not in change.closed]
    found += [
        [f"{since} ", ledger.of_arm(was[name].id), f" is in {group}, of type {kind}"]
        for name, kind, group in alone[:20]
    ]
    return found + ([f"and {len(alone) - 20} more are transferred"] if len(alone) > 20 else [])


def _effects(
    arms: Sequence[roster.RosterArm],
    then: Sequence[roster.RosterArm],
    before: Certificate | None,
    after: Certificate,
) -> tuple[GroupEffect, ...]:
    """Mean values of the arms of each group as it is before the change."""
    now = {} if before is None else {(row.type, row.group): row.value for row in before.values}
    later = {(row.type, row.group): row.value for row in after.values}
    found = []
    for group in dict.fromkeys(arm.group for arm in arms):
        pairs = [pair for pair in zip(arms, then, strict=True) if pair[0].group == group]
        worth = [now[arm.type, arm.group] for arm, _ in pairs] if now else []
        values = float(np.mean([later[arm.type, arm.group] for _, arm in pairs]))
        found.append(GroupEffect(group, len(pairs), float(np.mean(worth)) if worth else None, values))
    return tuple(found)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, tuple, dict)) and not value)
