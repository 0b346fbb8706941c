"""Measures for how long the event loop is held, and logs what holds it, because everything in a server waits for it.

A timer of the loop is due every 0.1 s. How late it runs is the lag. When it is overdue, a thread notes where the loop's
thread is. When the loop runs again, the log says for how long it was held, and where.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import structlog

log = structlog.get_logger(__name__)
_INTERVAL_SECONDS = 0.1
_HELD_SECONDS = 0.1  # what is logged
_LOG_SECONDS = 10.0  # between two lines of the log
_FRAMES = 6


class LoopWatch:
    """Calls `on_lag` with the lag of the loop, and `on_pause` with the length of each pause for garbage collection."""

    def __init__(
        self,
        on_lag: Callable[[float], object],
        on_pause: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_lag = on_lag
        self._on_pause = on_pause
        self._clock = clock
        self._loop_thread = threading.get_ident()
        self._due = clock() + _INTERVAL_SECONDS
        self._held = (0.0, "")  # when the timer was due, and where the loop was held then
        self._logged_at = clock() - _LOG_SECONDS
        self._pause_began = 0.0
        # A collection may begin while a metric is locked, so its pause is recorded later.
        self._pauses: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def start(self) -> None:
        """Begin to measure. Call this in the thread of the running loop."""
        self._loop_thread = threading.get_ident()
        gc.callbacks.append(self._on_collection)
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._stopped.set()
        self._thread.join()
        gc.callbacks.remove(self._on_collection)
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = self._clock()
        lag = max(0.0, now - self._due)
        held_at = self._held[1] if self._held[0] == self._due else ""
        self._due = now + _INTERVAL_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_SECONDS, self._tick)
        self._on_lag(lag)
        pauses, self._pauses = self._pauses, []
        for pause in pauses:
            self._on_pause(pause)
        if held_at and now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning("the event loop was held", seconds=round(lag, 3), by=held_at)

    def _watch(self) -> None:
        """Note where the loop is held whenever its timer is overdue."""
        while not self._stopped.wait(max(self._due + _HELD_SECONDS - self._clock(), 0.02)):
            due = self._due
            if self._clock() > due + _HELD_SECONDS and self._held[0] != due:
                self._held = due, _location(self._loop_thread)

    def _on_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            self._pause_began = time.perf_counter()
        else:
            self._pauses.append(time.perf_counter() - self._pause_began)


def _location(thread: int) -> str:
    """Return the innermost functions that a thread executes, the innermost first."""
    frame = sys._current_frames().get(thread)
    frames = traceback.extract_stack(frame)[-_FRAMES:] if frame is not None else []
    names = (f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in frames)
    return " < ".join(reversed(list(names)))
