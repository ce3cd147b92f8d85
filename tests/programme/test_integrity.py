"""Edits of a database by hand: each is found by rebuilding the tables from the chain of events."""

import json
import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from evenhand.errors import ConflictError, InvalidInputError, TableError, UnavailableError
from evenhand.programme import Head, Programme, integrity, ledger, schema
from evenhand.programme.store import Store

from ..conftest import mentions, try_each


def run_some_steps(programme):
    """Overrides, arrivals, departures, late reports, corrections, keys, bounds, refits adopted and declined."""
    programme.set_bounds({"level": 0.5}, who="ann")
    plan = programme.plan_of(programme.plan(who="ann", key="plan").plan)
    served = next(row.arm for row in plan.rows if row.served)
    programme.accept(plan.id, [{"arm": served, "action": "run", "why": "no access"}], who="bob", key="accept")
    programme.record(
        [
            {"arm": "b2", "action": "repair", "reward": 0.123456789, "next_state": "fine"},
            {"arm": "h1", "action": "run"},
        ],
        "crew",
        key="record",
    )
    programme.join([{"arm": "b3", "type": "big", "state": "worn"}], who="ann")
    programme.leave(["v1"], "sold", who="ann")
    programme.observe([{"arm": "b1", "state": "worn"}, {"arm": "h2", "state": "fine"}], "rounds", key="rounds")
    programme.plan(budget=[2.0])
    programme.plan(key="again")  # supersedes the one before
    programme.plan(key="nothing new")
    programme.accept(programme.current_plan_number(), who="bob")
    programme.record([{"arm": "b1", "action": "oil", "reward": 0.6, "next_state": "fine"}], "crew")
    programme.record([{"arm": "b2", "step": 0, "action": "repair", "reward": 0.2}], "office")  # late, and corrected
    programme.join([{"arm": "v1", "type": "small", "group": "valley"}])
    programme.decline(programme.refit(why=["it wears faster"]).id, "a bad winter")
    programme.adopt(programme.refit(trust=5.0).id, who="ann")
    programme.accept(programme.plan().plan, who="bob")
    programme.plan()


@pytest.fixture
def ran(programme):
    run_some_steps(programme)
    return programme


def let_events_be_changed(programme):
    """Statements by which the owner of a database can remove what protects events."""
    if programme.store.is_sqlite:
        return ["DROP TRIGGER events_no_update", "DROP TRIGGER events_no_delete"]
    return ["DROP TRIGGER events_kept ON events"]


