"""Every screen as it stands, at 80x24 and 200x50: what changed is seen as a difference of text.

They show a real server in this process, after a day that is always the same (story.py); only what a server
can not show (that it is away, that none is known yet) comes from the made-up cluster of `hai tui --demo`.
HAI_REWRITE_SCREENS=1 writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import pytest_asyncio
from textual.screen import Screen

import hai_tui
from hai_tui.app import AppConfig
from hai_tui.i18n import TABLES, known
from hai_tui.page_registry import PAGES
from hai_tui.screens.task.task_page import TABS
from hai_tui.screenshots import PICTURES, Picture, shot, taken
from tests.tui.story import the_story

HERE = Path(__file__).parent / "screens"
DOCS = Path(__file__).parents[2] / "docs"
SIZES = [(80, 24), (200, 50)]
OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "ranks": {"shows": "gpu-0"},
    "runs": {"start": "task 6 runs"},
    "timeline": {"start": "task 6 timeline", "shows": "RunEnded"},
    "why": {"start": "task 10 why", "shows": "What stands in the way"},
    "cluster": {"keys": ("/", *"gpt", "enter"), "shows": "9 gpt-1.3b-pretrain"},
    "node": {"shows": "tasks wait in train"},
    "queue": {"shows": "6 in all"},
    "quotas": {"shows": "25 in all"},
    "users": {"shows": "6 in all"},
    "tokens": {"shows": "5 in all"},
}
"""What a real server shows otherwise than the made-up cluster."""
# They need hours that a server which has just begun does not have.
OVER_TIME = ("usage", "load", "audit", "cluster-use")
SERVING = ("services",)  # agents that tell of services
MADE_UP = [p for p in PICTURES if not (p.reachable and p.profile) or p.name in OVER_TIME + SERVING]
REAL = [replace(p, **OTHERWISE.get(p.name, {})) for p in PICTURES if p not in MADE_UP]

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def story(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppConfig]:
    """How alice looks at the real server."""
    async with the_story(tmp_path_factory.mktemp("story")) as (profile, clock):
        yield AppConfig(chosen=profile, clock=clock.now)


def keep_or_compare(text: str, name: str, size: tuple[int, int]) -> None:
    kept = HERE / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("HAI_REWRITE_SCREENS"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text, "utf-8")
    assert text == kept.read_text("utf-8")


@pytest.mark.asyncio(loop_scope="module")
@sizes
@pytest.mark.parametrize("picture", REAL, ids=lambda picture: picture.name)
async def test_the_screen_is_as_it_was(
    story: AppConfig, picture: Picture, size: tuple[int, int]
) -> None:
    text, _ = await taken(picture, size, story)
    keep_or_compare(text, picture.name, size)


@sizes
@pytest.mark.parametrize("picture", MADE_UP, ids=lambda picture: picture.name)
async def test_without_a_server_the_screen_is_as_it_was(
    picture: Picture, size: tuple[int, int]
) -> None:
    text, _ = await shot(picture, size)
    text = re.sub(r"in \d+s · ctrl", "in 1s · ctrl", text)  # waits before a retry are drawn
    keep_or_compare(text, picture.name, size)


def screens_of_the_app() -> dict[str, type[Screen[Any]]]:
    """Every class of a screen that is written somewhere in hai_tui, and not only built on."""
    for module in walk_packages(hai_tui.__path__, "hai_tui."):
        if not module.name.startswith("hai_tui.cli"):
            import_module(module.name)
    found, new = {}, {Screen}
    while new:
        new = {below for above in new for below in above.__subclasses__()}
        found |= {each.__name__: each for each in new if each.__module__.startswith("hai_tui.")}
    return found


def test_every_screen_that_one_can_go_to_has_its_picture() -> None:
    pages = {page.name: page.home.partition(":")[2] for page in PAGES}
    plain = {picture.page for picture in PICTURES if not picture.over}
    assert sorted(pages.keys() - plain) == []
    shown = {picture.over for picture in PICTURES} | {pages[name] for name in plain}
    built_on = {base.__name__ for cls in screens_of_the_app().values() for base in cls.__bases__}
    assert sorted(screens_of_the_app().keys() - shown - built_on) == []
    tabs = {picture.start.split()[2] for picture in PICTURES if picture.start.count(" ") == 2}
    assert set(TABS) - tabs - {"overview"} == set()


async def test_a_picture_that_shows_something_else_is_no_picture() -> None:
    with pytest.raises(ValueError, match="shows tasks, not Results"):
        await shot(Picture("results", shows="12 tasks", over="Results"), SIZES[0])


def test_every_picture_is_drawn_and_stands_in_the_manual() -> None:
    wanted = {f"{picture.name}.svg" for picture in PICTURES}
    assert {path.name for path in (DOCS / "tui").iterdir()} == wanted
    manual = "".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    assert sorted(name for name in wanted if f"](tui/{name})" not in manual) == []


def test_every_kept_screen_has_its_picture() -> None:
    wanted = {f"{p.name}-{w}x{h}.txt" for p in PICTURES for w, h in SIZES}
    assert {path.name for path in HERE.iterdir()} == wanted


async def test_a_picture_is_always_the_same() -> None:
    first, second = [(await shot(PICTURES[0], (110, 30)))[1] for _ in range(2)]
    assert first == second
    assert "bert-base-pretrain" in re.sub("&#160;", " ", first)


@pytest.mark.parametrize("picture", PICTURES[:2] + PICTURES[8:10], ids=lambda picture: picture.name)
async def test_in_chinese_every_sentence_is(picture: Picture, monkeypatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    monkeypatch.setattr("hai_tui.screenshots._READY", "12 个任务")
    monkeypatch.setattr("hai_tui.screenshots._LIVE", "● 实时")
    text, _ = await shot(Picture(picture.name, picture.start), (110, 30))
    assert "按键" in text


@pytest.mark.parametrize("picture", PICTURES[:1] + PICTURES[9:10], ids=lambda picture: picture.name)
async def test_without_colours_it_says_the_same(picture: Picture, monkeypatch) -> None:
    colourful, _ = await shot(picture, (110, 30))
    monkeypatch.setenv("NO_COLOR", "1")
    plain, svg = await shot(picture, (110, 30))
    assert plain == colourful
    colours = {c for c in re.findall(r"fill: (#\w{6})", svg) if len({c[1:3], c[3:5], c[5:7]}) > 1}
    assert colours <= set(re.findall(r"#ff5f57|#febc2e|#28c840|#c5c8c6", svg))


def test_every_page_and_action_has_its_texts() -> None:
    wanted = {f"page.{page.name}" for page in PAGES} | {f"page.{page.name}.about" for page in PAGES}
    assert [key for key in sorted(wanted) if not known(key)] == []
    assert "frame" in TABLES
