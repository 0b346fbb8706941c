"""What SqlStore needs of a database: a snapshot to read from, and a writer that commits in groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from hai_backend.store.sql.commands import Command

T = TypeVar("T")


class Database(Protocol):
    """sql/sqlite.py and sql/postgres.py are the two."""

    async def open(self) -> None:
        """Connect, create or migrate the schema, start the writer."""

    async def close(self) -> None:
        """Finish what waits, then let go of everything."""

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Ask within one snapshot of the committed state."""

    async def write(self, command: Command) -> Any:
        """The command's outcome, once it is durable."""

    async def confirm(self) -> None:
        """Raises Deposed when another server leads by now."""
