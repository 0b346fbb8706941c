"""Selects and sorts the items of a list. After a change it evaluates only the changed items. Pure.

Items that the filter hides stay sorted, too, so that another filter only has to select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar


class HasId(Protocol):
    """Has a number."""

    @property
    def id(self) -> int:
        """Its own."""


T = TypeVar("T", bound=HasId)
FilterFunction = Callable[[list[T]], list[T]]
"""Those of some things that a filter keeps, in their order."""


class SortedFilteredIndex(Generic[T]):
    """Keeps what each thing is sorted by, and which ones are chosen."""

    def __init__(self) -> None:
        self._keys: dict[int, Any] = {}
        self._all: list[int] = []
        self._chosen: set[int] = set()
        self._order: list[int] = []
        self._key: Callable[[T], Any] = lambda thing: 0
        self._filter: FilterFunction[T] = lambda things: things
        self._reverse = False

    def sort_by(self, things: Mapping[int, T], key: Callable[[T], Any], reverse: bool) -> list[int]:
        """Another order."""
        self._key, self._reverse = key, reverse
        self._keys = {id: (key(thing), -id) for id, thing in things.items()}
        self._all = list(self._keys)
        self._chosen = {thing.id for thing in self._filter(list(things.values()))}
        return self._arrange(order_changed=True)

    def set_filter(
        self,
        things: Mapping[int, T],
        filter: FilterFunction[T],
        left: FilterFunction[T] | None = None,
    ) -> list[int]:
        """Another filter; where it is narrower than the last one, `left` is what it asks of those that are shown."""
        self._filter = filter
        among, filter_function = (self._all, filter) if left is None else (self._order, left)
        existing = [thing for thing in map(things.get, among) if thing is not None]
        self._order = [thing.id for thing in filter_function(existing)]
        self._chosen = set(self._order)
        return self._order

    def update(self, things: Mapping[int, T], changed: Iterable[int]) -> list[int]:
        """The order after changes of some things, or new ones; of some that changed nothing may be known yet."""
        changed_things = [things[id] for id in changed if id in things]
        chosen = {thing.id for thing in self._filter(changed_things)}
        order_changed = selection_changed = False
        for thing in changed_things:
            id, key = thing.id, (self._key(thing), -thing.id)
            if id not in self._keys:
                self._all.append(id)
            order_changed = order_changed or self._keys.get(id) != key
            selection_changed = selection_changed or (id in chosen) is not (id in self._chosen)
            self._keys[id] = key
        self._chosen -= {thing.id for thing in changed_things}
        self._chosen |= chosen
        return (
            self._arrange(order_changed=order_changed)
            if order_changed or selection_changed
            else self._order
        )

    def _arrange(self, *, order_changed: bool) -> list[int]:
        if order_changed:
            self._all.sort(key=self._keys.__getitem__, reverse=self._reverse)
        self._order = [id for id in self._all if id in self._chosen]
        return self._order
