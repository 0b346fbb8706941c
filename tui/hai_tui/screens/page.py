"""The base class of pages: path, banner, content, status line and keys, and how actions are run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from hai.client.errors import HaiError
from hai_tui.actions import Action, pressed, refusal
from hai_tui.base_app import BaseApp
from hai_tui.i18n import text
from hai_tui.page_registry import PageEntry
from hai_tui.runtime.textual_compat import is_closing, run_in_background
from hai_tui.style.theme import tones
from hai_tui.widgets.dialogs.confirm import ConfirmDialog
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.dialogs.prompt import Prompt, Question
from hai_tui.widgets.header_footer import Banner, KeyLine, StatusLine, TopLine

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai_tui.feed.connection_state import ConnectionState

Answer = TypeVar("Answer")


class Page(Screen[None]):
    """A page. Subclasses define `content`, `actions`, and the hooks that they need.

    Hooks: `title_text` (the last part of the path), `opened` (the page is mounted: start workers and streams here),
    `tasks_changed` (at most ten times a second), `link_changed`, `page_resumed` (the page is on top again).
    Streams and requests run as workers of the page, so they end with it.
    """

    DEFAULT_CSS = """
    Page { background: $background; color: $foreground; layout: vertical; }
    Page > #content { height: 1fr; }
    Page > #foot { height: 1; }
    """
    BLANK = True  # widgets cover every cell, so the page itself is not styled at each key
    # Widgets that look different with the focus draw themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    AUTO_FOCUS = ""  # `focus_content` decides; else the hidden prompt would take the keys
    entry: PageEntry
    arguments: tuple[str, ...] = ()

    @property
    def hai(self) -> BaseApp:
        """Return the app with its own type."""
        return cast("BaseApp", self.app)

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        content = self.content()
        content.id = content.id or "content"
        yield content
        yield StatusLine()
        keys = KeyLine(self.perform)
        with Vertical(id="foot"):  # a container, so that the prompt moves nothing else
            yield Prompt(self.focus_content, replaces=keys)
            yield keys

    def content(self) -> Widget:
        """Return the widget between the top line and the status line."""
        raise NotImplementedError

    def title_text(self) -> str:
        """Return the last part of the path in the top line."""
        return " ".join((self.entry.title, *self.arguments))

    def accepts_arguments(self, arguments: Sequence[str]) -> bool:
        """Return True if the page already shows what the arguments request. It may switch to another of its parts."""
        return self.arguments == tuple(arguments)

    def actions(self) -> Sequence[Action]:
        """Return the actions of the page, the most important first."""
        return ()

    def opened(self) -> None:
        """Hook: the page is mounted."""

    def tasks_changed(self, ids: set[int]) -> None:
        """Hook: tasks with these ids have changed."""

    def link_changed(self, link: ConnectionState) -> None:
        """Hook: the state of the connection has changed."""

    def refused(self, error: HaiError) -> None:
        """Hook: the server refuses the request for the page's content. The status line keeps the error, because the
        notification disappears.
        """
        self.hai.fail(error)
        message = text("refused", message=error.message)
        self.status(Text(message, tones(self.hai.current_theme)["bad"]))

    def page_resumed(self) -> None:
        """Hook: the page is on top again."""

    def focus_content(self) -> None:
        """Give the keyboard to the content."""
        content = self.query_one("#content")
        focusable = (widget for widget in content.query("*") if widget.focusable)
        self.set_focus(content if content.focusable else next(focusable, None))

    def on_mount(self) -> None:
        """Show the frame and call `opened`, unless the page is closed again."""
        if is_closing(self):
            return
        self.focus_content()
        self.refresh_frame()
        self.opened()

    def on_screen_resume(self) -> None:
        """Draw the frame again, which may have changed while another page was on top."""
        self.refresh_frame()
        self.page_resumed()

    @property
    def is_ready(self) -> bool:
        """Return whether the page can be drawn: it is mounted and not closing. Answers may arrive before and after."""
        return self.is_mounted and not is_closing(self) and bool(self.query("#foot"))

    @property
    def is_on_top(self) -> bool:
        """Return whether no other page covers this one. (Textual's is_current is True for the page below, too.)"""
        return self.app.screen_stack[-1:] == [self]

    def refresh_frame(self) -> None:
        """Draw the path, the banner and the keys again."""
        if not self.is_ready:
            return
        self.query_one(TopLine).show(self.hai.heading())
        self.query_one(Banner).set_text(self.hai.banner())
        self.refresh_keys()

    def refresh_keys(self) -> None:
        """Draw the keys again; other actions may be allowed now."""
        actions = [action for action in self.all_actions() if action.in_footer and action.key]
        actions.sort(key=lambda action: action.name != "help")  # help comes first
        self.query_one(KeyLine).show([(action, not self.refusal(action)) for action in actions])

    def all_actions(self) -> list[Action]:
        """Return the actions of the page, then those of the app whose keys the page does not use."""
        page_actions = list(self.actions())
        used_keys = {key for action in page_actions for key in action.key.split(",")}
        return page_actions + [a for a in self.hai.actions() if not a.key or a.key not in used_keys]

    def refusal(self, action: Action) -> str:
        """Return why the caller cannot use the action now; empty if they can."""
        return refusal(action, self.hai.caller, readonly=self.hai.options.readonly)

    async def on_key(self, event: events.Key) -> None:
        """Run the action of a key that no widget has handled. If an earlier key has opened another page, pass the key
        on to that page.
        """
        if not self.is_on_top:
            event.stop()
            self.app.post_message(events.Key(event.key, event.character))
            return
        if self.query_one(Prompt).accepts(event):
            event.stop()
            return
        if await self._run_widget_binding(event.key):
            event.stop()
            event.prevent_default()
            return
        key = pressed(event.key, event.character)
        for action in self.all_actions():
            if key in (action.key, *(action.key.split(",") if len(action.key) > 1 else ())):
                event.stop()
                event.prevent_default()
                self.perform(action)
                return

    async def _run_widget_binding(self, key: str) -> bool:
        """Run the binding of the focused widget, or of a widget around it; return False if there is none.

        Textual would run it after the page's own actions. Here it runs first, so that an action typed after `j` applies
        to the row to which `j` moves.
        """
        widget: Widget | None = self.focused
        while widget is not None and widget is not self:
            for binding in widget._bindings.key_to_bindings.get(key, ()):
                if await self.app.run_action(binding.action, widget):
                    return True
            widget = widget.parent if isinstance(widget.parent, Widget) else None
        return False

    def perform(self, action: Action) -> None:
        """Run the action, after a confirmation if it needs one; if it is refused, say why."""
        if reason := self.refusal(action):
            self.hai.say(reason, warning=True)
            return
        question = action.confirm() if action.confirm else ""
        if question:
            self.start(self._after_confirmation(self.confirm(question), action))
            return
        # The handler runs at once, because the next keys belong to a prompt that it opens.
        work = action.handler()
        if isawaitable(work):
            self.start(work)

    def start(self, work: Awaitable[None]) -> None:
        """Run the rest of an action in the background; show its error as a notification."""
        self.run_worker(self._report_errors(work), group="actions")

    async def _after_confirmation(self, confirmed: Awaitable[bool], action: Action) -> None:
        if await confirmed:
            work = action.handler()
            if isawaitable(work):
                await work

    async def _report_errors(self, work: Awaitable[None]) -> None:
        try:
            await work
        except HaiError as error:
            self.hai.fail(error)

    def ask(self, dialog: Dialog[Answer]) -> Awaitable[Answer]:
        """Open a dialog and return its answer. The dialog opens immediately, because the next keys belong to it."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.app.push_screen(dialog, answer.set_result)  # type: ignore[arg-type]
        return asyncio.shield(answer)  # the caller may be cancelled before the answer comes

    def confirm(self, question: str, word_to_type: str = "") -> Awaitable[bool]:
        """Ask yes or no; with `word_to_type`, only that word means yes."""
        return self.ask(ConfirmDialog(question, word_to_type))

    async def save(self, path: Path, write: Callable[[], Awaitable[str]]) -> None:
        """Write a file; ask first if it exists. `write` returns the notification to show afterwards."""
        exists = await asyncio.to_thread(os.path.exists, path)  # False for an invalid name
        if exists and not await self.confirm(text("save.exists", path=path)):
            return
        try:
            self.hai.say(await write())
        except OSError as error:
            self.hai.say(text("save.cannot", path=path, error=error.strerror), warning=True)

    def ask_line(self, question: Question) -> None:
        """Ask for one line in the prompt."""
        self.query_one(Prompt).ask(question)

    def status(self, sentence: str | Text) -> None:
        """Show a text in the status line."""
        if self.is_ready:
            self.query_one(StatusLine).set_text(sentence)

    def fetch(
        self,
        request: Callable[[Client], Awaitable[Answer]],
        show: Callable[[Answer], None],
        *,
        group: str = "fetch",
    ) -> None:
        """Send a request in the background and show the answer. A newer request of the group replaces an older one.

        While the server is away, the request is sent again and again; the banner says so.
        """

        async def load() -> None:
            session = self.hai.session
            try:
                client = await session.client()
                answer = await session.call_with_retry(lambda: request(client))
                if self.is_ready:
                    show(answer)
            except HaiError as error:
                if self.is_ready:
                    self.refused(error)

        run_in_background(self, load, group=group, exclusive=True)

    async def call(self, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Send one request of an action, within its deadline. Raises HaiError, which `start` shows if nobody catches
        it.
        """
        return await request(await self.hai.session.client())


def make_page(entry: PageEntry, arguments: Sequence[str] = ()) -> Page:
    """Return a new page. Its module is imported when it is first opened."""
    module, name = entry.class_path.split(":")
    page: Page = getattr(import_module(f"hai_tui.screens.{module}"), name)(*arguments)
    page.entry, page.arguments = entry, tuple(arguments)
    return page
