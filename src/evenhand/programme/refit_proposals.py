"""Refits of the model to the programme's own records: refit, compare, adopt or decline; proposals after drift.

A server *proposes* a refit if the drift test rejects the model (`drift_test`). Nothing is adopted by that: a planner
adopts it, or declines it with a reason, after which the test uses only later observations.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from evenhand.errors import ConflictError, NotFoundError
from evenhand.evaluation.evaluate import evaluate
from evenhand.fitting.posterior_files import Named
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.plan import plan_of
from evenhand.planning.plan_file import rebuilt
from evenhand.planning.solution import Solution
from evenhand.planning.solve import solve
from evenhand.planning.task import SolveMethod
from evenhand.programme import ledger, roster, schema
from evenhand.programme.belief import know
from evenhand.programme.certificates import METHOD, facts_of, numbers_of, to_bytes
from evenhand.programme.cycle import Cycle, keep_policy
from evenhand.programme.decisions import Inputs, decide
from evenhand.programme.drift_test import DriftBounds, ModelDrift, bounds_of, check_bounds, judge, moves_since
from evenhand.programme.ledger import add_rows, append, change_rows, check_text, once
from evenhand.programme.library import Library
from evenhand.programme.named_model import Words, of_roster
from evenhand.programme.named_model import to_bytes as model_to_bytes
from evenhand.programme.refit import (
    TRUST,
    Learned,
    Refitted,
    beginning,
    check_trust,
    fit_families,
    learn,
    log_of,
    unpack,
)
from evenhand.programme.roster import RosterArm, present_step
from evenhand.typing import Progress

EPISODES = 200
"""Episodes in which the present policy is played in a new model."""


@dataclass(frozen=True)
class Offer:
    """A fit that is offered, and neither adopted nor declined."""

    refit: int
    """Its number."""

    why: tuple[str, ...]
    """Evidence against the model in use."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"refit": self.refit, "why": list(self.why)}


@dataclass(frozen=True)
class Question:
    """That a model is to be held against what is seen: the same for all servers of a programme."""

    model: str
    """The digest of the model."""

    since: int
    """The event since which it is held against what is seen."""

    number: int
    """Number of completed batches of `DriftBounds.records` reports."""

    bounds: DriftBounds
    """Of the programme."""

    @property
    def key(self) -> str:
        """Under which a fit is offered: once, by however many servers, until it is adopted or declined."""
        return f"evenhand offers {self.model[:32]} since {self.since}"


