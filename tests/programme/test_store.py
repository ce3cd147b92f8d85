import contextlib
import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from evenhand.errors import InvalidInputError, TableError, UnavailableError
from evenhand.programme import Programme, Store, schema, store

from ..conftest import mentions


def test_what_was_written_is_there_when_it_is_opened_again(address, pumps, roster):
    with Programme.create(address, pumps, roster, name="pumps", seed=3) as made:
        told, arms = made.status(), made.arms()
    with Programme.open(address) as again:
        assert again.status() == told
        assert again.arms() == arms
        assert again.model().signature == pumps.signature
    assert told.arms == {"big": 2, "small": 3}
    assert told.groups == {"big": 2, "hill": 2, "valley": 1}
    assert (told.step, told.observed, told.events, told.budget) == (0, 5, 1, {"hours": 3.0})


def test_events_cannot_be_changed(programme):
    for change in ("UPDATE events SET who = 'x'", "DELETE FROM events"):
        with pytest.raises(UnavailableError), programme.store.writing() as tx:
            tx.execute(text(change))
    assert programme.verify().event == 1


def test_a_second_programme_at_the_same_place_is_refused(programme, address, pumps, roster):
    with pytest.raises(InvalidInputError, check=mentions("programme")):
        Programme.create(address, pumps, roster)
    assert programme.verify().event == 1


def test_a_database_with_other_tables_is_left_alone(address, pumps, roster):
    store = Store.create(address)
    with store.writing(made=False) as tx:
        tx.execute(text("CREATE TABLE letters (id INTEGER)"))
    with pytest.raises(InvalidInputError, check=mentions("letters")):
        Programme.create(address, pumps, roster)
    with pytest.raises(InvalidInputError, check=mentions("evenhand programme create")):
        Programme.open(address)
    store.close()


def test_another_version_of_the_tables_is_refused(programme, address):
    with programme.store.writing() as tx:
        tx.execute(text("UPDATE programme SET version = '9999'"))
    with pytest.raises(InvalidInputError, check=mentions(9999, schema.VERSION)):
        Programme.open(address)


def test_a_transaction_that_fails_changes_nothing(programme):
    with pytest.raises(ZeroDivisionError), programme.store.writing() as tx:
        tx.execute(text("UPDATE programme SET name = 'other'"))
        raise ZeroDivisionError
    assert programme.status().name == "pumps"


def test_one_moment_is_read(programme, address):
    with Programme.open(address) as other, programme.store.reading() as tx:
        count = text("SELECT count(*) FROM observations")
        before = tx.execute(count).scalar()
        other.observe([{"arm": "b1", "state": "worn"}], "inspection")
        assert tx.execute(count).scalar() == before
        with pytest.raises((DBAPIError, AssertionError)):
            if programme.store.is_sqlite:
                raise AssertionError  # SQLite has no read-only transactions; nothing here writes in one
            tx.execute(text("UPDATE programme SET name = 'other'"))


def test_a_wait_that_is_too_long_is_reported(programme, address):
    told = pytest.raises(UnavailableError)
    with Programme(Store.open(address, wait=1)) as other, programme.store.writing(), told:
        other.observe([{"arm": "b1", "state": "worn"}], "inspection")
    assert programme.verify().event == 1


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("", "PROGRAMME"),
        ("mysql://somewhere/x", "mysql"),
        ("postgresql://a@host:port/x", "PROGRAMME"),
        ("nowhere/pumps.db", "programme create"),
        ("postgresql://tester:secret@127.0.0.1:1/x", "postgresql://tester:***@127.0.0.1:1/x:"),
        ("postgresql://tester@127.0.0.1:1/x?password=secret", "postgresql://tester@127.0.0.1:1/x?password="),
    ],
)
def test_addresses_that_lead_nowhere(address, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidInputError, UnavailableError), check=mentions(told)) as raised:
        Programme.open(address)
    assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_programmes(tmp_path, pumps, roster):
    file = tmp_path / "notes.txt"
    file.write_text("This is not a database, and longer than a header has to be. " * 20)
    for attempt in (lambda: Programme.open(file), lambda: Programme.create(file, pumps, roster)):
        with pytest.raises(InvalidInputError, check=mentions("notes.txt")):
            attempt()
    assert file.read_text().startswith("This is not")
    with pytest.raises(InvalidInputError, check=mentions("none")):
        Programme.create(tmp_path / "none" / "x.db", pumps, roster)


