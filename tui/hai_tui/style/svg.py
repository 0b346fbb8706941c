"""Renders a screen as SVG.

Rich positions text by counting characters, so a wide character would shift the rest of its line. Each one is
therefore filled up with characters of no width.
"""

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


def render_svg(app: App[int], title: str) -> str:
    """Return the current screen as SVG; equal screens give equal texts."""
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
    below = app._background_screens  # visible around a dialog
    console.print(app.screen._compositor.render_update(full=True, screen_stack=below))
    console._record_buffer[:] = [
        p for each in console._record_buffer for p in _split_by_width(each)
    ]
    return _stable_class_names(console.export_svg(title=title))


def _split_by_width(segment: Segment) -> Iterator[Segment]:
    """Yield runs of equally wide characters, each character filled up to its width."""
    if segment.text.isascii():
        yield segment
        return
    for cell_width, characters in groupby(segment.text, cell_len):
        filled = "".join(character + _ZERO_WIDTH * (cell_width - 1) for character in characters)
        yield Segment(filled, segment.style, segment.control)


def _stable_class_names(svg: str) -> str:
    """Remove the hash of the whole screen from class names, so that a change of one cell is one line of a diff."""
    return re.sub(r"terminal-\d+", "terminal", svg)
