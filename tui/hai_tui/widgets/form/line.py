"""One line of a form: what it is called, a line to type in, and below it a hint or what is wrong."""

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


class _FormField(OrderedInput):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+tab", "app.focus_previous", show=False),
        Binding("down,tab", "app.focus_next", show=False),
    ]


class FormLine(Vertical):
    """Its input posts Changed and Submitted as any other; the line is its grandparent."""

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
        self.input = _FormField(value, compact=True, placeholder=example, password=secret)
        self.input.cursor_blink = False
        if choices:
            self.offer(choices)

    def compose(self) -> ComposeResult:
        """Label and input, and what stands below."""
        with Horizontal():
            yield Label(self._label, classes="name")
            yield self.input
        yield Label("", classes="about")

    def on_mount(self) -> None:
        """Nothing is wrong yet."""
        self.wrong("")

    @property
    def value(self) -> str:
        """What stands there."""
        return self.input.value

    def show(self, value: str) -> None:
        """Let something else stand there; nobody hears of it, and one types on behind it."""
        if self.input.value != value:
            with self.input.prevent(Input.Changed):
                self.input.value = value
            self.input.cursor_position = len(value)

    def offer(self, choices: Sequence[str]) -> None:
        """Complete these words from now on."""
        self.input.suggester = SuggestFromList(choices, case_sensitive=False)
        self.input.placeholder = " | ".join(choices)

    def wrong(self, message: str) -> None:
        """Say what is wrong; empty: show the hint. Nothing happens to a line whose page has gone."""
        for line in self.query(".about").results(Label):
            line.update(f"✗ {message}" if message else self._hint)
            line.set_class(bool(message), "wrong")
            line.set_class(bool(message or self._hint), "shown")
