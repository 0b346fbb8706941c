"""UsageService: the resource usage of ranks, nodes and the cluster over time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hai.v1 import usage_service_pb2 as pb
from hai.v1.usage_service_pb2_grpc import UsageServiceServicer
from hai_backend.api.protocols import Cluster, TaskManager
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import END_OF_TIME, from_timestamp, to_timestamp
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.usage.convert import cluster_points, node_usage, rank_usage, sum_of_ranks
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Task
from hai_backend.domain.usage import (
    LEVELS,
    MINUTE,
    RankUse,
    Window,
    bucket_start,
    merge_rank_buckets,
    plan_window,
)
from hai_backend.store.base import Store

_RECENT_SECONDS = LEVELS[0].keep_seconds or 0
_DEFAULT_POINTS = 100
_MIN_POINTS = 2
_MAX_STEP = 2**31 - 1  # of step_seconds


class UsageService(UsageServiceServicer):
    """See proto/hai/v1/usage_service.proto for what each call means."""

    def __init__(
        self,
        store: Store,
        usage: Usage,
        access: TaskAccess,
        task_manager: TaskManager,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        self._store = store
        self._usage = usage
        self._access = access
        self._task_manager = task_manager
        self._cluster = cluster
        self._clock = clock

    async def ListTaskUsage(
        self, request: pb.ListTaskUsageRequest, context: Context
    ) -> pb.ListTaskUsageResponse:
        task = await self._access.get_visible(current_caller(), request.task_id)
        window, ranks = self._task_window(request, task), frozenset(request.ranks)
        stored = await self._store.task_usage(task.id, ranks, window)
        open_minute = [u for u in self._usage.open(task.id) if _is_within(u, ranks, window)]
        steps = merge_rank_buckets([*stored, *open_minute], window.step)
        if request.sum:
            return pb.ListTaskUsageResponse(sum=sum_of_ranks(steps), **_window_fields(window))
        return pb.ListTaskUsageResponse(ranks=rank_usage(steps), **_window_fields(window))

    async def ListClusterUsage(
        self, request: pb.ListClusterUsageRequest, context: Context
    ) -> pb.ListClusterUsageResponse:
        now = self._clock.now()
        window = _read_window(request, now - _RECENT_SECONDS, now, now, limits.USAGE_POINTS)
        stored = await self._store.group_usage(request.group, window)
        if not stored and request.group and request.group not in self._cluster.groups():
            raise NotFound(f"there is no node group {request.group!r}; `hai groups` lists them")
        return pb.ListClusterUsageResponse(points=cluster_points(stored), **_window_fields(window))

    async def ListNodeUsage(
        self, request: pb.ListNodeUsageRequest, context: Context
    ) -> pb.ListNodeUsageResponse:
        nodes = self._cluster.nodes()

        def is_requested(name: str) -> bool:
            return not request.group or (name in nodes and nodes[name].group == request.group)

        tasks = self._task_manager.unfinished().values()
        return pb.ListNodeUsageResponse(nodes=node_usage(tasks, self._usage.recent, is_requested))

    def _task_window(self, request: pb.ListTaskUsageRequest, task: Task) -> Window:
        violations = FieldViolations()
        for i, rank in enumerate(request.ranks):
            violations.check_range(f"ranks[{i}]", rank, 0, limits.NODES)
        violations.raise_if_any()
        rank_count = len(set(request.ranks)) or task.node_count
        max_points = max(_MIN_POINTS, limits.USAGE_POINTS_IN_ALL // rank_count)
        now = self._clock.now()
        start = task.started_at or task.created_at
        end = task.finished_at or bucket_start(now, MINUTE) + MINUTE  # includes the open minute
        max_points = min(max_points, limits.USAGE_POINTS)
        return _read_window(request, min(start, end), end, now, max_points)


def _read_window(
    request: pb.ListTaskUsageRequest | pb.ListClusterUsageRequest,
    start: float,
    end: float,
    now: float,
    max_points: int,
) -> Window:
    """Return the requested window of time. `start` and `end` are its defaults. Raises Invalid."""
    violations = FieldViolations()
    if request.points:
        violations.check_range("points", request.points, _MIN_POINTS, limits.USAGE_POINTS)
    end = _read_time("end_time", request, violations) if request.HasField("end_time") else end
    if request.HasField("start_time"):
        start = _read_time("start_time", request, violations)
    elif start > end:
        start = end - _RECENT_SECONDS
    if start > end:
        violations.add("start_time", "is after end_time; exchange them")
    violations.raise_if_any()
    result = plan_window(start, end, min(request.points or _DEFAULT_POINTS, max_points), now)
    if result.step > _MAX_STEP:
        violations.add("start_time", "is too long before end_time for so few points")
    violations.raise_if_any()
    return result


def _read_time(
    field: str,
    request: pb.ListTaskUsageRequest | pb.ListClusterUsageRequest,
    violations: FieldViolations,
) -> float:
    time = from_timestamp(getattr(request, field))
    if not 0 <= time <= END_OF_TIME:
        violations.add(field, "must lie in the years 1970 to 9999")
    return time


def _is_within(bucket: RankUse, ranks: Collection[int], window: Window) -> bool:
    return (not ranks or bucket.rank in ranks) and window.start <= bucket.start < window.end


def _window_fields(window: Window) -> dict[str, Any]:
    return {
        "step_seconds": window.step,
        "start_time": to_timestamp(window.start),
        "end_time": to_timestamp(window.end),
    }
