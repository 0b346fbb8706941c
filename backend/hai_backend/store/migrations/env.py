"""The entry point of Alembic. It uses the connection that `config` in __init__.py passes to it."""

from __future__ import annotations

from alembic import context

from hai_backend.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter most columns, so the table is copied
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
