"""Timers that also fire on a busy machine, and background work of a page.

Textual's `Timer._run` skips a single shot that is late. Two faults follow. A timer never fires if its process was
delayed for as long as the timer. A timer with a negative delay never ends: it loops without awaiting anything and
freezes the app. Textual itself makes one for a notification that expires while its toast is built.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


def _set_timer(
    self: MessagePump,
    delay: float,
    callback: TimerCallback | None = None,
    *,
    name: str | None = None,
    pause: bool = False,
) -> Timer:
    """Start a timer that fires exactly once, also if it is late, as `MessagePump.set_timer` documents it."""
    on_time = None if callback is None else partial(self.call_next, callback)
    name = name or f"set_timer#{Timer._timer_count}"
    timer = Timer(
        self, max(0.0, delay), name=name, callback=on_time, repeat=0, skip=False, pause=pause
    )
    timer._start()
    self._timers.add(timer)
    return timer


def repair_timers() -> None:
    """Replace Textual's `set_timer` for all widgets, its own ones too. Safe to repeat."""
    MessagePump.set_timer = _set_timer  # type: ignore[method-assign]


def is_closing(node: DOMNode) -> bool:
    """Return True once the node starts to close. Its children close one by one before it."""
    return node._closing or node._closed or node._pruning


def later(node: DOMNode, seconds: float, callback: Callable[[], None]) -> None:
    """Call back after that many seconds, unless the app, page or widget closes before."""

    def call_unless_closing() -> None:
        if not is_closing(node):
            callback()

    asyncio.get_running_loop().call_later(seconds, node.call_next, call_unless_closing)


def run_in_background(
    node: DOMNode, begin: Callable[[], Awaitable[None]], *, group: str, exclusive: bool = False
) -> None:
    """Run a worker that ends with the page or widget. It may be cancelled or replaced before it starts."""
    node.run_worker(begin, group=group, exclusive=exclusive)
