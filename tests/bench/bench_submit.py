"""Durable submissions: SQLite, 32 concurrent clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from hai.client.client import Client
from hai.client.profile import Profile
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.testing.server import server_process
from tests.bench.figures import Figure

CLIENTS, PROCESSES, SECONDS = 32, 2, 8.0


def spec(name: str) -> TaskSpec:
    return TaskSpec(
        version=2,
        name=name,
        spec=ProgramSpec(entrypoint="train.py", workspace="/tmp", parameters=["--lr", "0.1"]),
        resource=ResourceSpec(node_count=1),
        options=OptionsSpec(tags=["bench"]),
        priority=10,
    )


def submit_for(
    profile: Profile, clients: int, seconds: float, name: str
) -> tuple[int, float, float]:
    """Submit from so many clients at once; answers how many were acknowledged, and from when to when."""

    async def one(index: int, end: float) -> int:
        done = 0
        async with Client(profile) as client:
            while time.monotonic() < end:
                await client.tasks.create(spec(f"{name}-{index}-{done}"))
                done += 1
        return done

    async def every() -> tuple[int, float, float]:
        began = time.monotonic()
        counts = await asyncio.gather(*(one(i, began + seconds) for i in range(clients)))
        return sum(counts), began, time.monotonic()

    return asyncio.run(every())


async def keep_queued(profile: Profile) -> None:
    """Submission is measured, not the starting of programs."""
    async with Client(profile) as client:
        await client.nodes.cordon("node1", "benchmark")


def figures() -> Iterator[Figure]:
    with server_process("--nodes", "1") as server:
        profile = server.profile()
        asyncio.run(keep_queued(profile))
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            share = CLIENTS // PROCESSES
            jobs = [
                pool.submit(submit_for, profile, share, SECONDS, f"p{i}") for i in range(PROCESSES)
            ]
            counts, begins, ends = zip(*(job.result() for job in jobs), strict=True)
        rate = sum(counts) / (max(ends) - min(begins))
        yield Figure(
            "durable submissions, SQLite, 32 clients", rate, "tasks/s", 1000, at_least=True
        )
