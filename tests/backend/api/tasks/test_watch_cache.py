"""The cache behind WatchTasks: what streams share, and what it does when a reader is slow or the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.watch import cache as watching
from hai_backend.api.watch.cache import Bundle, WatchCache
from hai_backend.api.watch.responses import TaskEncoder
from hai_backend.api.watch.ring import Ring
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.store.base import Store, TaskFilter
from hai_backend.store.connect import open_store
from tests.backend.api.tasks.test_watch import Manager
from tests.support.builders import a_task
from tests.support.databases import default_store

ADA = TaskFilter(users=frozenset({"ada"}))


@pytest.fixture(params=["usual", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """The store that tests use (databases.py), and SQLite."""
    monkeypatch.setattr(watching, "BUNDLE_SECONDS", 0.0)
    if request.param == "usual":
        async with default_store() as made:
            yield made
        return
    made = open_store(f"sqlite:///{tmp_path / 'hai.db'}")
    await made.open()
    yield made
    await made.close()


class Counted:
    """A store that counts the reads of changes, and fails on request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.error: Exception | None = None

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await self._store.changed_tasks(after_version, limit)


class World:
    """A cache over a store, whose reads are counted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.counted = Counted(store)
        self.manager = Manager(store)
        self.counts: list[int] = []
        self.cache = WatchCache(self.counted, self.manager, lambda user: (), self.counts.append)

    async def submit(self, name: str, user: str = "ada") -> Task:
        task = await self.store.create_task(replace(a_task(0, user, name=name), revision=1), ())
        await self.manager.publish()
        return task

    async def change(self, task: Task, state: TaskState) -> Task:
        changed = replace(task, state=state, revision=task.revision + 1)
        saved = await self.store.save_task(changed, ())
        assert saved is not None
        await self.manager.publish()
        return saved

    def watch(self, after_version: int = 0) -> AsyncGenerator[Bundle, None]:
        return self.cache.bundles(ADA, after_version)


async def test_equal_streams_share_reads_and_bundles(store: Store) -> None:
    world = World(store)
    await world.submit("first")
    streams = [world.watch() for _ in range(20)]
    lists = [await anext(stream) for stream in streams]
    assert all([task.spec.name for task in found.tasks] == ["first"] for found in lists)
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await asyncio.sleep(0)
    reads = world.counted.reads
    second = await world.submit("second")
    bundles = await asyncio.gather(*waiting)
    assert world.counted.reads == reads + 1
    assert bundles[0].tasks == [second]
    assert all(bundle is bundles[0] for bundle in bundles)
    for stream in streams:
        await stream.aclose()
    assert world.counts == [*range(1, 21), *range(19, -1, -1)]


async def test_changes_that_nobody_watches_are_not_read(store: Store) -> None:
    world = World(store)
    async with aclosing(world.watch()) as stream:
        await anext(stream)
    reads = world.counted.reads
    await world.submit("first")
    await asyncio.sleep(0)
    assert world.counted.reads == reads


async def test_stream_resumes_from_memory(store: Store) -> None:
    world = World(store)
    task = await world.submit("first")
    async with aclosing(world.watch()) as other:
        version = (await anext(other)).version
        ended = await world.change(task, TaskState.FINISHED)
        assert (await anext(other)).tasks == [ended]
        reads = world.counted.reads
        async with aclosing(world.watch(version)) as resumed:
            assert (await anext(resumed)).tasks == [ended]
        assert world.counted.reads == reads


async def test_reader_that_is_slower_than_the_ring_gets_the_changes_from_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_RING_CAPACITY", 2)
    world = World(store)
    async with aclosing(world.watch()) as slow, aclosing(world.watch()) as fast:
        await anext(slow)
        await anext(fast)
        for number in range(6):
            task = await world.submit(f"t{number}")
            assert (await anext(fast)).tasks == [task]
        missed = await anext(slow)
        assert [task.spec.name for task in missed.tasks] == [f"t{n}" for n in range(6)]
        last = await world.submit("last")
        assert (await anext(slow)).tasks == [last]


async def test_failure_of_the_store_ends_the_waiting_streams(store: Store) -> None:
    world = World(store)
    stream = world.watch()
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    world.counted.error = Unavailable("the disk is full")
    await world.submit("first")
    with pytest.raises(Unavailable, match="the disk is full"):
        await waiting
    world.counted.error = None
    async with aclosing(world.watch()) as again:
        assert [task.spec.name for task in (await anext(again)).tasks] == ["first"]


def test_large_tasks_leave_little_room_in_the_ring() -> None:
    small = a_task(1, "ada")
    ring = Ring(0, 10)
    for version in range(1, 11):
        ring.add(replace(small, version=version), small)
    assert ring.floor == 0
    ranks = tuple(Rank(index, f"n{index}") for index in range(8))
    run = Run(1, RunState.CREATED, ranks, 1.0, small.priority)
    large = replace(small, id=2, run=run)
    ring.add(replace(large, version=11), large)
    assert ring.floor == 9
    assert [change.task.version for change in ring.after(9)] == [10, 11]


def test_task_is_encoded_again_only_if_it_or_its_wait_has_changed() -> None:
    waits: dict[int, Wait] = {}
    calls: list[int] = []

    def wait_of(task_id: int) -> Wait | None:
        calls.append(task_id)
        return waits.get(task_id)

    encoder, task = TaskEncoder(wait_of), replace(a_task(1, "ada"), version=5)

    def sent(task: Task) -> tuple[bytes, str]:
        (encoded,) = encoder.responses(Bundle([task], 7))
        response = pb.WatchTasksResponse.FromString(encoded)
        assert response.version == 7
        return encoded, response.tasks[0].waiting.message

    assert sent(task)[1] == ""
    waits[1] = Wait(1, WaitReason.NOT_ENOUGH_NODES, "no node is free")
    assert sent(task)[1] == "no node is free"
    before = sent(task)[0]
    assert sent(replace(task, version=6))[0] != before
    shared = Bundle([task], 7)
    assert encoder.responses(shared) is encoder.responses(shared)
    assert calls == [1] * 5


async def within(stream: AsyncGenerator[Bundle, None], seconds: float = 5.0) -> Bundle:
    """Return the next bundle of a stream, which must come soon."""
    async with asyncio.timeout(seconds):
        return await anext(stream)


async def test_a_new_stream_takes_no_change_from_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)
    monkeypatch.setattr(watching, "BUNDLE_SECONDS", 0.2)
    old, new = world.watch(), world.watch()
    await within(old)
    await world.submit("first")
    await within(old)
    waiting = asyncio.ensure_future(within(old))
    second = await world.submit("second")  # the reader pauses
    assert second in (await within(new)).tasks
    assert (await waiting).tasks == [second]
    for stream in (old, new):
        await stream.aclose()


async def test_a_stream_that_ends_while_others_are_woken_stops_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)
    monkeypatch.setattr(watching, "_STREAMS_AT_ONCE", 1)
    streams = [world.watch() for _ in range(4)]
    for stream in streams:
        await within(stream)
    waiting = [asyncio.ensure_future(within(stream)) for stream in streams]
    await asyncio.sleep(0)
    waiting[0].add_done_callback(lambda _: waiting[2].cancel())
    first = await world.submit("first")
    for index in (0, 1, 3):
        assert (await waiting[index]).tasks == [first]
    second = await world.submit("second")
    assert (await within(streams[0])).tasks == [second]
    for stream in streams:
        await stream.aclose()


async def test_a_change_that_the_task_manager_has_missed_is_read(store: Store) -> None:
    """Versions may be published in another order than they were committed."""
    world = World(store)
    first, second = [await world.submit(name) for name in ("first", "second")]
    changed = await world.change(first, TaskState.RUNNING)
    await world.change(second, TaskState.RUNNING)
    world.manager.unfinished()[first.id] = first  # its write is not known yet
    async with aclosing(world.watch()) as stream:
        assert changed in (await within(stream)).tasks
