"""The terminal app: what is the same on each of its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.filter import LineFilter

from hai_tui import theme
from hai_tui.actions import Action
from hai_tui.app_config import AppConfig
from hai_tui.connection import Speaking
from hai_tui.gc_scheduler import Rest
from hai_tui.i18n import text
from hai_tui.preferences import Preferences, state_path
from hai_tui.textual_compat import repair_timers
from hai_tui.widgets.header_footer import Heading
from hai_tui.widgets.plain import Harmless

if TYPE_CHECKING:
    from hai_tui.tasks.commands import Undo

__all__ = ["AppConfig", "HaiApp"]


class HaiApp(Speaking):
    """`hai tui`."""

    TITLE = "hai"
    CSS = """
    Toast { width: auto; max-width: 90%; }
    ToastRack { margin-bottom: 2; }
    VerticalScroll { scrollbar-size-vertical: 1; }
    * { scrollbar-background: $surface; scrollbar-color: $primary 50%; }
    OptionList:focus, SelectionList:focus { background-tint: $foreground 0%; }
    """

    def __init__(self, options: AppConfig | None = None) -> None:
        repair_timers()
        super().__init__(options)
        self.state = Preferences.load(state_path())
        self._undos: list[Undo] = []
        self._rest = Rest()
        self._harmless = Harmless()
        for each in theme.THEMES:
            self.register_theme(each)

    def heading(self) -> Heading:
        """The top line of the page on top."""
        crumbs = tuple(page.title_text() for page in self._pages())
        name = self.session.profile.name or self.session.profile.server
        return Heading(crumbs, name, self.caller, self.session.link.state, self.options.readonly)

    def actions(self) -> list[Action]:
        """What can be done on every page."""
        here = [
            Action("?", "help", "action.help", self.show_help),
            Action(":", "goto", "action.goto", self.ask_where),
            Action("ctrl+p", "palette", "action.palette", self.action_command_palette, shown=False),
            Action("escape", "back", "action.back", self.back, shown=len(self._pages()) > 1),
            Action("ctrl+r", "refresh", "action.refresh", self.retry_now, shown=False),
            Action("T", "theme", "action.theme", self.next_theme, shown=False),
            Action("P", "profile", "action.profile", self.choose_profile, shown=False),
            Action("ctrl+s", "picture", "action.picture", self.save_picture, shown=False),
            Action("q", "quit", "action.quit", self.leave),
        ]
        return here + self.page_actions()

    # What can be taken back.

    def remember(self, undo: Undo, good: set[int]) -> None:
        """How to take back what was done to these tasks; a failure has nothing to take back."""
        verbs = tuple((id, verb) for id, verb in undo.verbs if id in good or len(good) < 2)
        self._undos.append(replace(undo, verbs=verbs))

    def forget_undo(self) -> Undo | None:
        """The last action that can be taken back; it is not offered again."""
        return self._undos.pop() if self._undos else None

    # Life.

    async def on_mount(self) -> None:
        """First paint first; the server comes after it."""
        known = self.state.text("theme", theme.THEMES[0].name)
        self.theme = known if known in self.available_themes else theme.THEMES[0].name
        self.set_interval(1.0, self._tick)
        self.heed_signals()
        if self.state.error:
            self.say(self.state.error, warning=True)
        await self.begin()

    async def on_event(self, event: events.Event) -> None:
        """Keys and the mouse come by here."""
        if isinstance(event, events.InputEvent):
            self._rest.typed()
        await super().on_event(event)

    def _tick(self) -> None:
        self._rest.look()
        if self._connected and not self.session.link.state.live:
            self.reframe()

    # How it looks.

    def next_theme(self) -> None:
        """Dark, light, high contrast."""
        names = [each.name for each in theme.THEMES]
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]
        self.state.put("theme", self.theme)
        self.say(text("said.theme", name=self.theme))

    def save_picture(self) -> None:
        """An SVG of the screen in the current directory."""
        try:
            self.say(text("said.saved", path=self.save_screenshot()))
        except OSError as error:
            self.say(text("save.cannot", path=".", error=error.strerror), warning=True)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """As in the manual, wide characters in their places; `simplify` changes nothing."""
        from hai_tui.svg import picture

        return picture(self, title or self.title)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line goes through before it is drawn."""
        return [*super().get_line_filters(), self._harmless]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Tones for themes that are not ours."""
        return theme.defaults()
