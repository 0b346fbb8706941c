"""Environments read by server and agents: a list of 500, one that a task names, an activation."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hai.client.client import Client
from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.activation import resolve_activation
from hai_backend.environments.read import read_environment
from tests.bench.figures import Figure
from tests.support.environments import as_parent, make_environment
from tests.support.servers import running_server

USERS, EACH, ROUNDS = 100, 5, 9


def figures() -> Iterator[Figure]:
    """Yield each figure when it has been measured."""
    with TemporaryDirectory() as directory:
        yield from asyncio.run(_of_a_server(Path(directory)))
        yield from _of_an_agent(Path(directory) / "environments")


async def _of_a_server(home: Path) -> list[Figure]:
    _fill(home / "environments")
    async with running_server(home) as server, Client(server.profile) as client:
        first, _ = await _seconds(client.environments.list)
        again = [await _seconds(client.environments.list) for _ in range(ROUNDS)]
        assert len(await client.environments.list()) == USERS * EACH
    what = f"list of {USERS * EACH} environments of {USERS} users, server and client"
    return [
        Figure(f"{what}: the first", first, "s", 2.0),
        Figure(f"{what}: again, wall", statistics.median(w for w, _ in again), "s", 0.5),
        Figure(f"{what}: again, CPU", statistics.median(c for _, c in again), "s", 0.5),
    ]


def _of_an_agent(root: Path) -> Iterator[Figure]:
    called = EnvironmentName("user0", "child")
    make_environment(root, *_words(called), parents=[as_parent(root, "user0", "env0")])
    yield Figure(
        "one environment that a task names, read",
        _cpu(lambda: read_environment(root, called, _any)),
        "ms",
        5.0,
    )
    yield Figure(
        "an environment with a parent, activated",
        _cpu(lambda: resolve_activation(root, called)),
        "ms",
        100.0,
    )


def _fill(root: Path) -> None:
    config = {"variables": {"OMP_NUM_THREADS": "4"}, "search_dirs": ["/data/code"]}
    for user in range(USERS):
        for number in range(EACH):
            name = f"env{number}"
            make_environment(root, f"user{user}", name, config=config, visibility="public")


def _words(called: EnvironmentName) -> tuple[str, str]:
    return called.owner, called.name


def _any(owner: str, uid: int) -> bool:
    return True


async def _seconds(call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return wall and CPU seconds. This process is both the client and the server."""
    wall, cpu = time.perf_counter(), _used()
    await call()
    return time.perf_counter() - wall, _used() - cpu


def _cpu(call: Callable[[], object]) -> float:
    """Return the median CPU milliseconds of 50 calls."""
    taken = []
    for _ in range(50):
        before = _used()
        call()
        taken.append((_used() - before) * 1000)
    return statistics.median(taken)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
