"""Records: what was really done, stored beside what was accepted; the last record counts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, exists, func, select

from evenhand.errors import ConflictError, Fault, InvalidInputError
from evenhand.model.io.text_table import Table
from evenhand.programme import decisions, ledger, reports, roster, schema
from evenhand.programme.belief import accepted_between
from evenhand.programme.ledger import append, check_text
from evenhand.programme.library import Library
from evenhand.programme.reports import Record, Recorded, Unrecorded


class Records:
    """Report what was done, and read it."""

    def __init__(self, library: Library) -> None:
        """Use the store and models of a programme."""
        self._library, self._store = library, library.store

    def record(
        self,
        rows: Any,
        source: str,
        *,
        confirmed: bool = False,
        who: str = "",
        key: str | None = None,
        groups: Collection[str] | None = None,
    ) -> Recorded:
        """Record the actions done; late and corrected records are stored beside the old ones.

        Args:
            rows: a table with the columns arm and action, and optionally step (by default the last accepted), reward
                and next_state, which is stored as an observation of the step after. A blank action means not known.
            source: source of the report.
            confirmed: also store a table that looks like that of the step before.
            who: author, written into the event.
            key: idempotency key.
            groups: arms of others are unknown; by default all are known.

        Raises:
            TableError: with every fault and its row; nothing is stored then.
            ConflictError: with the code `same-as-earlier`, if it looks like the table of the step before.
        """
        said = check_text(source, "source")
        table = roster.read_rows(self._library.table(rows), "records", ["arm", "action"], ragged=True)
        request, read = [table.columns, said], ledger.read_once(lambda tx: self._read_records(tx, table, groups))

        def do(tx: Connection) -> Recorded:
            return self._record(tx, read(tx), len(table.rows), said, who, confirmed)

        return self._library.change(Recorded, "record", request, key, do, read, len(table.rows))

    def record_rest(
        self,
        plan: int,
        others: Mapping[str, str],
        source: str,
        *,
        who: str = "",
        key: str | None = None,
        groups: Collection[str] | None = None,
    ) -> Recorded:
        """Say that an accepted plan was done as accepted, but for some arms; what was recorded before stays.

        Only what is new is written: arms of which nothing was recorded yet, and those of which something else is said.

        Args:
            plan: the number of an accepted plan.
            others: what was done instead, by arm.
            source: source of the report.
            who: author, written into the event.
            key: idempotency key.
            groups: only the arms that are in these, by the plan and now; by default all.

        Raises:
            ConflictError: the plan is not accepted, or all of it is recorded and nothing else is said.
            TableError: with every fault and its row; nothing is stored then.
        """
        said = check_text(source, "source")

        def do(tx: Connection) -> Recorded:
            row = decisions.plan_row(tx, plan)
            if row.status != schema.ACCEPTED:
                raise ConflictError(f"plan {plan} of step {row.step} is not accepted: there is nothing to record of it")
            known = reports.known_records(tx, [row.step])
            rows = decisions.rows_of(tx, plan)
            if groups is not None:
                own = {arm.id for arm in roster.arms_named(tx, (), groups=groups)}
                rows = tuple(one for one in rows if one.group in groups and one.arm_id in own)
            arms = {one.arm for one in rows}
            match = roster.match_names(arms)
            instead = {match(name): action for name, action in others.items()}
            if unknown := [Fault(name, f"is not in plan {plan}") for name in instead if name not in arms]:
                raise InvalidInputError("of these nothing can be recorded:", unknown)
            new = []
            for one in rows:
                before, reward = known.get((one.arm_id, row.step), (None, None))
                action = instead.get(one.arm, before or one.accepted or one.action)
                if action != before:  # a known reward stays if only the action is another
                    text = "" if reward is None else repr(reward)
                    new.append({"arm": one.arm, "step": str(row.step), "action": action, "reward": text})
            if not new:
                raise ConflictError(f"all of step {row.step} is recorded already, and nothing else was said now")
            table = roster.read_rows(new, "records", ["arm", "action"])
            return self._record(tx, self._read_records(tx, table), len(new), said, who, True)

        return self._library.change(Recorded, "record", [plan, sorted(others.items()), said], key, do)

    def recorded(self, step: int, arms: Sequence[int] = ()) -> dict[int, str]:
        """Return the actions done at a step, by arm number; the last record counts.

        Args:
            step: which.
            arms: at least of these; by default of all.
        """
        with self._store.reading() as tx:
            return {arm: action for (arm, _), (action, _) in reports.known_records(tx, [step], arms).items()}

    def num_recorded(self, step: int) -> int:
        """Return of how many arms it was recorded what was done at a step."""
        table = schema.records
        with self._store.reading() as tx:
            query = select(func.count(table.c.arm.distinct())).where(table.c.step == step, *schema.valid(table))
            return int(tx.execute(query).scalar_one())

    def last_served(self, rows: Sequence[decisions.PlanRow], step: int, most: int = 100) -> dict[int, int]:
        """The last step at which arms of a plan were served, by their numbers in the store.

        Args:
            rows: of the plan.
            step: the step after the last considered.
            most: maximum number of steps.
        """
        with self._store.reading() as tx:
            words = self._library.model(tx)[1]
            blocks = {row.arm_id: words.blocks[row.type, row.group] for row in rows}
            found = self._library.decided(tx, blocks, step - most, step)
        served = sorted((at, arm) for (arm, at), (_, is_served) in found.items() if is_served)
        return {arm: at for at, arm in served}

    def unrecorded(self, last: int, most: int = 100) -> list[Unrecorded]:
        """Accepted steps of which it is not known of all arms what was done; audits take them as accepted.

        Args:
            last: the last step considered.
            most: maximum number of steps.
        """
        plans, decided, stored = schema.plans, schema.decisions, schema.records
        span = (plans.c.step > last - most) & (plans.c.step <= last) & (plans.c.status == schema.ACCEPTED)
        done = exists().where(stored.c.arm == decided.c.arm, stored.c.step == plans.c.step, *schema.valid(stored))
        query = select(plans.c.step, plans.c.id, func.count()).join(decided, decided.c.plan == plans.c.id)
        query = query.where(span, ~done).group_by(plans.c.step, plans.c.id).order_by(plans.c.step)
        with self._store.reading() as tx:
            return [Unrecorded(*row) for row in tx.execute(query)]

    def _read_records(self, tx: Connection, table: Table, groups: Collection[str] | None = None) -> list[Record]:
        arms = roster.arms_named(tx, table.columns["arm"], groups=groups)
        return reports.read_records(table, arms, self._library.model(tx)[1], roster.present_step(tx))

    def _record(
        self,
        tx: Connection,
        found: list[Record],
        rows: int,
        source: str,
        who: str,
        confirmed: bool,
    ) -> Recorded:
        present = roster.present_step(tx)
        steps = [one.step for one in found]
        arms = [one.arm.id for one in found]
        before, accepted = (
            reports.known_records(tx, steps, arms),
            accepted_between(tx, arms, min(steps), max(steps) + 1),
        )
        corrected = differing = 0
        for one in found:
            place = one.arm.id, one.step
            if one.action is not None:
                corrected += place in before and before[place] != (one.action, one.reward)
                differing += place in accepted and accepted[place][1] != one.action
        if not confirmed:
            reports.question_records(tx, found, differing)
        content = [[ledger.of_arm(one.arm.id), one.step, one.action, one.reward, one.next_state] for one in found]
        event = append(tx, "recorded", who, {"source": source, "done": content})
        done, seen = [], []
        for one in found:
            arm, step = one.arm.id, one.step
            if one.action is not None:
                done.append({"arm": arm, "step": step, "action": one.action, "reward": one.reward})
            if one.next_state is not None:
                seen.append({"arm": arm, "step": step + 1, "state": one.next_state})
        reports.store_reports(tx, schema.records, done, source, event)
        reports.store_reports(tx, schema.observations, seen, source, event)
        late = sum(step < present - 1 for step in steps)
        return Recorded(event, len(done), late, corrected, differing, len(seen), rows - len(done))
