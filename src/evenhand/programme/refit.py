"""Refits of the model to the programme's own log of states and actions: refit, compare, adopt or decline.

A row of the log is an arm at a step at which it was seen, with what was done then: what was recorded, else what was
accepted, else idling. Steps at which an arm was not seen are summed out as `evenhand.fit` does it, which takes them to
be idle; where an arm was served unseen, the log is cut there, and nothing is learned from that gap. Types with the same
names of states and actions are fitted together, so that sparse rows lean on the other types.

The present model counts as some observations of every pair (`TRUST`): a row that was seen n times becomes

    Dirichlet(counts and prior of the fit + trust p)      where steps were not missed, whatever is leaned on
    (n drawn + trust p) / (n + trust)                     for each draw of the posterior, where gaps were summed out

with p the present row, so that one odd observation does not overturn a model.

Only transitions are learned. Pairs (state, action) that no arm of a type was seen to leave stay as they are in the
present model; rewards, usage, budget, initial distributions and names stay as they are, too.

A server *proposes* a refit if the drift test rejects the model (`drift_test`). Nothing is adopted by that: a planner
adopts it, or declines it with a reason, after which the test uses only later observations.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from evenhand.checks import is_number
from evenhand.errors import ConflictError, InvalidInputError
from evenhand.evaluation.evaluate import evaluate
from evenhand.fitting import Dirichlet, Drawn, FitResult, LogOptions, log_likelihood
from evenhand.fitting.fit import fit
from evenhand.fitting.posterior import Pooled, Posterior
from evenhand.model import CoupledMDP
from evenhand.planning import SolveMethod, plan_of
from evenhand.planning.plan_file import rebuilt
from evenhand.planning.solve import solve
from evenhand.programme import ledger, roster, schema
from evenhand.programme.belief import done_between, know
from evenhand.programme.certificates import METHOD, policy_of
from evenhand.programme.cycle import Cycle, store_policy
from evenhand.programme.decisions import Inputs, decide
from evenhand.programme.drift_test import DriftBounds, ModelDrift, bounds_of, check_bounds, judge, moves_since
from evenhand.programme.library import Library
from evenhand.programme.named_model import Words, of_roster
from evenhand.programme.named_model import to_bytes as model_to_bytes
from evenhand.programme.reports import last_observations
from evenhand.typing import Bools, Floats, Ints, Progress

TRUST = 10.0
"""Observations of every pair that the present model counts as, by default."""

ENOUGH = 10
"""Times that a pair is to be seen before a difference is called beyond chance.

An interval leans on the other types and on the form of the prior: from one or two observations it may leave out the
present model, or a next state that the present model excludes, by no more than that."""


@dataclass(frozen=True)
class Moved:
    """One probability, before and after."""

    type: str
    state: str
    action: str
    next_state: str
    before: float
    after: float
    lower: float
    """Lower end of the 95 % credible interval."""

    upper: float
    """Upper end of the interval."""

    seen: int
    """Number of observed transitions from this state under this action."""

    @property
    def is_beyond_chance(self) -> bool:
        """The present model lies outside the interval, given enough observations (`ENOUGH`)."""
        return self.seen >= ENOUGH and not self.lower - 1e-9 <= self.before <= self.upper + 1e-9


@dataclass(frozen=True)
class Refitted(ledger.Result):
    """A model fitted to the programme's own log, and what it would change."""

    id: int
    """Its number; `Programme.adopt` takes it."""

    event: int
    before: str
    """The digest of the model that it would replace."""

    model: str
    """The digest of the new model."""

    policy: str
    """The digest of a policy that was solved for it."""

    rows: int
    """Rows of the log: arms that were seen at a step."""

    likelihood: tuple[float | None, float | None]
    """The log-likelihood of the log under the present model, and under the new one; None where a model says that what
    was recorded cannot be."""

    moved: tuple[Moved, ...]
    """Every probability of a pair that was seen, before and after."""

    unseen: tuple[tuple[str, str, str], ...]
    """(type, state, action) pairs that were never seen, and stay as they are."""

    plan: tuple[tuple[str, str, str], ...]
    """(arm, action now, action then) what would change in a plan of the present step."""

    welfare: tuple[float | None, float | None]
    """What the present policy is worth in the new model, None where it cannot be played there; and what the new one
    is."""

    adopted_event: int | None = None
    """The event by which it was adopted; None where it was not."""

    why: tuple[str, ...] = ()
    """Evidence against the model in use, if a server proposed the refit; else empty."""

    declined_event: int | None = None
    """The event by which it was declined; None where it was not."""


