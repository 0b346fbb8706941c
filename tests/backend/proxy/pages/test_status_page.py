"""The status of a waiting task, and how often it is computed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import Task, TaskState
from hai_backend.proxy.pages.status_page import StatusPage
from hai_backend.testing import ManualClock
from tests.support.builders import a_spec
from tests.support.virtual_time import run_virtually


class Nothing:
    """Replaces a scheduling loop before its first pass."""

    async def waits(self, group: str = "") -> Mapping[int, Wait]:
        return {}


async def no_starts(waiting: list[tuple[int, str]]) -> Mapping[int, Any]:
    return {}


def test_page_does_not_check_every_change() -> None:
    task = Task(1, "ada", a_spec("t"), TaskState.WAITING_INIT, Priority.AUTO, 1.0)
    looks = 0

    async def get() -> Task:
        nonlocal looks
        looks += 1
        return task

    async def page(tasks: ChangeFeed) -> None:
        standing = StatusPage(ServiceStates(ManualClock()), Nothing(), no_starts)
        async for _ in standing.changes(get, tasks, "jupyter", "en"):
            pass

    async def story() -> None:
        tasks = ChangeFeed()
        following = asyncio.ensure_future(page(tasks))
        for version in range(1000):
            tasks.publish(version + 1)
            await asyncio.sleep(0.001)
        following.cancel()

    run_virtually(story())
    assert 10 <= looks <= 25
