"""Bounds what agents send: the bytes that wait to be handled, and the messages per second.

A message may wait as long as the store is stalled. Meanwhile the server continues to read the stream, so that it can
answer heartbeats, until the inbox is full. An agent that sends too fast is not refused: the server reads its messages
more slowly, and the agent combines those that it has not sent yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as pb
from hai_backend.launch.base import RankKey

LIMIT_BYTES = 1024 * 1024
_LOG_WEIGHT = 1 / 16  # of a log byte, which is on disk; only its acknowledgement is waiting
_MESSAGE_BYTES = 100  # overhead of a message
_MAX_BUCKETS = 20_000  # of ranks; beyond this number all buckets are dropped and start full


@dataclass(frozen=True, slots=True)
class LogAppended:
    """Log chunks were appended. `size` is acknowledged once it is certain that this server leads."""

    size: int


Received = pb.AttachRequest | LogAppended


class Inbox:
    """A bounded queue of the messages of one stream, with one writer and one reader."""

    def __init__(self) -> None:
        self.closed = False
        self._error: Exception | None = None
        self._waiting: deque[tuple[Received, float]] = deque()  # with the weight of each in bytes
        self._total_weight = 0.0
        self._message_added, self._message_removed = asyncio.Event(), asyncio.Event()

    async def put(self, message: pb.AttachRequest) -> None:
        """Add a message, and wait until the inbox is no longer full. Drop the message if the inbox is closed.

        Agents repeat important messages until they are answered.
        """
        self._add(message, _MESSAGE_BYTES + message.ByteSize())
        await self._wait_until_not_full()

    async def put_log(self, size: int, added_bytes: int) -> None:
        """Add the new size of the log. It replaces a size that was added just before it."""
        weight = added_bytes * _LOG_WEIGHT
        if self._waiting and isinstance(self._waiting[-1][0], LogAppended):
            replaced_weight = self._waiting.pop()[1]
            self._total_weight -= replaced_weight
            weight += replaced_weight
        self._add(LogAppended(size), weight)
        await self._wait_until_not_full()

    async def next(self) -> Received | None:
        """Return the oldest message, or None after the last one. Raises the error with which the inbox was closed."""
        while not self._waiting and not self.closed:
            self._message_added.clear()
            await self._message_added.wait()
        if self._error is not None:
            raise self._error
        if not self._waiting:
            return None
        received, weight = self._waiting.popleft()
        self._total_weight -= weight
        self._message_removed.set()
        return received

    def close(self, error: Exception | None = None) -> None:
        """Accept no more messages. With an error, `next` returns none of the waiting messages either."""
        self.closed = True
        self._error = self._error or error
        self._message_added.set()
        self._message_removed.set()

    def _add(self, received: Received, weight: float) -> None:
        if not self.closed:
            self._waiting.append((received, weight))
            self._total_weight += weight
            self._message_added.set()

    async def _wait_until_not_full(self) -> None:
        while self._total_weight > LIMIT_BYTES and not self.closed:
            self._message_removed.clear()
            await self._message_removed.wait()


class RateLimit:
    """A token bucket for each rank, which all streams of the rank share."""

    def __init__(self, per_second: float, at_once: float) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._buckets: dict[RankKey, tuple[float, float]] = {}

    async def wait_turn(self, key: RankKey, messages: float = 1.0) -> bool:
        """Wait until the rank may send so many messages. Return whether it had to wait."""
        now = asyncio.get_running_loop().time()
        tokens, updated_at = self._buckets.get(key, (self._at_once, now))
        tokens = min(self._at_once, tokens + (now - updated_at) * self._per_second) - messages
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.clear()
        self._buckets[key] = (tokens, now)
        if tokens >= 0:
            return False
        await asyncio.sleep(-tokens / self._per_second)
        return True
