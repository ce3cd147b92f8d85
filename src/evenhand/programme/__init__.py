"""A running programme: its roster, observations, decisions and records, in a database.

    Programme    the steps observe → plan → accept → record, each of them one transaction
    Store        one SQLite file, or a PostgreSQL database by its address

Needs the extra `service`; without it, every import from here raises `MissingExtraError`. Nothing is imported
here, so that `--help` does not wait for a database.
"""

from importlib.util import find_spec

from evenhand.errors import MissingExtraError

if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
    raise MissingExtraError("a programme", "service")
