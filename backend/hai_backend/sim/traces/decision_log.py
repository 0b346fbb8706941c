"""Reads the log of scheduling passes of a server as a trace, with the recorded submission and run times.

A task with dependencies is submitted when they have ended: before that it does not wait for nodes.
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
    """True when a file that begins so is such a log."""
    return first_line.startswith(BEGIN)


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """One row per task that the log contains before its end."""
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
    """When the task was submitted; `since` is reset when a task is requeued."""
    return task.created_at if task.run_seconds > 0.0 else wait_began_at(task)


def _facts(lines: Sequence[str], source: str) -> Iterator[_Facts]:
    """Tasks and endings of each line but the last, which is empty or incomplete."""
    for number, line in enumerate(lines[:-1], 1):
        parsed = parse_line(line, f"{source}:{number}")
        state = parsed.snapshot if isinstance(parsed, Begin) else parsed.shown
        yield state.tasks, state.endings
