"""A program that reports its node as broken: the node is cordoned, and the task starts again on another one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hai_backend.api.agents.reports import cordon_reported_node
from hai_backend.domain.node import Node
from hai_backend.domain.task import RunState, Task
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle.limits import DEFAULTS
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness


@pytest.fixture
async def world() -> AsyncIterator[ControllerHarness]:
    made = ControllerHarness(MemoryStore(), FakeLauncher([Node(f"n{i}", gpus=8) for i in range(6)]))
    await made.start()
    yield made
    await made.stop()


async def start_run(world: ControllerHarness, task_id: int) -> Task:
    """Start the next run of the task."""
    await world.scheduling.once()
    await world.until(lambda: any(key.task_id == task_id for key in world.launcher.ranks))
    return await world.attach_all(task_id)


async def report_node(world: ControllerHarness, task: Task, error: str) -> str:
    """Let the run report its node and end. Return the name of the node."""
    assert task.run is not None
    key = RankKey(task.id, task.run.number, 0)
    await cordon_reported_node(world.cluster, world.task_manager, task, key, error)
    await world.leave(task.id)
    world.clock.advance(DEFAULTS.back_off_most)
    return task.run.ranks[0].node


async def test_next_run_uses_another_node_and_node_has_the_reason(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    node_name = await report_node(
        world, await start_run(world, task.id), "worker died\n\x1b[1m xid\t79"
    )
    node = world.cluster.nodes()[node_name]
    assert node.cordoned
    assert node.reason == f"reported by task {task.id}: worker died [1m xid 79 (agent)"
    again = (await start_run(world, task.id)).run
    assert again is not None
    assert (again.state, again.number) == (RunState.RUNNING, 2)
    assert again.ranks[0].node != node_name


async def test_reason_of_an_operator_is_not_replaced(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    placed = await start_run(world, task.id)
    assert placed.run is not None
    await world.cluster.set_cordoned(placed.run.ranks[0].node, True, "new disk", "op")
    node_name = await report_node(world, placed, "xid 79")
    assert world.cluster.nodes()[node_name].reason == "new disk (op)"


async def test_task_that_reports_every_node_cordons_only_a_few(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    for _ in range(5):
        await report_node(world, await start_run(world, task.id), "")
    assert sum(node.cordoned for node in world.cluster.nodes().values()) == 3
    assert world.task_manager.unfinished()[task.id].waiting
