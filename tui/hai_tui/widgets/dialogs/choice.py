"""A dialog with a short list of choices; each choice has a key of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets.option_list import Option

from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import Label, OptionList, plain


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice: the id that the dialog returns, the key that picks it, and its sentence."""

    id: str
    key: str
    label: str


class ChoiceDialog(Dialog[str]):
    """Returns the id of a choice; empty if the user picks none."""

    DEFAULT_CSS = """
    ChoiceDialog { align: center middle; background: $background 60%; }
    ChoiceDialog > Vertical { width: 76; max-width: 95%; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 1 1 0 1; }
    ChoiceDialog OptionList, ChoiceDialog OptionList:focus { height: auto; max-height: 20; border: none;
        background: $surface; }
    ChoiceDialog .about { color: $foreground; margin: 0 1 1 1; width: 1fr; }
    ChoiceDialog Label { color: $foreground 70%; margin: 1 1 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", show=False)]

    def __init__(self, title: str, choices: Sequence[Choice], about: str = "") -> None:
        super().__init__()
        self._title, self._choices, self._about = title, choices, about

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = plain(self._title)
            if self._about:
                yield Label(self._about, classes="about")
            yield OptionList(
                *(Option(f"{c.key or ' ':<2} {c.label}", id=c.id) for c in self._choices),
            )
            yield Label(text("choose.keys"))

    def on_own_key(self, event: events.Key) -> None:
        """Pick the choice whose key was pressed."""
        for choice in self._choices:
            if choice.key and event.character == choice.key:
                event.stop()
                self.dismiss(choice.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")
