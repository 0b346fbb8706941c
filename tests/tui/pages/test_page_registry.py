"""Each page that `:` opens, with the demo cluster and a real server: the page loads its data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from textual import events

from hai.client.profile import Profile
from hai_tui.demo_cluster.cluster import demo
from hai_tui.page_registry import PAGES
from hai_tui.screens.page import Page

_SIZE = (120, 30)


@asynccontextmanager
async def made_up(drive) -> AsyncIterator:
    client = await demo()
    options = {"connect": lambda profile: client, "clock": lambda: client.world.now}
    async with drive(Profile("demo", "fake:0"), size=_SIZE, **options) as tui:
        yield tui, {"node": "gpu-00"}


@asynccontextmanager
async def real(drive, server, client, submit) -> AsyncIterator:
    for name in ("a", "b"):
        await submit(name, "true")
    async with drive(server.profile, size=_SIZE) as tui:
        await tui.shows("2 tasks")
        yield tui, {"node": (await client.nodes.list())[0].name}


@pytest.fixture(params=["made up", "real"])
def place(request: pytest.FixtureRequest, drive) -> Callable[[], AbstractAsyncContextManager]:
    if request.param == "made up":
        return lambda: made_up(drive)
    parts = [request.getfixturevalue(name) for name in ("server", "client", "submit")]
    return lambda: real(drive, *parts)


_ARGUMENTS = {"task": "1", "diff": "1 2", "logs": "1", "services": "1"}


def is_loading(page: Page) -> bool:
    """Return whether the page is loading its data."""
    return any(not each.is_finished for each in page.workers if each.group == "fetch")


async def test_every_destination_opens(place) -> None:
    async with place() as (tui, names):
        await tui.shows("● live")
        for page in PAGES:
            tui.app.goto(f"{page.name} {(_ARGUMENTS | names).get(page.name, '')}".strip())
            await tui.until(lambda page=page: tui.app.screen.entry is page)
            await tui.until(lambda: not is_loading(tui.app.screen))
            assert not [each.message for each in tui.app._notifications], page.name
            tui.app.back()
            await tui.until(lambda: tui.app.screen.entry.name == "tasks")


async def test_keys_are_not_lost_to_a_hidden_line_while_nothing_is_there(
    drive, monkeypatch
) -> None:
    imported = threading.Event()
    monkeypatch.setattr("hai_tui.session._import_clients", imported.wait)
    async with drive(Profile("lab", "127.0.0.1:1", "t")) as tui:
        tui.app.goto("logs 1")
        await tui.shows("› logs 1")
        await tui.press("?", "escape", ":")
        await tui.shows("go to")
        imported.set()


async def test_what_is_typed_at_once_after_a_key_that_asks_belongs_to_the_line(drive) -> None:
    client = await demo()
    options = {"connect": lambda profile: client, "clock": lambda: client.world.now}
    async with drive(Profile("demo", "fake:0"), size=_SIZE, **options) as tui:
        await tui.shows("12 tasks")
        for key in "/user:bob":  # a paste or a slow connection delivers several keys at once
            tui.app.post_message(events.Key(key, key))
        await tui.shows("3 of 12 tasks · user:bob")


async def test_what_a_page_asks_ends_as_soon_as_it_is_left(drive) -> None:
    answer, late = asyncio.Event(), []

    async def asks() -> None:
        await answer.wait()
        late.append("answer")

    async with made_up(drive) as (tui, _):
        tui.app.goto("logs 12")
        await tui.until(lambda: tui.app.screen.entry.name == "logs")
        tui.app.screen.run_worker(asks())
        await tui.pilot.pause()
        tui.app.back()
        answer.set()
        await tui.shows("12 tasks")
        assert late == []


@pytest.mark.parametrize("steps", [0, 4, 6, 9, 12, 22])
@pytest.mark.parametrize("line", ["logs 12", "usage"])
async def test_a_page_left_while_it_opens_takes_nothing_with_it(
    drive, line: str, steps: int
) -> None:
    async with made_up(drive) as (tui, _):
        tui.app.goto(line)
        for _ in range(steps):  # Textual mounts widgets one by one; the app is not connected yet
            await asyncio.sleep(0)
        tui.app.back()
        await tui.shows("12 tasks", "● live")


async def test_a_log_that_closes_is_not_drawn(drive) -> None:
    async with made_up(drive) as (tui, _):
        tui.app.goto("logs 12")
        await tui.until(lambda: tui.app.screen.entry.name == "logs" and tui.app.screen.panes)
        (pane,) = tui.app.screen.panes
        tui.app.back()
        for _ in range(200):  # Textual removes widgets one by one meanwhile
            pane.update_heading()
            await asyncio.sleep(0)
        await tui.shows("12 tasks")


async def test_what_comes_while_a_page_closes_is_left_out(drive) -> None:
    async with made_up(drive) as (tui, _):
        await tui.shows("12 tasks")
        tui.app.goto("quotas")
        await tui.shows("› quotas", " in all")
        page = tui.app.screen
        tui.app.back()
        for _ in range(200):  # Textual removes widgets one by one meanwhile
            page._apply_filter()
            page.status("late")
            page.refresh_frame()
            await asyncio.sleep(0)
        await tui.shows("12 tasks")
