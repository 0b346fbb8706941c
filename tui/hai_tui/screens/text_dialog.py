"""A dialog with a text: all fields of an item, a preview, or a secret that is shown once."""

from __future__ import annotations

from typing import ClassVar

from rich.syntax import Syntax
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import Static, plain


class TextDialog(Dialog[None]):
    """Shows a text. With `language` it is highlighted; `c` copies all of it, or `clipboard_text`."""

    DEFAULT_CSS = """
    TextDialog { align: center middle; background: $background 60%; }
    TextDialog > VerticalScroll { width: 92%; max-width: 110; height: auto; max-height: 92%;
        border: round $primary; background: $surface; padding: 1 2; }
    TextDialog Static { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", show=False),
        Binding("c", "copy", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(
        self, title: str, content: str, language: str = "", *, clipboard_text: str = ""
    ) -> None:
        super().__init__()
        self._heading, self._text, self._language = title, content, language
        self._clipboard_text = clipboard_text or content

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain(f"{self._heading} · {text('told.keys')}")
            yield Static(self._content())

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._clipboard_text)
        self.notify(text("said.copied", what=self._heading), markup=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _content(self) -> Text | str:
        if not self._language:
            return self._text
        theme = "ansi_dark" if self.app.current_theme.dark else "ansi_light"
        content = Syntax("", self._language, theme=theme).highlight(self._text)
        content.style = ""  # the theme of the highlighter has another background
        return content
