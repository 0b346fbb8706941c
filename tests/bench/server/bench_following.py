"""How soon a change on the cluster reaches a watching laptop, also over a slow link, and what watching costs."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure, environment, percentile
from tests.bench.sync.bench_sync import make_tree
from tests.bench.sync.sync_peers import PROGRAM, cpu_of
from tests.support.servers import server_process

FILES, TREE_BYTES = 20_000, int(200e6)
CHANGES = 30
PAUSE_SECONDS = 0.4  # so that some changes come while the server pauses
IDLE_SECONDS = 20.0
LINK_SECONDS, LINK_BYTES = 0.010, 100e6 / 8  # seconds in one direction, bytes per second


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a workspace that a daemon syncs."""

    laptop: Path
    cluster: Path
    server_pid: int


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="hai-bench-following-") as folder:
        work = Path(folder)
        with watched(work / "fast", slow=False) as sides:
            before = cpu_of([sides.server_pid])
            time.sleep(IDLE_SECONDS)
            idle = (cpu_of([sides.server_pid]) - before) / IDLE_SECONDS
            yield from _arrivals("cluster to laptop under watch", sides)
            yield Figure("server that follows 20 000 idle files, of a core", idle, "cores", 0.02)
        with watched(work / "slow", slow=True) as sides:
            yield from _arrivals("the same over 20 ms, 100 Mbit/s", sides)


def _arrivals(what: str, sides: Sides) -> Iterator[Figure]:
    found = latencies(sides.cluster, sides.laptop)
    yield Figure(f"{what}, median", percentile(found, 50), "s", 1.0)
    yield Figure(f"{what}, worst of {CHANGES}", max(found), "s", 2.0)


def latencies(cluster: Path, laptop: Path) -> list[float]:
    """Return the seconds from a write on the cluster to the bytes on the laptop, for new and for existing files."""
    found = []
    known = sorted(path.relative_to(cluster) for path in cluster.rglob("*.py"))
    for number in range(CHANGES):
        path = known[number * 37] if number % 2 else Path("runs", f"r{number}", "metrics.json")
        body = f"{time.time_ns()}".encode() * 100
        (cluster / path).parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        (cluster / path).write_bytes(body)
        while not _has(laptop / path, body) and time.perf_counter() - began < 180:
            time.sleep(0.002)
        found.append(time.perf_counter() - began)
        time.sleep(PAUSE_SECONDS * (number % 3))
    return found


def _has(path: Path, body: bytes) -> bool:
    return path.exists() and path.read_bytes() == body


@contextmanager
def watched(work: Path, *, slow: bool) -> Iterator[Sides]:
    """A tree that is pushed, and a daemon."""
    laptop = work / "here"
    make_tree(laptop, FILES, TREE_BYTES)
    with server_process(home=work / "server") as server, link(server.profile().server) as slow_way:
        env = {**environment(server.profile()), "XDG_DATA_HOME": str(work / "data")}

        def run(*argv: str) -> None:
            subprocess.run([PROGRAM, *argv], cwd=laptop, env=env, check=True, capture_output=True)

        run("init", "bench")
        run("push")
        if slow:
            env["HAI_SERVER"] = slow_way
        run("watch", "start")
        try:
            run("watch", "flush")
            assert server.process is not None
            cluster = server.home / "workspaces" / "root" / "bench" / "files"
            yield Sides(laptop, cluster, server.process.pid)
        finally:
            run("watch", "stop")


@contextmanager
def link(address: str) -> Iterator[str]:
    """A slow way to an address, at an address of its own."""
    ready, addresses = threading.Event(), list[str]()
    ended = asyncio.Event()
    loops = list[asyncio.AbstractEventLoop]()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        above = await asyncio.open_connection(host, int(port))
        with suppress(asyncio.CancelledError):  # the link may end before its connections
            await asyncio.gather(_carry(reader, above[1]), _carry(above[0], writer))

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        addresses.append(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        ready.set()
        await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield addresses[0]
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on in order, with the delay and the rate of the link."""
    loop, free = asyncio.get_running_loop(), 0.0
    while data := await reader.read(1 << 16):
        free = max(free, loop.time()) + len(data) / LINK_BYTES
        loop.call_at(free + LINK_SECONDS, writer.write, data)
        await asyncio.sleep(max(0.0, free - loop.time() - LINK_SECONDS))
    loop.call_later(LINK_SECONDS, writer.close)
