"""Shows a table with any number of rows; only visible cells are formatted.

Rows are ids; `row_of` returns the content of a row when it is drawn. A drawn line is cached until its content, its
style or an age in it changes, so moving, filtering and laying out draw cached lines. (Textual's own DataTable takes
seconds at 10 000 rows.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip

from hai_tui.formatting.cells import Column, fitting, total
from hai_tui.style.theme import tones
from hai_tui.widgets.scroll_view import SizedScrollView
from hai_tui.widgets.table.row_lines import MARGIN, RowRenderer
from hai_tui.widgets.table.rows import Rows

AGES_SECONDS = 1.0
"""Ages are computed so often; only lines that change are drawn."""
LineState = tuple[str, bool, bool]
"""The style of a line, and whether it has the cursor and the mark."""
_STYLES = ("header", "cursor", "marked", "fresh", "empty")


class TableView(SizedScrollView):
    """Shows rows in the given order. `table/virtual_table.py` handles keys and the mouse."""

    DEFAULT_CSS = """
    TableView { height: 1fr; background: $background; scrollbar-size-vertical: 1;
                scrollbar-size-horizontal: 1; scrollbar-gutter: stable; }
    TableView > .table--header { text-style: bold; color: $foreground; background: $panel; }
    TableView > .table--cursor { background: $primary 35%; text-style: bold; }
    TableView > .table--marked { background: $secondary 25%; }
    TableView > .table--fresh { background: $accent 20%; }
    TableView > .table--empty { color: $foreground 70%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"table--{name}" for name in _STYLES}

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
        self._visible_columns: tuple[Column, ...] = ()
        self._width = 0  # the visible columns fit this width
        self.fresh: set[Any] = set()
        self.sorted_by: tuple[str, bool] = ("", False)
        self.all_columns = False
        self.empty = empty  # shown while there are no rows
        self._styles: dict[str, Style] = {}
        self._styles_may_differ = True  # a change of the focus sets it, too, and changes no style
        self._lines: RowRenderer | None = None  # None if cached lines are out of date
        self._blank = Strip([])
        self._line_cache: dict[Any, dict[LineState, Strip]] = {}

    @property
    def ids(self) -> Sequence[Any]:
        """Return the ids of all rows in order."""
        return self._rows.ids

    @property
    def marked(self) -> set[Any]:
        """Return the ids of the marked rows."""
        return self._rows.marked

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return all columns, also those that do not fit."""
        return self._columns

    @property
    def cursor_id(self) -> Any:
        """Return the id of the row under the cursor; None without rows."""
        return self._rows.cursor_id

    @property
    def chosen(self) -> list[Any]:
        """Return the marked ids in order, else the one under the cursor."""
        return self._rows.chosen

    def shows_column(self, key: str) -> bool:
        """Return whether the column is visible."""
        return any(column.key == key for column in self._visible_columns)

    def on_mount(self) -> None:
        self.set_interval(AGES_SECONDS, self._refresh_ages)

    # A table looks the same with and without the focus. Textual would style and draw all of it again.

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Replace the handler that styles the widget again."""

    def on_focus(self, event: events.Focus) -> None:
        """Do what Textual does, without drawing."""
        event.prevent_default()
        self.has_focus = True
        if self.parent is not None:
            self.parent.post_message(events.DescendantFocus(self))

    def on_blur(self, event: events.Blur) -> None:
        """Do what Textual does, without drawing."""
        event.prevent_default()
        self.has_focus = False
        if self.parent is not None:
            self.parent.post_message(events.DescendantBlur(self))

    # Content.

    def set_columns(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._lay_out()

    def show(self, ids: Sequence[Any]) -> None:
        """Show these rows, whose content may have changed."""
        self.reorder(ids)
        self.redraw()

    def reorder(self, ids: Sequence[Any]) -> None:
        """Show these rows, whose content is unchanged; cursor, marks and scroll position stay with their ids."""
        rows = self._rows
        if ids == rows.ids:
            return
        top, before, cursor = round(self.scroll_target_y), self._visible_rows(), rows.cursor_id
        anchor, offset = rows.anchor(top, self.size.height - 1)
        index = rows.cursor
        rows.replace(ids)
        self._measure()
        if rows.user_moved and anchor is not None:
            self._scroll_y(rows.index_of(anchor, index) - offset)
        if rows.cursor_id != cursor:
            self.cursor_moved()
        pairs = enumerate(zip(before, self._visible_rows(), strict=True))
        self._draw_again(*(line for line, (old, new) in pairs if old != new))

    def changed(self, ids: Collection[Any]) -> None:
        """Draw these rows again if they are visible."""
        lines = {id: line for line, (id, _) in enumerate(self._visible_rows())}
        for id in ids:
            self._line_cache.pop(id, None)
        self._draw_again(*(lines[id] for id in ids if id in lines))

    def redraw(self) -> None:
        """Draw every row again."""
        self._lines = None
        self.refresh()

    def cursor_moved(self) -> None:
        """Hook: the cursor is on another row."""

    def _visible_rows(self) -> list[tuple[Any, bool]]:
        """Return the id on each line below the titles, and whether the cursor is there."""
        rows, top, height = self._rows, self.scroll_offset.y, max(0, self.size.height - 1)
        ids = rows.ids[top : top + height]
        visible_rows = [(id, index == rows.cursor) for index, id in enumerate(ids, start=top)]
        return visible_rows + [(None, not rows.ids)] * (height - len(visible_rows))

    def _scroll_y(self, y: float) -> None:
        self.scroll_to(y=max(0, y), animate=False, force=True)

    def _lay_out(self) -> None:
        self._width = self.scrollable_content_region.width
        available_width = max(0, self._width - MARGIN)
        self._visible_columns = fitting(self._columns, available_width, all=self.all_columns)
        self._measure()
        self.redraw()

    def _measure(self) -> None:
        self.measure(Size(total(self._visible_columns) + MARGIN, len(self.ids) + 1))

    # Drawing.

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return cached lines. Textual's own method styles each line again, which costs as much as drawing it."""
        self._restyle()
        if self._lines is None or self._clock() - self._lines.now > AGES_SECONDS:
            self._reset_line_cache()
        strips = [self._draw_line(y) for y in crop.line_range]
        background = self.background_colors[1]
        for each in self.get_line_filters():
            strips = [strip.apply_filter(each, background) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def watch_scroll_x(self, old: float, new: float) -> None:
        """Drop the cached lines, which show other cells."""
        super().watch_scroll_x(old, new)
        self._lines = None

    def notify_style_update(self) -> None:
        """Check the styles at the next drawing, after a change of the theme or of the focus."""
        super().notify_style_update()
        self._styles_may_differ = True

    def _restyle(self) -> None:
        if self._styles_may_differ:
            styles = {name: self.get_component_rich_style(f"table--{name}") for name in _STYLES}
            styles["row"] = self.rich_style
            if styles != self._styles:
                self._styles, self._lines = styles, None
            self._styles_may_differ = False

    def _reset_line_cache(self) -> None:
        """Drop all cached lines; draw new ones with the current styles, columns and scroll position."""
        self._line_cache = {}
        self._lines = RowRenderer(
            self._styles,
            tones(self.app.current_theme),
            self._visible_columns,
            width=self.size.width,
            gutter=self.outer_size.width - self.size.width,
            left=self.scroll_offset.x,
            now=self._clock(),
        )
        self._blank = self._lines.blank()

    def _refresh_ages(self) -> None:
        before = self._line_cache
        if not before or not self.is_on_screen:
            return
        self._reset_line_cache()
        visible_rows = enumerate(self._visible_rows())
        self._draw_again(
            *(line for line, (id, _) in visible_rows if self._ages_changed(id, before.get(id, {})))
        )

    def _ages_changed(self, id: Any, before: Mapping[LineState, Strip]) -> bool:
        changed = False
        for line_state, old in before.items():
            if self._draw_row(id, line_state) == old:
                self._line_cache[id][line_state] = old  # this one is already cut and styled
            else:
                changed = True
        return changed

    def _draw_again(self, *lines: int) -> None:
        if lines:
            self.refresh(*(Region(0, line + 1, self.size.width, 1) for line in lines))

    def _draw_line(self, y: int) -> Strip:
        assert self._lines is not None
        rows, index = self._rows, self.scroll_offset.y + y - 1
        if y == 0:
            return self._lines.header(self.sorted_by)
        if index >= len(rows.ids):
            message = self._empty_message_line(index) if not rows.ids else ""
            return self._lines.blank(message) if message else self._blank
        id, cursor = rows.ids[index], index == rows.cursor
        marked = id in rows.marked
        style = (
            "cursor" if cursor else "marked" if marked else "fresh" if id in self.fresh else "row"
        )
        return self._draw_row(id, (style, cursor, marked))

    def _empty_message_line(self, index: int) -> str:
        """Return one line of the message of an empty table, which starts on the second line."""
        folded = wrap(self.empty, max(20, self.size.width - 4))
        return folded[index - 1] if 0 < index <= len(folded) else ""

    def _draw_row(self, id: Any, line_state: LineState) -> Strip:
        cached_lines = self._line_cache.setdefault(id, {})
        if line_state not in cached_lines:
            assert self._lines is not None
            style, cursor, marked = line_state
            cached_lines[line_state] = self._lines.row(
                self._row_of(id), style, cursor=cursor, marked=marked
            )
        return cached_lines[line_state]
