"""What a container has written: lines with their times, bounded, readable while more comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from hai_backend.testing.kube.body import fine_stamp
from hai_backend.testing.kube.logs import AskedLog

_KEPT_BYTES = 4 << 20
Line = tuple[float, bytes]


class Output:
    """One run of one container; the oldest lines go."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._dropped = 0  # how many lines have gone
        self._size = 0
        self._part = b""
        self.ended = False
        self._grown = asyncio.Event()

    def feed(self, now: float, data: bytes) -> None:
        *whole, self._part = (self._part + data).split(b"\n")
        for text in whole:
            self._add(now, text + b"\n")
        self._wake()

    def end(self, now: float) -> None:
        """Nothing comes any more."""
        if self._part:
            self._add(now, self._part)
        self._part, self.ended = b"", True
        self._wake()

    def read(self, asked: AskedLog) -> bytes:
        return b"".join(_show(line, asked) for line in self._chosen(asked))[: asked.limit_bytes]

    async def follow(self, asked: AskedLog) -> AsyncIterator[bytes]:
        """What is there, then what comes."""
        text, at = self.read(asked), self._dropped + len(self._lines)
        if text:
            yield text
        while not self.ended or at < self._dropped + len(self._lines):
            if at == self._dropped + len(self._lines):
                await self._grown.wait()
                continue
            fresh = list(self._lines)[max(0, at - self._dropped) :]
            at = self._dropped + len(self._lines)
            yield b"".join(_show(line, asked) for line in fresh)

    def _chosen(self, asked: AskedLog) -> list[Line]:
        lines = [line for line in self._lines if line[0] >= asked.since]
        return lines if asked.tail is None else lines[max(0, len(lines) - asked.tail) :]

    def _add(self, now: float, text: bytes) -> None:
        self._lines.append((now, text))
        self._size += len(text)
        while self._size > _KEPT_BYTES:
            self._size -= len(self._lines.popleft()[1])
            self._dropped += 1

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


def _show(line: Line, asked: AskedLog) -> bytes:
    when, text = line
    return fine_stamp(when).encode() + b" " + text if asked.timestamps else text
