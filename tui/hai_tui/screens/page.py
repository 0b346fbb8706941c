"""The base class of pages: path, banner, content, status line and keys; actions by key, footer, help and palette."""

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
    """A page. Subclasses give `content`, `actions`, and what they need of the hooks below.

    Hooks: `title` (last crumb), `opened` (mounted: start workers and streams here), `tasks_changed`
    (ids, at most ten times a second), `link_changed`, `page_resumed` (back on top).
    Streams and requests run as workers of the page, so they end with it.
    """

    DEFAULT_CSS = """
    Page { background: $background; color: $foreground; layout: vertical; }
    Page > #content { height: 1fr; }
    Page > #foot { height: 1; }
    """
    BLANK = True  # every cell of it is covered: it need not be styled line by line at each key
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)  # who looks otherwise draws it
    AUTO_FOCUS = ""  # `focus_content` decides; else a hidden line would take the keys
    entry: PageEntry
    arguments: tuple[str, ...] = ()

    @property
    def hai(self) -> BaseApp:
        """The app, by its own type."""
        return cast("BaseApp", self.app)

    def compose(self) -> ComposeResult:
        """The frame around the content."""
        yield TopLine()
        yield Banner()
        content = self.content()
        content.id = content.id or "content"
        yield content
        yield StatusLine()
        keys = KeyLine(self.perform)
        with Vertical(id="foot"):  # its own, so that the prompt comes and goes without the rest
            yield Prompt(self.focus_content, instead_of=keys)
            yield keys

    def content(self) -> Widget:
        """What the page shows between the lines."""
        raise NotImplementedError

    def title_text(self) -> str:
        """The last crumb."""
        return " ".join((self.entry.title, *self.arguments))

    def accepts_arguments(self, arguments: Sequence[str]) -> bool:
        """True when it shows what these words open; it may turn to a part of it."""
        return self.arguments == tuple(arguments)

    def actions(self) -> Sequence[Action]:
        """What can be done here, the most important first."""
        return ()

    def opened(self) -> None:
        """The page is mounted; nothing was asked yet."""

    def tasks_changed(self, ids: set[int]) -> None:
        """Tasks with these ids are not as they were."""

    def link_changed(self, link: ConnectionState) -> None:
        """The connection stands differently."""

    def refused(self, error: HaiError) -> None:
        """What the page wanted to show, the server does not give; the note about it passes, this stays."""
        self.hai.fail(error)
        self.status(
            Text(text("refused", message=error.message), tones(self.hai.current_theme)["bad"])
        )

    def page_resumed(self) -> None:
        """The page is on top again."""

    def focus_content(self) -> None:
        """Give the keyboard to the content."""
        content = self.query_one("#content")
        inside = (widget for widget in content.query("*") if widget.focusable)
        self.set_focus(content if content.focusable else next(inside, None))

    def on_mount(self) -> None:
        """Show the frame, then let the page begin, unless it was left before it came."""
        if is_closing(self):
            return
        self.focus_content()
        self.refresh_frame()
        self.opened()

    def on_screen_resume(self) -> None:
        """Back on top: the frame may have changed meanwhile."""
        self.refresh_frame()
        self.page_resumed()

    @property
    def is_ready(self) -> bool:
        """False before its parts have come, and from when it closes: answers may arrive that late."""
        return self.is_mounted and not is_closing(self) and bool(self.query("#foot"))

    @property
    def on_top(self) -> bool:
        """False while another page lies over it. Textual's is_current counts the page right below, too."""
        return self.app.screen_stack[-1:] == [self]

    def refresh_frame(self) -> None:
        """Draw crumbs, banner and keys again."""
        if not self.is_ready:
            return
        self.query_one(TopLine).show(self.hai.heading())
        self.query_one(Banner).set_text(self.hai.banner())
        self.refresh_keys()

    def refresh_keys(self) -> None:
        """Draw the keys again: others may be allowed now."""
        footer_actions = [
            action for action in self.all_actions() if action.in_footer and action.key
        ]
        footer_actions.sort(
            key=lambda action: action.name != "help"
        )  # the key to all others comes first
        self.query_one(KeyLine).show(
            [(action, not self.refusal(action)) for action in footer_actions]
        )

    def all_actions(self) -> list[Action]:
        """Those of the page, then those of the app; of one key the page's own counts."""
        page_actions = list(self.actions())
        used_keys = {key for action in page_actions for key in action.key.split(",")}
        return page_actions + [a for a in self.hai.actions() if not a.key or a.key not in used_keys]

    def refusal(self, action: Action) -> str:
        """Why it can not be done now; empty: it can."""
        return refusal(action, self.hai.caller, readonly=self.hai.options.readonly)

    async def on_key(self, event: events.Key) -> None:
        """Keys that no widget wanted are actions; what was typed after one that opened a page is for that page."""
        if not self.on_top:
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
        """True when the widget that has the keyboard, or one around it, has the key for itself.

        It is done here, not where Textual does it: an action typed after `j` is for the row that it leads to.
        """
        widget: Widget | None = self.focused
        while widget is not None and widget is not self:
            for binding in widget._bindings.key_to_bindings.get(key, ()):
                if await self.app.run_action(binding.action, widget):
                    return True
            widget = widget.parent if isinstance(widget.parent, Widget) else None
        return False

    def perform(self, action: Action) -> None:
        """Do it, or say why not; ask first where that is wanted."""
        if reason := self.refusal(action):
            self.hai.say(reason, warning=True)
            return
        question = action.confirm() if action.confirm else ""
        if question:
            self.start(self._after_confirmation(self.confirm(question), action))
            return
        done = action.handler()  # at once: what is typed next belongs to a prompt that it opens
        if isawaitable(done):
            self.start(done)

    def start(self, work: Awaitable[None]) -> None:
        """Let the rest of an action run; what the server refuses is told."""
        self.run_worker(self._report_errors(work), group="actions")

    async def _after_confirmation(self, confirmed: Awaitable[bool], action: Action) -> None:
        if await confirmed:
            done = action.handler()
            if isawaitable(done):
                await done

    async def _report_errors(self, done: Awaitable[None]) -> None:
        try:
            await done
        except HaiError as error:
            self.hai.fail(error)

    def ask(self, question: Dialog[Answer]) -> Awaitable[Answer]:
        """The answer to a question over the page, which is there at once: keys that are typed next are for it."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.app.push_screen(question, answer.set_result)  # type: ignore[arg-type]
        return asyncio.shield(answer)  # who waits may go first

    def confirm(self, question: str, typed: str = "") -> Awaitable[bool]:
        """Ask; with `typed` that word must be written out."""
        return self.ask(ConfirmDialog(question, typed))

    async def save(self, path: Path, write: Callable[[], Awaitable[str]]) -> None:
        """Write a file, asked first where it would replace one; `write` answers with what is said then."""
        exists = await asyncio.to_thread(os.path.exists, path)  # False of a name that can not be
        if exists and not await self.confirm(text("save.exists", path=path)):
            return
        try:
            self.hai.say(await write())
        except OSError as error:
            self.hai.say(text("save.cannot", path=path, error=error.strerror), warning=True)

    def ask_line(self, question: Question) -> None:
        """Ask for one line at the bottom."""
        self.query_one(Prompt).ask(question)

    def status(self, sentence: str | Text) -> None:
        """Write the status line."""
        if self.is_ready:
            self.query_one(StatusLine).set_text(sentence)

    def fetch(
        self,
        request: Callable[[Client], Awaitable[Answer]],
        show: Callable[[Answer], None],
        *,
        group: str = "fetch",
    ) -> None:
        """Ask the server in the background and show the answer; a newer question of the group replaces it.

        While the server is away it is asked again by itself; the banner says so.
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
        """One request of an action, within its deadline. Raises HaiError, which is shown if nobody catches it."""
        return await request(await self.hai.session.client())


def make_page(entry: PageEntry, arguments: Sequence[str] = ()) -> Page:
    """A new page. Its module is imported when it is first opened."""
    module, name = entry.class_path.split(":")
    page: Page = getattr(import_module(f"hai_tui.screens.{module}"), name)(*arguments)
    page.entry, page.arguments = entry, tuple(arguments)
    return page
