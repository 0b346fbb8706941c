"""How things stand between us and the server, and since when what is shown may be old."""

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
    """Where the connection stands."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"
    REFUSED = "refused"  # it answers, but not to us


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """What the header and the banner show. Times are of the app's clock."""

    server: str
    phase: Phase = Phase.CONNECTING
    last_answer_at: float = 0.0  # last answer; 0: never
    retry_at: float = 0.0
    error: str = ""
    hint: str = ""  # what to do about it

    @property
    def live(self) -> bool:
        """True when what is shown is as fresh as the server's last change."""
        return self.phase is Phase.LIVE

    def banner(self, now: float) -> str:
        """The sentence above a page; empty while all is well."""
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
    """The state, who wants to know of it, and the bell that ends a wait early."""

    def __init__(self, server: str, clock: Callable[[], float]) -> None:
        self.state = ConnectionState(server)
        self._clock = clock
        self._listeners: list[Callable[[ConnectionState], None]] = []
        self._wakeup = asyncio.Event()

    def listen(self, listener: Callable[[ConnectionState], None]) -> None:
        """Call it at each change."""
        self._listeners.append(listener)

    def mark_live(self) -> None:
        """The server has answered."""
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
        """Nobody answers; the next try comes in so many seconds."""
        self._change(Phase.LOST, error, retry_in)

    def mark_refused(self, error: HaiError) -> None:
        """It answers that we may not."""
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
        """End every wait before a retry."""
        self._wakeup.set()
        self._wakeup = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Wait before a retry; None: until somebody rings."""
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            return
