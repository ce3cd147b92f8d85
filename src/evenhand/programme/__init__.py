"""A running programme: its roster, observations, decisions and records, in a database.

    Programme    the steps observe → plan → accept → record, each of them one transaction
    Store        one SQLite file, or a PostgreSQL database by its address

Needs the extra `service`; without it, every import from here raises `MissingExtraError`. Nothing is imported
here, so that `--help` does not wait for a database.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.errors import MissingExtraError

if TYPE_CHECKING:
    from evenhand.programme.api.auth import Tokens
    from evenhand.programme.api.problem_details import RequestError
    from evenhand.programme.api.server import configuration, create_app, listen
    from evenhand.programme.api.server_settings import Settings
    from evenhand.programme.integrity import Head
    from evenhand.programme.programme import Programme
    from evenhand.programme.store import Store
    from evenhand.programme.web.forms import read_form

__getattr__, __dir__ = attach(__name__, __file__)

if find_spec("sqlalchemy") is None:
    raise MissingExtraError("a programme", "service")
