"""A question over the page. Keys come before it has the keyboard, or after its answer: each is for what is seen."""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from hai_tui.widgets.form.ordered_input import OrderedInput

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """What was typed for its line goes there, what was typed after the answer goes on to the page."""

    def on_key(self, event: events.Key) -> None:
        """Only keys that nothing in it has taken come by here."""
        if not self.open:
            event.stop()
            self.app.post_message(events.Key(event.key, event.character))
        elif isinstance(self.focused, OrderedInput) and self.focused.accepts(event):
            event.stop()
            self.focused.post_message(events.Key(event.key, event.character))
        else:
            self.pressed(event)

    def pressed(self, event: events.Key) -> None:
        """A key of its own."""

    @property
    def open(self) -> bool:
        """False once it is answered."""
        return self.app.screen is self

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with an answer. The first one counts: one more would close what lies below."""
        return super().dismiss(result) if self.open else AwaitComplete()
