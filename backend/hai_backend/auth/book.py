"""What the directory remembers of one kind, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

Kept = TypeVar("Kept")


class Book(Generic[Kept]):
    """By key. What a book has derived holds until the next change."""

    def __init__(self, key: Callable[[Kept], Any]) -> None:
        self._key = key
        self._kept: dict[Any, Kept] = {}

    def put(self, new: Kept) -> None:
        """Set or replace one."""
        self._kept[self._key(new)] = new
        self.outdate()

    def remove(self, old: Kept) -> None:
        """Forget the one of the same key."""
        self._kept.pop(self._key(old), None)
        self.outdate()

    def outdate(self) -> None:
        """Something has changed that its answers depend on: of its own, or of the users."""
        raise NotImplementedError

    def all(self) -> tuple[Kept, ...]:
        """As they were set, in the order of their keys (expired ones too)."""
        return tuple(self._kept[known] for known in sorted(self._kept))


class Expiring(Protocol):
    """What may hold for a time only."""

    @property
    def expires_at(self) -> float | None: ...


def next_expiry(kept: Iterable[Expiring], now: float) -> float:
    """When time alone changes what follows from these; infinity: never."""
    moments = (each.expires_at for each in kept if each.expires_at is not None)
    return min((moment for moment in moments if moment > now), default=float("inf"))
