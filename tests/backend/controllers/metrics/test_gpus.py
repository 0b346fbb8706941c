"""Which GPUs a node and a rank have: as the launcher reads them, or as agents report them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hai_backend.controllers.metrics.gpus import GpuStates
from hai_backend.domain.gpu import GpuState, read_gpu_state
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ResourceSpec
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.testing import ManualClock
from tests.support.builders import a_task

ALL = tuple(GpuState(i, "H100", utilisation=i / 10) for i in range(4))
REPORTED = (GpuState(0, "H100", temperature=70), GpuState(1, "H100", temperature=71))
CLUSTER = SimpleNamespace(nodes=lambda: {"n0": Node("n0", gpus=4)})


class Source:
    """A launcher that counts how often it is asked. `answers` False: it never answers."""

    def __init__(self, gpus: Mapping[str, tuple[GpuState, ...]]) -> None:
        self.gpus = gpus
        self.asked = 0
        self.answers = True

    async def read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        self.asked += 1
        if not self.answers:
            await asyncio.Event().wait()
        return self.gpus


def holder(
    *gpus: int, task: int = 1, state: RankState = RankState.RUNNING, **resource: int
) -> Task:
    """Return a task that runs with these GPUs of n0."""
    run = Run(1, RunState.RUNNING, (Rank(0, "n0", state, gpus=gpus),), 0.0, Priority.NORMAL)
    spec = replace(a_task(task).spec, resource=ResourceSpec(**resource))
    return replace(a_task(task), spec=spec, state=TaskState.RUNNING, run=run)


def indices(gpus: tuple[GpuState, ...]) -> list[int]:
    return [gpu.index for gpu in gpus]


@pytest.mark.parametrize(
    ("task", "own"),
    [
        pytest.param(holder(1, 3, gpu=2), [1, 3], id="some of the node"),
        pytest.param(holder(0, 1, 2, 3), [0, 1, 2, 3], id="the whole node"),
        pytest.param(holder(cpu=4), [], id="none"),
        pytest.param(holder(0, 1, 2, 3, state=RankState.SUCCEEDED), [], id="a rank that has ended"),
        pytest.param(a_task(), [], id="a task that waits"),
    ],
)
async def test_a_rank_has_its_part_of_what_the_launcher_reads(task: Task, own: list[int]) -> None:
    states = GpuStates(Source({"n0": ALL}), CLUSTER, ManualClock())
    await states.refresh()
    assert indices(states.of_rank(task, 0)) == own
    assert states.of_node("n0", []) == ALL


async def test_agents_report_where_the_launcher_sees_nothing() -> None:
    clock = ManualClock()
    states = GpuStates(Source({}), CLUSTER, clock)
    first, second = holder(2, 3, gpu=2, task=1), holder(0, gpu=1, task=2)
    states.record(RankKey(1, 1, 0), REPORTED)
    states.record(RankKey(2, 1, 0), REPORTED)  # its container shows more GPUs than the rank has
    await states.refresh()
    assert [(g.index, g.temperature) for g in states.of_rank(first, 0)] == [(2, 70), (3, 71)]
    node = states.of_node("n0", [(first, 0), (second, 0)])
    assert [(g.index, g.temperature) for g in node] == [(0, 70), (2, 70), (3, 71)]
    clock.advance(61)
    assert states.of_node("n0", [(first, 0), (second, 0)]) == ()
    states.record(RankKey(3, 1, 0), REPORTED)
    assert len(states._reports) == 1, "old reports are forgotten"


async def test_callers_share_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    source, clock = Source({"n0": ALL}), ManualClock()
    states = GpuStates(source, CLUSTER, clock)
    await asyncio.gather(*(states.refresh() for _ in range(5)))
    await states.refresh()
    assert source.asked == 1
    clock.advance(2)
    source.gpus = {"n0": ALL[:1]}
    await states.refresh()
    assert (source.asked, states.of_node("n0", [])) == (2, ALL[:1])


async def test_a_gpu_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_backend.controllers.metrics.gpus._PATIENCE_SECONDS", 0.01)
    source, clock = Source({"n0": ALL}), ManualClock()
    states = GpuStates(source, CLUSTER, clock)
    await states.refresh()
    clock.advance(2)
    source.answers = False
    await states.refresh()
    await states.refresh()
    assert (source.asked, states.of_node("n0", [])) == (2, ALL)
    states.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(GpuState(0, "A\n\x1bB" + "x" * 99), "AB" + "x" * 62, id="a long name"),
        pytest.param(GpuState(0, "A", 1 << 40, 1 << 39, 1.0, -5), "A", id="plain"),
        pytest.param(GpuState(0, memory_bytes=-1), None, id="memory"),
        pytest.param(GpuState(0, memory_used_bytes=1 << 61), None, id="used memory"),
        pytest.param(GpuState(0, utilisation=float("nan")), None, id="no number"),
        pytest.param(GpuState(0, temperature=9999), None, id="temperature"),
    ],
)
def test_reports_of_agents_are_checked(given: GpuState, expected: str | None) -> None:
    checked = read_gpu_state(given)
    assert (checked and checked.model) == expected
