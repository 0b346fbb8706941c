"""How the app ends, whoever ends it: every stream is closed, the terminal is as before."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import ClassVar

import rich
from rich.segment import Segments
from rich.traceback import Traceback
from textual.binding import Binding, BindingType
from textual.worker import active_worker

from hai_tui.notifications import Notifications
from hai_tui.session import Session


class Shutdown(Notifications):
    """An app with a session that ends before it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]
    session: Session

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

    def heed_signals(self) -> None:
        """A closed window or a `kill` ends us well."""
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
