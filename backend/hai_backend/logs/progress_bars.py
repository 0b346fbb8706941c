"""Progress bars as they are now, one per rank: for who watches. The log holds them only as they are in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hai_backend.logs.lines import LogLine

_REMEMBERED = 4096  # ranks

_Name = tuple[int, int, int]  # task, run, rank


@dataclass(slots=True)
class Bars:
    """Bounded: of too many ranks, the bar that was drawn longest ago is forgotten."""

    _drawn: dict[_Name, tuple[int, LogLine]] = field(default_factory=dict)
    # Keys of _drawn, in its order: each append to a log asks for the bars of one task
    _of_task: dict[int, dict[_Name, None]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def draw(self, task_id: int, line: LogLine) -> None:
        """The bar of a rank looks so now."""
        name = (task_id, line.run, line.rank)
        self.forget(*name)
        self._drawn[name] = next(self._numbers), line
        self._of_task.setdefault(task_id, {})[name] = None
        if len(self._drawn) > _REMEMBERED:
            self.forget(*next(iter(self._drawn)))

    def forget(self, task_id: int, run: int, rank: int) -> None:
        """A line of the log has replaced it."""
        name = (task_id, run, rank)
        if self._drawn.pop(name, None) is not None:
            del self._of_task[task_id][name]
            if not self._of_task[task_id]:
                del self._of_task[task_id]

    def since(
        self, task_id: int, ranks: tuple[int, ...], run: int, after: int
    ) -> tuple[list[LogLine], int]:
        """Those of a task (no ranks, run 0: all) that were drawn after a number, and the number to go on from."""
        of_task = (self._drawn[name] for name in self._of_task.get(task_id, ()))
        found = [
            (number, line)
            for number, line in of_task
            if number > after and (not ranks or line.rank in ranks) and run in (0, line.run)
        ]
        return [line for _, line in found], max((number for number, _ in found), default=after)
