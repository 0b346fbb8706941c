"""Input fields that handle keys in the order in which they were typed.

Textual hands a key such as backspace up to the page and does there what the field has for it; letters that were
typed at once after it, as over a slow line, are in the field by then.
"""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


class OrderedInput(Input):
    """One line."""

    async def _on_key(self, event: events.Key) -> None:
        """Textual calls Input's own after this."""
        focused_widget = self.screen.focused
        if focused_widget is None or focused_widget is self:
            await _run_field_action(self, event)
        else:  # typed behind a key that led to another field
            event.stop()
            event.prevent_default()
            focused_widget.post_message(events.Key(event.key, event.character))

    def accepts(self, event: events.Key) -> bool:
        """True for keys that it never hands on."""
        return event.is_printable or bool(_field_actions(self, event.key))


class OrderedTextArea(TextArea):
    """Many lines."""

    async def _on_key(self, event: events.Key) -> None:
        await _run_field_action(self, event)


def _field_actions(field: Widget, key: str) -> list[str]:
    """What it does for a key. What ends it stays behind all that may still be on its way to it."""
    bindings = field._bindings.key_to_bindings.get(key, ())
    return [b.action for b in bindings if b.action not in ("submit", "cancel", "copy")]


async def _run_field_action(field: Widget, event: events.Key) -> None:
    for action in _field_actions(field, event.key):
        if await field.app.run_action(action, field):
            event.stop()
            event.prevent_default()
            return
