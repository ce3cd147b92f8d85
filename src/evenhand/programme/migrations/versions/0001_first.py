"""The first schema.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables; events can be added, and never changed."""
    _make_what_is_run()
    _make_what_is_decided()
    _make_what_happened()
    _keep_events()


def _make_what_is_run() -> None:
    op.create_table(
        "models",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
    )
    op.create_table(
        "programme",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("model", sa.String(64), sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("welfare", sa.Text),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("last_event", sa.Integer, nullable=False),
        sa.Column("bounds_json", sa.Text),
        sa.Column("model_event", sa.Integer, nullable=False),
        sa.CheckConstraint("id = 1", name="one_programme"),
    )
    op.create_table(
        "policies",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("model", sa.String(64), sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("numbers_json", sa.Text, nullable=False),
        sa.Column("facts_json", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
    )
    op.create_table(
        "arms",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("joined_step", sa.Integer, nullable=False),
        sa.Column("joined_event", sa.Integer, nullable=False),
        sa.Column("left_step", sa.Integer),
        sa.Column("left_event", sa.Integer),
        sa.Column("left_why", sa.Text),
    )
    where = sa.text("left_event IS NULL")
    op.create_index("present_arms", "arms", ["name"], unique=True, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "observations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("arm", sa.Integer, sa.ForeignKey("arms.id"), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
    )
    op.create_index("observations_of_arms", "observations", ["arm", "step", "event"])
    op.create_index("observations_of_steps", "observations", ["step", "event"])


def _make_what_is_decided() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("policy", sa.String(64), sa.ForeignKey("policies.digest"), nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("budget_json", sa.Text, nullable=False),
        sa.Column("inputs", sa.String(64), nullable=False),
        sa.Column("outputs", sa.String(64), nullable=False),
        sa.Column("known_event", sa.Integer, nullable=False),
        sa.Column("told_json", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
        sa.Column("accepted_by", sa.Text),
        sa.Column("accepted_at", sa.String(32)),
        sa.Column("accepted_event", sa.Integer),
    )
    where = sa.text("status <> 'superseded'")
    op.create_index("one_plan_a_step", "plans", ["step"], unique=True, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "decisions",
        sa.Column("plan", sa.Integer, sa.ForeignKey("plans.id"), primary_key=True),
        sa.Column("arm", sa.Integer, sa.ForeignKey("arms.id"), primary_key=True),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("known", sa.String(16), nullable=False),
        sa.Column("seen_step", sa.Integer),
        sa.Column("chance", sa.Float, nullable=False),
        sa.Column("planned", sa.Text, nullable=False),
        sa.Column("served", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("next_in_line", sa.Integer),
        sa.Column("accepted", sa.Text),
        sa.Column("who", sa.Text),
        sa.Column("why", sa.Text),
        sa.UniqueConstraint("plan", "place", name="places_of_a_plan"),
    )
    op.create_index("decisions_of_arms", "decisions", ["arm", "plan"])
    op.create_table(
        "records",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("arm", sa.Integer, sa.ForeignKey("arms.id"), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reward", sa.Float),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
    )
    op.create_index("records_of_arms", "records", ["arm", "step", "event"])
    op.create_table(
        "refits",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("model", sa.String(64), sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("facts_json", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
        sa.Column("adopted_event", sa.Integer),
        sa.Column("posterior", sa.LargeBinary),
        sa.Column("replaces", sa.String(64)),
        sa.Column("why", sa.Text),
        sa.Column("declined_event", sa.Integer),
    )


def _make_what_happened() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("body_json", sa.Text, nullable=False),
        sa.Column("changes_json", sa.Text, nullable=False),
        sa.Column("chain", sa.String(64), nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("answer_json", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
    )


def _keep_events() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER events_no_{verb.lower()} BEFORE {verb} ON events "
                "BEGIN SELECT RAISE(ABORT, 'events are never changed'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION events_are_kept() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'events are never changed'; END $$"
    )
    op.execute(
        "CREATE TRIGGER events_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION events_are_kept()"
    )