@dataclass(frozen=True)
class Offer(ledger.Result):
    """A proposed refit that is neither adopted nor declined."""

    refit: int
    """Its number."""

    why: tuple[str, ...]
    """Evidence against the model in use."""


@dataclass(frozen=True)
class Question:
    """A drift test that is due, the same for all servers of a programme."""

    model: str
    """The digest of the model."""

    since: int
    """The event since which observations are tested."""

    number: int
    """Number of completed batches of `DriftBounds.records` reports."""

    bounds: DriftBounds
    """Bounds of the programme."""

    @property
    def key(self) -> str:
        """Idempotency key of the refit: proposed once, by however many servers, until it is adopted or declined."""
        return f"evenhand offers {self.model[:32]} since {self.since}"


# The log


def log_of(tx: Connection, words: Words, arms: Sequence[roster.RosterArm], step: int) -> list[dict[str, Any]]:
    """Return observations and actions up to a step as rows of a log; an arm served unseen continues as another.

    Args:
        tx: a transaction.
        words: of the model.
        arms: every arm that ever joined.
        step: the present one.
    """
    seen = last_observations(tx, step)
    done = done_between(tx, [arm.id for arm in arms], 0, step)
    log = []
    for arm in arms:
        block = words.blocks[arm.type, arm.group]
        idle, last, part = words.idle_name(block), step, 0
        for at, (state, _) in seen.get(arm.id, {}).items():
            part += any(done.get((arm.id, gap), idle) != idle for gap in range(last + 1, at))
            action = done.get((arm.id, at), idle) if at < step else None
            name = f"{arm.id}.{part}"
            log.append({"arm": name, "step": at, "state": state, "action": action, "type": words.fit_types[block]})
            last = at
    return log


# The fit


def fit_families(
    words: Words, log: Sequence[Mapping[str, Any]], prior: float | None, seed: int
) -> list[tuple[list[int], FitResult]]:
    """Fit blocks whose states and actions have the same names together; those without moves are left out.

    Args:
        words: of the model.
        log: from `log_of`.
        prior: how many observations the other types are worth to a row; by default found by the records.
        seed: of what is drawn.

    Raises:
        InvalidInputError: no arm was seen twice.
    """
    families: dict[Any, list[int]] = defaultdict(list)
    for block in range(len(words.fit_types)):
        families[words.states[block], words.actions[block], words.idle_name(block)].append(block)
    found = []
    for (states, _, idle), blocks in families.items():
        own = {words.fit_types[block] for block in blocks}
        rows = [row for row in log if row["type"] in own]
        if len({row["arm"] for row in rows}) < len(rows):
            options = LogOptions(states=list(states), idle=idle, step=1, layout="snapshots")
            columns: dict[str, Any] = {"time": "step"} | {name: name for name in ("arm", "state", "action", "type")}
            found.append((blocks, fit(rows, **columns, prior=prior, records=options, rng=seed)))
    if not found:
        raise InvalidInputError("there is nothing to learn from yet: no arm was seen twice")
    return found


class Learned(NamedTuple):
    """The refitted model beside the present one."""

    model: CoupledMDP
    moved: list[Moved]
    unseen: list[tuple[str, str, str]]
    likelihood: tuple[float, float]


