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
    from evenhand.programme.api.app import create_app
    from evenhand.programme.api.auth import COOKIE, Sessions, Tokens, cookie_name, make_token
    from evenhand.programme.api.jobs import limit_memory
    from evenhand.programme.api.middleware import HEADERS, BodyLimit, RateLimit
    from evenhand.programme.api.problem_details import RequestError
    from evenhand.programme.api.server import configuration, listen
    from evenhand.programme.api.server_settings import Settings
    from evenhand.programme.api.telemetry import JsonFormatter
    from evenhand.programme.audit import Earned, audit_of, fairness_over_time
    from evenhand.programme.audit_window import count_waits
    from evenhand.programme.belief import most_likely
    from evenhand.programme.certificates import numbers_of, plan_from_bytes
    from evenhand.programme.counterfactuals import Supposed
    from evenhand.programme.drift_test import ERRORS, SCALES, ObservedMoves, evidence, moves_since
    from evenhand.programme.expectations import (
        STRENGTHS,
        UNKNOWN,
        Trajectories,
        choose_strengths,
        continue_by,
        decompose,
        holm,
        p_values,
    )
    from evenhand.programme.integrity import Head, differences
    from evenhand.programme.ledger import append, check_text, digest_of, once
    from evenhand.programme.named_model import from_bytes, of_roster, settle, to_bytes
    from evenhand.programme.programme import Programme
    from evenhand.programme.refit import Moved, log_of
    from evenhand.programme.roster import arms_as_of
    from evenhand.programme.store import Store
    from evenhand.programme.web.arms_page import Visit, states_svg
    from evenhand.programme.web.counterfactual_page import change_svg, compared, in_order
    from evenhand.programme.web.forms import read_form
    from evenhand.programme.web.render import TableQuery, image
    from evenhand.programme.web.today_page import show_today

__getattr__, __dir__ = attach(__name__, __file__)

if find_spec("sqlalchemy") is None:
    raise MissingExtraError("a programme", "service")
