"""Pages of 50 tasks among 100 000, through the server."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hai.client.client import Client
from hai.client.profile import Profile
from tests.bench.figures import Figure, percentile
from tests.bench.scheduler.filling import fill
from tests.support.servers import ServerProcess


async def pages(profile: Profile) -> list[float]:
    """Return the milliseconds of each page: the newest tasks, and tasks filtered by state, by user, by name."""
    times = []
    async with Client(profile) as client:
        for filter in ("", "state:waiting", "user:user7", "name:task77*") * 50:
            began = time.perf_counter()
            page = await client.tasks.list(filter=filter, page_size=50)
            times.append((time.perf_counter() - began) * 1000)
            assert len(page.tasks) == 50
    return times


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="hai-bench-") as directory:
        home = Path(directory)
        fill(home, 100_000)
        server = ServerProcess(home, "--nodes", "0")
        times = asyncio.run(pages(server.start()))
        server.end()
    yield Figure("page of 50 among 100 000 tasks, p50", percentile(times, 50), "ms", 10)
    yield Figure("page of 50 among 100 000 tasks, p99", percentile(times, 99), "ms")
