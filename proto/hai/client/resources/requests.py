"""What requests of several services share: page tokens and timestamps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp


class Page(Protocol):
    """One answer. The token of the last one is empty."""

    @property
    def next_page_token(self) -> str: ...


P = TypeVar("P", bound=Page)


async def pages(fetch_page: Callable[[str], Awaitable[P]]) -> AsyncIterator[P]:
    """Every page of a list, by calls of `fetch_page` with a page token."""
    token = ""
    while True:
        page = await fetch_page(token)
        yield page
        token = page.next_page_token
        if not token:
            return


def timestamp(time: datetime | None) -> Timestamp | None:
    """A time as a message. A time without a zone is local time."""
    if time is None:
        return None
    result = Timestamp()
    result.FromDatetime(time.astimezone())
    return result
