"""The page on `=` for two marked tasks: the differences between their specs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widget import Widget

from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.style.theme import tones
from hai_tui.widgets.plain import Static

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

_TONES = {"-": "bad", "+": "good", "?": "quiet"}


class DiffPage(Page):
    """The page is opened by `:diff 12 13`."""

    DEFAULT_CSS = "DiffPage VerticalScroll { padding: 0 2; }"

    def __init__(self, first: str, second: str = "") -> None:
        super().__init__()
        self._refs = (first, second or first)

    def content(self) -> Widget:
        return VerticalScroll(Static(text("loading"), id="lines"))

    def opened(self) -> None:
        self.fetch(self._load, self._show)

    async def _load(self, client: Client) -> list[Task]:
        ids = [await client.tasks.resolve(ref) for ref in self._refs]
        return [await client.tasks.get(id) for id in ids]

    def _show(self, tasks: Sequence[Task]) -> None:
        from hai.client.taskfile.spec import to_yaml

        before, after = (to_yaml(task.spec).splitlines() for task in tasks)
        lines = list(difflib.ndiff(before, after))
        styles = tones(self.hai.current_theme)
        content = Text()
        for line in lines:
            if not line.startswith("?"):
                content.append(line + "\n", styles.get(_TONES.get(line[0], ""), ""))
        is_equal = not any(line[0] in "-+" for line in lines)
        self.query_one("#lines", Static).update(content)
        names = [f"{task.id} {task.name}" for task in tasks]
        self.status(text("diff.same") if is_equal else text("diff.title", a=names[0], b=names[1]))
