"""After kill -9 of the server during a push, the client pushes again and sends only the rest."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.v1 import workspace_service_pb2 as calls
from tests.support.servers import ServerProcess
from tests.support.workspaces import Pusher, begin, changes, contents, file

FILES = {f"d{i % 3}/f{i}": os.urandom(300_000) for i in range(12)}


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path)
    yield server
    if server.running:
        server.end()
    server.sweep()


async def test_contents_that_arrived_survive_the_end_of_the_server(killed: ServerProcess) -> None:
    async with Client(await asyncio.to_thread(killed.start)) as client:
        pusher = await Pusher(client, "w").create()
        await pusher.push({"old": b"x"})
        first = [begin("w", pusher.token, 1), changes([file(p, d) for p, d in FILES.items()])]
        sent = [contents(data) for data in FILES.values()]
        with pytest.raises(HaiError):
            await _send_until_killed(pusher, killed, [*first, *sent[:8]])
    async with Client(await asyncio.to_thread(killed.start)) as client:
        pusher = await Pusher(client, "w").lease()
        assert set(await pusher.tree()) == {"old"}
        await pusher.push(FILES)
        assert pusher.sent_bytes == 4 * 300_000
        await asyncio.to_thread(killed.end, signal.SIGKILL)
    async with Client(await asyncio.to_thread(killed.start)) as client:
        pusher = Pusher(client, "w")
        assert await pusher.fetch(2, *FILES) == list(FILES.values())
        assert await pusher.tree(since=2) == {}


async def _send_until_killed(
    pusher: Pusher, server: ServerProcess, messages: list[calls.PushTreeRequest]
) -> None:
    """Kill the server once it has acknowledged the last message."""

    async def push_messages() -> AsyncIterator[calls.PushTreeRequest]:
        for message in messages:
            yield message
        await asyncio.Event().wait()

    total_bytes = sum(len(message.contents.data) for message in messages)
    async for answer in pusher.client.workspaces.push(push_messages()):
        if answer.received_bytes == total_bytes:
            server.end(signal.SIGKILL)
