"""Scheduling, launching and recovery together, with a fake launcher."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import Quota, User
from hai_backend.domain.errors import Conflict
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import WaitReason
from hai_backend.domain.task import RunState, StopCode, Task, TaskState
from hai_backend.launch.base import KillRequest, NodeList, RankEvictionNotice, RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import SuspendPrograms
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness
from tests.support.databases import default_store


async def running(
    world: ControllerHarness, name: str, nodes: int = 2, priority: Priority = Priority.LOW
) -> int:
    spec = replace(a_spec(name, nodes), priority=priority)
    task = await world.task_manager.submit("ada", spec, "")
    await world.scheduling.once()
    await world.until(lambda: len(world.launcher.ranks) >= nodes)
    await world.attach_all(task.id)
    return task.id


async def test_a_high_task_gets_the_nodes_of_a_low_one_and_the_low_one_comes_back(
    world: ControllerHarness,
) -> None:
    low = await running(world, "low")
    high = (
        await world.task_manager.submit(
            "bob", replace(a_spec("high", 2), priority=Priority.HIGH), ""
        )
    ).id
    await world.scheduling.once()
    assert any(isinstance(i, SuspendPrograms) for i in world.performed)
    await world.scheduling.once()
    assert world.scheduling.wait(high).why is WaitReason.WAITING_FOR_PREEMPTED
    await world.task_manager.apply(low, ev.Yielded(1, 0))
    await world.leave(low)
    await world.scheduling.once()
    assert world.task_manager.unfinished()[high].state is TaskState.RUNNING
    assert world.task_manager.unfinished()[low].state is TaskState.SUSPENDED
    await world.attach_all(high)
    await world.task_manager.stop(high, "bob", None)
    await world.task_manager.apply(high, ev.Yielded(1, 0))
    await world.leave(high)
    await world.scheduling.once()
    task = world.task_manager.unfinished()[low]
    assert task.run is not None
    assert (task.state, task.run.number) == (TaskState.RUNNING, 2)


async def test_nodes_are_never_given_before_they_are_free(world: ControllerHarness) -> None:
    low = await running(world, "low")
    await world.task_manager.submit("bob", replace(a_spec("high", 2), priority=Priority.HIGH), "")
    for _ in range(3):
        await world.scheduling.once()
    assert {k.task_id for k in world.launcher.ranks} == {low}


async def test_after_a_restart_ranks_are_adopted_relaunched_or_reported(
    world: ControllerHarness,
) -> None:
    alive = await running(world, "alive", nodes=1)
    lost = await running(world, "lost", nodes=1)
    existing = {RankKey(alive, 1, 0), RankKey(777, 1, 0)}
    again = ControllerHarness(world.store, FakeLauncher(world.launcher.nodes, existing))
    await again.start()
    await again.until(lambda: again.task_manager.unfinished()[lost].waiting)
    assert again.task_manager.unfinished()[alive].run == world.task_manager.unfinished()[alive].run
    run = again.task_manager.unfinished()[lost].run
    assert run is not None
    assert run.stop_code & StopCode.NODE_FAILURE
    assert set(again.launcher.ranks) == {RankKey(alive, 1, 0)}  # the rank without a task was killed
    await again.stop()


class Odd(MemoryStore):
    """A store that fails to write one task while it waits."""

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        if task.spec.name == "odd" and task.waiting:
            raise AssertionError("an odd run")
        return await super().save_task(task, *more)


async def test_one_odd_run_keeps_no_other_from_being_adopted() -> None:
    before = ControllerHarness(Odd(), FakeLauncher([Node("n0"), Node("n1")]))
    await before.start()
    odd = await before.task_manager.submit("ada", a_spec("odd"), "")
    other = await before.task_manager.submit("ada", a_spec("other"), "")
    for task, node in ((odd, "n0"), (other, "n1")):
        await before.task_manager.apply(task.id, ev.RunPlaced((node,), Priority.NORMAL, "free"))
    await before.stop()
    begun = {(odd.id, 1), (other.id, 1)}
    again = ControllerHarness(
        before.store, FakeLauncher(before.launcher.nodes, launched_runs=begun)
    )
    await asyncio.wait_for(again.start(), 20)
    assert again.task_manager.unfinished()[other.id].waiting
    assert not again.task_manager.unfinished()[odd.id].waiting
    await again.stop()


class Slow(FakeLauncher):
    """A launcher whose killed ranks end only when the test terminates them."""

    async def write_checkpoints(self, key: RankKey) -> None: ...

    async def kill(self, request: KillRequest) -> None: ...


async def test_what_no_task_wants_is_gone_before_anything_is_placed(
    world: ControllerHarness,
) -> None:
    """After a restore, ranks of an unknown run may be on any node, and the run may have the next number of a task."""
    alive = await running(world, "alive", nodes=1)
    unknown = {RankKey(alive, 2, 0), RankKey(777, 1, 0)}
    again = ControllerHarness(
        world.store, Slow(world.launcher.nodes, {RankKey(alive, 1, 0), *unknown})
    )
    await again.start()
    cleared = asyncio.ensure_future(again.launching.cleared())
    for key in sorted(unknown):
        await asyncio.sleep(0)
        assert not cleared.done()
        again.launcher.terminate(key)
    await cleared
    assert again.task_manager.unfinished()[alive] == world.task_manager.unfinished()[alive]
    await again.stop()


async def test_where_all_is_wanted_nothing_waits(world: ControllerHarness) -> None:
    await world.launching.cleared()


async def test_a_database_that_knows_no_task_ends_nothing() -> None:
    """It is probably the wrong database, for example because its disk is not mounted."""
    runs = {RankKey(7, 1, 0): None}
    async with default_store() as empty:
        world = ControllerHarness(empty, FakeLauncher([Node("n0")], runs))
        await world.task_manager.load()
        with pytest.raises(Conflict, match="is it the right one") as refused:
            await world.launching.run()
        assert refused.value.reason == "WRONG_DATABASE"
        assert world.launcher.ranks == runs


async def test_after_a_restart_the_launcher_hears_what_may_run_unseen(
    world: ControllerHarness,
) -> None:
    runs, ended = await running(world, "runs", nodes=1), await running(world, "ended", nodes=1)
    await world.task_manager.apply(ended, ev.ProgramExited(1, 0, 0, "", False))
    again = ControllerHarness(world.store, Remembering(world.launcher.nodes))
    await again.start()
    await again.until(lambda: len(again.launcher.asked) == 2)  # type: ignore[attr-defined]
    assert again.launcher.asked == {  # type: ignore[attr-defined]
        RankKey(runs, 1, 0): True,
        RankKey(ended, 1, 0): False,
    }
    await again.stop()


class Remembering(FakeLauncher):
    """A launcher that records which ranks it killed, and whether their programs may have run."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.asked: dict[RankKey, bool] = {}

    async def write_checkpoints(self, key: RankKey) -> None: ...

    async def kill(self, request: KillRequest) -> None:
        self.asked[request.key] = request.ran
        await super().kill(request)


