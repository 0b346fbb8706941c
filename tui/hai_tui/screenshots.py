"""Draws every screen as SVG, the same each time: `python -m hai_tui.screenshots DIRECTORY [NAME]...`.

`make docs` runs it. The snapshot tests use the same table, so that every screen has a test and a picture.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual._context import visible_screen_stack

from hai.client import profile as profiles
from hai.client.profile import Profile
from hai_tui.app import AppConfig, HaiApp
from hai_tui.demo_cluster.cluster import demo
from hai_tui.resources import resources
from hai_tui.screens.page import Page
from hai_tui.style.svg import render_svg

WIDE = (110, 30)
_TASKS_LOADED, _LIVE = "12 tasks", "● live"
_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen: the keys that lead to it, and the text that shows that it is complete."""

    name: str
    start: str = "tasks"
    keys: tuple[str, ...] = ()  # the entry `shows TEXT` waits for that text
    shows: str = ""  # text of the complete screen
    begins: str = ""  # text to wait for before the first key
    theme: str = ""
    over: str = ""  # class name of the dialog over the page, which is verified
    reachable: bool = True
    profile: bool = True
    before: Callable[[], object] = str  # prepares the picture

    @property
    def page(self) -> str:
        """The name of the first page."""
        return self.start.split()[0]


def _store_profiles() -> None:
    for name in ("lab", "cloud"):
        profiles.save(Profile(name, f"{name}.example.org:7450"), make_current=name == "lab")


PICTURES: tuple[Picture, ...] = (
    Picture("tasks", shows="12 tasks"),
    Picture("filter", keys=("/", *"status:queued", "space", *"user:alice,carol"), shows="2 of 12"),
    Picture("views", keys=("v",), shows="user:me", over="ChoiceDialog"),
    Picture(
        "marked", keys=("space", "space", "ctrl+d"), shows="can not be undone", over="ChoiceDialog"
    ),
    Picture("priority", keys=("down", "p"), shows="EXTREME_HIGH", over="ChoiceDialog"),
    Picture("columns", keys=("C",), shows="WHY", over="ColumnDialog"),
    Picture("palette", keys=("ctrl+p",), shows="Search", over="CommandPalette"),
    Picture("help", keys=("?",), shows="on this page", over="HelpDialog"),
    Picture("task", "task 2", shows="goodput"),
    Picture("failure", "task 4", shows="likely cause"),
    Picture("ranks", "task 2 ranks", shows="gpu-03"),
    Picture("runs", "task 10 runs", shows="ENDED"),
    Picture("timeline", "task 10 timeline", shows="TaskSubmitted"),
    Picture("why", "task 9 why", shows="What would help"),
    Picture("yaml", "task 9 spec", shows="entrypoint"),
    Picture("usage", "task 2 usage", shows="memory: "),
    Picture("load", "usage", shows="waiting tasks"),
    Picture("diff", "diff 4 5", shows="gpt-125m"),
    Picture("lost", shows="cannot reach the server", reachable=False),
    Picture("wizard", shows="Welcome", profile=False, over="WizardScreen"),
    Picture("light", shows="12 tasks", theme="hai-light"),
    Picture("contrast", shows="12 tasks", theme="hai-contrast"),
    Picture("logs", "logs 2", shows="step  400"),
    Picture("logs-search", "logs 2 0", ("/", *"loss 1\\.[34]"), "n next, N", begins="step  400"),
    Picture("logs-two", "logs 2 0", ("+", "ctrl+u", *"2 3", "enter"), "rank 3", begins="step  400"),
    Picture("cluster", "cluster", ("/", *"diff", "enter"), "7 diffusion-256", begins="train#a"),
    Picture(
        "cluster-use", "cluster", ("U", "/", *"gpu-10", "enter"), "31% of its", begins="train#a"
    ),
    Picture("cluster-tree", "cluster", ("v",), "bert-base-pretrain", begins="train#a"),
    Picture("node", "node gpu-08", shows="5 tasks wait in train"),
    Picture("services", "services 2", shows="2 in all"),
    Picture("submit", "submit 9", shows="would wait"),
    Picture("quotas-form", "quotas", ("a",), shows="add: a quota", over="FormDialog"),
    Picture("policy", "groups", ("v",), "preview a policy", "2 in all", over="FormDialog"),
    Picture("item", "datasets", ("G", "k", "enter"), "owner: dave", "4 in all", over="TextDialog"),
    Picture("erase", "containers", ("ctrl+d",), "type notebook", "1 in all", over="ConfirmDialog"),
    Picture(
        "results",
        keys=("/", *"status:running,failed", "enter", "ctrl+a", "r"),
        shows="1 refused",
        over="ResultsDialog",
    ),
    Picture("profiles", keys=("P",), shows="cloud", over="ProfileDialog", before=_store_profiles),
    Picture("cluster-light", "cluster", shows="train#a", theme="hai-light"),
    *(Picture(name, name, shows=" in all") for name in resources()),
)
"""Every screen. Only pages that are no lists need a line; the snapshot tests and the manual use it."""


