"""What an agent has sent and is not handled yet: in order and bounded, so that nothing of it delays a heartbeat.

Handling a message may wait for the store, for as long as that is stalled. Reading the stream goes on meanwhile until so
much waits here that the agent has to wait too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as pb

LIMIT_BYTES = 1024 * 1024
_LOG_PART = 1 / 16  # of a byte that is in the log already: only its acknowledgement waits here
_MESSAGE_BYTES = 100  # that a message takes beside its content


@dataclass(frozen=True, slots=True)
class LogAppended:
    """Log chunks were appended; `size` is to be acknowledged when it is sure that this server leads."""

    size: int


Received = pb.AttachRequest | LogAppended


class Inbox:
    """One writer, which reads the stream, and one reader, which handles the messages."""

    def __init__(self) -> None:
        self.closed = False
        self._error: Exception | None = None
        self._waiting: deque[tuple[Received, float]] = deque()  # with what each counts
        self._bytes = 0.0
        self._filled, self._emptied = asyncio.Event(), asyncio.Event()

    async def put(self, message: pb.AttachRequest) -> None:
        """Add a message; returns when there is room again. After the end it is dropped: agents repeat what counts."""
        self._add(message, _MESSAGE_BYTES + message.ByteSize())
        await self._room()

    async def put_log(self, size: int, added_bytes: int) -> None:
        """The log has this size now. Of sizes that wait in a row only the last one is acknowledged."""
        count = added_bytes * _LOG_PART
        if self._waiting and isinstance(self._waiting[-1][0], LogAppended):
            before = self._waiting.pop()[1]
            self._bytes -= before
            count += before
        self._add(LogAppended(size), count)
        await self._room()

    async def next(self) -> Received | None:
        """The oldest message; None: there will be none any more. Raises the error that it was closed with."""
        while not self._waiting and not self.closed:
            self._filled.clear()
            await self._filled.wait()
        if self._error is not None:
            raise self._error
        if not self._waiting:
            return None
        received, count = self._waiting.popleft()
        self._bytes -= count
        self._emptied.set()
        return received

    def close(self, error: Exception | None = None) -> None:
        """Nothing comes any more. With an error nothing that waits is handled either."""
        self.closed = True
        self._error = self._error or error
        self._filled.set()
        self._emptied.set()

    def _add(self, received: Received, count: float) -> None:
        if not self.closed:
            self._waiting.append((received, count))
            self._bytes += count
            self._filled.set()

    async def _room(self) -> None:
        while self._bytes > LIMIT_BYTES and not self.closed:
            self._emptied.clear()
            await self._emptied.wait()