def test_nothing_is_left_of_a_programme_that_is_refused(tmp_path, pumps, roster):
    with pytest.raises(TableError):
        Programme.create(tmp_path / "x.db", pumps, [*roster, {"arm": "x", "type": "huge"}])
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_safe_to_be_written_by_several(tmp_path, pumps, roster):
    with Programme.create(tmp_path / "x.db", pumps, roster) as made, made.store.reading() as tx:
        pragmas = {name: tx.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")}
        assert pragmas == {"journal_mode": "wal", "synchronous": 2}
    with pytest.raises(DBAPIError, match="FOREIGN KEY"), made.store.engine.begin() as tx:
        tx.execute(text("INSERT INTO observations VALUES (99, 99, 0, 'fine', 'x', 'x', 1, NULL)"))
    made.close()
    assert sqlite3.connect(tmp_path / "x.db").execute("SELECT count(*) FROM arms").fetchone() == (5,)


def test_a_connection_that_breaks_during_a_commit_leaves_its_result_open(request, pumps, roster):
    """The server may be gone before or after it has kept a change: who asked must not be told that nothing changed."""
    where = request.getfixturevalue("postgresql").database()
    with Programme.create(where, pumps, roster) as programme, Store.open(where) as other:

        def end_it():
            with programme.store.writing() as tx:
                number = tx.execute(text("SELECT pg_backend_pid()")).scalar_one()
                with other.writing(made=False) as elsewhere:
                    elsewhere.execute(text(f"SELECT pg_terminate_backend({number})"))

        with pytest.raises(UnavailableError) as raised:
            end_it()
        assert "Nothing was changed" not in str(raised.value)
        assert programme.verify().event == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE programme SET version = '0'",
        "UPDATE programme SET version = '1'",
        "ALTER TABLE programme DROP COLUMN version",
        "ALTER TABLE programme RENAME COLUMN version TO schema_version",
    ],
)
def test_another_schema_version_is_refused_as_such_and_not_as_damage(tmp_path, pumps, roster, change):
    file, copy = tmp_path / "pumps.db", tmp_path / "copy.db"
    Programme.create(file, pumps, roster).close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(change)
        connection.execute("DROP TABLE records")  # other versions have other tables
        connection.commit()
    for read in (lambda: Programme.open(file), lambda: store.backup(file, copy), lambda: store.restore(copy, file)):
        with pytest.raises(InvalidInputError) as refused:
            read()
        assert (refused.value.code, refused.value.faults) == ("schema-version", ())
        assert "another schema version" in str(refused.value)
    assert not copy.exists()


def test_opening_it_again_drops_no_lock(tmp_path, pumps, roster):
    """Closing a file drops all locks of its process: another would end what is written ahead, under our feet."""
    where = tmp_path / "pumps.db"
    script = (
        "import sqlite3, sys; found = sqlite3.connect(sys.argv[1]); found.execute('SELECT * FROM events').fetchall()"
    )
    with Programme.create(where, pumps, roster) as one, one.store.reading() as tx:
        before = tx.execute(select(schema.programme)).all()
        Programme.open(where).close()
        subprocess.run([sys.executable, "-c", f"{script}; found.close()", where], check=True)
        assert where.with_name("pumps.db-wal").exists()
        assert tx.execute(select(schema.programme)).all() == before


def test_a_missing_file_ends_in_one_mark_and_names_the_next(tmp_path):
    (tmp_path / "vans.db").touch()
    with pytest.raises(InvalidInputError) as error:
        Programme.open(tmp_path / "van.db")
    assert str(error.value).endswith("did you mean vans.db? `evenhand programme create` makes one.")
    with pytest.raises(InvalidInputError) as error:
        Programme.open(tmp_path / "unlike")
    assert str(error.value).endswith("there is no such file. `evenhand programme create` makes one.")
