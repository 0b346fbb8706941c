"""The open logs of a page; copies their lines to the clipboard, a file or a pager."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import click

from hai_tui.i18n import text
from hai_tui.logs.ansi_sanitize import sanitize
from hai_tui.logs.reader import write
from hai_tui.logs.window import Line
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.page import Page
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.log.pane import LogPane


class LogFiles(Page):
    """A page with logs below one another."""

    @property
    def panes(self) -> list[LogPane]:
        """The open logs."""
        return list(self.query(LogPane))

    @property
    def pane(self) -> LogPane | None:
        """The one that has the keyboard."""
        return next((p for p in self.panes if p.has_focus_within), next(iter(self.panes), None))

    def copy_lines(self) -> None:
        """What is seen, to the clipboard."""
        if self.pane is not None:
            self.app.copy_to_clipboard(self.pane.view.visible_text())
            self.hai.say(text("said.copied", what=text("logs.copy")))

    def ask_save(self) -> None:
        """Which file to write."""
        if self.pane is not None:
            path = f"task-{self.pane.source.task}.log"
            self.ask_line(Question(text("logs.ask.save"), self._save, path))

    def _save(self, name: str) -> None:
        if name.strip() and self.pane is not None:
            path = Path(os.path.expanduser(name.strip()))
            self.report(partial(self._save_to, self.pane, path))

    async def _save_to(self, pane: LogPane, path: Path) -> None:
        async def lines() -> str:
            count = await self._write(pane, path, lambda line: line.text)
            return text("logs.saved", path=path, lines=f"{count:,}")

        await self.save(path, lines)
        self.update_status()

    async def _write(self, pane: LogPane, path: Path, format_line: Callable[[Line], str]) -> int:
        def on_progress(count: int) -> None:
            self.status(text("logs.saving", path=path, lines=f"{count:,}"))

        assert pane.reader is not None
        return await write(
            pane.reader, path, only=pane.only, format_line=format_line, on_progress=on_progress
        )

    async def page_lines(self) -> None:
        """In the user's own pager; the screen is its meanwhile."""
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        pager = os.environ.get("PAGER") or "less -R"
        with tempfile.TemporaryDirectory(prefix="hai-log-") as directory:
            path = Path(directory) / f"task-{pane.source.task}.log"
            await self._write(pane, path, lambda line: sanitize(line.text))
            try:
                command = [*shlex.split(pager), str(path)]
                with self.app.suspend():
                    subprocess.run(command, check=False)  # noqa: ASYNC221 - the screen is the pager's
            except (OSError, ValueError):  # there is none, or a quote is open
                self.hai.say(text("logs.no_pager", pager=pager), warning=True)
        self.update_status()

    def report(self, begin: Callable[[], Awaitable[object]], group: str = "actions") -> None:
        """Run it beside what is shown; what the server refuses is told."""
        run_in_background(self, partial(self._reported, begin), group=group)

    async def _reported(self, begin: Callable[[], Awaitable[object]]) -> None:
        """Do it; what goes wrong is told, and the page stays."""
        from hai.client.errors import HaiError

        try:
            await begin()
        except HaiError as error:
            self.hai.fail(error)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)

    def update_status(self) -> None:
        """Say how much is held of the log that has the keyboard."""
        if self.pane is not None:
            self.status(self.pane.status_text())
