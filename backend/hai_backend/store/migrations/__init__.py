"""The schema's history. Looked at by every start of a server, run within one transaction: all of it or nothing.

Alembic is imported only when there is something to do: it would cost every start half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table

from hai_backend.domain.errors import Conflict

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "0014"
"""The last revision in versions/; a test holds it against them."""

_VERSION = table("alembic_version", column("version_num"))


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest revision. Raises Conflict when the database is newer: no waiting mends that."""
    found = _revision(connection)
    if found == NEWEST:
        return
    if found is not None and found > NEWEST:
        raise Conflict(
            f"the database {connection.engine.url.render_as_string()} was written by a newer server (revision {found};"
            f" this one knows {NEWEST}): install that version, or restore a backup of before",
            reason="DATABASE_NEWER",
        )
    from alembic import command

    command.upgrade(config(connection), "head")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def config(connection: Connection) -> Config:
    """Alembic's settings, without a file; env.py takes the connection from them."""
    from alembic.config import Config

    settings = Config(attributes={"connection": connection})
    settings.set_main_option("script_location", "hai_backend.store:migrations")
    settings.set_main_option("path_separator", "os")
    return settings
