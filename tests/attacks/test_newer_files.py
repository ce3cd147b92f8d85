"""Files beside models and policies, corrupted by seed: programmes, tables of arms, posteriors, fitted models.

A programme's database is harmed as bytes, in any of its pages, and as data: any column of any row gets something
strange, rows and tables are gone. Tables of arms are harmed as bytes, in their header, and in any of their columns;
posteriors as bytes and in any of their arrays. Then all of it is used. Every case is read rightly, or refused by an
error of the project's own, in words, within a time: no name of a class of Python or of a library, no hang. Every change
of the rows of a programme is found by its verification.
"""

import contextlib
import io
import json
import shutil
import signal
import sqlite3
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import EvenhandError
from evenhand.fitting import Dirichlet, Drawn, Named, load_posterior, posterior_path, save_posterior
from evenhand.programme import Programme, schema

from ..conftest import try_each
from ..fitting.flat import drawn_problems
from ..programme.conftest import ACTIONS, ROSTER, STATES, pump
from .test_files import OF_OTHERS, change, harm_bytes, strange_array

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

SEEDS, MANY_SEEDS = range(12), range(12, 4000)
LIMIT = 60
"""Seconds after which one case hangs; the longest takes about one on an idle machine."""

SAYINGS = ("", "x" * 3000, "é\x00", "{}", "[]", "null", "[[1]]", '{"hours": "many"}', '{"hours": null}', "1e400", "-1")
VALUES = (None, -1, 0, 2**62, 1.5, float("inf"), b"", b"PK\x03\x04", *SAYINGS)


