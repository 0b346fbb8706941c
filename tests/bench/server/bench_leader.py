"""Several servers on PostgreSQL: how long until another server leads, and what fencing of writes costs.

Needs HAI_TEST_POSTGRES, as `source scripts/postgres` sets it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hai.client.client import Client
from hai.client.errors import TimedOut, Unreachable
from hai.client.profile import Profile
from hai_backend.domain.task import TaskState
from hai_backend.server.election.lock_session import open_session
from hai_backend.store.connect import open_store
from tests.bench.figures import Figure
from tests.bench.server import bench_submit
from tests.bench.server.bench_store import CALLERS, create
from tests.support.databases import database
from tests.support.servers import Replicas

LOSSES = 7
LEADER_LOSS_SECONDS = 5.0
_ROUNDS, _CREATES = 5, 3_000
_numbers = itertools.count()


def figures() -> Iterator[Figure]:
    server = os.environ.get("HAI_TEST_POSTGRES")
    if not server:
        return
    plain, fenced = asyncio.run(_fence(server))
    yield Figure("store: creates on PostgreSQL, 32 callers, no fence", plain, "1/s")
    yield Figure("store: creates on PostgreSQL, 32 callers, fenced", fenced, "1/s")
    yield from asyncio.run(_servers(server))


async def _fence(server: str) -> tuple[float, float]:
    """Return the median rates of creates per second without and with the check of the epoch, measured in turns."""
    async with database(server) as url:
        first = open_store(url)
        await first.open()
        await first.close()
        async with open_session(url, lambda: None) as session:
            epochs = (None, await session.take("bench:1"))
            rates = [[await _rate(url, epoch) for epoch in epochs] for _ in range(_ROUNDS)]
    plain, fenced = zip(*rates, strict=True)
    return statistics.median(plain), statistics.median(fenced)


async def _rate(url: str, epoch: int | None) -> float:
    store = open_store(url, epoch)
    await store.open()
    first = next(_numbers) * _CREATES
    rate = await create(store, first, _CREATES, CALLERS, TaskState.WAITING_INIT)
    await store.close()
    return rate


async def _servers(server: str) -> list[Figure]:
    async with database(server) as url:
        with tempfile.TemporaryDirectory(prefix="hai-", ignore_cleanup_errors=True) as directory:
            replicas = Replicas(Path(directory), 2, url, "--nodes", "1")
            replicas.start()
            try:
                return await _measured(replicas)
            finally:
                replicas.end()


async def _measured(replicas: Replicas) -> list[Figure]:
    await bench_submit.keep_queued(replicas.profile())
    losses = {
        number: [await _loss(replicas, number) for _ in range(LOSSES)]
        for number in (signal.SIGKILL, signal.SIGSTOP)
    }
    return [
        *_figures("kill -9 of the leader", losses[signal.SIGKILL]),
        *_figures("pause of the leader", losses[signal.SIGSTOP]),
    ]


def _figures(what: str, seconds: list[float]) -> list[Figure]:
    until = f"{what} until a submission is answered"
    return [
        Figure(f"{until}, median", statistics.median(seconds), "s", LEADER_LOSS_SECONDS),
        Figure(f"{until}, most of {len(seconds)}", max(seconds), "s", LEADER_LOSS_SECONDS),
    ]


async def _loss(replicas: Replicas, number: signal.Signals) -> float:
    """Return the seconds from the loss of the leader until another server answers a submission."""
    leader = await replicas.leader()
    other = next(server for server in replicas.servers if server is not leader)
    assert leader.process is not None
    began = time.monotonic()
    os.kill(leader.process.pid, number)
    await _submit(replicas.profile(other))
    took = time.monotonic() - began
    if number is signal.SIGKILL:
        leader.process.wait()
        await asyncio.to_thread(leader.listen)
    else:
        os.kill(leader.process.pid, signal.SIGCONT)
        await asyncio.sleep(1.5)  # now it is a follower
    return took


async def _submit(profile: Profile) -> None:
    name = f"loss{next(_numbers)}"
    async with Client(profile) as client:
        while True:
            try:
                await client.tasks.create(bench_submit.spec(name), request_id=name)
                return
            except (Unreachable, TimedOut):
                await asyncio.sleep(0.02)
