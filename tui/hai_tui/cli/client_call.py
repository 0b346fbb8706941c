"""The way from a command to a server. Loads asyncio and grpc only when a command really calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from hai.client.client import Client


Answer = TypeVar("Answer")


def connect(profile: str | None) -> AbstractAsyncContextManager[Client]:
    """A client for the profile of that name, or for the one that the environment and the file choose."""
    from hai.client.client import Client
    from hai.client.profile import load

    return Client(load(profile))


def call(settings: Settings, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Connect, do the work, disconnect."""
    import asyncio

    async def session() -> Answer:
        async with settings.connect(settings.profile) as client:
            return await work(client)

    return asyncio.run(session())
