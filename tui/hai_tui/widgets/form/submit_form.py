"""The form of a task: a line a field, lines for variables and services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Input

from hai.client.taskfile.fields import ENUMS
from hai.task.levels import PRIORITIES
from hai.v1.task_spec_pb2 import TaskSpec
from hai_tui.i18n import exists, text
from hai_tui.submit import draft as drafts
from hai_tui.submit import list_fields
from hai_tui.submit.draft import Value
from hai_tui.widgets.form.line import FormLine
from hai_tui.widgets.form.list import FormList

_CHOICES: Mapping[str, Sequence[str]] = {
    "priority": tuple(PRIORITIES),
    "task_type": ENUMS["TaskSpec.task_type"],
    "resource.is_spot": ("yes", "no"),
}


class SubmitForm(VerticalScroll, can_focus=False):
    """Shows specs and posts what is typed; what is wrong stands beside its line."""

    DEFAULT_CSS = "SubmitForm { width: 1fr; height: 1fr; padding: 0 1; }"

    class Changed(Message):
        """Something else stands in the line, or the lines, of a field."""

        def __init__(self, path: str, value: Value) -> None:
            super().__init__()
            self.path, self.value = path, value

    def __init__(self) -> None:
        super().__init__()
        self._lines = {path: _line(path) for path in drafts.FIELDS if path not in list_fields.LISTS}
        self._lists = {path: _list(path) for path in list_fields.LISTS}

    def compose(self) -> ComposeResult:
        """In the order of the fields."""
        for path in drafts.FIELDS:
            yield self._lists[path] if path in self._lists else self._lines[path]

    def value(self, path: str) -> Value:
        """What stands in the line, or in lines that are not empty."""
        return self._lists[path].filled if path in self._lists else self._lines[path].value

    def focus_first(self) -> None:
        """Give the keyboard to the first line."""
        self.screen.set_focus(self._lines["name"].input)

    def offer(self, path: str, choices: Sequence[str]) -> None:
        """Complete these words from now on."""
        self._lines[path].offer(choices)

    def show(self, spec: TaskSpec) -> None:
        """Let a spec stand there; nobody hears of it."""
        values = drafts.values(spec)
        for path, line in self._lines.items():
            line.show(str(values[path]))
        for path, lines in self._lists.items():
            lines.show(values[path])

    def compare(self, spec: TaskSpec | None) -> None:
        """What differs from it stands out."""
        begin = drafts.values(spec or TaskSpec())
        for path, line in (self._lines | self._lists).items():
            line.set_class(self.value(path) != begin[path], "edited")

    def wrong(self, messages: Mapping[str, str]) -> None:
        """Say what is wrong beside the lines that it is about."""
        for path, line in self._lines.items():
            line.wrong(messages.get(path, ""))
        for path, lines in self._lists.items():
            rows = [messages.get(part, "") for part in list_fields.paths(path, lines.value)]
            rows[-1] = messages.get(path, "")
            lines.wrong(rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        """In a line of its own."""
        event.stop()
        line = next(line for line in self._lines.values() if line.input is event.input)
        self.post_message(self.Changed(line.key, line.value))

    def on_form_list_changed(self, event: FormList.Changed) -> None:
        """In one of many."""
        event.stop()
        self.post_message(self.Changed(event.lines.key, event.lines.value))


def _line(path: str) -> FormLine:
    return FormLine(
        path, text(f"submit.{path}"), choices=_CHOICES.get(path, ()), example=_example(path)
    )


def _list(path: str) -> FormList:
    return FormList(path, text(f"submit.{path}"), example=_example(path))


def _example(path: str) -> str:
    key = f"submit.{path}.example"
    return text(key) if exists(key) else ""
