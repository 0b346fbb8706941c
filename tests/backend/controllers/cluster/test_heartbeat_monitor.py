"""Silent agents are detected. Virtual time and a real task manager are used; the tests send the messages of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.heartbeat_monitor import HeartbeatMonitor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec
from tests.support.virtual_time import LoopTimers, run_virtually

HEARTBEAT = 5.0
RETURN_WITHIN = 6.0


class Server:
    """A task manager and HeartbeatMonitor, connected as in server.leader.components."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.clock = LoopTimers()
        self.task_manager = TaskManager(
            self.store, self.clock, ChangeFeed(), perform=lambda *_: None, changed=self._changed
        )
        self.counts: list[int] = []
        self._work: set[asyncio.Task[Any]] = set()
        self.silence = HeartbeatMonitor(
            self.task_manager,
            self.clock,
            self._run,
            silent_after=Timing(HEARTBEAT).silent_after,
            return_within=RETURN_WITHIN,
            count=self.counts.append,
        )

    async def start(self) -> None:
        await self.task_manager.load()
        self.silence.load(self.task_manager.unfinished().values())

    async def close(self) -> None:
        self.silence.close()
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.silence.changed(before, task)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def place(self, ranks: int) -> Task:
        task = await self.task_manager.submit("ada", a_spec("t", ranks), "")
        placed = ev.RunPlaced(tuple(f"n{i}" for i in range(ranks)), Priority.NORMAL, "free")
        return await self.task_manager.apply(task.id, placed)

    async def run_task(self, ranks: int) -> Task:
        task = await self.place(ranks)
        await self.task_manager.apply(task.id, ev.RunLaunched(1))
        for rank in range(ranks):
            task = await self.task_manager.apply(
                task.id, ev.RankAttached(1, rank, "10.0.0.1", 4000)
            )
        return task

    def beat(self, *ranks: int) -> None:
        for rank in ranks:
            self.silence.message_received(RankKey(1, 1, rank))

    async def beats(self, seconds: float, *ranks: int) -> None:
        """Send heartbeats of these agents for this time."""
        until = now() + seconds
        while now() < until:
            self.beat(*ranks)
            await asyncio.sleep(min(HEARTBEAT, until - now()))

    def since(self) -> list[float | None]:
        run = self.task_manager.unfinished()[1].run
        assert run is not None
        return [rank.silent_since for rank in run.ranks]

    async def lines(self) -> list[str]:
        events = await self.store.task_events(1)
        return [e.kind for _, e in events if e.kind in ("AgentSilent", "AgentHeard")]


def now() -> float:
    return asyncio.get_running_loop().time()


async def started(ranks: int = 2, store: MemoryStore | None = None) -> Server:
    """Return a server that has led for a while, with a task of `ranks` ranks that has just started to run."""
    server = Server(store)
    await server.start()
    await asyncio.sleep(RETURN_WITHIN + 2 * HEARTBEAT)
    await server.run_task(ranks)
    return server


