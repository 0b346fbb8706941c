"""The usage and audit services of the fake server: what tests measured and did, by the minute."""

from __future__ import annotations

from itertools import groupby

from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.errors import Invalid, Violation
from hai.client.fake_world import World, copy
from hai.v1 import audit_service_pb2 as audit
from hai.v1 import usage_service_pb2 as usage

_STEP_SECONDS = 60
_MOST_POINTS = 500
_PAGE_SIZE = 50


class FakeUsageService:
    """UsageService over a World; methods are named as in the contract. Every point is a minute."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListTaskUsage(
        self, request: usage.ListTaskUsageRequest
    ) -> usage.ListTaskUsageResponse:
        self._world.task(request.task_id)
        _check(request)
        found = [
            each
            for each in self._world.usage.get(request.task_id, [])
            if (not request.ranks or each[0] in request.ranks) and _within(each[2].time, request)
        ]
        found.sort(key=lambda each: (*each[:2], each[2].time.seconds))
        series = groupby(found, key=lambda each: each[:2])
        return usage.ListTaskUsageResponse(
            ranks=[
                usage.RankUsage(rank=rank, run=run, points=[copy(p) for _, _, p in points])
                for (rank, run), points in series
            ],
            step_seconds=_STEP_SECONDS,
            **self._between([point.time.seconds for _, _, point in found]),
        )

    async def ListClusterUsage(
        self, request: usage.ListClusterUsageRequest
    ) -> usage.ListClusterUsageResponse:
        _check(request)
        points = [p for p in self._world.cluster_usage if _within(p.time, request)]
        return usage.ListClusterUsageResponse(
            points=map(copy, points),
            step_seconds=_STEP_SECONDS,
            **self._between([point.time.seconds for point in points]),
        )

    def _between(self, begins: list[int]) -> dict[str, Timestamp]:
        now = int(self._world.now)
        end = max(begins, default=now) + _STEP_SECONDS
        return {
            "start_time": Timestamp(seconds=min(begins, default=now)),
            "end_time": Timestamp(seconds=end),
        }


class FakeAuditService:
    """AuditService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListAuditRows(
        self, request: audit.ListAuditRowsRequest
    ) -> audit.ListAuditRowsResponse:
        below = int(request.page_token or len(self._world.audit))
        numbers = [n for n in range(below - 1, -1, -1) if _matches(self._world.audit[n], request)]
        size = request.page_size or _PAGE_SIZE
        shown = numbers[:size]
        return audit.ListAuditRowsResponse(
            rows=[copy(self._world.audit[n]) for n in shown],
            next_page_token=str(shown[-1]) if len(numbers) > size else "",
        )


def _check(request: usage.ListTaskUsageRequest | usage.ListClusterUsageRequest) -> None:
    if request.points and not 2 <= request.points <= _MOST_POINTS:
        message = f"must be from 2 to {_MOST_POINTS}, not {request.points}"
        raise Invalid(f"points: {message}", (Violation("points", message),))


def _within(
    time: Timestamp,
    request: usage.ListTaskUsageRequest
    | usage.ListClusterUsageRequest
    | audit.ListAuditRowsRequest,
) -> bool:
    after = request.start_time.seconds if request.HasField("start_time") else 0
    before = request.end_time.seconds if request.HasField("end_time") else time.seconds + 1
    return after - after % _STEP_SECONDS <= time.seconds < before


def _matches(row: audit.AuditRow, request: audit.ListAuditRowsRequest) -> bool:
    named = ("actor", "method", "resource", "code")
    return (
        all(getattr(request, name) in ("", getattr(row, name)) for name in named)
        and not (request.failed and row.code == "OK")
        and _within(row.time, request)
    )
