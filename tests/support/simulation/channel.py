"""One direction between a node and a server of the storm: what is wrong with it, and messages that pass in order.

A way can hold packets back (they come later), drop them (a stream that has lost one gets nothing through that way any
more) or be slow.
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
_OUTSIDE = Context()  # packets belong to no host


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one way of a link."""

    hold: bool = False
    drop: bool = False
    delay_seconds: float = 0.0


class LinkDirection:
    """One direction of a link, with what is wrong with it, by cause."""

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
        """Flush the pipe when packets pass again."""
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
    """One direction of one stream: in order, through its way."""

    def __init__(self, direction: LinkDirection, deliver: Callable[[T], None]) -> None:
        self._direction = direction
        self._deliver = deliver
        self._queued: deque[T] = deque()
        self._lost = False
        self._last_at = 0.0
        self.count = 0  # messages on their way

    def send(self, item: T) -> None:
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
        """Packets pass again, or are lost from now on."""
        queued, self._queued = self._queued, deque()
        if self._direction.dropping:
            self._lost = True
        for item in queued if not self._lost else ():
            self._later(item)

    def _later(self, item: T) -> None:
        loop = asyncio.get_running_loop()
        delay = _LATENCY_SECONDS + (0.0 if self._direction.clear else self._direction.delay_seconds)
        # never two at one moment: the loop would not keep their order
        self._last_at = max(self._last_at + _GAP_SECONDS, loop.time() + delay)
        loop.call_at(self._last_at, self._arrive, item, context=_OUTSIDE)

    def _arrive(self, item: T) -> None:
        self.count -= 1
        self._deliver(item)
