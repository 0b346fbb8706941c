"""The base class of tables and logs: a view with rows that scrolls.

It differs from Textual's ScrollView in two ways. More rows do not lay out the whole screen again, and a scroll bar that
appears after scrolling shows the right position.
"""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView


class SizedScrollView(ScrollView):
    """A view whose size is set by `measure`; its scroll bars follow size and position in any order of changes."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sizes: tuple[Size, ...] = ()

    def measure(self, size: Size) -> None:
        """Set the size of the content in cells, without laying out anything else."""
        if size != self.virtual_size:
            self.set_reactive(SizedScrollView.virtual_size, size)
            self._scroll_update(size)

    def _scroll_update(self, virtual_size: Size) -> None:
        sizes = (virtual_size, self.size, self.container_size)
        if sizes != self._sizes:
            self._sizes = sizes
            super()._scroll_update(virtual_size)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = self.scroll_y
        if self.show_horizontal_scrollbar:
            self.horizontal_scrollbar.position = self.scroll_x
