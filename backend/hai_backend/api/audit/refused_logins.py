"""Records refused sign-ins in the audit. Many refusals share one row, so that nobody can fill the table."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from hai_backend.api.audit.rows import UNKNOWN, Action, AddRows, store_row
from hai_backend.controllers.aio.clock import Clock
from hai_backend.store.base import AuditRow

WINDOW_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_MAX_PEERS = 100  # addresses counted one by one; further ones are counted together
_MAX_NAMED = 5
_OTHERS = "other addresses"


class RefusedLogins:
    """Records the first refusal at once, and counts the refusals of each later time window in one row.

    A server that is killed loses the count of at most one window.
    """

    def __init__(
        self,
        add_rows: AddRows,
        clock: Clock,
        method: Action,
        code: str,
        *,
        window_seconds: float = WINDOW_SECONDS,
    ) -> None:
        self._add_rows = add_rows
        self._clock = clock
        self._method = method
        self._code = code
        self._window_seconds = window_seconds
        self._by_peer: Counter[str] = Counter()
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def add(self, peer: str) -> None:
        """Count a refusal of this address."""
        counted_alone = peer in self._by_peer or len(self._by_peer) < _MAX_PEERS
        self._by_peer[peer if counted_alone else _OTHERS] += 1
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_rows())

    async def close(self) -> None:
        """Record the open counts. Give up after a while: a store that does not answer must not delay the shutdown."""
        self._closing.set()
        if self._writer is not None:
            _, unfinished = await asyncio.wait({self._writer}, timeout=_CLOSE_SECONDS)
            for writer in unfinished:
                writer.cancel()

    async def _write_rows(self) -> None:
        while self._by_peer:
            counts, self._by_peer = self._by_peer, Counter()
            row = AuditRow(
                self._clock.now(), UNKNOWN, self._method, "", describe_refusals(counts), self._code
            )
            await store_row(self._add_rows, row)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._window_seconds)


def describe_refusals(by_peer: Counter[str]) -> str:
    """Describe the counts: `refused 12 times: 10.0.0.3 (11), 10.0.0.4 (1)`."""
    total = by_peer.total()
    named = by_peer.most_common(_MAX_NAMED)
    parts = [f"{peer} ({count})" for peer, count in named]
    if remaining := total - sum(count for _, count in named):
        parts.append(f"others ({remaining})")
    return f"refused {total} time{'s' if total > 1 else ''}: {', '.join(parts)}"


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer (`ipv4:10.0.0.3:50123`, `ipv6:%5B::1%5D:50123`) without scheme and port."""
    scheme, _, address = peer.partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme
    return address.rpartition(":")[0].replace("%5B", "").replace("%5D", "")
