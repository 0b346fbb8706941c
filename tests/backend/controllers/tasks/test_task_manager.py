"""The task manager: no change has effects before it is durable, and no durable change is lost."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.aio import retry
from hai_backend.domain.errors import Conflict, InvalidTransition, NotFound, Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import AfterSpec
from hai_backend.domain.task import Outcome, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import Launch
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness

PLACED = ev.RunPlaced(("n0",), Priority.NORMAL, "free")


class FullDisk(MemoryStore):
    """A store that refuses to write tasks while `full`."""

    full = False

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        if self.full:
            raise Unavailable("the disk of the database is full")
        return await super().save_task(task, *more)


async def test_a_submitted_task_waits_in_the_ledger_and_in_the_store(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    assert world.task_manager.unfinished()[task.id] == await world.store.get_task(task.id)
    assert world.task_manager.unfinished_of("ada") == 1


URL, SHOWN = "http://ada:hunter2@host/x", "http://****@host/x"


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([ev.StartFailed(1, 0, f"cannot get {URL}")], id="agent"),
        pytest.param(
            [ev.RankAttached(1, 0, "10.0.0.1", 4000), ev.ProgramExited(1, 0, 1, f"fatal: {URL}")],
            id="program",
        ),
        pytest.param([ev.LaunchFailed(1, 0, f"no image {URL}")], id="launcher"),
        pytest.param([ev.SuspendAsked("ada", f"see {URL}")], id="person"),
    ],
)
async def test_credentials_are_heard_by_nobody(
    world: ControllerHarness, events: list[ev.Event]
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "", f"from {URL}")
    for event in (PLACED, *events):
        await world.task_manager.apply(task.id, event)
    heard = f"{await world.task_manager.get(task.id)} {await world.store.task_events(task.id)}"
    assert "hunter2" not in heard
    assert heard.count(SHOWN) >= 2


async def test_letters_of_specs_count_until_their_tasks_are_finished(
    world: ControllerHarness,
) -> None:
    spec = a_spec("one")
    long = replace(spec, spec=replace(spec.spec, environments={"A": "bc"}))
    task = await world.task_manager.submit("ada", long, "r1")
    await world.task_manager.submit("ada", long, "r1")
    assert world.task_manager.spec_length_of("ada") == 3
    again = ControllerHarness(world.store, world.launcher)
    await again.task_manager.load()
    assert again.task_manager.spec_length_of("ada") == 3
    await again.task_manager.stop(task.id, "ada", None)
    assert again.task_manager.spec_length_of("ada") == 0


async def test_the_same_request_submits_once(world: ControllerHarness) -> None:
    first = await world.task_manager.submit("ada", a_spec("one"), "r1")
    again = await world.task_manager.submit("ada", a_spec("one"), "r1")
    assert first.id == again.id
    assert world.task_manager.unfinished_of("ada") == 1


async def test_who_asks_again_after_a_write_that_broke_off_makes_its_task_known(
    world: ControllerHarness,
) -> None:
    made = await ControllerHarness(world.store, world.launcher).task_manager.submit(
        "ada", a_spec("one"), "r1"
    )
    assert await world.task_manager.submitted("ada", "r1") == made
    assert world.task_manager.unfinished()[made.id] == made
    assert await world.task_manager.submitted("ada", "r2") is None


async def test_what_nobody_says_again_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.0)
    store = FullDisk()
    world = ControllerHarness(store, FakeLauncher([Node("n0")]))
    await world.start()
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    await world.task_manager.apply(task.id, PLACED)
    await world.attach_all(task.id)
    store.full = True
    world.launcher.terminate(RankKey(task.id, 1, 0))
    tick = asyncio.ensure_future(world.task_manager.apply_when_stored(task.id, ev.Ticked(1)))
    await asyncio.sleep(0.01)
    assert world.task_manager.unfinished()[task.id].state is TaskState.RUNNING
    store.full = False
    await world.until(lambda: world.task_manager.unfinished()[task.id].waiting)
    await tick
    await world.stop()


async def test_a_decision_that_cannot_be_stored_is_not_tried_again_at_once() -> None:
    store = FullDisk()
    world = ControllerHarness(store, FakeLauncher([Node("n0")]))
    await world.start()
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    store.full = True
    await world.scheduling.once()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.scheduling.wakeup.wait(60.0), 0.05)
    store.full = False
    await world.scheduling.once()
    assert world.task_manager.unfinished()[task.id].state is TaskState.RUNNING
    await world.stop()


async def test_nothing_is_performed_or_shown_when_the_write_fails() -> None:
    store = FullDisk()
    world = ControllerHarness(store, FakeLauncher([Node("n0")]))
    await world.start()
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    store.full = True
    with pytest.raises(Unavailable, match="full"):
        await world.task_manager.apply(task.id, PLACED)
    assert world.performed == []
    assert world.task_manager.unfinished()[task.id].state is TaskState.WAITING_INIT
    store.full = False
    await world.task_manager.apply(task.id, PLACED)
    assert world.performed == [Launch(1, (0,))]
    await world.stop()


async def test_a_write_goes_on_when_its_caller_hangs_up(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    asked = asyncio.ensure_future(world.task_manager.stop(task.id, "ada", None))
    await asyncio.sleep(0)
    asked.cancel()
    await world.until(lambda: task.id not in world.task_manager.unfinished())
    stored = await world.store.get_task(task.id)
    assert stored is not None
    assert stored.outcome is Outcome.CANCELED


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        pytest.param(Unavailable("full"), [], id="a refusal"),
        pytest.param(
            RuntimeError(),
            ["a change has failed after its caller was cancelled"],
            id="a mistake of ours",
        ),
    ],
)
async def test_what_became_of_a_write_whose_caller_hung_up(
    world: ControllerHarness, monkeypatch: pytest.MonkeyPatch, fails: Exception, told: list[str]
) -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, why: unheard.append(why))

    async def failing(task: Task, *more: Any) -> Task | None:
        await asyncio.sleep(0)
        raise fails

    task = await world.task_manager.submit("ada", a_spec("one"), "")
    monkeypatch.setattr(world.store, "save_task", failing)
    asked = asyncio.ensure_future(world.task_manager.stop(task.id, "ada", None))
    await asyncio.sleep(0)
    asked.cancel()
    with capture_logs() as logs:
        for _ in range(10):
            await asyncio.sleep(0)
    gc.collect()
    assert [line["event"] for line in logs] == told
    assert unheard == []


async def test_when_another_replica_was_faster_the_event_meets_its_state(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    other = ControllerHarness(world.store, world.launcher)
    await other.task_manager.load()
    await other.task_manager.resume(task.id, "bob")
    await other.task_manager.set_labels(task.id, "bob", tags=("x",))
    stopped = await world.task_manager.stop(task.id, "ada", None)
    assert stopped.state is TaskState.FINISHED
    assert stopped.tags == ("x",)


async def test_a_restarted_ledger_knows_every_unfinished_task(world: ControllerHarness) -> None:
    ids = {(await world.task_manager.submit("ada", a_spec(f"t{i}"), "")).id for i in range(5)}
    await world.task_manager.stop(min(ids), "ada", None)
    again = ControllerHarness(world.store, world.launcher)
    await again.task_manager.load()
    assert set(again.task_manager.unfinished()) == ids - {min(ids)}
    assert again.task_manager.feed.version == world.task_manager.feed.version


async def test_watchers_wake_when_something_is_durable(world: ControllerHarness) -> None:
    seen = world.task_manager.feed.version
    waiting = asyncio.ensure_future(world.task_manager.feed.beyond(seen))
    await asyncio.sleep(0)
    assert not waiting.done()
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    assert await waiting >= task.version


async def test_asks_that_make_no_sense_say_why(world: ControllerHarness) -> None:
    with pytest.raises(NotFound, match="no task 99"):
        await world.task_manager.get(99)
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    with pytest.raises(Conflict, match="--hold"):
        await world.task_manager.suspend(task.id, "ada", hold=False, delay=0.0)


class Disk(MemoryStore):
    """A store whose writes take a moment."""

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().save_task(task, *more)


async def test_what_happens_to_many_ranks_at_once_is_written_in_few_writes() -> None:
    world = ControllerHarness(Disk(), FakeLauncher([Node(f"n{i}") for i in range(50)]))
    await world.start()
    task = await world.task_manager.submit("ada", a_spec(nodes=50), "r")
    nodes = tuple(f"n{i}" for i in range(50))
    await world.task_manager.apply(task.id, ev.RunPlaced(nodes, Priority.NORMAL, "all"))
    await world.until(lambda: len(world.launcher.ranks) == 50)
    before = (await world.task_manager.get(task.id)).revision
    attached = [ev.RankAttached(1, i, "10.0.0.1", 4000) for i in range(50)]
    await asyncio.gather(*(world.task_manager.apply(task.id, event) for event in attached))
    after = await world.task_manager.get(task.id)
    assert after.run is not None
    assert after.run.state is RunState.RUNNING
    assert after.revision <= before + 3
    await world.stop()


async def test_the_ends_of_many_that_go_first_are_written_in_few_writes() -> None:
    world = ControllerHarness(Disk(), FakeLauncher([]))
    firsts = [(await world.task_manager.submit("ada", a_spec(f"t{i}"), "")).id for i in range(50)]
    wanted = tuple(AfterSpec(first) for first in firsts)
    last = await world.task_manager.submit("ada", a_spec("last", after=wanted), "")
    ends = (world.task_manager.stop(first, "ada", Outcome.SUCCEEDED) for first in firsts)
    await asyncio.gather(*ends)
    await world.until(lambda: not world.task_manager.unfinished()[last.id].awaited)
    assert world.task_manager.unfinished()[last.id].revision <= last.revision + 3


async def test_a_bad_event_among_many_spoils_only_itself() -> None:
    world = ControllerHarness(Disk(), FakeLauncher([Node(f"n{i}") for i in range(3)]))
    await world.start()
    task = await world.task_manager.submit("ada", a_spec(nodes=3), "r")
    await world.task_manager.apply(
        task.id, ev.RunPlaced(("n0", "n1", "n2"), Priority.NORMAL, "all")
    )
    await world.until(lambda: len(world.launcher.ranks) == 3)
    events = [
        ev.RankAttached(1, 0, "10.0.0.1", 4000),
        ev.ProgramExited(1, 1, 0),  # refused, because the program has not started
        ev.RankAttached(1, 1, "10.0.0.1", 4000),
        ev.RankAttached(1, 2, "10.0.0.1", 4000),
    ]
    done = await asyncio.gather(
        *(world.task_manager.apply(task.id, event) for event in events), return_exceptions=True
    )
    assert [isinstance(answer, InvalidTransition) for answer in done] == [False, True, False, False]
    after = await world.task_manager.get(task.id)
    assert after.run is not None
    assert after.run.state is RunState.RUNNING
    await world.stop()


async def test_tasks_that_are_not_there_leave_nothing_in_memory(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    await world.task_manager.stop(task.id, "ada", None)
    before = _locks()
    for number in range(task.id, task.id + 50):
        with suppress(NotFound):
            await world.task_manager.stop(number, "ada", None)
    assert _locks() <= before


def _locks() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.Lock) for each in gc.get_objects())
