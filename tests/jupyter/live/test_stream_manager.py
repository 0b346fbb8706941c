"""The stream manager: one stream from the platform for any number of pages, and none without pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest

from hai.client.errors import Unreachable, UsageError
from hai.client.fake.server import FakeClient
from hai.client.profile import Profile
from hai.v1.task_pb2 import TASK_STATE_FINISHED, TASK_STATE_RUNNING, Task
from hai.v1.task_service_pb2 import ListTasksRequest
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_jupyter.client_provider import ClientProvider
from hai_jupyter.live import stream_manager as stream_manager_module
from hai_jupyter.live.log_streams import LogStreams
from hai_jupyter.live.state_store import StateStore
from hai_jupyter.live.stream_manager import StreamManager
from hai_jupyter.live.subscriber import ROWS_PER_FRAME, Subscriber
from hai_jupyter.live.watch_source import WatchSource


class Counting(FakeClient):
    """A client that counts its open streams."""

    def __init__(self) -> None:
        super().__init__(nodes=["n0", "n1"])
        self.open = 0
        self.most = 0
        self.idle = asyncio.Event()
        inner = self._transport.stream

        async def stream(call: Any, request: Any) -> AsyncGenerator[Any, None]:
            self.open += 1
            self.idle.clear()
            self.most = max(self.most, self.open)
            answers = inner(call, request)
            try:
                async for answer in answers:
                    yield answer
            finally:
                await answers.aclose()
                self.open -= 1
                if self.open == 0:
                    self.idle.set()

        self._transport.stream = stream  # type: ignore[method-assign]


def task(id: int, version: int, state: Any = TASK_STATE_RUNNING) -> Task:
    return Task(id=id, name=f"t{id}", version=version, state=state, node_count=1)


def spec(name: str) -> TaskSpec:
    program = ProgramSpec(entrypoint="a.py")
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=1))


def manager_of(client: FakeClient, linger: float = 0.0) -> StreamManager:
    provider = ClientProvider(lambda: client.profile, lambda profile: client)
    store = StateStore(max_finished=100)
    return StreamManager(store, [WatchSource(provider, store, 100)], linger)


async def read(page: Subscriber, wanted: Any) -> dict[str, Any]:
    """Merge frames, with rows by id, until the condition holds."""
    found: dict[str, Any] = {"tasks": {}, "nodes": {}}
    async with asyncio.timeout(10):
        while not wanted(found):
            frame = json.loads(await page.next())
            found["tasks"] |= {row["id"]: row for row in frame.pop("tasks")}
            found["nodes"] |= {row["name"]: row for row in frame.pop("nodes")}
            found |= frame
    return found


async def removed(client: Counting) -> None:
    async with asyncio.timeout(10):
        await client.idle.wait()


async def test_fifty_pages_are_one_stream() -> None:
    client = Counting()
    manager = manager_of(client)
    with ExitStack() as pages:
        all_pages = [pages.enter_context(manager.page()) for _ in range(50)]
        await asyncio.gather(
            *(read(p, lambda f: f.get("version", 0) > 0 or f["nodes"]) for p in all_pages)
        )
        made = await client.tasks.create(spec("a"))
        for page in all_pages:
            assert made.id in (await read(page, lambda f: made.id in f["tasks"]))["tasks"]
        assert (manager.store.page_count, client.open, client.most) == (50, 1, 1)
    await removed(client)
    assert (manager.store.page_count, manager.streams) == (0, 0)


async def test_streams_outlive_a_page_that_is_loaded_again() -> None:
    client = Counting()
    manager = manager_of(client, linger=30)
    with manager.page() as page:
        first = await read(page, lambda f: f["nodes"])
    with manager.page() as page:
        again = await read(page, lambda f: f["nodes"])
    assert (first["board"], client.open) == (again["board"], 1)
    await manager.close()
    await removed(client)


async def test_what_finished_before_anybody_looked_is_listed_too() -> None:
    client = Counting()
    made = await client.tasks.create(spec("old"))
    client.start(made.id, ["n0"])
    client.finish(made.id)
    manager = manager_of(client)
    with manager.page() as page:
        found = await read(page, lambda f: made.id in f["tasks"])
    assert found["tasks"][made.id]["outcome"] == "SUCCEEDED"
    await manager.close()


async def test_a_loss_is_said_at_once_and_what_came_meanwhile_is_told_after_it() -> None:
    client = Counting()
    manager = manager_of(client)
    with manager.page() as page:
        await read(page, lambda f: f.get("link", {}).get("up"))
        client.lose()
        down = await read(page, lambda f: f.get("link", {}).get("up") is False)
        assert down["link"]["reason"] == "UNREACHABLE"
        client.recover()
        made = await client.tasks.create(spec("meanwhile"))
        found = await read(page, lambda f: made.id in f["tasks"])
        assert "reset" not in found
    await manager.close()


async def raises() -> None:
    raise ValueError("a bug")


async def is_cancelled() -> None:
    part = asyncio.ensure_future(asyncio.Event().wait())
    part.cancel()
    await part


async def returns() -> None:
    return


@pytest.mark.parametrize("end", [raises, is_cancelled, returns])
async def test_a_source_that_ends_begins_again(
    end: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages stayed open, and were told nothing more."""
    monkeypatch.setattr(stream_manager_module, "RESTART_SECONDS", 0.01)
    client, begun = Counting(), 0
    provider, store = (
        ClientProvider(lambda: client.profile, lambda profile: client),
        StateStore(100),
    )

    class Odd(WatchSource):
        async def follow(self) -> None:
            nonlocal begun
            begun += 1
            await (end() if begun < 3 else super().follow())

    manager = StreamManager(store, [Odd(provider, store, 100)], 0)
    with manager.page() as page:
        await read(page, lambda f: f.get("link", {}).get("up"))
        assert (begun, manager.streams) == (3, 1)
    await manager.close()


