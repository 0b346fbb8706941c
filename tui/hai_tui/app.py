"""The terminal app: its pages, its server, and what is the same on every page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual import events
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.filter import LineFilter
from textual.markup import escape
from textual.screen import Screen
from textual.worker import active_worker

from hai.client import profile as profiles
from hai.client.errors import HaiError, NotFound, UsageError
from hai.client.profile import Profile
from hai_tui.actions import Action, key_label
from hai_tui.base_app import AppConfig, BaseApp
from hai_tui.feed.connection_state import ConnectionState, Phase
from hai_tui.feed.debouncer import Debouncer
from hai_tui.i18n import text
from hai_tui.page_registry import PAGES, PageEntry, PageNotFound, find_page
from hai_tui.preferences import Preferences, state_path
from hai_tui.runtime.gc_scheduler import IdleCollector
from hai_tui.runtime.textual_compat import later, repair_timers
from hai_tui.screens.page import Page, make_page
from hai_tui.session import Session
from hai_tui.style import theme
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.header_footer import Heading
from hai_tui.widgets.plain import ControlCharacterFilter

__all__ = ["AppConfig", "HaiApp"]

REPAINT_SECONDS = 0.1
"""Pages receive changes of tasks at most this often."""

FIRST_PAINT_SECONDS = 0.03
"""The first page is painted by then. Textual's own message about it is lost if the top page closes at that moment."""


