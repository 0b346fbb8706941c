"""Grants write leases: one client at a time may write a workspace, as long as it renews its lease.

Leases are kept in memory and are lost when the server restarts. The base revision of a push still prevents two clients
from overwriting each other's changes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Lease

LEASE_SECONDS = 30.0
HOLDER_CHARS = 200


class WorkspaceLeases:
    """The leases of all workspaces, by user and name."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str], Lease] = {}

    def get(self, key: tuple[str, str], now: float) -> Lease | None:
        """Return the current lease without its secret; None if nobody holds one."""
        lease = self._current(key, now)
        return lease and lease.shown()

    def acquire(
        self,
        key: tuple[str, str],
        holder: str,
        revision: int,
        now: float,
        *,
        force: bool = False,
        client_id: str = "",
    ) -> Lease:
        """Grant a new lease. Raise Conflict LEASE_HELD with the holder and the time of its last renewal.

        A client may acquire a lease that it holds itself, because its earlier process is dead.
        """
        lease = self._current(key, now)
        same_client = bool(client_id) and lease is not None and lease.client_id == client_id
        if lease is not None and not force and not same_client:
            silent_seconds = max(0.0, now - (lease.expires_at - LEASE_SECONDS))
            raise Conflict(
                f"{lease.holder or 'another client'} is writing to this workspace "
                f"(last renewal {silent_seconds:.0f} s ago); wait for it, or take over the write lease",
                reason="LEASE_HELD",
            )
        token = secrets.token_urlsafe(16)
        lease = Lease(token, holder[:HOLDER_CHARS], now + LEASE_SECONDS, revision, client_id)
        self._leases[key] = lease
        return lease

    def renew(self, key: tuple[str, str], token: str, now: float) -> Lease:
        """Extend a lease by 30 s, even an expired one if no other client has acquired it. Raise Conflict."""
        lease = self._leases.get(key)
        if lease is None or not secrets.compare_digest(lease.token.encode(), token.encode()):
            raise Conflict(
                "the write lease is lost: another client took it, or the server was restarted; request a new one",
                reason="LEASE_LOST",
            )
        lease = self._leases[key] = replace(lease, expires_at=now + LEASE_SECONDS)
        return lease

    def release(self, key: tuple[str, str], token: str) -> None:
        """Release a lease. Do nothing if the client no longer holds it."""
        lease = self._leases.get(key)
        if lease is not None and secrets.compare_digest(lease.token.encode(), token.encode()):
            del self._leases[key]

    def _current(self, key: tuple[str, str], now: float) -> Lease | None:
        """Return the valid lease; None if there is none.

        A lease that ends later than possible was granted before the clock was set back, and is not valid.
        """
        lease = self._leases.get(key)
        return (
            lease if lease is not None and now < lease.expires_at <= now + LEASE_SECONDS else None
        )
