"""What the program says of its checkpoints, on its way to the server: bounded, and at most once a second.

A program may report thousands a second, and the server may be away: reports add up until they are taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.server.outgoing import Outgoing

_KIND = "checkpoint"
_PACE_SECONDS = 1.0
_MOST = 2**31 - 1


class Checkpoints:
    """`begin` when the program has started, `saved` for each report, `flush` before its last word."""

    def __init__(
        self,
        outgoing: Outgoing,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outgoing = outgoing
        self._wake = wake
        self._clock = clock
        self._begun = self._last = clock()
        self._sent_at = self._begun - _PACE_SECONDS
        self._pending: pb.CheckpointSaved | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The program has started: nothing was saved before."""
        self._begun = self._last = self._clock()

    def saved(self, seconds: float, step: int) -> None:
        """The program has saved. No save can have taken longer than the time since the one before."""
        now = self._clock()
        bounded = min(seconds, now - self._last)
        self._last = now
        one = pb.CheckpointSaved(
            seconds=bounded, step=step, count=1, program_seconds=now - self._begun
        )
        self._pending = one if self._pending is None else merged(self._pending, one)
        if now - self._sent_at >= _PACE_SECONDS:
            self.flush()
        elif self._timer is None:
            wait = self._sent_at + _PACE_SECONDS - now
            self._timer = asyncio.get_running_loop().call_later(wait, self.flush)

    def flush(self) -> None:
        """Say now what has been gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending is None:
            return
        message, self._pending, self._sent_at = self._pending, None, self._clock()
        unsent = self._outgoing.waiting(_KIND)
        if unsent is not None:
            message = merged(unsent.checkpoint, message)
        self._outgoing.put(_KIND, pb.AttachRequest(checkpoint=message))
        self._wake()


def merged(earlier: pb.CheckpointSaved, later: pb.CheckpointSaved) -> pb.CheckpointSaved:
    """Both in one message; a save of unknown cost does not change the mean."""
    both = pb.CheckpointSaved()
    both.CopyFrom(later)
    both.count = min(_MOST, earlier.count + later.count)
    measured = [m for m in (earlier, later) if m.seconds > 0]
    total = sum(m.count for m in measured)
    both.seconds = sum(m.seconds * m.count for m in measured) / total if total else 0.0
    return both
