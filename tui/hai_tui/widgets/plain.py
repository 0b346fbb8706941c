"""Widgets and renderables that take text as it is: text of users is neither markup nor control of the terminal.

Textual and Rich read `[red]`, `[/b]` and `[@click=app.quit]` in every `str` as instructions, and raise where they make
no sense; tasks, nodes, tags, groups, messages and lines of logs may be called so. All that takes a `str` of theirs is
therefore used in the form that it has here (tests/tui/pages/test_plain.py holds the rest of the app to it).
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
"""Control characters, ends of lines, and what turns the direction of writing around."""


def plain(sentence: str) -> Content:
    """A text for what takes markup: the titles of borders, tooltips."""
    return Content(" ".join(sentence.splitlines()))


class Static(widgets.Static):
    """Shows a text as it is."""

    def __init__(self, content: VisualType = "", **options: Any) -> None:
        super().__init__(content, markup=False, **options)


class Label(widgets.Label):
    """Shows a text as it is."""

    def __init__(self, content: VisualType = "", **options: Any) -> None:
        super().__init__(content, markup=False, **options)


class Button(widgets.Button):
    """Its label is a text as it is."""

    def __init__(self, label: str, **options: Any) -> None:
        super().__init__(plain(label), **options)


class OptionList(widgets.OptionList):
    """Its lines are texts as they are."""

    def __init__(self, *content: Option | VisualType | None, **options: Any) -> None:
        super().__init__(*content, markup=False, **options)


class Table(RichTable):
    """Its cells are texts as they are."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """A `str` is a text."""
        super().add_row(*map(_as_it_is, cells), **options)


def grid(**options: Any) -> Table:
    """A table without lines."""
    made = Table.grid(**options)
    assert isinstance(made, Table)
    return made


class Group(RichGroup):
    """Its parts are texts as they are."""

    def __init__(self, *parts: RenderableType) -> None:
        super().__init__(*(_as_it_is(part) for part in parts))


def _as_it_is(part: Any) -> Any:
    return Text(part) if isinstance(part, str) else part


class ControlCharacterFilter(LineFilter):
    """The last gate before the terminal: whatever a line was made of, nothing in it steers."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in the same widths."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [_without_control_characters(segment) for segment in segments]


def _without_control_characters(segment: Segment) -> Segment:
    if segment.control or not _CONTROL_CHARACTERS.search(segment.text):
        return segment
    remaining = _CONTROL_CHARACTERS.sub("", segment.text)
    blanks = " " * (segment.cell_length - width(remaining))
    return Segment(remaining + blanks, segment.style)
