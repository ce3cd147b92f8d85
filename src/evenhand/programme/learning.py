"""Learning from a programme's own records: refit, look at what would change, adopt."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from evenhand.errors import Conflict, Missing
from evenhand.evaluation.evaluate import evaluate
from evenhand.fitting.posterior_files import Named
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.plan import plan_of
from evenhand.planning.plan_file import rebuilt
from evenhand.planning.solution import Solution
from evenhand.planning.solve import solve
from evenhand.programme import ledger, roster, schema
from evenhand.programme.deciding import Inputs, decide
from evenhand.programme.knowing import know
from evenhand.programme.ledger import add_rows, append, change_rows, once
from evenhand.programme.modelling import Words, of_roster
from evenhand.programme.modelling import to_bytes as model_to_bytes
from evenhand.programme.refitting import (
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
from evenhand.programme.roster import Arm, present_step
from evenhand.programme.running import Running, keep_policy
from evenhand.programme.solving import METHOD, facts_of, numbers_of, to_bytes
from evenhand.typing import Progress

EPISODES = 200
"""Episodes in which the present policy is played in a new model."""


class Learning(Running):
    """Refitting the model."""

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
        """Fit the model anew to the programme's own log, and tell what would change; nothing is adopted yet.

        The new model, what is known of it, and a policy that is solved for it are kept under a number.

        Args:
            trust: how many observations of every pair the present model counts as; 0 lets the records speak alone.
            prior: how many observations the other types are worth to a sparse row; found by the records when absent.
            seconds: how long solving may take, about.
            progress: of solving.
            who: does this.
            key: asked again under the same, it answers as before.
            why: what speaks against the present model, where this is offered by a server and nobody asked for it.
            before: the digest of the model that is to be fitted anew; the one in use when absent.

        Raises:
            InvalidInput: no arm was seen at two steps, or nobody takes part.
            Conflict: another model came into use than the one that is to be fitted anew.
        """
        asked = [check_trust(trust), prior, seconds]
        with self.store.reading() as tx:
            if (earlier := ledger.answered(tx, key, "refit", asked)) is not None:
                return Refitted.of(earlier)
            row = tx.execute(select(schema.programme)).one()
            if before not in (None, row.model):
                raise Conflict("the model that was to be fitted anew is no longer in use")
            model, words = self._model(tx, row.model)
            arms, step = self._present(tx), present_step(tx)
            log = log_of(tx, words, roster.arms_as_of(tx), step)
            known = tuple(know(tx, words, arms, step))
            inputs = self._inputs(tx, None, None)
            now = None if inputs is None else self._decide(tx, inputs)
        learned = learn(words, fit_families(words, log, prior, int(row.seed)), trust)
        problem = _of(learned.model, arms, row.welfare)
        solution = solve(problem, method=METHOD, seconds=seconds, progress=progress, rng=int(row.seed))
        digest = model_to_bytes(learned.model)[0]
        then = decide(
            plan_of(solution),
            Inputs(step, digest, "", int(row.seed), tuple(model.budget.tolist()), known, 0),
            Words(learned.model),
        )
        pairs = [] if now is None else list(zip(now.rows, then.rows, strict=True))
        changed = [[old.arm, old.action, new.action] for old, new in pairs if old.action != new.action]
        worth = [self._worth_in(inputs, arms, problem), solution.welfare]
        told = {"before": row.model, "model": digest, "rows": len(log), "plan": changed, "welfare": worth}
        told |= {"why": list(why)}
        with self.store.writing() as tx:
            answer = once(tx, key, "refit", asked, lambda: _keep(tx, learned, solution, arms, told, who))[0]
            return Refitted.of(answer)

    def _worth_in(self, inputs: Inputs | None, arms: list[Arm], problem: CoupledMDP) -> float | None:
        """What the present policy is worth in another model; None where there is none, or types fell together."""
        if inputs is None:
            return None
        with self.store.reading() as tx:
            plan, present = self._policy(tx, inputs.policy), self._problem(tx, arms, inputs.model)
        if not np.array_equal(present.type_of_block, problem.type_of_block):
            return None
        return evaluate(rebuilt(plan.fitted(present), problem), problem, None, EPISODES, None, 0).welfare

    def adopt(self, refit: int, *, who: str = "", key: str | None = None) -> Refitted:
        """Run the programme by a model that was fitted; plans from now on are made by it.

        A model that was in use before may be adopted again, which is the way back; the one that the programme began
        with is number 0.

        Args:
            refit: its number.
            who: does this.
            key: asked again under the same, it answers as before.

        Raises:
            Missing: there is none of this number.
            Conflict: it is in use already, or was never in use and the model has changed since it was fitted.
        """
        with self.store.writing() as tx:

            def do() -> dict[str, Any]:
                present = tx.execute(select(schema.programme.c.model)).scalar_one()
                facts, last = _adoptable(tx, refit, present)
                if present == facts["model"]:
                    raise Conflict(_IN_USE.format(refit) + (f" (event {last})" if last else ""))
                if refit and last is None and present != facts["before"]:
                    raise Conflict(f"refit {refit} was compared with another model than the present one. Refit again")
                event = append(tx, "adopted", who, {"refit": refit, "before": present, "model": facts["model"]})
                change_rows(tx, schema.programme, [{"id": 1, "model": facts["model"], "model_event": event}])
                if refit:
                    change_rows(tx, schema.refits, [{"id": refit, "adopted_event": event}])
                return facts | {"adopted_event": event}

            return Refitted.of(once(tx, key, "adopt", [refit], do)[0])

    def refits(self) -> list[Refitted]:
        """Every refit, the newest first."""
        table = schema.refits
        with self.store.reading() as tx:
            asked = select(table.c.facts_json, table.c.adopted_event, table.c.declined_event)
            return [_told(row) for row in tx.execute(asked.order_by(table.c.id.desc()))]

    def posteriors(self, refit: int) -> list[Named]:
        """What a refit knows of the transitions: one posterior for each set of types with the same states and actions.

        Args:
            refit: its number; nothing is known any more of those that the first version of the schema kept.
        """
        with self.store.reading() as tx:
            kept = refit_row(tx, refit).posterior
            return [] if kept is None else unpack(kept)


def _told(row: Any) -> Refitted:
    now = {"adopted_event": row.adopted_event, "declined_event": row.declined_event}
    return Refitted.of(json.loads(row.facts_json) | now)


def _of(model: CoupledMDP, arms: list[Arm], welfare: str | None) -> CoupledMDP:
    blocks = Words(model).blocks
    return of_roster(model, [blocks[arm.type, arm.group] for arm in arms], welfare)


def _keep(
    tx: Connection, learned: Learned, solution: Solution, arms: list[Arm], told: dict[str, Any], who: str
) -> dict[str, Any]:
    """Write a refit with its model and its policy."""
    table, models = schema.refits, schema.models
    digest, body = model_to_bytes(learned.model)
    number = int(tx.execute(select(func.max(table.c.id))).scalar() or 0) + 1
    event = append(tx, "refitted", who, {"refit": number, **told})
    at = ledger.now()
    if tx.execute(select(models.c.digest).where(models.c.digest == digest)).first() is None:
        row = {"digest": digest, "body": body, "origin": f"refit {number}", "at": at, "event": event}
        add_rows(tx, models, [row])
    policy, saved = to_bytes(solution)
    keep_policy(tx, policy, digest, saved, numbers_of(arms), facts_of(solution, policy, numbers_of(arms)), who)
    found = Refitted.of(
        told
        | {"id": number, "event": event, "policy": policy, "likelihood": _possible(learned.likelihood)}
        | {"moved": [vars(row) for row in learned.moved], "unseen": learned.unseen}
    ).as_dict()
    kept: dict[str, Any] = {"model": digest, "facts_json": ledger.as_text(found), "posterior": learned.posterior}
    kept |= {"replaces": told["before"], "why": ledger.as_text(told["why"]) if told["why"] else None}
    add_rows(tx, table, [{"id": number, "at": at, "event": event} | kept])
    return found


def _possible(likelihood: tuple[float, float]) -> list[float | None]:
    """Log-likelihoods as JSON can hold them: none of what cannot be."""
    return [value if np.isfinite(value) else None for value in likelihood]


_IN_USE = "refit {} was adopted already, and is in use"


def _adoptable(tx: Connection, refit: int, present: str) -> tuple[dict[str, Any], int | None]:
    """What is known of a refit, and the event by which it was adopted last; the first model counts as number 0."""
    if refit == 0 and not isinstance(refit, bool):
        first = select(schema.models.c.digest).where(schema.models.c.origin == "created")
        return beginning(tx.execute(first).scalar_one(), present).as_dict(), None
    row = refit_row(tx, refit)
    return json.loads(row.facts_json), row.adopted_event


def refit_row(tx: Connection, refit: object) -> Any:
    """A refit as it is kept.

    Raises:
        Missing: there is none of this number.
    """
    table = schema.refits
    known = isinstance(refit, int) and not isinstance(refit, bool) and 0 < refit < 2**31
    row = tx.execute(select(table).where(table.c.id == refit)).first() if known else None
    if row is None:
        raise Missing(f"refit: there is no refit {refit!r}")
    return row
