"""A dialog that asks before an action that cannot be undone; a dangerous action asks the user to type a word."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.form.ordered_input import OrderedInput
from hai_tui.widgets.plain import Label


class ConfirmDialog(Dialog[bool]):
    """Returns True for yes. With `word_to_type`, only that word followed by enter means yes."""

    DEFAULT_CSS = """
    ConfirmDialog { align: center middle; background: $background 60%; }
    ConfirmDialog > Vertical { width: 70%; max-width: 90; height: auto; padding: 1 2;
                         border: round $warning; background: $surface; }
    ConfirmDialog Label { width: 1fr; }
    ConfirmDialog .hint { color: $foreground 70%; margin-top: 1; }
    ConfirmDialog Input { border: none; height: 1; background: $panel; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
    ]

    def __init__(self, question: str, word_to_type: str = "") -> None:
        super().__init__()
        self._question, self._word_to_type = question, word_to_type

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(self._question)
            if self._word_to_type:
                yield OrderedInput(compact=True)
                yield Label(text("confirm.typed", word=self._word_to_type), classes="hint")
            else:
                yield Label(text("confirm.keys"), classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self._word_to_type:
            self.dismiss(True)

    def action_answer(self, yes: bool) -> None:
        """Close with the answer, unless the user must type a word."""
        if not (yes and self._word_to_type):
            self.dismiss(yes)
