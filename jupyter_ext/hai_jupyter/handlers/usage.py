"""What the ranks of a task use, as numbers that the page draws."""

from __future__ import annotations

from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live import usage

_RANKS = 8
_POINTS = 200
_MOST_TASKS = 100


class UsageHandler(Handler):
    """Eight ranks, and all of them together, since the task was started."""

    @answers
    async def get(self, id: str) -> Any:
        """Where the series begin and end, points of ranks from `first` on, and of all together."""
        first = self.get_query_argument("first", "0")
        if not first.isdecimal():
            raise invalid(("first", "must be the number of a rank"))
        ranks = range(int(first), int(first) + _RANKS)
        of_task = self.client.usage.of_task
        found = await of_task(int(id), ranks=ranks, points=_POINTS)
        every = await of_task(int(id), points=_POINTS, sum=True)
        several = any(point.count > 1 for point in every.sum)
        return {
            "start": found.start_time.seconds,
            "end": found.end_time.seconds,
            "step": found.step_seconds,
            "ranks": [
                {"rank": one.rank, "run": one.run, "points": [*map(usage.numbers, one.points)]}
                for one in found.ranks
            ],
            "sum": {
                "step": every.step_seconds,
                "points": [*map(usage.numbers, every.sum)] if several else [],
            },
        }


class UsesHandler(Handler):
    """What some tasks use just now."""

    @answers
    async def get(self) -> Any:
        """By task: time, CPUs, memory, share of GPUs, memory of GPUs."""
        ids = self.get_query_argument("ids", "").split(",")
        if not all(word.isdecimal() and len(word) < 19 for word in ids):
            raise invalid(("ids", "must be numbers of tasks, with commas between"))
        if len(ids) > _MOST_TASKS:
            raise invalid(("ids", f"are {len(ids)}; {_MOST_TASKS} may be asked for at once"))
        return await self.backend.usage_cache.now(self.client, [*map(int, ids)])
