"""Texts of users are never markup: hostile texts on every page and in every action, and rules for the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.segment import Segment
from textual.color import Color
from textual.command import CommandPalette
from textual.pilot import Pilot

import hai_tui
from hai.client.profile import Profile
from hai_tui.app import AppConfig, HaiApp
from hai_tui.screens.page import Page
from hai_tui.screenshots import PICTURES, screen_text
from hai_tui.widgets.dialogs.choice import ChoiceDialog
from hai_tui.widgets.dialogs.prompt import Prompt
from hai_tui.widgets.plain import ControlCharacterFilter, Group, grid, plain
from tests.tui.hostile import BEGIN, hostile_demo

STARTS = sorted({picture.start for picture in PICTURES if picture.profile})
ACTING = {start.split()[0]: start for start in reversed(STARTS)}
"""One start of each page: on the others it has the same actions."""
_NOT_HERE = ("quit", "shell", "pager", "picture", "profile", "theme", "page.")
"""They leave the app or need a terminal, or show nothing of a server."""
_STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("start", STARTS)
async def test_every_action_stands_hostile_texts(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = await hostile_demo()
    options = AppConfig(
        chosen=Profile("[/b]lab", "[/b].example.org:7450", "t"),
        connect=lambda profile: client,
        clock=lambda: client.world.now,
        start=start,
    )
    app = HaiApp(options)
    async with app.run_test(size=(110, 30), notifications=True) as pilot:
        await _until(app, pilot, "● live")
        await _at_rest(pilot)
        page = app.screen
        assert isinstance(page, Page)
        await _look(app, pilot)
        if start in ACTING.values():
            for name in [each.name for each in page.all_actions()]:
                if not name.startswith(_NOT_HERE):
                    await _do(app, pilot, name)
        assert BEGIN in screen_text(app) or page.entry.name in ("usage", "audit", "submit")
        await app.disconnect()
        app.clear_notifications()


async def _do(app: HaiApp, pilot: Pilot[int], name: str) -> None:
    """Perform an action, answer its questions, and return to the page."""
    page = app.screen
    assert isinstance(page, Page)
    action = next((each for each in page.all_actions() if each.name == name), None)
    if action is None:
        return
    page.perform(action)
    await _look(app, pilot)
    if isinstance(app.screen, CommandPalette):
        await pilot.press("s")
        await _look(app, pilot)
    elif isinstance(app.screen, ChoiceDialog):
        await pilot.press("enter")
        await _look(app, pilot)
    elif app.screen is page and page.query_one(Prompt).display:
        await pilot.press("x", "enter")
        await _look(app, pilot)
    for _ in range(5):
        if app.screen is page and not page.query_one(Prompt).display:
            break
        await pilot.press("escape")
        await _look(app, pilot)
    while app.screen is not page:  # a page with unsaved input asks before it closes
        app.pop_screen()
    await _look(app, pilot)


async def _look(app: HaiApp, pilot: Pilot[int]) -> None:
    await _at_rest(pilot)
    assert app._exception is None, app._exception
    found = _STEERS.search(screen_text(app))
    assert found is None, f"{found[0]!r} reaches the terminal"


async def _at_rest(pilot: Pilot[int]) -> None:
    await pilot.pause()
    await pilot.pause(0.02)


async def _until(app: HaiApp, pilot: Pilot[int], text: str) -> None:
    for _ in range(3000):
        if text in screen_text(app):
            return
        await pilot.pause(0.02)
    raise TimeoutError(f"{text!r} is not shown:\n{screen_text(app)}")


# A rule for the sources: only one module uses those widgets of Textual and Rich that interpret markup.

APP = Path(hai_tui.__file__).parent
SOURCES = [path for path in sorted(APP.rglob("*.py")) if "cli" not in path.relative_to(APP).parts]
PLAIN = APP / "widgets" / "plain.py"
_WIDGETS = frozenset({"Input", "TextArea", "ContentSwitcher", "Checkbox", "SelectionList"})
"""Of textual.widgets: those that show no `str` as markup, and lists whose lines `plain` makes."""
_TITLES = frozenset({"border_title", "border_subtitle", "tooltip"})
_READS_MARKUP = frozenset({"from_markup", "render_str"})


def wrongs(code: ast.AST) -> Iterator[tuple[int, str]]:
    """Return the lines that would interpret a text as markup, with the reason."""
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.Assign):
            titles = [t.attr for t in node.targets if isinstance(t, ast.Attribute)]
            for title in _TITLES.intersection(titles):
                if not _is_call(node.value, "plain"):
                    yield node.lineno, f"{title} is read as markup: use plain(…)"
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _imports(node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
    names = {alias.name for alias in node.names}
    taken = {
        "textual": {"widgets"} & names,
        "textual.widgets": names - _WIDGETS,
        "textual.content": names,
        "rich": names & {"print", "markup"},
        "rich.markup": names,
        "rich.table": names,
        "rich.panel": names,
        "rich.columns": names,
        "rich.console": names & {"Group"},
    }.get(node.module or "", set())
    for name in sorted(taken):
        yield node.lineno, f"{name} reads markup: take it from hai_tui.widgets.plain"


def _calls(node: ast.Call) -> Iterator[tuple[int, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if name == "notify" and not _is_false(given.get("markup")):
        yield node.lineno, "notify reads markup: use App.say, or markup=False"
    if name in _READS_MARKUP:
        yield node.lineno, f"{name} reads markup"
    if "tooltip" in given and not _is_call(given["tooltip"], "plain"):
        yield node.lineno, "a tooltip is read as markup: use plain(…)"
    text = node.args[0] if node.args else node
    if _is_call(node, "Selection") and not _is_call(text, "plain"):
        yield node.lineno, "the text of a Selection is read as markup: use plain(…)"


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_no_text_is_read_as_markup() -> None:
    found = {
        f"{path.relative_to(APP)}:{line}": why
        for path in SOURCES
        if path != PLAIN
        for line, why in wrongs(ast.parse(path.read_text("utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "from textual.widgets import Static",
        "from textual import widgets",
        "from rich.table import Table",
        "from textual.content import Content",
        "box.border_title = name",
        "self.tooltip = task.name",
        "self.notify(task.name)",
        "self.notify(task.name, markup=True)",
        "Text.from_markup(task.name)",
        "Selection(task.name, 1)",
        "PlainCheckbox(label, tooltip=task.name)",
    ],
)
def test_a_text_that_would_be_read_as_markup_is_found(line: str) -> None:
    assert list(wrongs(ast.parse(line)))


# The permitted forms.

NAMES = [
    "x [/data/set]", "[/b] [red", "bert [lr=0.1]", "[@click=app.quit]x[/]", "\\[", "a\\", "[]", "",
    "שלום [/b]", "名 [/b]",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_shown_as_it_is(name: str) -> None:
    assert plain(name).plain == name
    console = Console(width=60, file=StringIO())
    rows = grid()
    rows.add_row(name, name)
    console.print(Group(rows, name), markup=True)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count(name) == 3 or not name


@pytest.mark.parametrize(
    ("told", "drawn"),
    [
        ("plain", "plain"),
        ("a\x1b[31mb", "a[31mb"),
        ("a\u202eb\u2069", "ab"),
        ("bell\x07 null\x00 c1\x9b", "bell null c1"),
        ("蛋白质 שלום", "蛋白质 שלום"),
        ("表\u3000示", "表\u3000示"),
    ],
)
def test_what_would_steer_a_terminal_is_drawn_in_no_line(told: str, drawn: str) -> None:
    segments = [Segment(told), Segment("rest")]
    found = ControlCharacterFilter().apply(segments, Color(0, 0, 0))
    assert "".join(each.text for each in found).replace(" ", "") == f"{drawn}rest".replace(" ", "")
    assert [each.cell_length for each in found] == [each.cell_length for each in segments]


async def test_the_name_of_a_task_stands_in_the_titles_of_questions_about_it(
    server, drive, submit
) -> None:
    await submit("bert [lr=0.1]", "sleep", "60")
    await submit("x [/data/set]", "sleep", "60")
    async with drive(server.profile) as tui:
        await tui.shows("2 tasks", "x [/data/set]", "bert [lr=0.1]")
        await tui.press("u")
        await tui.shows("Suspend 2 x [/data/set]")
        await tui.press("escape", "down", "p")
        await tui.shows("Priority of 1 bert [lr=0.1]")
        await tui.press("escape", "ctrl+a", "u")
        await tui.shows("2 x [/data/set], 1 bert [lr=0.1]")


async def test_a_page_of_no_such_task_says_so(server, drive) -> None:
    async with drive(server.profile, start="task [/b]") as tui:
        await tui.shows("[/b]")
        await tui.press("?")
        await tui.shows("on this page", "[/b]")
