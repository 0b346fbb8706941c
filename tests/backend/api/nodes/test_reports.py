"""A program that blames its node: the node is cordoned, the task goes elsewhere, and nobody empties the cluster so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hai_backend.api.nodes.reports import blame
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


async def running(world: ControllerHarness, task_id: int) -> Task:
    """Give the task its next run."""
    await world.scheduling.once()
    await world.until(lambda: any(key.task_id == task_id for key in world.launcher.ranks))
    return await world.attach_all(task_id)


async def blamed(world: ControllerHarness, task: Task, error: str) -> str:
    """The run reports its node and leaves; answers with the node."""
    assert task.run is not None
    key = RankKey(task.id, task.run.number, 0)
    await blame(world.cluster, world.task_manager, task, key, error)
    await world.leave(task.id)
    world.clock.advance(DEFAULTS.back_off_most)
    return task.run.ranks[0].node


async def test_the_next_run_is_elsewhere_and_the_node_says_why(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    bad = await blamed(world, await running(world, task.id), "worker died\n\x1b[1m xid\t79")
    node = world.cluster.nodes()[bad]
    assert node.cordoned
    assert node.reason == f"reported by task {task.id}: worker died [1m xid 79 (agent)"
    again = (await running(world, task.id)).run
    assert again is not None
    assert (again.state, again.number) == (RunState.RUNNING, 2)
    assert again.ranks[0].node != bad


async def test_what_an_operator_said_of_a_node_stays(world: ControllerHarness) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    placed = await running(world, task.id)
    assert placed.run is not None
    await world.cluster.set_cordoned(placed.run.ranks[0].node, True, "new disk", "op")
    bad = await blamed(world, placed, "xid 79")
    assert world.cluster.nodes()[bad].reason == "new disk (op)"


async def test_a_task_that_finds_every_node_broken_is_not_believed_for_ever(
    world: ControllerHarness,
) -> None:
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    for _ in range(5):
        await blamed(world, await running(world, task.id), "")
    assert sum(node.cordoned for node in world.cluster.nodes().values()) == 3
    assert world.task_manager.unfinished()[task.id].waiting
