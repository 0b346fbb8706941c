"""Series of use as rows of numbers: time, CPUs, memory, share of GPUs, memory of GPUs. Pure."""

from __future__ import annotations

from hai.v1.usage_service_pb2 import UsagePoint

Row = list[float | None]


def numbers(point: UsagePoint) -> Row:
    """One moment of a rank, or of several; None where there are no GPUs."""
    gpu = point.HasField("gpu_utilisation")
    return [
        point.time.seconds,
        point.cpus,
        point.memory_bytes,
        point.gpu_utilisation if gpu else None,
        point.gpu_memory_bytes if gpu else None,
    ]
