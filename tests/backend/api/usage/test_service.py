"""Series of usage: ranks, sums, nodes and the cluster, in steps."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hai.v1 import audit_service_pb2 as audit
from hai.v1 import usage_service_pb2 as pb
from hai.v1.task_service_pb2 import CreateTaskRequest, StopTaskRequest
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.priority import Priority
from hai_backend.domain.usage import GroupLoad, Load, Minutes, RankUse, Use, read_measurement
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from tests.support.builders import a_spec

NOW = 1_700_006_400


def use(cpus: float, gpu: float | None = None) -> Use:
    found = read_measurement(cpus, 1024, gpu, 2048 if gpu is not None else 0)
    assert found is not None
    return found


@pytest.fixture
async def ada(platform: Any) -> Any:
    platform.clock.advance(NOW - platform.clock.now())
    return await platform.caller("ada")


async def a_task(caller: Any, make_spec: Any, nodes: int = 1) -> int:
    request = CreateTaskRequest(spec=make_spec(node_count=nodes))
    return int((await caller.tasks.CreateTask(request)).id)


async def asked(caller: Any, task_id: int, **more: Any) -> pb.ListTaskUsageResponse:
    request = pb.ListTaskUsageRequest(task_id=task_id, **more)
    answer: pb.ListTaskUsageResponse = await caller.usage.ListTaskUsage(request)
    return answer


async def test_measured_usage_is_returned(platform: Any, ada: Any, make_spec: Any) -> None:
    task = await a_task(ada, make_spec, nodes=2)
    for second in range(0, 100, 20):
        platform.usage.record(RankKey(task, 1, 0), use(1.0 + second / 20, gpu=0.5))
        platform.usage.record(RankKey(task, 1, 1), use(0.5))
        platform.clock.advance(20)
        if second == 40:
            await platform.usage.write()
    answer = await asked(ada, task)
    assert [(series.rank, series.run) for series in answer.ranks] == [(0, 1), (1, 1)]
    first, _ = answer.ranks[0].points
    assert (first.time.seconds, first.count, first.cpus, first.cpus_max) == (NOW, 3, 2.0, 3.0)
    assert (first.memory_bytes, first.gpu_utilisation, first.gpu_memory_bytes) == (1024, 0.5, 2048)
    assert not answer.ranks[1].points[0].HasField("gpu_utilisation")
    assert answer.step_seconds == 60


async def test_ranks_are_added_up(platform: Any, ada: Any, make_spec: Any) -> None:
    task = await a_task(ada, make_spec, nodes=3)
    rows = [
        RankUse(task, 1, 0, NOW, use(1.0)),
        RankUse(task, 2, 0, NOW, use(3.0, gpu=0.5)),  # the next run of the rank, in the same minute
        RankUse(task, 1, 1, NOW, use(4.0, gpu=1.0)),
        RankUse(task, 1, 2, NOW, use(9.0)),
        RankUse(task, 1, 1, NOW + 60, use(5.0)),
    ]
    await platform.store.add_usage(Minutes(NOW + 120, rows))
    platform.clock.advance(120)
    answer = await asked(ada, task, ranks=[0, 1], sum=True)
    assert list(answer.ranks) == []
    first, second = answer.sum
    assert (first.time.seconds, first.count, first.cpus, first.cpus_max) == (NOW, 2, 6.0, 6.0)
    assert (first.memory_bytes, first.gpu_utilisation, first.gpu_memory_bytes) == (2048, 0.75, 4096)
    assert (second.count, second.cpus, second.HasField("gpu_utilisation")) == (1, 5.0, False)


async def test_open_minute_is_included_once(platform: Any, ada: Any, make_spec: Any) -> None:
    task = await a_task(ada, make_spec)
    platform.usage.record(RankKey(task, 1, 0), use(3.0))
    assert (await asked(ada, task)).ranks[0].points[0].cpus == 3.0
    platform.clock.advance(60)
    await platform.usage.write()
    await platform.usage.write()
    assert [p.count for p in (await asked(ada, task)).ranks[0].points] == [1]


async def test_usage_is_limited_to_requested_ranks_and_times(
    platform: Any, ada: Any, make_spec: Any
) -> None:
    task = await a_task(ada, make_spec, nodes=2)
    minutes = range(NOW, NOW + 600, 60)
    rows = [RankUse(task, 1, rank, start, use(1.0)) for start in minutes for rank in (0, 1)]
    await platform.store.add_usage(Minutes(NOW + 600, rows))
    platform.clock.advance(600)
    answer = await asked(
        ada, task, ranks=[1], start_time=to_timestamp(NOW + 120), end_time=to_timestamp(NOW + 240)
    )
    (series,) = answer.ranks
    assert (series.rank, [p.time.seconds - NOW for p in series.points]) == (1, [120, 180])
    assert (answer.start_time.seconds, answer.end_time.seconds) == (NOW + 120, NOW + 240)
    few = await asked(ada, task, points=3)
    assert all(len(one.points) <= 3 for one in few.ranks)


async def test_many_ranks_get_fewer_points(platform: Any, ada: Any, make_spec: Any) -> None:
    task = await a_task(ada, make_spec, nodes=4)
    platform.clock.advance(3 * 3600)
    answer = await asked(ada, task, points=500, ranks=range(1000))
    assert (answer.end_time.seconds - answer.start_time.seconds) // answer.step_seconds <= 20


async def test_invalid_windows_are_refused(ada: Any, make_spec: Any, expect_refusal: Any) -> None:
    task = await a_task(ada, make_spec)
    async with expect_refusal() as why:
        await asked(ada, task, points=501)
    assert why[0].violations == (("points", "must be from 2 to 500, not 501"),)
    async with expect_refusal() as why:
        await asked(ada, task, ranks=[-1, 99999])
    assert [field for field, _ in why[0].violations] == ["ranks[0]", "ranks[1]"]
    async with expect_refusal() as why:
        await asked(ada, task, start_time=to_timestamp(NOW + 9), end_time=to_timestamp(NOW))
    assert why[0].violations[0][0] == "start_time"


@pytest.mark.parametrize(
    ("start", "end", "wrong"),
    [
        pytest.param(0, 253_402_300_799, ["start_time"], id="steps longer than the answer can say"),
        pytest.param(-(2**63), 0, ["start_time"], id="before all time"),
        pytest.param(2**63 - 1, 2**63 - 1, ["end_time", "start_time"], id="after all time"),
    ],
)
async def test_periods_that_no_series_can_cover_are_refused(
    ada: Any, make_spec: Any, expect_refusal: Any, start: int, end: int, wrong: list[str]
) -> None:
    task = await a_task(ada, make_spec)
    period = {"start_time": Timestamp(seconds=start), "end_time": Timestamp(seconds=end)}
    async with expect_refusal() as why:
        await asked(ada, task, points=2, **period)
    assert [field for field, _ in why[0].violations] == wrong
    async with expect_refusal() as why:
        await ada.usage.ListClusterUsage(pb.ListClusterUsageRequest(points=2, **period))
    assert [field for field, _ in why[0].violations] == wrong


async def test_usage_of_nodes_is_that_of_the_last_minute(platform: Any, ada: Any) -> None:
    task = await platform.task_manager.submit("ada", a_spec("train", 2), "")
    await platform.task_manager.apply(task.id, ev.RunPlaced(("n0", "n1"), Priority.NORMAL, "fits"))
    platform.usage.record(RankKey(task.id, 1, 0), use(1.0, gpu=0.25))
    platform.usage.record(RankKey(task.id, 1, 0), use(3.0, gpu=0.75))
    platform.usage.record(RankKey(task.id, 7, 1), use(9.0))  # not the current run

    async def seen(**more: Any) -> list[tuple[str, float, float, int]]:
        answer = await ada.usage.ListNodeUsage(pb.ListNodeUsageRequest(**more))
        return [(n.node, n.cpus, n.gpu_utilisation, n.gpu_memory_bytes) for n in answer.nodes]

    assert await seen() == [("n0", 2.0, 0.5, 2048)]
    assert await seen(group="other") == []
    platform.clock.advance(60)
    assert await seen() == [("n0", 2.0, 0.5, 2048)]
    await platform.usage.write()
    assert await seen(group="default") == [("n0", 2.0, 0.5, 2048)]
    platform.usage.record(RankKey(task.id, 1, 0), use(4.0))
    assert [n[1] for n in await seen()] == [4.0]
    platform.clock.advance(120)
    await platform.usage.write()
    assert await seen() == []


async def test_groups_are_added_up(platform: Any, ada: Any) -> None:
    minutes = Minutes(
        NOW + 120,
        [],
        [
            GroupLoad("default", NOW, Load(1, 4, 2, 32, 16, 3, 16, 8.0)),
            GroupLoad("default", NOW + 60, Load(1, 4, 4, 32, 32, 1, 0, 0.0)),
            GroupLoad("new", NOW + 60, Load(1, 2, 0, 8, 0, 5)),
        ],
    )
    await platform.store.add_usage(minutes)
    platform.clock.advance(120)
    answer = await ada.usage.ListClusterUsage(pb.ListClusterUsageRequest(points=500))
    first, second = answer.points
    assert (first.nodes, first.busy_nodes, first.booked_gpus, first.waiting_tasks) == (4, 2, 16, 3)
    assert first.gpu_utilisation == 0.5
    assert (second.nodes, second.gpus, second.waiting_tasks) == (6, 40, 6)
    assert not second.HasField("gpu_utilisation")
    only = await ada.usage.ListClusterUsage(pb.ListClusterUsageRequest(group="new", points=500))
    assert [p.nodes for p in only.points] == [2]


async def test_unknown_group_is_not_found(ada: Any, expect_refusal: Any) -> None:
    async with expect_refusal() as why:
        await ada.usage.ListClusterUsage(pb.ListClusterUsageRequest(group="nope"))
    assert why[0].code.name == "NOT_FOUND"


async def test_audited_calls_are_found_by_their_fields(
    platform: Any, ada: Any, make_spec: Any, expect_refusal: Any
) -> None:
    task, eve, olga = (
        await a_task(ada, make_spec),
        await platform.caller("eve"),
        await platform.caller("olga"),
    )
    async with expect_refusal():
        await eve.tasks.StopTask(StopTaskRequest(id=task))
    await ada.tasks.StopTask(StopTaskRequest(id=task))
    rows = (await olga.audit.ListAuditRows(audit.ListAuditRowsRequest(method="StopTask"))).rows
    assert [(r.actor, r.resource, r.code) for r in rows] == [
        ("ada", str(task), "OK"),
        ("eve", str(task), "NOT_FOUND"),
    ]
    failed = await olga.audit.ListAuditRows(audit.ListAuditRowsRequest(failed=True, page_size=1))
    assert [r.actor for r in failed.rows] == ["eve"]
    async with expect_refusal() as why:
        await olga.audit.ListAuditRows(audit.ListAuditRowsRequest(code="not_fond"))
    assert "did you mean NOT_FOUND?" in why[0].violations[0][1]
