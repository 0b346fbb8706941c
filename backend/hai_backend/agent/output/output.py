"""Reads standard output and error of the program from one pipe, splits them into lines, and spools them."""

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
_PIPE_BYTES = 1024 * 1024  # a busy agent shall not make the program wait


class Output:
    """`write_end` goes to the program; `ended` is set when nobody holds it any more. `prefix` begins every line.

    `show` is called with a progress bar as it is now, and with "" when it has become a line.
    """

    def __init__(
        self,
        spool: Spool,
        grown: Callable[[], None],
        prefix: str = "",
        show: Callable[[str], None] = lambda bar: None,
    ) -> None:
        self._spool = spool
        self._grown = grown
        self._show = show
        self._lines = LineSplitter(prefix)
        self._settling: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.last_output_at = time.monotonic()
        self.ended = asyncio.Event()
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        with suppress(OSError):  # over the user's share of pipe memory: the usual 64 KiB do too
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """The program was started (or never will be): our own copy of its end must go."""
        os.close(self.write_end)
        self.last_output_at = time.monotonic()

    def say(self, message: str) -> None:
        """A line of the platform, without credentials; the program may be in the middle of one."""
        line, now = f"[hai] {redact(message)}\n".encode(), time.time()
        self._keep(self._lines.flush(now) + self._lines.feed(line, now))

    def last_lines(self, count: int) -> str:
        return self._lines.last_lines(count)

    def close(self) -> None:
        """Take what is left in the pipe; whoever still holds its other end is not ours any more."""
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
        self._keep(self._lines.feed(data, time.time()))
        return True

    def _end(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        self._keep(self._lines.flush(time.time()))

    def _keep(self, lines: bytes) -> None:
        if lines:
            self._spool.append(lines)
            self._grown()
            self._show("")
        self._settle_later()

    def _settle_later(self) -> None:
        """Bars are shown and become lines at their time, also when the program prints nothing more."""
        if self._settling is not None:
            self._settling.cancel()
        seconds = self._lines.wait_seconds()
        self._settling = None if seconds is None else self._loop.call_later(seconds, self._settle)

    def _settle(self) -> None:
        now = time.time()
        self._keep(self._lines.settle(now))
        if (bar := self._lines.bar(now)) is not None:
            self._show(bar)
            self._settle_later()
