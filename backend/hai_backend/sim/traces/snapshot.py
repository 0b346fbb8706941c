"""Reads a snapshot of a live scheduler as a trace: all its queued and running tasks are submitted at the start.

Remaining run times are drawn from the history of the kind of each task, given how long it has run. The seed determines
the draws. Running tasks are submitted first, then the others in order of submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from random import Random

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState, Snapshot
from hai_backend.domain.scheduling.snapshot_json import BEGIN, parse
from hai_backend.scheduler.admission import find_fault
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.sim.traces.rows import UNKNOWN_USER, ReadLog, Row, bad_trace

_LONGEST = 30 * 86_400.0  # seconds; the history has no upper limit


def recognises(first_line: str) -> bool:
    """Return whether a file with this first line is a snapshot."""
    return first_line.startswith(BEGIN)


def read_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in a file. Raises Invalid, OSError."""
    found = parse(path.read_text("ascii", "replace"), str(path))
    if not found.tasks:
        raise bad_trace(str(path), "no task in it")
    return found


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """Return one row per task that may run."""
    snapshot = parse("\n".join(lines), log.source)
    histories, draw = _histories(snapshot), Random(log.seed)
    found = []
    for number, task in enumerate(sorted(snapshot.tasks, key=_order), 1):
        if why := _left_out(task, snapshot):
            log.skipped[why] += 1
        else:
            found.append(row(number, task, _remaining(task, snapshot.now, histories, draw)))
    return found


def row(line: int, task: SchedTask, seconds: float, submit: float = 0.0) -> Row:
    """Return a task of the platform as a job with this run time."""
    return Row(
        line=line,
        name=task.name,
        user=task.user or UNKNOWN_USER,
        submit=submit,
        duration=seconds,
        gpus=task.gpu * task.node_count,
        nodes=task.node_count,
        priority=Priority.NORMAL if task.priority is Priority.AUTO else task.priority,
    )


def _order(task: SchedTask) -> tuple[bool, float, int]:
    return task.standing is SchedulingState.QUEUED, task.created_at, task.id


def _left_out(task: SchedTask, snapshot: Snapshot) -> str:
    if find_fault(task):
        return "tasks that nobody could start"
    if task.held:
        return "tasks that their users hold"
    if task.awaited:
        return "tasks that wait for the end of others"
    return "tasks of inactive users" if task.user in snapshot.inactive_users else ""


def _histories(snapshot: Snapshot) -> Mapping[str, History]:
    found: dict[str, History] = {task.group: History() for task in snapshot.tasks}
    for ending in snapshot.endings:
        if ending.task.group in found and ending.seconds >= 0:
            found[ending.task.group].learn(task_kind(ending.task), ending.seconds)
    return found


def _remaining(
    task: SchedTask, now: float, histories: Mapping[str, History], draw: Random
) -> float:
    """Draw the seconds until the task would end by itself."""
    since = task.run_started_at
    age = max(0.0, task.run_seconds + (now - since if since is not None and now > since else 0.0))
    curve = histories[task.group].curve(task_kind(task))
    seconds = curve.remaining(min(age, _LONGEST), draw.random())
    return _LONGEST if seconds == inf else min(seconds, _LONGEST)
