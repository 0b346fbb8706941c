"""Reads the standard output and error of the program from one pipe, splits them into lines, and spools the lines."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from hai.redaction import redact
from hai_backend.agent.output.line_splitter import LineSplitter
from hai_backend.agent.output.spool import Spool

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024  # so large that the program does not wait for a busy agent


class Output:
    """The output of one program, which writes to `write_end`. Every line begins with `prefix`.

    `ended` is set when no process has `write_end` open. `on_lines` is called after lines were spooled. `show_bar` is
    called with the text of a progress bar, and with "" when the bar has become a line.
    """

    def __init__(
        self,
        spool: Spool,
        on_lines: Callable[[], None],
        prefix: str = "",
        show_bar: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._spool = spool
        self._on_lines = on_lines
        self._show_bar = show_bar
        self._splitter = LineSplitter(prefix)
        self._bar_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.last_output_at = time.monotonic()
        self.ended = asyncio.Event()
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        with suppress(OSError):  # at the user's limit of pipe memory; 64 KiB suffice
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """Close the agent's copy of `write_end`. Call it when the program was started, or will not be started."""
        os.close(self.write_end)
        self.last_output_at = time.monotonic()

    def write_notice(self, message: str) -> None:
        """Write a message of the platform, without credentials. An incomplete line of the program ends before it."""
        line, now = f"[hai] {redact(message)}\n".encode(), time.time()
        self._spool_lines(self._splitter.flush(now) + self._splitter.feed(line, now))

    def last_lines(self, count: int) -> str:
        return self._splitter.last_lines(count)

    def close(self) -> None:
        """Read the bytes that the pipe still contains. Bytes that processes write to it later are lost."""
        while not self.ended.is_set() and self._read():
            pass
        self._end()

    def _read(self) -> bool:
        try:
            data = os.read(self._read_end, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self.last_output_at = time.monotonic()
        self._spool_lines(self._splitter.feed(data, time.time()))
        return True

    def _end(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        self._spool_lines(self._splitter.flush(time.time()))

    def _spool_lines(self, lines: bytes) -> None:
        if lines:
            self._spool.append(lines)
            self._on_lines()
            self._show_bar("")
        self._schedule_bars()

    def _schedule_bars(self) -> None:
        """Set a timer for `_update_bars`, because bars may finish even if the program prints nothing more."""
        if self._bar_timer is not None:
            self._bar_timer.cancel()
        seconds = self._splitter.wait_seconds()
        self._bar_timer = (
            None if seconds is None else self._loop.call_later(seconds, self._update_bars)
        )

    def _update_bars(self) -> None:
        now = time.time()
        self._spool_lines(self._splitter.take_finished_bars(now))
        if (bar := self._splitter.new_bar_text(now)) is not None:
            self._show_bar(bar)
            self._schedule_bars()
