"""A table of any number of rows: only visible cells are ever formatted.

Rows are ids; what stands in them is asked of `row_of` when it is drawn, and a line is drawn again
only when something else stands there. (Textual's own DataTable takes seconds at 10 000 rows.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hai_tui.theme import tones
from hai_tui.widgets.columns import GAP, Column, fitting, total
from hai_tui.widgets.row_lines import MARGIN, RowLines
from hai_tui.widgets.rows import Rows

AGES_SECONDS = 1.0
"""Ages are looked at so often; only lines that say something else then are drawn."""
_STYLES = ("header", "cursor", "marked", "fresh", "empty")
Id = Hashable


class VirtualTable(ScrollView, can_focus=True):
    """Shows ids in the order given; posts Moved, Opened, Marked and HeaderClicked."""

    DEFAULT_CSS = """
    VirtualTable { height: 1fr; background: $background; scrollbar-size-vertical: 1;
                   scrollbar-size-horizontal: 1; scrollbar-gutter: stable; }
    VirtualTable > .table--header { text-style: bold; color: $foreground; background: $panel; }
    VirtualTable > .table--cursor { background: $primary 35%; text-style: bold; }
    VirtualTable > .table--marked { background: $secondary 25%; }
    VirtualTable > .table--fresh { background: $accent 20%; }
    VirtualTable > .table--empty { color: $foreground 70%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"table--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "move_to(0)", show=False),
        Binding("end,G", "move_to(-1)", show=False),
        Binding("left", "side(-8)", show=False),
        Binding("right", "side(8)", show=False),
        Binding("enter", "open", show=False),
        Binding("space", "mark", show=False),
        Binding("ctrl+space,ctrl+@", "mark_range", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another row."""

        def __init__(self, table: VirtualTable, id: Id | None) -> None:
            super().__init__()
            self.table, self.id = table, id

    class Opened(Message):
        """Enter, or a double click."""

        def __init__(self, table: VirtualTable, id: Id) -> None:
            super().__init__()
            self.table, self.id = table, id

    class Marked(Message):
        """Other rows are marked than before."""

        def __init__(self, table: VirtualTable) -> None:
            super().__init__()
            self.table = table

    class HeaderClicked(Message):
        """A column's title was clicked."""

        def __init__(self, table: VirtualTable, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

    def __init__(
        self,
        columns: Sequence[Column],
        row_of: Callable[[Any], Any],
        clock: Callable[[], float],
        *,
        empty: str = "",
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._columns, self._row_of, self._clock = tuple(columns), row_of, clock
        self._rows = Rows()
        self._shown: tuple[Column, ...] = ()
        self.fresh: set[Any] = set()
        self.sorted_by: tuple[str, bool] = ("", False)
        self.all_columns = False
        self.empty = empty
        self._styles: dict[str, Style] = {}  # looked up when the theme or the focus has changed
        self._lines: RowLines | None = None
        self._drawn: dict[int, Strip] = {}  # by line of the screen

    @property
    def ids(self) -> Sequence[Any]:
        """All rows, in order."""
        return self._rows.ids

    @property
    def marked(self) -> set[Any]:
        """The rows that are marked."""
        return self._rows.marked

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, also those that do not fit now."""
        return self._columns

    @property
    def cursor_id(self) -> Any:
        """The row under the cursor; None without rows."""
        return self._rows.cursor_id

    @property
    def chosen(self) -> list[Any]:
        """The marked rows in order, else the one under the cursor."""
        return self._rows.chosen

    def shows(self, key: str) -> bool:
        """True when that column fits now."""
        return any(column.key == key for column in self._shown)

    def on_mount(self) -> None:
        """Ages go on by themselves."""
        self.set_interval(AGES_SECONDS, self._look_at_ages)

    # What is shown.

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._lay_out()

    def show(self, ids: Sequence[Any]) -> None:
        """Show these rows, which may say other things than before."""
        self.reorder(ids)
        self.refresh()

    def reorder(self, ids: Sequence[Any]) -> None:
        """Show these rows, of which none says anything else; cursor, marks and scroll position stay with their ids."""
        rows = self._rows
        if ids == rows.ids:
            return
        top, before, cursor = round(self.scroll_target_y), self._seen(), rows.cursor_id
        anchor, offset = rows.anchor(top, self.size.height - 1)
        place = rows.cursor
        rows.replace(ids)
        self._measure()
        if rows.steered and anchor is not None:
            self._scroll_y(rows.place(anchor, place) - offset)
        if rows.cursor_id != cursor:
            self.post_message(self.Moved(self, rows.cursor_id))
        for line, (old, new) in enumerate(zip(before, self._seen(), strict=True)):
            if old != new:
                self._draw_again(line)

    def changed(self, ids: Iterable[Any]) -> None:
        """Draw these rows again where they are visible."""
        top, height = self.scroll_offset.y, self.size.height
        for id in ids:
            if top <= (place := self._rows.place(id)) < top + height:
                self._draw_again(place - top)

    def go(self, id: Any) -> bool:
        """Put the cursor on a row; False when it is not shown."""
        place = self._rows.place(id)
        if place >= 0:
            self._move_to(place)
        return place >= 0

    def _seen(self) -> list[tuple[Any, bool]]:
        """What stands on each line below the titles, and where the cursor is."""
        rows, top, height = self._rows, self.scroll_offset.y, max(0, self.size.height - 1)
        ids = rows.ids[top : top + height]
        seen = [(id, place == rows.cursor) for place, id in enumerate(ids, start=top)]
        return seen + [(None, not rows.ids)] * (height - len(seen))

    def _draw_again(self, line: int) -> None:
        self.refresh(Region(0, line + 1, self.size.width, 1))

    def _look_at_ages(self) -> None:
        if not self._styles or not self.is_on_screen:
            return
        lines = self._look()
        for y in range(1, self.size.height):
            if y in self._drawn and self._line(lines, y) != self._drawn[y]:
                self._draw_again(y - 1)

    def _scroll_y(self, y: float) -> None:
        self.scroll_to(y=max(0, y), animate=False, force=True)

    def _lay_out(self) -> None:
        width = max(0, self.scrollable_content_region.width - MARGIN)
        self._shown = fitting(self._columns, width, all=self.all_columns)
        self._measure()
        self.refresh()

    def _measure(self) -> None:
        size = Size(total(self._shown) + MARGIN, len(self.ids) + 1)
        if size != self.virtual_size:  # not by the attribute: that lays out the whole screen anew
            self.set_reactive(VirtualTable.virtual_size, size)
            self._scroll_update(size)

    def on_resize(self) -> None:
        """Other columns may fit."""
        self._lay_out()
        if self.ids:
            self._show_cursor()

    # What keys and the mouse do.

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self._move_to(self._rows.cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move by a screen."""
        self._move_to(self._rows.cursor + pages * max(1, self.size.height - 2))

    def action_move_to(self, place: int) -> None:
        """To the first (0) or last (-1) row."""
        self._move_to(len(self.ids) - 1 if place < 0 else place)

    def action_side(self, cells: int) -> None:
        """Scroll sideways."""
        self.scroll_to(x=self.scroll_offset.x + cells, animate=False)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.ids:
            self.post_message(self.Opened(self, self.cursor_id))

    def action_mark(self) -> None:
        """Mark or unmark the row, and go on to the next."""
        if self.ids:
            self._rows.toggle_mark()
            self._marks_changed()
            self.action_move(1)

    def action_mark_range(self) -> None:
        """Mark from the row marked last to the cursor."""
        if self.ids:
            self._rows.mark_range()
            self._marks_changed()

    def unmark(self) -> None:
        """Mark nothing."""
        self.marked.clear()
        self._marks_changed()

    def mark_all(self) -> None:
        """Mark every row."""
        self._rows.mark_all()
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.Marked(self))

    def _move_to(self, place: int) -> None:
        if not self.ids:
            return
        before = self._rows.cursor
        self._rows.move_to(place)
        self._show_cursor()
        for row in (before, self._rows.cursor):
            self._draw_again(row - self.scroll_offset.y)
        self.post_message(self.Moved(self, self.cursor_id))

    def _show_cursor(self) -> None:
        top, height = round(self.scroll_target_y), max(1, self.size.height - 1)
        cursor = self._rows.cursor
        if cursor < top:
            self._scroll_y(cursor)
        elif cursor >= top + height:
            self._scroll_y(cursor - height + 1)

    def on_click(self, event: events.Click) -> None:
        """A title sorts; a row takes the cursor; twice opens it."""
        if event.y == 0:
            if column := self._column_at(event.x + self.scroll_offset.x):
                self.post_message(self.HeaderClicked(self, column.key))
            return
        place = self.scroll_offset.y + event.y - 1
        if place < len(self.ids):
            self._move_to(place)
            if event.chain == 2:
                self.action_open()

    def _column_at(self, x: int) -> Column | None:
        left = MARGIN
        for column in self._shown:
            if left <= x < left + column.width + GAP:
                return column
            left += column.width + GAP
        return None

    # Drawing.

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the screen; how they look is found out once for all of them."""
        if not self._styles:
            self._styles = {n: self.get_component_rich_style(f"table--{n}") for n in _STYLES}
            self._styles["row"] = self.rich_style
        self._lines = self._look()
        return super().render_lines(crop)

    def _look(self) -> RowLines:
        width, left = self.size.width, self.scroll_offset.x
        shades = tones(self.app.current_theme)
        return RowLines(self._styles, shades, self._shown, width, left, self._clock())

    def notify_style_update(self) -> None:
        """Another theme, or the focus came or went."""
        super().notify_style_update()
        self._styles = {}

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        assert self._lines is not None
        self._drawn[y] = self._line(self._lines, y)
        return self._drawn[y]

    def _line(self, lines: RowLines, y: int) -> Strip:
        rows, place = self._rows, self.scroll_offset.y + y - 1
        if y == 0:
            return lines.header(self.sorted_by)
        if place >= len(rows.ids):
            return lines.blank(self.empty if not rows.ids and place == 1 else "")
        id, cursor = rows.ids[place], place == rows.cursor
        marked = id in rows.marked
        style = (
            "cursor" if cursor else "marked" if marked else "fresh" if id in self.fresh else "row"
        )
        return lines.row(self._row_of(id), style, cursor=cursor, marked=marked)
