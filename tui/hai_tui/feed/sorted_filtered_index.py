"""Selects and sorts the items of a list. After a change it evaluates only the changed items. Does no input or output.

Items that the filter hides stay sorted, too, so that a new filter only has to select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar


class HasId(Protocol):
    """An item with a number."""

    @property
    def id(self) -> int: ...


T = TypeVar("T", bound=HasId)
FilterFunction = Callable[[list[T]], list[T]]
"""Returns the items that the filter keeps, in their order."""


class SortedFilteredIndex(Generic[T]):
    """Keeps the sort key of each item, and which items the filter selects."""

    def __init__(self) -> None:
        self._keys: dict[int, Any] = {}
        self._all: list[int] = []
        self._selected: set[int] = set()
        self._order: list[int] = []
        self._key: Callable[[T], Any] = lambda item: 0
        self._filter: FilterFunction[T] = lambda items: items
        self._reverse = False

    def sort_by(self, items: Mapping[int, T], key: Callable[[T], Any], reverse: bool) -> list[int]:
        """Sort by another key; return the ids in order."""
        self._key, self._reverse = key, reverse
        self._keys = {id: (key(item), -id) for id, item in items.items()}
        self._all = list(self._keys)
        self._selected = {item.id for item in self._filter(list(items.values()))}
        return self._arrange(order_changed=True)

    def set_filter(
        self,
        items: Mapping[int, T],
        filter: FilterFunction[T],
        narrower: FilterFunction[T] | None = None,
    ) -> list[int]:
        """Select by another filter; return the ids in order.

        `narrower`, if given, selects from the items of the previous filter those that the new one keeps.
        """
        self._filter = filter
        ids, function = (self._all, filter) if narrower is None else (self._order, narrower)
        existing = [item for item in map(items.get, ids) if item is not None]
        self._order = [item.id for item in function(existing)]
        self._selected = set(self._order)
        return self._order

    def update(self, items: Mapping[int, T], changed: Iterable[int]) -> list[int]:
        """Return the ids in order after some items were changed or added; unknown ids are ignored."""
        changed_items = [items[id] for id in changed if id in items]
        selected = {item.id for item in self._filter(changed_items)}
        order_changed = selection_changed = False
        for item in changed_items:
            id, key = item.id, (self._key(item), -item.id)
            if id not in self._keys:
                self._all.append(id)
            order_changed = order_changed or self._keys.get(id) != key
            selection_changed = selection_changed or (id in selected) is not (id in self._selected)
            self._keys[id] = key
        self._selected -= {item.id for item in changed_items}
        self._selected |= selected
        if order_changed or selection_changed:
            self._arrange(order_changed=order_changed)
        return self._order

    def _arrange(self, *, order_changed: bool) -> list[int]:
        if order_changed:
            self._all.sort(key=self._keys.__getitem__, reverse=self._reverse)
        self._order = [id for id in self._all if id in self._selected]
        return self._order
