"""Tasks are notified of the ends of their dependencies, along chains and also by the next server."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hai_backend.domain.scheduling.plan import WaitReason
from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle.events import Event
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness


async def submitted(
    world: ControllerHarness, name: str, *first: int, outcome: str = "succeeded"
) -> int:
    after = tuple(AfterSpec(task, AfterOutcome(outcome)) for task in first)
    return (await world.task_manager.submit("ada", a_spec(name, after=after), "")).id


async def end(world: ControllerHarness, task: int, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    await world.task_manager.stop(task, "ada", outcome)


async def freed(world: ControllerHarness, task: int) -> None:
    await world.until(lambda: not world.task_manager.unfinished()[task].awaited)


async def canceled(world: ControllerHarness, task: int) -> Task:
    await world.until(lambda: task not in world.task_manager.unfinished())
    found = await world.task_manager.get(task)
    assert found.outcome is Outcome.CANCELED
    return found


async def test_it_starts_when_the_last_of_them_has_ended(world: ControllerHarness) -> None:
    one, two = await submitted(world, "one"), await submitted(world, "two")
    last = await submitted(world, "last", one, two)
    await world.scheduling.once()
    assert {t.id for t in world.task_manager.unfinished().values() if not t.waiting} == {one, two}
    waits = world.scheduling.wait(last)
    assert waits is not None
    assert (waits.why, waits.message) == (
        WaitReason.AFTER,
        f"Waits for task {one}, {two} to end.",
    )
    for task in (one, two):
        await world.attach_all(task)
        await end(world, task)
        await world.scheduling.once()
        assert world.task_manager.unfinished()[last].waiting
        await world.leave(task)
    await freed(world, last)
    await world.scheduling.once()
    assert world.task_manager.unfinished()[last].state is TaskState.RUNNING


async def test_what_can_never_start_is_canceled_down_the_chain(world: ControllerHarness) -> None:
    first = await submitted(world, "first")
    second = await submitted(world, "second", first)
    third = await submitted(world, "third", second)
    clean = await submitted(world, "clean", third, outcome="ended")
    await end(world, first, Outcome.FAILED)
    assert (
        "task 1 was to have succeeded first, and ended FAILED"
        in (await canceled(world, second)).reason
    )
    await canceled(world, third)
    await freed(world, clean)


async def test_one_that_had_ended_before_is_waited_for_no_more(world: ControllerHarness) -> None:
    first = await submitted(world, "first")
    await end(world, first)
    await freed(world, await submitted(world, "second", first))
    await canceled(world, await submitted(world, "third", first, outcome="failed"))


async def test_the_next_server_tells_what_the_last_one_could_not(world: ControllerHarness) -> None:
    good, bad = await submitted(world, "good"), await submitted(world, "bad")
    goes, never = await submitted(world, "goes", good), await submitted(world, "never", bad)
    later = await submitted(world, "later", goes)
    world.successors.changed = lambda before, task: None  # type: ignore[method-assign]  # it dies
    await end(world, good)
    await end(world, bad, Outcome.FAILED)
    again = ControllerHarness(world.store, world.launcher)
    await again.start()
    await freed(again, goes)
    await canceled(again, never)
    assert again.task_manager.unfinished()[later].awaited == (goes,)
    await end(again, goes)
    await freed(again, later)
    await again.stop()


async def test_many_are_written_together_and_ask_once_how_it_ended(
    world: ControllerHarness,
) -> None:
    first = await submitted(world, "first")
    many = {await submitted(world, f"t{i}", first) for i in range(300)}
    world.successors.changed = lambda before, task: None  # type: ignore[method-assign]  # it dies
    await end(world, first)
    again = ControllerHarness(world.store, world.launcher)
    asked, writes, most = Counter[int](), set[int](), 0
    get, apply_when_stored = again.task_manager.get, again.task_manager.apply_when_stored

    async def counted(task: int) -> Task:
        asked[task] += 1
        return await get(task)

    async def written(task: int, event: Event) -> Task:
        nonlocal most
        writes.add(task)
        most = max(most, len(writes))
        try:
            return await apply_when_stored(task, event)
        finally:
            writes.remove(task)

    again.task_manager.get, again.task_manager.apply_when_stored = counted, written  # type: ignore[method-assign]
    await again.start()
    await again.until(lambda: not any(t.awaited for t in again.task_manager.unfinished().values()))
    assert (asked[first], set(again.task_manager.unfinished())) == (1, many)
    assert 1 < most < 300  # notified in batches, so that other work can run in between
    await again.stop()


class Odd(MemoryStore):
    """A store that fails to write one task."""

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        if task.spec.name == "t0":
            raise AssertionError("an odd task")
        return await super().save_task(task, *more)


async def test_one_odd_task_keeps_no_other_from_being_told() -> None:
    world = ControllerHarness(Odd(), FakeLauncher([]))
    first = await submitted(world, "first")
    odd, *others = [await submitted(world, f"t{i}", first) for i in range(150)]
    await end(world, first)
    for other in others:
        await freed(world, other)
    assert world.task_manager.unfinished()[odd].awaited == (first,)


async def test_nothing_is_kept_of_tasks_that_have_ended(world: ControllerHarness) -> None:
    first = await submitted(world, "first")
    second = await submitted(world, "second", first)
    await end(world, second)
    await submitted(world, "third", first)
    await end(world, first)
    await world.until(lambda: not world.successors._waiting)


async def test_a_clean_up_waits_for_all_that_the_evaluation_waited_for(
    world: ControllerHarness,
) -> None:
    trainings = [await submitted(world, f"train{n}") for n in range(3)]
    evaluation = await submitted(world, "evaluate", *trainings)
    clean = await submitted(world, "clean", evaluation, outcome="ended")
    await end(world, trainings[0], Outcome.FAILED)
    await canceled(world, evaluation)
    await world.until(
        lambda: world.task_manager.unfinished()[clean].awaited == tuple(trainings[1:])
    )
    await end(world, trainings[1], Outcome.FAILED)
    again = ControllerHarness(world.store, world.launcher)
    await again.start()
    await again.until(lambda: again.task_manager.unfinished()[clean].awaited == (trainings[2],))
    await end(again, trainings[2])
    await freed(again, clean)
    await again.stop()


async def test_who_is_stopped_in_a_lane_lets_nobody_come_too_early(
    world: ControllerHarness,
) -> None:
    first = await submitted(world, "first")
    second = await submitted(world, "second", first, outcome="ended")
    third = await submitted(world, "third", second, outcome="ended")
    await world.task_manager.stop(second, "ada", None)
    await world.until(lambda: world.task_manager.unfinished()[third].awaited == (first,))
    await end(world, first)
    await freed(world, third)


async def test_a_held_task_stays_held(world: ControllerHarness) -> None:
    first = await submitted(world, "first")
    second = await submitted(world, "second", first)
    await world.task_manager.suspend(second, "ada", hold=True, delay=0.0)
    await end(world, first)
    await freed(world, second)
    await world.scheduling.once()
    waits = world.scheduling.wait(second)
    assert waits is not None
    assert waits.why is WaitReason.HELD
