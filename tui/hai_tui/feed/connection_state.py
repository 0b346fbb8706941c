"""The state of the connection to the server, and since when the screen may be out of date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from hai.client.errors import HaiError
from hai_tui.formatting.values import span
from hai_tui.i18n import text


class Phase(StrEnum):
    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"
    REFUSED = "refused"  # the server answers, but refuses this caller


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The state that the header and the banner show. Times are those of the app's clock."""

    server: str
    phase: Phase = Phase.CONNECTING
    last_answer_at: float = 0.0  # 0 if the server has never answered
    retry_at: float = 0.0
    error: str = ""
    hint: str = ""  # what the user can do about the error

    @property
    def live(self) -> bool:
        """Return whether the app receives every change at once."""
        return self.phase is Phase.LIVE

    def banner(self, now: float) -> str:
        """Return the sentence above a page; empty while the connection is live."""
        if self.live:
            return ""
        facts = {
            "server": self.server,
            "error": self.error,
            "hint": self.hint and f" · {self.hint}",
        }
        facts["age"] = span(now - self.last_answer_at)
        facts["retry"] = f"{ceil(max(0.0, self.retry_at - now))}s"
        return text(f"banner.{self._case()}", **facts)

    def _case(self) -> str:
        if self.phase is Phase.LOST:
            return "lost" if self.last_answer_at else "never"
        if self.phase is Phase.REFUSED:
            return "refused" if self.last_answer_at else "refused.never"
        return "connecting"


class Link:
    """Holds the connection state, notifies listeners of changes, and lets the user end a wait for the next retry."""

    def __init__(self, server: str, clock: Callable[[], float]) -> None:
        self.state = ConnectionState(server)
        self._clock = clock
        self._listeners: list[Callable[[ConnectionState], None]] = []
        self._wakeup = asyncio.Event()

    def listen(self, listener: Callable[[ConnectionState], None]) -> None:
        """Call the listener at each change."""
        self._listeners.append(listener)

    def mark_live(self) -> None:
        """Record that the server has answered."""
        was_live = self.state.live
        self.state = replace(
            self.state,
            phase=Phase.LIVE,
            last_answer_at=self._clock(),
            retry_at=0.0,
            error="",
            hint="",
        )
        if not was_live:
            self._notify()

    def mark_lost(self, error: HaiError, retry_in: float) -> None:
        """Record that the server does not answer, and when the next attempt comes."""
        self._change(Phase.LOST, error, retry_in)

    def mark_refused(self, error: HaiError) -> None:
        """Record that the server refuses the caller."""
        self._change(Phase.REFUSED, error, 0.0)

    def _change(self, phase: Phase, error: HaiError, retry_in: float) -> None:
        self.state = replace(
            self.state,
            phase=phase,
            error=error.message,
            hint=error.hint,
            retry_at=self._clock() + retry_in,
        )
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(self.state)

    def retry_now(self) -> None:
        """End every wait for a retry."""
        self._wakeup.set()
        self._wakeup = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Wait before a retry; None waits until `retry_now` is called."""
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            return
