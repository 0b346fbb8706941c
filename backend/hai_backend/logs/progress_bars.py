"""Progress bars as they are now, one per rank: for who watches. The log holds them only as they are in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hai_backend.logs.lines import LogLine

_REMEMBERED = 4096  # ranks


@dataclass(slots=True)
class Bars:
    """Bounded: of too many ranks, the bar that was drawn longest ago is forgotten."""

    _drawn: dict[tuple[int, int, int], tuple[int, LogLine]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def draw(self, task_id: int, line: LogLine) -> None:
        """The bar of a rank looks so now."""
        self.forget(task_id, line.run, line.rank)
        self._drawn[task_id, line.run, line.rank] = next(self._numbers), line
        if len(self._drawn) > _REMEMBERED:
            self._drawn.pop(next(iter(self._drawn)))

    def forget(self, task_id: int, run: int, rank: int) -> None:
        """A line of the log has replaced it."""
        self._drawn.pop((task_id, run, rank), None)

    def since(
        self, task_id: int, ranks: tuple[int, ...], run: int, after: int
    ) -> tuple[list[LogLine], int]:
        """Those of a task (no ranks, run 0: all) that were drawn after a number, and the number to go on from."""
        found = [
            (number, line)
            for (task, *_), (number, line) in self._drawn.items()
            if task == task_id
            and number > after
            and (not ranks or line.rank in ranks)
            and run in (0, line.run)
        ]
        return [line for _, line in found], max((number for number, _ in found), default=after)
