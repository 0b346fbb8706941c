"""What has happened to objects of one kind lately: a bounded window that watches read at their own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hai_backend.testing.kube.stored import Stored


@dataclass(frozen=True, slots=True)
class Change:
    """ADDED, MODIFIED or DELETED, with the object before and after (of a deleted one: its last state)."""

    type: str
    stored: Stored
    previous: Stored | None

    @property
    def revision(self) -> int:
        return self.stored.revision


class History:
    """The newest changes, numbered; older ones are gone, and `oldest` says from which revision on it is complete."""

    def __init__(self, window: int) -> None:
        self._changes: deque[Change] = deque()
        self._window = window
        self._first = 0  # the number of the leftmost change
        self.oldest = 0
        self.readers: set[Callable[[], None]] = set()

    @property
    def first(self) -> int:
        return self._first

    @property
    def end(self) -> int:
        """The number that the next change gets."""
        return self._first + len(self._changes)

    def append(self, change: Change) -> None:
        if len(self._changes) >= self._window:
            self._drop()
        self._changes.append(change)
        for wake in tuple(self.readers):
            wake()

    def at(self, number: int) -> Change:
        return self._changes[number - self._first]

    def after(self, revision: int) -> int:
        """The number of the first change later than a revision."""
        number = self.end
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            number -= 1
        return number

    def expire(self, revision: int) -> None:
        """Forget everything up to now; watches that have read it go on."""
        self._first = self.end
        self._changes.clear()
        self.oldest = revision

    def _drop(self) -> None:
        self.oldest = self._changes.popleft().revision
        self._first += 1
