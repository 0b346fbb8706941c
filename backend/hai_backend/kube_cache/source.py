"""The source of a cache: lists objects in pages, and streams the changes since a version."""

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
    """A part of a list. All parts of one list have the same version."""

    items: list[Body]
    version: str


class Source(Protocol):
    """Lists and watches one kind of object."""

    def pages(self) -> AsyncIterator[Page]:
        """Return all objects in pages. Raises Broken and Expired."""

    def changes(self, version: str, seconds: float) -> AsyncGenerator[tuple[str, Body], None]:
        """Stream changes since `version`, for at most `seconds`. May end earlier. Raises Broken and Expired."""
