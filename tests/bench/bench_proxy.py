"""What the proxy adds to a request and to a message of a websocket, and what it costs the server.

One client, one request after the other on one connection: what a page feels. Medians count: machines are noisy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from tests.bench.figures import Figure, percentile
from tests.e2e.reaching import browser, reach, signed_in

_REQUESTS = 400
_BAR_MS = 5.0


def figures() -> Iterator[Figure]:
    with TemporaryDirectory(prefix="hai-bench-") as directory:
        yield from asyncio.run(_measured(Path(directory)))


async def _measured(directory: Path) -> list[Figure]:
    async with _service(directory) as (session, proxied, direct):
        alone = await _requests(session, direct)
        cpu = psutil.Process().cpu_times()
        through = await _requests(session, proxied)
        used = psutil.Process().cpu_times()
        spent = used.user + used.system - cpu.user - cpu.system
        socket_alone = await _messages(session, direct)
        socket_through = await _messages(session, proxied)
    return [
        Figure("proxy adds to a request, median", _added(through, alone, 50), "ms", _BAR_MS),
        Figure("proxy adds to a request, p99", _added(through, alone, 99), "ms"),
        Figure(
            "websocket message through the proxy adds, median",
            _added(socket_through, socket_alone, 50),
            "ms",
            _BAR_MS,
        ),
        Figure("CPU of server and client for a request", spent / _REQUESTS * 1000, "ms", _BAR_MS),
    ]


@asynccontextmanager
async def _service(
    directory: Path,
) -> AsyncIterator[tuple[aiohttp.ClientSession, str, str]]:
    async with reach(directory) as here, browser() as session:
        task = await here.task()
        proxied = await signed_in(session, here.client, task.id)
        port = (await here.client.containers.get(task.id)).services[0].port
        yield session, proxied, f"http://127.0.0.1:{port}/"


async def _requests(session: aiohttp.ClientSession, url: str) -> list[float]:
    seconds = []
    for number in range(_REQUESTS + 20):
        began = time.perf_counter()
        async with session.get(url) as answer:
            await answer.read()
        if number >= 20:  # the first ones open connections
            seconds.append(time.perf_counter() - began)
    return seconds


async def _messages(session: aiohttp.ClientSession, url: str) -> list[float]:
    seconds = []
    async with session.ws_connect(url.replace("http:", "ws:")) as socket:
        for _ in range(_REQUESTS):
            began = time.perf_counter()
            await socket.send_str("x" * 500)
            await socket.receive_str()
            seconds.append(time.perf_counter() - began)
    return seconds


def _added(through: list[float], alone: list[float], percent: float) -> float:
    return (percentile(through, percent) - percentile(alone, percent)) * 1000
