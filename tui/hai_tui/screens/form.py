"""A form over the page: one line a field, what is wrong beside each, closed only by an answer that the server took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label

from hai.client.errors import HaiError, Invalid
from hai_tui.i18n import known, text
from hai_tui.resources.kind import Answers, Field

Send = Callable[[Answers], Awaitable[Any]]
"""Reads the answers, notes what is wrong with them, and sends them if nothing is."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the server has answered."""

    answer: Any


def label(name: str) -> str:
    """What a field is called."""
    return text(f"field.{name}") if known(f"field.{name}") else name


class FormScreen(ModalScreen[Done | None]):
    """Enter goes to the next field and on the last one sends; ctrl+s sends; esc leaves everything as it was."""

    DEFAULT_CSS = """
    FormScreen { align: center middle; background: $background 60%; }
    FormScreen > VerticalScroll { width: 92%; max-width: 100; height: auto; max-height: 92%;
        border: round $primary; background: $surface; padding: 1 2 0 2; }
    FormScreen Horizontal { height: 1; }
    FormScreen .name { width: 24; color: $foreground; }
    FormScreen Input, FormScreen Input:focus { border: none; height: 1; width: 1fr; padding: 0 1;
        background: $panel; }
    FormScreen Input:focus { background: $primary 35%; }
    FormScreen .about { color: $foreground 70%; width: 1fr; height: auto; padding-left: 24; display: none; }
    FormScreen .about.wrong { color: $error; text-style: bold; }
    FormScreen .about.shown { display: block; }
    FormScreen #general { color: $error; text-style: bold; width: 1fr; height: auto; margin-top: 1;
        display: none; }
    FormScreen #general.shown { display: block; }
    FormScreen #keys { color: $foreground 70%; margin: 1 0; width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False, priority=True),
        Binding("ctrl+s", "send", show=False, priority=True),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def __init__(
        self, title: str, fields: Sequence[Field], item: Any, send: Send, now: float
    ) -> None:
        super().__init__()
        self._heading, self._fields, self._item = title, tuple(fields), item
        self._send, self._now = send, now
        self._sending = False

    def compose(self) -> ComposeResult:
        """Label, line, and below them a hint or what is wrong."""
        with VerticalScroll() as box:
            box.border_title = self._heading
            box.can_focus = False
            for field in self._fields:
                with Horizontal():
                    yield Label(label(field.name), classes="name", markup=False)
                    yield self._input(field)
                yield Label("", id=f"about-{field.name}", classes="about", markup=False)
            yield Label("", id="general", markup=False)
            yield Label(text("form.keys"), id="keys", markup=False)

    def on_mount(self) -> None:
        """Hints stand below their lines."""
        for field in self._fields:
            self._tell(field.name, "", wrong=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The next field; from the last one on, send."""
        event.stop()
        if event.input.id == f"field-{self._fields[-1].name}":
            self.action_send()
        else:
            self.focus_next()

    def action_send(self) -> None:
        """Read, send, and close if it was taken."""
        if not self._sending:
            self._sending = True
            self.run_worker(self._try(), exclusive=True)

    def _input(self, field: Field) -> Input:
        words = list(field.choices)
        return Input(
            field.value(self._item),
            id=f"field-{field.name}",
            compact=True,
            suggester=SuggestFromList(words, case_sensitive=False) if words else None,
            placeholder=" | ".join(words),
            password=field.name == "password",
        )

    async def _try(self) -> None:
        values = {f.name: self.query_one(f"#field-{f.name}", Input).value for f in self._fields}
        answers = Answers(values, self._now)
        general = ""
        try:
            done = await self._send(answers)
            if not answers.wrong:
                self.dismiss(Done(done))
        except Invalid as error:
            general = self._place(error, answers)
        except HaiError as error:
            general = f"{error.message}\n{error.hint}".strip()
        self._sending = False
        if self.is_current:
            self._show(answers, general)

    def _place(self, error: Invalid, answers: Answers) -> str:
        """Violations beside their fields; what has no field here."""
        rest = []
        for violation in error.violations:
            path = violation.field
            field = next((f for f in self._fields if _means(f, path)), None)
            if field is None:
                rest.append(str(violation))
            else:
                answers.wrong[field.name] = violation.message
        return "\n".join(rest) if error.violations else error.message

    def _show(self, answers: Answers, general: str) -> None:
        for field in self._fields:
            told = answers.wrong.get(field.name, "")
            self._tell(field.name, told, wrong=bool(told))
        line = self.query_one("#general", Label)
        line.update(general)
        line.set_class(bool(general), "shown")
        if answers.wrong:
            first = next(f.name for f in self._fields if f.name in answers.wrong)
            self.query_one(f"#field-{first}", Input).focus()

    def _tell(self, name: str, told: str, *, wrong: bool) -> None:
        hint = text(f"field.{name}.hint") if known(f"field.{name}.hint") else ""
        line = self.query_one(f"#about-{name}", Label)
        line.update(f"✗ {told}" if wrong else hint)
        line.set_class(wrong, "wrong")
        line.set_class(bool(told or hint), "shown")


def _means(field: Field, path: str) -> bool:
    wanted = field.violation or field.name
    return path == wanted or path.endswith(f".{wanted}") or path.startswith(f"{wanted}[")
