"""Which tasks a list shows and in what order. Pure; after a change only what changed is looked at again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shown(Generic[T]):
    """Keeps, for each thing that matches, what it is sorted by."""

    def __init__(self) -> None:
        self._keys: dict[int, Any] = {}
        self._key: Callable[[T], Any] = lambda thing: 0
        self._matches: Callable[[T], bool] = lambda thing: True
        self._reverse = False
        self._order: list[int] = []

    def choose(self, matches: Callable[[T], bool], key: Callable[[T], Any], reverse: bool) -> None:
        """Show other things or another order; `look` at all of them then."""
        self._matches, self._key, self._reverse = matches, key, reverse

    def look_at_all(self, things: Mapping[int, T]) -> list[int]:
        """The order of everything that matches."""
        matches, key = self._matches, self._key
        self._keys = {id: (key(t), -id) for id, t in things.items() if matches(t)}
        return self._sort(self._keys)

    def look_at(self, things: Mapping[int, T], changed: Iterable[int]) -> list[int]:
        """The order after changes of some; the rest keeps its keys."""
        moved = False
        for id in changed:
            thing = things.get(id)
            new = (self._key(thing), -id) if thing is not None and self._matches(thing) else None
            old = self._keys.pop(id, None)
            if new is not None:
                self._keys[id] = new
            moved = moved or new != old
        return (
            self._sort(self._order + list(self._keys.keys() - set(self._order)))
            if moved
            else self._order
        )

    def _sort(self, ids: Iterable[int]) -> list[int]:
        known = [id for id in ids if id in self._keys]
        self._order = sorted(known, key=self._keys.__getitem__, reverse=self._reverse)
        return self._order
