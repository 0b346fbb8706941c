"""What a picture is drawn from: a list in pages, and a stream of changes since a version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

Body = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class Broken(Exception):
    """The source cannot answer just now. Ask again later."""


class Expired(Exception):
    """The source no longer knows this version. List again."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; all parts of one list show the same version."""

    items: list[Body]
    version: str


class Source(Protocol):
    """One kind of object."""

    def pages(self) -> AsyncIterator[Page]:
        """Everything that there is. Raises Broken, Expired."""

    def changes(self, version: str, seconds: float) -> AsyncGenerator[tuple[str, Body], None]:
        """What has happened since `version`, for so long, or until the source likes to end. Raises Broken, Expired."""
