"""Columns of tasks, of the queue and of ranks, and the status of a task as one word."""

from __future__ import annotations

from dataclasses import replace

from hai.client.text.formatting import enum_name
from hai.v1.task_pb2 import (
    RUN_STATE_RUNNING,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    Rank,
    RankState,
    RunState,
    Task,
    TaskOutcome,
    TaskState,
)
from hai_tui.formatting.table import Column, View, brief
from hai_tui.formatting.values import held_seconds, local, priority_name, since, span
from hai_tui.views import gpus
from hai_tui.views.silent_agents import rank_silence_text, task_silence_text
from hai_tui.views.start_forecast import start_text

_STYLES = {
    "RUNNING": "green",
    "SUCCEEDED": "cyan",
    "FAILED": "red",
    "STOPPED": "dim",
    "CANCELED": "dim",
    "HELD": "magenta",
    "UNSCHEDULABLE": "red",
}


def status(task: Task) -> str:
    """Return the outcome of a finished task, the step of a running one, HELD, or else the state."""
    if task.state == TASK_STATE_FINISHED:
        return enum_name(TaskOutcome, task.outcome)
    if task.state == TASK_STATE_RUNNING and task.run.state not in (0, RUN_STATE_RUNNING):
        return enum_name(RunState, task.run.state)
    if task.held:
        return "HELD"
    return enum_name(TaskState, task.state)


def style(state: str) -> str:
    """Return the colour of a state; yellow for states between waiting and the end."""
    return _STYLES.get(state, "yellow")


def _reason_text(task: Task, now: float) -> str:
    if task.state == TASK_STATE_FINISHED:
        return brief(task.reason) or "-"
    return task_silence_text(task, now) or task.waiting.reason or "-"


def _hosts(task: Task, now: float) -> str:
    return ",".join(rank.node for rank in task.run.ranks) or "-"


TASKS = View(
    key="tasks",
    name=lambda task: str(task.id),
    empty="none.tasks",
    columns=(
        Column("id", lambda t, now: str(t.id), right=True),
        Column("name", lambda t, now: t.name, folds=True),
        Column("user", lambda t, now: t.user),
        Column("status", lambda t, now: status(t), style=style),
        Column("priority", lambda t, now: priority_name(t.priority), drop_order=3),
        Column("nodes", lambda t, now: str(t.node_count), right=True),
        Column("group", lambda t, now: t.group + (f"#{t.zone}" if t.zone else ""), drop_order=2),
        Column("runs", lambda t, now: str(t.run_count), right=True, drop_order=1),
        Column("age", lambda t, now: since(t.create_time, now), right=True),
        Column("why", _reason_text, folds=True),
        Column("type", lambda t, now: t.task_type, wide=True),
        Column("suspends", lambda t, now: str(t.suspend_count), wide=True, right=True),
        Column("used", lambda t, now: span(held_seconds(t, now)), wide=True, right=True),
        Column("life", lambda t, now: str(t.whole_life_state), wide=True, right=True),
        Column("created", lambda t, now: local(t.create_time), wide=True),
        Column("started", lambda t, now: local(t.start_time), wide=True),
        Column("finished", lambda t, now: local(t.finish_time), wide=True),
        Column("tags", lambda t, now: ",".join(t.tags) or "-", wide=True, folds=True),
        Column("star", lambda t, now: "*" if t.starred else "-", wide=True),
        Column("hosts", _hosts, wide=True, folds=True),
    ),
)


OWN = replace(TASKS, empty="none.own")
"""The caller's tasks that have not ended."""


QUEUE = View(
    key="tasks",
    name=lambda task: str(task.id),
    empty="none.queue",
    columns=(
        Column("place", lambda t, now: str(t.waiting.queue_place or "-"), right=True),
        Column("id", lambda t, now: str(t.id), right=True),
        Column("name", lambda t, now: t.name, folds=True),
        Column("user", lambda t, now: t.user),
        Column("level", lambda t, now: priority_name(t.waiting.effective_priority), drop_order=3),
        Column("nodes", lambda t, now: str(t.node_count), right=True),
        Column("group", lambda t, now: t.group + (f"#{t.zone}" if t.zone else ""), drop_order=2),
        Column("age", lambda t, now: since(t.create_time, now), right=True, drop_order=1),
        Column("start", lambda t, now: start_text(t.waiting.predicted_start, now)),
        Column("why", lambda t, now: t.waiting.reason or "-", folds=True),
        Column("message", lambda t, now: t.waiting.message or "-", wide=True, folds=True),
    ),
)


def _exit_text(rank: Rank, now: float) -> str:
    if not rank.HasField("exit_code"):
        return rank.exit_meaning or "-"
    meaning = rank.exit_meaning.removeprefix(f"exit code {rank.exit_code}").removeprefix(": ")
    return f"{rank.exit_code} ({meaning})" if rank.exit_code and meaning else str(rank.exit_code)


def _rank_state(rank: Rank, now: float) -> str:
    return ", ".join(filter(None, (enum_name(RankState, rank.state), rank_silence_text(rank, now))))


RANKS = View(
    key="ranks",
    name=lambda rank: str(rank.index),
    columns=(
        Column("rank", lambda r, now: str(r.index), right=True),
        Column("node", lambda r, now: r.node or "-"),
        Column("state", _rank_state, style=style),
        Column("exit", _exit_text, folds=True),
        Column("started", lambda r, now: local(r.start_time)),
        Column("ended", lambda r, now: local(r.end_time)),
        Column("gpus", lambda r, now: _rank_gpus(r), optional=True),
        Column("gpu_use", lambda r, now: gpus.use_text(r.gpus), optional=True),
        Column("role", lambda r, now: r.role or "-", wide=True),
    ),
)


def _rank_gpus(rank: Rank) -> str:
    """Return the indices of a rank's GPUs and their model, such as `0-1 (H100)`."""
    numbers = ",".join(str(gpu.index) for gpu in rank.gpus)
    return f"{numbers} ({gpus.model_text(rank.gpus)})" if numbers else "-"
