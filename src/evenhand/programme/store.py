"""Store of a programme: one SQLite file, or a PostgreSQL database by its address; one schema for both.

Every change is a transaction that first takes the one lock of its programme: `BEGIN IMMEDIATE` on SQLite, the row of
the programme on PostgreSQL. So changes come one after the other, by however many servers, and each has a number
(`ledger`). Reading takes no lock, and sees one moment.

SQLite writes ahead (WAL) and waits for the disk at every commit: what was answered is there after a crash. An open file
that is replaced or removed goes on to exist for those who have it open, without a name: what is written to it is lost.
So device and inode are compared before every transaction and before every commit, and what follows is refused.
`restore` therefore writes into the file that is there, as one transaction, under whatever server runs.
"""

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from evenhand.checks import why_unreadable
from evenhand.errors import ConflictError, EvenhandError, Fault, InvalidInputError, MissingExtraError, UnavailableError
from evenhand.programme import integrity, ledger, schema

WAIT = 30
"""Seconds that a change waits for others before it is given up, by default."""

UNREADABLE = (ArithmeticError, AttributeError, LookupError, SQLAlchemyError, TypeError, ValueError)
"""Errors raised by invalid stored values."""

SCRUB = {
    "sqlite": ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"),
    "postgresql": tuple(f"VACUUM (FULL, ANALYZE) {table}" for table in schema.SEALED),
}
"""Statements that write tables anew, and PostgreSQL's statistics, which have the most frequent texts of a table."""

HOW_TO_CREATE = "`evenhand programme create` makes one."


class _RolledBackError(Exception):
    """Ends a transaction that is not to be stored."""


