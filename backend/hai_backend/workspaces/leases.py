"""Write leases: one client at a time may write a workspace, as long as it renews its lease.

Leases are kept in memory. After a restart of the server they are lost, but the base revision of a push still prevents
two clients from overwriting each other.
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
        """Returns the current lease without its secret; None if nobody holds one."""
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
        """Grants a new lease. Raises Conflict LEASE_HELD with the holder and the time of its last renewal.

        A client may take the lease from itself: the process that held it before is dead.
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
        """Extends a lease by 30 s, even an expired one if nobody else took it. Raises Conflict."""
        lease = self._leases.get(key)
        if lease is None or not secrets.compare_digest(lease.token.encode(), token.encode()):
            raise Conflict(
                "the write lease is lost: another client took it, or the server was restarted; request a new one",
                reason="LEASE_LOST",
            )
        lease = self._leases[key] = replace(lease, expires_at=now + LEASE_SECONDS)
        return lease

    def release(self, key: tuple[str, str], token: str) -> None:
        """Releases a lease; it is not an error if the lease is no longer held."""
        lease = self._leases.get(key)
        if lease is not None and secrets.compare_digest(lease.token.encode(), token.encode()):
            del self._leases[key]

    def _current(self, key: tuple[str, str], now: float) -> Lease | None:
        """Returns a valid lease. One that ends later than possible was granted before the clock went back."""
        lease = self._leases.get(key)
        return (
            lease if lease is not None and now < lease.expires_at <= now + LEASE_SECONDS else None
        )
