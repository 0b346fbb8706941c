"""Copies the lines of a log to a file or to a pager."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from hai_tui.i18n import text
from hai_tui.logs.ansi_sanitize import sanitize
from hai_tui.logs.reader import write
from hai_tui.logs.window import Line
from hai_tui.screens.page import Page
from hai_tui.widgets.log.pane import LogPane


async def save_log(page: Page, pane: LogPane, path: Path) -> None:
    """Write all lines of the log to a file; ask first if the file exists."""

    async def write_file() -> str:
        count = await _write(page, pane, path, lambda line: line.text)
        return text("logs.saved", path=path, lines=f"{count:,}")

    await page.save(path, write_file)


async def show_in_pager(page: Page, pane: LogPane) -> None:
    """Give the screen to the user's pager until the pager ends."""
    if pane.reader is None:
        return
    pager = os.environ.get("PAGER") or "less -R"
    with tempfile.TemporaryDirectory(prefix="hai-log-") as directory:
        path = Path(directory) / f"task-{pane.source.task}.log"
        await _write(page, pane, path, lambda line: sanitize(line.text))
        try:
            command = [*shlex.split(pager), str(path)]
            with page.app.suspend():
                subprocess.run(command, check=False)  # noqa: ASYNC221 - the pager has the screen
        except (OSError, ValueError):  # there is no such program, or a quote is not closed
            page.hai.say(text("logs.no_pager", pager=pager), warning=True)


async def _write(page: Page, pane: LogPane, path: Path, format_line: Callable[[Line], str]) -> int:
    def on_progress(count: int) -> None:
        page.status(text("logs.saving", path=path, lines=f"{count:,}"))

    assert pane.reader is not None
    return await write(
        pane.reader, path, only=pane.only, format_line=format_line, on_progress=on_progress
    )
