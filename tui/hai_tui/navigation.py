"""Where one is: pages lie upon one another. `:`, digits and the palette open them, esc closes the one on top."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.markup import escape
from textual.screen import Screen
from textual.worker import active_worker

from hai_tui.actions import Action, key_label
from hai_tui.base_app import BaseApp
from hai_tui.i18n import text
from hai_tui.page_registry import PAGES, NoSuchPage, PageEntry, find
from hai_tui.screens.page import Page, make_page
from hai_tui.widgets.dialogs.prompt import Question


class Navigation(BaseApp):
    """An app of pages."""

    ENABLE_COMMAND_PALETTE = True

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
            self.push_screen(make_page(entry, words))
            return
        for _ in open_pages[same[0] + 1 :]:
            self.pop_screen()

    def pop_screen(self) -> AwaitComplete:
        """What the page still asks for ends at once: it goes part by part, and an answer would miss some of them."""
        going = self.screen
        for worker in self.workers:
            if going in worker.node.ancestors_with_self and worker is not active_worker.get(None):
                worker.cancel()
        return super().pop_screen()

    def back(self) -> None:
        """Close the page on top; the last one stays."""
        if len(self._pages()) > 1:
            self.pop_screen()

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

    def show_help(self) -> None:
        """The keys of this page."""
        from hai_tui.screens.help import HelpScreen

        if isinstance(self.screen, Page):
            self.push_screen(HelpScreen(self.screen))

    def page_actions(self) -> list[Action]:
        """One that opens each page."""
        return [self._opens(page) for page in PAGES if not page.needs_words]

    def _opens(self, page: PageEntry) -> Action:
        return _PageAction(
            page.key,
            f"page.{page.name}",
            "palette.page",
            partial(self.open_page, page),
            shown=False,
            title=page.title,
        )

    def action_command_palette(self) -> None:
        """Search all actions by name."""
        if not isinstance(self.screen, CommandPalette):
            asked = text("palette.ask")
            self.push_screen(CommandPalette(id="--command-palette", placeholder=asked))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action that the page and the app have."""
        if not isinstance(screen, Page):
            return
        for action in screen.all_actions():
            key = f" · {key_label(action.key)}" if action.key else ""
            told = screen.refusal(action) or f"{action.name}{key}"
            yield SystemCommand(escape(action.label), escape(told), partial(screen.perform, action))

    def reframe(self) -> None:
        """Draw the frame of the page on top again."""
        if pages := self._pages():
            pages[-1].reframe()  # also when a question lies over it

    def _pages(self) -> list[Page]:
        return [screen for screen in self.screen_stack if isinstance(screen, Page)]


@dataclass(frozen=True, slots=True)
class _PageAction(Action):
    """Opens a page; its label is made of the page's title."""

    title: str = ""

    @property
    def label(self) -> str:
        """`open the page tasks`."""
        return text("palette.page", name=self.title)
