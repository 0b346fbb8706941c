"""Handlers of usage: the series of one task, and the current values of several."""

from __future__ import annotations

from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live.usage_cache import usage_row

_PAGE_RANKS = 8
_POINTS = 200
_MAX_TASKS = 100


class UsageHandler(Handler):
    """The usage of eight ranks and of all ranks together, since the task was started."""

    @answers
    async def get(self, id: str) -> Any:
        """Return the times of the series, the points of ranks from `first` on, and those of all ranks together."""
        first = self.get_query_argument("first", "0")
        if not first.isdecimal():
            raise invalid(("first", "must be the number of a rank"))
        ranks = range(int(first), int(first) + _PAGE_RANKS)
        of_task = self.client.usage.of_task
        answer = await of_task(int(id), ranks=ranks, points=_POINTS)
        total = await of_task(int(id), points=_POINTS, sum=True)
        has_several_ranks = any(point.count > 1 for point in total.sum)
        return {
            "start": answer.start_time.seconds,
            "end": answer.end_time.seconds,
            "step": answer.step_seconds,
            "ranks": [
                {"rank": r.rank, "run": r.run, "points": [*map(usage_row, r.points)]}
                for r in answer.ranks
            ],
            "sum": {
                "step": total.step_seconds,
                "points": [*map(usage_row, total.sum)] if has_several_ranks else [],
            },
        }


class UsesHandler(Handler):
    """The current usage of some tasks."""

    @answers
    async def get(self) -> Any:
        """Return by task: time, CPUs, memory, share of GPUs, memory of GPUs."""
        ids = self.get_query_argument("ids", "").split(",")
        if not all(word.isdecimal() and len(word) < 19 for word in ids):
            raise invalid(("ids", "must be numbers of tasks, with commas between"))
        if len(ids) > _MAX_TASKS:
            raise invalid(("ids", f"are {len(ids)}; {_MAX_TASKS} may be asked for at once"))
        return await self.shared.usage_cache.current(self.client, [*map(int, ids)])
