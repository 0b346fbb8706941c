"""The rows of a table, its cursor and its marks, all by id. Draws nothing.

Cursor and marks belong to ids, not to positions, so that they stay where the user put them while rows come, go and
change order. The cursor stays on the first row until the user moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Rows:
    """The ids of the rows in order, the position of the cursor, and the marked ids."""

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.cursor = 0
        self.marked: set[Any] = set()
        self.user_moved = False  # True once the user has moved the cursor
        self._range_start: Any = None

    @property
    def cursor_id(self) -> Any:
        """Return the id of the row under the cursor; None without rows."""
        return self.ids[self.cursor] if self.ids else None

    @property
    def chosen(self) -> list[Any]:
        """Return the marked ids in order, else the one under the cursor."""
        if self.marked:
            return [id for id in self.ids if id in self.marked]
        return [self.cursor_id] if self.ids else []

    def index_of(self, id: Any, default: int = -1) -> int:
        """Return the position of a row; for an unknown row, the position nearest to `default`, or -1 without one."""
        try:
            return self.ids.index(id)
        except ValueError:
            last = len(self.ids) - 1
            return max(0, min(default, last)) if default >= 0 else -1

    def replace(self, ids: Sequence[Any]) -> None:
        """Replace the rows; cursor and marks stay with their ids."""
        cursor_id, cursor = self.cursor_id, self.cursor
        self.ids = list(ids)
        if self.marked:
            self.marked &= set(self.ids)
        self.cursor = self.index_of(cursor_id, cursor) if self.user_moved else 0

    def move_to(self, index: int) -> None:
        """Move the cursor to a position, or to the nearest end."""
        self.user_moved = True
        self.cursor = max(0, min(index, len(self.ids) - 1))

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor; a range starts there."""
        self._range_start = self.cursor_id
        self.marked ^= {self._range_start}

    def mark_range(self) -> None:
        """Mark the rows from the one marked last to the cursor."""
        first, last = sorted((self.index_of(self._range_start, self.cursor), self.cursor))
        self.marked |= set(self.ids[first : last + 1])

    def mark_all(self) -> None:
        self.marked = set(self.ids)

    def anchor(self, top: int, height: int) -> tuple[Any, int]:
        """Return the row that keeps its place on the screen when rows change, and its distance from the top."""
        if not self.ids:
            return None, 0
        top = min(top, len(self.ids) - 1)
        if top <= self.cursor < top + max(1, height):
            return self.cursor_id, self.cursor - top
        return self.ids[top], 0
