"""The map of nodes: one glyph for each node, rows by group and zone. Only visible rows are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hai.client.text.state_style import StateStyle
from hai.v1.node_pb2 import Node
from hai_tui.cluster.layout import CELL, MapPosition, MapRow, beside, cell_for, position_of, rows_of
from hai_tui.formatting.table import printable
from hai_tui.style.theme import tones


class NodeMap(ScrollView, can_focus=True):
    """The map. Posts Moved when the cursor moves to another node, and Opened on enter or a double click."""

    DEFAULT_CSS = """
    NodeMap { height: 1fr; background: $background; scrollbar-size-vertical: 1; padding: 0 1;
              scrollbar-gutter: stable; }
    NodeMap > .map--title { text-style: bold; color: $secondary; }
    NodeMap > .map--cursor { background: $primary 60%; text-style: bold; }
    NodeMap > .map--same { background: $accent 30%; }
    NodeMap > .map--empty { color: $foreground 70%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "map--title", "map--cursor", "map--same", "map--empty",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1, 0)", show=False),
        Binding("down,j", "go(1, 0)", show=False),
        Binding("left,h", "go(0, -1)", show=False),
        Binding("right", "go(0, 1)", show=False),
        Binding("pageup,ctrl+b", "go(-10, 0)", show=False),
        Binding("pagedown,ctrl+f", "go(10, 0)", show=False),
        Binding("home,g", "go(0, -1000000)", show=False),
        Binding("end,G", "go(0, 1000000)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Moved(Message):
        """The cursor is on another node."""

    class Opened(Message):
        """The user wants to see the page of a node."""

        def __init__(self, node_name: str) -> None:
            super().__init__()
            self.node_name = node_name

    def __init__(self, nodes: Mapping[str, Node], style_of: Callable[[Node], StateStyle]) -> None:
        super().__init__()
        self._nodes_by_name, self._style_of = nodes, style_of
        self._map: list[MapRow] = []
        self._cell_width = CELL
        self.cursor = ""  # the name of a node
        self.empty = ""  # shown while there are no nodes
        self.marked_task = 0  # the nodes of this task are highlighted

    @property
    def node(self) -> Node | None:
        """Return the node under the cursor."""
        return self._nodes_by_name.get(self.cursor)

    def show(self) -> None:
        """Lay the nodes out again; the cursor stays on its node."""
        nodes = list(self._nodes_by_name.values())
        width = max(1, self.scrollable_content_region.width)
        self._cell_width = cell_for(nodes, width, self.size.height)
        self._map = rows_of(nodes, width, self._cell_width)
        if self.cursor not in self._nodes_by_name:
            self.cursor = next((n for row in self._map for n in row.names), "")
            self.post_message(self.Moved())
        self.virtual_size = Size(self.size.width, len(self._map))
        self.refresh()

    def on_resize(self) -> None:
        self.show()

    def action_go(self, down: int, right: int) -> None:
        position = position_of(self._map, self.cursor)
        if position is not None:
            self._move(beside(self._map, position, down, right))

    def action_open(self) -> None:
        if self.cursor:
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the node; a double click opens it."""
        row, cell = self.scroll_offset.y + event.y, (event.x - 1) // self._cell_width
        if 0 <= row < len(self._map) and 0 <= cell < len(self._map[row].names):
            self._move(MapPosition(row, cell))
            if event.chain == 2:
                self.action_open()

    def _move(self, position: MapPosition) -> None:
        self.cursor = self._map[position.row].names[position.cell]
        top = max(0, position.row - 1)  # the row above may be the heading of the group
        self.scroll_to_region(Region(0, top, 1, position.row - top + 1), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        index = self.scroll_offset.y + y
        width = self.size.width
        if index >= len(self._map):
            style = self.get_component_rich_style("map--empty")
            sentence = self.empty if not self._map and y == 1 else ""
            return Strip([Segment(sentence, style)]).crop_extend(0, width, self.rich_style)
        row = self._map[index]
        if not row.names:
            segments = [Segment(row.title, self.get_component_rich_style("map--title"))]
        else:
            segments = self._draw_cells(row)
        return Strip(segments).crop_extend(0, width, self.rich_style)

    def _draw_cells(self, row: MapRow) -> list[Segment]:
        styles = tones(self.app.current_theme)
        segments = []
        for name in row.names:
            node = self._nodes_by_name[name]
            node_style = self._style_of(node)
            segments.append(
                Segment(node_style.glyph, self._highlight(node) + styles[node_style.tone])
            )
            segments.append(Segment(self._text_after_glyph(name), self.rich_style))
        return segments

    def _text_after_glyph(self, name: str) -> str:
        if self._cell_width == CELL:
            return " "
        return f" {printable(name)}".ljust(self._cell_width - 1)

    def _highlight(self, node: Node) -> Style:
        if node.name == self.cursor:
            return self.get_component_rich_style("map--cursor")
        if self.marked_task and any(tenant.task_id == self.marked_task for tenant in node.tenants):
            return self.get_component_rich_style("map--same")
        return self.rich_style
