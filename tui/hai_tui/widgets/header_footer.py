"""The lines around every page: path and connection at the top, banner, status and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.widget import Widget

from hai_tui.actions import Action, Caller, key_label
from hai_tui.feed.connection_state import ConnectionState, Phase
from hai_tui.i18n import text
from hai_tui.style.theme import tones

_GLYPHS = {
    Phase.LIVE: ("●", "good"),
    Phase.CONNECTING: ("◌", "busy"),
    Phase.LOST: ("✗", "bad"),
    Phase.REFUSED: ("⊘", "bad"),
}


@dataclass(frozen=True, slots=True)
class Heading:
    """The facts that the top line shows."""

    crumbs: tuple[str, ...]
    profile: str
    caller: Caller
    link: ConnectionState
    readonly: bool = False


class TopLine(Widget):
    """`HAI › tasks › 12 train          lab · ada (admin) · ● live`."""

    DEFAULT_CSS = "TopLine { height: 1; background: $panel; padding: 0 1; }"
    heading: Heading | None = None

    def show(self, heading: Heading) -> None:
        self.heading = heading
        self.refresh()

    def render(self) -> Text:
        """Return one line. If it is too long, the first crumbs of the path are left out."""
        if self.heading is None:
            return Text("")
        right = self._connection(self.heading)
        available_width = max(0, self.size.width - right.cell_len - 1)
        crumbs = self.heading.crumbs
        left = _path_text(crumbs)
        while left.cell_len > available_width and len(crumbs) > 1:
            crumbs = crumbs[1:]
            left = _path_text(("…", *crumbs))
        left.truncate(available_width, overflow="ellipsis", pad=True)
        return left + Text(" ") + right

    def _connection(self, heading: Heading) -> Text:
        glyph, tone = _GLYPHS[heading.link.phase]
        parts = Text()
        if heading.readonly:
            parts.append(text("readonly.mark"), "reverse").append(" · ")
        parts.append(heading.profile).append(" · ")
        if heading.caller.name:
            parts.append(f"{heading.caller.name} ({heading.caller.role.lower()})").append(" · ")
        style = tones(self.app.current_theme)[tone]
        return parts.append(f"{glyph} {text(f'link.{heading.link.phase.value}')}", style)


def _path_text(crumbs: Sequence[str]) -> Text:
    path = Text(text("app.title"), "bold", no_wrap=True, overflow="ellipsis")
    for crumb in crumbs:
        path.append(" › ", "dim not bold").append(crumb, "not bold")
    return path


class Banner(Widget):
    """Says that the page may be out of date and when the next attempt comes; hidden while the connection is live."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 4; background: $warning; color: $background;
             text-style: bold; padding: 0 1; display: none; }
    """
    sentence = ""

    def set_text(self, sentence: str) -> None:
        """Show the sentence; an empty one hides the banner."""
        if sentence != self.sentence:
            self.sentence = sentence
            self.display = bool(sentence)
            self.refresh(layout=True)

    def render(self) -> Text:
        return Text(self.sentence)


class StatusLine(Widget):
    """A line of the page, such as counts, the filter, or a request in progress."""

    DEFAULT_CSS = """
    StatusLine { height: 1; background: $surface; padding: 0 1;
                 text-wrap: nowrap; text-overflow: ellipsis; }
    """
    sentence: Text | str = ""

    def set_text(self, sentence: Text | str) -> None:
        if sentence != self.sentence:
            self.sentence = sentence
            self.refresh()

    def render(self) -> Text:
        return self.sentence if isinstance(self.sentence, Text) else Text(self.sentence)


class KeyLine(Widget):
    """The keys of the page, which can be clicked. An action that the caller may not use is dimmed."""

    DEFAULT_CSS = "KeyLine { height: 1; background: $panel; padding: 0 1; }"

    def __init__(self, run: Callable[[Action], None]) -> None:
        super().__init__()
        self._run = run
        self._items: list[tuple[Action, bool]] = []
        self._ends: list[tuple[int, Action]] = []

    def show(self, items: Sequence[tuple[Action, bool]]) -> None:
        """Show actions, each with whether it is allowed now."""
        before = [(action.name, allowed) for action, allowed in self._items]
        self._items = list(items)
        if [(action.name, allowed) for action, allowed in items] != before:
            self.refresh()

    def render(self) -> Text:
        """Return as many keys as fit, from the first on."""
        line, self._ends = Text(no_wrap=True), []
        available_width = self.size.width
        for action, allowed in self._items:
            part = Text()
            part.append(key_label(action.key), "bold" if allowed else "dim")
            part.append(f" {action.label}  ", "" if allowed else "dim")
            if line.cell_len + part.cell_len > available_width + 2:
                continue
            line.append_text(part)
            self._ends.append((line.cell_len, action))
        return line

    def on_click(self, event: events.Click) -> None:
        """Run the action whose key was clicked."""
        x = event.x - 1
        action = next((action for end, action in self._ends if x < end), None)
        if action is not None:
            self._run(action)
