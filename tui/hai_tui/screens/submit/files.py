"""A draft in files: loaded into the page, and saved from it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.submit import draft as drafts
from hai_tui.submit.draft import Draft
from hai_tui.widgets.dialogs.prompt import Question


class DraftFiles(Page):
    """A page with a draft."""

    draft: Draft

    def show_draft(self, draft: Draft) -> None:
        """Let another draft stand there."""
        raise NotImplementedError

    def ask_load(self) -> None:
        """Which file to read."""
        self.ask_line(Question(text("submit.ask.load"), self._load))

    def ask_save(self) -> None:
        """Which file to write."""
        spec = self.draft.spec
        name = f"{spec.name}.yml" if spec is not None and spec.name else "task.yml"
        self.ask_line(Question(text("submit.ask.save"), self._save, name))

    def _load(self, name: str) -> None:
        if not name.strip():
            return
        try:
            content = Path(os.path.expanduser(name.strip())).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self.hai.say(text("submit.cannot_read", path=name, error=error), warning=True)
            return
        self.show_draft(drafts.read(content))

    def _save(self, name: str) -> None:
        if name.strip():
            path = Path(os.path.expanduser(name.strip()))
            self.start(self.save(path, lambda: self._write(path)))

    async def _write(self, path: Path) -> str:
        await asyncio.to_thread(path.write_text, self.draft.text, "utf-8")
        return text("said.saved", path=path)
