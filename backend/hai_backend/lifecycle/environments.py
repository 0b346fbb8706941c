"""Which environment the programs of a run were started in, and whether it is the one of the run before. Pure."""

from __future__ import annotations

from hai_backend.domain.task import Run, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.transition import Line

_SHOWN = 12  # of a hash: enough to tell two apart


def environment_lines(task: Task, run: Run, event: ev.ProgramStarted) -> tuple[Line, ...]:
    """What the timeline says when a rank has started; `run` still has the lock of the run before if it is the first."""
    told = _told(task, run, event)
    return (Line("ProgramStarted", "", "agent", event.rank), *told) if told else ()


def _told(task: Task, run: Run, event: ev.ProgramStarted) -> tuple[Line, ...]:
    called, now, before = task.spec.options.py_venv, event.environment_lock, run.environment_lock
    if not called:
        return ()
    if not now:
        why = f"rank {event.rank} runs without environment {called}; its log says why"
        return (Line("EnvironmentMissing", why, "agent", event.rank),)
    if now == before:
        return ()
    what = f"environment {called} has lock {now[:_SHOWN]}"
    if any(rank.started_at is not None for rank in run.ranks):
        why = f"{what} for rank {event.rank}, but {before[:_SHOWN]} for others: it was changed"
        return (Line("EnvironmentDiffers", why, "agent", event.rank),)
    if before:
        why = f"{what}; in the run before it had {before[:_SHOWN]}: its packages were changed"
        return (Line("EnvironmentChanged", why, "agent", event.rank),)
    return (Line("EnvironmentUsed", what, "agent", event.rank),)
