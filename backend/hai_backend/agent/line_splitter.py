"""Turns what a program prints into stamped lines, whatever it prints: pure, and never holds more than one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hai_backend.logs.lines import MAX_TEXT_BYTES, STAMP_BYTES, stamp

# A carriage return ends a line that is redrawn; before a newline it means nothing; at the very end it must wait. Only
# the first of several is looked at, or a long row of them would take for ever.
_END = re.compile(rb"(?<!\r)(?:\r*\n|\r+(?=[^\r\n]))")
_KEPT_TAIL_BYTES = 16 * 1024


class LineSplitter:
    """`feed` answers complete lines in the log's format; what is not complete waits for the next piece."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix.encode()  # before the text of every line
        self._rest = b""
        self._tail = b""
        self._last = 0.0

    def feed(self, data: bytes, now: float) -> bytes:
        """Lines that `data` completes, read at `now`. Stamps never decrease, so that readers may bisect."""
        self._last = max(self._last, now)
        *whole, self._rest = self._split(self._rest + data)
        while len(self._rest) > MAX_TEXT_BYTES + 1:
            cut = _cut(self._rest)
            whole.append(self._rest[:cut])
            self._rest = self._rest[cut:]
        return self._stamped(whole)

    def flush(self, now: float) -> bytes:
        """What is left when the output has ended, as a last line."""
        rest, self._rest = self._rest, b""
        self._last = max(self._last, now)
        return self._stamped([rest]) if rest.rstrip(b"\r") else b""

    def last_lines(self, count: int) -> str:
        """The newest lines without their stamps, for a person who asks why the program failed."""
        lines = self._tail.split(b"\n")[:-1]
        texts = (line[STAMP_BYTES:].rstrip(b"\r") for line in lines[-count:])
        return b"\n".join(texts).decode("utf-8", "replace")

    def _split(self, data: bytes) -> list[bytes]:
        if b"\r" not in data:
            return data.split(b"\n")
        return list(_redrawn(data))

    def _stamped(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        head = stamp(self._last) + self._prefix
        out = b"".join(head + piece + b"\n" for line in lines for piece in _pieces(line))
        self._tail = (self._tail + out)[-_KEPT_TAIL_BYTES:]
        self._tail = (
            self._tail[self._tail.find(b"\n") + 1 :]
            if len(self._tail) == _KEPT_TAIL_BYTES
            else self._tail
        )
        return out


def _redrawn(data: bytes) -> Iterator[bytes]:
    begin = 0
    for end in _END.finditer(data):
        text = data[begin : end.start()]
        begin = end.end()
        if end.group().endswith(b"\n"):
            yield text
        elif text:  # a return at the beginning of a line does nothing
            yield text + b"\r"
    yield data[begin:]


def _pieces(line: bytes) -> Iterator[bytes]:
    while len(line) > MAX_TEXT_BYTES + 1:
        cut = _cut(line)
        yield line[:cut]
        line = line[cut:]
    yield line


def _cut(line: bytes) -> int:
    """Where to cut a line that is too long: not within a character, if it is UTF-8."""
    for cut in range(MAX_TEXT_BYTES, MAX_TEXT_BYTES - 4, -1):
        if line[cut] & 0xC0 != 0x80:
            return cut
    return MAX_TEXT_BYTES
