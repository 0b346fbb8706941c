"""The program's standard output and error, one pipe: read whenever something is there, cut into lines, spooled."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from hai.redaction import redact
from hai_backend.agent.line_splitter import LineSplitter
from hai_backend.agent.spool import Spool

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024  # a busy agent shall not make the program wait


class Output:
    """`write_end` goes to the program; `ended` is set when nobody holds it any more. `prefix` begins every line."""

    def __init__(self, spool: Spool, grown: Callable[[], None], prefix: str = "") -> None:
        self._spool = spool
        self._grown = grown
        self._lines = LineSplitter(prefix)
        self._loop = asyncio.get_running_loop()
        self.heard_at = time.monotonic()
        self.ended = asyncio.Event()
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        with suppress(OSError):  # over the user's share of pipe memory: the usual 64 KiB do too
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop.add_reader(self._read_end, self._read)

    def program_has_it(self) -> None:
        """The program was started (or never will be): our own copy of its end must go."""
        os.close(self.write_end)
        self.heard_at = time.monotonic()

    def say(self, message: str) -> None:
        """A line of the platform among the program's, without credentials."""
        self._keep(self._lines.feed(f"[hai] {redact(message)}\n".encode(), time.time()))

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
        self.heard_at = time.monotonic()
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
