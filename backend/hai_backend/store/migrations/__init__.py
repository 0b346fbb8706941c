"""Migrations of the schema. At each start, a server runs all missing migrations in one transaction.

Alembic is imported only if a migration is missing, because the import takes half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table

from hai_backend.domain.errors import Conflict

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "0016"
"""The last revision in versions/. A test checks this value."""

_VERSION = table("alembic_version", column("version_num"))


def upgrade(connection: Connection) -> None:
    """Migrate the schema to the newest revision. Raises Conflict if a newer server has migrated it further."""
    revision = _revision(connection)
    if revision == NEWEST:
        return
    if revision is not None and revision > NEWEST:
        raise Conflict(
            f"the database {connection.engine.url.render_as_string()} was written by a newer server"
            f" (revision {revision}; this one knows {NEWEST}): install that version, or restore a backup of before",
            reason="DATABASE_NEWER",
        )
    from alembic import command

    command.upgrade(config(connection), "head")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def config(connection: Connection) -> Config:
    """Return alembic's settings. They replace the file alembic.ini and pass the connection to env.py."""
    from alembic.config import Config

    settings = Config(attributes={"connection": connection})
    settings.set_main_option("script_location", "hai_backend.store:migrations")
    settings.set_main_option("path_separator", "os")
    return settings
