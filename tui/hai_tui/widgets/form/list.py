"""Lines of a form for a list. The last line is always empty; text in it becomes a new element."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from hai_tui.widgets.form.line import FormLine


class FormList(Vertical):
    """A list with one line for each element; empty lines are ignored."""

    DEFAULT_CSS = """
    FormList { height: auto; }
    FormList.edited .name { text-style: bold; color: $accent; }
    """

    class Changed(Message):
        """The user has changed a line."""

        def __init__(self, lines: FormList) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, key: str, label: str, *, example: str = "") -> None:
        super().__init__()
        self.key = key
        self._label, self._example = label, example
        self._lines = [self._line("")]

    def compose(self) -> ComposeResult:
        yield from self._lines

    @property
    def value(self) -> list[str]:
        """Return the texts of all lines, empty ones included."""
        return [line.value for line in self._lines]

    @property
    def elements(self) -> list[str]:
        """Return the texts of the lines that are not empty."""
        return [value for value in self.value if value.strip()]

    def set_elements(self, values: Sequence[str]) -> None:
        """Replace the elements without posting Changed."""
        if self.elements == list(values):
            return
        for line, value in zip(self._lines, [*values, ""], strict=False):
            line.set_value(value)
        for value in [*values, ""][len(self._lines) :]:
            self._add(value)
        for line in self._lines[len(values) + 1 :]:
            line.remove()
        del self._lines[len(values) + 1 :]

    def show_errors(self, messages: Sequence[str]) -> None:
        """Show an error below each line; empty ones for lines without a fault."""
        for line, message in zip(self._lines, messages, strict=True):
            line.show_error(message)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Add an empty line when the last one is filled."""
        event.stop()
        if self._lines[-1].value.strip():
            self._add("")
        self.post_message(self.Changed(self))

    def _add(self, value: str) -> None:
        self._lines.append(self._line(value))
        self.mount(self._lines[-1])

    def _line(self, value: str) -> FormLine:
        first = not getattr(self, "_lines", ())
        return FormLine(self.key, self._label if first else "", value, example=self._example)
