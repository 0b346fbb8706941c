"""Splits the output of a program into time-stamped lines. Pure; buffers only a few lines.

Normal lines pass unchanged. When a program begins to draw (a carriage return within a line, a cursor that moves up), a
Screen emulates it until its bars are finished, and returns each as one line.
"""

from __future__ import annotations

import codecs
import re

from hai_backend.agent.output.screen import Screen
from hai_backend.logs.lines import MAX_TEXT_BYTES, STAMP_BYTES, stamp

# A return before a newline means nothing; at the very end it must wait. Only the first of several is looked at, or a
# long row of them would take for ever.
_DRAWS = re.compile(rb"(?<!\r)\r+(?=[^\r\n])|\x1b\[(?:[0-9;]*[AF]|\?25l)")
_RETURNS = re.compile(rb"(?<!\r)\r+\n")
_TAIL_BYTES = 16 * 1024
_BAR_CHARS = 1000
_BAR_SECONDS = 1.0  # between two states of a bar that are shown


class LineSplitter:
    """`feed` answers complete lines in the log's format; what is not complete waits for the next piece."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix.encode()  # before the text of every line
        self._incomplete = b""
        self._tail = b""
        self._last = 0.0  # stamp
        self._now: float | None = None
        self._age = 0.0  # seconds since the first call, by a clock that is never set back
        self._screen: Screen | None = None  # while bars are drawn
        self._decoder = _decoder()
        self._bar = ""  # as it was shown last
        self._bar_at = 0.0

    def feed(self, data: bytes, now: float) -> bytes:
        """Lines that `data` completes, read at `now`. Stamps never decrease, so that readers may bisect."""
        self._advance(now)
        if self._screen is None:
            lines = self._split(data)
        else:
            self._screen.feed(self._decoder.decode(data), self._age)
            lines = self._finished(self._screen)
        return self._stamped(lines)

    def settle(self, now: float) -> bytes:
        """Bars that the program has left, as far as time tells."""
        self._advance(now)
        return self._stamped(self._finished(self._screen)) if self._screen else b""

    def flush(self, now: float) -> bytes:
        """What is left when the output has ended, as last lines."""
        self._advance(now)
        last, self._incomplete = self._incomplete, b""
        last = last.rstrip(b"\r")
        lines = [last] if last else []
        if self._screen is not None:
            self._screen.feed(self._decoder.decode(b"", True), self._age)
            lines = list(map(_encoded, self._screen.end()))
            self._screen = None
        return self._stamped(lines)

    def bar(self, now: float) -> str | None:
        """The state of a bar that shall be shown now; None: there is none, or it is too early, or nothing is new."""
        self._advance(now)
        if self._screen is None or self._age < self._bar_at + _BAR_SECONDS:
            return None
        text = self._screen.bar[:_BAR_CHARS]
        if not text or text == self._bar:
            return None
        self._bar, self._bar_at = text, self._age
        return self._prefix.decode() + _encoded(text).decode("utf-8", "replace")

    def wait_seconds(self) -> float | None:
        """After which to call `settle` and `bar` though nothing was printed; None: not before the next piece."""
        if self._screen is None:
            return None
        new = self._screen.bar[:_BAR_CHARS] not in ("", self._bar)
        times = (self._bar_at + _BAR_SECONDS if new else None, self._screen.next_at)
        return min((max(0.0, at - self._age) for at in times if at is not None), default=None)

    def last_lines(self, count: int) -> str:
        """The newest lines without their stamps, for a person who asks why the program failed."""
        lines = self._tail.split(b"\n")[:-1]
        texts = (line[STAMP_BYTES:].rstrip(b"\r") for line in lines[-count:])
        return b"\n".join(texts).decode("utf-8", "replace")

    def _advance(self, now: float) -> None:
        self._age += max(0.0, now - (now if self._now is None else self._now))
        self._now = now
        self._last = max(self._last, now)

    def _split(self, data: bytes) -> list[bytes]:
        data, drawn = self._incomplete + data, b""
        if b"\r" in data or b"\x1b" in data:
            data, drawn = _until_drawn(data)
        *lines, self._incomplete = data.split(b"\n")
        if self._incomplete.endswith(b"\r\r"):
            self._incomplete = self._incomplete.rstrip(b"\r") + b"\r"
        *pieces, self._incomplete = _pieces(self._incomplete)
        lines += pieces
        if drawn:
            self._screen, self._decoder = Screen(self._age), _decoder()
            self._bar, self._bar_at = "", self._age
            self._screen.feed(self._decoder.decode(drawn), self._age)
            lines += self._finished(self._screen)
        return lines

    def _finished(self, screen: Screen) -> list[bytes]:
        lines = list(map(_encoded, screen.finished_lines(self._age)))
        if screen.closed:
            self._screen = None
            lines += self._split(_encoded(screen.current_row) + self._decoder.getstate()[0])
        return lines

    def _stamped(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        head = stamp(self._last) + self._prefix
        out = b"".join(head + piece + b"\n" for line in lines for piece in _pieces(line))
        self._tail = (self._tail + out)[-_TAIL_BYTES:]
        self._tail = (
            self._tail[self._tail.find(b"\n") + 1 :]
            if len(self._tail) == _TAIL_BYTES
            else self._tail
        )
        return out


def _until_drawn(data: bytes) -> tuple[bytes, bytes]:
    """Ordinary lines, each ended by a newline alone, and what follows from the line on in which a program draws."""
    draws = _DRAWS.search(data)
    begin = len(data) if draws is None else data.rfind(b"\n", 0, draws.start()) + 1
    return _RETURNS.sub(b"\n", data[:begin]), data[begin:]


def _decoder() -> codecs.IncrementalDecoder:
    """Of UTF-8; bytes that are none come out again as they were."""
    return codecs.getincrementaldecoder("utf-8")("surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _pieces(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > MAX_TEXT_BYTES + 1:
        cut = _cut(line)
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def _cut(line: bytes) -> int:
    """Where to cut a line that is too long: not within a character, if it is UTF-8."""
    for cut in range(MAX_TEXT_BYTES, MAX_TEXT_BYTES - 4, -1):
        if line[cut] & 0xC0 != 0x80:
            return cut
    return MAX_TEXT_BYTES
