"""A screen as SVG. Rich counts characters where it places text, so wide ones would push their line together."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment

if TYPE_CHECKING:
    from textual.app import App

_ZERO_WIDTH = "\u200b"
"""A character that takes no place: behind a wide one, characters and places are as many."""


def picture(app: App[int], title: str) -> str:
    """What stands on the screen now, the same each time."""
    width, height = app.size
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        legacy_windows=False,
        safe_box=False,
    )
    below = app._background_screens  # what shows through a dialog
    console.print(app.screen._compositor.render_update(full=True, screen_stack=below))
    console._record_buffer[:] = [part for each in console._record_buffer for part in _parts(each)]
    return _same_names(console.export_svg(title=title))


def _parts(segment: Segment) -> Iterator[Segment]:
    """Wide characters apart from others: each part is drawn where its places begin."""
    if segment.text.isascii():
        yield segment
        return
    for cell_width, characters in groupby(segment.text, cell_len):
        filled = "".join(character + _ZERO_WIDTH * (cell_width - 1) for character in characters)
        yield Segment(filled, segment.style, segment.control)


def _same_names(svg: str) -> str:
    """Rich names its classes by a hash of the whole; a change of one cell shall be one line of a diff."""
    return re.sub(r"terminal-\d+", "terminal", svg)
