"""The tables of a programme, the same in SQLite and PostgreSQL.

    programme      one row: what is run, the number of the last event, bounds of drift, and the event since which the
                   model is held against what is seen
    models         every model it was ever run by; a digest stands for it
    policies       every policy it was ever planned by, as the bytes of its file
    arms           who takes part: from which step, until which
    transfers      another type or group of an arm, from a step on; later ones count
    observations   what an arm was seen in, at which step; never changed, later ones count. Before step 0: history
    plans          what was to be done at a step, and from what that follows
    decisions      arm by arm: what the plan knew, what it gives, what was accepted and why
    records        actions done and their rewards; never changed, later ones count
    refits         models fitted to the programme's own records, adopted or not; with a why, a server offered it
    settings       words, calendar and other values by name, each from a step on; never changed, later ones count
    events         all that ever happened, one after the other, with every row of the tables above that it wrote; the
                   database itself refuses to change them
    keys           answers given under a key: who asks again under the same gets the same
    views          who looked at whom, if that is logged; not part of the chain, since reading changes no programme

Personal texts (`SEALED`) are not in the events themselves, which hold an HMAC of each under the `salt` of its row:
while text and salt are there the chain proves the text; an erasure replaces both, and the chain still verifies.

Numbers of events order everything: of two rows the one with the later event is newer, whatever any clock says. Times
are stored, and never compared. A table may be read *as of* an event (`valid`): rows with later ones are left out, and
so are rows whose event was undone by then. Undoing deletes nothing: it sets `undone_event`.

Texts that end in `_json` are JSON. Programmes of another `VERSION` of these tables are refused.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Index, MetaData, Table

VERSION = "3"
"""Version of the tables, stored with the programme; another one is refused."""

METADATA = MetaData()

PROPOSED, ACCEPTED, SUPERSEDED = "proposed", "accepted", "superseded"
"""Status of a plan: open, accepted, or replaced by a later one."""

_KINDS: list[tuple[Any, str]] = [
    (sa.Integer, "id step event place served seen_step next_in_line joined_step left_step from_step"),
    (sa.Integer, "last_event model_event known_event accepted_event joined_event left_event adopted_event"),
    (sa.Integer, "declined_event undone_event"),
    (sa.BigInteger, "seed"),
    (sa.Float, "chance reward"),
    (sa.String(64), "digest inputs outputs chain request replaces"),
    (sa.String(32), "at created_at accepted_at kind salt"),
    (sa.String(16), "status known"),
    (sa.String(300), "key"),
    (sa.LargeBinary, "body"),
]
KINDS = {name: kind for kind, names in _KINDS for name in names.split()}
"""Types of columns, the same in every table; all others are texts."""

TARGETS = {"model": "models.digest", "policy": "policies.digest", "arm": "arms.id", "plan": "plans.id"}
"""Columns that refer to a row of another table."""


def _table(name: str, columns: str, *more: Any, keys: int = 1) -> Table:
    """A table.

    Args:
        name: of the table.
        columns: their names; those that end in `?` may be empty.
        more: constraints and indices.
        keys: how many of the first columns are the primary key.
    """
    found: list[sa.Column[Any]] = []
    for place, text in enumerate(columns.split()):
        column = text.removesuffix("?")
        kind = sa.ForeignKey(TARGETS[column]) if column in TARGETS else KINDS.get(column, sa.Text)
        options: dict[str, Any] = {"primary_key": place < keys, "nullable": text.endswith("?"), "autoincrement": False}
        found.append(sa.Column(column, kind, **options))
    return Table(name, METADATA, *found, *more)


def _unique_where(name: str, column: str, condition: str) -> Index:
    where = sa.text(condition)
    return Index(name, column, unique=True, sqlite_where=where, postgresql_where=where)


models = _table("models", "digest body origin at event")

programme = _table(
    "programme",
    "id name model welfare? seed created_at last_event bounds_json? model_event version",
    sa.CheckConstraint("id = 1", name="one_programme"),
)

policies = _table("policies", "digest model body facts_json at event")

arms = _table(
    "arms",
    "id name type group_name joined_step joined_event left_step? left_event? left_why? salt?",
    _unique_where("present_arms", "name", "left_event IS NULL"),
    Index("arms_by_name", "name"),
)

transfers = _table(
    "transfers", "id arm type group_name from_step event undone_event?", Index("transfers_of_arms", "arm", "from_step")
)

observations = _table(
    "observations",
    "id arm step state source at event undone_event?",
    Index("observations_of_arms", "arm", "step", "event"),
    Index("observations_of_steps", "step", "event"),
    Index("observations_of_events", "event"),
)

plans = _table(
    "plans",
    "id step status model policy seed budget_json inputs outputs known_event summary_json at event "
    "accepted_by? accepted_at? accepted_event? approved_by? undone_event?",
    _unique_where("one_plan_a_step", "step", "status <> 'superseded'"),
    Index("plans_by_status", "status", "step"),
)

decisions = _table(
    "decisions",
    "plan arm place state known seen_step? chance planned served reason next_in_line? accepted? who? why? salt?",
    sa.UniqueConstraint("plan", "place", name="places_of_a_plan"),
    Index("decisions_of_arms", "arm", "plan"),
    keys=2,
)

records = _table(
    "records",
    "id arm step action reward? source at event undone_event?",
    Index("records_of_arms", "arm", "step", "event"),
    Index("records_of_steps", "step", "arm"),
    Index("records_of_events", "event"),
)

refits = _table("refits", "id model facts_json at event adopted_event? replaces? why? declined_event?")

settings = _table(
    "settings", "id name value_json from_step event undone_event?", Index("settings_by_name", "name", "from_step")
)

events = _table("events", "id kind who at body_json changes_json chain")

views = _table("views", "id at who arm", Index("views_of_arms", "arm"))

keys = _table("keys", "key kind request answer_json at event salt?")

SEALED = {"arms": ("name", "left_why"), "decisions": ("why",), "keys": ("request", "answer_json")}
"""Personal texts by table: events hold their seals. A row that changes one of them states all of them."""

LOGS = ("events", "views")
"""Tables whose rows are added and never changed."""

TRIGGERS = {f"{table}_no_{verb.lower()}": (table, verb) for table in LOGS for verb in ("UPDATE", "DELETE")}
"""Triggers of a SQLite file, which refuse changes of logs."""

PROTECTION = {
    "sqlite": [
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END"
        for name, (table, verb) in TRIGGERS.items()
    ],
    "postgresql": [
        "CREATE FUNCTION logs_are_kept() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'logs are never changed'; END $$",
        *(
            f"CREATE TRIGGER {table}_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION logs_are_kept()"
            for table in LOGS
        ),
    ],
}
"""Statements by which each database refuses to change logs."""


def valid(table: Table, event: int | None = None, since: str = "event") -> list[sa.ColumnElement[bool]]:
    """Return the conditions on rows that count: written and not undone, as of an event or now.

    Args:
        table: with the column `undone_event`.
        event: later events are ignored; by default none.
        since: column of the event from which on a row counts.
    """
    undone = table.c.undone_event
    if event is None:
        return [undone.is_(None)]
    return [table.c[since] <= event, undone.is_(None) | (undone > event)]


def create(tx: Connection) -> None:
    """Create the tables and their protection."""
    METADATA.create_all(tx)
    for statement in PROTECTION[tx.dialect.name]:
        tx.exec_driver_sql(statement)
