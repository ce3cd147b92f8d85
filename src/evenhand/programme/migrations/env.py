"""How Alembic runs the migrations: on the connection it is given, within the transaction that is already open."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
