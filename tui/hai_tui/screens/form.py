"""A dialog with a form: one line for each field, errors beside them. It closes when the server accepts the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input

from hai.client.errors import HaiError, Invalid
from hai_tui.i18n import exists, text
from hai_tui.resources.resource_spec import Answers, Field
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.form.line import FormLine
from hai_tui.widgets.plain import Label, plain

Send = Callable[[Answers], Awaitable[Any]]
"""Reads the answers, notes their errors, and sends them if there is none."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer of the server."""

    answer: Any


def _label(name: str) -> str:
    """Return the label of a field."""
    return text(f"field.{name}") if exists(f"field.{name}") else name


class FormDialog(Dialog[Sent | None]):
    """A form. Enter goes to the next field, and sends in the last one; ctrl+s sends; esc closes without sending."""

    DEFAULT_CSS = """
    FormDialog { align: center middle; background: $background 60%; }
    FormDialog > VerticalScroll { width: 92%; max-width: 100; height: auto; max-height: 92%;
        border: round $primary; background: $surface; padding: 1 2 0 2; }
    FormDialog #general { color: $error; text-style: bold; width: 1fr; height: auto; margin-top: 1;
        display: none; }
    FormDialog #general.shown { display: block; }
    FormDialog #keys { color: $foreground 70%; margin: 1 0; width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False, priority=True),
        Binding("ctrl+s", "send", show=False, priority=True),
    ]

    def __init__(
        self, title: str, fields: Sequence[Field], item: Any, send: Send, now: float
    ) -> None:
        super().__init__()
        self._heading, self._fields, self._item = title, tuple(fields), item
        self._send, self._now = send, now
        self._sending = False
        self._values_with_warnings: dict[str, str] | None = (
            None  # sent if the user sends them again
        )
        self._lines = {field.name: self._line(field) for field in self._fields}

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain(self._heading)
            box.can_focus = False
            yield from self._lines.values()
            yield Label("", id="general")
            yield Label(text("form.keys"), id="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the next field, or send in the last one."""
        event.stop()
        if event.input is self._lines[self._fields[-1].name].input:
            self.action_send()
        else:
            self.focus_next()

    def action_send(self) -> None:
        if not self._sending:
            self._sending = True
            self.run_worker(self._send_answers(), exclusive=True)

    def _line(self, field: Field) -> FormLine:
        key = f"field.{field.name}.hint"
        return FormLine(
            field.name,
            _label(field.name),
            field.value(self._item),
            hint=text(key) if exists(key) else "",
            choices=field.choices,
            secret=field.name == "password",
        )

    async def _send_answers(self) -> None:
        values = {name: line.value for name, line in self._lines.items()}
        answers = Answers(values, self._now, warnings_accepted=values == self._values_with_warnings)
        general = ""
        try:
            answer = await self._send(answers)
            if not answers.errors:
                self.dismiss(Sent(answer))
        except Invalid as error:
            general = self._assign_violations(error, answers)
        except HaiError as error:
            general = f"{error.message}\n{error.hint}".strip()
        self._sending = False
        self._values_with_warnings = values if answers.has_warnings else None
        if self.is_current:
            self._show_errors(answers, general)

    def _assign_violations(self, error: Invalid, answers: Answers) -> str:
        """Note violations in `answers`; return those that belong to no field of the form."""
        other_violations = []
        for violation in error.violations:
            path = violation.field
            field = next((f for f in self._fields if _matches(f, path)), None)
            if field is None:
                other_violations.append(str(violation))
            else:
                answers.errors[field.name] = violation.message
        return "\n".join(other_violations) if error.violations else error.message

    def _show_errors(self, answers: Answers, general: str) -> None:
        for name, line in self._lines.items():
            line.show_error(answers.errors.get(name, ""))
        general_label = self.query_one("#general", Label)
        general_label.update(general)
        general_label.set_class(bool(general), "shown")
        if answers.errors:
            next(
                self._lines[f.name] for f in self._fields if f.name in answers.errors
            ).input.focus()


def _matches(field: Field, path: str) -> bool:
    expected_path = field.violation or field.name
    return (
        path == expected_path
        or path.endswith(f".{expected_path}")
        or path.startswith(f"{expected_path}[")
    )
