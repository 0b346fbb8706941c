"""Splits the output of a program into lines with time stamps. Pure. It buffers only a few lines.

Ordinary lines are not changed. A program begins to draw a progress bar when it prints a carriage return within a line
or moves the cursor up. Then a Screen emulates the terminal until all bars are finished. Each bar becomes one line.
"""

from __future__ import annotations

import codecs
import re

from hai_backend.agent.output.screen import Screen
from hai_backend.logs.lines import MAX_TEXT_BYTES, STAMP_BYTES, stamp

# A carriage return before a newline has no effect. One at the end of the data is kept until the next byte is read. The
# lookbehind lets only the first of several returns match, because matches at all of them would take quadratic time.
_DRAWING = re.compile(rb"(?<!\r)\r+(?=[^\r\n])|\x1b\[(?:[0-9;]*[AF]|\?25l)")
_RETURNS = re.compile(rb"(?<!\r)\r+\n")
_TAIL_BYTES = 16 * 1024
_BAR_CHARS = 1000
_BAR_SECONDS = 1.0  # least time between two shown states of a bar


class LineSplitter:
    """Splits one output, which it gets in pieces, into lines in the format of the log."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix.encode()  # begins the text of every line
        self._incomplete = b""
        self._tail = b""
        self._last_stamp = 0.0
        self._now: float | None = None
        self._elapsed = 0.0  # seconds since the first call, by a clock that is never set back
        self._screen: Screen | None = None  # not None while the program draws bars
        self._decoder = _make_decoder()
        self._shown_bar = ""
        self._bar_shown_at = 0.0

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the lines that `data`, read at `now`, completes. Stamps never decrease, so that readers may bisect."""
        self._advance(now)
        if self._screen is None:
            lines = self._split(data)
        else:
            self._screen.feed(self._decoder.decode(data), self._elapsed)
            lines = self._take_finished(self._screen)
        return self._stamp(lines)

    def take_finished_bars(self, now: float) -> bytes:
        """Return lines for bars that count as finished, because the program has not changed them for some time."""
        self._advance(now)
        return self._stamp(self._take_finished(self._screen)) if self._screen else b""

    def flush(self, now: float) -> bytes:
        """Return the remaining text as lines, because the output has ended."""
        self._advance(now)
        last, self._incomplete = self._incomplete, b""
        last = last.rstrip(b"\r")
        lines = [last] if last else []
        if self._screen is not None:
            self._screen.feed(self._decoder.decode(b"", True), self._elapsed)
            lines = list(map(_encode, self._screen.end()))
            self._screen = None
        return self._stamp(lines)

    def new_bar_text(self, now: float) -> str | None:
        """Return the text of the bar to show now.

        None if there is no bar, its text has not changed, or a bar was shown less than `_BAR_SECONDS` ago.
        """
        self._advance(now)
        if self._screen is None or self._elapsed < self._bar_shown_at + _BAR_SECONDS:
            return None
        text = self._screen.bar[:_BAR_CHARS]
        if not text or text == self._shown_bar:
            return None
        self._shown_bar, self._bar_shown_at = text, self._elapsed
        return self._prefix.decode() + _encode(text).decode("utf-8", "replace")

    def wait_seconds(self) -> float | None:
        """Return the seconds until `take_finished_bars` and `new_bar_text` must be called; None to wait for output."""
        if self._screen is None:
            return None
        has_new_bar = self._screen.bar[:_BAR_CHARS] not in ("", self._shown_bar)
        show_at = self._bar_shown_at + _BAR_SECONDS if has_new_bar else None
        times = [at for at in (show_at, self._screen.next_finished_at) if at is not None]
        return max(0.0, min(times) - self._elapsed) if times else None

    def last_lines(self, count: int) -> str:
        """Return the last `count` lines without their stamps. They may explain why the program failed."""
        lines = self._tail.split(b"\n")[:-1]
        texts = (line[STAMP_BYTES:].rstrip(b"\r") for line in lines[-count:])
        return b"\n".join(texts).decode("utf-8", "replace")

    def _advance(self, now: float) -> None:
        self._elapsed += max(0.0, now - (now if self._now is None else self._now))
        self._now = now
        self._last_stamp = max(self._last_stamp, now)

    def _split(self, data: bytes) -> list[bytes]:
        """Return the complete lines. If drawing begins in `data`, pass the rest to a new Screen."""
        data, drawing = self._incomplete + data, b""
        if b"\r" in data or b"\x1b" in data:
            data, drawing = _split_at_drawing(data)
        *lines, self._incomplete = data.split(b"\n")
        if self._incomplete.endswith(b"\r\r"):
            self._incomplete = self._incomplete.rstrip(b"\r") + b"\r"
        *pieces, self._incomplete = _split_long_line(self._incomplete)
        lines += pieces
        if drawing:
            self._screen, self._decoder = Screen(self._elapsed), _make_decoder()
            self._shown_bar, self._bar_shown_at = "", self._elapsed
            self._screen.feed(self._decoder.decode(drawing), self._elapsed)
            lines += self._take_finished(self._screen)
        return lines

    def _take_finished(self, screen: Screen) -> list[bytes]:
        lines = list(map(_encode, screen.take_finished(self._elapsed)))
        if screen.closed:
            self._screen = None
            lines += self._split(_encode(screen.current_row) + self._decoder.getstate()[0])
        return lines

    def _stamp(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        head = stamp(self._last_stamp) + self._prefix
        out = b"".join(head + piece + b"\n" for line in lines for piece in _split_long_line(line))
        tail = (self._tail + out)[-_TAIL_BYTES:]
        self._tail = tail[tail.find(b"\n") + 1 :] if len(tail) == _TAIL_BYTES else tail
        return out


def _split_at_drawing(data: bytes) -> tuple[bytes, bytes]:
    """Split `data` before the line in which drawing begins. In the first part, remove returns before newlines."""
    drawing = _DRAWING.search(data)
    begin = len(data) if drawing is None else data.rfind(b"\n", 0, drawing.start()) + 1
    return _RETURNS.sub(b"\n", data[:begin]), data[begin:]


def _make_decoder() -> codecs.IncrementalDecoder:
    """Return a decoder of UTF-8 that keeps other bytes, so that `_encode` restores them."""
    return codecs.getincrementaldecoder("utf-8")("surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _split_long_line(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > MAX_TEXT_BYTES + 1:
        cut = _find_cut(line)
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def _find_cut(line: bytes) -> int:
    """Return the position at which to cut a line that is too long. If the line is UTF-8, it is between characters."""
    for cut in range(MAX_TEXT_BYTES, MAX_TEXT_BYTES - 4, -1):
        if line[cut] & 0xC0 != 0x80:
            return cut
    return MAX_TEXT_BYTES
