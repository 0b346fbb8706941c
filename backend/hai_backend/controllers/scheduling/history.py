"""Reads the run times of finished tasks for the scheduler, once after each start, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.scheduling.snapshot import ending
from hai_backend.domain.scheduling.snapshot import Ending
from hai_backend.domain.task import TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery

_TASKS = 10_000  # the number of tasks that are read, the newest first
_PAGE = 200
_REST = 0.05  # seconds between two pages


async def recall(store: Store, learn: Callable[[Iterable[Ending]], None]) -> None:
    """Read the newest finished tasks page by page, and pass them to `learn`."""
    query = TaskQuery(TaskFilter(states=frozenset({TaskState.FINISHED})), page_size=_PAGE)
    for _ in range(_TASKS // _PAGE):
        page = await retry_until_stored(partial(store.find_tasks, query), "reading finished tasks")
        learn(ending(task) for task in page.tasks if task.run_seconds > 0)
        if not page.next_page_token:
            return
        query = TaskQuery(query.filter, page_size=_PAGE, page_token=page.next_page_token)
        await asyncio.sleep(_REST)
