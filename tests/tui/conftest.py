"""Fixtures of the terminal app's tests: a server in the test process, and the app connected to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.keys import key_to_character
from textual.pilot import Pilot

from hai.client.client import Client
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.launch.local_launcher import sweep
from hai_tui.app import AppConfig, HaiApp
from tests.support.servers import RunningServer, ServerProcess, count_streams, running_server

_VARIABLES = [
    *("LC_ALL", "LC_MESSAGES", "HAI_LANG", "HAI_PROFILE", "HAI_SERVER", "HAI_TOKEN", "HAI_HOME"),
    *("MARSV2_SERVER", "MARSV2_USER_TOKEN", "NO_COLOR"),
]
NOBODY = "http://127.0.0.1:1"  # no process listens on this port
_PATIENCE = 60.0  # seconds; long, for a busy machine


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """English, UTC, no settings of the person who runs the tests, nothing that moves by itself."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "config" / "config.toml"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    """Two nodes, one admin. Agents would outlive it, as they should."""
    async with running_server(tmp_path / "home", nodes=2, webhooks=NOBODY) as running:
        yield running
    sweep(tmp_path / "home")


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[Client]:
    """An admin's client."""
    async with Client(server.profile) as made:
        yield made


def a_program(
    name: str, *command: str, nodes: int = 1, priority: int = 10, **more: Any
) -> TaskSpec:
    """Return the spec of a task that runs a command."""
    entrypoint, *parameters = command or ("sleep", "60")
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(
            entrypoint=entrypoint,
            parameters=parameters,
            entrypoint_executable=True,
            workspace="/tmp",
        ),
        resource=ResourceSpec(node_count=nodes),
        **more,
    )


class Driver:
    """Presses keys in the app under test and reads its screen."""

    def __init__(self, app: HaiApp, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        """Press keys and wait until the app has processed them."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def types(self, *keys: str) -> None:
        """Put all keys into the queue at once, like a user who types faster than the app works."""
        for key in keys:
            self.app.post_message(events.Key(key, key_to_character(key) if key[1:] else key))

    async def until(self, true: Callable[[], Any], patience: float = _PATIENCE) -> None:
        """Wait until a condition holds, for example one that an event of the server makes true."""
        ends = time.monotonic() + patience
        while not true():
            assert time.monotonic() < ends, f"it did not come true:\n{self.screen()}"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def shows(self, *texts: str) -> None:
        """Wait until the screen shows all the texts."""
        await self.until(lambda: all(text in self.screen() for text in texts))

    def screen(self) -> str:
        """Return the text of the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)


Drive = Callable[..., AbstractAsyncContextManager[Driver]]


@pytest.fixture
def drive() -> Drive:
    """Runs the app: `async with drive(profile) as tui`."""

    @asynccontextmanager
    async def driving(
        profile: Any = None, size: tuple[int, int] = (100, 24), **options: Any
    ) -> AsyncIterator[Driver]:
        app = HaiApp(AppConfig(chosen=profile, **options))
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Driver(app, pilot)
            await app.disconnect()

    return driving


@pytest.fixture
def program() -> Callable[..., TaskSpec]:
    """Makes specs: `program("name", "sleep", "60")`."""
    return a_program


@pytest.fixture
def submit(client: Client) -> Callable[..., Awaitable[Task]]:
    """Submits a command: `await submit("name", "sleep", "60")`."""

    async def submitting(name: str, *command: str, **more: Any) -> Task:
        return await client.tasks.create(a_program(name, *command, **more))

    return submitting


@pytest.fixture
def open_streams() -> Iterator[Callable[[], int]]:
    """Counts the streams that servers made in this test hold open for their users. Ask for it before `server`."""
    with count_streams() as count:
        yield count


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server in a process of its own, to be killed; not started yet."""
    home = tmp_path / "process"
    home.mkdir()
    made = ServerProcess(home, "--nodes", "1")
    yield made
    if made.running:
        await asyncio.to_thread(made.end)
    made.sweep()
