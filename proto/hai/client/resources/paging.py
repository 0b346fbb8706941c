"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar


class Page(Protocol):
    """One answer; the token is empty on the last one."""

    @property
    def next_page_token(self) -> str: ...


P = TypeVar("P", bound=Page)


async def pages(fetch_page: Callable[[str], Awaitable[P]]) -> AsyncIterator[P]:
    """All of them; `ask` gets the token."""
    token = ""
    while True:
        page = await fetch_page(token)
        yield page
        token = page.next_page_token
        if not token:
            return
