"""What it costs to record the use of 10 000 ranks: CPU seconds per minute, of the server with its database.

A manual clock runs for twenty minutes, and, three hours after the start, for ten more. Each of these ten drops one of
the first minutes. Minutes are summed to tens of minutes meanwhile. Run: python -m tests.bench usage
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hai_backend.controllers.metrics.usage import Usage
from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.domain.usage import LEVELS, plan_window, read_measurement
from hai_backend.launch.base import RankKey
from hai_backend.store.base import Store
from hai_backend.store.connect import open_store
from hai_backend.testing import ManualClock
from tests.bench.figures import Figure
from tests.support.builders import a_task

TASKS, RANKS, BEATS = 1000, 10, 6
_T0 = 1_700_006_400.0


class Busy:
    """A cluster with a rank on every node. It replaces the task manager and the cluster of `Usage`."""

    def __init__(self) -> None:
        self._nodes = {f"n{i}": Node(f"n{i}", gpus=8) for i in range(TASKS * RANKS)}
        self._tasks = {id: _running(id) for id in range(1, TASKS + 1)}

    def unfinished(self) -> Mapping[int, Task]:
        return self._tasks

    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def groups(self) -> Mapping[str, Group]:
        return {"default": Group("default")}


def _running(id: int) -> Task:
    first = (id - 1) * RANKS
    ranks = tuple(Rank(i, f"n{first + i}", RankState.RUNNING) for i in range(RANKS))
    task = a_task(id, nodes=RANKS)
    run = Run(1, RunState.RUNNING, ranks, _T0, task.priority)
    return replace(task, state=TaskState.RUNNING, run=run)


def beats(usage: Usage, clock: ManualClock) -> None:
    """Record the heartbeats of one minute, as the service does."""
    for beat in range(BEATS):
        clock.advance(60 / BEATS)
        for task in range(1, TASKS + 1):
            for rank in range(RANKS):
                use = read_measurement(3.5, 1 << 34, 0.75 + beat / 100, 1 << 35)
                assert use is not None
                usage.record(RankKey(task, 1, rank), use)


async def minutes(usage: Usage, clock: ManualClock, count: int) -> list[float]:
    """Return the CPU seconds of each minute: heartbeats, sums and the write."""
    spent = []
    for _ in range(count):
        begin = time.process_time()
        beats(usage, clock)
        await usage.write()
        spent.append(time.process_time() - begin)
    return spent


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{directory / 'hai.db'}")
    await store.open()
    yield store
    await store.close()


async def measure(directory: Path) -> list[Figure]:
    clock, busy = ManualClock(_T0), Busy()
    async with opened(directory) as store:
        usage = Usage(store, busy, busy, clock)
        await minutes(usage, clock, 20)
        size = await asyncio.to_thread(_size, directory)
        clock.advance((LEVELS[0].keep_seconds or 0) - 20 * 60)
        spent = await minutes(usage, clock, 10)
        asked = plan_window(clock.now() - 3600, clock.now(), 100, clock.now())
        begin = time.perf_counter()
        assert len(await store.task_usage(1, (), asked)) >= 9 * RANKS
        looked = time.perf_counter() - begin
    rows = 20 * TASKS * RANKS * 1.1
    ranks = f"{TASKS * RANKS} ranks"
    return [
        Figure(f"usage: CPU a minute, {ranks}, mean", statistics.fmean(spent), "s", 1.0),
        Figure(f"usage: CPU of the dearest minute, {ranks}", max(spent), "s", 2.0),
        Figure("usage: bytes of a row, with its indexes", size / rows, "bytes", 250),
        Figure("usage: an hour of ten ranks among 10000", looked * 1e3, "ms", 50),
    ]


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def figures() -> list[Figure]:
    """Return the figures of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="hai-") as directory:
        return asyncio.run(measure(Path(directory)))
