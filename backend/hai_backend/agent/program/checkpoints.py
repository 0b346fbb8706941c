"""Reports the program's checkpoints to the server, at most once a second.

Unsent reports are merged into one, because a program may report thousands per second, and the server may be
unavailable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from hai.task import checkpoint, sharded_checkpoint
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.server.outgoing import Outgoing

_KIND = "checkpoint"
_PACE_SECONDS = 1.0
_MAX_COUNT = 2**31 - 1


class Checkpoints:
    """Merges reports and sends them.

    Call `start` when the program starts, `saved` for each report, and `flush` before the program's exit is reported.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        is_staged: Callable[[], bool] = lambda: False,
    ) -> None:
        self._outgoing = outgoing
        self._wake = wake
        self._clock = clock
        self._is_staged = is_staged  # returns whether checkpoints are in memory only
        self._started_at = self._saved_at = clock()
        self._sent_at = self._started_at - _PACE_SECONDS
        self._pending: pb.CheckpointSaved | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure times from now on, because the program has started."""
        self._started_at = self._saved_at = self._clock()

    def saved(self, seconds: float, step: int) -> None:
        """Report a save that took `seconds`. A save never counts as longer than the time since the previous save."""
        now = self._clock()
        bounded = min(seconds, now - self._saved_at)
        self._saved_at = now
        report = pb.CheckpointSaved(
            seconds=bounded,
            step=step,
            count=1,
            program_seconds=now - self._started_at,
            staged=self._is_staged(),
        )
        self._pending = report if self._pending is None else merge(self._pending, report)
        if now - self._sent_at >= _PACE_SECONDS:
            self.flush()
        elif self._timer is None:
            wait = self._sent_at + _PACE_SECONDS - now
            self._timer = asyncio.get_running_loop().call_later(wait, self.flush)

    def flush(self) -> None:
        """Send the merged report now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending is None:
            return
        message, self._pending, self._sent_at = self._pending, None, self._clock()
        unsent = self._outgoing.unsent(_KIND)
        if unsent is not None:
            message = merge(unsent.checkpoint, message)
        self._outgoing.put(_KIND, pb.AttachRequest(checkpoint=message))
        self._wake()


def merge(earlier: pb.CheckpointSaved, later: pb.CheckpointSaved) -> pb.CheckpointSaved:
    """Merge two reports. Saves of unknown duration (0 seconds) do not change the mean."""
    both = pb.CheckpointSaved()
    both.CopyFrom(later)
    both.staged = earlier.staged or later.staged
    both.count = min(_MAX_COUNT, earlier.count + later.count)
    measured = [m for m in (earlier, later) if m.seconds > 0]
    total = sum(m.count for m in measured)
    both.seconds = sum(m.seconds * m.count for m in measured) / total if total else 0.0
    return both


def remove_unfinished(directory: str) -> bool:
    """Remove checkpoints whose programs ended while they saved them. Return whether there were any."""
    removes = (checkpoint.remove_unfinished, sharded_checkpoint.remove_unfinished)
    return bool(directory) and any([remove(Path(directory)) for remove in removes])
