"""The app notices streams that end without an error, and marks their data as stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from hai.client.connection.cancellation import CancelledWithin
from hai.client.fake.server import FakeClient
from hai_tui.feed.connection_state import Link
from hai_tui.logs.reader import Reader, Source
from hai_tui.session import Session


async def cancelled(*_: Any, **__: Any) -> AsyncGenerator[Any, None]:
    """A stream that ends because the future that it awaits is cancelled."""
    part = asyncio.ensure_future(asyncio.Event().wait())
    part.cancel()
    await part
    yield


async def test_a_watch_that_is_cancelled_by_nobody_is_shown_as_a_fault() -> None:
    client, failed = FakeClient(nodes=["n0"]), asyncio.Queue[BaseException]()
    client._transport.stream = cancelled  # type: ignore[method-assign]
    session = Session(
        client.profile, lambda: 0.0, connect=lambda profile: client, on_failed=failed.put_nowait
    )
    session.start()
    error = await asyncio.wait_for(failed.get(), 20)
    assert isinstance(error, CancelledWithin)
    await session.close()


async def test_closing_a_session_is_no_fault() -> None:
    client, failed = FakeClient(nodes=["n0"]), asyncio.Queue[BaseException]()
    session = Session(
        client.profile, lambda: 0.0, connect=lambda profile: client, on_failed=failed.put_nowait
    )
    session.start()
    await session.client()
    await session.close()
    assert failed.empty()


async def test_a_log_that_ends_so_says_why_nothing_comes() -> None:
    client, changed = FakeClient(nodes=["n0"]), asyncio.Event()
    client._transport.stream = cancelled  # type: ignore[method-assign]
    reader = Reader(
        client,
        Link("fake", lambda: 0.0),
        Source(1),
        changed=lambda change: changed.set(),
        following=lambda: True,
    )
    reader._attach()
    await asyncio.wait_for(changed.wait(), 20)
    assert "something that it waited for was cancelled" in reader.error
    await reader.close()
