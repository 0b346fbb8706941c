"""The base class of dialogs, which handles keys in the order in which they were typed.

A key may arrive before the dialog has the keyboard, or after it was answered. Each key goes to what the user saw when
they pressed it.
"""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from hai_tui.widgets.form.ordered_input import OrderedInput

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A dialog. Keys typed for its input field go there; keys typed after the answer go to the page."""

    def on_key(self, event: events.Key) -> None:
        """Handle a key that no widget of the dialog has handled."""
        if not self.is_open:
            event.stop()
            self.app.post_message(events.Key(event.key, event.character))
        elif isinstance(self.focused, OrderedInput) and self.focused.accepts(event):
            event.stop()
            self.focused.post_message(events.Key(event.key, event.character))
        else:
            self.on_own_key(event)

    def on_own_key(self, event: events.Key) -> None:
        """Handle a key of the dialog itself."""

    @property
    def is_open(self) -> bool:
        """Return False once the dialog is answered."""
        return self.app.screen is self

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with an answer. A second answer is ignored, because it would close the page below."""
        return super().dismiss(result) if self.is_open else AwaitComplete()
