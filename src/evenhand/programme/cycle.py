"""The decision cycle: solve, plan, accept. Each change is one transaction.

Solving runs outside of transactions, from a snapshot; a plan is decided in the transaction that writes it, so that no
plan ignores stored information.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, func, select, union

from evenhand.errors import ConflictError, Fault, InvalidInputError
from evenhand.model import CoupledMDP
from evenhand.model.io.text_table import Table
from evenhand.planning import SolveMethod
from evenhand.planning.plan import Decisions, Plan
from evenhand.planning.solve import solve
from evenhand.programme import certificates, decisions, ledger, roster, safeguards, schema
from evenhand.programme.belief import know
from evenhand.programme.drift_test import bounds_of
from evenhand.programme.ledger import add_rows, answered, append, change_rows
from evenhand.programme.library import BETWEEN_SOLVES, ROUTINE, Cache, Library
from evenhand.typing import Progress


class _NoPolicyError(Exception):
    """No policy can serve the roster."""


class Cycle:
    """Solve, plan, accept."""

    def __init__(self, library: Library) -> None:
        """Use the store, models and policies of a programme."""
        self._library, self._store = library, library.store
        self._certificates: Cache[certificates.Certificate] = Cache()

    # Policies

    def solve(
        self,
        *,
        method: str = certificates.METHOD,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
        who: str = "",
        key: str | None = None,
    ) -> certificates.Solved:
        """Solve for the present roster and store the policy, which later plans use.

        A policy in use whose search was ended by a time limit competes, so that it is improved or stays.

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
                return certificates.Solved.of(earlier)
            row = tx.execute(select(schema.programme)).one()
            arms = self._library.present(tx)
            problem, terms = self._library.problem(tx, arms), self._library.terms_digest(tx)
        # With floors the search begins anew: the policy in use may miss them by chance.
        improves = method == certificates.METHOD and self.needs_solving().improvable and not problem.has_floors
        before = self.plan_in_use(problem) if improves else None
        how: Any = {"progress": progress, "rng": int(row.seed)}
        if before is None:
            solution = solve(problem, method=SolveMethod(method, seconds=seconds), **how)
        else:
            settings = SolveMethod(method, seconds=seconds, plans=[before])
            solution = solve(problem, method=settings, budgets=[problem.budget], **how)[0].solution
        body, facts = certificates.policy_of(solution, arms, terms, solution.stopped and before is None)

        def do(tx: Connection) -> certificates.Solved:
            known = facts | facts["certificate"] | {"event": store_policy(tx, row.model, body, facts, who)}
            return certificates.Solved(**{one.name: known[one.name] for one in fields(certificates.Solved)})

        return self._library.change(certificates.Solved, "solve", request, key, do)

    def certificate(self) -> certificates.Certificate | None:
        """Return value and bound of the policy in use for the present roster; None without a policy.

        Where the policy was made for other numbers of arms it is played for these, which may take a few seconds; the
        last few answers are remembered.
        """
        with self._store.reading() as tx:
            arms = self._library.present(tx)
            digest, numbers, known = self._in_use(tx)
            if digest is None or known is not None:
                return known
            plan, problem = self._library.policy(tx, digest), self._library.problem(tx, arms)
        return self._certificates.add((digest, numbers), certificates.certificate_for(plan, digest, numbers, problem))

    def plan_in_use(self, problem: CoupledMDP) -> Plan | None:
        """Return the policy in use for the present roster, with what it is worth there; None without a policy.

        Args:
            problem: of the present roster.
        """
        if (today := self.certificate()) is None:
            return None
        with self._store.reading() as tx:
            return certificates.plan_in_use(self._library.policy(tx, today.policy), today, problem)

    def uncertified(self) -> tuple[str, certificates.Numbers] | None:
        """The policy and the roster of now, where it is not known yet what one is worth for the other."""
        with self._store.reading() as tx:
            digest, numbers, known = self._in_use(tx)
            return None if digest is None or known is not None else (digest, numbers)

    def learn_certificate(self, found: certificates.Certificate) -> None:
        """Remember what a policy is worth for a roster, where another process computed it.

        Args:
            found: its `certificate`.
        """
        self._certificates.add((found.policy, found.numbers), found)

    def present_problem(self) -> tuple[CoupledMDP, list[roster.RosterArm], int]:
        """The problem of the arms that take part at the present step, who they are, and the programme's seed."""
        with self._store.reading() as tx:
            arms = self._library.present(tx)
            seed = int(tx.execute(select(schema.programme.c.seed)).scalar_one())
            return self._library.problem(tx, arms), arms, seed

    def needs_solving(self) -> certificates.Drift:
        """Return whether roster or model have drifted beyond their bounds; see `programme.certificates`.

        The gap for the present roster is used if `certificate` computed it before; nothing is computed
        here.
        """
        with self._store.reading() as tx:
            digest, wanted, known = self._in_use(tx)
            if digest is None:
                return certificates.Drift(bool(wanted), (self._why_none(tx),) if wanted else (), None)
            solved, bounds = self._solved(tx, digest), bounds_of(tx)
            why = certificates.drifted(solved.numbers, wanted, bounds.change)
            if known is not None and known.gap > solved.gap + bounds.gap:
                then = f"and was {100 * solved.gap:.2g} %"
                why.append(f"the gap for the present roster is {100 * known.gap:.2g} %, {then}")
            return certificates.Drift(bool(why), tuple(why), digest, bool(self._facts_of(tx, digest).get("improvable")))

    def _why_none(self, tx: Connection) -> str:
        models = set(tx.execute(select(schema.policies.c.model).distinct()).scalars())
        if not models:
            return "nothing was solved yet"
        if tx.execute(select(schema.programme.c.model)).scalar_one() not in models:
            return "the model is a new one, and nothing was solved for it yet"
        if self._library.terms(tx):
            return "nothing was solved yet for the present roster, budget, welfare and promises"
        return "no policy can serve the present roster"

    def _in_use(self, tx: Connection) -> tuple[str | None, certificates.Numbers, certificates.Certificate | None]:
        """The policy that can serve the present roster, if any; that roster; and the certificate, if known."""
        numbers = self._library.numbers(tx)
        digest = self._serving(tx, numbers)
        return digest, numbers, None if digest is None else self._certified(tx, digest, numbers)

    def policy_in_use(self, tx: Connection) -> tuple[Plan | None, str]:
        """Return the policy that serves the present roster, and its digest; None and empty without one."""
        digest = self._in_use(tx)[0]
        return (None, "") if digest is None else (self._library.policy(tx, digest), digest)

    def _certified(self, tx: Connection, digest: str, numbers: certificates.Numbers) -> certificates.Certificate | None:
        """The certificate of a policy for a roster, where it is known."""
        solved = self._solved(tx, digest)
        return solved if solved.numbers == numbers else self._certificates.get((digest, numbers))

    def _solved(self, tx: Connection, digest: str) -> certificates.Certificate:
        """Return the certificate of a policy for the roster that it was solved for."""
        return certificates.Certificate.of(self._facts_of(tx, digest)["certificate"])

    def _facts_of(self, tx: Connection, digest: str) -> dict[str, Any]:
        """Return all that is stored about a policy."""

        def read() -> dict[str, Any]:
            query = select(schema.policies.c.facts_json).where(schema.policies.c.digest == digest)
            found: dict[str, Any] = json.loads(tx.execute(query).scalar_one())
            return found

        return self._library.remember(tx, "facts", read, digest, BETWEEN_SOLVES)

    def _serving(self, tx: Connection, wanted: certificates.Numbers) -> str | None:
        """The policy of the present model for a roster: the last one made for it, else the last that can serve it."""
        about = wanted, self._library.terms_digest(tx)
        return self._library.remember(tx, "serving", lambda: self._find_serving(tx, wanted), about, BETWEEN_SOLVES)

    def _find_serving(self, tx: Connection, wanted: certificates.Numbers) -> str | None:
        table = schema.policies
        model = select(schema.programme.c.model).scalar_subquery()
        query = select(table.c.facts_json).where(table.c.model == model).order_by(table.c.event.desc())
        kinds, fallback, terms = {row[:2] for row in wanted}, None, self._library.terms_digest(tx)
        for facts in map(json.loads, tx.execute(query).scalars()) if wanted else ():
            found = certificates.Certificate.of(facts["certificate"])
            if facts["terms"] != terms:
                continue
            if found.numbers == wanted:
                return found.policy
            if fallback is None and facts["any_number"] and kinds <= {row[:2] for row in found.numbers}:
                fallback = found.policy
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
    ) -> decisions.Planned:
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
        with self._store.reading() as tx:
            amounts = None if budget is None else decisions.check_budget(self._library.model(tx)[0], budget)
        request = [step, amounts]

        def do(tx: Connection) -> decisions.Planned:
            inputs = self.inputs(tx, step, amounts)
            if inputs is None:
                raise _NoPolicyError
            if (same := decisions.same_plan(tx, inputs)) is not None:
                return same
            words = self._library.model(tx, inputs.model)[1]
            return decisions.store_plan(tx, inputs, self.decide(tx, inputs), words, _late(tx, inputs.step), who)

        for _ in range(3):  # the roster may change, while a policy is solved for it, to one that it cannot serve
            try:
                return self._library.change(decisions.Planned, "plan", request, key, do)
            except _NoPolicyError:
                self.solve(seconds=seconds, progress=progress, who=who)
        raise ConflictError("the roster changed again and again while a policy was solved for it; repeat the request")

    def inputs(self, tx: Connection, step: int | None, budget: Any) -> decisions.Inputs | None:
        """Return all that a plan for the present step depends on; None if no policy can serve the roster."""
        present = roster.present_step(tx)
        if step is not None and roster.check_step(step) != present:
            raise ConflictError(f"step {step} is not the present one, which is step {present}")
        arms = self._library.present(tx)
        policy = self._serving(tx, self._library.numbers(tx))
        if policy is None:
            return None
        row = tx.execute(select(schema.programme)).one()
        model, words = self._library.model(tx, row.model)
        known, amounts = know(tx, words, arms, present), decisions.check_budget(model, budget)
        return decisions.Inputs(present, row.model, policy, int(row.seed), amounts, known, int(row.last_event))

    def decide(self, tx: Connection, inputs: decisions.Inputs) -> Decisions:
        """Compute the decisions that follow from some inputs."""
        policy, words = self._library.policy(tx, inputs.policy), self._library.model(tx, inputs.model)[1]
        return decisions.decide(policy, inputs, words, self._library.evidence(tx, inputs.model))

    def plan_of(self, plan: int) -> decisions.StoredPlan:
        """A plan with all its arms.

        Args:
            plan: its number.

        Raises:
            InvalidInputError: there is none.
        """
        with self._store.reading() as tx:
            return self._whole(tx, decisions.plan_row(tx, plan))

    def current_plan(self) -> decisions.StoredPlan | None:
        """The plan that is proposed for the present step; None without one."""
        with self._store.reading() as tx:
            row = decisions.proposal(tx, roster.present_step(tx))
            return None if row is None else self._whole(tx, row)

    def current_plan_number(self) -> int | None:
        """The number of the plan that is proposed for the present step."""
        with self._store.reading() as tx:
            row = decisions.proposal(tx, roster.present_step(tx))
            return None if row is None else int(row.id)

    def plans(self, status: str | None = None, most: int | None = None) -> list[decisions.StoredPlan]:
        """Plans without their arms, the newest first.

        Args:
            status: only `proposed`, `accepted` or `superseded` ones.
            most: at most so many.
        """
        table = schema.plans
        query = select(table).order_by(table.c.id.desc()).limit(most)
        with self._store.reading() as tx:
            rows = tx.execute(query if status is None else query.where(table.c.status == status))
            return [decisions.stored_plan(row, (), None, None) for row in rows]

    def _whole(self, tx: Connection, row: Any) -> decisions.StoredPlan:
        rows = self._rows(tx, row)
        words = self._library.model(tx, row.model)[1]
        accepted = {one.arm: one.accepted for one in rows if one.accepted}
        used = decisions.PlanCells(words, rows).used(accepted) if row.status == schema.ACCEPTED else None
        return decisions.stored_plan(row, rows, self._certified(tx, row.policy, certificates.numbers_of(rows)), used)

    def _rows(self, tx: Connection, row: Any) -> tuple[decisions.PlanRow, ...]:
        """The arms of a plan, by its row."""
        compute = lambda: decisions.rows_of(tx, row.id)  # noqa: E731
        return self._library.remember(tx, f"rows of {row.status}", compute, tuple(row), ROUTINE)

    def recompute(self, plan: int) -> decisions.StoredPlan:
        """Compute a plan again from what is stored, as of its last known event, and compare it with the stored plan.

        Args:
            plan: its number.

        Raises:
            InvalidInputError: it comes out differently: the store was changed from outside, or this version decides
                differently.
        """
        with self._store.reading() as tx:
            row = decisions.plan_row(tx, plan)
            words = self._library.model(tx, row.model, row.step, row.known_event)[1]
            arms = roster.taking_part(tx, row.step, row.known_event)
            known, budget = know(tx, words, arms, row.step, row.known_event), json.loads(row.budget_json)
            inputs = decisions.Inputs(row.step, row.model, row.policy, row.seed, budget, known, row.known_event)
            if inputs.digest != row.inputs:
                raise InvalidInputError(f"plan {plan}: the stored inputs are not those of the plan")
            found = self._whole(tx, row)
            stored = ledger.digest_of([[one.arm_id, one.action, one.served, one.next_in_line] for one in found.rows])
            if not stored == row.outputs == decisions.outputs_of(inputs, self.decide(tx, inputs)):
                raise InvalidInputError(f"plan {plan}: computed again, its decisions differ from the stored ones")
            return found

    # Acceptance

    def accept(
        self, plan: int, overrides: Any = (), *, who: str = "", key: str | None = None, holder: str = ""
    ) -> decisions.Accepted:
        """Accept the plan of the present step, which closes the step.

        Args:
            plan: its number.
            overrides: a table with the columns arm, action and why, for arms that get something else than planned.
            who: author, written into the event.
            key: idempotency key.
            holder: the name by which the author signed on; by default `who`.

        Raises:
            TableError: overrides with faults, each with its row, or beyond the budget; nothing is accepted then.
            ConflictError: the plan was accepted or superseded already, or something changed since; states what.
        """
        none = overrides is None or (isinstance(overrides, (list, tuple)) and not overrides)
        table = (
            None if none else roster.read_rows(self._library.table(overrides), "overrides", ["arm", "action", "why"])
        )
        request = [plan, None if table is None else table.columns]

        def do(tx: Connection) -> decisions.Accepted:
            row, cells, found = self._overrides(tx, plan, table)
            safeguards.check_approved(self._library, tx, row, holder or who)
            used = cells.used({arm: action for arm, (action, _) in found.items()})
            rows = [(cells.rows[arm], action) for arm, (action, _) in found.items()]
            said = [[ledger.of_arm(one.arm_id), one.action, action] for one, action in rows]
            body = {"plan": plan, "step": row.step, "overrides": said, "used": used, "outputs": row.outputs}
            event = append(tx, "accepted", who, body)
            accepted = []
            for one in cells.rows.values():
                action, why = found.get(one.arm, (one.action, None))
                by = None if why is None else who
                accepted.append({"plan": plan, "arm": one.arm_id, "accepted": action, "who": by, "why": why})
            change_rows(tx, schema.decisions, accepted)
            closed = {"status": schema.ACCEPTED, "accepted_by": who, "accepted_at": ledger.now()}
            change_rows(tx, schema.plans, [{"id": plan} | closed | {"accepted_event": event}])
            changed = sum(action != cells.rows[arm].action for arm, (action, _) in found.items())
            return decisions.Accepted(event, plan, row.step, changed, used)

        check = None if table is None else lambda tx: self._overrides(tx, plan, table)
        return self._library.change(decisions.Accepted, "accept", request, key, do, check)

    def _overrides(
        self, tx: Connection, plan: int, table: Table | None
    ) -> tuple[Any, decisions.PlanCells, dict[str, tuple[str, str]]]:
        """A plan that may be accepted now, its arms, and the overrides of a table."""
        row = decisions.plan_row(tx, plan)
        if row.status == schema.ACCEPTED:
            by = f" by {row.accepted_by}" if row.accepted_by else ""
            raise ConflictError(f"plan {plan} of step {row.step} was accepted already{by} (event {row.accepted_event})")
        if row.status == schema.SUPERSEDED:
            raise ConflictError(
                f"plan {plan} of step {row.step} was superseded by a newer one; look at the present plan"
            )
        rows = self._rows(tx, row)
        if found := self._changes(tx, row, rows):
            known = f"plan {row.id} of step {row.step} was made from the records up to event {row.known_event}"
            raise ConflictError(f"{known}, and since then something changed. Plan again:", found)
        cells = decisions.PlanCells(self._library.model(tx, row.model)[1], rows)
        return row, cells, {} if table is None else decisions.read_overrides(table, cells, json.loads(row.budget_json))

    def _changes(self, tx: Connection, row: Any, rows: Sequence[decisions.PlanRow]) -> list[Fault]:
        """Return all information that arrived after a plan was made."""
        if ledger.last_event(tx) == row.event:
            return []
        model = tx.execute(select(schema.programme.c.model)).scalar_one()
        words, same = self._library.model(tx, model)[1], model == row.model
        terms = self._library.terms
        is_changed = terms(tx, row.step) != terms(tx, row.step, row.known_event)
        arms = self._library.taking_part(tx, row.step)
        if self._library.only(tx, row.event):  # then only arms with reports are known otherwise
            since = union(
                *(select(t.c.arm).where(t.c.event > row.event) for t in (schema.observations, schema.records))
            )
            touched = set(tx.execute(since).scalars())
            arms, rows = [arm for arm in arms if arm.id in touched], [one for one in rows if one.arm_id in touched]
        found = decisions.changes(rows, know(tx, words, arms, row.step), words, beliefs=same)
        found = [Fault("", "the budget, the welfare or a promise was changed"), *found] if is_changed else found
        return found if same else [Fault("", "another model was adopted"), *found]

    def changed_since(self, plan: int) -> list[Fault]:
        """Why a proposed plan would not be accepted now: what is known and was not when it was made.

        Args:
            plan: its number.
        """
        with self._store.reading() as tx:
            row = decisions.plan_row(tx, plan)
            return self._changes(tx, row, self._rows(tx, row))


