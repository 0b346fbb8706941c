"""One open log on a page: a heading, the lines, and the reader that loads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_REPAINT_SECONDS = 0.1
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

    def show(self, line: Text) -> None:
        self.line = line
        self.refresh()

    def render(self) -> Text:
        return self.line


class LogPane(Vertical):
    """A log of one task. The page sets `reader`; the pane posts `Changed` to the page."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane:focus-within _Heading { background: $primary 30%; }
    """

    class Changed(Message):
        """The lines of the log, or its state, have changed."""

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
        self.hit_count = 0  # lines of the window that match the search
        self._pending: list[Change | None] = []
        self.view = LogView(self.window, self._describe, labels=source.labelled)
        self._pending_changes = Debouncer(self._flush, _REPAINT_SECONDS, partial(later, self))

    def compose(self) -> ComposeResult:
        yield _Heading()
        yield self.view

    def on_mount(self) -> None:
        self.update_heading()

    async def on_unmount(self) -> None:
        """Close the stream of the reader."""
        if self.reader is not None:
            await self.reader.close()

    @property
    def is_ready(self) -> bool:
        """Return False once the pane closes part by part: answers of the server may arrive that late."""
        return self.is_mounted and bool(self.query(_Heading))

    @property
    def state(self) -> str:
        """Return loading, following, reading, more, ended or failed."""
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
        """Note a change of the window, and draw it soon, together with others. None means another part of the log."""
        self._pending.append(change)
        self._pending_changes.add(set())

    def failed(self, sentence: str) -> None:
        """Show why the log cannot be read."""
        assert self.reader is not None
        self.reader.error = sentence
        self.flush()

    def flush(self) -> None:
        """Draw all pending changes now."""
        self._flush(set())

    def search(self, query_text: str) -> None:
        """Mark the hits of a search, and count the lines of the window that have one."""
        search_pattern, self.search_text = compile_query(query_text), query_text
        self.view.search(search_pattern)
        self.hit_count = sum(map(matches(search_pattern), self.window)) if search_pattern else 0

    @property
    def search_pattern(self) -> SafeRegex | None:
        """Return the pattern of the search."""
        return self.view.search_pattern

    @property
    def slow_pattern_note(self) -> str:
        """Return a note if a pattern takes too long to match; else empty."""
        slow_patterns = (
            each for each in (self.search_pattern, self._only) if each and each.gave_up
        )
        return next((text("logs.slow", wanted=each.pattern) for each in slow_patterns), "")

    def set_only(self, query_text: str) -> None:
        """Show only lines that match a pattern; an empty one shows all lines."""
        self.only = query_text
        self._only = compile_query(query_text)
        self._set_line_format(only=matches(self._only) if self._only else None)

    def toggle_wrap(self) -> None:
        self.view.set_line_format(self.view.line_format, wraps=not self.view.wraps)

    def toggle_times(self) -> None:
        self._set_line_format(times=not self.view.line_format.times)

    async def go_to_end(self) -> None:
        """Show the end of the log, and follow it."""
        if self.reader is None:
            return
        self.view.following = True
        if not self.reader.attached:
            await self.reader.last()
        self.flush()
        self.view.to_end()

    async def go_to_top(self) -> None:
        """Show the beginning of the log; load it if the window does not have it."""
        if self.reader is None:
            return
        self.view.following = False
        if self.window.begin and await self.reader.older():
            await self.reader.first()
        self.flush()
        self.view.to_start()

    async def toggle_follow(self) -> None:
        """Switch following on or off."""
        if self.view.following:
            self.view.following = False
            self.update_heading()
        else:
            await self.go_to_end()

    async def go_to_run(self, *, back: bool) -> bool:
        """Show the first line of the next run, or of the one before; return False if there is none."""
        assert self.reader is not None
        line, rows = self._find_loaded_run(back=back), self.view.rows
        if line is None:
            top = rows[min(self.view.scroll_offset.y, len(rows) - 1)].line if rows else None
            number = top.run if top else 0
            test = (lambda x: x.run < number) if back else (lambda x: x.run > number)
            line = await self.reader.find(test, back=back)
            self.flush()
        if line is not None:
            self.view.show_line(line)
        return line is not None

    async def go_to_hit(
        self, pattern: SafeRegex, *, back: bool, on_progress: Callable[[int], None]
    ) -> bool:
        """Show the nearest line that matches, loaded or not; return False if there is none."""
        assert self.reader is not None
        if self.view.next_hit(back=back):
            return True
        if pattern.gave_up:
            return False
        line = await self.reader.find(matches(pattern), back=back, on_progress=on_progress)
        self.flush()
        if line is not None:
            self.view.show_hit(line)
        return line is not None

    def _find_loaded_run(self, *, back: bool) -> Line | None:
        rows, top = self.view.rows, self.view.scroll_offset.y
        indices = [
            i for i, row in enumerate(rows) if row.starts_run and (i < top if back else i > top)
        ]
        return rows[indices[-1 if back else 0]].line if indices else None

    def status_text(self) -> str:
        """Return the number of loaded lines, the position, the filter and the hits."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        position = f"{min(top + 1, len(rows)):,}"
        parts = [text("logs.status", lines=f"{len(self.window):,}", place=position)]
        if self.only:
            parts.append(text("logs.status.only", only=self.only))
        if note := self.slow_pattern_note:
            parts.append(note)
        elif self.search_pattern is not None:
            parts.append(
                text(
                    "logs.status.hits",
                    hits=f"{self.hit_count:,}",
                    wanted=self.search_pattern.pattern,
                )
            )
        return " · ".join(parts)

    def update_heading(self) -> None:
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
        heading.show(line)

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

    def _empty_text(self) -> str:
        if self.only and len(self.window):
            return text("logs.nothing.only", only=self.only)
        if self.state == "failed":
            return ""  # the heading says why the log cannot be read
        return text("loading" if self.state == "loading" else "logs.nothing")

    def _content_changed(self) -> None:
        self.view.empty = self._empty_text()
        self.update_heading()
        self.post_message(self.Changed(self))
