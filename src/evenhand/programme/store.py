"""Where a programme is kept: one SQLite file, or a PostgreSQL database by its address; one schema for both.

Every change is a transaction that first takes the one lock of its programme: `BEGIN IMMEDIATE` on SQLite, the row of
the programme on PostgreSQL. So changes come one after the other, by however many servers, and each has a number
(`ledger`). Reading takes no lock, and sees one moment.

SQLite writes ahead (WAL) and waits for the disk at every commit: what was answered is there after a crash.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from evenhand.checks import why_unreadable
from evenhand.errors import Conflict, EvenhandError, Fault, InvalidInput, MissingExtra, Unavailable
from evenhand.programme import integrity, ledger, schema

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

WAIT = 30
"""Seconds that a change waits for others before it is given up."""

UNREADABLE = (ArithmeticError, AttributeError, LookupError, SQLAlchemyError, TypeError, ValueError)
"""What comes of values that are not what they are to be."""

_ONE_AT_A_TIME = 0x6576656E
"""The number of the lock under which PostgreSQL databases are made and migrated."""


class Store:
    """The database of a programme. `create` and `open` make one."""

    def __init__(self, address: str, engine: Engine) -> None:
        """Keep what is open.

        Args:
            address: as a person gave it, without a password.
            engine: its connections.
        """
        self.address, self.engine = address, engine

    @classmethod
    def create(cls, address: str | Path) -> "Store":
        """A place for a new programme; it is empty, or not yet there. Nothing is written yet.

        Args:
            address: the name of a file, or `postgresql://...`.

        Raises:
            InvalidInput: there is something in it.
            Unavailable: it cannot be reached or written.
        """
        url = _read_address(address)
        store = cls(_told(url), _engine(url))
        if url.get_backend_name() == "sqlite":
            folder = Path(str(url.database)).resolve().parent
            if not folder.is_dir():
                raise InvalidInput(f"{store.address}: the folder {folder} does not exist")
        try:
            with store.reading() as tx:
                store._check_empty(tx)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, address: str | Path) -> "Store":
        """The store of a programme that is there. One of an older version is brought to the present schema.

        Args:
            address: the name of a file, or `postgresql://...`.

        Raises:
            InvalidInput: there is no programme in it, or one of a newer version.
            Unavailable: it cannot be reached.
        """
        url = _read_address(address)
        store = cls(_told(url), _engine(url))
        if url.get_backend_name() == "sqlite":
            _check_there(Path(str(url.database)))
        try:
            store._bring_up_to_date()
        except BaseException:
            store.close()
            raise
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
        """Whether it is a file."""
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
        with self._told_in_words(), self.engine.connect() as connection:
            connection.execution_options(**level)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def writing(self, made: bool = True) -> Iterator[Connection]:
        """A transaction that changes the programme, alone; all of it is kept, or nothing.

        Args:
            made: whether the programme is there already; else its tables are about to be made.
        """
        with self._told_in_words(), self.engine.connect() as connection:
            connection.execution_options(writing=True, draft=ledger.Draft())
            with connection.begin() as begun:
                if not self.is_sqlite:
                    connection.execute(_lock(made))
                yield connection
                ledger.write_event(connection)
                with self._in_doubt():
                    begun.commit()

    @contextlib.contextmanager
    def making(self) -> Iterator[Connection]:
        """A transaction in which the tables are new and empty."""
        from evenhand.programme.migrations.upgrading import upgrade

        with self.writing(made=False) as tx:
            self._check_empty(tx)
            upgrade(tx)
            yield tx

    def _bring_up_to_date(self) -> None:
        with self.reading() as tx:
            found = self._revision(tx)
        if found == schema.REVISIONS[-1]:
            return
        from evenhand.programme.migrations.upgrading import upgrade

        with self.writing(made=False) as tx:
            if self._revision(tx) != schema.REVISIONS[-1]:  # another may have been quicker
                upgrade(tx)

    def _revision(self, tx: Connection) -> str:
        """The schema of what is there, if it is known here."""
        tables = set(inspect(tx).get_table_names())
        if "alembic_version" not in tables or "programme" not in tables:
            raise InvalidInput(f"{self.address}: there is no programme in it. {HOW_TO_CREATE}")
        found = str(tx.execute(text("SELECT version_num FROM alembic_version")).scalar())
        if found not in schema.REVISIONS:
            known = schema.REVISIONS[-1]
            raise InvalidInput(
                f"{self.address}: it is of a newer version of evenhand (schema {found}; this version knows up to "
                f"{known}). Install the newer one: pip install --upgrade 'evenhand[service]'"
            )
        return found

    def _check_empty(self, tx: Connection) -> None:
        tables = inspect(tx).get_table_names()
        if "programme" in tables:
            raise InvalidInput(f"{self.address}: there already is a programme in it")
        if tables:
            named = ", ".join(sorted(tables)[:5])
            raise InvalidInput(
                f"{self.address}: it holds other tables ({named}); a programme has a database of its own"
            )

    @contextlib.contextmanager
    def _in_doubt(self) -> Iterator[None]:
        """A server that is gone while it keeps a change may have kept it or not: nobody says that nothing changed."""
        try:
            yield
        except DBAPIError as error:
            if self.is_sqlite or not error.connection_invalidated:
                raise
            raise Unavailable(
                f"{self.address}: the connection broke while the change was being kept. It is there wholly, or not at "
                "all: ask again under the same key, or look"
            ) from error

    @contextlib.contextmanager
    def _told_in_words(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            said = str(error.orig).strip().splitlines()[0] if error.orig is not None else str(error)
            if isinstance(error, IntegrityError) and "unique" in said.lower():
                raise Conflict(f"{self.address}: somebody else changed it at the same time; ask again") from error
            if any(words in said for words in ("not a database", "malformed", "no such table", "no such column")):
                raise InvalidInput(f"{self.address}: it is not a programme, or a damaged one ({said})") from None
            raise Unavailable(f"{self.address}: {_why(said)}. Nothing was changed") from error
        except NoConnection as error:
            raise Unavailable(f"{self.address}: all connections to it are in use. Nothing was changed") from error
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


HOW_TO_CREATE = "`evenhand programme create PROGRAMME MODEL --roster ROSTER` makes one."


def _why(said: str) -> str:
    """What a database said, in words where they are known."""
    if "locked" in said or "lock timeout" in said:
        return f"others have been changing it for more than {WAIT} seconds"
    if "disk is full" in said or "No space" in said:
        return "the disk is full"
    return said.removesuffix(".")


def _lock(made: bool) -> Any:
    if made:
        return text("SELECT id FROM programme WHERE id = 1 FOR UPDATE")
    return text(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")


def _read_address(address: str | Path) -> "URL":
    """A file's name or an address as a URL for SQLAlchemy."""
    given = os.fspath(address)
    if not given or "\0" in given:
        raise InvalidInput("PROGRAMME: expected the name of a file, or an address postgresql://...")
    if "://" not in given:
        from sqlalchemy.engine import URL

        return URL.create("sqlite", database=given)
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise InvalidInput("PROGRAMME: the address cannot be read; expected postgresql://user@host/database") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return url
    raise InvalidInput(f"PROGRAMME: expected a file, or postgresql://..., got {url.drivername}://...")


def _told(url: "URL") -> str:
    """What a person calls it; never with a password."""
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
        raise InvalidInput(f"{file}: cannot be read: {why_unreadable(file, error)}. {HOW_TO_CREATE}") from None


def _engine(url: "URL") -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": WAIT, "check_same_thread": False})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except ImportError:
        raise MissingExtra("a programme on PostgreSQL", "service") from None
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says so, and nowhere else
    for pragma in ("foreign_keys = ON", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _set_up_postgresql(connection: Any, _: object) -> None:
    connection.autocommit = True
    connection.execute(f"SET lock_timeout = '{WAIT}s'")
    connection.autocommit = False
