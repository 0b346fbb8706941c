"""The log of scheduling passes of a server as a trace: its tasks came when they did, and ran for as long.

One that waited for others to end comes when they have: before that it waits for no nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hai_backend.domain.scheduling.snapshot import Ending, SchedTask
from hai_backend.scheduler.admission import fault
from hai_backend.scheduler.queue.rating import since
from hai_backend.scheduler.recorded_input import BEGIN, Begin, parse_line
from hai_backend.sim.traces.rows import Reading, Row
from hai_backend.sim.traces.snapshot import row

_Facts = tuple[Iterable[SchedTask], Iterable[Ending]]


def recognises(first_line: str) -> bool:
    """True when a file that begins so is such a log."""
    return first_line.startswith(BEGIN)


def rows(lines: Sequence[str], reading: Reading) -> list[Row]:
    """One row per task that was seen before it ended."""
    seen: dict[int, tuple[int, SchedTask]] = {}
    ended: dict[int, float] = {}
    for number, (tasks, endings) in enumerate(_facts(lines, reading.source), 1):
        for task in tasks:
            if task.id not in seen or seen[task.id][1].awaited:
                seen[task.id] = number, task
        ended.update((e.task.id, e.seconds) for e in endings if e.task.id in seen)
    found = []
    for number, task in seen.values():
        if fault(task):
            reading.skipped["tasks that nobody could start"] += 1
        elif task.id not in ended:
            reading.skipped["tasks that have not ended, or never ran"] += 1
        else:
            found.append(row(number, task, ended[task.id], _came(task)))
    return found


def _came(task: SchedTask) -> float:
    """Of one that has run before, its waiting began anew."""
    return task.created_at if task.run_seconds > 0.0 else since(task)


def _facts(lines: Sequence[str], source: str) -> Iterator[_Facts]:
    """Of each line but the last one: what follows the last newline is nothing, or half a line."""
    for number, line in enumerate(lines[:-1], 1):
        told = parse_line(line, f"{source}:{number}")
        known = told.snapshot if isinstance(told, Begin) else told.shown
        yield known.tasks, known.endings
