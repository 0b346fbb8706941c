"""The terminal app: one session, a stack of pages, and what is the same on each of them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import rich
from rich.segment import Segments
from rich.traceback import Traceback
from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.screen import Screen
from textual.worker import active_worker

from hai.client import profile as profiles
from hai.client.errors import HaiError, UsageError
from hai.client.profile import Profile
from hai_tui import theme
from hai_tui.actions import Action, Caller, key_label
from hai_tui.feed.link import LinkState
from hai_tui.feed.ticks import Gathered
from hai_tui.garbage import Rest
from hai_tui.i18n import text
from hai_tui.pages import PAGES, NoSuchPage, PageEntry, find
from hai_tui.screens.page import Page
from hai_tui.session import Connect, Session, _connect
from hai_tui.state import State, state_path
from hai_tui.widgets.bars import Heading
from hai_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task, Waiting
    from hai_tui.changes import Undo

REPAINT_SECONDS = 0.1
"""Changes of tasks reach the pages at most this often."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the app was started. Tests give their own connect and clock."""

    profile: str | None = None
    readonly: bool = False
    start: str = "tasks"  # what `:` would take
    connect: Connect = _connect
    clock: Callable[[], float] = time.time
    chosen: Profile | None = None  # instead of what the name and the environment choose


class HaiApp(App[int]):
    """`hai tui`."""

    TITLE = "hai"
    CSS = """
    Toast { width: auto; max-width: 90%; }
    VerticalScroll { scrollbar-size-vertical: 1; }
    * { scrollbar-background: $surface; scrollbar-color: $primary 50%; }
    OptionList:focus, SelectionList:focus { background-tint: $foreground 0%; }
    """
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        self.options = options or Options()
        self.state = State.load(state_path())
        self.session = Session(Profile(), self.options.clock)
        self._undos: list[Undo] = []
        self._rest = Rest()
        self._gathered = Gathered(self._tasks_changed, REPAINT_SECONDS, self.call_later_in)
        for each in theme.THEMES:
            self.register_theme(each)

    # What pages ask of the app.

    @property
    def caller(self) -> Caller:
        """Who sits here."""
        return self.session.caller

    def now(self) -> float:
        """The server's time, so that ages are right on a machine whose clock is not."""
        return self.options.clock() + self.session.skew

    def heading(self) -> Heading:
        """The top line of the page on top."""
        crumbs = tuple(page.title_text() for page in self._pages())
        name = self.session.profile.name or self.session.profile.server
        return Heading(crumbs, name, self.caller, self.session.link.state, self.options.readonly)

    def banner(self) -> str:
        """What stands above a page while the connection is not live."""
        return self.session.link.state.banner(self.options.clock()) if self._connected else ""

    def say(self, sentence: str, *, warning: bool = False) -> None:
        """A passing note."""
        self.notify(sentence, severity="warning" if warning else "information", markup=False)

    def fail(self, error: HaiError) -> None:
        """An error of the client, with what to do about it."""
        hint = f"\n{error.hint}" if error.hint else ""
        told = f"{error.message}{hint}\n[{error.reason}]"
        self.notify(told, severity="error", timeout=12, markup=False)

    def goto(self, line: str) -> None:
        """Open what follows `:`; a page that is open already comes to the top again."""
        try:
            entry, words = find(line)
        except NoSuchPage as error:
            self.say(str(error), warning=True)
            return
        self.open_page(entry, words)

    def open_page(self, entry: PageEntry, words: tuple[str, ...] = ()) -> None:
        """Push a page, or go back to it."""
        open_pages = self._pages()
        same = [i for i, p in enumerate(open_pages) if p.entry == entry and p.becomes(words)]
        if not same:
            self.push_screen(entry.make(words))
            return
        for _ in open_pages[same[0] + 1 :]:
            self.pop_screen()

    def back(self) -> None:
        """Close the page on top; the last one stays."""
        if len(self._pages()) > 1:
            self.pop_screen()

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
        return here + [_opens(self, page) for page in PAGES if not page.needs_words]

    def remember(self, undo: Undo, good: set[int]) -> None:
        """How to take back what was done to these tasks; a failure has nothing to take back."""
        verbs = tuple((id, verb) for id, verb in undo.verbs if id in good or len(good) < 2)
        self._undos.append(replace(undo, verbs=verbs))

    def forget_undo(self) -> Undo | None:
        """The last action that can be taken back; it is not offered again."""
        return self._undos.pop() if self._undos else None

    def waiting(self, task: Task) -> Waiting:
        """Why a task waits, as far as is known now."""
        model = self.session.tasks
        return model.waiting(task) if model else task.waiting

    def look_at_queue(self) -> None:
        """Places have moved."""
        self.session.look_at_queue()

    # Life.

    _connected = False

    async def on_mount(self) -> None:
        """First paint first; the server comes after it."""
        known = self.state.text("theme", theme.THEMES[0].name)
        self.theme = known if known in self.available_themes else theme.THEMES[0].name
        self.set_interval(1.0, self._tick)
        self._heed_signals()
        if self.state.error:
            self.say(self.state.error, warning=True)
        await self.use(self._chosen())

    def _heed_signals(self) -> None:
        """A closed window or a `kill` ends us well: streams closed, terminal as before."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
                asyncio.get_running_loop().add_signal_handler(number, self._told_to_leave)

    def _told_to_leave(self) -> None:
        self.run_worker(self.leave())

    def _fatal_error(self) -> None:
        """As Textual does, but without local variables: one of them may be a token."""
        self.bell()
        trace = self.console.render(Traceback(suppress=[rich], width=None), self.console.options)
        self._exit_renderables.append(Segments(trace))
        self._close_messages_no_wait()

    def _chosen(self) -> Profile | None:
        if self.options.chosen is not None:
            return self.options.chosen
        try:
            return profiles.load(self.options.profile)
        except UsageError:
            return None

    async def use(self, profile: Profile | None) -> None:
        """Speak to a server; without one, ask for it."""
        if profile is None:
            from hai_tui.screens.wizard import WizardScreen

            await self.push_screen(WizardScreen())
            return
        self.session = Session(
            profile,
            self.options.clock,
            connect=self.options.connect,
            changed=self._gathered.add,
            known=self.reframe,
            failed=self._job_failed,
        )
        self.session.link.listen(self._link_changed)
        self._connected = True
        entry, words = find(self.options.start)
        await self.push_screen(entry.make(words))
        self.call_after_refresh(self.session.start)

    async def switch(self, profile: Profile) -> None:
        """Leave this server and all its pages, and speak to another."""
        await self.hang_up()
        for _ in self._pages():
            await self.pop_screen()
        await self.use(profile)

    async def leave(self) -> None:
        """Close every stream, then the app."""
        await self.hang_up()
        self.exit(0)

    async def hang_up(self) -> None:
        """Close the connection; first whatever still asks through it ends, except who calls this."""
        asking = [worker for worker in self.workers if worker is not active_worker.get(None)]
        for worker in asking:
            worker.cancel()
        await self.session.close()

    async def action_quit(self) -> None:
        """As `q`."""
        await self.leave()

    async def on_unmount(self) -> None:
        """However the app ends, no stream stays open."""
        await self.hang_up()

    # What changes.

    def call_later_in(self, seconds: float, callback: Callable[[], None]) -> None:
        """A timer of the app."""
        self.set_timer(seconds, callback)

    def _tasks_changed(self, ids: set[int]) -> None:
        for page in self._pages():
            if page.is_mounted:
                page.tasks_changed(ids)

    def _job_failed(self, error: BaseException) -> None:
        """What the server refuses for good is told; anything else is our fault and ends the app."""
        if isinstance(error, HaiError):
            self.fail(error)
        elif isinstance(error, Exception):
            try:
                raise error  # the traceback is drawn of what is being handled
            except Exception as raised:
                self._handle_exception(raised)

    def _link_changed(self, link: LinkState) -> None:
        self.reframe()
        for page in self._pages():
            page.link_changed(link)

    def reframe(self) -> None:
        """Draw the frame of the page on top again."""
        if pages := self._pages():
            pages[-1].reframe()  # also when a question lies over it

    async def on_event(self, event: events.Event) -> None:
        """Keys and the mouse come by here."""
        if isinstance(event, events.InputEvent):
            self._rest.typed()
        await super().on_event(event)

    def _tick(self) -> None:
        self._rest.look()
        if self._connected and not self.session.link.state.live:
            self.reframe()

    def _pages(self) -> list[Page]:
        return [screen for screen in self.screen_stack if isinstance(screen, Page)]

    # Actions.

    def show_help(self) -> None:
        """The keys of this page."""
        from hai_tui.screens.help import HelpScreen

        if isinstance(self.screen, Page):
            self.push_screen(HelpScreen(self.screen))

    def ask_where(self) -> None:
        """The prompt of `:`."""
        if isinstance(self.screen, Page):
            names = [page.name for page in PAGES]
            history = self.state.words("goto")
            question = Question(text("goto.label"), self._went, words=names, history=history)
            self.screen.ask_line(question)

    def _went(self, line: str) -> None:
        if line.strip():
            earlier = [each for each in self.state.words("goto") if each != line]
            self.state.put("goto", [line, *earlier][:50])
            self.clear_notifications()
            self.goto(line)

    def retry_now(self) -> None:
        """End the wait before the next try."""
        self.session.link.retry_now()

    def next_theme(self) -> None:
        """Dark, light, high contrast."""
        names = [each.name for each in theme.THEMES]
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]
        self.state.put("theme", self.theme)
        self.say(text("said.theme", name=self.theme))

    def choose_profile(self) -> None:
        """Another server."""
        from hai_tui.screens.profiles import ProfileScreen

        self.push_screen(ProfileScreen(self.session.profile.name), self._chose)

    def _chose(self, name: str | None) -> None:
        if name and name != self.session.profile.name:
            self.run_worker(self.switch(profiles.load(name)), exclusive=True)

    def save_picture(self) -> None:
        """An SVG of the screen in the current directory."""
        self.say(text("said.picture", path=self.save_screenshot()))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Tones for themes that are not ours."""
        return theme.defaults()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action that the page and the app have."""
        if not isinstance(screen, Page):
            return
        for action in screen.all_actions():
            key = f" · {key_label(action.key)}" if action.key else ""
            told = screen.refusal(action) or f"{action.name}{key}"
            yield SystemCommand(escape(action.label), escape(told), partial(screen.perform, action))


@dataclass(frozen=True, slots=True)
class _PageAction(Action):
    """Opens a page; its label is made of the page's title."""

    title: str = ""

    @property
    def label(self) -> str:
        """`open the page tasks`."""
        return text("palette.page", name=self.title)


def _opens(app: HaiApp, page: PageEntry) -> Action:
    return _PageAction(
        page.key,
        f"page.{page.name}",
        "palette.page",
        partial(app.open_page, page),
        shown=False,
        title=page.title,
    )
