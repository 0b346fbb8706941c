"""Series of use as rows of numbers: time, CPUs, memory, share of GPUs, memory of GPUs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hai.v1.usage_service_pb2 import RankUsage, UsagePoint

Row = list[float | None]


def numbers(point: UsagePoint) -> Row:
    """One moment of a rank; None where there are no GPUs."""
    gpu = point.HasField("gpu_utilisation")
    return [
        point.time.seconds,
        point.cpus,
        point.memory_bytes,
        point.gpu_utilisation if gpu else None,
        point.gpu_memory_bytes if gpu else None,
    ]


def together(ranks: Iterable[RankUsage]) -> list[Row]:
    """All ranks at each moment: sums, and the mean share of their GPUs. Nothing where there is one rank only."""
    moments: dict[int, dict[int, list[UsagePoint]]] = defaultdict(lambda: defaultdict(list))
    seen = set()
    for one in ranks:
        seen.add(one.rank)
        for point in one.points:
            moments[point.time.seconds][one.rank].append(point)
    if len(seen) < 2:
        return []
    return [_summed(time, [*map(_mean, of.values())]) for time, of in sorted(moments.items())]


def _mean(points: list[UsagePoint]) -> Row:
    """Of one rank at one moment; a rank that was started again in it was measured in both runs."""
    weights = [max(1, point.count) for point in points]
    rows = [numbers(point) for point in points]
    return [_weighted([row[column] for row in rows], weights) for column in range(1, 5)]


def _weighted(values: list[float | None], weights: list[int]) -> float | None:
    known = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if known else None


def _summed(time: int, rows: list[Row]) -> Row:
    cpus, memory, gpus, gpu_memory = (
        [v for v in column if v is not None] for column in zip(*rows, strict=True)
    )
    share = sum(gpus) / len(gpus) if gpus else None
    return [time, sum(cpus), sum(memory), share, sum(gpu_memory) if gpu_memory else None]
