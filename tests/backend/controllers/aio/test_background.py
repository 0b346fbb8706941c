"""If a task of the leader ends that must not end, the server restarts its role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.aio.background import BackgroundTasks
from hai_backend.domain.errors import Conflict, Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.task import RunState
from hai_backend.launch.base import LauncherEvent
from hai_backend.launch.fake import FakeLauncher
from tests.support.builders import a_spec
from tests.support.servers import running_server
from tests.support.virtual_time import run_virtually


async def returns() -> None:
    await asyncio.sleep(1)


async def fails() -> None:
    await asyncio.sleep(1)
    raise Conflict("it cannot go on")


async def is_cancelled() -> None:
    part = asyncio.ensure_future(asyncio.sleep(10))
    asyncio.get_running_loop().call_later(1, part.cancel)
    await part


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (returns, "has ended, and must not: it returned"),
        (fails, "it cannot go on"),
        (is_cancelled, "something that it waited for was cancelled"),
    ],
)
def test_a_part_that_must_not_end_breaks_the_whole(part, why: str) -> None:  # type: ignore[no-untyped-def]
    async def story() -> None:
        work = BackgroundTasks()
        work.keep_running("the part", part())
        with pytest.raises(Unavailable, match=f"^the part .*{why}"):
            await work.broken()
        await work.close()

    with capture_logs():
        run_virtually(story())


@pytest.mark.parametrize("part", [returns, fails, is_cancelled])
def test_other_work_may_end_and_fails_aloud(part) -> None:  # type: ignore[no-untyped-def]
    async def story() -> None:
        work = BackgroundTasks()
        work.run(part())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work.broken(), 20)
        await work.close()

    with capture_logs() as logs:
        run_virtually(story())
    assert [entry["event"] for entry in logs] == ["a loop ended"] * (part is not returns)


def test_closing_breaks_nothing() -> None:
    async def story() -> None:
        work = BackgroundTasks()
        work.keep_running("the part", asyncio.sleep(100))
        await asyncio.sleep(1)
        await work.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work.broken(), 20)

    with capture_logs() as logs:
        run_virtually(story())
    assert logs == []


class Breaking(FakeLauncher):
    """A launcher whose first stream of events ends when the test sets `end_stream`."""

    def __init__(self) -> None:
        super().__init__([Node("n0")])
        self.streams = 0
        self.end_stream = asyncio.Event()

    async def events(self) -> AsyncIterator[LauncherEvent]:
        self.streams += 1
        first, events = self.streams == 1, super().events()
        try:
            for _ in range(2):  # the nodes and the list of ranks
                yield await anext(events)
            if first:
                await self.end_stream.wait()
                return
            async for event in events:
                yield event
        finally:
            await events.aclose()  # type: ignore[attr-defined]


async def test_a_server_that_hears_its_launcher_no_more_begins_its_role_anew(
    tmp_path: Path,
) -> None:
    """Otherwise the server would seem healthy but never notice the end of a rank."""
    launcher = Breaking()
    async with running_server(tmp_path, launcher=launcher) as server:
        before = server.app.leader
        assert before is not None
        with capture_logs() as logs:
            launcher.end_stream.set()
            async with asyncio.timeout(20):
                while server.app.leader in (None, before) or launcher.streams < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert any("launcher events" in str(entry.get("why")) for entry in logs)
        leader = server.app.leader
        assert leader is not None
        task = await leader.task_manager.submit("admin", a_spec(), "")
        async with asyncio.timeout(20):
            while (found := leader.task_manager.unfinished()[task.id]).run is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert found.run.state is not RunState.ENDED


async def test_a_role_that_was_cancelled_by_nobody_is_played_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a role must not be treated as cancelled by the server, and must not restart in a loop without a pause."""
    cancel = asyncio.Event()

    async def broken(self: BackgroundTasks) -> NoReturn:
        part = asyncio.ensure_future(asyncio.Event().wait())
        await cancel.wait()
        monkeypatch.undo()
        part.cancel()
        await part
        raise AssertionError

    monkeypatch.setattr(BackgroundTasks, "broken", broken)
    async with running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server:
        before = server.app.leader
        with capture_logs() as logs:
            cancel.set()
            async with asyncio.timeout(20):
                while server.app.leader in (None, before):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert [log["log_level"] for log in logs if "cannot play its role" in log["event"]] == [
            "warning"
        ]
