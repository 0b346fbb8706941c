"""Logs, several below one another: live, searched, filtered, saved. `:logs 12`, `:logs 12 0-3`, `:logs train`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from textual.containers import Vertical
from textual.widget import Widget

from hai.client.errors import HaiError
from hai_tui.actions import Action
from hai_tui.formatting import values as formatting
from hai_tui.i18n import text
from hai_tui.logs.reader import Reader, Source
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.logs.navigation import LogNavigation
from hai_tui.widgets.dialogs.prompt import Prompt, Question
from hai_tui.widgets.log.pane import LogPane
from hai_tui.widgets.log.view import LogView

if TYPE_CHECKING:
    from hai.client.client import Client

MOST_LOGS = 5


class LogsPage(LogNavigation):
    """Opened with a task's number or name, ranks (all, 0, 0-3,7), and what lines must have."""

    DEFAULT_CSS = "LogsPage Vertical#content { height: 1fr; }"

    def __init__(self, task: str = "", ranks: str = "all", *only: str) -> None:
        super().__init__()
        self._task_reference, self._ranks, self._first_only = task, ranks, " ".join(only)

    def content(self) -> Widget:
        """The logs, below one another."""
        return Vertical()

    def title_text(self) -> str:
        """Which logs are open now."""
        names = " + ".join(pane.source.arguments for pane in self.panes)
        return f"{self.entry.title} {names}" if names else super().title_text()

    def accepts_arguments(self, query: Sequence[str]) -> bool:
        """One of its logs may be what is wanted; it gets the keyboard."""
        matching = next((p for p in self.panes if p.source.arguments == " ".join(query)), None)
        if matching is None:
            return (not self.panes or len(query) > 2) and super().accepts_arguments(query)
        matching.view.focus()
        return True

    def opened(self) -> None:
        """Open the log that the page was asked for."""
        run_in_background(self, self._begin, group="begin")

    async def _begin(self) -> None:
        """What is wrong with it stays there; the note about it passes."""
        try:
            await self._open(self._task_reference, self._ranks)
        except HaiError as error:
            self.refused(error)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)
            self.status(f"✗ {error.message}")

    def actions(self) -> Sequence[Action]:
        """Those of the log that has the keyboard."""
        one = len(self.panes) < 2
        return (
            Action("/", "search", "logs.search", self.ask_search),
            Action("n", "next-hit", "logs.next", lambda: self.go_to_hit(back=False)),
            Action(
                "N",
                "previous-hit",
                "logs.previous",
                lambda: self.go_to_hit(back=True),
                in_footer=False,
            ),
            Action("&", "only", "logs.only", self.ask_only),
            Action("r", "ranks", "logs.ranks", self._ask_ranks),
            Action("G,end", "end", "logs.end", self.go_to_end),
            Action("g,home", "top", "logs.top", self.go_to_top),
            Action("f", "follow", "logs.follow", self.follow, in_footer=False),
            Action("w", "wrap", "logs.wrap", self._each("wrap", LogPane.toggle_wrap)),
            Action("t", "times", "logs.times", self._each("times", LogPane.toggle_times)),
            Action(
                "]",
                "next-run",
                "logs.run.next",
                lambda: self.go_to_run(back=False),
                in_footer=False,
            ),
            Action(
                "[",
                "previous-run",
                "logs.run.previous",
                lambda: self.go_to_run(back=True),
                in_footer=False,
            ),
            Action("s", "save", "logs.save", self.ask_save),
            Action("p", "pager", "logs.pager", self.page_lines),
            Action("c", "copy", "logs.copy", self.copy_lines, in_footer=False),
            Action("d", "task", "logs.task", self._to_task, in_footer=False),
            Action("+", "add", "logs.add", self._ask_add, in_footer=False),
            Action("tab", "switch", "logs.switch", self._switch, in_footer=not one),
            Action("x", "close", "logs.close", self._close, in_footer=not one),
        )

    # What lines do.

    async def on_log_view_end(self, event: LogView.End) -> None:
        """The window ends here; the log may go on."""
        pane = next(p for p in self.panes if p.view is event.view)
        reader = pane.reader
        if reader is not None:
            self.report(reader.older if event.first else reader.newer, f"page-{id(pane)}")

    def on_log_pane_changed(self, event: LogPane.Changed) -> None:
        """Tell how much is held."""
        if event.pane is self.pane:
            self.update_status()

    def on_log_view_moved(self, event: LogView.Moved) -> None:
        """Another place, and perhaps not following any more."""
        for pane in self.panes:
            if pane.view is event.view:
                pane.update_heading()
        self.update_status()

    def on_descendant_focus(self) -> None:
        """Another log has the keyboard."""
        self.update_status()

    def page_resumed(self) -> None:
        """The task may have had another run meanwhile."""
        for pane in self.panes:
            self.report(partial(self._runs, pane))

    # Opening.

    async def _open(self, task: str, ranks: str) -> None:
        session = self.hai.session
        client = await session.client()
        chosen = formatting.ranks(ranks)
        id = await client.tasks.resolve(task)
        pane = LogPane(Source(id, chosen))
        await self.query_one("#content").mount(pane)
        if not self.query_one(Prompt).display:  # never out of a line that is being typed
            pane.view.focus()
        self._as_remembered(pane)
        await self._read(pane, client)
        if self._first_only:
            pane.set_only(self._first_only)
            self._first_only = ""
        self.refresh_frame()

    async def _read(self, pane: LogPane, client: Client) -> None:
        if pane.reader is not None:
            await pane.reader.close()
        session = self.hai.session
        pane.reader = Reader(
            client,
            session.link,
            pane.source,
            changed=pane.changed,
            following=lambda: pane.view.following,
            window=pane.window,
        )
        pane.update_heading()
        try:
            await session.call_with_retry(pane.reader.last)
            await self._runs(pane)
        except HaiError as error:
            pane.failed(error.message)
            raise

    async def _runs(self, pane: LogPane) -> None:
        session, id = self.hai.session, pane.source.task
        client = await session.client()
        task = await session.call_with_retry(lambda: client.tasks.get(id))
        runs = await session.call_with_retry(lambda: client.tasks.runs(id))
        if pane.is_ready:
            pane.task_name, pane.runs = task.name, runs
            pane.update_heading()
            pane.view.refresh()

    # Which lines.

    def _ask_ranks(self) -> None:
        if self.pane is not None:
            current = ",".join(map(str, self.pane.source.ranks)) or "all"
            hint = text("logs.ask.ranks.hint")
            self.ask_line(Question(text("logs.ask.ranks"), self._choose, current, hint))

    def _choose(self, query: str) -> None:
        pane = self.pane
        if pane is None:
            return
        try:
            ranks = formatting.ranks(query)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)
            return
        pane.source = Source(pane.source.task, ranks)
        pane.view.set_labels(pane.source.labelled)
        pane.view.following = True
        self.report(partial(self._reread, pane))

    async def _reread(self, pane: LogPane) -> None:
        await self._read(pane, await self.hai.session.client())

    def _each(self, name: str, change: Callable[[LogPane], None]) -> Callable[[], None]:
        """The same for every open log, and for those of another day."""

        def handler() -> None:
            for pane in self.panes:
                change(pane)
            self._remember(name, name not in self.hai.preferences.strings("logs"))

        return handler

    def _remember(self, name: str, enabled: bool) -> None:
        others = [each for each in self.hai.preferences.strings("logs") if each != name]
        self.hai.preferences.put("logs", [*others, name] if enabled else others)

    def _as_remembered(self, pane: LogPane) -> None:
        chosen = self.hai.preferences.strings("logs")
        if "wrap" in chosen:
            pane.toggle_wrap()
        if "times" in chosen:
            pane.toggle_times()

    # Several logs.

    def _ask_add(self) -> None:
        if len(self.panes) >= MOST_LOGS:
            self.hai.say(text("logs.too_many", most=MOST_LOGS), warning=True)
            return
        current = f"{self.pane.source.task} " if self.pane else ""
        hint = text("logs.ask.add.hint")
        self.ask_line(Question(text("logs.ask.add"), self._add, current, hint))

    def _add(self, query: str) -> None:
        task, _, ranks = query.strip().partition(" ")
        if task:
            self.report(partial(self._open, task, ranks.strip() or "all"))

    def _switch(self) -> None:
        panes, pane = self.panes, self.pane
        if pane is not None:
            panes[(panes.index(pane) + 1) % len(panes)].view.focus()

    async def _close(self) -> None:
        panes, pane = self.panes, self.pane
        if pane is None or len(panes) < 2:
            return
        if pane.reader is not None:
            await pane.reader.close()
        await pane.remove()
        self.panes[0].view.focus()
        self.refresh_frame()

    def _to_task(self) -> None:
        if self.pane is not None:
            self.hai.goto(f"task {self.pane.source.task}")
