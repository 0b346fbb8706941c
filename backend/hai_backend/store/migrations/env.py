"""Alembic's entry point. It uses the connection in the settings, see `config` in __init__.py."""

from __future__ import annotations

from alembic import context

from hai_backend.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # on SQLite, a table is altered by copying it
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
