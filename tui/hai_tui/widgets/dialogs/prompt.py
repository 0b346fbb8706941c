"""A line at the bottom of a page for `:`, `/` and single values. Up and down recall earlier lines.

The prompt replaces the line of keys, so the rest of the page is not laid out again.
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
    """A question for one line of text, and the functions to call with the text."""

    label: str
    done: Callable[[str], None]  # gets the answer
    value: str = ""
    placeholder: str = ""
    changed: Callable[[str], None] | None = None  # gets the text after each key
    is_invalid: Callable[[], bool] | None = None  # True keeps the prompt open
    cancelled: Callable[[], None] | None = None
    history: Sequence[str] = ()  # the newest first
    words: Sequence[str] = ()  # completed while the user types
    secret: bool = False


class _Line(OrderedInput):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "recall(1)", show=False),
        Binding("down", "recall(-1)", show=False),
        Binding("escape", "cancel", show=False),
    ]
    virtual_size: Reactive[Size] = Reactive(Size(0, 0))  # a key must not lay out the whole screen
    question: Question | None = None
    # Called directly, not by a message, so that the letter and its effect are painted together.
    changed: Callable[[str], None] | None = None
    _history_index = -1

    def watch_value(self, value: str) -> None:
        if self.changed is not None:
            self.changed(value)

    def action_recall(self, step: int) -> None:
        """Show an earlier or later line of the history."""
        history = self.question.history if self.question else ()
        self._history_index = max(-1, min(self._history_index + step, len(history) - 1))
        self.value = history[self._history_index] if self._history_index >= 0 else ""
        self.cursor_position = len(self.value)

    def action_cancel(self) -> None:
        """Close without an answer."""
        assert isinstance(self.parent, Prompt)
        self.parent.close(answered=False)


class Prompt(Horizontal):
    """A prompt that is hidden until `ask`; then it replaces another widget. Gives the focus back when it closes."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; background: $surface; padding: 0 1; }
    Prompt Label { width: auto; color: $accent; text-style: bold; }
    Prompt Input, Prompt Input:focus { border: none; height: 1; padding: 0 1; width: 1fr;
                                       background: $surface; }
    """
    question: Question | None = None

    def __init__(self, restore_focus: Callable[[], None], replaces: Widget) -> None:
        super().__init__()
        self._restore_focus, self._replaced = restore_focus, replaces

    def compose(self) -> ComposeResult:
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
        self.display, self._replaced.display = True, False
        self.screen.set_focus(line)  # immediately, because the next keys belong to the line

    def accepts(self, event: events.Key) -> bool:
        """Take a key typed after `ask` that arrives before the line has the focus. Return whether the key was taken."""
        line = self.query_one(_Line)
        is_late = self.question is not None and line.accepts(event)
        if is_late:
            line.post_message(events.Key(event.key, event.character))
        return is_late

    def on_input_changed(self, event: Input.Changed) -> None:
        """Stop the message, because `changed` was already called."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        question = self.question
        if question is None or question.is_invalid is None or not question.is_invalid():
            self.close(answered=True)

    def close(self, *, answered: bool) -> None:
        """Hide the prompt, then call the function of the question."""
        line = self.query_one(_Line)
        question, value, line.changed = self.question, line.value, None
        self.question, self.display, self._replaced.display = None, False, True
        self._restore_focus()
        if question is None:
            return
        if answered:
            question.done(value)
        elif question.cancelled:
            question.cancelled()
