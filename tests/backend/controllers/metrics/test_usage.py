"""Usage is merged per minute, written once, and kept while the store is unavailable. Group loads are computed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from hai_backend.controllers.metrics.cluster_load import loads
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import Group, Node
from hai_backend.domain.spec import ResourceSpec
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.domain.usage import GroupLoad, Load, Minutes, Use, read_measurement
from hai_backend.launch.base import RankKey
from hai_backend.testing import ManualClock
from tests.support.builders import a_task
from tests.support.virtual_time import LoopTimers, run_virtually

NOW = 1_700_006_400.0
KEY = RankKey(1, 1, 0)


def use(cpus: float = 1.0, gpu: float | None = None) -> Use:
    found = read_measurement(cpus, 1024, gpu, 0)
    assert found is not None
    return found


class Kept:
    """A store that may be unavailable. It keeps the written minutes."""

    def __init__(self) -> None:
        self.away = False
        self.written: list[Minutes] = []

    async def add_usage(self, minutes: Minutes) -> None:
        if self.away:
            raise Unavailable("the disk is full")
        self.written.append(minutes)

    @property
    def beats(self) -> dict[int, int]:
        """How many measurements of each minute."""
        return {int(r.start - NOW) // 60: r.use.beats for m in self.written for r in m.ranks}


class Nobody:
    """A task manager and a cluster without tasks and nodes."""

    def unfinished(self) -> Mapping[int, Task]:
        return {}

    def nodes(self) -> Mapping[str, Node]:
        return {}

    def groups(self) -> Mapping[str, Group]:
        return {}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store() -> Kept:
    return Kept()


@pytest.fixture
def usage(store: Kept, clock: ManualClock) -> Usage:
    return Usage(store, Nobody(), Nobody(), clock)


async def test_a_minute_is_written_once_when_it_is_over(
    usage: Usage, store: Kept, clock: ManualClock
) -> None:
    for _ in range(6):
        usage.record(KEY, use())
        clock.advance(10)
    usage.record(KEY, use())
    await usage.write()
    await usage.write()
    assert store.beats == {0: 6}
    assert [one.use.beats for one in usage.open(1)] == [1]
    assert usage.open(2) == []


async def test_what_the_store_does_not_take_waits_for_ten_minutes(
    usage: Usage, store: Kept, clock: ManualClock
) -> None:
    store.away = True
    for _ in range(12):
        usage.record(KEY, use())
        clock.advance(60)
        with pytest.raises(Unavailable):
            await usage.write()
    store.away = False
    await usage.write()
    assert sorted(store.beats) == list(range(2, 12))


def test_the_loop_writes_every_minute_and_survives_a_store_that_is_away() -> None:
    async def an_hour() -> Kept:
        store = Kept()
        loop = asyncio.ensure_future(Usage(store, Nobody(), Nobody(), LoopTimers()).run())
        await asyncio.sleep(1800)
        store.away = True
        await asyncio.sleep(600)
        store.away = False
        await asyncio.sleep(1200)
        loop.cancel()
        return store

    written = [minutes.until for minutes in run_virtually(an_hour()).written]
    assert len(written) in (49, 50, 51)
    assert all(until % 60 == 0 for until in written)


def running(id: int, *nodes: str, gone: tuple[int, ...] = (), **resource: int) -> Task:
    ranks = tuple(
        Rank(i, name, RankState.SUCCEEDED if i in gone else RankState.RUNNING)
        for i, name in enumerate(nodes)
    )
    task = a_task(id, nodes=len(nodes))
    spec = replace(task.spec, resource=ResourceSpec(node_count=len(nodes), **resource))
    run = Run(1, RunState.RUNNING, ranks, NOW, task.priority)
    return replace(task, spec=spec, state=TaskState.RUNNING, run=run)


def counted(packed: bool, *tasks: Task, used: Mapping[RankKey, Use] | None = None) -> Load:
    nodes = {f"n{i}": Node(f"n{i}", gpus=8) for i in range(4)}
    groups = {"default": Group("default", packed), "empty": Group("empty")}
    found = loads(0, nodes, groups, tasks, lambda key: (used or {}).get(key))
    assert found[1] == GroupLoad("empty", 0, Load(1, 0, 0, 0, 0, 0))
    return found[0].load


def test_who_has_a_node_has_all_of_its_gpus() -> None:
    assert counted(False, running(1, "n0", "n1", gpu=2)) == Load(1, 4, 2, 32, 16, 0)


def test_in_packed_groups_ranks_have_their_own() -> None:
    load = counted(True, running(1, "n0", gpu=2), running(2, "n0", gpu=4), running(3, "n1", cpu=1))
    assert load == Load(1, 4, 2, 32, 6, 0)


def test_ranks_that_are_gone_and_tasks_that_wait() -> None:
    assert counted(False, running(1, "n0", "n1", gone=(1,)), a_task(2)) == Load(1, 4, 1, 32, 8, 1)


def test_who_is_held_or_waits_for_others_waits_for_no_nodes() -> None:
    held, behind = replace(a_task(1), held=True), replace(a_task(2), awaited=(1,))
    assert counted(False, held, behind, a_task(3)).waiting_tasks == 1


def test_utilisation_is_weighed_by_gpus_and_counts_measured_ones_only() -> None:
    used = {RankKey(1, 1, 0): use(gpu=0.5), RankKey(1, 1, 1): use()}
    load = counted(False, running(1, "n0", "n1"), used=used)
    assert (load.booked_gpus, load.gpus_measured, load.gpu_utilisation) == (16, 8, 4.0)


def test_a_node_that_nobody_knows_any_more_counts_nothing() -> None:
    assert counted(False, running(1, "gone")).busy_nodes == 0
