"""Tasks that share a node have separate GPUs, and an outdated plan never overbooks a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.task import env
from hai_backend.controllers.scheduling.binder import Binder, gpus_of
from hai_backend.controllers.tasks import rank_command
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start
from hai_backend.domain.spec import ResourceSpec
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.scheduler import SchedulerCache
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec, a_task
from tests.support.controller_harness import ControllerHarness

GB = 1 << 30
NODES = {"n0": Node("n0", gpus=4, cpus=16, memory_bytes=64 * GB), "n1": Node("n1", gpus=4)}
PACKED = {"default": Group("default", packed=True)}


def waits(task_id: int = 1, **part: int) -> Task:
    task = a_task(task_id)
    return replace(task, spec=replace(task.spec, resource=ResourceSpec(**part)))


def holds(task: Task, *places: tuple[str, tuple[int, ...]], gone: bool = False) -> Task:
    state = RankState.SUCCEEDED if gone else RankState.RUNNING
    ranks = tuple(Rank(i, node, state, gpus=gpus) for i, (node, gpus) in enumerate(places))
    run = Run(1, RunState.RUNNING, ranks, 0.0, Priority.NORMAL)
    return replace(task, state=TaskState.RUNNING, run=run)


def book(*tasks: Task, groups: Any = PACKED) -> Binder:
    made = Binder({"n0", "n1"}, NODES, groups)
    made.add_existing(tasks)
    return made


NOBODY: list[Task] = []
STARTS = [
    pytest.param(NOBODY, waits(gpu=2), ("n0",), ((0, 1),), id="the lowest first"),
    pytest.param(NOBODY, waits(), ("n0",), ((0, 1, 2, 3),), id="a whole node has all of them"),
    pytest.param(NOBODY, waits(cpu=2), ("n0",), ((),), id="who asks for none has none"),
    pytest.param(
        NOBODY, waits(gpu=2), ("n0", "n0"), ((0, 1), (2, 3)), id="two ranks of one task on a node"
    ),
    pytest.param(
        [holds(waits(2, gpu=1), ("n0", (1,)))], waits(gpu=2), ("n0",), ((0, 2),), id="around others"
    ),
    pytest.param(
        [holds(waits(2, gpu=2), ("n0", ()))],
        waits(gpu=2),
        ("n0",),
        ((2, 3),),
        id="a rank from before indices were stored has the first",
    ),
    pytest.param(
        [holds(waits(2), ("n0", (0, 1, 2, 3)), gone=True)],
        waits(gpu=1),
        ("n0",),
        ((0,),),
        id="a rank that is gone holds nothing",
    ),
    pytest.param(
        [holds(waits(2, gpu=3), ("n0", (0, 1, 2)))], waits(gpu=2), ("n0",), None, id="gpus"
    ),
    pytest.param([holds(waits(2, cpu=12), ("n0", ()))], waits(cpu=5), ("n0",), None, id="cpus"),
    pytest.param(
        [holds(waits(2, memory=60), ("n0", ()))], waits(memory=5), ("n0",), None, id="memory"
    ),
    pytest.param(
        [holds(waits(2, gpu=1), ("n0", (0,)))],
        waits(),
        ("n0",),
        None,
        id="whole needs an empty one",
    ),
    pytest.param(
        [holds(waits(2), ("n0", (0, 1, 2, 3)))], waits(cpu=1), ("n0",), None, id="beside whole"
    ),
    pytest.param(NOBODY, waits(gpu=3), ("n0", "n0"), None, id="two ranks are too much together"),
    pytest.param(NOBODY, waits(gpu=1), ("n9",), None, id="a node that is no more"),
]


@pytest.mark.parametrize(("there", "task", "names", "gpus"), STARTS)
def test_a_start_fits_or_not(
    there: list[Task], task: Task, names: tuple[str, ...], gpus: object
) -> None:
    assert book(*there).allocate(task, names) == gpus


def test_nodes_that_are_not_shared_have_one_holder() -> None:
    whole = book(holds(waits(2), ("n0", ())), groups={})
    assert whole.allocate(waits(), ("n0",)) is None
    assert whole.allocate(waits(gpu=5), ("n1",)) is None, "the node has fewer GPUs"
    assert whole.allocate(waits(gpu=1), ("n1",)) == ((0, 1, 2, 3),)
    assert whole.allocate(waits(), ("n1",)) is None


def test_a_refused_start_books_nothing() -> None:
    there = book()
    assert there.allocate(waits(gpu=3), ("n1", "n0", "n0")) is None
    assert there.allocate(waits(gpu=4), ("n1",)) == ((0, 1, 2, 3),)


asks = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 70), st.integers(1, 3)),
    max_size=8,
)


@given(asks)
def test_no_gpu_is_given_twice_and_no_node_takes_more_than_it_has(
    wanted: list[tuple[int, int, int, int]],
) -> None:
    there, taken, cpus, memory = book(), list[int](), 0, 0
    for gpu, cpu, gigabytes, ranks in wanted:
        gpus = there.allocate(waits(gpu=gpu, cpu=cpu, memory=gigabytes), ("n0",) * ranks)
        if gpus is not None:
            whole = not (gpu or cpu or gigabytes)
            taken += [i for rank in gpus for i in rank]
            cpus += (16 if whole else cpu) * ranks
            memory += (64 if whole else gigabytes) * ranks
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(range(4))
    assert cpus <= 16
    assert memory <= 64


def test_processes_per_node_are_the_gpus_of_the_rank() -> None:
    for task, gpus, expected in ((waits(gpu=2), (1, 3), "2"), (waits(cpu=2), (), "1")):
        there = holds(task, ("n0", gpus))
        assert there.run is not None
        rank = there.run.ranks[0]
        assert gpus_of(there, rank, NODES["n0"]) == gpus
        variables = rank_command.variables(there, there.run, rank, NODES["n0"], "")
        assert variables[env.NPROC_PER_NODE] == expected


@pytest.fixture
async def packed() -> AsyncIterator[ControllerHarness]:
    store = MemoryStore()
    await store.save_group(PACKED["default"])
    made = ControllerHarness(store, FakeLauncher([Node("n0", gpus=4)]))
    await made.start()
    yield made
    await made.stop()


async def submitted(world: ControllerHarness, name: str, **part: int) -> int:
    spec = replace(a_spec(name), resource=ResourceSpec(**part))
    return (await world.task_manager.submit("ada", spec, "")).id


async def test_two_small_tasks_of_one_pass_are_launched_with_different_gpus(
    packed: ControllerHarness,
) -> None:
    first, second = [await submitted(packed, name, gpu=2) for name in ("one", "two")]
    await packed.scheduling.once()
    await packed.until(lambda: len(packed.launcher.ranks) == 2)
    launched = {k.task_id: r.gpu_indices for k, r in packed.launcher.ranks.items() if r is not None}
    assert launched == {first: (0, 1), second: (2, 3)}


async def test_gpus_are_remembered_over_a_restart_and_given_on(packed: ControllerHarness) -> None:
    first, second = [await submitted(packed, name, gpu=1) for name in ("one", "two")]
    await packed.scheduling.once()
    await packed.until(lambda: len(packed.launcher.ranks) == 2)
    again = ControllerHarness(
        packed.store, FakeLauncher(packed.launcher.nodes, packed.launcher.ranks)
    )
    await again.start()
    await again.attach_all(first)
    await again.task_manager.stop(first, "ada", None)
    await again.task_manager.apply(first, ev.Yielded(1, 0))
    await again.leave(first)
    third = await submitted(again, "three", gpu=2)
    await again.scheduling.once()
    await again.until(lambda: RankKey(third, 1, 0) in again.launcher.ranks)
    launch = again.launcher.ranks[RankKey(third, 1, 0)]
    assert launch is not None
    assert launch.gpu_indices == (0, 2)  # GPU 1 belongs to the second task
    assert second in again.task_manager.unfinished()
    await again.stop()


async def test_a_late_plan_does_not_overfill_a_shared_node(
    packed: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await submitted(packed, name, gpu=3) for name in ("one", "two")]
    starts = tuple(Start(i, ("n0",), Priority.NORMAL, "free") for i in ids)
    monkeypatch.setattr(SchedulerCache, "decide", lambda *_: Plan(0, starts))
    await packed.scheduling.once()
    states = [packed.task_manager.unfinished()[i].state for i in ids]
    assert states == [TaskState.RUNNING, TaskState.WAITING_INIT]
