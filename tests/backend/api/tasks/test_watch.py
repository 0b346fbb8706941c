"""WatchTasks loses and repeats nothing, whenever tasks change and wherever a reader resumes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.watch import cache as watching
from hai_backend.api.watch.cache import Bundle, WatchCache
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.store.base import Store, TaskFilter
from hai_backend.store.matching import matches
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec, a_task

STATES = st.sampled_from([TaskState.WAITING_INIT, TaskState.RUNNING, TaskState.FINISHED])
FILTERS = (
    TaskFilter(),
    TaskFilter(states=frozenset({TaskState.RUNNING})),
    TaskFilter(not_states=frozenset({TaskState.FINISHED})),
    TaskFilter(users=frozenset({"ada"})),
    TaskFilter(tags=frozenset({"x"})),
    TaskFilter(tags=frozenset({"x"}), visible_to="ada", visible_groups=frozenset({"g"})),
)
READERS = st.integers(0, len(FILTERS) - 1)
# the state, whether the task has the tag x, and whether the change is published
CHANGES = st.tuples(STATES, st.booleans(), st.sampled_from([True, True, False]))
STEPS = st.lists(
    st.tuples(st.just("make") | st.integers(1, 6), CHANGES)
    | st.tuples(st.just("read all"), st.none())
    | st.tuples(st.sampled_from(["read", "leave", "resume"]), READERS),
    min_size=10,
    max_size=60,
)


class Manager:
    """Knows the tasks of a store as of the last publication, as the task manager does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.feed = ChangeFeed()
        self._unfinished: dict[int, Task] = {}

    def unfinished(self) -> dict[int, Task]:
        return self._unfinished

    async def publish(self) -> None:
        self._unfinished = {task.id: task for task in await self._store.unfinished_tasks()}
        self.feed.publish(await self._store.version())


class Reader:
    """Follows a watch as a client does. Tests compare its tasks with the store."""

    def __init__(self, cache: WatchCache, wanted: TaskFilter) -> None:
        self._cache, self.wanted = cache, wanted
        self.version = 0
        self.held: dict[int, Task] = {}
        self.sent: list[tuple[int, int]] = []
        self._next: asyncio.Future[Bundle] | None = None

    @property
    def is_connected(self) -> bool:
        return self._next is not None

    async def resume(self) -> None:
        """Close the stream, if there is one, and resume from the last version."""
        await self.leave()
        if self.version == 0:  # a new stream sends the first list again
            self.sent = []
        self._bundles = self._cache.bundles(self.wanted, self.version)
        self._next = asyncio.ensure_future(anext(self._bundles))

    async def read_all(self) -> None:
        """Read until the stream waits for a change."""
        idle = 0
        while self._next is not None and idle < 20:
            await asyncio.sleep(0)
            idle += 1
            if self._next.done():
                self._take(self._next.result())
                self._next = asyncio.ensure_future(anext(self._bundles))
                idle = 0

    async def leave(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            await self._bundles.aclose()
            self._next = None

    def _take(self, bundle: Bundle) -> None:
        for task in bundle.tasks:
            self.sent.append((task.id, task.version))
            self.held[task.id] = task
        assert bundle.version >= self.version
        self.version = bundle.version


async def _change(store: MemoryStore, what: object, state: TaskState, *, tagged: bool) -> None:
    tags = ("x",) if tagged else ()
    if what == "make":
        number = await store.version()
        user = "ada" if number % 2 else "bob"
        task = replace(a_task(0, user, name=f"t{number}"), revision=1, state=state, tags=tags)
        await store.create_task(task, ())
        return
    found = await store.get_task(int(str(what)))
    if found is not None:
        # a finished task does not run again, but its tags may change
        state = found.state if found.state is TaskState.FINISHED else state
        changed = replace(found, state=state, tags=tags, revision=found.revision + 1)
        await store.save_task(changed, ())


@given(STEPS, st.sampled_from([3, 1000]), st.sampled_from([2, 1000]))
@settings(max_examples=200, deadline=None)
def test_readers_end_up_with_the_state_of_the_store(
    steps: list[tuple[object, Any]], capacity: int, page_size: int
) -> None:
    async def story() -> None:
        store = MemoryStore()
        manager = Manager(store)
        cache = WatchCache(store, manager, lambda user: ())
        readers = [Reader(cache, wanted) for wanted in FILTERS]
        for reader in readers:
            await reader.resume()
        for what, argument in steps:
            match what:
                case "read all":
                    await asyncio.gather(*(reader.read_all() for reader in readers))
                case "read":
                    await readers[argument].read_all()
                case "leave":
                    await readers[argument].leave()
                case "resume":
                    await readers[argument].resume()
                case _:
                    state, tagged, published = argument
                    await _change(store, what, state, tagged=tagged)
                    if published:
                        await manager.publish()
        # A change for each reader to receive
        await _change(store, "make", TaskState.RUNNING, tagged=True)
        await manager.publish()
        for reader in readers:
            if not reader.is_connected:
                await reader.resume()
            await reader.read_all()
            await _judge(store, reader)
            await reader.leave()
        assert cache.stream_count == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "BUNDLE_SECONDS", 0.0)
        patch.setattr(watching, "SECONDS_PER_STREAM", 0.0)
        patch.setattr(watching, "_RING_CAPACITY", capacity)
        patch.setattr(watching, "_PAGE_SIZE", page_size)
        asyncio.run(story())


