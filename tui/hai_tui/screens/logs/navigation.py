"""Moves through logs: to an end, from run to run, from hit to hit; also to lines that are not loaded yet."""

from __future__ import annotations

from functools import partial

from hai_tui.i18n import text
from hai_tui.logs.search import matches
from hai_tui.screens.logs.files import LogFiles
from hai_tui.widgets.dialogs.prompt import Question


class LogNavigation(LogFiles):
    """A page with logs that one moves through; what is looked for is each log's own."""

    _history: tuple[str, ...] = ()  # what was looked for, the newest first

    # Moving.

    async def go_to_end(self) -> None:
        """To the end, and follow."""
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        pane.view.following = True
        if not pane.reader.attached:
            await pane.reader.last()
        pane.flush()
        pane.view.to_end()

    async def go_to_top(self) -> None:
        """To the beginning of the log, also where it is not held."""
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        pane.view.following = False
        if pane.window.begin and await pane.reader.older():
            await pane.reader.first()
        pane.flush()
        pane.view.to_start()

    async def follow(self) -> None:
        """Stay at the end while lines come, or no longer."""
        pane = self.pane
        if pane is not None and pane.view.following:
            pane.view.following = False
            pane.update_heading()
        else:
            await self.go_to_end()

    async def go_to_run(self, *, back: bool) -> None:
        """The next run, or the one before."""
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        line, current = pane.find_run(back=back), pane.first_visible_line
        number = current.run if current else 0
        if line is None:
            test = (lambda x: x.run < number) if back else (lambda x: x.run > number)
            line = await pane.reader.find(test, back=back)
            pane.flush()
        if line is None:
            self.hai.say(text("logs.no_run"))
        else:
            pane.view.show_line(line)

    # Looking for text.

    def ask_search(self) -> None:
        """What to look for; hits are marked while it is typed."""
        before = self.pane.search_text if self.pane is not None else ""
        question = Question(
            text("logs.ask.search"),
            self._search,
            changed=self._mark,
            cancelled=lambda: self._mark(before),
            history=self._history,
        )
        self.ask_line(question)

    def _mark(self, query: str) -> None:
        if self.pane is not None:
            self.pane.search(query)
            self.update_status()

    def _search(self, query: str) -> None:
        self._mark(query)
        if query:
            earlier = (each for each in self._history if each != query)
            self._history = (query, *earlier)[:50]
            at_end = self.pane is not None and self.pane.view.following
            self.report(partial(self.go_to_hit, back=at_end))

    async def go_to_hit(self, *, back: bool) -> None:
        """The nearest line with what is looked for, read from the server where need be."""
        pane = self.pane
        if pane is None or pane.reader is None:
            return
        search_pattern = pane.search_pattern
        if search_pattern is None:
            self.hai.say(text("logs.no_words"))
            return
        if pane.view.next_hit(back=back) or search_pattern.gave_up:
            self.update_status()
            return

        def on_progress(lines: int) -> None:
            self.status(text("logs.looking", wanted=search_pattern.pattern, lines=f"{lines:,}"))

        line = await pane.reader.find(matches(search_pattern), back=back, on_progress=on_progress)
        pane.flush()
        self.update_status()
        if line is None and not search_pattern.gave_up:
            way = "above" if back else "below"
            self.hai.say(text(f"logs.no_more_hits.{way}", wanted=search_pattern.pattern))
        elif line is not None:
            pane.view.show_hit(line)

    def ask_only(self) -> None:
        """What lines must have to be shown."""
        if self.pane is not None:
            only = self.pane.only
            self.ask_line(
                Question(
                    text("logs.ask.only"),
                    self._only,
                    only,
                    changed=self._only,
                    cancelled=lambda: self._only(only),
                )
            )

    def _only(self, query: str) -> None:
        if self.pane is not None:
            self.pane.set_only(query)
            self.update_status()
