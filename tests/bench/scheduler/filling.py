"""Fills a database directly, for benchmarks that need many tasks. The server must not be running."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task, TaskEvent, TaskState
from hai_backend.store.connect import open_store
from tests.support.builders import a_spec

_USERS = 50


def fill(home: Path, tasks: int) -> None:
    """Insert this number of waiting tasks, of fifty users."""
    asyncio.run(_fill(f"sqlite:///{home / 'hai.db'}", tasks))


async def _fill(url: str, tasks: int) -> None:
    store = open_store(url)
    await store.open()
    try:
        for first in range(0, tasks, 2000):
            await asyncio.gather(
                *(_create(store, i) for i in range(first, min(first + 2000, tasks)))
            )
    finally:
        await store.close()


async def _create(store, i: int) -> None:  # type: ignore[no-untyped-def]
    user, spec = f"user{i % _USERS}", replace(a_spec(f"task{i}"), priority=Priority.LOW)
    task = Task(0, user, spec, TaskState.WAITING_INIT, Priority.LOW, created_at=1e9 + i)
    await store.create_task(task, (TaskEvent(1e9 + i, user, "TaskSubmitted"),))
