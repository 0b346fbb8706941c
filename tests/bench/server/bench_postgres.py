"""Durable submissions on PostgreSQL: how many per second, and what each costs the server and the database.

A separate process sends requests that it has serialized before. A usual client would cost as much as the server, and
both share the cores of this machine. Needs HAI_TEST_POSTGRES, as `source scripts/postgres` sets it.

    python -m tests.bench.server.bench_postgres ADDRESS TOKEN CALLERS COUNT      # that process; prints the seconds
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import grpc
import psutil

from hai.v1.task_service_pb2 import CreateTaskRequest
from tests.bench.figures import Figure
from tests.bench.server import bench_submit
from tests.support.databases import create_database, drop_database
from tests.support.servers import Replicas

CALLERS, COUNT, WINDOWS = 64, 1_500, 5
_METHOD = "/hai.v1.TaskService/CreateTask"


def figures() -> Iterator[Figure]:
    """Yield the figures of this module."""
    database = os.environ.get("HAI_TEST_POSTGRES")
    if not database:
        return
    with leading(database) as server:
        server.submit(COUNT)  # warm up
        windows = [server.submit(COUNT) for _ in range(WINDOWS)]
    each = statistics.median(w.server for w in windows) / COUNT
    stored = statistics.median(w.database for w in windows) / COUNT
    what = f"submissions on PostgreSQL, {CALLERS} callers"
    yield Figure(f"{what}, all on this machine, best", _best(windows), "tasks/s", 1000, True)
    yield Figure(f"{what}: CPU of the server", each * 1e6, "µs/task")
    yield Figure(f"{what}: CPU of the database", stored * 1e6, "µs/task")
    yield Figure(f"{what}: what a core of the server gives", 1 / each, "tasks/s", 1000, True)
    yield Figure(f"{what}: what a core of the database gives", 1 / stored, "tasks/s", 1000, True)


@dataclass(frozen=True, slots=True)
class Window:
    """The seconds of one measurement: wall time, and CPU time of server and database."""

    wall: float
    server: float
    database: float


@dataclass(frozen=True, slots=True)
class Server:
    """A leading server, and the process of its database."""

    address: str
    token: str
    process: psutil.Process
    postmaster: psutil.Process

    def submit(self, count: int) -> Window:
        """Submit `count` tasks, wait until each is acknowledged, and return what that cost."""
        command = [
            sys.executable,
            "-m",
            "tests.bench.server.bench_postgres",
            self.address,
            self.token,
        ]
        before = _cpu(self.process), _cpu(self.postmaster)
        ran = subprocess.run(
            [*command, str(CALLERS), str(count)], check=True, stdout=subprocess.PIPE, text=True
        )
        after = _cpu(self.process), _cpu(self.postmaster)
        return Window(float(ran.stdout), after[0] - before[0], after[1] - before[1])


@contextmanager
def leading(database: str) -> Iterator[Server]:
    url = asyncio.run(create_database(database))
    with tempfile.TemporaryDirectory(prefix="hai-", ignore_cleanup_errors=True) as directory:
        replicas = Replicas(Path(directory), 1, url, "--nodes", "1")
        replicas.start()
        try:
            leader = asyncio.run(replicas.leader())
            profile = replicas.profile(leader)
            asyncio.run(bench_submit.keep_queued(profile))
            assert leader.process is not None
            postmaster = psutil.Process(asyncio.run(_postmaster(url)))
            server = psutil.Process(leader.process.pid)
            yield Server(profile.server, profile.token, server, postmaster)
        finally:
            replicas.end()
            asyncio.run(drop_database(database, url))


async def _postmaster(url: str) -> int:
    """Return the process id of the parent of all database processes."""
    connection = await asyncpg.connect(url)
    try:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        return int(psutil.Process(pid).ppid())
    finally:
        await connection.close()


def _cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, including those that have ended."""
    times = process.cpu_times()
    seconds = sum(times[:4])  # own, and of children that have ended
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            seconds += sum(child.cpu_times()[:2])
    return float(seconds)


def _best(windows: list[Window]) -> float:
    """Return the best rate, because other tenants of the machine only reduce it."""
    return max(COUNT / window.wall for window in windows)


async def _load(address: str, token: str, callers: int, count: int) -> float:
    """Return the seconds until all submissions were acknowledged."""
    who, names = (
        (("authorization", f"Bearer {token}"),),
        (f"{os.getpid()}-{n}" for n in range(count)),
    )
    requests = [CreateTaskRequest(spec=bench_submit.spec(name)) for name in names]
    bodies = iter([request.SerializeToString() for request in requests])
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)

        async def caller() -> None:
            for body in bodies:
                await call(body, metadata=who)

        await channel.channel_ready()
        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return time.perf_counter() - began


if __name__ == "__main__":
    print(asyncio.run(_load(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
