"""A database of its own for each test, with the tables of a server, and a network that can be cut."""

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
    """A way to the database that can be cut: connections stay open, and nothing passes any more."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._passes = asyncio.Event()
        self._passes.set()
        self._work: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """The address of the database behind this network."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return self._url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    async def close(self) -> None:
        self._server.close()
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _accept(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(self._url.host, self._url.port)
        for source, sink in ((near, to_far), (far, to_near)):
            work = asyncio.ensure_future(self._pass(source, sink))
            self._work.add(work)
            work.add_done_callback(self._work.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._passes.wait()
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
    made = Network(url)
    yield made
    await made.close()


@pytest.fixture
async def running() -> AsyncIterator[Callable[[Awaitable[None]], asyncio.Task[None]]]:
    """Runs something until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    def run(work: Awaitable[None]) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
