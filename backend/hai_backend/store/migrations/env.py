"""Alembic's entry point: runs on the connection that `upgrade` or a test hands over."""

from __future__ import annotations

from alembic import context

from hai_backend.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
