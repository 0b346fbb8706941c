"""Checkboxes that show their state by a character; those of Textual show it by colour only."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Checkbox, SelectionList
from textual.widgets.option_list import OptionDoesNotExist


class PlainCheckbox(Checkbox):
    """One box: empty until it is ticked."""

    BUTTON_INNER = property(lambda self: "X" if self.value else " ")


class CheckboxList(SelectionList[str]):
    """A list of boxes."""

    def render_line(self, y: int) -> Strip:
        """As Textual does, without a sign in a box that is not ticked."""
        strip = super().render_line(y)
        try:
            option = self.get_option_at_index(self.scroll_offset.y + y)
        except OptionDoesNotExist:
            return strip
        if option.value in self.selected:
            return strip
        left, sign, *other_segments = strip
        return Strip([left, Segment(" ", sign.style), *other_segments])