def screen_text(app: HaiApp) -> str:
    """Return the text of the screen, line by line."""
    visible_screen_stack.set(app._background_screens)  # the page behind a dialog
    strips = app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip).rstrip() for strip in strips)
    return "\n".join(lines) + "\n"


async def shot(picture: Picture, size: tuple[int, int]) -> tuple[str, str]:
    """Return the text of a screen of the demo cluster, and its SVG. The clock stands still."""
    client = await demo()

    def lose() -> None:
        client.lose()
        client.world.now += 12

    profile = Profile("lab", "hai.example.org:7450", "t") if picture.profile else None
    options = AppConfig(
        chosen=profile, connect=lambda profile: client, clock=lambda: client.world.now
    )
    return await taken(picture, size, options, lose)


async def taken(
    picture: Picture, size: tuple[int, int], options: AppConfig, lose: Callable[[], object] = str
) -> tuple[str, str]:
    """Return text and SVG of a screen of any server; `lose` makes it unreachable."""
    picture.before()
    app = HaiApp(replace(options, start=picture.start))
    if picture.theme:
        app.preferences.values["theme"] = picture.theme
    async with app.run_test(size=size, notifications=True) as pilot:
        if picture.profile:
            begins = _TASKS_LOADED if picture.start == "tasks" else _LIVE
            await _wait_for_text(app, pilot, picture.begins or begins)
        await _press(app, pilot, picture.keys)
        if not picture.reachable:
            lose()
        await _wait_for_text(app, pilot, picture.shows)
        await _wait_until_stable(app, pilot, picture)
        _require_top(picture, app)
        found = screen_text(app), render_svg(app, title="hai tui")
        await app.disconnect()
        app.clear_notifications()
    return found


async def _press(app: HaiApp, pilot: Any, keys: Sequence[str]) -> None:
    for key in keys:
        if key.startswith("shows "):
            await _wait_for_text(app, pilot, key.removeprefix("shows "))
        else:
            await pilot.press(key)


def _require_top(picture: Picture, app: HaiApp) -> None:
    """Raise ValueError if the screen shows another page or dialog."""
    top = app.screen
    found = top.entry.name if isinstance(top, Page) else type(top).__name__
    if found != (picture.over or picture.page):
        raise ValueError(
            f"picture {picture.name} shows {found}, not {picture.over or picture.page}"
        )


async def _wait_for_text(app: HaiApp, pilot: Any, text: str) -> None:
    ends = time.monotonic() + _TIMEOUT_SECONDS
    while text not in screen_text(app):
        if time.monotonic() > ends:
            raise TimeoutError(f"{text!r} is not shown:\n{screen_text(app)}")
        await pilot.pause(0.02)


async def _wait_until_stable(app: HaiApp, pilot: Any, picture: Picture) -> None:
    """Wait until every answer has arrived and the screen stays the same three times."""

    unchanged, last, ends = 0, "", time.monotonic() + _TIMEOUT_SECONDS
    answers = picture.reachable and picture.profile
    while unchanged < 3:
        if time.monotonic() > ends:
            raise TimeoutError(f"the screen keeps changing:\n{last}")
        await pilot.pause(0.1)
        current = screen_text(app)
        complete = not (answers and app.session.has_pending_requests)
        unchanged, last = (unchanged + 1 if current == last and complete else 0), current


def main(directory: str, *names: str) -> int:
    """Draw all pictures, or those that are named."""
    os.environ |= {"TEXTUAL_ANIMATIONS": "none", "TZ": "UTC", "HAI_LANG": "en"}
    time.tzset()
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hai-pictures-") as home:
        for picture in (p for p in PICTURES if not names or p.name in names):
            os.environ["HAI_CONFIG"] = f"{home}/{picture.name}/config.toml"
            _, svg = asyncio.run(shot(picture, WIDE))
            (target / f"{picture.name}.svg").write_text(svg, "utf-8")
            print(f"{target / picture.name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
