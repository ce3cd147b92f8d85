"""What a refit knows of the transitions.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make room for a posterior; refits of before have none."""
    op.add_column("refits", sa.Column("posterior", sa.LargeBinary))
