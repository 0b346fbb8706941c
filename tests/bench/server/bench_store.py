"""Figures of the store: durable creates per second, a page among many tasks, reading all tasks at a restart.

Run: python tests/bench/server/bench_store.py [--tasks 100000] [--url sqlite:////path]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from hai_backend import runtime
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskEvent, TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery
from hai_backend.store.connect import open_store
from tests.bench.figures import Figure

CALLERS, TASKS = 32, 100_000


def task(n: int, state: TaskState = TaskState.WAITING_INIT) -> Task:
    """Return a task like those that users submit."""
    spec = TaskSpec(
        name=f"bert-large-{n}",
        spec=ProgramSpec(
            entrypoint="train.py",
            workspace=f"/home/user{n % 50}/work",
            parameters=("--lr", "1e-4", "--epochs", "10"),
            environments={"OMP_NUM_THREADS": "8"},
        ),
        resource=ResourceSpec(node_count=1 + n % 4),
        options=OptionsSpec(tags=(f"sweep-{n % 100}",)),
    )
    priority = list(Priority)[n % len(Priority)]
    tags = spec.options.tags
    return Task(0, f"user{n % 50}", spec, state, priority, 1.7e9 + n, tags=tags)


async def create(store: Store, first: int, count: int, callers: int, state: TaskState) -> float:
    """Return the creates per second of `callers` concurrent callers, each of which waits for its answers."""
    numbers = iter(range(first, first + count))

    async def caller() -> None:
        for n in numbers:
            new = task(n, state)
            submitted = (TaskEvent(new.created_at, new.user, "TaskSubmitted"),)
            await store.create_task(new, submitted, request_id=f"request-{n}")

    begin = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return count / (time.perf_counter() - begin)


async def page_p50(store: Store, query: TaskQuery) -> float:
    """Return the median milliseconds of a page, following the page tokens."""
    took = []
    for _ in range(100):
        begin = time.perf_counter()
        page = await store.find_tasks(query)
        took.append(time.perf_counter() - begin)
        query = TaskQuery(query.filter, query.order_by, page_token=page.next_page_token)
    return statistics.median(took) * 1000


@contextlib.asynccontextmanager
async def busy_loop() -> AsyncIterator[None]:
    """Keep the event loop always busy, in slices of 200 µs, as a loaded server does."""

    async def burn() -> None:
        while True:
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass
            await asyncio.sleep(0)

    burner = asyncio.create_task(burn())
    try:
        yield
    finally:
        burner.cancel()


async def measure(url: str, tasks: int) -> list[Figure]:
    """Return all figures, with this number of tasks in the store, 10 000 of them unfinished."""
    store = open_store(url)
    await store.open()
    await create(store, 0, 10_000, 512, TaskState.WAITING_INIT)
    await create(store, 10_000, tasks - 10_000, 512, TaskState.FINISHED)
    figures = [await _unfinished(store)]
    for name, query in QUERIES.items():
        p50 = await page_p50(store, query)
        figures.append(Figure(f"store: page {name}, p50", p50, "ms"))
    figures += await _creates(store, tasks)
    await store.close()
    return figures


QUERIES = {
    "newest": TaskQuery(),
    "by priority": TaskQuery(order_by="priority"),
    "of a user": TaskQuery(TaskFilter(users=frozenset({"user7"}))),
    "of a tag": TaskQuery(TaskFilter(tags=frozenset({"sweep-7"}))),
    "unfinished by name": TaskQuery(
        TaskFilter(states=frozenset({TaskState.WAITING_INIT})), order_by="name"
    ),
}


async def _creates(store: Store, first: int) -> list[Figure]:
    runtime.shorten_switch_interval()  # as the server does
    cpu = time.process_time()
    rate = await create(store, first, 8_000, CALLERS, TaskState.WAITING_INIT)
    each = (time.process_time() - cpu) / 8_000 * 1e6
    async with busy_loop():
        busy = await create(store, first + 8_000, 4_000, CALLERS, TaskState.WAITING_INIT)
    return [
        Figure("store: creates, 32 callers", rate, "1/s", 1_000, at_least=True),
        Figure("store: creates beside a loop that never idles", busy, "1/s", at_least=True),
        Figure("store: CPU per create", each, "us"),
    ]


async def _unfinished(store: Store) -> Figure:
    begin = time.perf_counter()
    tasks = await store.unfinished_tasks()
    took = time.perf_counter() - begin
    return Figure(f"store: {len(tasks)} unfinished tasks read", took, "s", 1)


def figures() -> list[Figure]:
    """Return the figures for a new SQLite file, or for HAI_BENCH_DATABASE."""
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("HAI_BENCH_DATABASE") or f"sqlite:///{Path(folder) / 'bench.db'}"
        return asyncio.run(measure(url, TASKS))
