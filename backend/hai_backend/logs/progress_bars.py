"""The current progress bar of each rank, for clients that follow a log. The log contains only their final states."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hai_backend.logs.lines import LogLine

_MAX_BARS = 4096  # of all ranks

_Name = tuple[int, int, int]  # task, run, rank


@dataclass(slots=True)
class ProgressBars:
    """The bars of all ranks. If there are too many, the bar that was drawn longest ago is removed."""

    _bars: dict[_Name, tuple[int, LogLine]] = field(default_factory=dict)
    # Keys of `_bars` by task, in the same order, because each append to a log looks up the bars of one task.
    _of_task: dict[int, dict[_Name, None]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def draw(self, task_id: int, line: LogLine) -> None:
        """Set the bar of a rank."""
        name = (task_id, line.run, line.rank)
        self.remove(*name)
        self._bars[name] = next(self._numbers), line
        self._of_task.setdefault(task_id, {})[name] = None
        if len(self._bars) > _MAX_BARS:
            self.remove(*next(iter(self._bars)))

    def remove(self, task_id: int, run: int, rank: int) -> None:
        """Remove the bar of a rank, because a line of the log has replaced it."""
        name = (task_id, run, rank)
        if self._bars.pop(name, None) is not None:
            del self._of_task[task_id][name]
            if not self._of_task[task_id]:
                del self._of_task[task_id]

    def since(
        self, task_id: int, ranks: tuple[int, ...], run: int, after: int
    ) -> tuple[list[LogLine], int]:
        """Return the bars that were drawn after the number `after`, and the number for the next call.

        No `ranks` means all ranks, and run 0 means all runs of the task.
        """
        of_task = (self._bars[name] for name in self._of_task.get(task_id, ()))
        found = [
            (number, line)
            for number, line in of_task
            if number > after and (not ranks or line.rank in ranks) and run in (0, line.run)
        ]
        return [line for _, line in found], max((number for number, _ in found), default=after)
