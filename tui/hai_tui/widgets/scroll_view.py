"""The base class of tables and logs: rows that scroll, and scroll bars.

Textual lays the whole screen out anew when a view has more rows, draws its bars at each layout, and tells a bar where
it stands only while it is shown: one that appears after the scrolling stays at the top.
"""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView


class SizedScrollView(ScrollView):
    """Measured by `measure`; its bars follow from sizes and place, in whatever order these change."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sizes: tuple[Size, ...] = ()

    def measure(self, size: Size) -> None:
        """So large is it now, in cells; nothing else is laid out because of it."""
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