class Store:
    """The database of a programme. `create` and `open` make one."""

    def __init__(self, address: str | Path, wait: int = WAIT) -> None:
        """Prepare connections; `create` and `open` also check what is there.

        Args:
            address: the name of a file, or `postgresql://...`.
            wait: seconds that a change waits for others.
        """
        url = _read_address(address)
        self.address, self.engine, self._wait = _without_password(url), _engine(url, wait), wait
        self._file: Path | None = None
        self._opened: tuple[int, int] | None = None
        self._lock = Lock()
        if self.is_sqlite:
            self._file = Path(str(url.database)).absolute()  # the working directory may change
            event.listen(self.engine, "connect", self._remember_file)

    @classmethod
    def create(cls, address: str | Path) -> "Store":
        """A place for a new programme; it is empty, or not yet there. Nothing is written yet.

        Args:
            address: the name of a file, or `postgresql://...`.

        Raises:
            InvalidInputError: there is something in it.
            UnavailableError: it cannot be reached or written.
        """
        store = cls(address)
        if store._file is not None and not store._file.resolve().parent.is_dir():
            raise InvalidInputError(f"{store.address}: the folder {store._file.resolve().parent} does not exist")
        if store._file is not None:
            with contextlib.suppress(OSError):  # the database reports it
                store._file.touch(0o600)
                if store._file.is_file() and not store._file.stat().st_size:
                    store._file.chmod(0o600)  # for the owner alone, as what is written beside it then is
        with store._closed_on_error(), store.reading() as tx:
            store._check_empty(tx)
        return store

    @classmethod
    def open(cls, address: str | Path, wait: int = WAIT) -> "Store":
        """The store of an existing programme.

        Args:
            address: the name of a file, or `postgresql://...`.
            wait: seconds that a change waits for others.

        Raises:
            InvalidInputError: it contains no programme, or one of another version.
            UnavailableError: it cannot be reached.
        """
        store = cls(address, wait)
        if store._file is not None:
            _check_there(Path(store.address))
        with store._closed_on_error(), store.reading() as tx:
            if "programme" not in inspect(tx).get_table_names():
                raise InvalidInputError(f"{store.address}: it contains no programme. {HOW_TO_CREATE}")
            store._check_version(tx)
        return store

    @property
    def full_address(self) -> str:
        """As it can be opened again, elsewhere on this machine: with a password, so not to be shown."""
        url = self.engine.url
        if self.is_sqlite:
            return str(Path(str(url.database)).resolve())
        return url.set(drivername="postgresql").render_as_string(hide_password=False)

    @property
    def is_sqlite(self) -> bool:
        """Return whether the store is a file."""
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment, and changes nothing."""
        level = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._in_words(), self.engine.connect() as connection:
            connection.execution_options(draft=ledger.Draft(), **level)
            with connection.begin():
                self._check_same_file(connection)
                yield connection

    @contextlib.contextmanager
    def writing(self, made: bool = True) -> Iterator[Connection]:
        """A transaction that changes the programme, alone; all of it is stored, or nothing.

        Args:
            made: whether the programme is there already; else its tables are about to be made.
        """
        with self._in_words(), self.engine.connect() as connection:
            connection.execution_options(writing=True, draft=ledger.Draft())
            with self._turn(), connection.begin() as begun:
                if not self.is_sqlite:
                    lock = "SELECT id FROM programme WHERE id = 1 FOR UPDATE"
                    connection.execute(text(lock if made else "SELECT pg_advisory_xact_lock(hashtext('evenhand'))"))
                    connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{10 * self._wait}s'"))
                self._check_same_file(connection)
                if made:
                    self._check_version(connection, UnavailableError)  # another server may have brought in a newer one
                yield connection
                ledger.write_event(connection)
                self._check_same_file(connection)
                try:
                    begun.commit()
                except DBAPIError as error:
                    if self.is_sqlite or not error.connection_invalidated:
                        raise
                    raise UnavailableError(
                        f"{self.address}: the connection broke during the commit, whose outcome is unknown. "
                        "Repeat the request under the same key"
                    ) from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other threads of this process: SQLite would try for its lock again and again, with longer pauses."""
        if not self._lock.acquire(timeout=self._wait):
            raise UnavailableError(f"{self.address}: {_why('locked', self._wait)}. Nothing was changed")
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def making(self) -> Iterator[Connection]:
        """A transaction in which the tables are new and empty."""
        with self.writing(made=False) as tx:
            self._check_empty(tx)
            schema.create(tx)
            yield tx

    def check_writable(self) -> None:
        """Take the lock, write, and roll back.

        Raises:
            UnavailableError: nothing can be written now.
        """
        with contextlib.suppress(_RolledBackError), self.writing() as tx:
            tx.execute(update(schema.programme).values(last_event=schema.programme.c.last_event))
            raise _RolledBackError

    def scrub(self) -> None:
        """Write the tables anew, so that what was replaced or removed is no longer in their files.

        Raises:
            UnavailableError: others use them; the transactions before stay as they are.
        """
        with self.engine.connect() as connection:
            if not self.is_sqlite:  # where every statement of the driver is on its own
                connection.execution_options(isolation_level="AUTOCOMMIT")
            driver: Any = connection.connection.driver_connection
            try:
                for statement in SCRUB[self.engine.dialect.name]:
                    answer = driver.execute(statement)
                if self.is_sqlite and answer.fetchone()[0]:  # busy: a reader still sees what was there before
                    raise sqlite3.OperationalError("locked")
            except self.engine.dialect.dbapi.Error as error:  # type: ignore[union-attr]
                why = _why(str(error), self._wait)
                raise UnavailableError(
                    f"{self.address}: {why}. It is erased, but traces are left until VACUUM"
                ) from error

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _remember_file(self, *_: object) -> None:
        if self._opened is None and self._file is not None:
            self._opened = _identity(self._file)

    def _check_same_file(self, connection: Connection) -> None:
        """Refuse to go on with files that no longer have their names: whatever is written to them is lost."""
        if self._file is None:
            return
        # A connection keeps its write-ahead log open: one that was removed beside it takes writes that are lost.
        log = _identity(f"{self._file}-wal")
        known = connection.info.get("log") or log
        connection.info["log"] = known
        if _identity(self._file) != self._opened or log != known:
            raise UnavailableError(
                f"{self.address}: the file was replaced or removed after it was opened. Nothing was changed; open the "
                "programme again, and use `evenhand programme restore` to put a copy into its place while it runs"
            )

    def _check_version(self, tx: Connection, error: type[EvenhandError] = InvalidInputError) -> None:
        cursor = tx.connection.cursor()
        row = cursor.execute("SELECT * FROM programme").fetchone()
        names = [column[0] for column in cursor.description]
        found = None if row is None else dict(zip(names, row, strict=True)).get("version", "0")
        if found not in (None, schema.VERSION):  # without a row the programme is damaged
            raise error(
                f"{self.address}: it was written with another schema version, {found}; this evenhand reads version "
                f"{schema.VERSION}. Open it with the evenhand that wrote it",
                code="schema-version",
            )

    def _check_empty(self, tx: Connection) -> None:
        tables = inspect(tx).get_table_names()
        if "programme" in tables:
            raise InvalidInputError(f"{self.address}: there already is a programme in it")
        if tables:
            named = ", ".join(sorted(tables)[:5])
            raise InvalidInputError(
                f"{self.address}: it holds other tables ({named}); a programme has a database of its own"
            )

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        """Raise errors of the database as errors of evenhand."""
        try:
            yield
        except (DBAPIError, self.engine.dialect.loaded_dbapi.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            said = (str(cause).strip() or str(error)).splitlines()[0]
            if isinstance(cause, self.engine.dialect.loaded_dbapi.IntegrityError) and "unique" in said.lower():
                raise ConflictError(f"{self.address}: it was changed at the same time; repeat the request") from error
            if any(words in said for words in ("not a database", "malformed", "no such table", "no such column")):
                raise InvalidInputError(f"{self.address}: it is not a programme, or a damaged one ({said})") from None
            raise UnavailableError(f"{self.address}: {_why(said, self._wait)}. Nothing was changed") from error
        except NoConnection as error:
            raise UnavailableError(f"{self.address}: all connections to it are in use. Nothing was changed") from error
        except EvenhandError:
            raise
        except UNREADABLE as error:
            # Rows are trusted while they can be read. If they cannot, either something else wrote into the database,
            # which is reported, or the fault is in this library, and passes on as it is.
            integrity.raise_differences(self.address, self._damage(), error)
            raise

    def _damage(self) -> list[Fault]:
        try:
            with self.engine.connect() as connection, connection.begin():
                return integrity.differences(connection)
        except (SQLAlchemyError, ValueError):
            return [Fault("", "its tables cannot be read")]


# Copies


def backup(address: str | Path, file: str | Path) -> int:
    """Copy a programme into one file, as of one moment, while it runs; the number of its last event.

    Args:
        address: the file of a programme.
        file: where to; a file that is there is replaced as a whole.

    Raises:
        InvalidInputError: it contains no programme, is damaged, or it is on PostgreSQL.
    """
    source, target = _sqlite_file(address, "pg_dump"), Path(file)
    with _sound_copy(source, target) as (copy, last):
        copy.replace(target)
    return last


def restore(address: str | Path, file: str | Path) -> int:
    """Put a copy into the place of a programme, as one transaction, while servers run; the number of its last event.

    A file that cannot be written to, such as a damaged one, is replaced; servers that have it open refuse all that
    follows until they are started again.

    Args:
        address: the file of the programme; it need not exist.
        file: from `backup`. It stays as it is.

    Raises:
        InvalidInputError: the copy is not a programme, is damaged, or is one of another programme; nothing was changed.
    """
    target, source = _sqlite_file(address, "pg_restore"), Path(file)
    with _sound_copy(source, target) as (copy, last):
        if not target.exists() or target.stat().st_size == 0:
            copy.replace(target)
            return last
        first = "SELECT chain FROM events WHERE id = 1"
        foreign = InvalidInputError(f"{target}: it is not a programme. Remove the file, and restore again")
        try:
            with _connected(copy) as here, _connected(target) as there:
                is_same = there.execute(first).fetchone() == here.execute(first).fetchone()
            if is_same:
                _copy(copy, target)
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise foreign from error
            raise UnavailableError(f"{target}: {_why(str(error), WAIT)}. Nothing was changed") from error
        except sqlite3.DatabaseError as error:
            with target.open("rb") as stream:
                if stream.read(16) != b"SQLite format 3\0":
                    raise foreign from error
            # It is damaged. What was written ahead for it must not be read into the copy.
            for beside in ("-wal", "-shm"):
                Path(f"{target}{beside}").unlink(missing_ok=True)
            copy.replace(target)
        else:
            if not is_same:
                raise InvalidInputError(f"{target}: the copy is one of another programme; remove the file first")
    return last


@contextlib.contextmanager
def _sound_copy(source: Path, target: Path) -> Iterator[tuple[Path, int]]:
    """A checked copy of a programme in one file, in the folder where it is to go; and the number of its last event."""
    _check_there(source)
    if target.exists() and target.samefile(source):
        raise InvalidInputError(f"{target}: a programme cannot be copied to itself; name another file")
    try:
        place = TemporaryDirectory(dir=target.absolute().parent)
    except OSError as error:
        raise InvalidInputError(f"{target}: cannot be written: {error.strerror}") from None
    with place as folder:
        copy = Path(folder) / "copy.db"
        # Personal data: for the owner alone, or as what it replaces, but never for all.
        copy.touch(0o600)
        if target.exists():
            copy.chmod(target.stat().st_mode & 0o770)
        try:
            _copy(source, copy)
            with Store.open(copy) as store, store.reading() as tx:
                integrity.raise_differences(str(source), integrity.differences(tx))
                last = ledger.last_event(tx)
        except sqlite3.DatabaseError as error:
            raise InvalidInputError(f"{source}: it is not a programme, or a damaged one ({error})") from None
        except InvalidInputError as error:
            raise InvalidInputError(str(error).replace(f"{copy}:", f"{source}:"), code=error.code) from None
        with _connected(copy) as alone:
            alone.execute("PRAGMA journal_mode = DELETE")
        yield copy, last


def _copy(source: Path, target: Path) -> None:
    """Copy a database by SQLite's own backup: one moment of the source, one transaction of the target."""
    end = monotonic() + WAIT

    def give_up(*_: object) -> None:
        if monotonic() > end:
            raise UnavailableError(f"{target}: {_why('locked', WAIT)}")

    with _connected(source) as here, _connected(target) as there:
        here.backup(there, progress=give_up, sleep=0.05)


def _connected(file: Path) -> "contextlib.closing[sqlite3.Connection]":
    return contextlib.closing(sqlite3.connect(file, timeout=WAIT))


def _sqlite_file(address: str | Path, tool: str) -> Path:
    """The file of a programme; refused with another way for a database on a server."""
    url = _read_address(address)
    if url.get_backend_name() != "sqlite":
        raise InvalidInputError(f"{_without_password(url)}: a database on a server has tools of its own; use {tool}")
    return Path(str(url.database))


def _identity(file: Path | str) -> tuple[int, int] | None:
    """Device and inode of a file; None without one."""
    try:
        found = os.stat(file)  # noqa: PTH116  # before and after every transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _why(said: str, wait: int) -> str:
    """Return a database's message, in plain words if known."""
    if "locked" in said or "lock timeout" in said:
        return f"others have been changing it for more than {wait} seconds"
    if "disk is full" in said or "No space" in said:
        return "the disk is full"
    return said.removesuffix(".")


# Addresses


def _read_address(address: str | Path) -> URL:
    """A file's name or an address as a URL for SQLAlchemy."""
    given = os.fspath(address)
    if not given or "\0" in given:
        raise InvalidInputError("PROGRAMME: expected the name of a file, or an address postgresql://...")
    if "://" not in given:
        return URL.create("sqlite", database=given)
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise InvalidInputError(
            "PROGRAMME: the address cannot be read; expected postgresql://user@host/database"
        ) from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return url
    raise InvalidInputError(f"PROGRAMME: expected a file, or postgresql://..., got {url.drivername}://...")


def _without_password(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    query = {name: "***" if "password" in name else value for name, value in url.query.items()}
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=True)


def _check_there(file: Path) -> None:
    # Never opened here: closing it would drop the locks that this process holds by other connections (POSIX), another
    # process would take itself for the last one, and do away with what is written ahead.
    try:
        if stat.S_ISDIR(file.stat().st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(file, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        why = why_unreadable(file, error)
        end = "" if why.endswith("?") else "."
        raise InvalidInputError(f"{file}: cannot be read: {why}{end} {HOW_TO_CREATE}") from None


# Connections


def _engine(url: URL, wait: int) -> Engine:
    if url.get_backend_name() == "sqlite":
        connected = {"timeout": wait, "check_same_thread": False}
        engine = create_engine(url, pool_size=15, max_overflow=0, connect_args=connected)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except ImportError:
        raise MissingExtraError("a programme on PostgreSQL", "service") from None

    @event.listens_for(engine, "connect")
    def limit_waiting(connection: Any, _: object) -> None:
        connection.execute(f"SET lock_timeout = '{wait}s'")
        connection.execute(f"SET statement_timeout = '{10 * wait}s'")
        connection.commit()

    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says so, and nowhere else
    for pragma in ("foreign_keys = ON", "journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", False)
    connection.connection.cursor().execute("BEGIN IMMEDIATE" if writing else "BEGIN")
