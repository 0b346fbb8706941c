"""The rows of a table, its cursor and its marks, all by id. Pure.

Cursor and marks belong to ids, not to positions, so that they stay where the user put them while rows come, go and
change order. Until the user moves the cursor, it stays on the first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Rows:
    """The rows, in order."""

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.cursor = 0
        self.marked: set[Any] = set()
        self.user_moved = False  # the user has moved: from then on the cursor keeps to its id
        self._pivot: Any = None

    @property
    def cursor_id(self) -> Any:
        """The row under the cursor; None without rows."""
        return self.ids[self.cursor] if self.ids else None

    @property
    def chosen(self) -> list[Any]:
        """The marked rows in order, else the one under the cursor."""
        if self.marked:
            return [id for id in self.ids if id in self.marked]
        return [self.cursor_id] if self.ids else []

    def index_of(self, id: Any, otherwise: int = -1) -> int:
        """Where a row stands; of one that is not there, the nearest place to `otherwise`."""
        try:
            return self.ids.index(id)
        except ValueError:
            last = len(self.ids) - 1
            return max(0, min(otherwise, last)) if otherwise >= 0 else -1

    def replace(self, ids: Sequence[Any]) -> None:
        """Other rows, or another order; cursor and marks stay with their ids."""
        before, cursor = self.cursor_id, self.cursor
        self.ids = list(ids)
        if self.marked:
            self.marked &= set(self.ids)
        self.cursor = self.index_of(before, cursor) if self.user_moved else 0

    def move_to(self, index_of: int) -> None:
        """Put the cursor there, or at the nearest end."""
        self.user_moved = True
        self.cursor = max(0, min(index_of, len(self.ids) - 1))

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor; ranges begin there."""
        self._pivot = self.cursor_id
        self.marked ^= {self._pivot}

    def mark_range(self) -> None:
        """Mark from the row marked last to the cursor."""
        first, last = sorted((self.index_of(self._pivot, self.cursor), self.cursor))
        self.marked |= set(self.ids[first : last + 1])

    def mark_all(self) -> None:
        """Mark every row."""
        self.marked = set(self.ids)

    def anchor(self, top: int, height: int) -> tuple[Any, int]:
        """The row whose place on the screen stays when others come, and its distance from the top."""
        if not self.ids:
            return None, 0
        top = min(top, len(self.ids) - 1)
        if top <= self.cursor < top + max(1, height):
            return self.cursor_id, self.cursor - top
        return self.ids[top], 0
