"""What the ranks of a task use, as numbers that the page draws."""

from __future__ import annotations

from typing import Any

from hai_jupyter import usage
from hai_jupyter.failures import invalid
from hai_jupyter.handlers.base import Handler, answers

_RANKS = 8
_POINTS = 200


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
        every = await of_task(int(id), points=_POINTS)
        return {
            "start": found.start_time.seconds,
            "end": found.end_time.seconds,
            "step": found.step_seconds,
            "ranks": [
                {"rank": one.rank, "run": one.run, "points": [*map(usage.numbers, one.points)]}
                for one in found.ranks
            ],
            "sum": {"step": every.step_seconds, "points": usage.together(every.ranks)},
        }
