"""Counts over all tasks and nodes run in a thread, so that the event loop is not blocked."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from hai.v1 import node_service_pb2 as nodes
from hai.v1 import task_service_pb2 as tasks
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.plan import Wait, WaitReason


class Seen(dict[int, Wait]):
    """Records the threads that read a wait."""

    def __init__(self, *waits: Wait) -> None:
        super().__init__({wait.task: wait for wait in waits})
        self.threads: set[int] = set()

    def get(self, task: int, default: Any = None) -> Any:
        self.threads.add(get_ident())
        return super().get(task, default)


class Counted(Node):
    """Records the threads that read whether a node is usable."""

    threads: set[int] = set()  # noqa: RUF012 - shared by all instances

    @property
    def usable(self) -> bool:
        self.threads.add(get_ident())
        return True


async def test_building_a_long_queue_does_not_block_the_event_loop(
    platform: Any, make_spec: Any
) -> None:
    ada = await platform.caller("ada")
    for name in ("one", "other"):
        await ada.tasks.CreateTask(tasks.CreateTaskRequest(spec=make_spec(name=name)))
    waits = (Wait(i, WaitReason.NOT_ENOUGH_NODES, "x", 3 - i) for i in (1, 2))
    platform.scheduling.known_waits = seen = Seen(*waits)
    queue = (await ada.tasks.ListQueue(tasks.ListQueueRequest())).tasks
    assert [task.id for task in queue] == [2, 1]
    assert seen.threads
    assert get_ident() not in seen.threads


async def test_building_many_groups_does_not_block_the_event_loop(platform: Any) -> None:
    ada = await platform.caller("ada")
    await platform.cluster.update_nodes([Counted("m1", group="many")])
    Counted.threads.clear()
    groups = (await ada.nodes.ListGroups(nodes.ListGroupsRequest())).groups
    assert {group.name: group.free_nodes for group in groups}["many"] == 1
    assert Counted.threads
    assert get_ident() not in Counted.threads
