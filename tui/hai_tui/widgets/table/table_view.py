"""What a table shows: any number of rows, of which only visible cells are ever formatted.

Rows are ids; what stands in them is asked of `row_of` when it is drawn. A line is kept until its row, its look
or its ages say something else, so that moving, filtering and laying out anew draw what is there already.
(Textual's own DataTable takes seconds at 10 000 rows.)
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
"""Ages are looked at so often; only lines that say something else then are drawn."""
Form = tuple[str, bool, bool]
"""The style of a line, and whether cursor and mark are on it."""
_STYLES = ("header", "cursor", "marked", "fresh", "empty")


class TableView(SizedScrollView):
    """Shows ids in the order given. What keys and the mouse do is `table/virtual_table.py`."""

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
        self._width = 0  # for which columns were chosen
        self.fresh: set[Any] = set()
        self.sorted_by: tuple[str, bool] = ("", False)
        self.all_columns = False
        self.empty = empty
        self._styles: dict[str, Style] = {}
        self._restyled = True  # perhaps: the focus comes and goes more often than another theme
        self._lines: RowRenderer | None = None  # None: lines that are kept look otherwise now
        self._blank = Strip([])
        self._line_cache: dict[Any, dict[Form, Strip]] = {}

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
        return any(column.key == key for column in self._visible_columns)

    def on_mount(self) -> None:
        """Ages go on by themselves."""
        self.set_interval(AGES_SECONDS, self._refresh_ages)

    # With the keyboard it looks as without: Textual would style it anew and draw all of it.

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Nothing is styled by it."""

    def on_focus(self, event: events.Focus) -> None:
        """As Textual does, but drawn is nothing."""
        event.prevent_default()
        self.has_focus = True
        if self.parent is not None:
            self.parent.post_message(events.DescendantFocus(self))

    def on_blur(self, event: events.Blur) -> None:
        """As above."""
        event.prevent_default()
        self.has_focus = False
        if self.parent is not None:
            self.parent.post_message(events.DescendantBlur(self))

    # What is shown.

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._lay_out()

    def show(self, ids: Sequence[Any]) -> None:
        """Show these rows, which may say other things than before."""
        self.reorder(ids)
        self.redraw()

    def reorder(self, ids: Sequence[Any]) -> None:
        """Show these rows, of which none says anything else; cursor, marks and scroll position stay with their ids."""
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
        """Draw these rows again where they are visible."""
        lines = {id: line for line, (id, _) in enumerate(self._visible_rows())}
        for id in ids:
            self._line_cache.pop(id, None)
        self._draw_again(*(lines[id] for id in ids if id in lines))

    def redraw(self) -> None:
        """Every row may say something else."""
        self._lines = None
        self.refresh()

    def cursor_moved(self) -> None:
        """Hook: the cursor stands on another row."""

    def _visible_rows(self) -> list[tuple[Any, bool]]:
        """What stands on each line below the titles, and where the cursor is."""
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
        """Lines as they are kept. Textual's own way styles each of them again, which costs as much as making it."""
        self._restyle()
        if self._lines is None or self._clock() - self._lines.now > AGES_SECONDS:
            self._reset_line_cache()
        strips = [self._line(y) for y in crop.line_range]
        background = self.background_colors[1]
        for each in self.get_line_filters():
            strips = [strip.apply_filter(each, background) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def watch_scroll_x(self, old: float, new: float) -> None:
        """Other cells of each line."""
        super().watch_scroll_x(old, new)
        self._lines = None

    def notify_style_update(self) -> None:
        """Another theme, or the focus came or went."""
        super().notify_style_update()
        self._restyled = True

    def _restyle(self) -> None:
        if self._restyled:
            styles = {name: self.get_component_rich_style(f"table--{name}") for name in _STYLES}
            styles["row"] = self.rich_style
            if styles != self._styles:
                self._styles, self._lines = styles, None
            self._restyled = False

    def _reset_line_cache(self) -> None:
        """How lines look from now on; none is kept."""
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
            *(line for line, (id, _) in visible_rows if self._aged(id, before.get(id, {})))
        )

    def _aged(self, id: Any, before: Mapping[Form, Strip]) -> bool:
        aged = False
        for form, old in before.items():
            if self._row(id, form) == old:
                self._line_cache[id][form] = old  # it was cut and styled already
            else:
                aged = True
        return aged

    def _draw_again(self, *lines: int) -> None:
        if lines:
            self.refresh(*(Region(0, line + 1, self.size.width, 1) for line in lines))

    def _line(self, y: int) -> Strip:
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
        return self._row(id, (style, cursor, marked))

    def _empty_message_line(self, index: int) -> str:
        """What stands there instead of rows: from the second line on, folded."""
        folded = wrap(self.empty, max(20, self.size.width - 4))
        return folded[index - 1] if 0 < index <= len(folded) else ""

    def _row(self, id: Any, form: Form) -> Strip:
        cached_lines = self._line_cache.setdefault(id, {})
        if form not in cached_lines:
            assert self._lines is not None
            style, cursor, marked = form
            cached_lines[form] = self._lines.row(
                self._row_of(id), style, cursor=cursor, marked=marked
            )
        return cached_lines[form]
