"""The tables of a programme, the same in SQLite and PostgreSQL.

    programme      one row: what is run, the number of the last event, bounds of drift, and the event since which the
                   model is held against what is seen
    models         every model it was ever run by; a digest stands for it
    policies       every policy it was ever planned by, as the bytes of its file
    arms           who takes part: from which step, until which
    observations   what an arm was seen in, at which step; never changed, later ones count
    plans          what was to be done at a step, and from what that follows
    decisions      arm by arm: what the plan knew, what it gives, what was accepted and why
    records        actions done and their rewards; never changed, later ones count
    refits         models fitted to the programme's own records, adopted or not; with a why, a server offered it
    events         all that ever happened, one after the other, with every row of the tables above that it wrote; the
                   database itself refuses to change them
    keys           answers given under a key: who asks again under the same gets the same

Numbers of events order everything: of two rows the one with the later event is newer, whatever any clock says. Times
are stored, and never compared. A table may be read *as of* an event: rows with later ones are left out.

Texts that end in `_json` are JSON. What changes here changes `migrations/`, too; a test compares the two.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

REVISIONS = ("0001",)
"""The schemas that were ever released, the oldest first; the last is the present one."""

METADATA = MetaData()

PROPOSED, ACCEPTED, SUPERSEDED = "proposed", "accepted", "superseded"
"""Status of a plan: open, accepted, or replaced by a later one."""

models = Table(
    "models",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("origin", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
)

programme = Table(
    "programme",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("model", String(64), ForeignKey("models.digest"), nullable=False),
    Column("welfare", Text),
    Column("seed", BigInteger, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("last_event", Integer, nullable=False),
    Column("bounds_json", Text),
    Column("model_event", Integer, nullable=False),
    CheckConstraint("id = 1", name="one_programme"),
)

policies = Table(
    "policies",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("model", String(64), ForeignKey("models.digest"), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("numbers_json", Text, nullable=False),
    Column("facts_json", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
)

arms = Table(
    "arms",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("joined_step", Integer, nullable=False),
    Column("joined_event", Integer, nullable=False),
    Column("left_step", Integer),
    Column("left_event", Integer),
    Column("left_why", Text),
    Index("present_arms", "name", unique=True, sqlite_where=text("left_event IS NULL"),
          postgresql_where=text("left_event IS NULL")),
)  # fmt: skip

observations = Table(
    "observations",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("arm", Integer, ForeignKey("arms.id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
    Index("observations_of_arms", "arm", "step", "event"),
    Index("observations_of_steps", "step", "event"),
)

plans = Table(
    "plans",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("step", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("model", String(64), ForeignKey("models.digest"), nullable=False),
    Column("policy", String(64), ForeignKey("policies.digest"), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("budget_json", Text, nullable=False),
    Column("inputs", String(64), nullable=False),
    Column("outputs", String(64), nullable=False),
    Column("known_event", Integer, nullable=False),
    Column("told_json", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
    Column("accepted_by", Text),
    Column("accepted_at", String(32)),
    Column("accepted_event", Integer),
    Index("one_plan_a_step", "step", unique=True, sqlite_where=text("status <> 'superseded'"),
          postgresql_where=text("status <> 'superseded'")),
)  # fmt: skip

decisions = Table(
    "decisions",
    METADATA,
    Column("plan", Integer, ForeignKey("plans.id"), primary_key=True),
    Column("arm", Integer, ForeignKey("arms.id"), primary_key=True),
    Column("place", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("known", String(16), nullable=False),
    Column("seen_step", Integer),
    Column("chance", Float, nullable=False),
    Column("planned", Text, nullable=False),
    Column("served", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("next_in_line", Integer),
    Column("accepted", Text),
    Column("who", Text),
    Column("why", Text),
    UniqueConstraint("plan", "place", name="places_of_a_plan"),
    Index("decisions_of_arms", "arm", "plan"),
)

records = Table(
    "records",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("arm", Integer, ForeignKey("arms.id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("action", Text, nullable=False),
    Column("reward", Float),
    Column("source", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
    Index("records_of_arms", "arm", "step", "event"),
)

refits = Table(
    "refits",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("model", String(64), ForeignKey("models.digest"), nullable=False),
    Column("facts_json", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
    Column("adopted_event", Integer),
    Column("posterior", LargeBinary),
    Column("replaces", String(64)),
    Column("why", Text),
    Column("declined_event", Integer),
)

events = Table(
    "events",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("who", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("body_json", Text, nullable=False),
    Column("changes_json", Text, nullable=False),
    Column("chain", String(64), nullable=False),
)

keys = Table(
    "keys",
    METADATA,
    Column("key", String(200), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("request", String(64), nullable=False),
    Column("answer_json", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("event", Integer, nullable=False),
)
