"""The one door to Alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(tx: Connection, folder: Path | None = None) -> None:
    """Bring a database to the present schema, or to that of other migrations.

    Args:
        tx: within a transaction, which is not committed here.
        folder: of the migrations; by default the package's own.
    """
    config = Config()
    config.set_main_option("script_location", str(folder or Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = tx
    command.upgrade(config, "head")
