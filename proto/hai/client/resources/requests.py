"""Helpers for requests of several services: pages and timestamps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp


class Page(Protocol):
    """One page of a list. The token of the last page is empty."""

    @property
    def next_page_token(self) -> str: ...


P = TypeVar("P", bound=Page)


async def pages(fetch_page: Callable[[str], Awaitable[P]]) -> AsyncIterator[P]:
    """Yield every page of a list. `fetch_page` fetches the page of a page token."""
    token = ""
    while True:
        page = await fetch_page(token)
        yield page
        token = page.next_page_token
        if not token:
            return


def timestamp(time: datetime | None) -> Timestamp | None:
    """Return a time as a message. A time without a zone is local time."""
    if time is None:
        return None
    result = Timestamp()
    result.FromDatetime(time.astimezone())
    return result
