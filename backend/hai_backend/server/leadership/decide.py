"""What to do after a look at the row `leader` and at its lock: pure, so that every case is a row of a table.

The lock says who may lead: it ends with its session. The row says who does, and since when it was last heard of: a
leader that is paused, or cut off, holds the lock for ever. All times are those of the database.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_SECONDS = 3.0
"""A leader that has not renewed its row for so long is ousted."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The row, and the database process that holds the lock (None: nobody)."""

    epoch: int
    address: str
    backend: int  # whose session took the lock for this epoch
    renewed_at: float
    holder: int | None


@dataclass(frozen=True, slots=True)
class Take:
    """Nobody holds the lock: try to."""


@dataclass(frozen=True, slots=True)
class Oust:
    """The leader is silent: end the session that holds its lock."""

    backend: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Somebody leads. No address: somebody is about to."""

    address: str


Act = Take | Oust | Follow


def step(seen: Seen, now: float) -> Act:
    """What a server that does not lead does next."""
    if seen.holder is None:
        return Take()
    if seen.holder != seen.backend:  # it has the lock, and waits for the row
        return Follow("")
    if now - seen.renewed_at >= SILENT_SECONDS:
        return Oust(seen.holder)
    return Follow(seen.address)
