"""The current usage of tasks: one request serves all pages, and an error for one task does not affect others."""

from __future__ import annotations

import asyncio
from typing import Any

from hai.client.errors import NotFound
from hai.client.fake.server import FakeClient
from hai_jupyter.live.usage_cache import UsageCache
from tests.jupyter.live.test_stream_manager import spec


class Counted(FakeClient):
    """A client that records requests for the usage of tasks."""

    def __init__(self) -> None:
        super().__init__(nodes=["n0"])
        self.asked: list[int] = []
        inner = self.usage.of_task

        async def of_task(task_id: int, **values: Any) -> Any:
            self.asked.append(task_id)
            await asyncio.sleep(0)
            if task_id == 404:
                raise NotFound("there is no task 404")
            return await inner(task_id, points=values.get("points", 0), sum=values["sum"])

        self.usage.of_task = of_task  # type: ignore[method-assign]


async def running(client: FakeClient, **used: Any) -> int:
    task = await client.tasks.create(spec(f"uses {used}"))
    client.start(task.id, ["n0"])
    if used:
        client.measure(task.id, **used)
    return task.id


async def test_what_is_measured_is_shown_and_the_rest_left_out() -> None:
    client = Counted()
    busy = await running(client, cpus=2.5, memory_bytes=7 << 20)
    quiet = await running(client)
    found = await UsageCache().current(client, [busy, quiet, 404])
    assert {id: row[1:] for id, row in found.items()} == {busy: [2.5, 7 << 20, None, None]}


async def test_fifty_pages_ask_once() -> None:
    client, now = Counted(), [0.0]
    busy, uses = await running(client, cpus=1), UsageCache(lambda: now[0])
    await asyncio.gather(*(uses.current(client, [busy]) for _ in range(50)))
    assert client.asked == [busy]
    now[0] += 14.9
    await uses.current(client, [busy])
    assert client.asked == [busy]
    now[0] += 0.1
    await uses.current(client, [busy])
    assert client.asked == [busy, busy]


async def test_a_page_that_leaves_takes_nothing_from_the_others() -> None:
    client = Counted()
    busy, uses = await running(client, cpus=1), UsageCache()
    leaves = asyncio.ensure_future(uses.current(client, [busy]))
    stays = asyncio.ensure_future(uses.current(client, [busy]))
    await asyncio.sleep(0)
    leaves.cancel()
    assert busy in await stays
