"""The decision cycle: solve, plan, accept, record. Each change is one transaction.

Solving and planning run outside of transactions, from a snapshot. When a plan is written, the store is compared with
its snapshot; if something changed, the plan is computed again, so that no plan ignores stored information.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from evenhand.errors import ConflictError, Fault, InvalidInputError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io.text_table import Table
from evenhand.planning.plan import Decisions
from evenhand.planning.solve import solve
from evenhand.planning.task import SolveMethod
from evenhand.programme import ledger, roster, schema
from evenhand.programme.acceptance import (
    Accepted,
    Override,
    PlanCells,
    changes,
    exceeded,
    read_overrides,
    refuse_changed,
    refuse_closed,
    used_by,
    write_accepted,
)
from evenhand.programme.action_records import (
    Record,
    Recorded,
    Unrecorded,
    keep_records,
    known_records,
    read_records,
    rows_to_record,
    unrecorded_steps,
)
from evenhand.programme.belief import done_between, know, last_served
from evenhand.programme.certificates import (
    METHOD,
    Certificate,
    Drift,
    Numbers,
    Solved,
    as_numbers,
    can_serve,
    certificate_for,
    drifted,
    facts_of,
    numbers_of,
    roster_digest,
    to_bytes,
)
from evenhand.programme.decisions import (
    ROUNDED,
    Inputs,
    KeptPlan,
    Planned,
    PlanRow,
    accepted_usage,
    check_budget,
    decide,
    keep_plan,
    kept_plan,
    outputs_of,
    plan_row,
    proposal,
    rows_of,
    same_plan,
)
from evenhand.programme.drift_test import bounds_of
from evenhand.programme.ledger import add_rows, answered, append, change_rows, check_text, once
from evenhand.programme.library import Library, remember
from evenhand.programme.observations import keep_observations
from evenhand.programme.roster import RosterArm, present_step, raise_faults, read_rows
from evenhand.typing import Progress

TRIES = 3
"""Attempts to plan while the roster changes to one that the policy cannot serve."""


class _MovedError(Exception):
    """The policy can no longer serve the roster."""


class Cycle:
    """Solve, plan, accept, record."""

    def __init__(self, library: Library) -> None:
        """Use the store, models and policies of a programme."""
        self._library, self._store = library, library.store
        self._certificates: OrderedDict[str, Certificate] = OrderedDict()

    # Policies

    def solve(
        self,
        *,
        method: str = METHOD,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
        who: str = "",
        key: str | None = None,
    ) -> Solved:
        """Solve for the present roster and store the policy, which later plans use.

        Args:
            method: as of `evenhand.solve`. The usual one, `fluid`, gives a policy that serves any number of arms; exact
                ones (`counts`, `joint`, or `auto` where it takes them) give tables for just the present numbers.
            seconds: approximate time limit; by default none.
            progress: called with phase and share completed; True shows a bar.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: no arm takes part, or no policy exists, for example because floors are infeasible.
        """
        request = [method, seconds]
        with self._store.reading() as tx:
            if (earlier := answered(tx, key, "solve", request)) is not None:
                return Solved(**earlier)
            row = tx.execute(select(schema.programme)).one()
            arms = self._library.present(tx)
            problem = self._library.problem(tx, arms)
        solution = solve(problem, method=SolveMethod(method, seconds=seconds), progress=progress, rng=int(row.seed))
        digest, body = to_bytes(solution)
        facts = facts_of(solution, digest, numbers_of(arms))
        with self._store.writing() as tx:

            def do() -> dict[str, Any]:
                event = keep_policy(tx, digest, row.model, body, numbers_of(arms), facts, who)
                return _solved(event, digest, facts).to_dict()

            return Solved(**once(tx, key, "solve", request, do)[0])

    def certificate(self) -> Certificate | None:
        """Return value and bound of the policy in use for the present roster; None without a policy.

        Where the policy was made for other numbers of arms it is played for these, which may take a few seconds; the
        last few answers are remembered.
        """
        with self._store.reading() as tx:
            arms = self._library.present(tx)
            numbers = numbers_of(arms)
            digest = self._serving(tx, numbers)
            if digest is None:
                return None
            if (known := self._certified(tx, digest, numbers)) is not None:
                return known
            plan, problem = self._library.policy(tx, digest), self._library.problem(tx, arms)
        found = certificate_for(plan, digest, numbers, problem)
        remember(self._certificates, roster_digest(digest, numbers), found)
        return found

    def uncertified(self) -> tuple[str, Numbers] | None:
        """The policy and the roster of now, where it is not known yet what one is worth for the other."""
        with self._store.reading() as tx:
            wanted = numbers_of(roster.taking_part(tx, present_step(tx)))
            digest = self._serving(tx, wanted) if wanted else None
            if digest is None or self._certified(tx, digest, wanted) is not None:
                return None
            return digest, wanted

    def learn_certificate(self, found: Certificate) -> None:
        """Remember what a policy is worth for a roster, where another process computed it.

        Args:
            found: its `certificate`.
        """
        remember(self._certificates, roster_digest(found.policy, found.numbers), found)

    def present_problem(self) -> tuple[CoupledMDP, list[RosterArm], int]:
        """The problem of the arms that take part at the present step, who they are, and the programme's seed."""
        with self._store.reading() as tx:
            arms = self._library.present(tx)
            seed = int(tx.execute(select(schema.programme.c.seed)).scalar_one())
            return self._library.problem(tx, arms), arms, seed

    def needs_solving(self) -> Drift:
        """Return whether roster or model have drifted beyond their bounds; see `programme.certificates`.

        The gap for the present roster is used if `certificate` computed it before; nothing is computed
        here.
        """
        with self._store.reading() as tx:
            wanted = as_numbers(roster.numbers_at(tx, present_step(tx)))
            if not wanted:
                return Drift(False, (), None)
            digest = self._serving(tx, wanted)
            if digest is None:
                return Drift(True, (self._why_none(tx),), None)
            numbers, facts = _facts(tx, digest)
            bounds = bounds_of(tx)
            why = drifted(numbers, wanted, bounds.change)
            known, then = self._certified(tx, digest, wanted), facts["certificate"]["gap"]
            if known is not None and known.gap > then + bounds.gap:
                why.append(f"the gap for the present roster is {100 * known.gap:.2g} %, and was {100 * then:.2g} %")
            return Drift(bool(why), tuple(why), digest)

    def _why_none(self, tx: Connection) -> str:
        table = schema.policies
        model = select(schema.programme.c.model).scalar_subquery()
        if tx.execute(select(func.count()).select_from(table)).scalar() == 0:
            return "nothing was solved yet"
        if tx.execute(select(func.count()).select_from(table).where(table.c.model == model)).scalar() == 0:
            return "the model is a new one, and nothing was solved for it yet"
        return "no policy can serve the present roster"

    def _certified(self, tx: Connection, digest: str, numbers: Numbers) -> Certificate | None:
        """The certificate of a policy for a roster, where it is known."""
        own, facts = _facts(tx, digest)
        if own == numbers:
            return Certificate.of(facts["certificate"])
        return self._certificates.get(roster_digest(digest, numbers))

    def _serving(self, tx: Connection, wanted: Numbers) -> str | None:
        """The policy of the present model for a roster: the last one made for it, else the last that can serve it."""
        table = schema.policies
        model = select(schema.programme.c.model).scalar_subquery()
        request = select(table.c.digest, table.c.numbers_json, table.c.facts_json).where(table.c.model == model)
        fallback = None
        for digest, numbers_json, facts_json in tx.execute(request.order_by(table.c.event.desc())):
            numbers = as_numbers(json.loads(numbers_json))
            if numbers == wanted:
                return str(digest)
            if fallback is None and can_serve(numbers, json.loads(facts_json), wanted):
                fallback = str(digest)
        return fallback

    # Plans

    def plan(
        self,
        *,
        step: int | None = None,
        budget: Any = None,
        who: str = "",
        key: str | None = None,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Planned:
        """Propose what to do at the present step, from all that is known now.

        While nothing has changed, the same plan is returned. If no policy can serve those who
        take part, one is solved first. A plan that was proposed for the step before is superseded.

        Args:
            step: the present step, to be sure that it is the one that is meant.
            budget: what there is at this step, as `CoupledMDP.with_budget` takes it; by default as the model says.
            who: author, written into the event.
            key: idempotency key.
            seconds: approximate time limit of solving, if it is needed.
            progress: of solving.

        Raises:
            ConflictError: the present step is another.
            InvalidInputError: no arm takes part.
            NotApplicableError: the policy is a table, and there is less budget than it was made for.
        """
        for _ in range(TRIES):
            with self._store.reading() as tx:
                request = [step, None if budget is None else list(check_budget(self._library.model(tx)[0], budget))]
                if (earlier := answered(tx, key, "plan", request)) is not None:
                    return Planned(**earlier)
                inputs = self.inputs(tx, step, budget)
                same = None if inputs is None else same_plan(tx, inputs)
                if same is not None and key is None:
                    return same
                decisions = None if inputs is None else self.decide(tx, inputs)
            if inputs is None or decisions is None:
                self.solve(seconds=seconds, progress=progress, who=who)
                continue
            try:
                with self._store.writing() as tx:
                    answer = once(tx, key, "plan", request, self._proposing(tx, inputs, decisions, step, budget, who))[
                        0
                    ]
                    return Planned(**answer)
            except _MovedError:
                continue
        raise ConflictError("the roster changed again and again while a policy was solved for it; ask again")

    def _proposing(
        self, tx: Connection, inputs: Inputs, decisions: Decisions, step: int | None, budget: Any, who: str
    ) -> Any:
        """Keeps a plan, or a new one if something has changed since it was computed."""

        def do() -> dict[str, Any]:
            now, said = inputs, decisions
            if ledger.last_event(tx) != inputs.known_event:
                fresh = self.inputs(tx, step, budget)
                if fresh is None:
                    raise _MovedError
                now, said = fresh, decisions if fresh.digest == inputs.digest else self.decide(tx, fresh)
            same = same_plan(tx, now)
            words = self._library.model(tx, now.model)[1]
            return (same or keep_plan(tx, now, said, words, _late(tx, now.step), who)).to_dict()

        return do

    def inputs(self, tx: Connection, step: int | None, budget: Any) -> Inputs | None:
        """Return all that a plan for the present step depends on; None if no policy can serve the roster."""
        present = present_step(tx)
        if step is not None and roster.check_step(step) != present:
            raise ConflictError(f"step {step} is not the present step, which is {present}")
        arms = self._library.present(tx)
        policy = self._serving(tx, numbers_of(arms))
        if policy is None:
            return None
        row = tx.execute(select(schema.programme)).one()
        model, words = self._library.model(tx, row.model)
        known = tuple(know(tx, words, arms, present))
        amounts = check_budget(model, budget)
        return Inputs(present, row.model, policy, int(row.seed), amounts, known, int(row.last_event))

    def decide(self, tx: Connection, inputs: Inputs) -> Decisions:
        """Compute the decisions that follow from some inputs."""
        return decide(self._library.policy(tx, inputs.policy), inputs, self._library.model(tx, inputs.model)[1])

    def plan_of(self, plan: int) -> KeptPlan:
        """A plan with all its arms.

        Args:
            plan: its number.

        Raises:
            InvalidInputError: there is none.
        """
        with self._store.reading() as tx:
            return self._whole(tx, plan_row(tx, plan))

    def current_plan(self) -> KeptPlan | None:
        """The plan that is proposed for the present step; None where there is none yet."""
        table = schema.plans
        with self._store.reading() as tx:
            query = select(table).where(table.c.step == present_step(tx), table.c.status == schema.PROPOSED)
            row = tx.execute(query).first()
            return None if row is None else self._whole(tx, row)

    def current_plan_number(self) -> int | None:
        """The number of the plan that is proposed for the present step."""
        with self._store.reading() as tx:
            return proposal(tx, present_step(tx))

    def plans(self, status: str | None = None, most: int | None = None) -> list[KeptPlan]:
        """Plans without their arms, the newest first.

        Args:
            status: only `proposed`, `accepted` or `superseded` ones.
            most: at most so many.
        """
        table = schema.plans
        query = select(table).order_by(table.c.id.desc()).limit(most)
        with self._store.reading() as tx:
            rows = tx.execute(query if status is None else query.where(table.c.status == status))
            return [kept_plan(row, (), None, None) for row in rows]

    def _whole(self, tx: Connection, row: Any) -> KeptPlan:
        rows = rows_of(tx, row.id)
        words = self._library.model(tx, row.model)[1]
        used = accepted_usage(words, rows) if row.status == schema.ACCEPTED else None
        return kept_plan(row, rows, self._certified(tx, row.policy, _numbers_of_rows(rows)), used)

    def recompute(self, plan: int) -> KeptPlan:
        """Compute a plan again from what is stored, as of its last known event, and compare it with the stored plan.

        Args:
            plan: its number.

        Raises:
            InvalidInputError: it comes out differently: the store was changed from outside, or this version decides
                differently.
        """
        with self._store.reading() as tx:
            row = plan_row(tx, plan)
            words = self._library.model(tx, row.model)[1]
            arms = roster.taking_part(tx, row.step, row.known_event)
            known = tuple(know(tx, words, arms, row.step, row.known_event))
            budget = tuple(json.loads(row.budget_json))
            inputs = Inputs(row.step, row.model, row.policy, row.seed, budget, known, row.known_event)
            if inputs.digest != row.inputs:
                raise InvalidInputError(f"plan {plan}: the stored inputs are not those of the plan")
            if outputs_of(inputs, self.decide(tx, inputs)) != row.outputs or not _as_kept(inputs, row, tx):
                raise InvalidInputError(f"plan {plan}: computed again, its decisions differ from the stored ones")
            return self._whole(tx, row)

    # What is done

    def accept(self, plan: int, overrides: Any = (), *, who: str = "", key: str | None = None) -> Accepted:
        """Accept the plan of the present step, which closes the step.

        Args:
            plan: its number.
            overrides: a table with the columns arm, action and why, for arms that get something else than planned.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            TableError: overrides with faults, each with its row, or beyond the budget; nothing is accepted then.
            ConflictError: the plan was accepted or superseded already, or something changed since; states what.
        """
        table = _read_overrides(overrides)
        request = [plan, None if table is None else table.columns]
        if table is not None:
            self._library.check_first(key, "accept", request, lambda tx: self._overrides(tx, plan, table))
        with self._store.writing() as tx:
            return Accepted(**once(tx, key, "accept", request, lambda: self._accept(tx, plan, table, who))[0])

    def _accept(self, tx: Connection, plan: int, table: Table | None, who: str) -> dict[str, Any]:
        row, cells, overrides = self._overrides(tx, plan, table)
        rows = cells.rows
        raise_faults(exceeded(cells, overrides, json.loads(row.budget_json)), "overrides")
        changed = [one for one in overrides if one.action != rows[one.place].action]
        names = cells.words.model.resource_names
        used = {name: round(use, ROUNDED) for name, use in zip(names, used_by(cells, overrides), strict=True)}
        content = [[rows[one.place].arm, rows[one.place].action, one.action, one.why] for one in overrides]
        body = {"plan": plan, "step": row.step, "overrides": content, "used": used, "outputs": row.outputs}
        event = append(tx, "accepted", who, body)
        write_accepted(tx, plan, rows, overrides, who, event)
        return Accepted(event, plan, row.step, len(changed), used).to_dict()

    def _overrides(self, tx: Connection, plan: int, table: Table | None) -> tuple[Any, PlanCells, list[Override]]:
        """A plan that may be accepted now, its arms, and the overrides of a table."""
        row = plan_row(tx, plan)
        refuse_closed(row)
        rows = rows_of(tx, plan)
        if ledger.last_event(tx) != row.event:
            refuse_changed(row, self._changes(tx, row, rows))
        cells = PlanCells(self._library.model(tx, row.model)[1], rows)
        return row, cells, [] if table is None else read_overrides(table, cells, json.loads(row.budget_json))

    def _changes(self, tx: Connection, row: Any, rows: Sequence[PlanRow]) -> list[Fault]:
        """Return all information that arrived after a plan was made."""
        model = tx.execute(select(schema.programme.c.model)).scalar_one()
        words, same = self._library.model(tx, model)[1], model == row.model
        found = changes(rows, know(tx, words, roster.taking_part(tx, row.step), row.step), words, beliefs=same)
        return found if same else [Fault("", "another model was adopted"), *found]

    def changed_since(self, plan: int) -> list[Fault]:
        """Why a proposed plan would not be accepted now: what is known and was not when it was made.

        Args:
            plan: its number.
        """
        with self._store.reading() as tx:
            row = plan_row(tx, plan)
            return [] if ledger.last_event(tx) == row.event else self._changes(tx, row, rows_of(tx, plan))

    def record(self, rows: Any, source: str, *, who: str = "", key: str | None = None) -> Recorded:
        """Record the actions done; late and corrected records are stored beside the old ones.

        Args:
            rows: a table with the columns arm and action, and optionally step (by default the last accepted), reward
                and next_state, which is stored as an observation of the step after.
            source: source of the report.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            TableError: with every fault and its row; nothing is stored then.
        """
        table, said = read_rows(rows, "records", ["arm", "action"], ragged=True), check_text(source, "source")
        request = [table.columns, said]
        self._library.check_first(key, "record", request, lambda tx: self._read_records(tx, table))
        with self._store.writing() as tx:
            return Recorded(**once(tx, key, "record", request, lambda: self._record(tx, table, said, who))[0])

    def record_rest(
        self, plan: int, others: Mapping[str, str], source: str, *, who: str = "", key: str | None = None
    ) -> Recorded:
        """Say that an accepted plan was done as accepted, but for some arms; what was recorded before stays.

        Only what is new is written: arms of which nothing was recorded yet, and those of which something else is said.

        Args:
            plan: the number of an accepted plan.
            others: what was done instead, by arm.
            source: source of the report.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            ConflictError: the plan is not accepted, or all of it is recorded and nothing else is said.
            TableError: with every fault and its row; nothing is stored then.
        """
        said = check_text(source, "source")
        with self._store.writing() as tx:

            def do() -> dict[str, Any]:
                row = plan_row(tx, plan)
                if row.status != schema.ACCEPTED:
                    raise ConflictError(
                        f"plan {plan} of step {row.step} is not accepted: there is nothing to record of it"
                    )
                known = {arm: done for (arm, _), done in known_records(tx, [row.step]).items()}
                new = rows_to_record(plan, row.step, rows_of(tx, plan), others, known)
                return self._record(tx, read_rows(new, "records", ["arm", "action"]), said, who)

            return Recorded(**once(tx, key, "record", [plan, sorted(others.items()), said], do)[0])

    def recorded(self, step: int) -> dict[int, str]:
        """Return the actions done at a step, by arm number; the last record counts.

        Args:
            step: which.
        """
        with self._store.reading() as tx:
            return {arm: action for (arm, _), (action, _) in known_records(tx, [step]).items()}

    def last_served(self, rows: Sequence[PlanRow], step: int, most: int = 100) -> dict[int, int]:
        """The last step at which arms of a plan were served, by their numbers in the store.

        Args:
            rows: of the plan.
            step: the step after the last considered.
            most: maximum number of steps.
        """
        with self._store.reading() as tx:
            words = self._library.model(tx)[1]
            blocks = {row.arm_id: words.blocks[row.type, row.group] for row in rows}
            return last_served(tx, words, blocks, max(step - most, 0), step)

    def unrecorded(self, last: int, most: int = 100) -> list[Unrecorded]:
        """Accepted steps of which it is not known of all arms what was done; audits take them as accepted.

        Args:
            last: the last step considered.
            most: maximum number of steps.
        """
        with self._store.reading() as tx:
            return unrecorded_steps(tx, last - most + 1, last)

    def _read_records(self, tx: Connection, table: Table) -> list[Record]:
        return read_records(table, roster.arms_as_of(tx), self._library.model(tx)[1], present_step(tx))

    def _record(self, tx: Connection, table: Table, source: str, who: str) -> dict[str, Any]:
        present, found = present_step(tx), self._read_records(tx, table)
        steps = [one.row.step for one in found]
        before = known_records(tx, steps)
        accepted = done_between(tx, [one.row.arm.id for one in found], min(steps), max(steps) + 1, recorded=False)
        places = [(one.row.arm.id, one.row.step) for one in found]
        corrected = sum(
            place in before and before[place] != (one.action, one.reward)
            for place, one in zip(places, found, strict=True)
        )
        differing = sum(accepted.get(place, one.action) != one.action for place, one in zip(places, found, strict=True))
        content = [[one.row.arm.name, one.row.step, one.action, one.reward, one.next_state] for one in found]
        event = append(tx, "recorded", who, {"source": source, "done": content})
        keep_records(tx, found, source, event)
        seen = [(one.row.arm.id, one.row.step + 1, one.next_state) for one in found if one.next_state is not None]
        keep_observations(tx, seen, source, event)
        late = sum(step < present - 1 for step in steps)
        return Recorded(event, len(found), late, corrected, differing, len(seen)).to_dict()


def keep_policy(
    tx: Connection, digest: str, model: str, body: bytes, numbers: Numbers, facts: Mapping[str, Any], who: str
) -> int:
    """Write a policy, after which it is the last one; the number of the event that says so.

    One that is there already, word for word, becomes the last one again: who solves by another method and comes back
    to the first gets plans by the first.

    Args:
        tx: a transaction from `Store.writing`.
        digest: of the policy.
        model: the digest of the model it was solved for.
        body: its file.
        numbers: the roster it was solved for.
        facts: what is known of it.
        who: author.
    """
    table = schema.policies
    content = {"policy": digest, "method": facts["method"], "certificate": facts["certificate"]}
    event = append(tx, "solved", who, content)
    if tx.execute(select(table.c.digest).where(table.c.digest == digest)).first() is not None:
        change_rows(tx, table, [{"digest": digest, "event": event}])
        return event
    content = {"numbers_json": ledger.as_text([list(row) for row in numbers]), "facts_json": ledger.as_text(facts)}
    row = {"digest": digest, "model": model, "body": body, "at": ledger.now(), "event": event}
    add_rows(tx, table, [row | content])
    return event


def _solved(event: int, digest: str, facts: Mapping[str, Any]) -> Solved:
    found = facts["certificate"]
    sure = (found["welfare"], found["upper_bound"], found["gap"])
    return Solved(event, digest, facts["method"], facts["any_number"], *sure, facts["seconds"])


def _facts(tx: Connection, digest: str) -> tuple[Numbers, dict[str, Any]]:
    """The numbers a policy was solved for, and what is known of it."""
    table = schema.policies
    row = tx.execute(select(table.c.numbers_json, table.c.facts_json).where(table.c.digest == digest)).one()
    return as_numbers(json.loads(row.numbers_json)), json.loads(row.facts_json)


def _numbers_of_rows(rows: Sequence[PlanRow]) -> Numbers:
    times: dict[tuple[str, str], int] = {}
    for row in rows:
        times[row.type, row.group] = times.get((row.type, row.group), 0) + 1
    return tuple((*kind, number) for kind, number in sorted(times.items()))


def _as_kept(inputs: Inputs, row: Any, tx: Connection) -> bool:
    """Return whether the stored rows of a plan match its digest."""
    rows = rows_of(tx, row.id)
    outputs = [[one.arm_id, one.action, one.served, one.next_in_line] for one in rows]
    return len(rows) == len(inputs.known) and ledger.digest_of(outputs) == row.outputs


def _late(tx: Connection, step: int) -> int:
    """Reports on earlier steps that came since the last plan was accepted."""
    plans, table = schema.plans, schema.observations
    last = tx.execute(select(func.max(plans.c.accepted_event))).scalar()
    late = select(func.count()).select_from(table).where(table.c.step < step, table.c.event > (last or 0))
    return int(tx.execute(late).scalar_one()) if last is not None else 0


def _read_overrides(overrides: Any) -> Table | None:
    """A table of overrides; None where there are none."""
    if overrides is None or (isinstance(overrides, (list, tuple)) and not overrides):
        return None
    return read_rows(overrides, "overrides", ["arm", "action", "why"])
