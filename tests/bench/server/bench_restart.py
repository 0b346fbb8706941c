"""kill -9 of a server with 10 000 unfinished tasks, or 10 000 nodes: the time until it schedules or answers again."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hai.client.client import Client
from hai.client.profile import Profile
from tests.bench.figures import Figure
from tests.bench.scheduler.filling import fill
from tests.support.servers import ServerProcess

TASKS = 10_000
NODES = 10_000


async def first_pass(profile: Profile) -> None:
    """Return when the last task in the queue has a reason for its wait."""
    async with Client(profile) as client:
        while not (await client.tasks.get(TASKS)).waiting.reason:  # noqa: ASYNC110 - as a user would
            await asyncio.sleep(0.01)


def _with_nodes(home: Path) -> float:
    """Return the seconds from a start until the server answers. All nodes are known from the start before."""
    server, times = ServerProcess(home, "--nodes", str(NODES)), []
    for _ in range(4):
        began = time.monotonic()
        server.start()
        times.append(time.monotonic() - began)
        server.end(signal.SIGKILL)
    return min(times[1:])


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="hai-bench-") as directory:
        yield Figure(
            "restart with 10 000 known nodes, best of 3", _with_nodes(Path(directory)), "s", 3
        )
    with tempfile.TemporaryDirectory(prefix="hai-bench-") as directory:
        home = Path(directory)
        fill(home, TASKS)
        server = ServerProcess(home, "--nodes", "0")
        times = []
        for _ in range(4):
            began = time.monotonic()
            asyncio.run(first_pass(server.start()))
            times.append(time.monotonic() - began)
            server.end(signal.SIGKILL)
    yield Figure("restart with 10 000 unfinished tasks until a pass, best of 4", min(times), "s", 3)
