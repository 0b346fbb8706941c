"""Widgets and renderables that show text literally: text of users is neither markup nor terminal control.

Textual and Rich read `[red]`, `[/b]` and `[@click=app.quit]` in every `str` as markup, and raise an error where it is
invalid; names of tasks, nodes, tags and groups, messages and log lines may contain such text. The app therefore uses
the classes of this module for every widget that takes a `str`. tests/tui/pages/test_plain.py checks this.
"""

from __future__ import annotations

import re
from typing import Any

from rich.console import Group as RichGroup
from rich.console import RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text
from textual import widgets
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.visual import VisualType
from textual.widgets.option_list import Option

from hai_tui.formatting.table import width

_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, line ends, and characters that change the direction of writing."""


def plain(sentence: str) -> Content:
    """Return a text for parameters that take markup: titles of borders, tooltips."""
    return Content(" ".join(sentence.splitlines()))


class Static(widgets.Static):
    """A Static that shows its text literally."""

    def __init__(self, content: VisualType = "", **options: Any) -> None:
        super().__init__(content, markup=False, **options)


class Label(widgets.Label):
    """A Label that shows its text literally."""

    def __init__(self, content: VisualType = "", **options: Any) -> None:
        super().__init__(content, markup=False, **options)


class Button(widgets.Button):
    """A Button that shows its label literally."""

    def __init__(self, label: str, **options: Any) -> None:
        super().__init__(plain(label), **options)


class OptionList(widgets.OptionList):
    """An OptionList that shows its lines literally."""

    def __init__(self, *content: Option | VisualType | None, **options: Any) -> None:
        super().__init__(*content, markup=False, **options)


class Table(RichTable):
    """A table that shows its cells literally."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_literal, cells), **options)


def grid(**options: Any) -> Table:
    """Return a table without lines."""
    table = Table.grid(**options)
    assert isinstance(table, Table)
    return table


class Group(RichGroup):
    """A group that shows its texts literally."""

    def __init__(self, *parts: RenderableType) -> None:
        super().__init__(*(_literal(part) for part in parts))


def _literal(part: Any) -> Any:
    return Text(part) if isinstance(part, str) else part


class ControlCharacterFilter(LineFilter):
    """Removes control characters from everything that the app draws."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments without control characters, in the same widths."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [_without_control_characters(segment) for segment in segments]


def _without_control_characters(segment: Segment) -> Segment:
    if segment.control or not _CONTROL_CHARACTERS.search(segment.text):
        return segment
    remaining = _CONTROL_CHARACTERS.sub("", segment.text)
    blanks = " " * (segment.cell_length - width(remaining))
    return Segment(remaining + blanks, segment.style)
