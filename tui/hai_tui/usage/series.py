"""Converts answers of the usage service to series, one for each quantity of a rank or of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai.v1.usage_service_pb2 import RankUsage
from hai_tui.formatting.charts import Series, most, spread

if TYPE_CHECKING:
    from hai.v1.usage_service_pb2 import (
        ClusterPoint,
        ListClusterUsageResponse,
        ListTaskUsageResponse,
        UsagePoint,
    )


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured quantity. `unit` is count, bytes or share."""

    key: str
    unit: str
    value: Callable[[UsagePoint], float | None]
    peak: Callable[[UsagePoint], float | None]


@dataclass(frozen=True, slots=True)
class RankSeries:
    """One quantity of a rank in a run; run 0 means all ranks together. `values` are means; a chart ends at `top`."""

    rank: int
    run: int
    key: str
    unit: str
    values: Series
    peaks: Series
    top: float


@dataclass(frozen=True, slots=True)
class ClusterSeries:
    """One quantity of the cluster. `total` is the available amount; None if there is no such number."""

    key: str
    unit: str
    values: Series
    total: Series | None
    top: float


def _has_gpu(point: UsagePoint) -> bool:
    return point.HasField("gpu_utilisation")


QUANTITIES = (
    Quantity("cpus", "count", lambda p: p.cpus, lambda p: p.cpus_max),
    Quantity("memory", "bytes", lambda p: p.memory_bytes, lambda p: p.memory_bytes_max),
    Quantity(
        "gpu",
        "share",
        lambda p: p.gpu_utilisation if _has_gpu(p) else None,
        lambda p: p.gpu_utilisation_max if _has_gpu(p) else None,
    ),
    Quantity(
        "gpu-memory",
        "bytes",
        lambda p: p.gpu_memory_bytes if _has_gpu(p) else None,
        lambda p: p.gpu_memory_bytes_max if _has_gpu(p) else None,
    ),
)


def rank_series(answer: ListTaskUsageResponse) -> list[RankSeries]:
    """Return every measured quantity: for all ranks together, then by rank and run."""
    together = RankUsage(points=answer.sum)
    return [
        series
        for usage in (together, *answer.ranks)
        for quantity in QUANTITIES
        if (series := _make_rank_series(answer, usage.rank, usage.run, usage.points, quantity))
        is not None
    ]


def _make_rank_series(
    answer: ListTaskUsageResponse,
    rank: int,
    run: int,
    points: Sequence[UsagePoint],
    quantity: Quantity,
) -> RankSeries | None:
    def series(value: Callable[[UsagePoint], float | None]) -> Series:
        times = ((p.time.seconds, value(p)) for p in points)
        start, end = answer.start_time.seconds, answer.end_time.seconds
        return spread(times, start, end, answer.step_seconds)

    values, peaks = series(quantity.value), series(quantity.peak)
    highest = most(peaks)
    if highest is None:
        return None
    top = 1.0 if quantity.unit == "share" else highest
    return RankSeries(rank, run, quantity.key, quantity.unit, values, peaks, top)


def cluster_series(answer: ListClusterUsageResponse) -> Iterator[ClusterSeries]:
    """Yield busy nodes, booked GPUs and their utilisation if there are any, and waiting tasks."""

    def series(value: Callable[[ClusterPoint], float | None]) -> Series:
        times = ((p.time.seconds, value(p)) for p in answer.points)
        start, end = answer.start_time.seconds, answer.end_time.seconds
        return spread(times, start, end, answer.step_seconds)

    nodes, gpus = series(lambda p: p.nodes), series(lambda p: p.gpus)
    waiting = series(lambda p: p.waiting_tasks)
    yield ClusterSeries("nodes", "count", series(lambda p: p.busy_nodes), nodes, most(nodes) or 0)
    if most(gpus):
        booked = series(lambda p: p.booked_gpus)
        yield ClusterSeries("gpus", "count", booked, gpus, most(gpus) or 0)
    used = series(lambda p: p.gpu_utilisation if p.HasField("gpu_utilisation") else None)
    if most(used) is not None:
        yield ClusterSeries("gpu", "share", used, None, 1.0)
    yield ClusterSeries("waiting", "count", waiting, None, most(waiting) or 0)
