"""Schemas of released versions, and the way from each to the next. Alembic reads these files."""