def lean(posterior: Posterior, present: Floats, seen: Ints, trust: float) -> Posterior:
    """A posterior that also knows the present model, as if it was some observations of every pair.

    Args:
        posterior: of a fit.
        present: (type, state, action, next_state) the present transitions.
        seen: (type, state, action) how often pairs were seen.
        trust: how many observations the present model is worth.
    """
    if trust == 0:
        return posterior
    if isinstance(posterior, Pooled):
        return posterior.with_more(trust * present)
    if isinstance(posterior, Dirichlet):
        return replace(posterior, concentration=posterior.concentration + trust * present)
    assert isinstance(posterior, Drawn)
    share = (seen / (seen + trust))[..., None]
    rest = (1 - share) * present
    return Drawn(share * posterior.mean + rest, share * posterior.draws + rest)


def learn(words: Words, families: Sequence[tuple[list[int], FitResult]], trust: float) -> Learned:
    """The model with what the families say, beside the present one.

    Args:
        words: of the present model.
        families: from `fit_families`.
        trust: how many observations of every pair the present model is worth.
    """
    tables = words.model.tables
    transitions, likelihood = np.array(tables.transitions), np.zeros(2)
    moved: list[Moved] = []
    unseen: list[tuple[str, str, str]] = []
    for family, fitted in families:
        log, moves = fitted.log, fitted.moves
        size, names = len(log.states), words.actions[family[0]]
        actions = [names.index(name) for name in log.actions]
        first = [words.fit_types.index(label) for label in log.types]
        present = np.asarray(tables.transitions[first][:, :size][:, :, actions][..., :size])
        unknown = moves.unseen | np.isnan(fitted.posterior.mean).any(axis=-1)
        posterior = lean(fitted.posterior, present, moves.departures, trust).settled(present, unknown)
        for block in family:
            if words.fit_types[block] in log.types:
                rows = posterior.mean[log.types.index(words.fit_types[block])]
                for place, action in enumerate(actions):
                    valid = tables.valid[block, :size, action]
                    transitions[block, :size, action, :size][valid] = rows[valid, place]
        moved += _moved(fitted, posterior, present, unknown)
        pairs = np.argwhere(unknown & tables.valid[first][:, :size][:, :, actions]).tolist()
        unseen += [(log.types[t], log.states[s], log.actions[a]) for t, s, a in pairs]
        strange = [name for name in names if name not in log.actions]
        unseen += [(kind, state, name) for kind in log.types for state in log.states for name in strange]
        likelihood += log_likelihood(moves, present), log_likelihood(moves, posterior.mean)
    model = replace(words.model, arms=replace(tables, transitions=transitions))
    return Learned(model, moved, unseen, (float(likelihood[0]), float(likelihood[1])))


def _moved(fitted: FitResult, posterior: Posterior, present: Floats, unknown: Bools) -> Iterator[Moved]:
    """Every probability of a pair that was seen, to six digits."""
    log, seen = fitted.log, fitted.moves.departures
    numbers = [np.round(table, 6) for table in (present, posterior.mean, *posterior.interval())]
    for t, s, a, n in np.argwhere(~unknown[..., None] & ((posterior.mean > 0) | (present > 0))).tolist():
        before, after, lower, upper = (float(table[t, s, a, n]) for table in numbers)
        names = (log.types[t], log.states[s], log.actions[a], log.states[n])
        yield Moved(*names, before, after, lower, upper, seen=int(seen[t, s, a]))


