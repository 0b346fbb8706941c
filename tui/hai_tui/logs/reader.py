"""Reads the log of one task into a window: follows its end, loads older and newer pages, searches beyond the window.

The reader has at most one stream. While the user reads further up and the window is full, it closes the stream
(`attached` is False). When the user comes back down, it reads the missing lines by cursor, so no line is lost or
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai.client.errors import UsageError
from hai_tui.feed.connection_state import Link
from hai_tui.i18n import text
from hai_tui.logs.search import Test, compile_query, matches
from hai_tui.logs.window import Change, Line, Window

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.log_service_pb2 import LogLine, TailLogsResponse


@dataclass(frozen=True, slots=True)
class Source:
    """The lines to read: those of a task, of some ranks (empty means all), of one run (0 means all)."""

    task: int
    ranks: tuple[int, ...] = ()
    run: int = 0

    @property
    def arguments(self) -> str:
        """What the user types after `:logs` for this source."""
        return " ".join((str(self.task), ",".join(map(str, self.ranks)))).rstrip()

    @property
    def labelled(self) -> bool:
        """True if lines of several ranks may be mixed."""
        return len(self.ranks) != 1


def lines_of(messages: Iterable[LogLine]) -> list[Line]:
    """Convert messages to lines."""
    return [
        Line(m.run, m.rank, m.time.seconds + m.time.nanos / 1e9, m.text, m.redraw) for m in messages
    ]


class Reader:
    """Reads one source. `changed` receives each change of the window, or None after it was replaced."""

    def __init__(
        self,
        client: Client,
        link: Link,
        source: Source,
        *,
        changed: Callable[[Change | None], None],
        following: Callable[[], bool],
        window: Window | None = None,
    ) -> None:
        self._client, self._link, self.source = client, link, source
        self._changed, self._following = changed, following
        self.window = Window() if window is None else window
        self.attached = False  # the stream is open
        self.ended = False  # the task has ended and everything was read
        self.error = ""  # why the stream ended
        self._job: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def last(self) -> None:
        """Show the end of the log and follow it."""
        async with self._lock:
            self._detach()
            page = await self._page("")
            self._show(lines_of(page.lines), page.begin, page.cursor)
            self._attach()

    async def first(self) -> None:
        """Show the beginning of the log."""
        async with self._lock:
            self._detach()
            page = await self._page("", back=False)
            self._show(lines_of(page.lines), "", page.cursor)

    async def older(self) -> bool:
        """Load a page before the window. Return False if there is none."""
        async with self._lock:
            if not self.window.begin:
                return False
            page = await self._page(self.window.begin)
            if not page.lines:
                return False
            change = self.window.prepend(lines_of(page.lines), page.begin)
            if change.dropped_after:
                self._detach()
            self._changed(change)
            return True

    async def newer(self) -> bool:
        """Load a page after the window. Return False if there is none; the stream then continues from here."""
        async with self._lock:
            if self.attached or not self.window.end:
                return False
            page = await self._page(self.window.end, back=False)
            if page.lines:
                self._changed(self.window.append(lines_of(page.lines), page.cursor))
                return True
            self._attach()
            return False

    async def find(
        self, test: Test, *, back: bool, on_progress: Callable[[int], None] = lambda lines: None
    ) -> Line | None:
        """Search the nearest matching line beyond the window and move the window there."""
        async with self._lock:
            cursor, lines_read = (self.window.begin if back else self.window.end), 0
            while cursor:
                page = await self._page(cursor, back=back)
                lines = lines_of(page.lines)
                if not lines:
                    return None
                hits = [line for line in lines if test(line)]
                if hits:
                    self._detach()
                    self._show(lines, page.begin if back else cursor, page.cursor)
                    return hits[-1 if back else 0]
                cursor, lines_read = (page.begin if back else page.cursor), lines_read + len(lines)
                on_progress(lines_read)
            return None

    async def everything(self) -> AsyncGenerator[list[Line], None]:
        """Yield the whole log as it is now, page by page."""
        source = self.source
        stream = self._client.logs.tail(source.task, ranks=source.ranks, run=source.run)
        async for answer in stream:
            yield lines_of(answer.lines)

    async def close(self) -> None:
        """Close the stream."""
        job = self._job
        self._detach()
        if job is not None:
            await asyncio.gather(job, return_exceptions=True)

    async def _page(self, cursor: str, *, back: bool = True) -> TailLogsResponse:
        source = self.source
        return await self._client.logs.page(
            source.task, cursor, ranks=source.ranks, run=source.run, back=back
        )

    def _show(self, lines: Sequence[Line], begin: str, end: str) -> None:
        self.window.clear()
        self.window.append(lines, end, begin)
        self._changed(None)

    def _attach(self) -> None:
        self.attached = True
        self._job = asyncio.ensure_future(self._follow())

    def _detach(self) -> None:
        self.attached = False
        if self._job is not None:
            self._job.cancel()
            self._job = None

    async def _follow(self) -> None:
        from hai.client.errors import HaiError
        from hai_tui.feed.reconnecting_stream import ReconnectingStream

        def reopen() -> AsyncGenerator[TailLogsResponse, None]:
            source, cursor = self.source, self.window.end
            return self._client.logs.tail(
                source.task,
                ranks=source.ranks,
                run=source.run,
                cursor=cursor,
                follow=True,
                patience=0.0,
            )

        try:
            with cancelled_only_from_outside("the log"):
                await ReconnectingStream(self._link, reopen, self._take).run()
            self.ended = True
        except HaiError as error:
            # The task is gone, or the caller may no longer see it. Retrying would not help.
            self.error = error.message
        except Exception as error:  # a bug of ours must be shown, because no more lines come
            self.error = f"internal error: {error!r}"
        self._changed(Change())

    def _take(self, answer: TailLogsResponse) -> None:
        if self.window.full and not self._following():
            self._detach()
            self._changed(Change())
        elif answer.lines:
            self._changed(self.window.append(lines_of(answer.lines), answer.cursor))


async def write(
    reader: Reader,
    path: Path,
    *,
    only: str,
    format_line: Callable[[Line], str],
    on_progress: Callable[[int], None],
) -> int:
    """Write the log as it is now, or only the lines that match, without holding all of it in memory.

    Return the number of lines. Raise OSError, and UsageError for a pattern that takes too long.
    """
    count, pattern = 0, compile_query(only)
    test = matches(pattern) if pattern else None
    with await asyncio.to_thread(path.open, "w", encoding="utf-8") as file:
        async for lines in reader.everything():
            selected = [format_line(x) + "\n" for x in lines if test is None or test(x)]
            await asyncio.to_thread(file.writelines, selected)
            count += len(selected)
            on_progress(count)
    if pattern is not None and pattern.gave_up:
        raise UsageError(text("logs.slow", wanted=only))
    return count
