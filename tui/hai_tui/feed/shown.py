"""Which tasks a list shows and in what order. Pure; after a change only what changed is looked at again.

Everything is kept in order whether it is shown or not, so that another filter only has to leave things out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shown(Generic[T]):
    """Keeps what each thing is sorted by, and which ones match."""

    def __init__(self) -> None:
        self._keys: dict[int, Any] = {}
        self._all: list[int] = []
        self._matching: set[int] = set()
        self._order: list[int] = []
        self._key: Callable[[T], Any] = lambda thing: 0
        self._matches: Callable[[T], bool] = lambda thing: True
        self._reverse = False

    def sort_by(self, things: Mapping[int, T], key: Callable[[T], Any], reverse: bool) -> list[int]:
        """Another order."""
        self._key, self._reverse = key, reverse
        self._keys = {id: (key(thing), -id) for id, thing in things.items()}
        self._all = list(self._keys)
        self._matching = {id for id, thing in things.items() if self._matches(thing)}
        return self._arrange(moved=True)

    def choose(
        self, things: Mapping[int, T], matches: Callable[[T], bool], *, narrower: bool = False
    ) -> list[int]:
        """Another filter; one that is narrower is only asked of what is shown."""
        self._matches = matches
        among = self._order if narrower else self._all
        self._order = [id for id in among if matches(things[id])]
        self._matching = set(self._order)
        return self._order

    def look_at(self, things: Mapping[int, T], changed: Iterable[int]) -> list[int]:
        """The order after changes of some things, or new ones."""
        moved = other = False
        for id in changed:
            thing = things[id]
            key, matches = (self._key(thing), -id), self._matches(thing)
            if id not in self._keys:
                self._all.append(id)
            moved = moved or self._keys.get(id) != key
            other = other or matches is not (id in self._matching)
            self._keys[id] = key
            (self._matching.add if matches else self._matching.discard)(id)
        return self._arrange(moved=moved) if moved or other else self._order

    def _arrange(self, *, moved: bool) -> list[int]:
        if moved:
            self._all.sort(key=self._keys.__getitem__, reverse=self._reverse)
        self._order = [id for id in self._all if id in self._matching]
        return self._order
