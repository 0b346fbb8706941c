"""Input fields that handle keys in the order in which they were typed.

Textual handles a key such as backspace in the page, after the field. Over a slow line, letters typed after that key may
already be in the field then. These fields handle such keys themselves.
"""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


class OrderedInput(Input):
    """A field of one line."""

    async def _on_key(self, event: events.Key) -> None:
        """Handle the key; pass it on if the focus has moved. Textual calls Input's own handler afterwards."""
        focused_widget = self.screen.focused
        if focused_widget is None or focused_widget is self:
            await _run_field_action(self, event)
        else:  # typed after a key that moved the focus
            event.stop()
            event.prevent_default()
            focused_widget.post_message(events.Key(event.key, event.character))

    def accepts(self, event: events.Key) -> bool:
        """Return True for a key that the field handles itself."""
        return event.is_printable or bool(_field_actions(self, event.key))


class OrderedTextArea(TextArea):
    """A field of many lines."""

    async def _on_key(self, event: events.Key) -> None:
        await _run_field_action(self, event)


def _field_actions(field: Widget, key: str) -> list[str]:
    """Return the actions of a key, except those that end the input, which the page handles after all earlier keys."""
    bindings = field._bindings.key_to_bindings.get(key, ())
    return [b.action for b in bindings if b.action not in ("submit", "cancel", "copy")]


async def _run_field_action(field: Widget, event: events.Key) -> None:
    for action in _field_actions(field, event.key):
        if await field.app.run_action(action, field):
            event.stop()
            event.prevent_default()
            return
