"""One line of a form: a label, an input field, and below them a hint or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.suggester import SuggestFromList
from textual.widgets import Input

from hai_tui.widgets.form.ordered_input import OrderedInput
from hai_tui.widgets.plain import Label


class _LineInput(OrderedInput):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+tab", "app.focus_previous", show=False),
        Binding("down,tab", "app.focus_next", show=False),
    ]


class FormLine(Vertical):
    """A line of a form. Its input field posts Changed and Submitted; the line is the field's grandparent."""

    DEFAULT_CSS = """
    FormLine { height: auto; }
    FormLine > Horizontal { height: 1; }
    FormLine .name { width: 27; color: $foreground; }
    FormLine Input, FormLine Input:focus { border: none; height: 1; width: 1fr; padding: 0;
        background: $panel; }
    FormLine Input:focus { background: $primary 35%; }
    FormLine .about { color: $foreground 70%; width: 1fr; height: auto; padding-left: 27; display: none; }
    FormLine .about.wrong { color: $error; text-style: bold; }
    FormLine .about.shown { display: block; }
    FormLine.edited .name { text-style: bold; color: $accent; }
    """

    def __init__(
        self,
        key: str,
        label: str,
        value: str = "",
        *,
        hint: str = "",
        choices: Sequence[str] = (),
        example: str = "",
        secret: bool = False,
    ) -> None:
        super().__init__()
        self.key = key
        self._label, self._hint = label, hint
        self.input = _LineInput(value, compact=True, placeholder=example, password=secret)
        self.input.cursor_blink = False
        if choices:
            self.set_choices(choices)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._label, classes="name")
            yield self.input
        yield Label("", classes="about")

    def on_mount(self) -> None:
        self.show_error("")

    @property
    def value(self) -> str:
        return self.input.value

    def set_value(self, value: str) -> None:
        """Replace the value without posting Changed, and put the cursor at the end."""
        if self.input.value != value:
            with self.input.prevent(Input.Changed):
                self.input.value = value
            self.input.cursor_position = len(value)

    def set_choices(self, choices: Sequence[str]) -> None:
        """Set the words that the line completes while the user types."""
        self.input.suggester = SuggestFromList(choices, case_sensitive=False)
        self.input.placeholder = " | ".join(choices)

    def show_error(self, message: str) -> None:
        """Show an error, or the hint if the error is empty. Does nothing once the page is closed."""
        for label in self.query(".about").results(Label):
            label.update(f"✗ {message}" if message else self._hint)
            label.set_class(bool(message), "wrong")
            label.set_class(bool(message or self._hint), "shown")
