"""The help dialog, on `?`: the keys of the page, of the app and of lists, and the glyphs of states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from hai.client.text.state_style import state_style
from hai_tui.actions import Action, key_label
from hai_tui.i18n import text
from hai_tui.page_registry import PAGES
from hai_tui.screens.page import Page
from hai_tui.style.theme import tones
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import Static, Table, grid, plain

_MOVEMENT_KEYS = (
    ("↑ ↓ j k", "help.move.line"),
    ("pgup pgdn", "help.move.page"),
    ("g G", "help.move.ends"),
    ("← →", "help.move.side"),
)
_STATES = (
    "WAITING_INIT", "SUSPENDED", "BUILDING", "RUNNING", "SUSPENDING", "HELD", "SUCCEEDED", "FAILED",
    "STOPPED", "CANCELED", "UNSCHEDULABLE",
)  # fmt: skip


class HelpDialog(Dialog[None]):
    """The help of a page. An action that is refused is dimmed, with the reason."""

    DEFAULT_CSS = """
    HelpDialog { align: center middle; background: $background 60%; }
    HelpDialog > VerticalScroll { width: 92%; max-width: 140; height: auto; max-height: 92%;
        border: round $primary; background: $surface; padding: 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", show=False),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain(f"{self._page.title_text()} · {text('help.close')}")
            page_actions = list(self._page.actions())
            names = {action.name for action in page_actions}
            app_actions = [a for a in self._page.all_actions() if a.name not in names and a.key]
            yield Static(_heading("help.page"))
            yield Static(self._rows(page_actions))
            yield Static(_heading("help.moving"))
            yield Static(
                _table((keys, text(description), "") for keys, description in _MOVEMENT_KEYS)
            )
            yield Static(_heading("help.global"))
            yield Static(self._rows(a for a in app_actions if not a.name.startswith("page.")))
            yield Static(_heading("help.pages"))
            yield Static(_table((p.key, f":{p.name}  {p.about}", "") for p in PAGES))
            yield Static(_heading("help.states"))
            yield Static(self._legend())

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)

    def _rows(self, actions: Iterable[Action]) -> Table:
        return _table((key_label(a.key), a.label, self._page.refusal(a)) for a in actions)

    def _legend(self) -> Text:
        styles = tones(self.app.current_theme)
        line = Text()
        for state in _STATES:
            style = state_style(state)
            line.append(f"{style.glyph} {state}", styles[style.tone]).append("   ")
        return line


def _heading(key: str) -> Text:
    return Text(f"\n{text(key)}", "bold underline")


def _table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return a table with two entries in each line, so that most pages need no scrolling."""
    table = grid(padding=(0, 2), expand=True)
    for _ in range(2):
        table.add_column(width=10, no_wrap=True, style="bold")
        table.add_column(ratio=1)
    cells = [(keys, _description(label, refusal)) for keys, label, refusal in rows]
    cells += [("", Text())] * (len(cells) % 2)
    half = len(cells) // 2
    for left, right in zip(cells[:half], cells[half:], strict=True):
        table.add_row(*left, *right)
    return table


def _description(label: str, refusal: str) -> Text:
    if not refusal:
        return Text(label)
    if label in refusal:  # most refusals name the action
        return Text(refusal, "dim italic")
    return Text(label, "dim").append(f" · {refusal}", "italic")