async def _judge(store: MemoryStore, reader: Reader) -> None:
    assert len(reader.sent) == len(set(reader.sent)), "a state was sent twice"
    for task in await store.changed_tasks(0, 1000):
        now_matches = matches(task, reader.wanted, {})
        held = reader.held.get(task.id)
        if now_matches and (task.state is not TaskState.FINISHED or held is not None):
            assert held == task, "lost"
        if held is not None:
            assert held == task or not now_matches or task.state is TaskState.FINISHED, "stale"
            if matches(held, reader.wanted, {}):
                assert held == task, "the reader was not told that it left"


async def test_slow_reader_gets_the_last_state_once(platform: Any) -> None:
    ada = await platform.caller("ada")
    watch = ada.tasks.WatchTasks(pb.WatchTasksRequest())
    first = await watch.read()
    assert (len(first.tasks), first.version) == (0, await platform.store.version())
    task = await platform.task_manager.submit("ada", a_spec("one"), "")
    seen = (await watch.read()).tasks
    assert [(t.id, t.state) for t in seen] == [(1, task_pb2.TASK_STATE_WAITING_INIT)]
    for starred in (True, False, True):
        await platform.task_manager.set_labels(task.id, "ada", starred=starred)
    answers = [await watch.read()]
    while not answers[-1].tasks[-1].starred or answers[-1].version < await platform.store.version():
        answers.append(await watch.read())
    assert len(answers) <= 3
    watch.cancel()


async def test_stream_resumes_at_its_version(platform: Any) -> None:
    ada = await platform.caller("ada")
    for number in range(3):
        await platform.task_manager.submit("ada", a_spec(f"t{number}"), "")
    watch = ada.tasks.WatchTasks(pb.WatchTasksRequest())
    version = (await watch.read()).version
    watch.cancel()
    await platform.task_manager.stop(2, "ada", Outcome.FAILED)
    again = ada.tasks.WatchTasks(pb.WatchTasksRequest(after_version=version))
    answer = await again.read()
    assert [(t.id, t.state) for t in answer.tasks] == [(2, task_pb2.TASK_STATE_FINISHED)]
    again.cancel()


async def test_version_of_another_store_restarts_the_stream(platform: Any) -> None:
    await platform.task_manager.submit("ada", a_spec("one"), "")
    ada = await platform.caller("ada")
    watch = ada.tasks.WatchTasks(pb.WatchTasksRequest(after_version=10**12))
    assert [t.id for t in (await watch.read()).tasks] == [1]
    watch.cancel()


async def test_task_that_no_longer_matches_is_sent_once_more(platform: Any) -> None:
    await platform.task_manager.submit("ada", a_spec("one", tags=("x",)), "")
    ada = await platform.caller("ada")
    watch = ada.tasks.WatchTasks(pb.WatchTasksRequest(filter="tag:x"))
    assert [list(t.tags) for t in (await watch.read()).tasks] == [["x"]]
    await platform.task_manager.set_labels(1, "ada", tags=())
    assert [list(t.tags) for t in (await watch.read()).tasks] == [[]]
    await platform.task_manager.set_labels(1, "ada", starred=True)
    await platform.task_manager.set_labels(1, "ada", tags=("x",))
    assert [list(t.tags) for t in (await watch.read()).tasks] == [["x"]]
    watch.cancel()


async def test_others_private_tasks_are_not_sent(platform: Any) -> None:
    bob = await platform.caller("bob")
    watch = bob.tasks.WatchTasks(pb.WatchTasksRequest())
    await watch.read()
    await platform.task_manager.submit("ada", a_spec("private"), "")
    await platform.task_manager.submit("eve", a_spec("shared elsewhere", shared_in_group=True), "")
    await platform.task_manager.submit("ada", a_spec("shared", shared_in_group=True), "")
    assert [t.name for t in (await watch.read()).tasks] == ["shared"]
    watch.cancel()


async def test_large_bundle_is_split_and_only_its_end_has_its_version(platform: Any) -> None:
    big = "x" * 60_000
    for number in range(40):
        spec = a_spec(f"t{number}")
        await platform.task_manager.submit(
            "ada", replace(spec, options=replace(spec.options, tags=(big,))), ""
        )
    ada = await platform.caller("ada")
    watch = ada.tasks.WatchTasks(pb.WatchTasksRequest())
    ids, version = [], 0
    while len(ids) < 40:
        assert version == 0, "only the last part may be resumed from"
        answer = await watch.read()
        assert answer.ByteSize() < 1_200_000
        ids += [t.id for t in answer.tasks]
        version = answer.version
    assert ids == list(range(1, 41))
    assert version == await platform.store.version()
    watch.cancel()
