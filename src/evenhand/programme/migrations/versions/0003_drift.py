"""By how much things may drift, since when the model is held against what is seen, and fits that are offered.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make room; the model of before is held against what was seen since it was adopted, or since the beginning."""
    op.add_column("programme", sa.Column("bounds_json", sa.Text))
    op.add_column("programme", sa.Column("model_event", sa.Integer, nullable=False, server_default="1"))
    last = "(SELECT max(id) FROM events WHERE kind = 'adopted')"
    op.execute(f"UPDATE programme SET model_event = coalesce({last}, 1)")
    op.add_column("refits", sa.Column("replaces", sa.String(64)))
    op.add_column("refits", sa.Column("why", sa.Text))
    op.add_column("refits", sa.Column("declined_event", sa.Integer))
