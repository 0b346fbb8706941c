"""A table of any number of rows: only visible cells are ever formatted.

Rows are ids; what stands in them is asked of `row_of` when it is drawn. Cursor, marks and scroll
position belong to ids, not to places, so that they stay where the user put them while rows come,
go and change order. (Textual's own DataTable takes seconds at 10 000 rows.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hai_tui.theme import tones
from hai_tui.widgets.columns import GAP, Cell, Column, fit, fitting, total

_MARGIN = 2  # cells before the first column: cursor and mark
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
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--header", "table--cursor", "table--marked", "table--fresh", "table--empty",
    }  # fmt: skip
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
        self._ids: list[Any] = []
        self._places: dict[Any, int] = {}
        self._shown: tuple[Column, ...] = ()
        self._cursor = 0
        self._steered = False  # the user has moved: from then on the cursor keeps to its id
        self._pivot: Any = None
        self.marked: set[Any] = set()
        self.fresh: set[Any] = set()
        self.sorted_by: tuple[str, bool] = ("", False)
        self.all_columns = False
        self.empty = empty
        self._styles: dict[str, Style] = {}  # looked up when the theme or the focus has changed
        self._tones: dict[str, Style] = {}
        self._now = 0.0

    @property
    def ids(self) -> Sequence[Any]:
        """All rows, in order."""
        return self._ids

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, also those that do not fit now."""
        return self._columns

    @property
    def cursor_id(self) -> Any:
        """The row under the cursor; None without rows."""
        return self._ids[self._cursor] if self._ids else None

    @property
    def chosen(self) -> list[Any]:
        """The marked rows in order, else the one under the cursor."""
        if self.marked:
            return [id for id in self._ids if id in self.marked]
        return [self.cursor_id] if self._ids else []

    def shows(self, key: str) -> bool:
        """True when that column fits now."""
        return any(column.key == key for column in self._shown)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._lay_out()

    def show(self, ids: Sequence[Any]) -> None:
        """Show these rows; cursor, marks and scroll position stay with their ids."""
        if ids == self._ids:
            return
        before, old_cursor = self.cursor_id, self._cursor
        anchor, offset = self._anchor()
        self._ids = list(ids)
        self._places = {id: place for place, id in enumerate(self._ids)}
        self.marked &= self._places.keys()
        self._cursor = self._place_of(before, old_cursor) if self._steered else 0
        self._lay_out()
        if self._steered and anchor is not None:
            self._scroll_y(self._place_of(anchor, old_cursor) - offset)
        if self.cursor_id != before:
            self.post_message(self.Moved(self, self.cursor_id))
        self.refresh()

    def changed(self, ids: Iterable[Any]) -> None:
        """Draw these rows again where they are visible."""
        top, height = self.scroll_offset.y, self.size.height
        for id in ids:
            place = self._places.get(id, -1)
            if top <= place < top + height:
                self.refresh(Region(0, place - top + 1, self.size.width, 1))

    def go(self, id: Any) -> bool:
        """Put the cursor on a row; False when it is not shown."""
        if id in self._places:
            self._move_to(self._places[id])
        return id in self._places

    def _anchor(self) -> tuple[Any, int]:
        """The row whose place on the screen stays, and its distance from the top."""
        if not self._ids:
            return None, 0
        top = min(round(self.scroll_target_y), len(self._ids) - 1)
        if top <= self._cursor < top + max(1, self.size.height - 1):
            return self.cursor_id, self._cursor - top
        return self._ids[top], 0

    def _place_of(self, id: Any, otherwise: int) -> int:
        return self._places.get(id, max(0, min(otherwise, len(self._ids) - 1)))

    def _scroll_y(self, y: float) -> None:
        self.scroll_to(y=max(0, y), animate=False, force=True)

    def _lay_out(self) -> None:
        width = max(0, self.scrollable_content_region.width - _MARGIN)
        self._shown = fitting(self._columns, width, all=self.all_columns)
        size = Size(total(self._shown) + _MARGIN, len(self._ids) + 1)
        if size != self.virtual_size:  # not by the attribute: that lays out the whole screen anew
            self.set_reactive(VirtualTable.virtual_size, size)
            self._scroll_update(size)
        self.refresh()

    def on_resize(self) -> None:
        """Other columns may fit."""
        self._lay_out()
        if self._ids:
            self._show_cursor()

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self._move_to(self._cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move by a screen."""
        self._move_to(self._cursor + pages * max(1, self.size.height - 2))

    def action_move_to(self, place: int) -> None:
        """To the first (0) or last (-1) row."""
        self._move_to(len(self._ids) - 1 if place < 0 else place)

    def action_side(self, cells: int) -> None:
        """Scroll sideways."""
        self.scroll_to(x=self.scroll_offset.x + cells, animate=False)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self._ids:
            self.post_message(self.Opened(self, self.cursor_id))

    def action_mark(self) -> None:
        """Mark or unmark the row, and go on to the next."""
        if self._ids:
            self.marked ^= {self.cursor_id}
            self._pivot = self.cursor_id
            self._marks_changed()
            self.action_move(1)

    def action_mark_range(self) -> None:
        """Mark from the row marked last to the cursor."""
        if self._ids:
            first, last = sorted((self._place_of(self._pivot, self._cursor), self._cursor))
            self.marked |= set(self._ids[first : last + 1])
            self._marks_changed()

    def unmark(self) -> None:
        """Mark nothing."""
        self.marked = set()
        self._marks_changed()

    def mark_all(self) -> None:
        """Mark every row."""
        self.marked = set(self._ids)
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.Marked(self))

    def _move_to(self, place: int) -> None:
        if not self._ids:
            return
        self._steered = True
        before, self._cursor = self._cursor, max(0, min(place, len(self._ids) - 1))
        self._show_cursor()
        top = self.scroll_offset.y
        for row in (before, self._cursor):
            self.refresh(Region(0, row - top + 1, self.size.width, 1))
        self.post_message(self.Moved(self, self.cursor_id))

    def _show_cursor(self) -> None:
        top, height = round(self.scroll_target_y), max(1, self.size.height - 1)
        if self._cursor < top:
            self._scroll_y(self._cursor)
        elif self._cursor >= top + height:
            self._scroll_y(self._cursor - height + 1)

    def on_click(self, event: events.Click) -> None:
        """A title sorts; a row takes the cursor; twice opens it."""
        if event.y == 0:
            if column := self._column_at(event.x + self.scroll_offset.x):
                self.post_message(self.HeaderClicked(self, column.key))
            return
        place = self.scroll_offset.y + event.y - 1
        if place < len(self._ids):
            self._move_to(place)
            if event.chain == 2:
                self.action_open()

    def _column_at(self, x: int) -> Column | None:
        left = _MARGIN
        for column in self._shown:
            if left <= x < left + column.width + GAP:
                return column
            left += column.width + GAP
        return None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the screen; styles are looked up once for all of them."""
        if not self._styles:
            names = ("header", "cursor", "marked", "fresh", "empty")
            self._styles = {n: self.get_component_rich_style(f"table--{n}") for n in names}
            self._styles["row"] = self.rich_style
            self._tones = tones(self.app.current_theme)
        self._now = self._clock()
        return super().render_lines(crop)

    def notify_style_update(self) -> None:
        """Another theme, or the focus came or went."""
        super().notify_style_update()
        self._styles = {}

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        left, top = self.scroll_offset
        strip = self._header() if y == 0 else self._line(top + y - 1)
        return strip.crop_extend(left, left + self.size.width, self._styles["row"])

    def _header(self) -> Strip:
        style = self._styles["header"]
        return self._strip([Segment("  ", style), *self._titles(style)], style)

    def _titles(self, style: Style) -> list[Segment]:
        key, reverse = self.sorted_by
        segments = []
        for column in self._shown:
            sign = ("▼" if reverse else "▲") if column.key == key else ""
            segments.append(Segment(fit(column.title + sign, column.width, column.right), style))
            segments.append(Segment(" " * GAP, style))
        return segments

    def _strip(self, segments: list[Segment], style: Style) -> Strip:
        return Strip(segments).extend_cell_length(self.size.width + self.scroll_offset.x, style)

    def _line(self, place: int) -> Strip:
        if place >= len(self._ids):
            told = self.empty if not self._ids and place == 1 else ""
            return Strip([Segment(f"  {told}", self._styles["empty"])])
        id = self._ids[place]
        row = self._row_of(id)
        base = self._style_of(place, id)
        marks = ("›" if place == self._cursor else " ") + ("✓" if id in self.marked else " ")
        return self._strip(self._cells(marks, row, base), base)

    def _cells(self, marks: str, row: Any, base: Style) -> list[Segment]:
        """Cells of one style beside one another are one segment: fewer to cut, to compare and to send."""
        segments, plain, gap = [], [marks], " " * GAP
        for column in self._shown if row is not None else ():
            cell = column.cell(row, self._now)
            tone = cell.tone if isinstance(cell, Cell) else "plain"
            told = cell.text if isinstance(cell, Cell) else cell
            drawn = fit(told, column.width, column.right)
            if tone == "plain":
                plain.append(drawn)
            else:
                segments += [
                    Segment("".join(plain), base),
                    Segment(drawn, base + self._tones[tone]),
                ]
                plain.clear()
            plain.append(gap)
        return [*segments, Segment("".join(plain), base)]

    def _style_of(self, place: int, id: Any) -> Style:
        if place == self._cursor:
            return self._styles["cursor"]
        if id in self.marked:
            return self._styles["marked"]
        return self._styles["fresh" if id in self.fresh else "row"]
