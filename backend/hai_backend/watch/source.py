"""The source of a cache: a list in pages, and a stream of changes since a version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

Body = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class Broken(Exception):
    """The source is unavailable now. Retry later."""


class Expired(Exception):
    """The source no longer knows this version. List again."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; all parts of one list have the same version."""

    items: list[Body]
    version: str


class Source(Protocol):
    """Lists and watches one kind of object."""

    def pages(self) -> AsyncIterator[Page]:
        """All objects. Raises Broken, Expired."""

    def changes(self, version: str, seconds: float) -> AsyncGenerator[tuple[str, Body], None]:
        """Changes since `version`, for at most `seconds`; may end earlier. Raises Broken, Expired."""
