"""Reads the log of scheduling passes of a server as a trace, with the recorded submission and run times.

A task with dependencies counts as submitted when these have ended, because it does not wait for nodes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hai_backend.domain.scheduling.snapshot import Ending, SchedTask
from hai_backend.scheduler.admission import find_fault
from hai_backend.scheduler.queue.precedence import wait_began_at
from hai_backend.scheduler.recorded_input import BEGIN, Begin, parse_line
from hai_backend.sim.traces.rows import ReadLog, Row
from hai_backend.sim.traces.snapshot import row

_Facts = tuple[Iterable[SchedTask], Iterable[Ending]]


def recognises(first_line: str) -> bool:
    """Return whether a file with this first line is a log of passes."""
    return first_line.startswith(BEGIN)


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """Return one row per task that has ended in the log."""
    observed: dict[int, tuple[int, SchedTask]] = {}
    ended: dict[int, float] = {}
    for number, (tasks, endings) in enumerate(_facts(lines, log.source), 1):
        for task in tasks:
            if task.id not in observed or observed[task.id][1].awaited:
                observed[task.id] = number, task
        ended.update((e.task.id, e.seconds) for e in endings if e.task.id in observed)
    found = []
    for number, task in observed.values():
        if find_fault(task):
            log.skipped["tasks that nobody could start"] += 1
        elif task.id not in ended:
            log.skipped["tasks that have not ended, or never ran"] += 1
        else:
            found.append(row(number, task, ended[task.id], _submitted_at(task)))
    return found


def _submitted_at(task: SchedTask) -> float:
    """Return when the task was submitted. The start of its wait changes when the task is requeued."""
    return task.created_at if task.run_seconds > 0.0 else wait_began_at(task)


def _facts(lines: Sequence[str], source: str) -> Iterator[_Facts]:
    """Yield the tasks and endings of each line except the last, which may be incomplete."""
    for number, line in enumerate(lines[:-1], 1):
        parsed = parse_line(line, f"{source}:{number}")
        state = parsed.snapshot if isinstance(parsed, Begin) else parsed.shown
        yield state.tasks, state.endings