async def test_what_finished_before_is_listed_also_when_the_server_was_lost_meanwhile() -> None:
    client, disconnects = Counting(), 1
    made = await client.tasks.create(spec("old"))
    client.start(made.id, ["n0"])
    client.finish(made.id)
    inner = client._transport.unary

    async def unary(call: Any, request: Any, **more: Any) -> Any:
        nonlocal disconnects
        if isinstance(request, ListTasksRequest) and disconnects:
            disconnects -= 1
            raise Unreachable("no server answers")
        return await inner(call, request, **more)

    client._transport.unary = unary  # type: ignore[method-assign]
    manager = manager_of(client)
    with manager.page() as page:
        found = await read(page, lambda f: made.id in f["tasks"])
    assert (found["tasks"][made.id]["outcome"], disconnects) == ("SUCCEEDED", 0)
    await manager.close()


async def test_another_profile_is_another_cluster() -> None:
    clients = {"a:1": Counting(), "b:2": Counting()}
    first, _second = clients.values()
    old = await first.tasks.create(spec("old"))
    current = ["a:1"]
    provider = ClientProvider(
        lambda: Profile("p", current[0]),
        lambda profile: with_profile(clients[profile.server], profile),
    )
    store = StateStore(100)
    manager = StreamManager(store, [WatchSource(provider, store, 100)], 0)
    with manager.page() as page:
        begun = await read(page, lambda f: old.id in f["tasks"])
        current[0] = "b:2"
        first.lose()
        found = await read(page, lambda f: f.get("reset") and f.get("link", {}).get("up"))
        assert found["board"] != begun["board"]
        assert store.task_count == 0
    await manager.close()
    await provider.close()


def with_profile(client: FakeClient, profile: Profile) -> FakeClient:
    client.profile = profile
    return client


async def test_without_a_profile_the_page_is_told_what_to_do() -> None:
    def missing() -> Profile:
        raise UsageError("no server is chosen", hint="run `hai init`")

    store = StateStore(100)
    manager = StreamManager(store, [WatchSource(ClientProvider(missing), store, 100)], 0)
    with manager.page() as page:
        found = await read(page, lambda f: "link" in f)
    assert found["link"]["hint"] == "run `hai init`"
    await manager.close()


async def test_changes_that_a_slow_page_has_not_taken_are_folded() -> None:
    store = StateStore(100)
    with store.page() as page:
        for version in range(1, 5000):
            store.put_tasks([task(1, version)], version)
        frame = json.loads(await page.next())
    assert [row["version"] for row in frame["tasks"]] == [4999]


async def test_a_page_hears_that_the_server_lives_when_nothing_happens() -> None:
    store = StateStore(100)
    with store.page() as page:
        store.put_tasks([task(1, 7)], 7)
        assert json.loads(await page.next_within(60))["version"] == 7
        assert json.loads(await page.next_within(0)) == {"tasks": [], "nodes": [], "version": 0}
        store.put_tasks([task(1, 8)], 8)
        assert json.loads(await page.next_within(60))["tasks"][0]["version"] == 8


async def test_many_rows_come_in_parts_the_last_of_which_has_the_version() -> None:
    store = StateStore(10_000)
    store.put_tasks([task(i, i) for i in range(1, 1201)], 1200)
    with store.page() as page:
        frames = [json.loads(await page.next()) for _ in range(3)]
    assert [len(f["tasks"]) for f in frames] == [ROWS_PER_FRAME, ROWS_PER_FRAME, 200]
    assert [f["version"] for f in frames] == [0, 0, 1200]
    assert frames[0]["tasks"][0]["id"] == 1200  # the newest first, as the panel shows them
    assert (frames[0]["reset"], "reset" in frames[1]) == (True, False)


async def test_a_page_that_knows_a_version_gets_what_is_newer() -> None:
    store = StateStore(100)
    store.put_tasks([task(1, 1), task(2, 2), task(3, 5)], 5)
    with store.page(store.id, 2) as page:
        frame = json.loads(await page.next())
    assert ([row["id"] for row in frame["tasks"]], "reset" in frame) == ([3], False)


def test_old_finished_tasks_are_forgotten_in_the_end() -> None:
    store = StateStore(max_finished=10)
    for id in range(1, 51):
        store.put_tasks([task(id, id, TASK_STATE_FINISHED)], id)
    assert store.task_count == 10


def test_logs_are_counted_and_limited() -> None:
    streams = LogStreams(1)
    with (
        streams.reserve(),
        pytest.raises(Exception, match="1 logs are followed"),
        streams.reserve(),
    ):
        pass
    assert streams.open == 0
