"""Decides what a server that does not lead does next, from the row `leader` and the holder of the lock.

Only the server whose session holds the lock may lead. The lock ends with its session, but a leader that is paused or
has lost its network keeps the lock. Therefore the row contains which server leads and when this server last renewed the
row. All times are those of the database clock.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_SECONDS = 3.0
"""A leader that has not renewed its row for so long loses its leadership."""


@dataclass(frozen=True, slots=True)
class LeaderState:
    """The row `leader`. `holder` is the database process that holds the lock, or None if no process holds it."""

    epoch: int
    address: str
    backend: int  # the database process that took the lock for this epoch
    renewed_at: float
    holder: int | None


@dataclass(frozen=True, slots=True)
class Take:
    """Try to take the lock."""


@dataclass(frozen=True, slots=True)
class Oust:
    """End the session that holds the lock, because its server is silent."""

    backend: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the leader. The address is empty while a server is about to become the leader or to resign."""

    address: str


Action = Take | Oust | Follow


def next_action(state: LeaderState, now: float) -> Action:
    """Return what a server that does not lead does next."""
    if state.holder is None:
        return Take()
    if state.holder != state.backend:  # the holder has taken the lock but not yet updated the row
        return Follow("")
    if now - state.renewed_at >= SILENT_SECONDS:
        return Oust(state.holder)
    return Follow(state.address)