class HaiApp(BaseApp):
    """The app of `hai tui`."""

    TITLE = "hai"
    ENABLE_COMMAND_PALETTE = True
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
        self._profile = self.options.profile
        self._task_changes = Debouncer(self._tasks_changed, REPAINT_SECONDS, partial(later, self))
        self.preferences = Preferences.load(state_path())
        self._idle_collector = IdleCollector()
        self._control_character_filter = ControlCharacterFilter()
        for each in theme.THEMES:
            self.register_theme(each)

    def heading(self) -> Heading:
        """Return the top line of the page on top."""
        crumbs = tuple(page.title_text() for page in self._pages())
        name = self.session.profile.name or self.session.profile.server
        return Heading(crumbs, name, self.caller, self.session.link.state, self.options.readonly)

    def actions(self) -> list[Action]:
        """Return the actions of every page."""
        actions_of_app = [
            Action("?", "help", "action.help", self.show_help),
            Action(":", "goto", "action.goto", self.ask_page),
            Action(
                "ctrl+p", "palette", "action.palette", self.action_command_palette, in_footer=False
            ),
            Action("escape", "back", "action.back", self.back, in_footer=len(self._pages()) > 1),
            Action("ctrl+r", "refresh", "action.refresh", self.retry_now, in_footer=False),
            Action("T", "theme", "action.theme", self.next_theme, in_footer=False),
            Action("P", "profile", "action.profile", self.choose_profile, in_footer=False),
            Action("ctrl+s", "picture", "action.picture", self.save_picture, in_footer=False),
            Action("q", "quit", "action.quit", self.shut_down),
        ]
        return actions_of_app + self.page_actions()

    # Start, and events.

    async def on_mount(self) -> None:
        """Paint first; connect afterwards."""
        existing = self.preferences.text("theme", theme.THEMES[0].name)
        self.theme = existing if existing in self.available_themes else theme.THEMES[0].name
        self.set_interval(1.0, self._tick)
        self.handle_signals()
        if self.preferences.error:
            self.say(self.preferences.error, warning=True)
        await self.connect_at_start()

    async def on_event(self, event: events.Event) -> None:
        """Record key presses and mouse events."""
        if isinstance(event, events.InputEvent):
            self._idle_collector.on_input()
        await super().on_event(event)

    def _tick(self) -> None:
        self._idle_collector.collect_if_due()
        if self._connected and not self.session.link.state.live:
            self.refresh_frame()

    # Pages form a stack; esc closes the page on top.

    def goto(self, line: str) -> None:
        """Open the page that the line names, or bring it to the top if it is open."""
        try:
            entry, arguments = find_page(line)
        except PageNotFound as error:
            self.say(str(error), warning=True)
            return
        self.open_page(entry, arguments)

    def open_page(self, entry: PageEntry, arguments: tuple[str, ...] = ()) -> None:
        """Push a page. If it is already open, close the pages above it."""
        open_pages = self._pages()
        matching = [
            i
            for i, p in enumerate(open_pages)
            if p.entry == entry and p.accepts_arguments(arguments)
        ]
        if not matching:
            self.push_screen(make_page(entry, arguments))
            return
        for _ in open_pages[matching[0] + 1 :]:
            self.pop_screen()

    def pop_screen(self) -> AwaitComplete:
        """Close the page on top, and cancel its requests first.

        Its widgets close one by one, so a late answer would reach only some of them.
        """
        closing = self.screen
        for worker in self.workers:
            if closing in worker.node.ancestors_with_self and worker is not active_worker.get(None):
                worker.cancel()
        return super().pop_screen()

    def back(self) -> None:
        """Close the page on top unless it is the last one."""
        if len(self._pages()) > 1:
            self.pop_screen()

    def ask_page(self) -> None:
        """Ask which page to open."""
        if isinstance(self.screen, Page):
            names = [page.name for page in PAGES]
            history = self.preferences.strings("goto")
            question = Question(
                text("goto.label"), self._on_page_entered, words=names, history=history
            )
            self.screen.ask_line(question)

    def _on_page_entered(self, line: str) -> None:
        if line.strip():
            earlier = [each for each in self.preferences.strings("goto") if each != line]
            self.preferences.put("goto", [line, *earlier][:50])
            self.clear_notifications()
            self.goto(line)

    def show_help(self) -> None:
        """Show the keys of this page."""
        from hai_tui.screens.help import HelpDialog

        if isinstance(self.screen, Page):
            self.push_screen(HelpDialog(self.screen))

    def page_actions(self) -> list[Action]:
        """Return an action for each page that needs no arguments."""
        return [self._open_action(page) for page in PAGES if not page.required_arguments]

    def _open_action(self, page: PageEntry) -> Action:
        return _OpenPageAction(
            page.key,
            f"page.{page.name}",
            "palette.page",
            partial(self.open_page, page),
            in_footer=False,
            title=page.title,
        )

    def action_command_palette(self) -> None:
        """Open the search over all actions."""
        if not isinstance(self.screen, CommandPalette):
            prompt_text = text("palette.ask")
            self.push_screen(CommandPalette(id="--command-palette", placeholder=prompt_text))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield every action of the page and of the app for the palette."""
        if not isinstance(screen, Page):
            return
        for action in screen.all_actions():
            key = f" · {key_label(action.key)}" if action.key else ""
            explanation = screen.refusal(action) or f"{action.name}{key}"
            yield SystemCommand(
                escape(action.label), escape(explanation), partial(screen.perform, action)
            )

    def refresh_frame(self) -> None:
        """Redraw the frame of the page on top."""
        if pages := self._pages():
            pages[-1].refresh_frame()  # also if a dialog covers it

    def _pages(self) -> list[Page]:
        return [screen for screen in self.screen_stack if isinstance(screen, Page)]

    # Connecting.

    def retry_now(self) -> None:
        """Connect at once. If the token was refused, load the stored profile first, because it may have a new token."""
        refused = self.session.link.state.phase is Phase.REFUSED
        stored = self._chosen_profile() if refused else None
        if stored is None or stored == self.session.profile:
            self.session.link.retry_now()
        else:
            self.run_worker(self.switch(stored), exclusive=True)

    async def connect_at_start(self) -> None:
        """Connect to the server that was chosen at the start."""
        await self.use(self._chosen_profile())

    def _chosen_profile(self) -> Profile | None:
        if self.options.chosen is not None:
            return self.options.chosen
        try:
            return profiles.load(self._profile)
        except (NotFound, UsageError):
            return None

    async def use(self, profile: Profile | None) -> None:
        """Connect to a server. Without a profile, ask for it."""
        if profile is None:
            from hai_tui.screens.wizard import WizardScreen

            await self.push_screen(WizardScreen())
            return
        self.session = self._session(profile)
        self.session.link.listen(self._link_changed)
        self._connected = True
        entry, arguments = find_page(self.options.start)
        await self.push_screen(make_page(entry, arguments))
        later(self, FIRST_PAINT_SECONDS, partial(self._start, self.session))

    def _start(self, session: Session) -> None:
        if session is self.session:  # the user may have switched to another server
            session.start()

    def _session(self, profile: Profile) -> Session:
        return Session(
            profile,
            self.options.clock,
            connect=self.options.connect,
            on_changed=self._task_changes.add,
            identified=self.refresh_frame,
            on_failed=self._job_failed,
        )

    def choose_profile(self) -> None:
        """Let the user choose another server."""
        from hai_tui.screens.profiles import ProfileDialog

        try:
            existing = [profiles.load(name) for name in profiles.names()]
        except HaiError as error:
            self.fail(error)
        else:
            self.push_screen(
                ProfileDialog(self.session.profile.name, existing), self._on_profile_chosen
            )

    def _on_profile_chosen(self, name: str | None) -> None:
        stored = profiles.load(name) if name else self.session.profile
        if stored != self.session.profile:
            self._profile = name
            self.run_worker(self.switch(stored), exclusive=True)

    async def switch(self, profile: Profile) -> None:
        """Disconnect, close all pages, and connect to another server."""
        await self.disconnect()
        for _ in self._pages():
            await self.pop_screen()
        await self.use(profile)

    # Events that pages receive.

    def _tasks_changed(self, ids: set[int]) -> None:
        for page in self._pages():
            if page.is_mounted:
                page.tasks_changed(ids)

    def _job_failed(self, error: BaseException) -> None:
        """Show an error of the server. Any other error is a bug and ends the app."""
        if isinstance(error, HaiError):
            self.fail(error)
        elif isinstance(error, Exception):
            try:
                raise error  # Textual prints the traceback of the exception that is being handled
            except Exception as raised:
                self._handle_exception(raised)

    def _link_changed(self, link: ConnectionState) -> None:
        self.refresh_frame()
        for page in self._pages():
            page.link_changed(link)

    # Appearance.

    def next_theme(self) -> None:
        """Switch between the dark, light and high-contrast themes."""
        names = [each.name for each in theme.THEMES]
        position = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(position + 1) % len(names)]
        self.preferences.put("theme", self.theme)
        self.say(text("said.theme", name=self.theme))

    def save_picture(self) -> None:
        """Save the screen as SVG in the current directory."""
        try:
            self.say(text("said.saved", path=self.save_screenshot()))
        except OSError as error:
            self.say(text("save.cannot", path=".", error=error.strerror), warning=True)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return an SVG as in the manual, with wide characters at their positions. `simplify` has no effect."""
        from hai_tui.style.svg import render_svg

        return render_svg(self, title or self.title)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that each line passes before it is drawn."""
        return [*super().get_line_filters(), self._control_character_filter]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the tones for themes that are not ours."""
        return theme.default_variables()


@dataclass(frozen=True, slots=True)
class _OpenPageAction(Action):
    """An action that opens a page. Its label contains the title of the page."""

    title: str = ""

    @property
    def label(self) -> str:
        return text("palette.page", name=self.title)
