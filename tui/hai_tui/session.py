"""The session with one server: the client, the state of the connection, the tasks and the caller.

It owns all requests and streams that serve the app as a whole, and `close` ends them. grpc is imported in a thread
after the first paint, because the import takes longer than a first paint may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hai.client.connection.cancellation import error_of
from hai.client.errors import HaiError
from hai.client.text.formatting import enum_name
from hai_tui.actions import Caller
from hai_tui.feed.connection_state import Link

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.profile import Profile
    from hai.v1.server_service_pb2 import ServerInfo
    from hai.v1.task_service_pb2 import WatchTasksResponse
    from hai_tui.feed.task_model import TaskModel

Answer = TypeVar("Answer")
Connect = Callable[["Profile"], "Client"]

HEARTBEAT_SECONDS = 10.0
"""How often the server is asked for a sign of life. A silent watch would not notice a dead server."""

QUEUE_SECONDS = 5.0
"""The queue is fetched at most this often, after a task has changed."""

HISTORY = 2000
"""The number of newest finished tasks that are loaded at the start. A filter asks the server for more."""
_PAGE = 500  # finished tasks per request


def connect(profile: Profile) -> Client:
    """Return a client for a profile."""
    from hai.client.client import Client

    return Client(profile)


class Session:
    """The connection to one server, with its requests and streams.

    `on_changed` receives the ids of changed tasks, `identified` is called once the caller is known, `on_failed`
    receives errors that no job handles.
    """

    def __init__(
        self,
        profile: Profile,
        clock: Callable[[], float],
        *,
        connect: Connect = connect,
        on_changed: Callable[[set[int]], None] = lambda ids: None,
        identified: Callable[[], None] = lambda: None,
        on_failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.profile = profile
        self.link = Link(profile.server, clock)
        self.caller = Caller()
        self.info: ServerInfo | None = None  # None until the server has answered
        self.skew = 0.0  # the server's clock less ours
        self._clock, self._connect = clock, connect
        self._on_changed, self._on_identified, self._on_failed = on_changed, identified, on_failed
        self._client: Client | None = None
        self._model: TaskModel | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._queue_moved = asyncio.Event()
        self._queue_loaded = False
        self._pending_requests = 0

    @property
    def tasks(self) -> TaskModel | None:
        """The tasks; None until the first imports are done."""
        return self._model

    async def client(self) -> Client:
        """Return the client once it is ready."""
        await self._ready.wait()
        assert self._client is not None
        return self._client

    def start(self) -> None:
        """Connect in the background."""
        self.spawn(self._open())

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run a job that ends with the session."""
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._ended)
        return job

    def _ended(self, job: asyncio.Task[None]) -> None:
        """Report a failed job, because the data that it updated becomes stale."""
        self._jobs.discard(job)
        if (error := error_of(job)) is not None:
            self._on_failed(error)

    async def close(self) -> None:
        """End every stream and the connection. Callers that wait for `client` keep waiting until their page closes."""
        self._ready.clear()
        jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def _open(self) -> None:
        """Import the clients in a thread, connect, and start the jobs of the session."""
        await asyncio.to_thread(_import_clients)
        from hai_tui.feed.task_model import TaskModel

        self._model = TaskModel()
        try:
            self._client = self._connect(self.profile)
        except HaiError as error:  # the profile is invalid; nothing was sent
            self.link.mark_refused(error)
            return
        self._ready.set()
        self.spawn(self._heartbeat())
        self.spawn(self._watch())
        self.spawn(self._history())
        self.spawn(self._queue())

    async def _watch(self) -> None:
        """Apply the changes of all tasks to the model."""
        from hai_tui.feed.reconnecting_stream import ReconnectingStream

        client, model = await self.client(), self._model
        assert model is not None

        def reopen() -> AsyncGenerator[WatchTasksResponse, None]:
            return client.tasks.watch("", model.version, patience=0.0)

        await ReconnectingStream(self.link, reopen, self._apply).run()

    def _apply(self, answer: WatchTasksResponse) -> None:
        """Apply an answer of the watch. Start again if the server has another database."""
        from hai.client.errors import Unreachable

        assert self._model is not None
        if self._model.is_from_other_database(answer):
            self._model.reset()
            self.spawn(self._history())
            raise Unreachable("the server has other data than before")
        first = not self._model.loaded
        on_changed = self._model.apply(answer)
        if on_changed or first:
            self._queue_moved.set()
            self._on_changed(on_changed)

    async def _history(self) -> None:
        """Load the newest finished tasks. The watch delivers all others, and all changes."""
        client = await self.client()
        request = partial(client.tasks.list, filter="state:finished", page_size=_PAGE)
        token, remaining = "", HISTORY
        while remaining > 0:
            page = await self.call_with_retry(partial(request, page_token=token))
            self.merge(page.tasks)
            token, remaining = page.next_page_token, remaining - len(page.tasks)
            if not token:
                return

    def merge(self, tasks: object) -> None:
        """Add tasks from the answer of another call."""
        assert self._model is not None
        if on_changed := self._model.merge(tasks):  # type: ignore[arg-type]
            self._on_changed(on_changed)

    def refresh_queue(self) -> None:
        """Fetch the queue again soon, because positions have changed."""
        self._queue_moved.set()

    async def _queue(self) -> None:
        """Fetch the queue after each change. Positions and predicted starts may change although no task changes."""
        client = await self.client()
        while True:
            await self._queue_moved.wait()
            self._queue_moved.clear()
            for _ in range(2):  # the scheduling pass may come only after the first answer
                queue = await self.call_with_retry(client.tasks.queue)
                assert self._model is not None
                if on_changed := self._model.apply_queue(queue):
                    self._on_changed(on_changed)
                self._queue_loaded = True
                await asyncio.sleep(QUEUE_SECONDS)

    async def _heartbeat(self) -> None:
        """Identify the caller once, then ask for a sign of life regularly."""
        client = await self.client()
        answer = await self.call_with_retry(client.users.whoami)
        self.caller = _caller(answer)
        while True:
            self.info = await self.call_with_retry(client.server.info)
            self.skew = self.info.time.ToNanoseconds() / 1e9 - self._clock()
            self._on_identified()
            await self.link.wait(HEARTBEAT_SECONDS)

    @property
    def has_pending_requests(self) -> bool:
        """True while an answer is outstanding, or before the first answers that every page needs."""
        return self._pending_requests > 0 or self.info is None or not self._queue_loaded

    async def call_with_retry(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeat a request until there is an answer, and update the link. Raise errors that a retry cannot fix."""
        self._pending_requests += 1
        try:
            return await self._call_with_retry(request)
        finally:
            self._pending_requests -= 1

    async def _call_with_retry(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        from hai.client.connection.backoff import delays
        from hai.client.errors import Denied
        from hai_tui.feed.reconnecting_stream import FINAL, wait_before_retry

        for delay in delays():
            try:
                answer = await request()
            except (*FINAL, Denied):  # the server refused this request, not the connection
                self.link.mark_live()
                raise
            except HaiError as error:
                await wait_before_retry(self.link, error, delay)
            else:
                self.link.mark_live()
                return answer
        raise AssertionError("delays never end")


def _import_clients() -> None:
    import hai_tui.feed.reconnecting_stream
    import hai_tui.feed.task_model  # noqa: F401


def _caller(answer: object) -> Caller:
    from hai.v1.user_pb2 import Role
    from hai.v1.user_service_pb2 import WhoAmIResponse

    assert isinstance(answer, WhoAmIResponse)
    user = answer.user
    role = enum_name(Role, user.role)
    return Caller(user.name, role, tuple(user.groups), tuple(user.rights))