def test_an_agent_is_silent_after_two_heartbeats_and_until_it_is_heard() -> None:
    async def story() -> None:
        server = await started()
        await server.beats(60.0, 0, 1)
        assert server.since() == [None, None]
        last = server.clock.now() - HEARTBEAT
        await server.beats(4.9, 0)
        assert server.since() == [None, None]
        await server.beats(0.2, 0)
        assert server.since()[0] is None
        assert abs((server.since()[1] or 0.0) - last) < 0.01
        await server.beats(30.0, 0)
        server.beat(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert server.since() == [None, None]
        await server.beats(30.0, 0, 1)
        assert await server.lines() == ["AgentSilent", "AgentHeard"]
        assert server.counts[-1] == 0
        assert max(server.counts) == 1
        await server.close()

    run_virtually(story())


def test_only_agents_of_programs_that_may_run_are_expected() -> None:
    async def story() -> None:
        server = Server()
        await server.start()
        await server.place(2)
        await asyncio.sleep(100.0)
        # The agents have not attached. The launch has its own time limit.
        assert server.since() == [None, None]
        await server.task_manager.apply(1, ev.RunLaunched(1))
        for rank in (0, 1):
            await server.task_manager.apply(1, ev.RankAttached(1, rank, "10.0.0.1", 4000))
        await server.task_manager.apply(1, ev.ProgramExited(1, 0, 0))
        await asyncio.sleep(100.0)
        assert [since is None for since in server.since()] == [True, False]
        await server.task_manager.apply(1, ev.ProgramExited(1, 1, 0))
        assert server.counts[-1] == 0
        for rank in (0, 1):
            await server.task_manager.apply(1, ev.RankGone(1, rank))
        await asyncio.sleep(100.0)
        server.beat(0, 1)
        assert await server.lines() == ["AgentSilent"]
        await server.close()

    run_virtually(story())


def test_after_a_start_agents_have_their_time_to_come_back() -> None:
    async def story() -> None:
        first = await started()
        await first.beats(10.0, 0, 1)
        await first.close()
        await asyncio.sleep(300.0)
        second = Server(first.store)
        await second.start()
        await asyncio.sleep(RETURN_WITHIN)
        second.beat(0)
        await second.beats(2 * HEARTBEAT - 0.1, 0)
        assert second.since() == [None, None]
        await second.beats(0.2, 0)
        assert [since is None for since in second.since()] == [True, False]
        await second.close()

    run_virtually(story())


def test_an_agent_that_was_silent_before_a_restart_stays_so_until_it_is_heard() -> None:
    async def story() -> None:
        first = await started()
        await first.beats(20.0, 0)
        since = first.since()[1]
        assert since is not None
        await first.close()
        second = Server(first.store)
        await second.start()
        assert second.counts[-1] == 1
        await second.beats(60.0, 0)
        assert second.since() == [None, since]
        second.beat(1)
        await asyncio.sleep(0.01)
        assert second.since() == [None, None]
        assert await second.lines() == ["AgentSilent", "AgentHeard"]
        await second.close()

    run_virtually(story())


def test_a_server_that_stood_still_judges_nobody_by_that_time() -> None:
    async def story() -> None:
        server = await started()
        await server.beats(20.0, 0, 1)
        asyncio.get_running_loop()._selector.now += 60.0  # type: ignore[attr-defined]
        await asyncio.sleep(RETURN_WITHIN)  # the timer expires late and before messages are read
        await server.beats(2 * HEARTBEAT - 0.1, 0)
        assert server.since() == [None, None]
        await server.beats(0.2, 0)
        assert [since is None for since in server.since()] == [True, False]
        await server.close()

    run_virtually(story())


def test_what_is_true_is_written_last_when_the_store_was_away() -> None:
    """An agent sends a message before its silence could be written, so nothing is written."""

    class Away(MemoryStore):
        away = False

        async def save_task(self, *args: Any) -> Task | None:
            if self.away:
                raise Unavailable("the disk is full")
            return await super().save_task(*args)

    async def story() -> None:
        store = Away()
        server = Server(store)
        await server.start()
        await server.run_task(2)
        await server.beats(20.0, 0, 1)
        store.away = True
        await server.beats(20.0, 0)
        assert server.since() == [None, None]
        assert server.counts[-1] == 1
        server.beat(1)
        store.away = False
        await server.beats(20.0, 0, 1)
        assert server.since() == [None, None]
        assert server.counts[-1] == 0
        await server.close()

    run_virtually(story())


def test_many_that_fall_silent_together_are_written_together() -> None:
    class Slow(MemoryStore):
        async def save_task(self, *args: Any) -> Task | None:
            await asyncio.sleep(0.01)
            return await super().save_task(*args)

    async def story() -> None:
        server = await started(200, Slow())
        before = server.task_manager.unfinished()[1].revision
        await asyncio.sleep(20.0)
        assert all(since is not None for since in server.since())
        seconds = 200 * 0.01  # the time in which all agents attached
        assert server.task_manager.unfinished()[1].revision - before <= 2 * (seconds + 1)
        assert server.counts[-1] == 200
        await server.close()

    run_virtually(story())


def test_nothing_moves_while_nobody_is_silent() -> None:
    """The timer of all agents expires only when the agent with the oldest message could be silent."""

    async def story() -> int:
        server, rings = await started(50), 0
        judge = server.silence._check_agents

        def counted() -> None:
            nonlocal rings
            rings += 1
            judge()

        server.silence._check_agents = counted  # type: ignore[method-assign]
        with suppress(TimeoutError):
            await asyncio.wait_for(server.beats(1000.0, *range(50)), 1000.0)
        await server.close()
        return rings

    assert run_virtually(story()) <= 1000.0 / HEARTBEAT + 1
