"""One direction of a link between a node and a server, with its faults, and the streams that use it.

A direction can hold packets back (they arrive later), delay them, or drop them. A stream that has lost a packet
delivers nothing more in that direction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_LATENCY_SECONDS = 0.002
_GAP_SECONDS = 1e-5
_OUTSIDE = Context()  # packets belong to no simulated process


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one direction of a link."""

    hold: bool = False
    drop: bool = False
    delay_seconds: float = 0.0


class LinkDirection:
    """One direction of a link, with its current faults by cause."""

    def __init__(self) -> None:
        self._faults: dict[object, Fault] = {}
        self._waiting: list[StreamChannel[Any]] = []

    def add(self, cause: object, fault: Fault) -> None:
        self._faults[cause] = fault

    def remove(self, cause: object) -> None:
        self._faults.pop(cause, None)
        if not self.queued:
            waiting, self._waiting = self._waiting, []
            for pipe in waiting:
                pipe.flush()

    def wait(self, pipe: StreamChannel[Any]) -> None:
        """Flush the stream when packets pass again."""
        self._waiting.append(pipe)

    @property
    def queued(self) -> bool:
        return any(fault.hold for fault in self._faults.values())

    @property
    def dropping(self) -> bool:
        return any(fault.drop for fault in self._faults.values())

    @property
    def clear(self) -> bool:
        return not self._faults

    @property
    def delay_seconds(self) -> float:
        return sum(fault.delay_seconds for fault in self._faults.values())


class StreamChannel(Generic[T]):
    """One direction of one stream. It delivers messages in order."""

    def __init__(self, direction: LinkDirection, deliver: Callable[[T], None]) -> None:
        self._direction = direction
        self._deliver = deliver
        self._queued: deque[T] = deque()
        self._lost = False
        self._last_at = 0.0
        self.count = 0  # messages that have been sent and have not arrived

    def send(self, item: T) -> None:
        """Send a message. It may be delayed, queued, or lost, as the faults of the link require."""
        self.count += 1
        if self._lost or self._direction.dropping:
            self._lost = True
        elif self._direction.queued or self._queued:
            if not self._queued:
                self._direction.wait(self)
            self._queued.append(item)
        else:
            self._later(item)

    def flush(self) -> None:
        """Send the queued messages, or lose them if the link drops packets now."""
        queued, self._queued = self._queued, deque()
        if self._direction.dropping:
            self._lost = True
        for item in queued if not self._lost else ():
            self._later(item)

    def _later(self, item: T) -> None:
        """Deliver a message after the latency and the delay of the link."""
        loop = asyncio.get_running_loop()
        delay = _LATENCY_SECONDS + (0.0 if self._direction.clear else self._direction.delay_seconds)
        # Two callbacks never have the same time, because the loop would not keep their order.
        self._last_at = max(self._last_at + _GAP_SECONDS, loop.time() + delay)
        loop.call_at(self._last_at, self._arrive, item, context=_OUTSIDE)

    def _arrive(self, item: T) -> None:
        self.count -= 1
        self._deliver(item)
