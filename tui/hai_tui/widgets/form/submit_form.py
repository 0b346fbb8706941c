"""The form of a task: a line for each field, and lists for variables, services and dependencies."""

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
    """Shows a spec, posts what the user types, and shows errors beside their lines."""

    DEFAULT_CSS = "SubmitForm { width: 1fr; height: 1fr; padding: 0 1; }"

    class Changed(Message):
        """The user has changed a field."""

        def __init__(self, path: str, value: Value) -> None:
            super().__init__()
            self.path, self.value = path, value

    def __init__(self) -> None:
        super().__init__()
        self._lines = {path: _line(path) for path in drafts.FIELDS if path not in list_fields.LISTS}
        self._lists = {path: _list(path) for path in list_fields.LISTS}

    def compose(self) -> ComposeResult:
        for path in drafts.FIELDS:
            yield self._lists[path] if path in self._lists else self._lines[path]

    def value(self, path: str) -> Value:
        """Return the value of a line, or the elements of a list."""
        return self._lists[path].elements if path in self._lists else self._lines[path].value

    def focus_first(self) -> None:
        self.screen.set_focus(self._lines["name"].input)

    def set_choices(self, path: str, choices: Sequence[str]) -> None:
        """Set the words that a line completes while the user types."""
        self._lines[path].set_choices(choices)

    def show_spec(self, spec: TaskSpec) -> None:
        """Show the values of a spec without posting Changed."""
        values = drafts.field_values(spec)
        for path, line in self._lines.items():
            line.set_value(str(values[path]))
        for path, elements in self._lists.items():
            elements.set_elements(values[path])

    def mark_changes(self, original: TaskSpec | None) -> None:
        """Highlight the fields that differ from the original."""
        values = drafts.field_values(original or TaskSpec())
        for path, line in (self._lines | self._lists).items():
            line.set_class(self.value(path) != values[path], "edited")

    def show_errors(self, messages: Mapping[str, str]) -> None:
        """Show errors, given by path, beside their lines."""
        for path, line in self._lines.items():
            line.show_error(messages.get(path, ""))
        for path, elements in self._lists.items():
            paths = list_fields.violation_paths(path, elements.value)
            errors = [messages.get(each, "") for each in paths]
            errors[-1] = messages.get(path, "")  # errors of the whole list
            elements.show_errors(errors)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        line = next(line for line in self._lines.values() if line.input is event.input)
        self.post_message(self.Changed(line.key, line.value))

    def on_form_list_changed(self, event: FormList.Changed) -> None:
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