@contextlib.contextmanager
def in_time():
    """A hang is a failure; on systems without alarms it is not detected."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_):
        raise TimeoutError(f"not done after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refusal(use):
    """The words of a refusal, or None."""
    with in_time():
        try:
            use()
        except EvenhandError as error:
            assert not OF_OTHERS.search(str(error)), str(error)
            assert str(error).strip()
            return str(error)
    return None


def pumps():
    return eh.CoupledMDP(
        [pump("big", 0.3), pump("small", 0.2)], [3.0], 0.9, [2, 3], resources=["hours"], groups=["", "hill"]
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder of sound files."""
    folder = tmp_path_factory.mktemp("sound")
    problem = pumps()
    with Programme.create(folder / "pumps.db", problem, [row for row in ROSTER if row.get("group") != "valley"]) as run:
        for _ in range(2):
            planned = run.plan(who="ann")
            run.accept(planned.plan, who="bob")
            rows = run.plan_of(planned.plan).rows
            run.record([{"arm": row.arm, "action": row.action, "reward": 0.5} for row in rows], "crew")
            run.observe([{"arm": "b1", "state": "worn"}, {"arm": "h1", "state": "fine"}], "rounds")
        run.plan(who="ann")
    with sqlite3.connect(folder / "pumps.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    eh.save(problem, folder / "arms.parquet")
    eh.save(replace(problem, groups=()), folder / "model.toml")
    draws = np.stack([problem.tables.transitions] * 3)
    rows = Dirichlet(problem.tables.transitions * 20)
    for name, posterior in (("rows", rows), ("draws", Drawn(draws[0], draws))):
        save_posterior(Named(posterior, ("big", "small"), STATES, ACTIONS), folder / f"{name}.posterior.npz")
    return folder


# Programmes


def harm_rows(path, rng):
    """Something strange in a column, or rows or a table gone; nothing checks it on the way."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        filled = [each for each in tables if database.execute(f'SELECT count(*) FROM "{each}"').fetchone()[0]]
        table = str(rng.choice(filled))
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")').fetchall()]
        column, kind = str(rng.choice(columns)), rng.random()
        some = f'WHERE rowid IN (SELECT rowid FROM "{table}" ORDER BY (rowid * 7919) % 101 LIMIT {rng.integers(1, 4)})'
        with contextlib.suppress(sqlite3.IntegrityError, sqlite3.OperationalError):  # what the schema does not let in
            if kind < 0.75:
                value = VALUES[int(rng.integers(len(VALUES)))]
                database.execute(f'UPDATE "{table}" SET "{column}" = ? {some}', (value,))
            elif kind < 0.9:
                database.execute(f'DELETE FROM "{table}" {some}')
            else:
                database.execute(f'DROP TABLE "{table}"')
    finally:
        database.close()


def uses(run):
    """Every query of a programme, each by itself."""
    yield run.status
    yield run.arms
    yield lambda: run.history("b1")
    yield run.model
    yield run.events
    yield run.verify
    yield run.plans
    yield lambda: run.plan_of(1)
    yield run.current_plan
    yield run.certificate
    yield run.needs_solving
    yield lambda: run.recompute(1)
    yield lambda: run.changed_since(3)
    yield lambda: run.unrecorded(2)
    yield run.audit
    yield lambda: run.observe([{"arm": "b2", "state": "fine"}], "rounds")
    yield lambda: run.plan(who="ann")
    yield lambda: run.accept(run.current_plan_number() or 3, who="bob")


def rows_of_tables(path):
    """All rows that verification covers, by table; tables that are gone are left out."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        covered = sorted(names & (schema.METADATA.tables.keys() - {"jobs"}))
        return {name: sorted(database.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr) for name in covered}


def attack_programme(source, path, rng):
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.copy(source, path)
    if rng.random() < 0.4:
        body = path.read_bytes()
        for _ in range(int(rng.integers(1, 4))):
            body = harm_bytes(body, rng)
        path.write_bytes(body)
        changed = False
    else:
        harm_rows(path, rng)
        changed = rows_of_tables(path) != rows_of_tables(source)
    opened = []
    refusal(lambda: opened.append(Programme.open(path)))
    for run in opened:
        with run:
            assert refusal(run.verify) or not changed
            for use in uses(run):
                refusal(use)


# Tables of arms


def harm_column(table, rng):
    """A table with one of its columns gone, of another kind, or with something strange in it."""
    number = int(rng.integers(table.num_columns))
    name, values = table.column_names[number], table.column(number).to_pylist()
    kind = str(rng.choice(["gone", "twice", "text", "values", "values", "values"]))
    if kind == "gone":
        return table.remove_column(number)
    if kind == "twice":
        return table.append_column(name, table.column(number))
    if kind == "text":
        return table.set_column(number, name, pa.array([str(value) for value in values]))
    row = int(rng.integers(len(values)))
    if isinstance(values[row], list) and values[row] and rng.random() < 0.7:
        inner = values[row]
        strange = [None, float("nan"), -1.0, 1e308, 0.0][int(rng.integers(5))]
        place = int(rng.integers(len(inner)))
        values[row] = [inner[:place], [*inner, 0.5]][int(rng.integers(2))] if rng.random() < 0.4 else inner
        if values[row] is inner and not isinstance(inner[place], (list, str)):
            inner[place] = strange
    else:
        values[row] = None
    return table.set_column(number, name, pa.array(values, type=table.schema.field(number).type))


def attack_table(source, path, rng):
    if rng.random() < 0.4:
        path.write_bytes(harm_bytes(source.read_bytes(), rng))
    else:
        table = pq.read_table(source)
        metadata = dict(table.schema.metadata)
        if rng.random() < 0.4:
            key = next(key for key in metadata if b"evenhand" in key)
            header = json.loads(metadata[key])
            change(header, rng)
            metadata[key] = json.dumps(header).encode()
        else:
            table = harm_column(table, rng)
        pq.write_table(table.replace_schema_metadata(metadata), path)
    refusal(lambda: eh.open_arms(path).problem())
    refusal(lambda: eh.check(eh.open_arms(path)))
    refusal(lambda: eh.solve(eh.load(path), method="joint"))


# Posteriors, and the models that they are of


def attack_posterior(source, path, rng):
    model = path.with_name("model.toml")
    shutil.copy(source.with_name("model.toml"), model)
    target = posterior_path(model)
    if rng.random() < 0.4:
        target.write_bytes(harm_bytes(source.read_bytes(), rng))
    else:
        with zipfile.ZipFile(source) as file:
            parts = {name: file.read(name) for name in file.namelist()}
        name = str(rng.choice(list(parts)))
        if name == "names.npy" and rng.random() < 0.7:
            names = json.loads(np.load(io.BytesIO(parts[name])).item())
            change(names, rng)
            out = io.BytesIO()
            np.save(out, np.array(json.dumps(names).encode()))
            parts[name] = out.getvalue()
        elif rng.random() < 0.2:
            del parts[name]
        elif rng.random() < 0.8 and np.load(io.BytesIO(parts[name])).ndim:
            parts[name] = strange_array(parts[name], rng)
        else:
            parts[name] = harm_bytes(parts[name], rng)
        with zipfile.ZipFile(target, "w") as file:
            for each, body in parts.items():
                file.writestr(each, body)
    if rng.random() < 0.2:
        model.write_bytes(harm_bytes(model.read_bytes(), rng))
    refusal(lambda: list(drawn_problems(eh.load(model), load_posterior(target), 2)))
    if rng.random() < 0.1:
        refusal(lambda: eh.uncertainty.draw_scenarios(eh.load(model), model, 20))


KINDS = {
    "pumps.db": attack_programme,
    "arms.parquet": attack_table,
    "rows.posterior.npz": attack_posterior,
    "draws.posterior.npz": attack_posterior,
}


@pytest.fixture(scope="module")
def attack(sound, tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctored")

    def attack(seed):
        rng = np.random.default_rng([seed, 16])
        name = str(rng.choice(list(KINDS)))
        KINDS[name](sound / name, folder / name, rng)

    return attack


pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")


@pytest.mark.slow
def test_sound_files_are_used_without_a_refusal(sound, tmp_path):
    shutil.copy(sound / "pumps.db", tmp_path / "pumps.db")
    with Programme.open(tmp_path / "pumps.db") as run:
        assert [refusal(use) for use in uses(run)] == [None] * len(list(uses(run)))
    for name in ("rows", "draws"):
        assert len(
            list(drawn_problems(eh.load(sound / "model.toml"), load_posterior(sound / f"{name}.posterior.npz"), 2))
        )
    assert eh.open_arms(sound / "arms.parquet").problem().num_arms > 0


def test_doctored_files_are_used_rightly_or_refused_in_words(attack):
    try_each(attack, SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::500])
def test_many_doctored_files(attack, first):
    try_each(attack, range(first, min(first + 500, MANY_SEEDS.stop)))