async def test_a_run_that_was_placed_but_never_launched_is_launched_after_the_restart(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    placed = ev.RunPlaced(("n0",), Priority.NORMAL, "free")
    world.executor.perform = lambda task, instruction: None  # type: ignore[method-assign] # the crash
    await world.task_manager.apply(task.id, placed)
    again = ControllerHarness(world.store, FakeLauncher(world.launcher.nodes))
    await again.start()
    await again.until(lambda: RankKey(task.id, 1, 0) in again.launcher.ranks)
    await again.stop()


async def test_a_rank_that_may_have_been_made_and_is_not_there_is_not_made_again(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    world.executor.perform = lambda task, instruction: None  # type: ignore[method-assign] # the crash
    await world.task_manager.apply(task.id, ev.RunPlaced(("n0",), Priority.NORMAL, "free"))
    again = ControllerHarness(
        world.store, FakeLauncher(world.launcher.nodes, launched_runs=[(task.id, 1)])
    )
    await again.start()
    left = again.task_manager.unfinished()[task.id]
    assert left.waiting
    assert left.reason == (
        "the agent of rank 0 on n0 disappeared: it did not exist when the server was restarted"
    )
    assert not again.launcher.ranks
    await again.stop()


async def test_a_lost_node_ends_its_run_and_the_task_goes_back_to_the_queue(
    world: ControllerHarness,
) -> None:
    task_id = await running(world, "one")
    await world.task_manager.apply(task_id, ev.AgentSilent(1, 1, world.clock.now()))
    down = replace(world.launcher.nodes[1], state=NodeState.NOT_READY, reason="no power")
    world.launcher.emit(NodeList((world.launcher.nodes[0], down)))
    await world.until(lambda: not _alive(world, task_id))
    world.launcher.terminate(RankKey(task_id, 1, 0))
    await world.until(lambda: world.task_manager.unfinished()[task_id].waiting)
    await world.scheduling.once()
    assert world.scheduling.wait(task_id).why in (
        WaitReason.GROUP_TOO_SMALL,
        WaitReason.NODES_UNUSABLE,
    )


async def test_a_run_on_a_lost_node_saves_while_its_agent_answers(world: ControllerHarness) -> None:
    task_id = await running(world, "one")
    down = replace(world.launcher.nodes[1], state=NodeState.NOT_READY, reason="no word")
    world.launcher.emit(NodeList((world.launcher.nodes[0], down)))
    await world.until(lambda: any(isinstance(i, SuspendPrograms) for i in world.performed))
    run = world.task_manager.unfinished()[task_id].run
    assert run is not None
    assert run.reason == "node n1 was lost: no word; the agent of rank 1 answers"
    assert len(world.launcher.ranks) == 2
    await world.task_manager.apply(task_id, ev.Yielded(1, 0))
    await world.leave(task_id)


async def test_ranks_whose_pods_were_deleted_while_no_server_ran_make_their_task_save(
    world: ControllerHarness,
) -> None:
    task_id = await running(world, "one")
    again = ControllerHarness(
        world.store,
        FakeLauncher(world.launcher.nodes, [RankKey(task_id, 1, 0)], complete=False),
    )
    await again.start()
    run = again.task_manager.unfinished()[task_id].run
    assert run is not None
    assert run.state is RunState.SUSPENDING
    told = "rank 1 on n1: its pod was deleted while no server ran; its program may run on"
    assert run.reason == told
    assert [type(i) for i in again.performed] == [SuspendPrograms]
    lines = [event.reason for _, event in await again.store.task_events(task_id)]
    assert lines[-1] == told
    await again.stop()


def _alive(world: ControllerHarness, task_id: int) -> bool:
    run = world.task_manager.unfinished()[task_id].run
    return run is not None and run.state is RunState.RUNNING


async def test_draining_a_node_suspends_what_runs_there_and_keeps_it_free(
    world: ControllerHarness,
) -> None:
    task_id = await running(world, "one", nodes=1)
    run = world.task_manager.unfinished()[task_id].run
    assert run is not None
    node = run.ranks[0].node
    drained = await world.cluster.drain(node, "new disk", "op")
    assert (drained.cordoned, drained.reason) == (True, "new disk (op)")
    run = world.task_manager.unfinished()[task_id].run
    assert run is not None
    assert run.reason.endswith(f"node {node} is being drained by op: new disk")
    await world.task_manager.apply(task_id, ev.Yielded(1, 0))
    await world.leave(task_id)
    await world.scheduling.once()
    again = world.task_manager.unfinished()[task_id].run
    assert again is not None
    assert again.ranks[0].node != node


async def test_what_an_operator_decided_survives_a_restart(world: ControllerHarness) -> None:
    await world.cluster.set_cordoned("n0", True, "new disk", "op")
    await world.cluster.set_labels("n0", lambda had: (*had, ("rack", "r7")))
    again = ControllerHarness(world.store, FakeLauncher([Node("n0", gpus=8), Node("n1", gpus=8)]))
    await again.start()
    assert again.cluster.nodes()["n0"].cordoned
    assert again.cluster.nodes()["n0"].labels == (("rack", "r7"),)
    assert again.cluster.nodes()["n1"].state is NodeState.READY
    await again.stop()


async def test_the_scheduler_looks_again_when_quotas_or_users_change(
    world: ControllerHarness,
) -> None:
    rung: list[str] = []
    directory = Directory(world.store, changed=lambda: rung.append("rung"))
    await directory.create_user(User("ada"))
    quota = Quota("ada", False, "default", Priority.HIGH, 2)
    await directory.set_quota(quota)
    await directory.delete_quota("ada", False, "default", Priority.HIGH)
    assert len(rung) == 3


async def test_a_rank_that_is_taken_away_makes_the_whole_task_save(
    world: ControllerHarness,
) -> None:
    low = await running(world, "low")
    world.launcher.emit(RankEvictionNotice(RankKey(low, 1, 1), "its node is drained"))
    await world.until(lambda: any(isinstance(i, SuspendPrograms) for i in world.performed))
    run = world.task_manager.unfinished()[low].run
    assert run is not None
    assert run.state is RunState.SUSPENDING
    assert run.reason == "rank 1 on n1 is taken away: its node is drained"
    world.launcher.emit(RankEvictionNotice(RankKey(low, 9, 1), "an older run"))


async def test_a_node_that_was_lost_while_no_server_was_there_is_told_to_its_tasks(
    world: ControllerHarness,
) -> None:
    low = await running(world, "low")
    for rank in (0, 1):
        await world.task_manager.apply(low, ev.AgentSilent(1, rank, world.clock.now()))
    await world.stop()
    away = [
        replace(node, state=NodeState.NOT_READY, reason="silent") for node in world.launcher.nodes
    ]
    again = ControllerHarness(
        world.store, FakeLauncher(away, [RankKey(low, 1, 0), RankKey(low, 1, 1)])
    )
    await again.start()
    await again.until(lambda: again.task_manager.unfinished()[low].waiting)
    assert "was lost: silent" in again.task_manager.unfinished()[low].reason
    await again.stop()
