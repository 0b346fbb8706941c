"""The part of the app that pages use: notes, the session with the server, and shutdown.

`HaiApp` adds the opening of pages. Pages import only this class, so the app may import the pages.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import rich
from rich.segment import Segments
from rich.traceback import Traceback
from textual.app import App
from textual.binding import Binding, BindingType
from textual.notifications import SeverityLevel
from textual.worker import active_worker

from hai.client.errors import HaiError
from hai.client.profile import Profile
from hai_tui.actions import Action, Caller
from hai_tui.preferences import Preferences
from hai_tui.session import Connect, Session, connect

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task, Waiting
    from hai_tui.tasks.commands import Undo
    from hai_tui.widgets.header_footer import Heading


@dataclass(frozen=True, slots=True)
class AppConfig:
    """The options with which the app was started. Tests pass their own `connect` and `clock`."""

    profile: str | None = None
    readonly: bool = False
    start: str = "tasks"  # the first page, as typed after `:`
    connect: Connect = connect
    clock: Callable[[], float] = time.time
    chosen: Profile | None = None  # used instead of the stored profile


_ERROR_SECONDS = 12.0


class BaseApp(App[int]):
    """An app that is connected to one server at a time. It ends its session before it exits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]
    preferences: Preferences
    _connected = False

    def __init__(self, options: AppConfig | None = None) -> None:
        super().__init__()
        self.options = options or AppConfig()
        self.session = Session(Profile(), self.options.clock)
        self._undos: list[Undo] = []

    # HaiApp implements these methods.

    def goto(self, line: str) -> None:
        """Open the page that a line such as `logs 12` names."""
        raise NotImplementedError

    def back(self) -> None:
        """Close the page on top."""
        raise NotImplementedError

    def show_help(self) -> None:
        """Show the keys of the page on top."""
        raise NotImplementedError

    def heading(self) -> Heading:
        """Return the top line of the page on top."""
        raise NotImplementedError

    def actions(self) -> Sequence[Action]:
        """Return the actions of every page."""
        raise NotImplementedError

    def retry_now(self) -> None:
        """Try to connect at once."""
        raise NotImplementedError

    async def use(self, profile: Profile | None) -> None:
        """Connect to a server. Without a profile, ask for it."""
        raise NotImplementedError

    # The session.

    @property
    def caller(self) -> Caller:
        """The user of this session."""
        return self.session.caller

    def now(self) -> float:
        """Return the server's time, so that ages are right even if the clock of this machine is wrong."""
        return self.options.clock() + self.session.skew

    def banner(self) -> str:
        """Return the line above a page while the connection is not live."""
        return self.session.link.state.banner(self.options.clock()) if self._connected else ""

    def waiting(self, task: Task) -> Waiting:
        """Return why a task waits, from the latest answer."""
        model = self.session.tasks
        return model.waiting(task) if model else task.waiting

    def refresh_queue(self) -> None:
        """Fetch the positions in the queue soon."""
        self.session.refresh_queue()

    # Undo.

    def push_undo(self, undo: Undo, succeeded: set[int]) -> None:
        """Store how to undo an action on the tasks for which it succeeded."""
        operations = tuple(
            (id, operation)
            for id, operation in undo.operations
            if id in succeeded or len(succeeded) < 2
        )
        self._undos.append(replace(undo, operations=operations))

    def pop_undo(self) -> Undo | None:
        """Remove and return the last action that can be undone."""
        return self._undos.pop() if self._undos else None

    # Notes at the bottom.

    def say(self, sentence: str, *, warning: bool = False) -> None:
        """Show a note for a short time. It replaces an equal one."""
        self._note(sentence, "warning" if warning else "information")

    def fail(self, error: HaiError) -> None:
        """Show an error of the client, with what to do about it."""
        hint = f"\n{error.hint}" if error.hint else ""
        self._note(f"{error.message}{hint}\n[{error.reason}]", "error", _ERROR_SECONDS)

    def _note(self, message: str, severity: SeverityLevel, seconds: float | None = None) -> None:
        for note in [each for each in self._notifications if each.message == message]:
            self._unnotify(note, refresh=False)
        self.notify(message, severity=severity, timeout=seconds, markup=False)

    # Shutdown.

    async def shut_down(self) -> None:
        """Close every stream, then exit."""
        await self.disconnect()
        self.exit(0)

    async def disconnect(self) -> None:
        """Cancel all workers except the one that calls this, then close the session."""
        for worker in [each for each in self.workers if each is not active_worker.get(None)]:
            worker.cancel()
        await self.session.close()

    async def action_quit(self) -> None:
        """Quit on ctrl+c."""
        await self.shut_down()

    async def on_unmount(self) -> None:
        """Close every stream, however the app ends."""
        await self.disconnect()

    def handle_signals(self) -> None:
        """Shut down when the window is closed or the process is terminated."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError, NotImplementedError):  # outside the main thread
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self.run_worker(self.shut_down())

    def _fatal_error(self) -> None:
        """Print the traceback as Textual does, but without local variables, because one of them may be a token."""
        self.bell()
        trace = self.console.render(Traceback(suppress=[rich], width=None), self.console.options)
        self._exit_renderables.append(Segments(trace))
        self._close_messages_no_wait()
