"""The usage and audit services of the fake server, with values that tests have added, by the minute."""

from __future__ import annotations

from itertools import groupby

from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.errors import Invalid, Violation
from hai.client.fake.world import FakeService, copy
from hai.v1 import audit_service_pb2 as audit
from hai.v1 import usage_service_pb2 as usage
from hai.v1.task_pb2 import TASK_STATE_RUNNING

_STEP_SECONDS = 60
_MAX_POINTS = 500
_PAGE_SIZE = 50


class FakeUsageService(FakeService):
    """Every point of a series is one minute."""

    async def ListTaskUsage(
        self, request: usage.ListTaskUsageRequest
    ) -> usage.ListTaskUsageResponse:
        self._world.task(request.task_id)
        _check(request)
        found = [
            each
            for each in self._world.usage.get(request.task_id, [])
            if (not request.ranks or each[0] in request.ranks)
            and _is_in_period(each[2].time, request)
        ]
        return usage.ListTaskUsageResponse(
            ranks=[] if request.sum else _by_rank(found),
            sum=_sum_by_minute([point for _, _, point in found]) if request.sum else [],
            step_seconds=_STEP_SECONDS,
            **self._period([point.time.seconds for _, _, point in found]),
        )

    async def ListClusterUsage(
        self, request: usage.ListClusterUsageRequest
    ) -> usage.ListClusterUsageResponse:
        _check(request)
        points = [p for p in self._world.cluster_usage if _is_in_period(p.time, request)]
        return usage.ListClusterUsageResponse(
            points=map(copy, points),
            step_seconds=_STEP_SECONDS,
            **self._period([point.time.seconds for point in points]),
        )

    async def ListNodeUsage(
        self, request: usage.ListNodeUsageRequest
    ) -> usage.ListNodeUsageResponse:
        """Return the last minute of each rank. If ranks share a node, the last rank counts."""
        found: dict[str, usage.NodeUsage] = {}
        for task in self._world.tasks.values():
            last = {rank: point for rank, _, point in self._world.usage.get(task.id, [])}
            for rank in task.run.ranks if task.state == TASK_STATE_RUNNING else ():
                node = self._world.nodes.get(rank.node)
                if node and rank.index in last and request.group in ("", node.group):
                    found[node.name] = _node_usage(node.name, last[rank.index])
        return usage.ListNodeUsageResponse(nodes=[found[name] for name in sorted(found)])

    def _period(self, start_seconds: list[int]) -> dict[str, Timestamp]:
        now = int(self._world.now)
        end = max(start_seconds, default=now) + _STEP_SECONDS
        return {
            "start_time": Timestamp(seconds=min(start_seconds, default=now)),
            "end_time": Timestamp(seconds=end),
        }


class FakeAuditService(FakeService):
    async def ListAuditRows(
        self, request: audit.ListAuditRowsRequest
    ) -> audit.ListAuditRowsResponse:
        end = int(request.page_token or len(self._world.audit))
        numbers = [n for n in range(end - 1, -1, -1) if _matches(self._world.audit[n], request)]
        size = request.page_size or _PAGE_SIZE
        page = numbers[:size]
        return audit.ListAuditRowsResponse(
            rows=[copy(self._world.audit[n]) for n in page],
            next_page_token=str(page[-1]) if len(numbers) > size else "",
        )


def _by_rank(found: list[tuple[int, int, usage.UsagePoint]]) -> list[usage.RankUsage]:
    found.sort(key=lambda each: (*each[:2], each[2].time.seconds))
    return [
        usage.RankUsage(rank=rank, run=run, points=[copy(p) for _, _, p in points])
        for (rank, run), points in groupby(found, key=lambda each: each[:2])
    ]


def _sum_by_minute(points: list[usage.UsagePoint]) -> list[usage.UsagePoint]:
    points.sort(key=lambda point: point.time.seconds)
    steps = groupby(points, key=lambda point: point.time.seconds)
    return [_sum_points(list(simultaneous)) for _, simultaneous in steps]


def _sum_points(points: list[usage.UsagePoint]) -> usage.UsagePoint:
    """Return the sum of points as the server does; see ListTaskUsageResponse.sum."""
    cpus, memory = sum(p.cpus for p in points), sum(p.memory_bytes for p in points)
    total = usage.UsagePoint(
        time=points[0].time,
        count=len(points),
        cpus=cpus,
        cpus_max=cpus,
        memory_bytes=memory,
        memory_bytes_max=memory,
    )
    if with_gpu := [p for p in points if p.HasField("gpu_utilisation")]:
        share = sum(p.gpu_utilisation for p in with_gpu) / len(with_gpu)
        gpu_memory = sum(p.gpu_memory_bytes for p in with_gpu)
        total.gpu_utilisation = total.gpu_utilisation_max = share
        total.gpu_memory_bytes = total.gpu_memory_bytes_max = gpu_memory
    return total


def _node_usage(name: str, point: usage.UsagePoint) -> usage.NodeUsage:
    found = usage.NodeUsage(node=name, cpus=point.cpus, memory_bytes=point.memory_bytes)
    if point.HasField("gpu_utilisation"):
        found.gpu_utilisation = point.gpu_utilisation
        found.gpu_memory_bytes = point.gpu_memory_bytes
    return found


def _check(request: usage.ListTaskUsageRequest | usage.ListClusterUsageRequest) -> None:
    if request.points and not 2 <= request.points <= _MAX_POINTS:
        message = f"must be from 2 to {_MAX_POINTS}, not {request.points}"
        raise Invalid(f"points: {message}", (Violation("points", message),))


def _is_in_period(
    time: Timestamp,
    request: usage.ListTaskUsageRequest
    | usage.ListClusterUsageRequest
    | audit.ListAuditRowsRequest,
) -> bool:
    after = request.start_time.seconds if request.HasField("start_time") else 0
    before = request.end_time.seconds if request.HasField("end_time") else time.seconds + 1
    return after - after % _STEP_SECONDS <= time.seconds < before


def _matches(row: audit.AuditRow, request: audit.ListAuditRowsRequest) -> bool:
    filters = ("actor", "method", "resource", "code")
    return (
        all(getattr(request, name) in ("", getattr(row, name)) for name in filters)
        and not (request.failed and row.code == "OK")
        and _is_in_period(row.time, request)
    )
