"""A silent agent on the pages: they show it, and count the seconds without news from the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hai.client.profile import Profile
from hai_tui.demo_cluster.cluster import DemoClient, demo
from hai_tui.screens.task.task_page import TaskPage

_SIZE = (120, 30)
TASK = 7
"""diffusion-256 of bob, on gpu-08 to gpu-11."""


@pytest.fixture
async def cluster() -> DemoClient:
    """Rank 1 of task 7, on gpu-09, has been silent for 40 s."""
    client = await demo()
    client.silence(TASK, 1, seconds=40)
    return client


@pytest.fixture
def app(drive, cluster):
    """The app in front of that cluster, under its clock."""

    @asynccontextmanager
    async def opened(start: str, size: tuple[int, int] = _SIZE) -> AsyncIterator:
        options = {"connect": lambda profile: cluster, "clock": lambda: cluster.world.now}
        async with drive(Profile("demo", "fake:0"), size=size, start=start, **options) as tui:
            yield tui

    return opened


def line_of(screen: str, text: str) -> str:
    return next(line for line in screen.splitlines() if text in line)


async def test_the_list_shows_it_beside_the_state_and_counts_on(app, cluster) -> None:
    async with app(f"tasks id:{TASK}", size=(160, 30)) as tui:
        await tui.shows(f"{TASK}: agent of rank 1 silent for 40 s")  # the line below the table
        row = line_of(tui.screen(), "diffusion-256")
        assert "◌ RUNNING" in row
        assert "agent silent for 40 s" in row
        cluster.advance(80)
        await tui.shows("  agent silent for 2 min", f"{TASK}: agent of rank 1 silent for 2 min")
        cluster.hear(TASK)
        await tui.until(lambda: "silent" not in tui.screen())
        assert "● RUNNING" in line_of(tui.screen(), "diffusion-256")


async def test_a_narrow_list_tells_it_of_the_task_under_the_cursor(app, cluster) -> None:
    async with app(f"tasks id:{TASK}", size=(80, 24)) as tui:
        await tui.shows(f"{TASK}: agent of rank 1 silent for 40 s")
        cluster.advance(5)
        await tui.shows(f"{TASK}: agent of rank 1 silent for 45 s")


async def test_the_page_of_the_task_says_it_on_top_and_on_a_card(app, cluster) -> None:
    async with app(f"task {TASK}") as tui:
        await tui.shows("◌ RUNNING  7 diff", "An agent is silent", "● RUNNING 3   ◌ agent silent 1")
        lines = tui.screen().splitlines()
        said = [line for line in lines if "agent of rank 1 silent for 40 s" in line]
        assert len(said) == 2
        assert "the program may run on unseen" in said[0]
        cluster.advance(20)
        await tui.until(lambda: tui.screen().count("agent of rank 1 silent for 1 min") == 2)


async def test_the_rank_says_it(app, cluster) -> None:
    async with app(f"task {TASK} ranks") as tui:
        await tui.shows("agent silent for 40 s")
        ranks = [line_of(tui.screen(), f"gpu-{number:02}") for number in (8, 9)]
        assert ["◌ RUNNING" in rank for rank in ranks] == [False, True]
        assert ["agent silent for 40 s" in rank for rank in ranks] == [False, True]
        cluster.advance(3)
        await tui.shows("agent silent for 43 s")


async def test_the_tab_why_explains_it(app, cluster) -> None:
    async with app(f"task {TASK} why") as tui:
        await tui.shows(
            "An agent is silent",
            "• the agent of rank 1 on gpu-09 is silent",
            "What you can do",
            f"• end the task: hai stop {TASK}",
        )
        assert "What stands in the way" not in tui.screen()
        cluster.hear(TASK)
        await tui.until(lambda: "silent" not in tui.screen())
        assert isinstance(tui.app.screen, TaskPage)


async def test_the_map_of_the_cluster_marks_the_node(app, cluster) -> None:
    async with app("cluster") as tui:
        await tui.shows("◌ 1 agent silent")
        await tui.press("/", *"gpu-09", "enter")
        await tui.shows("◌ agent silent", "agent silent for 40 s", "task 7: agent silent for 40 s")
        cluster.advance(3)
        await tui.shows("task 7: agent silent for 43 s")
        await tui.press("v")
        await tui.shows("rank 1  agent silent for 43 s")
        cluster.hear(TASK)
        await tui.until(lambda: "silent" not in tui.screen())


async def test_the_page_of_the_node_names_the_rank(app, cluster) -> None:
    async with app("node gpu-09") as tui:
        await tui.shows("rank 1 · agent silent for 40 s")
        cluster.advance(3)
        await tui.shows("rank 1 · agent silent for 43 s")


async def test_the_list_of_nodes_says_it(app) -> None:
    async with app("nodes gpu-09", size=(160, 30)) as tui:
        await tui.shows("task 7: agent silent for 40 s")


async def test_in_chinese(app, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    async with app(f"task {TASK}") as tui:
        await tui.shows("rank 1 的 agent 已失联 40 s", "程序可能仍在运行")