# Refits and drift


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
            InvalidInputError: no arm was seen twice, or no arm takes part.
            ConflictError: another model came into use than the one that is to be refitted.
        """
        if not is_number(trust) or not 0 <= float(trust) < np.inf:
            raise InvalidInputError(f"trust: expected a number from 0, got {trust!r}")
        request = [float(trust), prior, seconds]
        with self._store.reading() as tx:
            if (earlier := ledger.answered(tx, key, "refit", request)) is not None:
                return Refitted.of(earlier)
            row = tx.execute(select(schema.programme)).one()
            if before not in (None, row.model):
                raise ConflictError("the model was replaced during the refit")
            model, words = self._library.model(tx, row.model)
            arms, step = self._library.present(tx), roster.present_step(tx)
            log = log_of(tx, words, roster.arms_as_of(tx), step)
            known = know(tx, words, arms, step)
            inputs = self._cycle.inputs(tx, None, None)
            now = None if inputs is None else self._cycle.decide(tx, inputs)
            welfare, terms = self._library.welfare(tx), self._library.terms_digest(tx)
        learned = learn(words, fit_families(words, log, prior, int(row.seed)), trust)
        problem = of_roster(learned.model, Words(learned.model).blocks_of(arms), welfare)
        solution = solve(problem, method=SolveMethod(METHOD, seconds=seconds), progress=progress, rng=int(row.seed))
        digest, budget = model_to_bytes(learned.model)[0], model.budget.tolist()
        supposed = Inputs(step, digest, "", int(row.seed), budget, known, 0)
        then = decide(plan_of(solution), supposed, Words(learned.model))
        pairs = [] if now is None else list(zip(now.rows, then.rows, strict=True))
        changed = [
            [ledger.of_arm(int(old.arm)), old.action, new.action] for old, new in pairs if old.action != new.action
        ]
        worth = [self._worth_in(inputs, arms, problem), solution.welfare]
        content = {"before": row.model, "model": digest, "rows": len(log), "plan": changed, "welfare": worth}
        content["why"], policy = list(why), policy_of(solution, arms, terms)
        return self._library.change(
            Refitted, "refit", request, key, lambda tx: _store(tx, learned, policy, content, who)
        )

    def _worth_in(self, inputs: Inputs | None, arms: list[roster.RosterArm], problem: CoupledMDP) -> float | None:
        """Return the welfare of the policy in use under another model; None if it cannot be evaluated."""
        if inputs is None:
            return None
        with self._store.reading() as tx:
            plan, present = self._library.policy(tx, inputs.policy), self._library.problem(tx, arms, inputs.model)
        if not np.array_equal(present.type_of_block, problem.type_of_block):
            return None
        return evaluate(problem, rebuilt(plan.fitted(present), problem), None, 200, None, 0).welfare

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

        def do(tx: Connection) -> Refitted:
            present = tx.execute(select(schema.programme.c.model)).scalar_one()
            if refit == 0 and not isinstance(refit, bool):
                first = tx.execute(select(schema.models.c.digest).where(schema.models.c.origin == "created"))
                found = Refitted(0, 1, present, first.scalar_one(), "", 0, (None, None), (), (), (), (None, None))
            else:
                found = _stored(tx, ledger.find_row(tx, schema.refits, refit, "refit"))
            if present == found.model:
                raise ConflictError(f"refit {refit} was adopted already, and is in use")
            if refit and found.adopted_event is None and present != found.before:
                raise ConflictError(f"refit {refit} was compared with another model than the present one. Refit again")
            event = ledger.append(tx, "adopted", who, {"refit": refit, "before": present, "model": found.model})
            ledger.change_rows(tx, schema.programme, [{"id": 1, "model": found.model, "model_event": event}])
            if refit:
                ledger.change_rows(tx, schema.refits, [{"id": refit, "adopted_event": event}])
            return replace(found, adopted_event=event)

        return self._library.change(Refitted, "adopt", [refit], key, do)

    def refits(self) -> list[Refitted]:
        """Every refit, the newest first."""
        with self._store.reading() as tx:
            return [_stored(tx, row) for row in tx.execute(select(schema.refits).order_by(schema.refits.c.id.desc()))]

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

        def do(tx: Connection) -> DriftBounds:
            found = check_bounds(bounds_of(tx).to_dict() | {n: v for n, v in given.items() if v is not None})
            ledger.append(tx, "bounded", who, found.to_dict())
            ledger.change_rows(tx, schema.programme, [{"id": 1, "bounds_json": ledger.as_text(found.to_dict())}])
            return found

        return self._library.change(DriftBounds, "bounds", dict(given), key, do)

    def question(self) -> Question | None:
        """Return the drift test that is due; None while reports are few, or a refit is proposed."""
        with self._store.reading() as tx:
            bounds = bounds_of(tx)
            model, since, reports = _since(tx)
            if reports < bounds.records or offer_of(tx) is not None:
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
            moves = moves_since(tx, words, roster.arms_as_of(tx), roster.present_step(tx), since) if enough else None
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
            return offer_of(tx)

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
        reason = ledger.check_text(why, "why")

        def do(tx: Connection) -> Refitted:
            found, open_one = _stored(tx, ledger.find_row(tx, schema.refits, refit, "refit")), offer_of(tx)
            if open_one is None or open_one.refit != refit:
                raise ConflictError(f"refit {refit} is not offered, or no longer: there is nothing to decline")
            event = ledger.append(tx, "declined", who, {"refit": refit, "why": reason})
            ledger.change_rows(tx, schema.programme, [{"id": 1, "model_event": event}])
            ledger.change_rows(tx, schema.refits, [{"id": refit, "declined_event": event}])
            return replace(found, declined_event=event)

        return self._library.change(Refitted, "decline", [refit, reason], key, do)


def _stored(tx: Connection, row: Any) -> Refitted:
    """A refit from its row."""
    events = {"adopted_event": row.adopted_event, "declined_event": row.declined_event}
    return Refitted.of(ledger.named(tx, row.facts_json)[0] | events)


def _store(
    tx: Connection, learned: Learned, policy: tuple[bytes, dict[str, Any]], content: dict[str, Any], who: str
) -> Refitted:
    """Write a refit with its model and its policy."""
    table, models = schema.refits, schema.models
    digest, body = model_to_bytes(learned.model)
    number = ledger.next_id(tx, table)
    event = ledger.append(tx, "refitted", who, {"refit": number, **content})
    written = {"at": ledger.now(), "event": event}
    if tx.execute(select(models.c.digest).where(models.c.digest == digest)).first() is None:
        ledger.add_rows(tx, models, [{"digest": digest, "body": body, "origin": f"refit {number}"} | written])
    store_policy(tx, digest, *policy, who)
    known = learned._asdict() | content | {"id": number, "event": event, "policy": policy[1]["certificate"]["policy"]}
    facts = ledger.as_text({one.name: ledger.plain(known[one.name]) for one in fields(Refitted) if one.name in known})
    found = Refitted.of(ledger.named(tx, facts)[0])
    stored = {"id": number, "model": digest, "facts_json": facts, "replaces": found.before}
    why = ledger.as_text(list(found.why)) if found.why else None
    ledger.add_rows(tx, table, [stored | {"why": why} | written])
    return found


def _since(tx: Connection) -> tuple[str, int, int]:
    """The model, the event since which it is held against what is seen, and how many reports came since."""
    table = schema.observations
    row = tx.execute(select(schema.programme.c.model, schema.programme.c.model_event)).one()
    counted = [table.c.event > row.model_event, table.c.step >= 0, *schema.valid(table)]
    late = select(func.count()).select_from(table).where(*counted)
    return str(row.model), int(row.model_event), int(tx.execute(late).scalar_one())


def offer_of(tx: Connection) -> Offer | None:
    """The refit that is proposed for the model in use; None without one."""
    table = schema.refits
    model = select(schema.programme.c.model).scalar_subquery()
    closed = table.c.adopted_event.is_not(None) | table.c.declined_event.is_not(None)
    query = select(table.c.id, table.c.why).where(table.c.why.is_not(None), ~closed, table.c.replaces == model)
    row = tx.execute(query.order_by(table.c.id.desc()).limit(1)).first()
    return None if row is None else Offer(int(row.id), tuple(json.loads(row.why)))
