"""One server at a time: which, how the connection stands, and what pages hear of it."""

from __future__ import annotations

from functools import partial

from hai.client import profile as profiles
from hai.client.errors import HaiError, NotFound, UsageError
from hai.client.profile import Profile
from hai_tui.app_config import AppConfig
from hai_tui.feed.connection_state import LinkState, Phase
from hai_tui.feed.debouncer import Debouncer
from hai_tui.navigation import Navigation
from hai_tui.page_registry import find
from hai_tui.screens.page import make_page
from hai_tui.session import Session
from hai_tui.textual_compat import later

REPAINT_SECONDS = 0.1
"""Changes of tasks reach the pages at most this often."""

FIRST_PAINT_SECONDS = 0.03
"""The first page is drawn by then. Textual's own word of it is lost when the page on top goes at that moment."""


class Speaking(Navigation):
    """An app that speaks to the server of a profile."""

    def __init__(self, options: AppConfig | None = None) -> None:
        super().__init__(options)
        self._profile = self.options.profile
        self._gathered = Debouncer(self._tasks_changed, REPAINT_SECONDS, partial(later, self))

    def retry_now(self) -> None:
        """End the wait before the next try. Where a token was refused, another may be stored by now."""
        refused = self.session.link.state.phase is Phase.REFUSED
        stored = self._chosen() if refused else None
        if stored is None or stored == self.session.profile:
            self.session.link.retry_now()
        else:
            self.run_worker(self.switch(stored), exclusive=True)

    # Which server.

    async def begin(self) -> None:
        """Speak to the server that was chosen at the start."""
        await self.use(self._chosen())

    def _chosen(self) -> Profile | None:
        if self.options.chosen is not None:
            return self.options.chosen
        try:
            return profiles.load(self._profile)
        except (NotFound, UsageError):
            return None

    async def use(self, profile: Profile | None) -> None:
        """Speak to a server; without one, ask for it."""
        if profile is None:
            from hai_tui.screens.wizard import WizardScreen

            await self.push_screen(WizardScreen())
            return
        self.session = self._session(profile)
        self.session.link.listen(self._link_changed)
        self._connected = True
        entry, words = find(self.options.start)
        await self.push_screen(make_page(entry, words))
        later(self, FIRST_PAINT_SECONDS, partial(self._start, self.session))

    def _start(self, session: Session) -> None:
        if session is self.session:  # else it was left within that time
            session.start()

    def _session(self, profile: Profile) -> Session:
        return Session(
            profile,
            self.options.clock,
            connect=self.options.connect,
            changed=self._gathered.add,
            known=self.reframe,
            failed=self._job_failed,
        )

    def choose_profile(self) -> None:
        """Another server."""
        from hai_tui.screens.profiles import ProfileScreen

        try:
            known = [profiles.load(name) for name in profiles.names()]
        except HaiError as error:
            self.fail(error)
        else:
            self.push_screen(ProfileScreen(self.session.profile.name, known), self._chose)

    def _chose(self, name: str | None) -> None:
        stored = profiles.load(name) if name else self.session.profile
        if stored != self.session.profile:
            self._profile = name
            self.run_worker(self.switch(stored), exclusive=True)

    async def switch(self, profile: Profile) -> None:
        """Leave this server and all its pages, and speak to another."""
        await self.hang_up()
        for _ in self._pages():
            await self.pop_screen()
        await self.use(profile)

    # What pages hear.

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
