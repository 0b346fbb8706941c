"""What the ranks of a task use, as numbers that the page draws."""

from __future__ import annotations

from typing import Any

from hai.v1.usage_service_pb2 import UsagePoint
from hai_jupyter.handlers.base import Handler, answers

_RANKS = 8
_POINTS = 200


class UsageHandler(Handler):
    """The first ranks, since the task was started."""

    @answers
    async def get(self, id: str) -> Any:
        """Where the series begin and end, and for each rank its points: time, CPUs, memory, GPUs, GPU memory."""
        found = await self.client.usage.of_task(int(id), ranks=range(_RANKS), points=_POINTS)
        return {
            "start": found.start_time.seconds,
            "end": found.end_time.seconds,
            "step": found.step_seconds,
            "ranks": [
                {"rank": one.rank, "run": one.run, "points": [_numbers(p) for p in one.points]}
                for one in found.ranks
            ],
        }


def _numbers(point: UsagePoint) -> list[float | None]:
    gpu = point.HasField("gpu_utilisation")
    return [
        point.time.seconds,
        point.cpus,
        point.memory_bytes,
        point.gpu_utilisation if gpu else None,
        point.gpu_memory_bytes if gpu else None,
    ]
