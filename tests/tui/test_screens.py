"""Golden screens: the text of a page or dialog, compared with a stored file.

Most tests use a real server in this process with a fixed sequence of events (story.py). The demo cluster of
`hai tui --demo` provides the other states: hours of usage, a lost connection, a start without a profile. All other
screens have a picture in the manual only. HAI_REWRITE_SCREENS=1 writes the files again.
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
from hai_tui.page_registry import PAGES
from hai_tui.screens.task.task_page import TABS
from hai_tui.screenshots import PICTURES, Picture, shot, taken
from tests.tui.story import the_story

GOLDEN_DIRECTORY = Path(__file__).parent / "screens"
DOCS = Path(__file__).parents[2] / "docs"
SMALL, LARGE = (80, 24), (200, 50)
GOLDEN = [
    *((name, SMALL) for name in (
        "tasks", "columns", "help", "task", "ranks", "timeline", "why", "usage", "diff", "lost", "wizard",
        "logs-two", "cluster-tree", "node", "submit", "quotas", "policy", "results",
    )),
    ("tasks", LARGE),
    ("cluster", LARGE),
]  # fmt: skip
"""One page, dialog or state each."""

REAL_SERVER: Mapping[str, Mapping[str, Any]] = {
    "ranks": {"shows": "gpu-0"},
    "timeline": {"start": "task 6 timeline", "shows": "RunEnded"},
    "why": {"start": "task 10 why", "shows": "What stands in the way"},
    "cluster": {"keys": ("/", *"gpt", "enter"), "shows": "9 gpt-1.3b-pretrain"},
    "node": {"shows": "tasks wait in train"},
    "quotas": {"shows": "25 in all"},
}
"""How to reach a screen on the real server, where that differs from the made-up cluster."""

MADE_UP = ("usage", "lost", "wizard")


def golden(*, made_up: bool) -> list[Any]:
    by_name = {picture.name: picture for picture in PICTURES}
    return [
        pytest.param(
            by_name[name] if made_up else replace(by_name[name], **REAL_SERVER.get(name, {})),
            size,
            id=f"{name}-{size[0]}x{size[1]}",
        )
        for name, size in GOLDEN
        if (name in MADE_UP) == made_up
    ]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def story(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppConfig]:
    """How alice looks at the real server."""
    async with the_story(tmp_path_factory.mktemp("story")) as (profile, clock):
        yield AppConfig(chosen=profile, clock=clock.now)


def assert_golden(text: str, name: str, size: tuple[int, int]) -> None:
    path = GOLDEN_DIRECTORY / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("HAI_REWRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("picture", "size"), golden(made_up=False))
async def test_screen_of_the_real_server(
    story: AppConfig, picture: Picture, size: tuple[int, int]
) -> None:
    text, _ = await taken(picture, size, story)
    assert_golden(text, picture.name, size)


@pytest.mark.parametrize(("picture", "size"), golden(made_up=True))
async def test_screen_of_the_made_up_cluster(picture: Picture, size: tuple[int, int]) -> None:
    text, _ = await shot(picture, size)
    text = re.sub(r"in \d+s · ctrl", "in 1s · ctrl", text)  # the wait before a retry is random
    assert_golden(text, picture.name, size)


def screens_of_the_app() -> dict[str, type[Screen[Any]]]:
    """Return all screen classes of hai_tui by name."""
    for module in walk_packages(hai_tui.__path__, "hai_tui."):
        if not module.name.startswith("hai_tui.cli"):
            import_module(module.name)
    found: dict[str, type[Screen[Any]]] = {}
    new: set[type[Screen[Any]]] = {Screen}
    while new:
        new = {below for above in new for below in above.__subclasses__()}
        found |= {each.__name__: each for each in new if each.__module__.startswith("hai_tui.")}
    return found


def test_every_screen_has_a_picture() -> None:
    pages = {page.name: page.class_path.partition(":")[2] for page in PAGES}
    plain = {picture.page for picture in PICTURES if not picture.over}
    assert sorted(pages.keys() - plain) == []
    shown = {picture.over for picture in PICTURES} | {pages[name] for name in plain}
    built_on = {base.__name__ for cls in screens_of_the_app().values() for base in cls.__bases__}
    assert sorted(screens_of_the_app().keys() - shown - built_on) == []
    tabs = {picture.start.split()[2] for picture in PICTURES if picture.start.count(" ") == 2}
    assert set(TABS) - tabs - {"overview"} == set()


async def test_a_picture_of_the_wrong_screen_is_refused() -> None:
    with pytest.raises(ValueError, match="shows tasks, not ResultsDialog"):
        await shot(Picture("results", shows="12 tasks", over="ResultsDialog"), SMALL)


def test_every_picture_is_in_the_manual() -> None:
    expected = {f"{picture.name}.svg" for picture in PICTURES}
    assert {path.name for path in (DOCS / "tui").iterdir()} == expected
    manual = "".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    assert sorted(name for name in expected if f"](tui/{name})" not in manual) == []


def test_every_golden_file_belongs_to_a_test() -> None:
    expected = {f"{name}-{w}x{h}.txt" for name, (w, h) in GOLDEN}
    assert {path.name for path in GOLDEN_DIRECTORY.iterdir()} == expected


async def test_a_picture_is_reproducible() -> None:
    first, second = [(await shot(PICTURES[0], (110, 30)))[1] for _ in range(2)]
    assert first == second
    assert "bert-base-pretrain" in re.sub("&#160;", " ", first)


@pytest.mark.parametrize("picture", PICTURES[:1] + PICTURES[9:10], ids=lambda picture: picture.name)
async def test_without_colours_the_text_is_the_same(picture: Picture, monkeypatch) -> None:
    colourful, _ = await shot(picture, (110, 30))
    monkeypatch.setenv("NO_COLOR", "1")
    plain, svg = await shot(picture, (110, 30))
    assert plain == colourful
    colours = {c for c in re.findall(r"fill: (#\w{6})", svg) if len({c[1:3], c[3:5], c[5:7]}) > 1}
    assert colours <= set(re.findall(r"#ff5f57|#febc2e|#28c840|#c5c8c6", svg))
