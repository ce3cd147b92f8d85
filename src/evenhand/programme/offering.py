"""What a programme does about drift: bounds, whether the model still fits, and fits that are offered and declined.

A fit is *offered* by a server that found that the model no longer fits (`drifting`). Nothing is adopted by that: a
person adopts it, or declines it with a reason, after which only what is seen later is held against the model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from evenhand.errors import Conflict
from evenhand.programme import ledger, roster, schema
from evenhand.programme.drifting import Bounds, ModelDrift, bounds_of, check_bounds, judge, moves_since
from evenhand.programme.learning import Learning, refit_row
from evenhand.programme.ledger import append, change_rows, check_text, once
from evenhand.programme.refitting import Refitted
from evenhand.programme.roster import present_step
from evenhand.typing import Progress


@dataclass(frozen=True)
class Offer:
    """A fit that is offered, and neither adopted nor declined."""

    refit: int
    """Its number."""

    why: tuple[str, ...]
    """What spoke against the model in use."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"refit": self.refit, "why": list(self.why)}


@dataclass(frozen=True)
class Question:
    """That a model is to be held against what is seen: the same for all servers of a programme."""

    model: str
    """The digest of the model."""

    since: int
    """The event since which it is held against what is seen."""

    number: int
    """How often as many reports came as `Bounds.records` says."""

    bounds: Bounds
    """Of the programme."""

    @property
    def key(self) -> str:
        """Under which a fit is offered: once, by however many servers, until it is adopted or declined."""
        return f"evenhand offers {self.model[:32]} since {self.since}"


class Offering(Learning):
    """Bounds of drift, and what comes of them."""

    def bounds(self) -> Bounds:
        """By how much things may drift."""
        with self.store.reading() as tx:
            return bounds_of(tx)

    def set_bounds(self, given: Mapping[str, Any], *, who: str = "", key: str | None = None) -> Bounds:
        """Say by how much things may drift; what is not named stays as it is.

        Args:
            given: any of `change`, `gap`, `level` and `records`, see `Bounds`.
            who: does this.
            key: asked again under the same, it answers as before.

        Raises:
            InvalidInput: with every fault.
        """
        with self.store.writing() as tx:

            def do() -> dict[str, Any]:
                found = check_bounds(bounds_of(tx).as_dict() | {n: v for n, v in given.items() if v is not None})
                append(tx, "bounded", who, found.as_dict())
                change_rows(tx, schema.programme, [{"id": 1, "bounds_json": ledger.as_text(found.as_dict())}])
                return found.as_dict()

            return Bounds(**once(tx, key, "bounds", dict(given), do)[0])

    def question(self) -> Question | None:
        """Whether the model is to be held against what is seen; None while reports are few, or a fit is offered."""
        with self.store.reading() as tx:
            bounds = bounds_of(tx)
            model, since, reports = _since(tx)
            if reports < bounds.records or _offer(tx) is not None:
                return None
            return Question(model, since, reports // bounds.records, bounds)

    def model_drift(self, most: int | None = None) -> ModelDrift:
        """Whether the model in use still fits what is seen since it came into use; see `programme.drifting`.

        Args:
            most: nothing is tested where there are more reports, for it takes a second for every 20 000 or so.
        """
        with self.store.reading() as tx:
            bounds, words = bounds_of(tx), self._model(tx)[1]
            _, since, reports = _since(tx)
            enough = bounds.records <= reports and (most is None or reports <= most)
            moves = moves_since(tx, words, roster.arms_as_of(tx), present_step(tx), since) if enough else None
        return judge(moves, words, reports, bounds)

    def offer_refit(
        self, *, seconds: float | None = None, progress: Progress | bool | None = None, who: str = ""
    ) -> tuple[ModelDrift, Refitted | None]:
        """Fit the model anew where it no longer fits, and offer what came of it; nothing is adopted.

        Args:
            seconds: how long solving may take, about.
            progress: of solving.
            who: does this.

        Returns:
            What speaks against the model, and the fit; None where nothing is offered.

        Raises:
            Conflict: another model came into use meanwhile, of which nothing is known yet.
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
        with self.store.reading() as tx:
            return _offer(tx)

    def decline(self, refit: int, why: str, *, who: str = "", key: str | None = None) -> Refitted:
        """Say that a fit that is offered is not to be adopted; only what is seen later is held against the model then.

        Args:
            refit: its number.
            why: a reason.
            who: does this.
            key: asked again under the same, it answers as before.

        Raises:
            Missing: there is none of this number.
            Conflict: it is not offered, or no longer.
        """
        reason = check_text(why, "why")
        with self.store.writing() as tx:

            def do() -> dict[str, Any]:
                row, open_one = refit_row(tx, refit), _offer(tx)
                if open_one is None or open_one.refit != refit:
                    raise Conflict(f"refit {refit} is not offered, or no longer: there is nothing to decline")
                event = append(tx, "declined", who, {"refit": refit, "why": reason})
                change_rows(tx, schema.programme, [{"id": 1, "model_event": event}])
                change_rows(tx, schema.refits, [{"id": refit, "declined_event": event}])
                facts: dict[str, Any] = json.loads(row.facts_json)
                return facts | {"declined_event": event}

            return Refitted.of(once(tx, key, "decline", [refit, reason], do)[0])


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