def store_policy(tx: Connection, model: str, body: bytes, facts: Mapping[str, Any], who: str) -> int:
    """Write a policy, after which it is the last one; the number of the event that says so.

    One that is there already, word for word, becomes the last one again: who solves by another method and comes back
    to the first gets plans by the first.

    Args:
        tx: a transaction from `Store.writing`.
        model: the digest of the model it was solved for.
        body: its file.
        facts: from `certificates.policy_of`.
        who: author.
    """
    table, digest = schema.policies, facts["certificate"]["policy"]
    content = {"policy": digest, "method": facts["method"], "certificate": facts["certificate"]}
    event = append(tx, "solved", who, content)
    if tx.execute(select(table.c.digest).where(table.c.digest == digest)).first() is not None:
        change_rows(tx, table, [{"digest": digest, "facts_json": ledger.as_text(facts), "event": event}])
    else:
        row = {"digest": digest, "model": model, "body": body, "facts_json": ledger.as_text(facts)}
        add_rows(tx, table, [row | {"at": ledger.now(), "event": event}])
    return event


def _late(tx: Connection, step: int) -> int:
    """Reports on earlier steps that came since the last plan was accepted."""
    plans, table = schema.plans, schema.observations
    last = tx.execute(select(func.max(plans.c.accepted_event)).where(*schema.valid(plans))).scalar()
    since = table.c.event > (last or 0)
    late = select(func.count()).select_from(table).where(table.c.step < step, since, *schema.valid(table))
    return int(tx.execute(late).scalar_one()) if last is not None else 0
