"""A copy is put into the place of a programme under a running server: nothing that was accepted is lost unnoticed."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.cli import run
from evenhand.errors import InvalidInputError, UnavailableError
from evenhand.programme import Programme, store

from ..conftest import mentions

P = "/v1/programme"


@pytest.fixture
def where(programme_at):
    return programme_at("sqlite")


@pytest.fixture
def server(live, where):
    started = live.Server(where)
    yield started
    started.stop()


def accept(server):
    plan = server.ask("POST", f"{P}/plan", json={})
    if plan.status_code != 200:
        return plan
    return server.ask("POST", f"{P}/plan/{plan.json()['id']}/accept", json={"who": "Ada"})


def accepted_in(where):
    """What a fresh look finds in the file of this name."""
    with Programme.open(where) as programme:
        return {plan.id for plan in programme.plans("accepted")}


@pytest.mark.slow
def test_a_copy_put_in_place_by_hand_is_noticed(server, where, tmp_path):
    """As it was documented: an accepted decision is in the file, or was not accepted."""
    store.backup(where, tmp_path / "copy.db")
    assert accept(server).status_code == 200
    (tmp_path / "copy.db").replace(where)
    for end in ("-wal", "-shm"):
        where.with_name(where.name + end).unlink(missing_ok=True)
    answers = [accept(server) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {503}
    assert "replaced" in answers[0].json()["detail"]
    assert accepted_in(where) == set()
    assert server.ask("GET", f"{P}/plans").status_code == 503  # what is gone is not shown as if it was there


def test_a_server_goes_on_with_what_is_restored(server, where, tmp_path):
    assert run(["programme", "backup", str(where), str(tmp_path / "copy.db"), "--quiet"]) == 0
    first = accept(server)
    assert first.status_code == 200
    assert run(["programme", "restore", str(where), str(tmp_path / "copy.db"), "--quiet"]) == 0
    assert server.ask("GET", f"{P}/plans", params={"status": "accepted"}).json()["plans"] == []
    again = accept(server)
    assert again.status_code == 200
    assert again.json()["step"] == 0
    server.stop()
    assert accepted_in(where) == {again.json()["plan"]}
    with Programme.open(where) as programme:
        assert programme.verify().event == programme.status().events


def test_restoring_under_load_loses_nothing_that_was_answered_since(live, server, where, tmp_path):
    load = live.Load(lambda: [server.address], pause=0.0)
    try:
        load.wait_for_steps(2)
        store.backup(where, tmp_path / "copy.db")
        load.wait_for_steps(len(load.accepted) + 2)
        store.restore(where, tmp_path / "copy.db")
        since = len(load.accepted) + 2  # those under way may have been answered before
        load.wait_for_steps(since + 2)
    finally:
        load.end()
    with Programme.open(where) as programme:
        assert programme.verify().event == programme.status().events
        steps = sorted(plan.step for plan in programme.plans("accepted"))
        assert steps == list(range(len(steps)))
    assert {answer["plan"] for answer in load.accepted[since:]} <= accepted_in(where)


class TestFromPython:
    def test_a_replaced_or_removed_file_is_refused(self, where, tmp_path):
        with Programme.open(where) as programme:
            shutil.copy(where, tmp_path / "other.db")
            (tmp_path / "other.db").replace(where)
            with pytest.raises(UnavailableError, check=mentions("replaced")):
                programme.observe([{"arm": "b1", "state": "worn"}], "inspection")
            with pytest.raises(UnavailableError, check=mentions("replaced")):
                programme.status()
            where.unlink()
            with pytest.raises(UnavailableError, check=mentions("replaced")):
                programme.status()

    def test_a_file_replaced_during_a_change_is_noticed_before_the_commit(self, where, tmp_path):
        with Programme.open(where) as programme:
            before = programme.status().events
            shutil.copy(where, tmp_path / "other.db")
            with pytest.raises(UnavailableError, check=mentions("replaced")), programme.store.writing():
                (tmp_path / "other.db").replace(where)
        with Programme.open(where) as programme:
            assert programme.status().events == before

    def test_an_open_file_under_a_relative_name_is_the_same_elsewhere(self, where, tmp_path, monkeypatch):
        monkeypatch.chdir(where.parent)
        with Programme.open(where.name) as programme:
            (tmp_path / "elsewhere").mkdir()
            monkeypatch.chdir(tmp_path / "elsewhere")
            assert programme.status().events

    def test_a_damaged_copy_changes_nothing(self, where, tmp_path):
        copy = tmp_path / "copy.db"
        store.backup(where, copy)
        with closing(sqlite3.connect(copy)) as there:
            for (name,) in there.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                there.execute(f"DROP TRIGGER {name}")
            there.execute("UPDATE events SET who = 'Eve' WHERE id = 1")
            there.commit()
        before = where.read_bytes()
        with pytest.raises(InvalidInputError, check=mentions("copy.db")):
            store.restore(where, copy)
        copy.write_bytes(b"no database" * 1000)
        with pytest.raises(InvalidInputError, check=mentions("copy.db")):
            store.restore(where, copy)
        assert where.read_bytes() == before

    def test_a_copy_of_another_programme_is_refused(self, where, tmp_path, pumps):
        roster = [{"arm": "b1", "type": "big"}]
        with Programme.create(tmp_path / "other.db", pumps, roster, name="other"):
            pass
        with pytest.raises(InvalidInputError, check=mentions("pumps.db")):
            store.restore(where, tmp_path / "other.db")

    @pytest.mark.parametrize("other", [b"A thesis.", None])
    def test_other_files_are_not_replaced(self, where, tmp_path, other):
        store.backup(where, tmp_path / "copy.db")
        if other is None:
            where.unlink()
            with sqlite3.connect(where) as database:
                database.execute("CREATE TABLE books (title TEXT)")
            database.close()
        else:
            where.write_bytes(other)
        before = where.read_bytes()
        with pytest.raises(InvalidInputError, check=mentions("pumps.db")):
            store.restore(where, tmp_path / "copy.db")
        assert where.read_bytes() == before

    def test_copies_are_no_more_readable_than_the_programme(self, where, tmp_path):
        where.chmod(0o600)
        store.backup(where, tmp_path / "copy.db")
        assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600

    def test_a_copy_written_over_the_open_file_is_noticed(self, where, tmp_path):
        store.backup(where, tmp_path / "copy.db")
        with Programme.open(where) as programme:
            programme.observe([{"arm": "b1", "state": "worn"}], "inspection")
            shutil.copyfile(tmp_path / "copy.db", where)
            for beside in ("-wal", "-shm"):
                Path(f"{where}{beside}").unlink(missing_ok=True)
            with pytest.raises(UnavailableError, check=mentions("replaced")):
                programme.observe([{"arm": "b1", "state": "good"}], "inspection")

    @pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0" + b"no database" * 1000, None])
    def test_a_damaged_or_missing_programme_is_restored(self, where, tmp_path, damage):
        last = store.backup(where, tmp_path / "copy.db")
        where.unlink() if damage is None else where.write_bytes(damage)
        assert store.restore(where, tmp_path / "copy.db") == last
        with Programme.open(where) as programme:
            assert programme.verify().event == last

    def test_a_copy_is_one_file_elsewhere(self, where, tmp_path):
        (tmp_path / "copies").mkdir()
        with Programme.open(where):
            store.backup(where, tmp_path / "copies" / "copy.db")
        assert [file.name for file in (tmp_path / "copies").iterdir()] == ["copy.db"]
        for wrong in (where, tmp_path / "nowhere" / "copy.db"):
            with pytest.raises(InvalidInputError, check=mentions(wrong)):
                store.backup(where, wrong)

    def test_a_server_of_databases_has_tools_of_its_own(self, tmp_path):
        with pytest.raises(InvalidInputError, check=mentions("pg_dump")) as told:
            store.backup("postgresql://ada:secret@localhost/pumps", tmp_path / "copy.db")
        assert "secret" not in str(told.value)
        with pytest.raises(InvalidInputError, check=mentions("pg_restore")):
            store.restore("postgresql://localhost/pumps", tmp_path / "copy.db")
