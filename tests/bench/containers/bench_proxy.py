"""What the proxy adds to a request and to a WebSocket message, and what it costs the server and the agent.

One client sends one request after the other on one connection, as a page does. Medians are used because machines are
noisy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from hai_backend import runtime
from tests.bench.figures import Figure, percentile
from tests.support.service_cluster import browser, process_service_cluster, sign_in

_REQUESTS, _FIRST = 400, 20  # the first ones open connections, and are not measured
_ALL = _REQUESTS + _FIRST
_BAR_MS = 5.0


def figures() -> Iterator[Figure]:
    with TemporaryDirectory(prefix="hai-bench-") as directory:
        yield from asyncio.run(_measured(Path(directory)))


async def _measured(directory: Path) -> list[Figure]:
    async with _service(directory) as (session, proxied, direct):
        runtime.shorten_switch_interval()
        runtime.reduce_garbage_collection()  # main.py sets both too
        alone, through = await _requests(session, direct, proxied)
        before = _cpu()
        await _requests(session, proxied)
        spent = {name: used - before[name] for name, used in _cpu().items()}
        fresh = await _fresh(session, proxied)
        echoed, carried = await _messages(session, direct), await _messages(session, proxied)
    name = "CPU for a request of {}, this bench's browser included".format
    return [
        _added("proxy adds to a request, median", through, alone, 50),
        Figure("proxy adds to a request, p99", _more(through, alone, 99), "ms"),
        Figure("the same request without the proxy, p99", percentile(alone, 99) * 1000, "ms"),
        Figure("a request that opens a tunnel, median", percentile(fresh, 50) * 1000, "ms"),
        _added("websocket message through the proxy adds, median", carried, echoed, 50),
        Figure(name("the server"), spent["server"] / _ALL * 1000, "ms", _BAR_MS),
        Figure("CPU for a request of the agent", spent["agent"] / _ALL * 1000, "ms"),
    ]


@asynccontextmanager
async def _service(
    directory: Path,
) -> AsyncIterator[tuple[aiohttp.ClientSession, str, str]]:
    async with process_service_cluster(directory) as cluster, browser() as session:
        task = await cluster.start_task()
        proxied = await sign_in(session, cluster.client, task.id)
        port = (await cluster.client.containers.get(task.id)).services[0].port
        yield session, proxied, f"http://127.0.0.1:{port}/"


async def _requests(session: aiohttp.ClientSession, *urls: str) -> list[list[float]]:
    """Return the seconds of each request by URL. The URLs take turns, so that other load affects all equally."""
    seconds: list[list[float]] = [[] for _ in urls]
    for number in range(_ALL):
        for url, took in zip(urls, seconds, strict=True):
            one = await _request(session, url)
            if number >= _FIRST:
                took.append(one)
    return seconds


async def _request(session: aiohttp.ClientSession, url: str) -> float:
    began = time.perf_counter()
    async with session.get(url) as answer:
        await answer.read()
    return time.perf_counter() - began


async def _fresh(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Return the seconds of requests that open a tunnel each, because WebSockets occupy the open tunnels."""
    waits = url.replace("http:", "ws:")
    seconds = []
    async with AsyncExitStack() as stack:
        for _ in range(_FIRST):
            began = time.perf_counter()
            await stack.enter_async_context(session.ws_connect(waits))
            seconds.append(time.perf_counter() - began)
    return seconds


def _cpu() -> dict[str, float]:
    """Return the CPU seconds of the server's process and of all agents."""
    me = psutil.Process()
    agents = [p for p in me.children(recursive=True) if "hai_backend.agent" in p.cmdline()]
    return {"server": _used(me), "agent": sum(_used(agent) for agent in agents)}


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _messages(session: aiohttp.ClientSession, url: str) -> list[float]:
    seconds = []
    async with session.ws_connect(url.replace("http:", "ws:")) as socket:
        for _ in range(_REQUESTS):
            began = time.perf_counter()
            await socket.send_str("x" * 500)
            await socket.receive_str()
            seconds.append(time.perf_counter() - began)
    return seconds


def _added(name: str, through: list[float], alone: list[float], percent: float) -> Figure:
    return Figure(name, _more(through, alone, percent), "ms", _BAR_MS)


def _more(through: list[float], alone: list[float], percent: float) -> float:
    return (percentile(through, percent) - percentile(alone, percent)) * 1000
