"""A database that others changed: faults are told with table and row, and faults of ours stay what they are."""

import sqlite3

import pytest

from evenhand.errors import InvalidInput
from evenhand.programme.programme import Programme
from evenhand.programme.soundness import find_damage


@pytest.fixture
def address(tmp_path):
    """A file: what is of another kind than its column only SQLite keeps."""
    return str(tmp_path / "pumps.db")


@pytest.fixture
def planned(programme):
    """A programme with a plan, bounds of its own, and a fit that is offered."""
    programme.plan(who="ann")
    programme.accept(1)
    programme.observe([{"arm": "b1", "state": "worn"}], "rounds")
    programme.set_bounds({"level": 0.5})
    programme.refit(why=["it wears faster"])
    return programme


def damage(address, *statements):
    database = sqlite3.connect(address, isolation_level=None)
    database.execute("PRAGMA foreign_keys = OFF")
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f'DROP TRIGGER "{name}"')
    for statement in statements:
        database.execute(statement)
    database.close()


def told(address):
    with Programme.open(address) as run, run.store.reading() as tx:
        return find_damage(tx)


def test_a_sound_one_has_no_faults(planned, address):
    assert told(address) == []


@pytest.mark.parametrize(
    ("statement", "place", "words"),
    [
        ("UPDATE arms SET type = 'bgi' WHERE id = 1", "arms, row 1", "the model has no type 'bgi' in a group"),
        ("UPDATE arms SET joined_step = 'soon' WHERE id = 2", "arms, row 2: joined_step", "expected a whole number"),
        ("UPDATE observations SET state = 'fin' WHERE id = 1", "observations, row 1: state", "the model has no 'fin'"),
        ("UPDATE observations SET arm = 99 WHERE id = 1", "observations, row 1: arm", "99 is not there"),
        ("UPDATE plans SET told_json = '{}'", "plans, row 1: told_json", "it has no served"),
        ("UPDATE plans SET budget_json = '[3'", "plans, row 1: budget_json", "it is not JSON"),
        ("UPDATE policies SET facts_json = '[]'", "policies, row 1: facts_json", "something else than was written"),
        ("UPDATE models SET body = x'00'", "models, row 1: body", "its digest is another one"),
        ("UPDATE decisions SET planned = 'oli' WHERE place = 0", "decisions, row 1: planned", "the model has no 'oli'"),
        ("DELETE FROM programme", "programme", "it has 0 rows where there is one"),
        ("DELETE FROM events WHERE id = 1", "events", "event 1 is missing or was changed"),
        ("UPDATE programme SET bounds_json = '{\"speed\": 1}'", "programme, row 1: bounds_json", "no such bound"),
        ('UPDATE programme SET bounds_json = \'{"gap": "a"}\'', "programme, row 1: bounds_json", "got 'a'"),
        ("UPDATE refits SET why = 'worn'", "refits, row 1: why", "it is not JSON"),
        ("DROP TABLE records", "the table records is gone", ""),
    ],
)
def test_every_kind_of_damage_is_told_with_its_place(planned, address, statement, place, words):
    planned.close()
    damage(address, statement)
    assert any(fault.startswith(place) and words in fault for fault in told(address)), told(address)


def test_whoever_meets_damage_is_told_all_of_it(planned, address):
    planned.close()
    damage(address, "UPDATE arms SET type = 'bgi' WHERE id <= 2")
    with Programme.open(address) as run, pytest.raises(InvalidInput) as refusal:
        run.plan()
    lines = str(refusal.value).splitlines()
    assert lines[0] == f"{address}: it is damaged, or was changed by something else than evenhand:"
    assert [line.strip().split(":")[0] for line in lines[1:3]] == ["arms, row 1", "arms, row 2"]
    assert lines[-1] == "Put a copy of it in its place. Nothing was changed"


@pytest.mark.parametrize("kept", ['{"speed": 1}', '{"gap": "a"}', "[1]", "no"])
def test_damaged_bounds_are_told_by_whoever_needs_them(planned, address, kept):
    planned.close()
    damage(address, f"UPDATE programme SET bounds_json = '{kept}'")
    with Programme.open(address) as run:
        for need in (run.bounds, run.needs_solving, run.question, run.model_drift):
            with pytest.raises(InvalidInput, match="programme, row 1: bounds_json"):
                need()


def test_a_fault_of_ours_in_a_sound_one_is_passed_on(planned):
    with pytest.raises(KeyError, match="ours"), planned.store.reading():
        raise KeyError("ours")
