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
from hai_tui.logs.runs import separator
from hai_tui.logs.search import matches, pattern
from hai_tui.logs.window import Change, Line, Window
from hai_tui.safe_regex import SafeRegex
from hai_tui.textual_compat import later
from hai_tui.theme import tones
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
        self.words = self.only = ""
        self._only: SafeRegex | None = None
        self.hits = 0  # lines of the window that had what is looked for
        self._pending: list[Change | None] = []
        self.view = LogView(self.window, self._describe, labels=source.labelled)
        self._soon = Debouncer(self._flush, REPAINT_SECONDS, partial(later, self))

    def compose(self) -> ComposeResult:
        """Heading and lines."""
        yield _Heading()
        yield self.view

    def on_mount(self) -> None:
        """Nothing is there yet."""
        self.head()

    async def on_unmount(self) -> None:
        """No stream stays open."""
        if self.reader is not None:
            await self.reader.close()

    @property
    def stands(self) -> bool:
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
        self._soon.add(set())

    def failed(self, told: str) -> None:
        """It can not be read, for this reason."""
        assert self.reader is not None
        self.reader.error = told
        self.flush()

    def flush(self) -> None:
        """Draw what has changed now."""
        self._flush(set())

    def search(self, words: str) -> None:
        """Mark what is wanted, and count the lines of the window that have it."""
        wanted, self.words = pattern(words), words
        self.view.search(wanted)
        self.hits = sum(map(matches(wanted), self.window)) if wanted else 0

    @property
    def wanted(self) -> SafeRegex | None:
        """What is looked for."""
        return self.view.wanted

    @property
    def slow(self) -> str:
        """That what is looked for, or what lines must have, takes too long; empty: it does not."""
        given_up = (each for each in (self.wanted, self._only) if each and each.gave_up)
        return next((text("logs.slow", wanted=each.pattern) for each in given_up), "")

    def set_only(self, words: str) -> None:
        """Show only lines with these words; empty: all."""
        self.only = words
        self._only = pattern(words)
        self._look(only=matches(self._only) if self._only else None)

    def toggle_wrap(self) -> None:
        """Fold long lines, or let them go on to the right."""
        self.view.set_look(self.view.look, wraps=not self.view.wraps)

    def toggle_times(self) -> None:
        """When each line came."""
        self._look(times=not self.view.look.times)

    def find_run(self, *, back: bool) -> Line | None:
        """The first line of the next run in the window, or of the one that is seen, or the one before it."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        places = [i for i, row in enumerate(rows) if row.begins and (i < top if back else i > top)]
        return rows[places[-1 if back else 0]].line if places else None

    @property
    def seen(self) -> Line | None:
        """The first line that is seen."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        return rows[min(top, len(rows) - 1)].line if rows else None

    def told(self) -> str:
        """How much is held, where one stands, what is looked for."""
        rows, top = self.view.rows, self.view.scroll_offset.y
        place = f"{min(top + 1, len(rows)):,}"
        parts = [text("logs.status", lines=f"{len(self.window):,}", place=place)]
        if self.only:
            parts.append(text("logs.status.only", only=self.only))
        if slow := self.slow:
            parts.append(slow)
        elif self.wanted is not None:
            parts.append(
                text("logs.status.hits", hits=f"{self.hits:,}", wanted=self.wanted.pattern)
            )
        return " · ".join(parts)

    def head(self) -> None:
        """Draw the heading again."""
        if not self.stands:
            return
        heading, ranks = self.query_one(_Heading), ",".join(map(str, self.source.ranks))
        kind = "all" if not self.source.ranks else "one" if len(self.source.ranks) == 1 else "some"
        shown = text(f"logs.{kind}", ranks=ranks)
        name = f"{printable(self.task_name)} " if self.task_name else ""
        line = Text(text("logs.head", id=self.source.task, name=name, ranks=shown), "bold")
        error = self.reader.error if self.reader else ""
        told = text(f"logs.state.{self.state}", error=error)
        line.append("  ").append(told, tones(self.app.current_theme)[_TONES[self.state]])
        heading.say(line)

    def _look(self, **options: object) -> None:
        self.view.set_look(replace(self.view.look, **options), wraps=self.view.wraps)  # type: ignore[arg-type]
        self._told()

    def _describe(self, run: int) -> str:
        return separator(self.runs, run)

    def _flush(self, _: set[int]) -> None:
        pending, self._pending = self._pending, []
        if not self.stands:
            return
        if None in pending:
            self.view.apply(None)
        elif pending:
            total = Change()
            for change in pending:
                total += change or Change()
            self.view.apply(total)
        self._told()

    def _empty(self) -> str:
        """What stands there instead of lines."""
        if self.only and len(self.window):
            return text("logs.nothing.only", only=self.only)
        if self.state == "failed":
            return ""  # the heading says why
        return text("loading" if self.state == "loading" else "logs.nothing")

    def _told(self) -> None:
        self.view.empty = self._empty()
        self.head()
        self.post_message(self.Changed(self))