@contextmanager
def unprotected(programme, tx):
    """Within it events can be changed; afterwards they are protected again, as a careful forger would leave them."""
    triggers = []
    if programme.store.is_sqlite:
        triggers = (
            tx.execute(text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'events'"))
            .scalars()
            .all()
        )
    for statement in let_events_be_changed(programme):
        tx.execute(text(statement))
    yield
    for statement in triggers:
        tx.execute(text(statement))


def edit(programme, *statements):
    with programme.store.writing() as tx, unprotected(programme, tx):
        for statement in statements:
            tx.execute(text(statement))


def places(programme, **given):
    with pytest.raises(InvalidInputError) as refusal:
        programme.verify(**given)
    return [fault.place for fault in refusal.value.faults]


def test_protection_that_was_removed_is_found(ran):
    if not ran.store.is_sqlite:
        pytest.skip("triggers are compared in files only")
    with ran.store.writing() as tx:
        for statement in let_events_be_changed(ran):
            tx.execute(text(statement))
    assert places(ran) == ["trigger events_no_delete", "trigger events_no_update"]


def test_an_untouched_programme_of_several_steps_agrees_with_its_events(ran, address):
    head = ran.verify()
    assert (head.event, head.chain) == (ran.status().events, ran.events()[-1].chain)
    kinds = {event.kind for event in ran.events()}
    assert kinds >= {"joined", "left", "observed", "accepted", "recorded", "refitted", "adopted", "declined"}
    with Programme.open(address) as again:
        assert again.verify(head) == head


OVERRIDDEN = "why = 'no access'"

EDITS = {
    "an override is erased": (
        f"UPDATE decisions SET accepted = planned, who = NULL, why = NULL WHERE {OVERRIDDEN}",
        "decisions, plan 1, arm *, accepted",
    ),
    "the reason of an override": (
        f"UPDATE decisions SET why = 'x' WHERE {OVERRIDDEN}",
        "decisions, plan 1, arm *, why",
    ),
    "the author of an override": (
        f"UPDATE decisions SET who = 'x' WHERE {OVERRIDDEN}",
        "decisions, plan 1, arm *, who",
    ),
    "the reason of a plan": (
        f"UPDATE decisions SET reason = 'x' WHERE {OVERRIDDEN}",
        "decisions, plan 1, arm *, reason",
    ),
    "a planned action": (f"UPDATE decisions SET planned = 'x' WHERE {OVERRIDDEN}", "decisions, plan 1, arm *, planned"),
    "a probability": (
        "UPDATE decisions SET chance = 0.5 WHERE plan = 1 AND arm = 1",
        "decisions, plan 1, arm 1, chance",
    ),
    "a decision is removed": ("DELETE FROM decisions WHERE plan = 1 AND arm = 5", "decisions, plan 1, arm 5"),
    "a reward": ("UPDATE records SET reward = 0.987654321 WHERE id = 1", "records, id 1, reward"),
    "a reward is erased": ("UPDATE records SET reward = NULL WHERE id = 1", "records, id 1, reward"),
    "a recorded action": ("UPDATE records SET action = 'oil' WHERE id = 2", "records, id 2, action"),
    "the source of a record": ("UPDATE records SET source = 'x' WHERE id = 2", "records, id 2, source"),
    "a record is removed": ("DELETE FROM records WHERE id = 2", "records, id 2"),
    "a record is put in": (
        "INSERT INTO records VALUES (99, 1, 0, 'oil', 1.0, 'crew', '2026-01-01', 4, NULL)",
        "records, id 99",
    ),
    "an observed state": ("UPDATE observations SET state = 'fine' WHERE id = 2", "observations, id 2, state"),
    "the step of an observation": ("UPDATE observations SET step = 1 WHERE id = 2", "observations, id 2, step"),
    "an observation is removed": ("DELETE FROM observations WHERE id = 6", "observations, id 6"),
    "a budget": ("UPDATE plans SET budget_json = '[4.0]' WHERE id = 1", "plans, id 1, budget_json"),
    "the summary of a plan": ("UPDATE plans SET summary_json = '{}' WHERE id = 1", "plans, id 1, summary_json"),
    "the time of acceptance": ("UPDATE plans SET accepted_at = '2020' WHERE id = 1", "plans, id 1, accepted_at"),
    "who accepted": ("UPDATE plans SET accepted_by = 'eve' WHERE id = 1", "plans, id 1, accepted_by"),
    "the status of a plan": ("UPDATE plans SET status = 'superseded' WHERE id = 1", "plans, id 1, status"),
    "the group of an arm": ("UPDATE arms SET group_name = 'valley' WHERE id = 4", "arms, id 4, group_name"),
    "the salt of a name": ("UPDATE arms SET salt = 'x' WHERE id = 4", "arms, id 4, name"),
    "the name of an arm": ("UPDATE arms SET name = 'x' WHERE id = 4", "arms, id 4, name"),
    "a departure is erased": (
        "UPDATE arms SET left_step = NULL, left_event = NULL, left_why = NULL, name = 'v0' WHERE id = 5",
        "arms, id 5, left_step",
    ),
    "an arm is put in": ("INSERT INTO arms VALUES (99, 'x', 'big', '0', 0, 1, NULL, NULL, NULL, NULL)", "arms, id 99"),
    "the welfare": ("UPDATE programme SET welfare = 'utilitarian'", "programme, id 1, welfare"),
    "the seed": ("UPDATE programme SET seed = 7", "programme, id 1, seed"),
    "the bounds": ("UPDATE programme SET bounds_json = NULL", "programme, id 1, bounds_json"),
    "the number of the last event": ("UPDATE programme SET last_event = 90", "programme, id 1, last_event"),
    "facts of a policy": ("UPDATE policies SET facts_json = '{}' WHERE event = 3", "policies, digest *, facts_json"),
    "the origin of a model": ("UPDATE models SET origin = 'x' WHERE event = 1", "models, digest *, origin"),
    "a refit is not adopted": ("UPDATE refits SET adopted_event = NULL WHERE id = 2", "refits, id 2, adopted_event"),
    "the reason of a refit": ("UPDATE refits SET why = NULL WHERE id = 1", "refits, id 1, why"),
    "an answer under a key": ("UPDATE keys SET answer_json = '{}' WHERE key = 'plan'", "keys, key plan, answer_json"),
    "a key is removed": ("DELETE FROM keys WHERE key = 'nothing new'", "keys, key nothing new"),
    "the author of an event": ("UPDATE events SET who = 'eve' WHERE id = 2", "events, id 2"),
    "the time of an event": ("UPDATE events SET at = '2020' WHERE id = 2", "events, id 2"),
    "the body of an event": ("UPDATE events SET body_json = '{}' WHERE id = 5", "events, id 5"),
    "the rows of an event": ("UPDATE events SET changes_json = '[]' WHERE id = 5", "events, id 5"),
    "an event is removed": ("DELETE FROM events WHERE id = 5", "events, id 5"),
    "the last events are cut": ("DELETE FROM events WHERE id > 6", "programme, id 1, last_event"),
    "all events are cut": ("DELETE FROM events", "events"),
    "two events change places": (
        "UPDATE events SET id = CASE id WHEN 5 THEN -6 WHEN 6 THEN -5 END WHERE id IN (5, 6);"
        "UPDATE events SET id = -id WHERE id < 0",
        "events, id 5",
    ),
}


def test_every_edit_by_hand_is_found_with_its_table_key_and_column(ran):
    def check(what):
        statements, place = EDITS[what]
        with ran.store.engine.connect() as connection:  # what is not committed is rolled back
            with unprotected(ran, connection):
                for statement in statements.split(";"):
                    connection.execute(text(statement))
            found = [fault.place for fault in integrity.differences(connection)]
        first, last = place.partition("*")[::2]
        assert any(one.startswith(first) and one.endswith(last) for one in found), found

    try_each(check, EDITS)
    ran.verify()


def stored_bytes(programme):
    """All that the database holds of its texts."""
    if programme.store.is_sqlite:
        files = [programme.store.address + end for end in ("", "-wal")]
        return b"".join(Path(file).read_bytes() for file in files if Path(file).exists())
    with programme.store.reading() as tx:
        tables = [f"SELECT * FROM {name}" for name in schema.METADATA.tables]
        return repr([[tuple(row) for row in tx.execute(text(query))] for query in tables]).encode()


def test_an_erased_name_is_nowhere_and_the_chain_holds(programme):
    """Name, reasons and stored answers go; the history, the plans and the chain stay."""
    programme.join([{"arm": "Ada Lovelace", "type": "big", "state": "broken"}], key="join")
    plan = programme.plan_of(programme.plan().plan)
    away = [{"arm": "Ada Lovelace", "action": "run", "why": "in the spa at Bath"}]
    programme.accept(plan.id, away, key="accept")
    programme.record([{"arm": "Ada Lovelace", "action": "run", "next_state": "worn"}], "crew", key="record")
    with pytest.raises(TableError, check=mentions("Ada Lovelace", "left")):
        programme.erase(["Ada Lovelace"])
    programme.leave(["Ada Lovelace"], "moved to London", key="leave")
    programme.observe([{"arm": "b1", "state": "worn"}], "rounds", key="other")
    programme.accept(programme.plan().plan)
    programme.refit()
    head, audit = programme.verify(), programme.audit().to_dict()
    history, texts = programme.history("Ada Lovelace"), (b"Lovelace", b"Bath", b"London")
    assert all(word in stored_bytes(programme) for word in texts)
    with pytest.raises(TableError):
        programme.erase(older_than=3)
    found = programme.erase(older_than=1, who="ann", key="erase")
    assert programme.erase(older_than=1, who="ann", key="erase") == found
    (alias,) = found.arms
    assert not any(word in stored_bytes(programme) for word in texts)
    assert programme.verify(head).event == head.event + 1
    for one in programme.plans():
        programme.recompute(one.id)
    assert len(programme.history(alias)) == len(history)
    before, after = (json.dumps(one["service"]) for one in (audit, programme.audit().to_dict()))
    assert before.replace("Ada Lovelace", alias) == after
    assert programme.events()[-1].body == {"arms": [alias]}
    with pytest.raises(ConflictError, check=mentions("record")):  # whether it was done is still known
        programme.record([{"arm": "b1", "action": "run"}], "crew", key="record")
    assert programme.observe([{"arm": "b1", "state": "worn"}], "rounds", key="other").observations == 1
    with pytest.raises(TableError):
        programme.erase(["Ada Lovelace"])
    programme.join([{"arm": "Ada Lovelace", "type": "big"}])
    assert len(programme.history("Ada Lovelace")) == 1


def test_erased_names_are_in_no_answer_and_no_sentence(programme):
    """Also if one name is part of another, and in answers to whatever was sent under a key."""
    names = ["Quixby", "Zoraida Quixby"]
    programme.join([{"arm": name, "type": "small", "group": "hill", "state": "worn"} for name in names], key="join")
    programme.change({"transfer": [{"arm": name, "group": "valley"} for name in names]}, key="transfer")
    programme.change({"close": {"valley": "hill"}}, key="close")
    programme.accept(programme.plan().plan)
    programme.record([{"arm": name, "action": "run", "next_state": "worn"} for name in names], "crew")
    programme.plan()
    programme.adopt(programme.refit(key="refit").id, key="adopt")
    programme.observe([{"arm": "b1", "state": "worn"}], "rounds", key="other")
    programme.leave(names, "moved", key="leave")
    said = [["".join(line) for line in one.body["said"]] for one in programme.events() if one.kind == "changed"]
    assert [line.partition(" on ")[2] for line in said[0]] == [f"{name} is in valley, of type small" for name in names]
    programme.erase(names, key="erase")
    assert not any(word in stored_bytes(programme) for word in (b"Quixby", b"Zoraida"))
    assert programme.observe([{"arm": "b1", "state": "worn"}], "rounds", key="other").observations == 1
    programme.verify()


def test_traces_that_are_left_are_reported(programme):
    """While an open reader still sees the former rows, the write-ahead log has them."""
    programme.join([{"arm": "Zoraida", "type": "small", "group": "hill", "state": "worn"}])
    programme.leave(["Zoraida"], "moved")
    with Programme(Store.open(programme.store.full_address, wait=1)) as other:
        with programme.store.reading() as tx:
            tx.execute(text("SELECT name FROM arms")).all()
            with pytest.raises(UnavailableError):
                other.erase(["Zoraida"], key="erase")
        other.erase(["Zoraida"], key="erase")
    assert b"Zoraida" not in stored_bytes(programme)


def test_statistics_of_the_database_have_no_erased_name(postgresql, pumps):
    roster = [{"arm": f"arm {number}", "type": "small", "group": "hill"} for number in range(20)]
    with Programme.create(postgresql.database(), pumps, roster) as programme:
        programme.leave(["arm 7"], "moved")
        query = text("SELECT coalesce(histogram_bounds, most_common_vals)::text FROM pg_stats WHERE attname = 'name'")
        with programme.store.engine.connect() as connection:
            connection.exec_driver_sql("ANALYZE")
            assert "arm 7" in str(connection.execute(query).all())
            connection.commit()
        programme.erase(["arm 7"])
        with programme.store.engine.connect() as connection:
            assert "arm 7" not in str(connection.execute(query).all())


def test_an_arm_that_takes_part_again_is_not_erased(programme):
    """It left at a step whose beginning was undone since."""
    accepted = programme.accept(programme.plan().plan).event
    programme.leave(["b1"], "sold")
    later = programme.plan().plan
    programme.undo(accepted)
    for refused in (lambda: programme.erase(["b1"]), lambda: programme.leave(["b1"], "sold")):
        with pytest.raises(TableError, check=mentions("b1")) as raised:
            refused()
        assert "no arm" not in str(raised.value)
    assert "b1" in {arm.name for arm in programme.arms()}
    programme.accept(programme.plan().plan)
    programme.recompute(later)
    assert programme.erase(["b1"]).arms == ("erased 1",)
    programme.verify()


@pytest.mark.parametrize(("table", "column"), [("models", "body"), ("policies", "body")])
def test_bytes_are_compared_by_their_digests(ran, table, column):
    with ran.store.writing() as tx:
        body = tx.execute(text(f"SELECT {column} FROM {table} ORDER BY event")).scalars().first()
        changed = text(f"UPDATE {table} SET {column} = :new WHERE {column} = :old")
        tx.execute(changed, {"new": body[:-1] + b"?", "old": body})
    (found,) = places(ran)
    assert found.startswith(table)
    assert found.endswith(column)


def cut_after(programme, last):
    """Undo the events after one, and all that they wrote: the programme agrees with itself again.

    Observations alone were written after it.
    """
    edit(
        programme,
        f"DELETE FROM events WHERE id > {last}",
        f"DELETE FROM observations WHERE event > {last}",
        f"UPDATE programme SET last_event = {last}",
    )


def test_a_chain_that_was_cut_cleanly_is_found_by_a_head(ran):
    before = ran.verify()
    ran.observe([{"arm": "b1", "state": "broken"}], "rounds")
    head = ran.verify()
    cut_after(ran, before.event)
    assert ran.verify() == before  # it agrees with itself
    assert ran.verify(before) == before
    assert places(ran, head=head) == [f"events, id {head.event}"]


def rewrite(programme, event, old, new):
    """Replace text in one event and compute all digests after it."""
    with programme.store.writing() as tx, unprotected(programme, tx):
        chain = ""
        for row in tx.execute(text("SELECT * FROM events ORDER BY id")).mappings().all():
            changed = dict(row)
            if changed["id"] == event:
                assert old in changed["changes_json"]
                changed["changes_json"] = changed["changes_json"].replace(old, new)
            names = ("id", "kind", "who", "at", "body_json", "changes_json")
            chain = ledger.digest_of([chain, *(changed[name] for name in names)])
            values = {"id": changed["id"], "changes": changed["changes_json"], "chain": chain}
            tx.execute(text("UPDATE events SET changes_json = :changes, chain = :chain WHERE id = :id"), values)


def test_a_rewritten_chain_is_found_by_a_head_alone(ran):
    head = ran.verify()
    event = next(event.id for event in ran.events() if event.kind == "recorded")
    rewrite(ran, event, "0.123456789", "0.987654321")
    assert places(ran) == ["records, id 1, reward"]
    with ran.store.writing() as tx:
        tx.execute(text("UPDATE records SET reward = 0.987654321 WHERE id = 1"))
    ran.verify()  # it agrees with itself
    assert f"events, id {head.event}" in places(ran, head=head)


def test_a_row_that_was_removed_is_found_though_its_number_was_given_again(ran):
    with ran.store.writing() as tx:
        last = tx.execute(text("SELECT max(id) FROM observations")).scalar()
        tx.execute(text(f"DELETE FROM observations WHERE id = {last}"))
    ran.observe([{"arm": "b1", "state": "broken"}], "rounds")
    assert f"observations, id {last}" in places(ran)


# Heads


def test_a_head_is_written_and_read(ran, tmp_path):
    file = tmp_path / "head.json"
    head = ran.verify()
    head.save(file)
    assert Head.load(file) == head
    ran.observe([{"arm": "b1", "state": "broken"}], "rounds")
    assert ran.verify(Head.load(file)).event == head.event + 1


@pytest.mark.parametrize("told", ["", "[]", "{}", '{"event": "1", "chain": ""}', '{"event": 0, "chain": ""}', "{" * 9])
def test_a_file_that_is_not_a_head_is_refused(tmp_path, told):
    file = tmp_path / "head.json"
    file.write_text(told)
    with pytest.raises(InvalidInputError, check=mentions("head.json")):
        Head.load(file)
    with pytest.raises(InvalidInputError, check=mentions("none.json")):
        Head.load(tmp_path / "none.json")


# Databases that cannot be read


@pytest.fixture
def damaged(tmp_path, pumps, roster):
    """Edits a programme in a file, where SQLite stores values of any type in any column, and opens it again."""
    address = str(tmp_path / "damaged.db")
    with Programme.create(address, pumps, roster) as made:
        made.accept(made.plan().plan)

    def damage(*statements):
        database = sqlite3.connect(address, isolation_level=None)
        database.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            database.execute(statement)
        database.close()
        return Programme.open(address)

    return damage


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE arms SET type = 'bgi' WHERE id = 1", "arms, id 1, type"),
        ("UPDATE observations SET state = 'fin' WHERE id = 1", "observations, id 1, state"),
        ("DELETE FROM programme", "programme, id 1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_differences(damaged, statement, place):
    with damaged(statement) as run, pytest.raises(InvalidInputError) as refusal:
        run.plan()
    assert refusal.value.faults[0].place.startswith(place)


@pytest.mark.parametrize("stored", ['{"speed": 1}', '{"gap": "a"}', "[1]", "no"])
def test_damaged_bounds_are_refused_wherever_they_are_needed(damaged, stored):
    with damaged(f"UPDATE programme SET bounds_json = '{stored}'") as run:
        for need in (run.bounds, run.needs_solving, run.question, run.model_drift):
            with pytest.raises(InvalidInputError) as refusal:
                need()
            assert [fault.place for fault in refusal.value.faults] == ["programme, id 1, bounds_json"]


def test_the_digest_of_bytes_does_not_stand_for_them(damaged):
    with damaged() as run:
        digest = run.status().model
    for forged in (f"sha256 {digest}", json.dumps({"sha256": digest}), json.dumps({"sha256": digest}).replace(" ", "")):
        with damaged(f"UPDATE models SET body = '{forged}'") as run:
            assert places(run) == [f"models, digest {digest}, body"]


def test_a_table_that_is_missing_is_named(damaged):
    with damaged("DROP TABLE records") as run:
        assert places(run) == ["records"]


def test_a_fault_of_ours_in_a_sound_database_is_passed_on(programme):
    with pytest.raises(KeyError, check=mentions("ours")), programme.store.reading():
        raise KeyError("ours")
