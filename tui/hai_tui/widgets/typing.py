"""Fields to type in, whose keys are done in the order in which they come.

Textual hands a key such as backspace up to the page and does there what the field has for it; letters that were
typed at once after it, as over a slow line, are in the field by then.
"""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


class LineField(Input):
    """One line."""

    async def _on_key(self, event: events.Key) -> None:
        """Textual calls Input's own after this."""
        now = self.screen.focused
        if now is None or now is self:
            await _do_now(self, event)
        else:  # typed behind a key that led to another field
            event.stop()
            event.prevent_default()
            now.post_message(events.Key(event.key, event.character))

    def takes(self, event: events.Key) -> bool:
        """True for keys that it never hands on; that to copy it does, where nothing is selected."""
        own = self._bindings.key_to_bindings.get(event.key, ())
        return event.is_printable or any(binding.action != "copy" for binding in own)


class TextField(TextArea):
    """Many lines."""

    async def _on_key(self, event: events.Key) -> None:
        await _do_now(self, event)


async def _do_now(field: Widget, event: events.Key) -> None:
    for binding in field._bindings.key_to_bindings.get(event.key, ()):
        if await field.app.run_action(binding.action, field):
            event.stop()
            event.prevent_default()
            return
