"""One open log on a page: a heading, its lines, and the reader that brings them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from hai_tui.feed.debouncer import Debouncer
from hai_tui.formatting.table import printable
from hai_tui.i18n import text
from hai_tui.logs.reader import Reader, Source
from hai_tui.logs.rows import separator
from hai_tui.logs.search import compile_query, matches
from hai_tui.logs.window import Change, Line, Window
from hai_tui.runtime.textual_compat import later
from hai_tui.safe_regex import SafeRegex
from hai_tui.style.theme import tones
from hai_tui.widgets.log.view import LogView

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Run

REPAINT_SECONDS = 0.1
_TONES = {
    "following": "good",
    "reading": "held",
    "more": "waits",
    "ended": "quiet",
    "failed": "bad",
    "loading": "busy",
}


class _Heading(Widget):
    DEFAULT_CSS = """
    _Heading { height: 1; background: $surface; padding: 0 1;
               text-wrap: nowrap; text-overflow: ellipsis; }
    """
    line = Text()

    def say(self, line: Text) -> None:
        """Show another line."""
        self.line = line
        self.refresh()

    def render(self) -> Text:
        """Cut to its line."""
        return self.line


class LogPane(Vertical):
    """A log of one task. The page gives it a reader; it tells the page by `Changed`."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane:focus-within _Heading { background: $primary 30%; }
    """

    class Changed(Message):
        """Other lines, or another state."""

        def __init__(self, pane: LogPane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, source: Source, name: str = "") -> None:
        super().__init__()
        self.source, self.task_name = source, name
        self.reader: Reader | None = None
        self.window = Window()
        self.runs: Sequence[Run] = ()
        self.search_text = self.only = ""
        self._only: SafeRegex | None = None
        self.hits = 0  # lines of the window that had what is looked for
        self._pending: list[Change | None] = []
        self.view = LogView(self.window, self._describe, labels=source.labelled)
        self._pending_changes = Debouncer(self._flush, REPAINT_SECONDS, partial(later, self))

    def compose(self) -> ComposeResult:
        """Heading and lines."""
        yield _Heading()
        yield self.view

    def on_mount(self) -> None:
        """Nothing is there yet."""
        self.update_heading()

    async def on_unmount(self) -> None:
        """No stream stays open."""
        if self.reader is not None:
            await self.reader.close()

    @property
    def is_ready(self) -> bool:
        """False from when it closes, part by part: answers may arrive that late."""
        return self.is_mounted and bool(self.query(_Heading))

    @property
    def state(self) -> str:
        """loading, following, reading, more, ended, failed."""
        reader = self.reader
        if reader is not None and reader.error:
            return "failed"
        if reader is None or not (reader.attached or self.window.end):
            return "loading"
        if not reader.attached:
            return "more"
        if reader.ended:
            return "ended"
        return "following" if self.view.following else "reading"

    def changed(self, change: Change | None) -> None:
        """The window is other than it was; drawn soon, several changes together."""
        self._pending.append(change)
        self._pending_changes.add(set())

    def failed(self, sentence: str) -> None:
        """It can not be read, for this reason."""
        assert self.reader is not None
        self.reader.error = sentence
        self.flush()

    def flush(self) -> None:
        """Draw what has changed now."""
        self._flush(set())

    def search(self, query_text: str) -> None:
        """Mark what is wanted, and count the lines of the window that have it."""
        search_pattern, self.search_text = compile_query(query_text), query_text
        self.view.search(search_pattern)
        self.hits = sum(map(matches(search_pattern), self.window)) if search_pattern else 0

    @property
    def search_pattern(self) -> SafeRegex | None:
        """What is looked for."""
        return self.view.search_pattern

    @property
    def slow(self) -> str:
        """That what is looked for, or what lines must have, takes too long; empty: it does not."""
        slow_patterns = (
            each for each in (self.search_pattern, self._only) if each and each.gave_up
        )
        return next((text("logs.slow", wanted=each.pattern) for each in slow_patterns), "")

    def set_only(self, query_text: str) -> None:
        """Show only lines with these words; empty: all."""
        self.only = query_text
        self._only = compile_query(query_text)
        self._set_line_format(only=matches(self._only) if self._only else None)

    def toggle_wrap(self) -> None:
        """Fold long lines, or let them go on to the right."""
        self.view.set_line_format(self.view.line_format, wraps=not self.view.wraps)

    def toggle_times(self) -> None:
        """When each line came."""
        self._set_line_format(times=not self.view.line_format.times)

    def find_run(self, *, back: bool) -> Line | None:
        """The first line of the next run in the window, or of the one that is seen, or the one before it."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        indices = [i for i, row in enumerate(rows) if row.begins and (i < top if back else i > top)]
        return rows[indices[-1 if back else 0]].line if indices else None

    @property
    def first_visible_line(self) -> Line | None:
        """The first line that is seen."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        return rows[min(top, len(rows) - 1)].line if rows else None

    def status_text(self) -> str:
        """How much is held, where one stands, what is looked for."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        position = f"{min(top + 1, len(rows)):,}"
        parts = [text("logs.status", lines=f"{len(self.window):,}", place=position)]
        if self.only:
            parts.append(text("logs.status.only", only=self.only))
        if slow := self.slow:
            parts.append(slow)
        elif self.search_pattern is not None:
            parts.append(
                text("logs.status.hits", hits=f"{self.hits:,}", wanted=self.search_pattern.pattern)
            )
        return " · ".join(parts)

    def update_heading(self) -> None:
        """Draw the heading again."""
        if not self.is_ready:
            return
        heading, ranks = self.query_one(_Heading), ",".join(map(str, self.source.ranks))
        kind = "all" if not self.source.ranks else "one" if len(self.source.ranks) == 1 else "some"
        rank_text = text(f"logs.{kind}", ranks=ranks)
        name = f"{printable(self.task_name)} " if self.task_name else ""
        line = Text(text("logs.head", id=self.source.task, name=name, ranks=rank_text), "bold")
        error = self.reader.error if self.reader else ""
        sentence = text(f"logs.state.{self.state}", error=error)
        line.append("  ").append(sentence, tones(self.app.current_theme)[_TONES[self.state]])
        heading.say(line)

    def _set_line_format(self, **options: object) -> None:
        self.view.set_line_format(replace(self.view.line_format, **options), wraps=self.view.wraps)  # type: ignore[arg-type]
        self._content_changed()

    def _describe(self, run: int) -> str:
        return separator(self.runs, run)

    def _flush(self, _: set[int]) -> None:
        pending, self._pending = self._pending, []
        if not self.is_ready:
            return
        if None in pending:
            self.view.apply(None)
        elif pending:
            total = Change()
            for change in pending:
                total += change or Change()
            self.view.apply(total)
        self._content_changed()

    def _empty(self) -> str:
        """What stands there instead of lines."""
        if self.only and len(self.window):
            return text("logs.nothing.only", only=self.only)
        if self.state == "failed":
            return ""  # the heading says why
        return text("loading" if self.state == "loading" else "logs.nothing")

    def _content_changed(self) -> None:
        self.view.empty = self._empty()
        self.update_heading()
        self.post_message(self.Changed(self))
