"""Sentences about a run that saves, and about one that was ended while it saved.

A program that does not know the size of its state in advance reports as many bytes as it has saved. So a save of which
all bytes are saved may last, and has no estimate.
"""

from __future__ import annotations

from math import ceil

from hai_backend.domain.formatting import format_duration, format_part, format_size
from hai_backend.domain.progress import PROTECTED_AFTER
from hai_backend.domain.spec import TaskSpec, TaskType
from hai_backend.domain.task import Run, RunState, Task
from hai_backend.lifecycle.accounting import unsaved_seconds
from hai_backend.lifecycle.limits import Limits, learned_seconds, save_ends_at, stall_seconds

_MARGIN = 1.1  # of the advised time to save over the estimate
_ROUND_SECONDS = 5
_MAX_SAVE_WITHIN = 3600  # as in the validation of tasks
_MAX_LEFT_SECONDS = 86_400.0  # a longer estimate says nothing


def describe_save(run: Run, now: float) -> str:
    """Return how much of its state a run has saved and how long the rest takes: `2.1 of 3.6 GiB, about 3 s left`."""
    part, estimate = _part(run), _estimated_seconds(run, now)
    if estimate is None or (left := estimate - _elapsed(run, now)) > _MAX_LEFT_SECONDS:
        return part
    return f"{part}, about {format_duration(max(1.0, round(left)))} left"


def describe_unfinished_save(task: Task, run: Run, now: float, limits: Limits) -> str:
    """Return that a run was ended while it saved, what that has cost, and what helps."""
    elapsed = _elapsed(run, now)
    facts = f"{_part(run)} after {_seconds(elapsed)}"
    stall = stall_seconds(task, limits)
    if run.deadline is not None and run.deadline < save_ends_at(task, run, limits):
        facts += f", nothing more in the last {format_duration(stall)}"
    estimate = _estimated_seconds(run, now)
    sentences = (
        f"Run {run.number} was ended while it saved ({facts}).",
        _describe_loss(task, run, now),
        _advice(estimate, elapsed),
    )
    return " ".join(filter(None, sentences))


def describe_short_save_within(spec: TaskSpec, earlier_task: int, longest_save: float) -> str:
    """Return that `save_within` is too short, judged by the saves of an earlier task; empty if it is long enough."""
    declared, learned = spec.options.save_within, learned_seconds(longest_save)
    if spec.task_type is not TaskType.TRAINING or learned <= declared:
        return ""
    advised = min(_ROUND_SECONDS * ceil(learned / _ROUND_SECONDS), _MAX_SAVE_WITHIN)
    if advised <= declared:
        return ""
    return (
        f"task {earlier_task} with the same name took {_seconds(longest_save)} to save, but save_within is "
        f"{format_duration(declared)}: a run that must leave may be ended while it saves. "
        f"Set save_within to about {advised} s."
    )


def describe_next_protection(unsaved_suspensions: int) -> str:
    """Return why the next run of a task is protected after so many suspensions in a row; empty if it is not."""
    if unsaved_suspensions < PROTECTED_AFTER:
        return ""
    return (
        f"its last {unsaved_suspensions} runs were suspended before they saved: its next run is not suspended "
        "before it has saved a checkpoint, for a limited time"
    )


def _describe_loss(task: Task, run: Run, now: float) -> str:
    lost = unsaved_seconds(task.progress, run, now)
    work = f"{_seconds(lost)} of work were lost" if lost >= 0.5 else ""
    if run.state is not RunState.SUSPENDING:  # the task does not continue
        return f"{work}." if work else ""
    return f"{_describe_restart(task)}; {work}." if work else f"{_describe_restart(task)}."


def _describe_restart(task: Task) -> str:
    if not task.progress.saves:
        return "It starts again from the beginning"
    step = task.progress.saved_step
    return f"It continues from {'its last checkpoint' if step is None else f'step {step}'}"


def _advice(estimate: float | None, elapsed: float) -> str:
    if estimate is None:
        return f"Raise save_within to more than {ceil(elapsed)} s."
    seconds = _ROUND_SECONDS * ceil(_MARGIN * estimate / _ROUND_SECONDS)
    if seconds > _MAX_SAVE_WITHIN:
        return f"The whole save would take about {format_duration(estimate)}, longer than a task may ask for."
    return f"Raise save_within to about {seconds} s."


def _estimated_seconds(run: Run, now: float) -> float | None:
    """Return how long the whole save takes at its rate so far; None if that is unknown."""
    if not 0 < run.saved_bytes < run.state_bytes:
        return None
    return _elapsed(run, now) * run.state_bytes / run.saved_bytes


def _part(run: Run) -> str:
    if run.saved_bytes < run.state_bytes:
        return format_part(run.saved_bytes, run.state_bytes)
    return f"{format_size(run.saved_bytes)} so far"


def _elapsed(run: Run, now: float) -> float:
    """Return the seconds since the program noticed the request, or since it was asked."""
    began = run.asked_at if run.acknowledged_at is None else run.acknowledged_at
    return max(0.0, now - (now if began is None else began))


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds)) if seconds >= 1 else format_duration(seconds)
