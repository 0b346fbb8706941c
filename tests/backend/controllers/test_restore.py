"""A server starts with an older database, while ranks and files of later tasks exist."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hai_backend.domain.node import Node
from hai_backend.launch.base import KillRequest, RankKey
from hai_backend.launch.fake import FakeLauncher
from tests.support.builders import a_spec
from tests.support.servers import running_server


class Slow(FakeLauncher):
    """A launcher whose killed ranks end only when the test terminates them."""

    async def write_checkpoints(self, key: RankKey) -> None: ...

    async def kill(self, request: KillRequest) -> None: ...


async def test_scheduling_begins_when_what_no_task_wants_is_gone(tmp_path: Path) -> None:
    store, unknown = f"sqlite:///{tmp_path / 'hai.db'}", RankKey(7, 1, 0)
    async with running_server(tmp_path, launcher=FakeLauncher([]), database=store) as server:
        leader = server.app.leader
        assert leader is not None
        await leader.task_manager.submit("admin", a_spec(), "")
    slow = Slow([Node("n0")], {unknown})
    async with running_server(tmp_path, launcher=slow, database=store) as server:
        leader = server.app.leader
        assert leader is not None
        for _ in range(1000):  # without the wait, a pass would run at once
            await asyncio.sleep(0)
        assert not (await leader.scheduling.snapshot()).nodes
        slow.terminate(unknown)
        while not (await leader.scheduling.snapshot()).nodes:  # noqa: ASYNC110 - as a caller would
            await asyncio.sleep(0)