class Refits:
    """Refit, propose, adopt or decline a model; bounds of drift and the test of the model."""

    def __init__(self, library: Library, cycle: Cycle) -> None:
        """Use the store, models and policies of a programme, and its plans."""
        self._library, self._store, self._cycle = library, library.store, cycle

    def refit(
        self,
        *,
        trust: float = TRUST,
        prior: float | None = None,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
        who: str = "",
        key: str | None = None,
        why: Sequence[str] = (),
        before: str | None = None,
    ) -> Refitted:
        """Refit the model to the programme's own log, and tell what would change; nothing is adopted yet.

        The new model, what is known of it, and a policy that is solved for it are stored under a number.

        Args:
            trust: how many observations of every pair the present model counts as; 0 lets the records speak alone.
            prior: how many observations the other types are worth to a sparse row; by default found by the records.
            seconds: approximate time limit of solving.
            progress: of solving.
            who: author, written into the event.
            key: idempotency key.
            why: evidence against the present model, if a server proposes the refit.
            before: the digest of the model that is to be refitted; by default the one in use.

        Raises:
            InvalidInputError: no arm was seen at two steps, or no arm takes part.
            ConflictError: another model came into use than the one that is to be refitted.
        """
        request = [check_trust(trust), prior, seconds]
        with self._store.reading() as tx:
            if (earlier := ledger.answered(tx, key, "refit", request)) is not None:
                return Refitted.of(earlier)
            row = tx.execute(select(schema.programme)).one()
            if before not in (None, row.model):
                raise ConflictError("the model was replaced during the refit")
            model, words = self._library.model(tx, row.model)
            arms, step = self._library.present(tx), present_step(tx)
            log = log_of(tx, words, roster.arms_as_of(tx), step)
            known = tuple(know(tx, words, arms, step))
            inputs = self._cycle.inputs(tx, None, None)
            now = None if inputs is None else self._cycle.decide(tx, inputs)
        learned = learn(words, fit_families(words, log, prior, int(row.seed)), trust)
        problem = _of(learned.model, arms, row.welfare)
        solution = solve(problem, method=SolveMethod(METHOD, seconds=seconds), progress=progress, rng=int(row.seed))
        digest = model_to_bytes(learned.model)[0]
        then = decide(
            plan_of(solution),
            Inputs(step, digest, "", int(row.seed), tuple(model.budget.tolist()), known, 0),
            Words(learned.model),
        )
        pairs = [] if now is None else list(zip(now.rows, then.rows, strict=True))
        changed = [[old.arm, old.action, new.action] for old, new in pairs if old.action != new.action]
        worth = [self._worth_in(inputs, arms, problem), solution.welfare]
        content = {"before": row.model, "model": digest, "rows": len(log), "plan": changed, "welfare": worth}
        content |= {"why": list(why)}
        with self._store.writing() as tx:
            answer = once(tx, key, "refit", request, lambda: _keep(tx, learned, solution, arms, content, who))[0]
            return Refitted.of(answer)

    def _worth_in(self, inputs: Inputs | None, arms: list[RosterArm], problem: CoupledMDP) -> float | None:
        """Return the welfare of the policy in use under another model; None if it cannot be evaluated."""
        if inputs is None:
            return None
        with self._store.reading() as tx:
            plan, present = self._library.policy(tx, inputs.policy), self._library.problem(tx, arms, inputs.model)
        if not np.array_equal(present.type_of_block, problem.type_of_block):
            return None
        return evaluate(problem, rebuilt(plan.fitted(present), problem), None, EPISODES, None, 0).welfare

    def adopt(self, refit: int, *, who: str = "", key: str | None = None) -> Refitted:
        """Run the programme by a model that was fitted; plans from now on are made by it.

        A model that was in use before may be adopted again, which is the way back; the one that the programme began
        with is number 0.

        Args:
            refit: its number.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            NotFoundError: there is none of this number.
            ConflictError: it is in use already, or was never in use and the model has changed since it was fitted.
        """
        with self._store.writing() as tx:

            def do() -> dict[str, Any]:
                present = tx.execute(select(schema.programme.c.model)).scalar_one()
                facts, last = _adoptable(tx, refit, present)
                if present == facts["model"]:
                    raise ConflictError(_IN_USE.format(refit) + (f" (event {last})" if last else ""))
                if refit and last is None and present != facts["before"]:
                    raise ConflictError(
                        f"refit {refit} was compared with another model than the present one. Refit again"
                    )
                event = append(tx, "adopted", who, {"refit": refit, "before": present, "model": facts["model"]})
                change_rows(tx, schema.programme, [{"id": 1, "model": facts["model"], "model_event": event}])
                if refit:
                    change_rows(tx, schema.refits, [{"id": refit, "adopted_event": event}])
                return facts | {"adopted_event": event}

            return Refitted.of(once(tx, key, "adopt", [refit], do)[0])

    def refits(self) -> list[Refitted]:
        """Every refit, the newest first."""
        table = schema.refits
        with self._store.reading() as tx:
            query = select(table.c.facts_json, table.c.adopted_event, table.c.declined_event)
            return [_told(row) for row in tx.execute(query.order_by(table.c.id.desc()))]

    def posteriors(self, refit: int) -> list[Named]:
        """Return the posteriors of a refit, one per set of types with the same states and actions.

        Args:
            refit: its number; nothing is known any more of those that the first version of the schema stored.
        """
        with self._store.reading() as tx:
            stored = refit_row(tx, refit).posterior
            return [] if stored is None else unpack(stored)

    # Drift

    def bounds(self) -> DriftBounds:
        """By how much things may drift."""
        with self._store.reading() as tx:
            return bounds_of(tx)

    def set_bounds(self, given: Mapping[str, Any], *, who: str = "", key: str | None = None) -> DriftBounds:
        """Say by how much things may drift; what is not named stays as it is.

        Args:
            given: any of `change`, `gap`, `level` and `records`, see `DriftBounds`.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: with every fault.
        """
        with self._store.writing() as tx:

            def do() -> dict[str, Any]:
                found = check_bounds(bounds_of(tx).to_dict() | {n: v for n, v in given.items() if v is not None})
                append(tx, "bounded", who, found.to_dict())
                change_rows(tx, schema.programme, [{"id": 1, "bounds_json": ledger.as_text(found.to_dict())}])
                return found.to_dict()

            return DriftBounds(**once(tx, key, "bounds", dict(given), do)[0])

    def question(self) -> Question | None:
        """Return the drift test that is due; None while reports are few, or a refit is proposed."""
        with self._store.reading() as tx:
            bounds = bounds_of(tx)
            model, since, reports = _since(tx)
            if reports < bounds.records or _offer(tx) is not None:
                return None
            return Question(model, since, reports // bounds.records, bounds)

    def model_drift(self, most: int | None = None) -> ModelDrift:
        """Test the model in use against all observations since it came into use; see `programme.drift_test`.

        Args:
            most: nothing is tested where there are more reports, for it takes a second for every 20 000 or so.
        """
        with self._store.reading() as tx:
            bounds, words = bounds_of(tx), self._library.model(tx)[1]
            _, since, reports = _since(tx)
            enough = bounds.records <= reports and (most is None or reports <= most)
            moves = moves_since(tx, words, roster.arms_as_of(tx), present_step(tx), since) if enough else None
        return judge(moves, words, reports, bounds)

    def offer_refit(
        self, *, seconds: float | None = None, progress: Progress | bool | None = None, who: str = ""
    ) -> tuple[ModelDrift, Refitted | None]:
        """Refit the model where it no longer fits, and propose the refit; nothing is adopted.

        Args:
            seconds: approximate time limit of solving.
            progress: of solving.
            who: author, written into the event.

        Returns:
            What speaks against the model, and the fit; None where nothing is offered.

        Raises:
            ConflictError: another model came into use meanwhile, of which nothing is known yet.
        """
        question = self.question()
        drift = self.model_drift()
        if question is None or not drift.needed:
            return drift, None
        found = self.refit(
            seconds=seconds, progress=progress, who=who, key=question.key, why=drift.why, before=question.model
        )
        return drift, found

    def offered(self) -> Offer | None:
        """The fit that is offered; None where there is none, or it was adopted or declined."""
        with self._store.reading() as tx:
            return _offer(tx)

    def decline(self, refit: int, why: str, *, who: str = "", key: str | None = None) -> Refitted:
        """Say that a fit that is offered is not to be adopted; only what is seen later is held against the model then.

        Args:
            refit: its number.
            why: a reason.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            NotFoundError: there is none of this number.
            ConflictError: it is not offered, or no longer.
        """
        reason = check_text(why, "why")
        with self._store.writing() as tx:

            def do() -> dict[str, Any]:
                row, open_one = refit_row(tx, refit), _offer(tx)
                if open_one is None or open_one.refit != refit:
                    raise ConflictError(f"refit {refit} is not offered, or no longer: there is nothing to decline")
                event = append(tx, "declined", who, {"refit": refit, "why": reason})
                change_rows(tx, schema.programme, [{"id": 1, "model_event": event}])
                change_rows(tx, schema.refits, [{"id": refit, "declined_event": event}])
                facts: dict[str, Any] = json.loads(row.facts_json)
                return facts | {"declined_event": event}

            return Refitted.of(once(tx, key, "decline", [refit, reason], do)[0])


def _told(row: Any) -> Refitted:
    now = {"adopted_event": row.adopted_event, "declined_event": row.declined_event}
    return Refitted.of(json.loads(row.facts_json) | now)


def _of(model: CoupledMDP, arms: list[RosterArm], welfare: str | None) -> CoupledMDP:
    blocks = Words(model).blocks
    return of_roster(model, [blocks[arm.type, arm.group] for arm in arms], welfare)


def _keep(
    tx: Connection, learned: Learned, solution: Solution, arms: list[RosterArm], content: dict[str, Any], who: str
) -> dict[str, Any]:
    """Write a refit with its model and its policy."""
    table, models = schema.refits, schema.models
    digest, body = model_to_bytes(learned.model)
    number = int(tx.execute(select(func.max(table.c.id))).scalar() or 0) + 1
    event = append(tx, "refitted", who, {"refit": number, **content})
    at = ledger.now()
    if tx.execute(select(models.c.digest).where(models.c.digest == digest)).first() is None:
        row = {"digest": digest, "body": body, "origin": f"refit {number}", "at": at, "event": event}
        add_rows(tx, models, [row])
    policy, saved = to_bytes(solution)
    keep_policy(tx, policy, digest, saved, numbers_of(arms), facts_of(solution, policy, numbers_of(arms)), who)
    found = Refitted.of(
        content
        | {"id": number, "event": event, "policy": policy, "likelihood": _possible(learned.likelihood)}
        | {"moved": [vars(row) for row in learned.moved], "unseen": learned.unseen}
    ).to_dict()
    stored: dict[str, Any] = {"model": digest, "facts_json": ledger.as_text(found), "posterior": learned.posterior}
    stored |= {"replaces": content["before"], "why": ledger.as_text(content["why"]) if content["why"] else None}
    add_rows(tx, table, [{"id": number, "at": at, "event": event} | stored])
    return found


def _possible(likelihood: tuple[float, float]) -> list[float | None]:
    """Log-likelihoods as JSON can hold them: none of what cannot be."""
    return [value if np.isfinite(value) else None for value in likelihood]


_IN_USE = "refit {} was adopted already, and is in use"


def _adoptable(tx: Connection, refit: int, present: str) -> tuple[dict[str, Any], int | None]:
    """Return the facts of a refit and the event of its last adoption; the first model has number 0."""
    if refit == 0 and not isinstance(refit, bool):
        first = select(schema.models.c.digest).where(schema.models.c.origin == "created")
        return beginning(tx.execute(first).scalar_one(), present).to_dict(), None
    row = refit_row(tx, refit)
    return json.loads(row.facts_json), row.adopted_event


def refit_row(tx: Connection, refit: object) -> Any:
    """A refit as it is stored.

    Raises:
        NotFoundError: there is none of this number.
    """
    table = schema.refits
    known = isinstance(refit, int) and not isinstance(refit, bool) and 0 < refit < 2**31
    row = tx.execute(select(table).where(table.c.id == refit)).first() if known else None
    if row is None:
        raise NotFoundError(f"refit: unknown number {refit!r}")
    return row


def _since(tx: Connection) -> tuple[str, int, int]:
    """The model, the event since which it is held against what is seen, and how many reports came since."""
    table = schema.observations
    row = tx.execute(select(schema.programme.c.model, schema.programme.c.model_event)).one()
    late = select(func.count()).select_from(table).where(table.c.event > row.model_event)
    return str(row.model), int(row.model_event), int(tx.execute(late).scalar_one())


def _offer(tx: Connection) -> Offer | None:
    table = schema.refits
    model = select(schema.programme.c.model).scalar_subquery()
    open_ones = (
        table.c.why.is_not(None)
        & table.c.adopted_event.is_(None)
        & table.c.declined_event.is_(None)
        & (table.c.replaces == model)
    )
    row = tx.execute(select(table.c.id, table.c.why).where(open_ones).order_by(table.c.id.desc()).limit(1)).first()
    return None if row is None else Offer(int(row.id), tuple(json.loads(row.why)))
