"""What the directory remembers of one kind, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from hai_backend.domain.accounts.user import User


class Given(Protocol):
    """What is given to a user, or to all of a user group."""

    @property
    def subject(self) -> str: ...
    @property
    def subject_is_group(self) -> bool: ...


Kept = TypeVar("Kept")
Granted = TypeVar("Granted", bound=Given)


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


class SubjectBook(Book[Granted]):
    """Of what is given to users and groups: what concerns one user is found without a look at the rest."""

    def __init__(self, key: Callable[[Granted], Any]) -> None:
        super().__init__(key)
        self._of: dict[tuple[str, bool], dict[Any, Granted]] = {}

    def put(self, new: Granted) -> None:
        """Set or replace one."""
        self._of.setdefault((new.subject, new.subject_is_group), {})[self._key(new)] = new
        super().put(new)

    def remove(self, old: Granted) -> None:
        """Forget the one of the same key."""
        self._of.get((old.subject, old.subject_is_group), {}).pop(self._key(old), None)
        super().remove(old)

    def concerning(self, user: User) -> Iterator[Granted]:
        """Of the user, and of the user's groups (expired ones too)."""
        for subject in ((user.name, False), *((group, True) for group in user.groups)):
            yield from self._of.get(subject, {}).values()


class Expiring(Protocol):
    """What may hold for a time only."""

    @property
    def expires_at(self) -> float | None: ...


def next_expiry(kept: Iterable[Expiring], now: float) -> float:
    """When time alone changes what follows from these; infinity: never."""
    moments = (each.expires_at for each in kept if each.expires_at is not None)
    return min((moment for moment in moments if moment > now), default=float("inf"))
