"""The goodput of a task, and how often the task should save.

For a checkpoint that costs C and a mean time M between interruptions that lose work, the advised interval is
Young's sqrt(2 C M), or Daly's higher-order form if C is not small beside M (Future Generation Computer Systems 22,
2006). M is measured on the task if it has lost work, else on its node group (and divided by the number of nodes),
else it is one day.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from hai_backend.domain.formatting import format_duration
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Run, Task
from hai_backend.lifecycle.accounting import work_seconds

DEFAULT_BETWEEN = 86400.0  # seconds between interruptions if nothing was measured
_SMALL = 0.01  # C / M up to which Young's formula is within 6 % of Daly's
_MIN_LOSSES = 3  # a group with fewer interruptions has no history
_FACTOR = 3.0  # an interval that is so many times too long or too short is reported
_MIN_SAVES = 3  # with fewer checkpoints a task does not save too often
_MIN_WORK = 600.0  # seconds: less work gets no advice

_NONE_YET = (
    "no checkpoint reported yet: save with hai.task.checkpoint,"
    " or call hai.task.checkpoint_saved(seconds=…) after each save"
)
_NO_COST = (
    "what its checkpoints cost is unknown: call hai.task.checkpoint_saved(seconds=…) with the time"
)


@dataclass(frozen=True, slots=True)
class History:
    """The interruptions and the node time of all tasks of a group."""

    losses: int = 0
    node_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """The message of the same name in proto/hai/v1/task.proto explains each field."""

    share: float | None
    held_seconds: float
    overhead_seconds: float
    lost_seconds: float
    interruptions: int
    checkpoints: int
    saved_at: float | None
    checkpoint_seconds: float | None
    interval_seconds: float | None
    advised_seconds: float | None
    between_seconds: float
    basis: str
    yields: bool
    restart_seconds: float | None
    note: str
    saving_seconds: float
    loading_seconds: float


def goodput(task: Task, history: History, now: float) -> Goodput:
    """Return the goodput of the task so far, including its current run."""
    progress = task.progress
    on_nodes, work = _totals(task, now)
    saving = min(progress.saving_seconds, work)
    loading = min(progress.loading_seconds, work - saving)
    useful = work - saving - loading - progress.lost_seconds
    between, basis = _interruption_interval(task, history, work)
    interval = work / progress.saves if progress.saves else None
    cost = progress.save_seconds
    advice = None if cost is None else advised_interval(cost, between)
    return Goodput(
        share=max(0.0, useful) / on_nodes if on_nodes > 0 else None,
        held_seconds=on_nodes,
        overhead_seconds=on_nodes - work + saving + loading,
        lost_seconds=progress.lost_seconds,
        interruptions=progress.losses,
        checkpoints=progress.saves,
        saved_at=progress.saved_at,
        checkpoint_seconds=cost,
        interval_seconds=interval,
        advised_seconds=advice,
        between_seconds=between,
        basis=basis,
        yields=progress.yields,
        restart_seconds=progress.restart_seconds,
        note=_note(task, work, interval, advice),
        saving_seconds=saving,
        loading_seconds=loading,
    )


def advised_interval(cost: float, between: float) -> float:
    """Return the seconds of work between two checkpoints that lose least time.

    A checkpoint takes `cost` seconds, and the mean time between interruptions is `between` seconds.
    """
    young = sqrt(2 * cost * between)
    if cost <= _SMALL * between:
        return young
    if cost >= 2 * between:
        return between
    ratio = cost / (2 * between)
    return young * (1 + sqrt(ratio) / 3 + ratio / 9) - cost


def _totals(task: Task, now: float) -> tuple[float, float]:
    """Return the seconds on nodes and the seconds of work, over all runs."""
    progress, run = task.progress, _current(task)
    on_nodes, work = progress.held_seconds, progress.held_seconds - progress.overhead_seconds
    if run is None:
        return on_nodes, max(0.0, work)
    lasts = max(0.0, now - run.created_at)
    return on_nodes + lasts, max(0.0, work) + min(lasts, work_seconds(run, now))


def _current(task: Task) -> Run | None:
    run = task.run
    return run if run is not None and run.ended_at is None else None


def _interruption_interval(task: Task, history: History, work: float) -> tuple[float, str]:
    losses = task.progress.losses
    if losses and work > 0:
        return work / losses, "task"
    if history.losses >= _MIN_LOSSES and history.node_seconds > 0:
        return history.node_seconds / history.losses / max(1, task.node_count), "group"
    return DEFAULT_BETWEEN, "default"


def _note(task: Task, work: float, interval: float | None, advice: float | None) -> str:
    if work < _MIN_WORK:
        return ""
    if interval is None:
        return _NONE_YET if task.spec.task_type is TaskType.TRAINING else ""
    if advice is None:
        return _NO_COST
    if interval > _FACTOR * advice:
        every = format_duration(interval)
        return (
            f"it saves too rarely: each {every} of work; {format_duration(advice)} would lose less"
        )
    if task.progress.saves >= _MIN_SAVES and interval < advice / _FACTOR:
        return f"it saves too often: each {format_duration(interval)} of work; {format_duration(advice)} is enough"
    return ""
