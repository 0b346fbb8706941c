"""Work that no caller repeats is completed even if the database is unavailable for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.scheduling import history
from hai_backend.domain.errors import Denied, Unavailable
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.scheduling.snapshot import Ending
from hai_backend.domain.task import Outcome, TaskState
from hai_backend.launch.base import NodeList
from hai_backend.launch.fake import FakeLauncher
from hai_backend.store.base import TaskPage, TaskQuery
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_task
from tests.support.controller_harness import ControllerHarness
from tests.support.virtual_time import run_virtually


class Restarted(MemoryStore):
    """A store that is unavailable for the next `away` calls."""

    away = 0

    def _look(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("the database is starting up")

    async def save_nodes(self, nodes: Collection[Node]) -> None:
        self._look()
        await super().save_nodes(nodes)

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        self._look()
        return await super().find_tasks(query)


@pytest.mark.parametrize("away", [0, 1, 20])
def test_it_is_tried_until_the_store_takes_it(away: int) -> None:
    tries: list[int] = []

    async def work() -> str:
        tries.append(1)
        if len(tries) <= away:
            raise Unavailable("the database is starting up")
        return "done"

    assert run_virtually(retry_until_stored(work, "it")) == "done"
    assert len(tries) == away + 1


def test_other_errors_leave_at_once() -> None:
    async def work() -> None:
        raise Denied("no")

    with pytest.raises(Denied):
        run_virtually(retry_until_stored(work, "it"))


def test_nodes_that_are_told_once_are_known_when_the_store_is_back() -> None:
    async def seen() -> dict[str, NodeState]:
        store = Restarted()
        store.away = 3
        world = ControllerHarness(store, FakeLauncher([Node("n0")]))
        await world.start()
        await asyncio.sleep(60)
        await world.stop()
        return {node.name: node.state for node in await store.nodes()}

    assert run_virtually(seen()) == {"n0": NodeState.READY}


def test_what_was_seen_of_nodes_meanwhile_is_not_undone() -> None:
    async def seen() -> NodeState:
        store = Restarted()
        store.away = 1
        world = ControllerHarness(store, FakeLauncher([Node("n0")]))
        await world.start()
        lost = Node("n0", state=NodeState.NOT_READY)
        await world.launching._handle(NodeList((lost,)))
        await asyncio.sleep(60)
        await world.stop()
        return world.cluster.nodes()["n0"].state

    assert run_virtually(seen()) is NodeState.NOT_READY


def test_what_earlier_tasks_teach_is_learned_once() -> None:
    async def learned() -> Sequence[Ending]:
        store = Restarted()
        ended = replace(
            a_task(), state=TaskState.FINISHED, outcome=Outcome.SUCCEEDED, run_seconds=60.0
        )
        await store.create_task(ended, (), "")
        store.away, endings = 2, list[Ending]()
        await history.recall(store, endings.extend)
        return endings

    assert len(run_virtually(learned())) == 1
