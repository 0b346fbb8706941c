"""The watch cache: the unfinished tasks and the last changes, in memory, for all streams of this server.

While there are streams, the cache reads each change from the store once, in order of version, however many streams
there are. A change therefore is in no stream before it is durable, and no change is missed, whoever made it.

A stream knows only the version up to which its reader has everything. It has no queue: when its reader has taken a
bundle, the stream gets all that has changed since, of each task the last state. So a slow reader costs no memory. A
reader whose version is older than the ring gets the missed changes from the store, page by page. Streams with equal
filters and versions share one bundle, and with it the encoded responses.

The pause between two bundles grows with the number of streams that received the last one, so that many readers take a
limited part of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from hai_backend.api.protocols import Feed
from hai_backend.api.watch.ring import GroupsOf, Ring, constant_terms, tasks_to_send
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import TaskFilter
from hai_backend.store.matching import matches

BUNDLE_SECONDS = 0.05  # between bundles; a busy cluster has a thousand changes a second
SECONDS_PER_STREAM = 0.0003  # of the pause: at most 3 300 responses per second are sent
_STREAMS_AT_ONCE = 50  # woken before other work of the event loop has its turn
_RING_CAPACITY = 20_000  # tasks and ranks, some ten megabytes
_PAGE_SIZE = 500
_OVERLAP = 200  # versions before the start of the cache that are read from the store
_MAX_BUNDLES = 1000  # that are kept: their keys come from callers


@dataclass(slots=True, eq=False)
class Bundle:
    """Tasks to send. A reader that has all of them can resume from `version`, and one that has only some from `begin`.

    `responses` is for the encoded form, which streams that share the bundle also share.
    """

    tasks: list[Task]
    version: int
    begin: int = 0
    responses: list[bytes] = field(default_factory=list)


class TaskStore(Protocol):
    """The method of store.base.Store that the cache needs."""

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]: ...


class UnfinishedTasks(Protocol):
    """The methods of the task manager that the cache needs."""

    @property
    def feed(self) -> Feed: ...
    def unfinished(self) -> Mapping[int, Task]: ...


_Position = tuple[
    TaskFilter, int
]  # of a stream: its filter, and the version up to which it has everything


class WatchCache:
    """Shared by all streams of this server. It reads nothing while there are none."""

    def __init__(
        self,
        store: TaskStore,
        task_manager: UnfinishedTasks,
        groups_of: GroupsOf,
        observe_streams: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._store = store
        self._task_manager = task_manager
        self._feed = task_manager.feed
        self._groups_of = groups_of
        self._observe_streams = observe_streams
        self._ring = Ring(0, _RING_CAPACITY)
        self._tasks: dict[int, Task] = {}  # all unfinished tasks at the version of the ring
        self._waiting: dict[_Position, list[asyncio.Future[Bundle]]] = {}
        self._bundles: dict[_Position, Bundle] = {}  # that end at the version of the ring
        self._loaded_version = 0  # at which the tasks were loaded
        self._newest_version = 0  # of a task from the store, which may be newer than the feed
        self._reading = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self.stream_count = 0

    async def bundles(
        self, task_filter: TaskFilter, after_version: int
    ) -> AsyncGenerator[Bundle, None]:
        """Yield bundles forever. The first one is yielded at once, also if it is empty.

        A new stream, with `after_version` 0, begins with all unfinished tasks that match. So does a stream with a
        version of another store.
        """
        with self._stream():
            await self._read_up_to(self._loaded_version)
            version = after_version
            if version > max(self._feed.version, self._newest_version):
                version = 0
            is_first = version > 0
            if not version:
                async for bundle in self._current_tasks(task_filter):
                    yield bundle
                    version = bundle.version
            reads_store = False
            while True:
                # After a page that is not the last, the ring may have a change since a state that was on no page.
                if reads_store or version < self._ring.floor:
                    bundle, reads_store = await self._stored_changes(task_filter, version)
                else:
                    bundle = self._changes(task_filter, version)
                    if not bundle.tasks and not is_first:
                        bundle = await self._next_changes(task_filter, bundle.version)
                if bundle.tasks or is_first:
                    yield bundle
                version, is_first = bundle.version, False
                del bundle  # a stream may wait for hours

    @contextmanager
    def _stream(self) -> Iterator[None]:
        """Count a stream. The first one loads the cache and starts the reader, and the last one stops it."""
        if self._reader is None:
            self._loaded_version = self._feed.version
            # Some of the last changes may be durable, but not known to the task manager.
            self._ring = Ring(max(0, self._loaded_version - _OVERLAP), _RING_CAPACITY)
            self._tasks = dict(self._task_manager.unfinished())
            self._reader = asyncio.create_task(self._read_changes(), name="watch-cache")
        self.stream_count += 1
        self._observe_streams(self.stream_count)
        try:
            yield
        finally:
            self.stream_count -= 1
            self._observe_streams(self.stream_count)
            if not self.stream_count:
                self._reader.cancel()
                self._reader = None
                self._tasks, self._bundles = {}, {}

    async def _current_tasks(self, task_filter: TaskFilter) -> AsyncIterator[Bundle]:
        """Yield all unfinished tasks that match, in pages. A reader can resume only from the last page."""
        await self._read_up_to(self._feed.version)  # a caller finds what it has just submitted
        version, found = self._ring.version, list[Task]()
        tasks = list(self._tasks.values())
        for first in range(0, len(tasks), _PAGE_SIZE):
            part = tasks[first : first + _PAGE_SIZE]
            found += [task for task in part if self._matches(task, task_filter)]
            if len(found) >= _PAGE_SIZE:
                yield Bundle(found, 0)
                found = []
            await asyncio.sleep(0)
        yield Bundle(found, version)

    def _matches(self, task: Task, task_filter: TaskFilter) -> bool:
        return matches(task, task_filter, {task.user: self._groups_of(task.user)})

    async def _stored_changes(
        self, task_filter: TaskFilter, after_version: int
    ) -> tuple[Bundle, bool]:
        """Return a page of changes that are no longer in the ring, read from the store, and whether there are more.

        The reader may have had any state of these tasks, so it also gets those that do not match any more.
        """
        published = self._feed.version  # read first: the store has everything up to this version
        changed = await self._store.changed_tasks(after_version, _PAGE_SIZE)
        constant = constant_terms(task_filter)
        version = changed[-1].version if changed else 0
        self._newest_version = max(self._newest_version, version)
        if len(changed) < _PAGE_SIZE:
            version = max(version, published)
        tasks = [task for task in changed if self._matches(task, constant)]
        return Bundle(tasks, version, after_version), len(changed) == _PAGE_SIZE

    def _changes(self, task_filter: TaskFilter, after_version: int) -> Bundle:
        """Return what has changed in memory after a version. The bundle may be empty."""
        if after_version >= self._ring.version:
            return Bundle([], after_version)
        position = (task_filter, after_version)
        bundle = self._bundles.get(position)
        if bundle is None:
            changes = self._ring.after(after_version)
            tasks = tasks_to_send(changes, task_filter, self._groups_of)
            bundle = Bundle(tasks, self._ring.version, after_version)
            if len(self._bundles) >= _MAX_BUNDLES:
                self._bundles = {}
            self._bundles[position] = bundle
        return bundle

    async def _next_changes(self, task_filter: TaskFilter, version: int) -> Bundle:
        """Return the next bundle that is not empty. It is empty if the ring no longer has all changes."""
        future: asyncio.Future[Bundle] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((task_filter, version), []).append(future)
        return await future

    async def _read_changes(self) -> None:
        """Read changes and wake streams until cancelled. If the store fails, the waiting streams end with its error."""
        woken_version = (
            self._ring.version
        )  # a new stream may advance the ring without waking others
        while True:
            await self._feed.beyond(woken_version)
            try:
                await self._read_up_to(self._feed.version)
                version = self._ring.version
                woken = await self._wake()
                woken_version = version
            except Exception as error:  # else the streams would wait forever
                woken = self._fail(error)
            await asyncio.sleep(max(BUNDLE_SECONDS, woken * SECONDS_PER_STREAM))

    async def _read_up_to(self, version: int) -> None:
        """Read all changes up to this version, which must be published."""
        async with self._reading:
            while self._ring.version < version:
                published = self._feed.version  # read first, as above
                changed = await self._store.changed_tasks(self._ring.version, _PAGE_SIZE)
                self._bundles = {}
                for task in changed:
                    self._add(task)
                if len(changed) < _PAGE_SIZE:
                    self._ring.advance(published)

    def _add(self, task: Task) -> None:
        self._newest_version = max(self._newest_version, task.version)
        shared = self._task_manager.unfinished().get(task.id)
        if shared is not None and shared.version == task.version:
            task = shared  # an equal object that stays in memory anyway
        # What was loaded may be the state after this change.
        before = self._tasks.get(task.id) if task.version > self._loaded_version else None
        self._ring.add(task, before)
        if task.state is TaskState.FINISHED:
            self._tasks.pop(task.id, None)
        else:
            self._tasks[task.id] = task

    async def _wake(self) -> int:
        """Give each waiting stream what it must send, if anything. Return the number of streams that send."""
        waiting, self._waiting = self._waiting, {}
        woken = 0
        for (task_filter, version), futures in waiting.items():
            bundle = Bundle([], version)  # for a stream that the ring has overtaken
            if version >= self._ring.floor:
                try:
                    bundle = self._changes(task_filter, version)
                except Exception as error:  # such as an error in the filter of one stream
                    _set_exception(futures, error)
                    continue
                if not bundle.tasks:
                    position = (task_filter, bundle.version)
                    self._waiting.setdefault(position, []).extend(_without_ended(futures))
                    continue
            for future in futures:
                if future.done():  # its stream has ended, perhaps during the sleep below
                    continue
                future.set_result(bundle)
                woken += 1
                if woken % _STREAMS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return woken

    def _fail(self, error: Exception) -> int:
        waiting, self._waiting = self._waiting, {}
        return sum(_set_exception(futures, error) for futures in waiting.values())


def _set_exception(futures: list[asyncio.Future[Bundle]], error: Exception) -> int:
    """End streams that still wait with an error. Return their number."""
    running = _without_ended(futures)
    for future in running:
        future.set_exception(error)
    return len(running)


def _without_ended(futures: list[asyncio.Future[Bundle]]) -> list[asyncio.Future[Bundle]]:
    """Return the futures of streams that still wait."""
    return [future for future in futures if not future.done()]
