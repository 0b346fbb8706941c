"""Series of use on the wire: means out of sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from hai.v1 import usage_service_pb2 as pb
from hai_backend.api.request.convert_time import timestamp
from hai_backend.domain.usage import GroupLoad, Load, RankUse, Use, merge_uses


def rank_usage(buckets: Iterable[RankUse]) -> list[pb.RankUsage]:
    """Series of buckets that come by rank, run and time."""
    return [
        pb.RankUsage(rank=rank, run=run, points=map(_point, series))
        for (rank, run), series in groupby(buckets, key=lambda one: (one.rank, one.run))
    ]


def summed(buckets: Iterable[RankUse]) -> list[pb.UsagePoint]:
    """One series of all ranks together. A rank counts once in a step, also where two of its runs lie in it."""
    ranks: dict[int, dict[int, Use]] = {}
    for one in buckets:
        at_once = ranks.setdefault(one.start, {})
        known = at_once.get(one.rank)
        at_once[one.rank] = one.use if known is None else merge_uses(known, one.use)
    return [_sum(start, list(ranks[start].values())) for start in sorted(ranks)]


def cluster_points(buckets: Iterable[GroupLoad]) -> list[pb.ClusterPoint]:
    """One series of all groups together."""
    by_time = sorted(buckets, key=lambda one: one.start)
    return [
        _cluster_point(start, [one.load for one in at_once])
        for start, at_once in groupby(by_time, key=lambda one: one.start)
    ]


def _point(bucket: RankUse) -> pb.UsagePoint:
    use = bucket.use
    point = pb.UsagePoint(
        time=timestamp(bucket.start),
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


def _sum(start: int, uses: Sequence[Use]) -> pb.UsagePoint:
    cpus = sum(use.cpus / use.beats for use in uses)
    memory = round(sum(use.memory_bytes / use.beats for use in uses))
    point = pb.UsagePoint(
        time=timestamp(start),
        count=len(uses),
        cpus=cpus,
        cpus_max=cpus,
        memory_bytes=memory,
        memory_bytes_max=memory,
    )
    if seen := [use for use in uses if use.gpu_beats]:
        share = sum(use.gpu_utilisation / use.gpu_beats for use in seen) / len(seen)
        gpu_memory = round(sum(use.gpu_memory_bytes / use.gpu_beats for use in seen))
        point.gpu_utilisation = point.gpu_utilisation_max = share
        point.gpu_memory_bytes = point.gpu_memory_bytes_max = gpu_memory
    return point


def _cluster_point(start: int, loads: Sequence[Load]) -> pb.ClusterPoint:
    """A group counts with its own minutes: one that came later is not thinned by the others'."""
    point = pb.ClusterPoint(
        time=timestamp(start),
        nodes=sum(one.nodes / one.minutes for one in loads),
        busy_nodes=sum(one.busy_nodes / one.minutes for one in loads),
        gpus=sum(one.gpus / one.minutes for one in loads),
        booked_gpus=sum(one.booked_gpus / one.minutes for one in loads),
        waiting_tasks=sum(one.waiting_tasks / one.minutes for one in loads),
    )
    measured = sum(one.gpus_measured for one in loads)
    if measured:
        point.gpu_utilisation = sum(one.gpu_utilisation for one in loads) / measured
    return point
