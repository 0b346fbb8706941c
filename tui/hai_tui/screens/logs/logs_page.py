"""The page of logs, one below the other: live, searched, filtered, saved.

`:logs 12`, `:logs 12 0-3` (ranks) and `:logs train` (the name of a task) open it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from textual.containers import Vertical
from textual.widget import Widget

from hai.client.errors import HaiError
from hai_tui.actions import Action
from hai_tui.formatting import values as formatting
from hai_tui.i18n import text
from hai_tui.logs.reader import Reader, Source
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.logs.files import save_log, show_in_pager
from hai_tui.screens.page import Page
from hai_tui.widgets.dialogs.prompt import Prompt, Question
from hai_tui.widgets.log.pane import LogPane
from hai_tui.widgets.log.view import LogView

if TYPE_CHECKING:
    from hai.client.client import Client

MAX_LOGS = 5
_HISTORY_LENGTH = 50
Result = TypeVar("Result")


class LogsPage(Page):
    """A page that is opened with a task, its ranks (all, 0, 0-3,7), and a pattern that lines must contain."""

    DEFAULT_CSS = "LogsPage Vertical#content { height: 1fr; }"

    def __init__(self, task: str = "", ranks: str = "all", *only: str) -> None:
        super().__init__()
        self._task_reference, self._ranks, self._initial_only = task, ranks, " ".join(only)
        self._search_history: tuple[str, ...] = ()  # the newest first

    def content(self) -> Widget:
        return Vertical()

    @property
    def panes(self) -> list[LogPane]:
        """Return the open logs."""
        return list(self.query(LogPane))

    @property
    def pane(self) -> LogPane | None:
        """Return the log that has the keyboard, else the first one."""
        return next((p for p in self.panes if p.has_focus_within), next(iter(self.panes), None))

    def title_text(self) -> str:
        """Return the title with the logs that are open now."""
        names = " + ".join(pane.source.arguments for pane in self.panes)
        return f"{self.entry.title} {names}" if names else super().title_text()

    def accepts_arguments(self, arguments: Sequence[str]) -> bool:
        """Return True if one of the open logs is requested; give that log the keyboard."""
        matching = next((p for p in self.panes if p.source.arguments == " ".join(arguments)), None)
        if matching is None:
            return (not self.panes or len(arguments) > 2) and super().accepts_arguments(arguments)
        matching.view.focus()
        return True

    def opened(self) -> None:
        run_in_background(self, self._open_first, group="begin")

    async def _open_first(self) -> None:
        """Open the requested log. An error stays in the status line, because the notification disappears."""
        try:
            await self._open(self._task_reference, self._ranks)
        except HaiError as error:
            self.refused(error)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)
            self.status(f"✗ {error.message}")

    def actions(self) -> Sequence[Action]:
        several = len(self.panes) > 1
        return (
            Action("/", "search", "logs.search", self._ask_search),
            Action("n", "next-hit", "logs.next", partial(self._go_to_hit, back=False)),
            self._hidden("N", "previous-hit", "previous", partial(self._go_to_hit, back=True)),
            Action("&", "only", "logs.only", self._ask_only),
            Action("r", "ranks", "logs.ranks", self._ask_ranks),
            Action("G,end", "end", "logs.end", lambda: self._on_pane(LogPane.go_to_end)),
            Action("g,home", "top", "logs.top", lambda: self._on_pane(LogPane.go_to_top)),
            self._hidden("f", "follow", "follow", lambda: self._on_pane(LogPane.toggle_follow)),
            Action("w", "wrap", "logs.wrap", partial(self._toggle, "wrap", LogPane.toggle_wrap)),
            Action(
                "t", "times", "logs.times", partial(self._toggle, "times", LogPane.toggle_times)
            ),
            self._hidden("]", "next-run", "run.next", partial(self._go_to_run, back=False)),
            self._hidden("[", "previous-run", "run.previous", partial(self._go_to_run, back=True)),
            Action("s", "save", "logs.save", self._ask_save),
            Action("p", "pager", "logs.pager", self._show_in_pager),
            self._hidden("c", "copy", "copy", self._copy_lines),
            self._hidden("d", "task", "task", self._open_task),
            self._hidden("+", "add", "add", self._ask_add),
            Action("tab", "switch", "logs.switch", self._switch, in_footer=several),
            Action("x", "close", "logs.close", self._close, in_footer=several),
        )

    def _hidden(
        self, key: str, name: str, label: str, handler: Callable[[], Awaitable[None] | None]
    ) -> Action:
        """Return an action that the footer does not list."""
        return Action(key, name, f"logs.{label}", handler, in_footer=False)

    def _on_pane(self, action: Callable[[LogPane], Result]) -> Result | None:
        return action(self.pane) if self.pane is not None else None

    def report(self, work: Callable[[], Awaitable[object]], group: str = "actions") -> None:
        """Run the work in the background; show its error as a notification."""
        run_in_background(self, partial(self._run_and_report, work), group=group)

    async def _run_and_report(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except HaiError as error:
            self.hai.fail(error)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)

    def update_status(self) -> None:
        """Show the status of the log that has the keyboard."""
        if self.pane is not None:
            self.status(self.pane.status_text())

    # Events of the logs.

    async def on_log_view_end(self, event: LogView.End) -> None:
        """Load more lines when the user scrolls beyond the loaded ones."""
        pane = next(p for p in self.panes if p.view is event.view)
        reader = pane.reader
        if reader is not None:
            self.report(reader.older if event.first else reader.newer, f"page-{id(pane)}")

    def on_log_pane_changed(self, event: LogPane.Changed) -> None:
        if event.pane is self.pane:
            self.update_status()

    def on_log_view_moved(self, event: LogView.Moved) -> None:
        """Update the heading, which says whether the log is followed, and the status line."""
        for pane in self.panes:
            if pane.view is event.view:
                pane.update_heading()
        self.update_status()

    def on_descendant_focus(self) -> None:
        self.update_status()

    def page_resumed(self) -> None:
        """Load the runs again: the task may have had another run meanwhile."""
        for pane in self.panes:
            self.report(partial(self._load_runs, pane))

    # Opening and closing logs.

    async def _open(self, task: str, ranks: str) -> None:
        chosen_ranks, client = formatting.ranks(ranks), await self.hai.session.client()
        pane = LogPane(Source(await client.tasks.resolve(task), chosen_ranks))
        await self.query_one("#content").mount(pane)
        if not self.query_one(
            Prompt
        ).display:  # a user who types into the prompt keeps the keyboard
            pane.view.focus()
        stored = self.hai.preferences.strings("logs")
        if "wrap" in stored:
            pane.toggle_wrap()
        if "times" in stored:
            pane.toggle_times()
        await self._read(pane, client)
        if self._initial_only:
            pane.set_only(self._initial_only)
            self._initial_only = ""
        self.refresh_frame()

    async def _read(self, pane: LogPane, client: Client) -> None:
        """Give the pane a reader for its source, and load the end of the log."""
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
            await self._load_runs(pane)
        except HaiError as error:
            pane.failed(error.message)
            raise

    async def _load_runs(self, pane: LogPane) -> None:
        session, id = self.hai.session, pane.source.task
        client = await session.client()
        task = await session.call_with_retry(lambda: client.tasks.get(id))
        runs = await session.call_with_retry(lambda: client.tasks.runs(id))
        if pane.is_ready:
            pane.task_name, pane.runs = task.name, runs
            pane.update_heading()
            pane.view.refresh()

    def _ask_add(self) -> None:
        if len(self.panes) >= MAX_LOGS:
            self.hai.say(text("logs.too_many", most=MAX_LOGS), warning=True)
            return
        current = f"{self.pane.source.task} " if self.pane else ""
        hint = text("logs.ask.add.hint")
        self.ask_line(Question(text("logs.ask.add"), self._add, current, hint))

    def _add(self, arguments: str) -> None:
        task, _, ranks = arguments.strip().partition(" ")
        if task:
            self.report(partial(self._open, task, ranks.strip() or "all"))

    def _switch(self) -> None:
        """Give the keyboard to the next log."""
        panes, pane = self.panes, self.pane
        if pane is not None:
            panes[(panes.index(pane) + 1) % len(panes)].view.focus()

    async def _close(self) -> None:
        pane = self.pane
        if pane is None or len(self.panes) < 2:
            return
        if pane.reader is not None:
            await pane.reader.close()
        await pane.remove()
        self.panes[0].view.focus()
        self.refresh_frame()

    def _open_task(self) -> None:
        if self.pane is not None:
            self.hai.goto(f"task {self.pane.source.task}")

    # What a log shows.

    def _ask_ranks(self) -> None:
        if self.pane is not None:
            current = ",".join(map(str, self.pane.source.ranks)) or "all"
            hint = text("logs.ask.ranks.hint")
            self.ask_line(Question(text("logs.ask.ranks"), self._set_ranks, current, hint))

    def _set_ranks(self, ranks_text: str) -> None:
        pane = self.pane
        if pane is None:
            return
        try:
            ranks = formatting.ranks(ranks_text)
        except click.BadParameter as error:
            self.hai.say(error.message, warning=True)
            return
        pane.source = Source(pane.source.task, ranks)
        pane.view.set_labels(pane.source.labelled)
        pane.view.following = True
        self.report(partial(self._reread, pane))

    async def _reread(self, pane: LogPane) -> None:
        await self._read(pane, await self.hai.session.client())

    def _toggle(self, option: str, toggle: Callable[[LogPane], None]) -> None:
        """Toggle a display option of every open log, and store it for logs that are opened later."""
        for pane in self.panes:
            toggle(pane)
        stored = self.hai.preferences.strings("logs")
        others = [each for each in stored if each != option]
        self.hai.preferences.put("logs", others if option in stored else [*others, option])

    def _ask_only(self) -> None:
        if self.pane is None:
            return
        before, change = self.pane.only, self._set_only
        label = text("logs.ask.only")
        self.ask_line(
            Question(label, change, before, changed=change, cancelled=lambda: change(before))
        )

    def _set_only(self, pattern: str) -> None:
        if self.pane is not None:
            self.pane.set_only(pattern)
            self.update_status()

    # Searching and moving.

    def _ask_search(self) -> None:
        """Ask for the text to search; mark its hits while the user types."""
        before = self.pane.search_text if self.pane is not None else ""
        question = Question(
            text("logs.ask.search"),
            self._search,
            changed=self._mark_hits,
            cancelled=lambda: self._mark_hits(before),
            history=self._search_history,
        )
        self.ask_line(question)

    def _mark_hits(self, pattern: str) -> None:
        if self.pane is not None:
            self.pane.search(pattern)
            self.update_status()

    def _search(self, pattern: str) -> None:
        self._mark_hits(pattern)
        if pattern:
            earlier = (each for each in self._search_history if each != pattern)
            self._search_history = (pattern, *earlier)[:_HISTORY_LENGTH]
            at_end = self.pane is not None and self.pane.view.following
            self.report(partial(self._go_to_hit, back=at_end))

    async def _go_to_hit(self, *, back: bool) -> None:
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        if (pattern := pane.search_pattern) is None:
            self.hai.say(text("logs.no_words"))
            return

        def on_progress(lines: int) -> None:
            self.status(text("logs.looking", wanted=pattern.pattern, lines=f"{lines:,}"))

        found = await pane.go_to_hit(pattern, back=back, on_progress=on_progress)
        self.update_status()
        if not found and not pattern.gave_up:
            direction = "above" if back else "below"
            self.hai.say(text(f"logs.no_more_hits.{direction}", wanted=pattern.pattern))

    async def _go_to_run(self, *, back: bool) -> None:
        pane = self.pane
        if pane is not None and pane.reader is not None and not await pane.go_to_run(back=back):
            self.hai.say(text("logs.no_run"))

    # Copies.

    def _copy_lines(self) -> None:
        """Copy the visible lines to the clipboard."""
        if self.pane is not None:
            self.app.copy_to_clipboard(self.pane.view.visible_text())
            self.hai.say(text("said.copied", what=text("logs.copy")))

    def _ask_save(self) -> None:
        if self.pane is not None:
            path = f"task-{self.pane.source.task}.log"
            self.ask_line(Question(text("logs.ask.save"), self._save, path))

    def _save(self, name: str) -> None:
        if name.strip() and self.pane is not None:
            path = Path(os.path.expanduser(name.strip()))
            self.report(partial(self._save_to, self.pane, path))

    async def _save_to(self, pane: LogPane, path: Path) -> None:
        await save_log(self, pane, path)
        self.update_status()

    async def _show_in_pager(self) -> None:
        if self.pane is not None:
            await show_in_pager(self, self.pane)
            self.update_status()
