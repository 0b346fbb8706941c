"""The way from a command to a server. Loads asyncio and grpc only when a command really calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from hai_tui.cli.messages import text
from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.errors import HaiError


Answer = TypeVar("Answer")


def connect(profile: str | None) -> AbstractAsyncContextManager[Client]:
    """A client for the profile of that name, or for the one that the environment and the file choose."""
    from hai.client.client import Client
    from hai.client.profile import load

    return Client(load(profile))


def told_when_lost(settings: Settings) -> Callable[[HaiError], None]:
    """For streams that outlive their server: says that it stays away, so that nobody wonders."""
    return lambda error: note(settings, text("follow.lost", error=error.message))


def call(settings: Settings, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Connect, do the work, disconnect."""
    import asyncio

    async def session() -> Answer:
        async with settings.connect(settings.profile) as client:
            return await work(client)

    return asyncio.run(session())
