"""Fixtures: a migrated database for each test, a network that can be interrupted, background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from sqlalchemy import make_url

from hai_backend.store.connect import open_store


@pytest.fixture
async def url(postgres_url: str) -> str:
    store = open_store(postgres_url)
    await store.open()
    await store.close()
    return postgres_url


class Network:
    """Relays connections to the database. While it is cut, connections stay open but transfer nothing."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._connected = asyncio.Event()
        self._connected.set()
        self._relays: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Start the relay. Return the URL that tests use instead of the database URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return self._url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def cut(self) -> None:
        self._connected.clear()

    def mend(self) -> None:
        self._connected.set()

    async def close(self) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        database = await asyncio.open_connection(self._url.host, self._url.port)
        for source, sink in ((reader, database[1]), (database[0], writer)):
            relay = asyncio.ensure_future(self._relay(source, sink))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._connected.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()
            with suppress(ConnectionError):
                await sink.wait_closed()


@pytest.fixture
async def network(url: str) -> AsyncIterator[Network]:
    network = Network(url)
    yield network
    await network.close()


@pytest.fixture
async def start_task() -> AsyncIterator[Callable[[Awaitable[None]], asyncio.Task[None]]]:
    """A function that starts a coroutine, which is cancelled at the end of the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Awaitable[None]) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
