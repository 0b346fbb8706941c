"""Who may write a workspace: one client at a time, for as long as it says that it is alive.

Leases live in memory: after a restart of the server they are gone, and the base revision of a push still keeps two
clients from overwriting one another.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Lease

LEASE_SECONDS = 30.0
HOLDER_CHARS = 200


class Leases:
    """Of all workspaces, by user and name."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Lease] = {}

    def of(self, key: tuple[str, str], now: float) -> Lease | None:
        """Whoever holds it now, without the secret."""
        lease = self._live(key, now)
        return lease and lease.shown()

    def take(
        self,
        key: tuple[str, str],
        holder: str,
        revision: int,
        now: float,
        *,
        force: bool = False,
        client_id: str = "",
    ) -> Lease:
        """A new one. Raises Conflict LEASE_HELD, with the holder and since when nothing was heard of it.

        A client takes it from itself: the process that held it before is dead.
        """
        held = self._live(key, now)
        own = bool(client_id) and held is not None and held.client_id == client_id
        if held is not None and not force and not own:
            heard = max(0.0, now - (held.expires_at - LEASE_SECONDS))
            raise Conflict(
                f"{held.holder or 'another client'} writes this workspace (heard of {heard:.0f} s ago); "
                "wait for it, or take the right to write from it",
                reason="LEASE_HELD",
            )
        token = secrets.token_urlsafe(16)
        lease = Lease(token, holder[:HOLDER_CHARS], now + LEASE_SECONDS, revision, client_id)
        self._held[key] = lease
        return lease

    def renew(self, key: tuple[str, str], token: str, now: float) -> Lease:
        """The same for another 30 s; also one that ran out, as long as nobody else took it. Raises Conflict."""
        held = self._held.get(key)
        if held is None or not secrets.compare_digest(held.token.encode(), token.encode()):
            raise Conflict(
                "the right to write is lost: somebody took it, or the server was restarted; ask for a new one",
                reason="LEASE_LOST",
            )
        lease = self._held[key] = replace(held, expires_at=now + LEASE_SECONDS)
        return lease

    def release(self, key: tuple[str, str], token: str) -> None:
        """Give it back; what is not held any more is no error."""
        held = self._held.get(key)
        if held is not None and secrets.compare_digest(held.token.encode(), token.encode()):
            del self._held[key]

    def _live(self, key: tuple[str, str], now: float) -> Lease | None:
        """One that ends later than any could was granted before the clock went back."""
        held = self._held.get(key)
        return held if held is not None and now < held.expires_at <= now + LEASE_SECONDS else None
