"""UsageService: what ranks used and how busy the cluster was, over time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hai.v1 import usage_service_pb2 as pb
from hai.v1.usage_service_pb2_grpc import UsageServiceServicer
from hai_backend.api.nodes.usage import node_usage
from hai_backend.api.protocols import Cluster, TaskManager
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import END_OF_TIME, moment, timestamp
from hai_backend.api.request.field_checks import Rules
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.usage.convert import cluster_points, rank_usage, summed
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
_USUAL_POINTS = 100
_FEWEST_POINTS = 2
_LONGEST_STEP = 2**31 - 1  # of step_seconds


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
        task = await self._access.visible(current_caller(), request.task_id)
        asked, ranks = self._of_task(request, task), frozenset(request.ranks)
        kept = await self._store.task_usage(task.id, ranks, asked)
        begun = [one for one in self._usage.open(task.id) if _within(one, ranks, asked)]
        steps = merge_rank_buckets([*kept, *begun], asked.step)
        if request.sum:
            return pb.ListTaskUsageResponse(sum=summed(steps), **_told(asked))
        return pb.ListTaskUsageResponse(ranks=rank_usage(steps), **_told(asked))

    async def ListClusterUsage(
        self, request: pb.ListClusterUsageRequest, context: Context
    ) -> pb.ListClusterUsageResponse:
        now = self._clock.now()
        asked = _window(request, now - _RECENT_SECONDS, now, now, limits.USAGE_POINTS)
        kept = await self._store.group_usage(request.group, asked)
        if not kept and request.group and request.group not in self._cluster.groups():
            raise NotFound(f"there is no node group {request.group!r}; `hai groups` lists them")
        return pb.ListClusterUsageResponse(points=cluster_points(kept), **_told(asked))

    async def ListNodeUsage(
        self, request: pb.ListNodeUsageRequest, context: Context
    ) -> pb.ListNodeUsageResponse:
        nodes = self._cluster.nodes()

        def wanted(name: str) -> bool:
            return not request.group or (name in nodes and nodes[name].group == request.group)

        tasks = self._task_manager.unfinished().values()
        return pb.ListNodeUsageResponse(nodes=node_usage(tasks, self._usage.recent, wanted))

    def _of_task(self, request: pb.ListTaskUsageRequest, task: Task) -> Window:
        rules = Rules()
        for i, rank in enumerate(request.ranks):
            rules.number(f"ranks[{i}]", rank, 0, limits.NODES)
        rules.check()
        count = len(set(request.ranks)) or task.node_count
        most = max(_FEWEST_POINTS, limits.USAGE_POINTS_IN_ALL // count)
        now = self._clock.now()
        start = task.started_at or task.created_at
        end = task.finished_at or bucket_start(now, MINUTE) + MINUTE  # with the open minute
        return _window(request, min(start, end), end, now, min(most, limits.USAGE_POINTS))


def _window(
    request: pb.ListTaskUsageRequest | pb.ListClusterUsageRequest,
    start: float,
    end: float,
    now: float,
    most: int,
) -> Window:
    """What is asked for, else these moments. Raises Invalid."""
    rules = Rules()
    if request.points:
        rules.number("points", request.points, _FEWEST_POINTS, limits.USAGE_POINTS)
    end = _moment("end_time", request, rules) if request.HasField("end_time") else end
    if request.HasField("start_time"):
        start = _moment("start_time", request, rules)
    elif start > end:
        start = end - _RECENT_SECONDS
    if start > end:
        rules.add("start_time", "is after end_time; the other way round?")
    rules.check()
    found = plan_window(start, end, min(request.points or _USUAL_POINTS, most), now)
    if found.step > _LONGEST_STEP:
        rules.add("start_time", "is too long before end_time for so few points")
    rules.check()
    return found


def _moment(
    field: str, request: pb.ListTaskUsageRequest | pb.ListClusterUsageRequest, rules: Rules
) -> float:
    at = moment(getattr(request, field))
    if not 0 <= at <= END_OF_TIME:
        rules.add(field, "must lie in the years 1970 to 9999")
    return at


def _within(one: RankUse, ranks: Collection[int], asked: Window) -> bool:
    return (not ranks or one.rank in ranks) and asked.start <= one.start < asked.end


def _told(asked: Window) -> dict[str, Any]:
    return {
        "step_seconds": asked.step,
        "start_time": timestamp(asked.start),
        "end_time": timestamp(asked.end),
    }
