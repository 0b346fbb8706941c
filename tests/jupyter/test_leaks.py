"""Closing tabs closes streams of the platform, through a real Jupyter server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.jupyter.conftest import Page
from tests.jupyter.lab import start_lab, write_profile
from tests.support.servers import RunningServer, count_streams, running_server


@pytest.fixture
def streams() -> Iterator[Callable[[], int]]:
    """Streams that servers made in this test hold open for their users. Ask for it before `platform`."""
    with count_streams() as count:
        yield count


@pytest.fixture
async def platform(streams: Callable[[], int], tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path / "hai", nodes=1) as server:
        yield server


async def becomes(streams: Callable[[], int], wanted: int) -> None:
    """Wait until the platform has this many open streams."""
    for _ in range(500):
        if streams() == wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{streams()} streams are open, not {wanted}")


async def test_fifty_tabs_cost_one_stream_and_closing_them_closes_it(
    streams: Callable[[], int], platform: RunningServer, tmp_path: Path
) -> None:
    write_profile(tmp_path / "config.toml", platform.profile)
    lab = await asyncio.to_thread(start_lab, tmp_path, tmp_path / "config.toml", lab=False)
    try:
        await _open_and_close(Page(lab), platform, streams)
    finally:
        await asyncio.to_thread(lab.end)


async def _open_and_close(page: Page, platform: RunningServer, streams: Callable[[], int]) -> None:
    async with Client(platform.profile) as client:
        program = ProgramSpec(entrypoint="sleep", parameters=["60"], entrypoint_executable=True)
        resource = ResourceSpec(node_count=1)
        made = await client.tasks.create(
            TaskSpec(version=2, name="sleeps", spec=program, resource=resource)
        )
        async with AsyncExitStack() as tabs:
            for _ in range(50):
                frame = await tabs.enter_async_context(page.socket("events"))
                await frame()
            for _ in range(3):
                await tabs.enter_async_context(page.socket(f"tasks/{made.id}/log"))
            await becomes(streams, 1 + 3)  # one stream for all tabs, and one for each log
        await becomes(streams, 0)
        await client.tasks.stop(made.id)
        await client.tasks.wait(made.id, timeout=30)
