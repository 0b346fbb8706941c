"""A line to type in at the bottom of a page: for `:`, `/` and single values. Up and down recall earlier lines.

It takes the place of the keys, which mean nothing meanwhile; so nothing else moves or is laid out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.geometry import Size
from textual.reactive import Reactive
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input

from hai_tui.widgets.form.ordered_input import OrderedInput
from hai_tui.widgets.plain import Label


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and who hears of each change, of the answer, and that there is none."""

    label: str
    done: Callable[[str], None]
    value: str = ""
    placeholder: str = ""
    changed: Callable[[str], None] | None = None
    wrong: Callable[[], bool] | None = None  # True: what stands there is no answer, the line stays
    cancelled: Callable[[], None] | None = None
    history: Sequence[str] = ()  # the newest first
    words: Sequence[str] = ()  # completed while typing
    secret: bool = False


class _Line(OrderedInput):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "recall(1)", show=False),
        Binding("down", "recall(-1)", show=False),
        Binding("escape", "cancel", show=False),
    ]
    virtual_size: Reactive[Size] = Reactive(Size(0, 0))  # a key must not lay out the whole screen
    question: Question | None = None
    # told at once: the letter and what it finds are one picture
    changed: Callable[[str], None] | None = None
    _history_index = -1

    def watch_value(self, value: str) -> None:
        """Tell who asked."""
        if self.changed is not None:
            self.changed(value)

    def action_recall(self, step: int) -> None:
        """An earlier or later line."""
        history = self.question.history if self.question else ()
        self._history_index = max(-1, min(self._history_index + step, len(history) - 1))
        self.value = history[self._history_index] if self._history_index >= 0 else ""
        self.cursor_position = len(self.value)

    def action_cancel(self) -> None:
        """Leave without an answer."""
        assert isinstance(self.parent, Prompt)
        self.parent.close(answered=False)


class Prompt(Horizontal):
    """Hidden until `ask`, then there instead of another widget; gives the focus back when it is done."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; background: $surface; padding: 0 1; }
    Prompt Label { width: auto; color: $accent; text-style: bold; }
    Prompt Input, Prompt Input:focus { border: none; height: 1; padding: 0 1; width: 1fr;
                                       background: $surface; }
    """
    question: Question | None = None

    def __init__(self, back: Callable[[], None], instead_of: Widget) -> None:
        super().__init__()
        self._restore_focus = back  # gives the focus back
        self._instead_of = instead_of

    def compose(self) -> ComposeResult:
        """A label and the line."""
        yield Label("", id="prompt-label")
        yield _Line(compact=True, id="prompt-line")

    def ask(self, question: Question) -> None:
        """Show the question and take the keyboard."""
        line = self.query_one(_Line)
        self.question = line.question = question
        line._history_index = -1
        self.query_one(Label).update(question.label)
        line.placeholder, line.password = question.placeholder, question.secret
        words = list(question.words)
        line.suggester = SuggestFromList(words, case_sensitive=False) if words else None
        line.changed, line.value = None, question.value
        line.changed = question.changed
        line.cursor_position = len(question.value)
        self.display, self._instead_of.display = True, False
        self.screen.set_focus(line)  # at once: what is typed next belongs to it

    def accepts(self, event: events.Key) -> bool:
        """True for what was typed after the key that asked, but came before the line had the keyboard."""
        line = self.query_one(_Line)
        late = self.question is not None and line.accepts(event)
        if late:
            line.post_message(events.Key(event.key, event.character))
        return late

    def on_input_changed(self, event: Input.Changed) -> None:
        """Who asked knows already; nobody else is concerned."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The answer."""
        event.stop()
        question = self.question
        if question is None or question.wrong is None or not question.wrong():
            self.close(answered=True)

    def close(self, *, answered: bool) -> None:
        """Hide, then tell who asked."""
        line = self.query_one(_Line)
        question, value, line.changed = self.question, line.value, None
        self.question, self.display, self._instead_of.display = None, False, True
        self._restore_focus()
        if question is None:
            return
        if answered:
            question.done(value)
        elif question.cancelled:
            question.cancelled()
