"""Converts usage to messages. The store keeps sums over beats or minutes; messages hold means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from hai.v1 import usage_service_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.task import Task, holders
from hai_backend.domain.usage import GroupLoad, Load, RankUse, Use, merge_uses
from hai_backend.launch.base import RankKey


def rank_usage(buckets: Iterable[RankUse]) -> list[pb.RankUsage]:
    """Return one series for each run of each rank. The buckets must be sorted by rank, run and time."""
    return [
        pb.RankUsage(rank=rank, run=run, points=map(_point, series))
        for (rank, run), series in groupby(buckets, key=lambda bucket: (bucket.rank, bucket.run))
    ]


def sum_of_ranks(buckets: Iterable[RankUse]) -> list[pb.UsagePoint]:
    """Return one series for all ranks. A rank counts once in each step, even if two of its runs lie in the step."""
    uses_by_step: dict[int, dict[int, Use]] = {}
    for bucket in buckets:
        by_rank = uses_by_step.setdefault(bucket.start, {})
        other = by_rank.get(bucket.rank)
        by_rank[bucket.rank] = bucket.use if other is None else merge_uses(other, bucket.use)
    return [_sum_point(start, [*uses_by_step[start].values()]) for start in sorted(uses_by_step)]


def cluster_points(buckets: Iterable[GroupLoad]) -> list[pb.ClusterPoint]:
    """Return one series for all groups."""
    by_time = sorted(buckets, key=lambda bucket: bucket.start)
    return [
        _cluster_point(start, [bucket.load for bucket in step])
        for start, step in groupby(by_time, key=lambda bucket: bucket.start)
    ]


def node_usage(
    tasks: Iterable[Task],
    recent_use: Callable[[RankKey], Use | None],
    is_requested: Callable[[str], bool],
) -> list[pb.NodeUsage]:
    """Return the usage of the last minute by node name. Nodes without a measurement are left out."""
    uses: dict[str, list[Use]] = {}
    for task, run, rank in holders(tasks):
        if is_requested(rank.node):
            use = recent_use(RankKey(task.id, run.number, rank.index))
            if use is not None:
                uses.setdefault(rank.node, []).append(use)
    return [_node_usage(node, uses[node]) for node in sorted(uses)]


def _point(bucket: RankUse) -> pb.UsagePoint:
    use = bucket.use
    point = pb.UsagePoint(
        time=to_timestamp(bucket.start),
        count=use.beats,
        cpus=use.cpus / use.beats,
        cpus_max=use.cpus_max,
        memory_bytes=round(use.memory_bytes / use.beats),
        memory_bytes_max=round(use.memory_bytes_max),
    )
    if use.gpu_beats:
        point.gpu_utilisation = use.gpu_utilisation / use.gpu_beats
        point.gpu_utilisation_max = use.gpu_utilisation_max
        point.gpu_memory_bytes = round(use.gpu_memory_bytes / use.gpu_beats)
        point.gpu_memory_bytes_max = round(use.gpu_memory_bytes_max)
    return point


def _node_usage(node: str, uses: Sequence[Use]) -> pb.NodeUsage:
    """Return the sum over all ranks on a node, and the mean of their GPU utilisation."""
    usage = pb.NodeUsage(
        node=node,
        cpus=sum(use.cpus / use.beats for use in uses),
        memory_bytes=round(sum(use.memory_bytes / use.beats for use in uses)),
    )
    if gpu_uses := [use for use in uses if use.gpu_beats]:
        utilisation = sum(use.gpu_utilisation / use.gpu_beats for use in gpu_uses)
        usage.gpu_utilisation = utilisation / len(gpu_uses)
        usage.gpu_memory_bytes = round(
            sum(use.gpu_memory_bytes / use.gpu_beats for use in gpu_uses)
        )
    return usage


def _sum_point(start: int, uses: Sequence[Use]) -> pb.UsagePoint:
    total = _node_usage("", uses)
    point = pb.UsagePoint(
        time=to_timestamp(start),
        count=len(uses),
        cpus=total.cpus,
        cpus_max=total.cpus,
        memory_bytes=total.memory_bytes,
        memory_bytes_max=total.memory_bytes,
    )
    if total.HasField("gpu_utilisation"):
        point.gpu_utilisation = point.gpu_utilisation_max = total.gpu_utilisation
        point.gpu_memory_bytes = point.gpu_memory_bytes_max = total.gpu_memory_bytes
    return point


def _cluster_point(start: int, loads: Sequence[Load]) -> pb.ClusterPoint:
    """Return the sum over all groups. A new group has fewer minutes, so each group is averaged over its own minutes."""
    point = pb.ClusterPoint(
        time=to_timestamp(start),
        nodes=sum(load.nodes / load.minutes for load in loads),
        busy_nodes=sum(load.busy_nodes / load.minutes for load in loads),
        gpus=sum(load.gpus / load.minutes for load in loads),
        booked_gpus=sum(load.booked_gpus / load.minutes for load in loads),
        waiting_tasks=sum(load.waiting_tasks / load.minutes for load in loads),
    )
    if gpus_measured := sum(load.gpus_measured for load in loads):
        point.gpu_utilisation = sum(load.gpu_utilisation for load in loads) / gpus_measured
    return point
