"""Lines of a form for a list of things: the last one is empty, and what is typed there is one more."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from hai_tui.widgets.form.line import FormLine


class FormList(Vertical):
    """A thing a line; an empty line is nothing."""

    DEFAULT_CSS = """
    FormList { height: auto; }
    FormList.edited .name { text-style: bold; color: $accent; }
    """

    class Changed(Message):
        """Something else stands in its lines."""

        def __init__(self, lines: FormList) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, key: str, label: str, *, example: str = "") -> None:
        super().__init__()
        self.key = key
        self._label, self._example = label, example
        self._lines = [self._line("")]

    def compose(self) -> ComposeResult:
        """The first line has the label."""
        yield from self._lines

    @property
    def value(self) -> list[str]:
        """What stands in the lines, also in those that are empty."""
        return [line.value for line in self._lines]

    @property
    def filled(self) -> list[str]:
        """What stands in those that are not."""
        return [value for value in self.value if value.strip()]

    def show(self, values: Sequence[str]) -> None:
        """Let other things stand there; nobody hears of it."""
        if self.filled == list(values):
            return
        for line, value in zip(self._lines, [*values, ""], strict=False):
            line.show(value)
        for value in [*values, ""][len(self._lines) :]:
            self._add(value)
        for line in self._lines[len(values) + 1 :]:
            line.remove()
        del self._lines[len(values) + 1 :]

    def wrong(self, messages: Sequence[str]) -> None:
        """Say what is wrong below each line."""
        for line, sentence in zip(self._lines, messages, strict=True):
            line.wrong(sentence)

    def on_input_changed(self, event: Input.Changed) -> None:
        """There is always room for one more."""
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
