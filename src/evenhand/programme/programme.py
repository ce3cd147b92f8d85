"""A running programme: its operations as methods, each one transaction and one event.

    create → (join | leave | observe)* → plan → accept → record → observe → plan → ...

Tables are given as a file's name, a data frame, a list of rows or a table of columns; all faults of
one are raised at once, and nothing of it is stored. Every write takes an idempotency `key` and an author `who`, which
is written into the event.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from evenhand.errors import Fault, InvalidInputError, ModelError, TableError
from evenhand.fitting import Named, load_posterior, matched, posterior_path
from evenhand.model import CoupledMDP, as_table, quoted, read_welfare
from evenhand.model.io import load
from evenhand.model.io.text_table import Table
from evenhand.model.welfare import DEFAULT
from evenhand.programme import ledger, past_records, reports, roster, schema
from evenhand.programme.audit import Audits, read_need
from evenhand.programme.certificates import Numbers
from evenhand.programme.changes import LastingChanges
from evenhand.programme.counterfactuals import Counterfactuals
from evenhand.programme.cycle import Cycle
from evenhand.programme.decisions import proposal
from evenhand.programme.drift_test import DriftBounds, bounds_of
from evenhand.programme.integrity import Head, differences, head_of, raise_differences
from evenhand.programme.ledger import Event, Result, add_rows, append, change_rows, check_text
from evenhand.programme.library import ROUTINE, Library
from evenhand.programme.named_model import Words, of_roster, settle, to_bytes
from evenhand.programme.records import Records
from evenhand.programme.refit import Offer, Refits, offer_of
from evenhand.programme.roster import Newcomer, RosterArm, present_step, read_newcomers
from evenhand.programme.safeguards import Safeguards
from evenhand.programme.settings import add_setting, closed_at, setting
from evenhand.programme.store import Store
from evenhand.programme.vocabulary import Vocabulary, vocabulary_of

MOST_SEED = 2**63 - 1
"""Largest seed."""


@dataclass(frozen=True)
class Changed(Result):
    """Result of arms joining or leaving."""

    event: int
    """The number of the event."""

    arms: tuple[str, ...]
    """Names of the arms."""

    step: int
    """The first step at which they take part, or no longer do."""


@dataclass(frozen=True)
class WordsSet(Result):
    """Result of a change of words."""

    event: int
    """The number of the event."""

    words: dict[str, Any]
    """All words, as `Vocabulary.read` accepts them."""


@dataclass(frozen=True)
class Status(Result):
    """Status of a programme."""

    name: str
    """Name."""

    step: int
    """The step that is to be planned next."""

    arms: dict[str, int]
    """Number of arms by type."""

    groups: dict[str, int]
    """Number of arms by group."""

    observed: int
    """Number of arms observed at this step."""

    budget: dict[str, float]
    """Budget per step."""

    welfare: str
    """Welfare."""

    criterion: str
    """Criterion."""

    over: str
    """Members of the welfare: `arms` or `groups`."""

    model: str
    """The digest of its model."""

    events: int
    """Number of events: the version of the store."""

    need: tuple[str, ...]
    """States of need that were set, in every type or as "type: state"; empty by default."""


@dataclass(frozen=True)
class Overview:
    """Status of a programme with what is open."""

    status: Status
    plan: int | None
    """The number of the plan that is proposed for the present step."""

    offer: Offer | None
    """The refit that is proposed."""

    bounds: DriftBounds


class Programme:
    """A running programme in its store.

    Its own methods are about the roster and observations; the others belong to seven parts, under the same names:

    `cycle`            solve, plan, accept (`Cycle`)
    `records`          what was done (`Records`)
    `audits`           audits and waiting times (`Audits`)
    `refitting`        refits of the model, drift, proposals (`Refits`)
    `safeguards`       erasure, second approvals, views (`Safeguards`)
    `counterfactuals`  the price of fairness and what-if plans (`Counterfactuals`)
    `changes`          lasting changes and undo (`LastingChanges`)

    Example:
        >>> import evenhand as eh
        >>> from evenhand.programme.programme import Programme
        >>> model = eh.problems.machine_replacement(num_arms=2)
        >>> roster = [{"arm": "north", "state": 0}, {"arm": "south", "state": 2}]
        >>> programme = Programme.create("depot.db", model, roster)
        >>> programme.observe([{"arm": "north", "state": 1}], source="inspection")
        Observed(event=2, observations=1, late=0, corrected=1, blank=0)
    """

    def __init__(self, store: Store) -> None:
        """Run the programme in an open store; `create` and `open` take an address."""
        self.store, self.library = store, Library(store)
        self.cycle = cycle = Cycle(self.library)
        self.solve, self.certificate, self.needs_solving = cycle.solve, cycle.certificate, cycle.needs_solving
        self.uncertified, self.learn_certificate = cycle.uncertified, cycle.learn_certificate
        self.present_problem = cycle.present_problem
        self.plan, self.plan_of, self.plans, self.recompute = cycle.plan, cycle.plan_of, cycle.plans, cycle.recompute
        self.current_plan, self.current_plan_number = cycle.current_plan, cycle.current_plan_number
        self.accept, self.changed_since = cycle.accept, cycle.changed_since
        self.records = records = Records(self.library)
        self.record, self.record_rest, self.recorded = records.record, records.record_rest, records.recorded
        self.num_recorded = records.num_recorded
        self.last_served, self.unrecorded = records.last_served, records.unrecorded
        self.counterfactuals = supposing = Counterfactuals(self.library, cycle)
        self.price_of_fairness, self.suppose = supposing.price_of_fairness, supposing.suppose
        self.changes = changes = LastingChanges(self.library, cycle)
        self.preview_change, self.change, self.undo = changes.preview_change, changes.change, changes.undo
        self.audits = audits = Audits(self.library)
        self.audit, self.books, self.in_need = audits.audit, audits.books, audits.in_need
        self.need, self.set_need = audits.need, audits.set_need
        self.refitting = refits = Refits(self.library, cycle)
        self.refit, self.adopt, self.decline, self.refits = refits.refit, refits.adopt, refits.decline, refits.refits
        self.offered, self.offer_refit = refits.offered, refits.offer_refit
        self.bounds, self.set_bounds = refits.bounds, refits.set_bounds
        self.question, self.model_drift = refits.question, refits.model_drift
        self.safeguards = guards = Safeguards(self.library)
        self.erase, self.approve = guards.erase, guards.approve
        self.note_view, self.views = guards.note_view, guards.views

    @classmethod
    def create(
        cls,
        address: str | Path,
        model: CoupledMDP | str | Path,
        roster: Any,
        *,
        welfare: str | None = None,
        name: str = "",
        seed: int = 0,
        words: Mapping[str, Any] | None = None,
        history: Any = None,
        need: Sequence[str] = (),
        posterior: Named | str | Path | None = None,
        who: str = "",
    ) -> "Programme":
        """Begin a programme; nothing is left behind where something is wrong.

        Args:
            address: the name of a new file, or `postgresql://...` of an empty database.
            model: a problem or its file; how many arms it has does not matter.
            roster: a table with the columns arm and type, and perhaps group and state.
            welfare: what is fair; by default the model's own.
            name: of the programme; by default that of its address.
            seed: of all draws.
            words: fields of `Vocabulary`: the programme's own words and its calendar.
            history: past records, as of `import_history`.
            need: states in which an arm is in need, as of `set_need`.
            posterior: posterior of a fitted model, whose numbers of observations reasons state; by default the file
                beside a model file, if the model is still its mean.
            who: author, written into the event.

        Raises:
            InvalidInputError: the model or the roster is not sound, or there is something at the address.
        """
        problem = model if isinstance(model, CoupledMDP) else load(model)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
            raise InvalidInputError(f"seed: expected a whole number from 0 to {MOST_SEED}, got {seed!r}")
        settled, chosen = settle(problem), welfare or problem.welfare
        vocabulary = Vocabulary.read(words or {}).check_resources(settled.resource_names)
        newcomers, blocks = read_newcomers(settled, vocabulary.columns(as_table(roster))), Words(settled).blocks
        read_welfare(of_roster(settled, [blocks[new.type, new.group] for new in newcomers]), chosen)
        past = None
        if history is not None:
            arms = [RosterArm(id, new.name, new.type, new.group, 0, None, None) for id, new in enumerate(newcomers, 1)]
            table = _past_table(vocabulary.columns(as_table(history)))
            past = past_records.read_past(table, arms, Words(settled), vocabulary)
        states = read_need(Words(settled), need)
        evidence = _observations(problem, model if posterior is None else posterior)
        called = check_text(name or _called(address), "name")
        programme = cls(Store.create(address))
        digest, body = to_bytes(settled)
        at = ledger.now()
        row = {"id": 1, "name": called, "model": digest, "welfare": chosen, "seed": seed, "created_at": at}
        with programme.store.making() as tx:
            add_rows(tx, schema.models, [{"digest": digest, "body": body, "origin": "created", "at": at, "event": 1}])
            add_rows(tx, schema.programme, [row | {"last_event": 0, "model_event": 1, "version": schema.VERSION}])
            content = {"name": called, "welfare": chosen, "seed": seed, "arms": _body(tx, newcomers)}
            event = append(tx, "created", who, content)  # after the row that counts events; its rows belong to it, too
            _join(tx, newcomers, 0, event)
            add_setting(tx, "words", vocabulary.to_dict(), 0, event)
            if states:
                add_setting(tx, "need", states, 0, event)
            if evidence is not None:
                add_setting(tx, "evidence", evidence, 0, event)
            if past is not None:
                past.store(tx, "history", who)
        return programme

    @classmethod
    def open(cls, address: str | Path) -> "Programme":
        """A programme that was begun before.

        Args:
            address: the name of its file, or `postgresql://...`.

        Raises:
            InvalidInputError: there is none, or it is of a newer version.
            UnavailableError: the database cannot be reached.
        """
        return cls(Store.open(address))

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> "Programme":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Looking

    def status(self) -> Status:
        """Return the status."""
        return self.overview().status

    def present_step(self) -> int:
        """Return the step that is planned next."""
        with self.store.reading() as tx:
            return present_step(tx)

    def overview(self) -> Overview:
        """Return the status with the open plan, the proposed refit and the bounds of drift, all of one moment."""
        with self.store.reading() as tx:
            return self.library.remember(tx, "overview", lambda: self._overview(tx))

    def _overview(self, tx: Connection) -> Overview:
        step = present_step(tx)
        plan = proposal(tx, step)
        return Overview(self._status(tx, step), None if plan is None else int(plan.id), offer_of(tx), bounds_of(tx))

    def _status(self, tx: Connection, step: int) -> Status:
        row = tx.execute(select(schema.programme)).one()
        model, _ = self.library.model(tx)
        table = schema.observations
        seen = select(table.c.arm).where(table.c.step == step, *schema.valid(table)).distinct()
        present = {arm.id for arm in self.library.taking_part(tx, step)}
        types, groups = Counter[str](), Counter[str]()
        for kind, group, many in self.library.numbers(tx):
            types[kind] += many
            groups[group] += many
        return Status(
            name=row.name,
            step=step,
            arms=dict(sorted(types.items())),
            groups=dict(sorted(groups.items())),
            observed=sum(arm in present for (arm,) in tx.execute(seen)),
            budget=model.named_budget,
            welfare=self.library.welfare(tx) or DEFAULT,
            criterion=model.criterion.name,
            over=model.over,
            model=row.model,
            events=row.last_event,
            need=tuple(setting(tx, "need", step) or ()),
        )

    def arms(self, step: int | None = None, gone: bool = False, names: Sequence[str] = ()) -> list[RosterArm]:
        """Arms that take part.

        Args:
            step: at this step; by default the present one.
            gone: also the arms that take part no longer, or not yet.
            names: only arms of these names; by default of any.
        """
        with self.store.reading() as tx:
            if gone:
                return roster.arms_as_of(tx, names=names) if names else self._all_arms(tx)
            found = self.library.taking_part(tx, present_step(tx) if step is None else roster.check_step(step))
            return [arm for arm in found if arm.name in names] if names else found

    def _all_arms(self, tx: Connection) -> list[RosterArm]:
        return self.library.remember(tx, "arms", lambda: roster.arms_as_of(tx), present_step(tx), ROUTINE)

    def numbers(self) -> Numbers:
        """The number of arms of each type and group at the present step."""
        with self.store.reading() as tx:
            return self.library.numbers(tx)

    def history(self, arm: str, groups: Collection[str] | None = None) -> list[reports.HistoryEntry]:
        """All that happened to an arm, in the order in which it was written down, and what was expected.

        Args:
            arm: its name; of one that left and came back, everything.
            groups: only of arms that are or were last in these groups; by default in any.
        """
        with self.store.reading() as tx:
            arms, words = roster.arms_named(tx, [arm]), self.library.model(tx)[1]
            arms = [one for one in arms if groups is None or one.group in groups]
            name = roster.find_names(arms, [arm])[0].name
            return reports.history_of(tx, words, [one for one in arms if one.name == name], present_step(tx))

    def model(self) -> CoupledMDP:
        """The present model, with a name for every block; how many arms it has means nothing."""
        with self.store.reading() as tx:
            return self.library.model(tx)[0]

    def events(self, after: int = 0, most: int | None = None) -> list[Event]:
        """Return events.

        Args:
            after: only events with a larger number.
            most: at most so many.
        """
        with self.store.reading() as tx:
            return ledger.events(tx, after, most)

    def last_erasure(self) -> int:
        """Return the number of the last event by which arms were erased; 0 if there is none."""
        query = select(func.max(schema.events.c.id)).where(schema.events.c.kind == "erased")
        with self.store.reading() as tx:
            return self.library.remember(tx, "erasure", lambda: tx.execute(query).scalar() or 0, None, ROUTINE)

    def verify(self, head: Head | None = None) -> Head:
        """Rebuild every table from the chain of events and compare; return the head of the chain.

        Cutting the last events, and rewriting events with all digests, leaves a programme that agrees with itself: only
        a head that was stored elsewhere shows it.

        Args:
            head: exported earlier; the chain must still contain it.

        Raises:
            InvalidInputError: something differs; `faults` has each table, key and column.
        """
        with self.store.reading() as tx:
            raise_differences(self.store.address, differences(tx, head))
            return head_of(tx)

    def vocabulary(self) -> Vocabulary:
        """Return the words and the calendar of the programme."""
        with self.store.reading() as tx:
            return self.library.vocabulary(tx)

    # Changing

    def set_words(self, words: Mapping[str, Any], *, who: str = "", key: str | None = None) -> Vocabulary:
        """Change words or the calendar; fields that are not given stay.

        Args:
            words: fields of `Vocabulary`.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: with every fault.
        """

        def do(tx: Connection) -> WordsSet:
            read = Vocabulary.read({**setting(tx, "words", 0), **words})
            found = read.check_resources(self.library.model(tx)[0].resource_names).to_dict()
            event = append(tx, "worded", who, found)
            add_setting(tx, "words", found, 0, event)
            return WordsSet(event, found)

        return Vocabulary.read(self.library.change(WordsSet, "words", dict(words), key, do).words)

    def join(self, rows: Any, step: int | None = None, *, who: str = "", key: str | None = None) -> Changed:
        """Let arms take part.

        Args:
            rows: a table with the columns arm and type, and perhaps group and state.
            step: the first at which they do; by default the present one.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            TableError: with every fault and its row.
        """
        table = roster.read_rows(self.library.table(rows), "roster", ["arm"])
        request = [table.columns, step]

        def read(tx: Connection) -> list[Newcomer]:
            return read_newcomers(self.library.model(tx)[0], table)

        def do(tx: Connection) -> Changed:
            newcomers, first = read(tx), present_step(tx) if step is None else roster.check_step(step)
            closed = closed_at(tx, roster.MOST_STEP)
            late = [new for new in newcomers if new.group in closed]
            faults = [Fault(new.name, f"{new.group} closes; let it join {closed[new.group]}") for new in late]
            roster.raise_faults(faults, table.source)
            event = append(tx, "joined", who, {"step": first, "arms": _body(tx, newcomers)})
            _join(tx, newcomers, first, event)
            return Changed(event, tuple(new.name for new in newcomers), first)

        return self.library.change(Changed, "join", request, key, do, read)

    def leave(self, names: Sequence[str], why: str, *, who: str = "", key: str | None = None) -> Changed:
        """Let arms take part no longer, from the present step on.

        Args:
            names: of the arms.
            why: a reason.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: some of them do not take part, or the reason is empty.
        """
        reason = check_text(why, "why")
        request = [list(names), reason]

        def find(tx: Connection) -> list[RosterArm]:
            step = present_step(tx)
            found = roster.find_names([arm for arm in roster.arms_named(tx, names) if arm.stays(step)], names)
            leaving = [arm for arm in found if arm.left_step is not None]  # the end of an earlier step was undone
            faults = [Fault("", f"arm {quoted(arm.name)} leaves at step {arm.left_step} already") for arm in leaving]
            roster.raise_faults(faults, "arms")
            return found

        def do(tx: Connection) -> Changed:
            leaving, step = find(tx), present_step(tx)
            event = append(tx, "left", who, {"step": step, "arms": [ledger.of_arm(arm.id) for arm in leaving]})
            same = {"left_event": event, "left_why": reason}
            rows = [{"id": arm.id, "name": arm.name, "left_step": max(step, arm.joined_step)} | same for arm in leaving]
            change_rows(tx, schema.arms, rows)
            return Changed(event, tuple(arm.name for arm in leaving), step)

        return self.library.change(Changed, "leave", request, key, do, find)

    def observe(
        self,
        rows: Any,
        source: str,
        *,
        step: int | None = None,
        confirmed: bool = False,
        who: str = "",
        key: str | None = None,
        groups: Collection[str] | None = None,
    ) -> reports.Observed:
        """Say in which states arms were seen; late and corrected reports are stored beside the old ones.

        Args:
            rows: a table with the columns arm and state, and perhaps step. A blank state means not seen.
            source: source of the report.
            step: of rows that name none; by default the present one.
            confirmed: also store a table that looks like that of an earlier step.
            who: author, written into the event.
            key: idempotency key.
            groups: arms of others are unknown; by default all are known.

        Raises:
            TableError: with every fault and its row; nothing is stored then.
            ConflictError: with the code `same-as-earlier`, if it looks like the table of an earlier step.
        """
        table = roster.read_rows(self.library.table(rows), "observations", ["arm", "state"], ragged=True)
        said = check_text(source, "source")
        columns = table.columns
        request = [columns, said, step]

        @ledger.read_once
        def read(tx: Connection) -> tuple[int, list[tuple[reports.ReportRow, str]]]:
            present = present_step(tx)
            usual = present if step is None else roster.check_step(step)
            words = self.library.model(tx)[1]
            arms = roster.arms_named(tx, table.columns["arm"], groups=groups)
            found = reports.read_observations(table, arms, words, usual, present)
            if not confirmed:
                reports.question_observations(tx, words, found)
            return present, found

        def do(tx: Connection) -> reports.Observed:
            present, found = read(tx)
            seen = [{"arm": row.arm.id, "step": row.step, "state": state} for row, state in found]
            steps, arms = {row.step for row, _ in found}, {row.arm.id for row, _ in found}
            before = reports.last_reports(tx, schema.observations, steps, arms)
            known = {(row.arm, row.step): row.state for row in before}
            corrected = sum(known.get((row.arm.id, row.step), state) != state for row, state in found)
            late = sum(row.step < present for row, _ in found)
            content = [[ledger.of_arm(row.arm.id), row.step, state] for row, state in found]
            event = append(tx, "observed", who, {"source": said, "seen": content})
            reports.store_reports(tx, schema.observations, seen, said, event)
            return reports.Observed(event, len(seen), late, corrected, len(columns["arm"]) - len(seen))

        return self.library.change(reports.Observed, "observe", request, key, do, read, len(table.rows))

    def import_history(self, rows: Any, source: str, *, who: str = "", key: str | None = None) -> past_records.Imported:
        """Store records from before the programme, at steps before 0: what was seen, and what was done.

        Plans then know where each arm was last seen, when it was last served, and for how long it has waited. Refits
        and tests of the model leave the history out, since the model may have been fitted to it.

        Args:
            rows: a table with the columns arm, time or step, and state or action, and perhaps reward, such as a clean
                log of `clean_records`. Times are whole numbers or, with a calendar, dates.
            source: source of the records.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            TableError: with every fault and its row; nothing is stored then.
        """
        table, said = _past_table(self.library.table(rows)), check_text(source, "source")

        @ledger.read_once
        def read(tx: Connection) -> past_records.PastRecords:
            return past_records.read_past(
                table, roster.taking_part(tx, present_step(tx)), self.library.model(tx)[1], vocabulary_of(tx)
            )

        request = [table.columns, said]
        return self.library.change(
            past_records.Imported, "import", request, key, lambda tx: read(tx).store(tx, said, who), read
        )


def _past_table(rows: Any) -> Table:
    table = roster.read_rows(rows, "history", ["arm"], ragged=True)
    if not {"time", "step"} & table.columns.keys() or not {"state", "action"} & table.columns.keys():
        fault = f"expected the columns time or step, and state or action; got {', '.join(table.columns)}"
        raise TableError([Fault("", fault)], "history")
    return table


def _observations(problem: CoupledMDP, source: object) -> dict[str, Any] | None:
    """Return the numbers of observations behind a fitted model; None if they are unknown, or it was edited since."""
    if isinstance(source, str | Path):
        file = Path(source) if str(source).endswith(".posterior.npz") else posterior_path(source)
        source = load_posterior(file) if file.is_file() else None
    if not isinstance(source, Named):
        return None
    try:
        matched(source, problem)
    except ModelError:
        return None
    return source.observations()


def _called(address: str | Path) -> str:
    """Return the name of a programme by its address: the file or the database."""
    text = str(address)
    return Path(text.partition("?")[0] if "://" in text else text).stem


def _body(tx: Connection, newcomers: Sequence[Newcomer]) -> list[dict[str, Any]]:
    """Return arms that are about to join as the body of an event."""
    first = ledger.next_id(tx, schema.arms)
    return [asdict(new) | {"name": ledger.of_arm(number)} for number, new in enumerate(newcomers, start=first)]


def _join(tx: Connection, newcomers: Sequence[Newcomer], step: int, event: int) -> None:
    numbers = roster.join(tx, newcomers, step, event)
    seen = [{"arm": numbers[new.name], "step": step, "state": new.state} for new in newcomers if new.state]
    reports.store_reports(tx, schema.observations, seen, "roster", event)
