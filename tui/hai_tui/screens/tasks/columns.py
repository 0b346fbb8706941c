"""The columns of the task list: those of `hai list`, with glyphs, widths and sort keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hai.client.tasks.silent_agents import silent_agents_of_run
from hai.client.text.state_style import SILENT, state_style
from hai_tui.feed.task_row import cached_status
from hai_tui.formatting.cells import Cell, Column
from hai_tui.formatting.values import held_seconds, local, priority_name, since, span
from hai_tui.i18n import text
from hai_tui.tasks.usage_columns import TaskUsage

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task, Waiting


def status_cell(task: Task, now: float) -> Cell:
    """Return glyph and name of a task's status."""
    state_name = cached_status(task)
    style = SILENT if silent_agents_of_run(task.run) else state_style(state_name)
    short = {"WAITING_INIT": "WAITING"}.get(state_name, state_name)
    return Cell(f"{style.glyph} {short}", style.tone)


def _waiting_cells(waiting: Callable[[Task], Waiting]) -> dict[str, Callable[[Any, float], str]]:
    """Return the cells that change without a change of the task: place, start and reason."""
    from hai_tui.views.silent_agents import task_silence_cell
    from hai_tui.views.start_forecast import start_text

    def reason(task: Task, now: float) -> str:
        if silent := task_silence_cell(task, now):
            return silent
        state = waiting(task)
        return state.message or state.reason or task.reason or task.run.reason

    return {
        "place": lambda task, now: str(waiting(task).queue_place or ""),
        "start": lambda task, now: start_text(waiting(task).predicted_start, now).strip("-"),
        "why": reason,
    }


def _group(task: Task, now: float) -> str:
    return task.group + (f"#{task.zone}" if task.zone else "")


def _level(task: Task, now: float) -> str:
    return priority_name(task.priority)


def _age(task: Task, now: float) -> str:
    return since(task.create_time, now)


def _position_key(task: Task) -> int:
    return task.waiting.queue_place or 1 << 30


def columns(waiting: Callable[[Task], Waiting], use: TaskUsage | None = None) -> tuple[Column, ...]:
    """Return all columns with titles in the user's language; optional ones are shown when they are chosen."""
    special_cells = _waiting_cells(waiting) | (use or TaskUsage()).cells()
    return tuple(
        Column(key, text(f"col.{key}"), width, special_cells.get(key, cell), sort=sort, **more)
        for key, width, cell, sort, more in _TABLE
    )


def _empty(task: Task, now: float) -> str:
    return ""


def _by(field: str) -> Callable[[Task], Any]:
    return lambda task: getattr(task, field)


_RIGHT, _OPTIONAL = {"right": True}, {"optional": True}
_TABLE: tuple[tuple[str, int, Callable[[Any, float], Cell | str], Any, dict[str, Any]], ...] = (
    ("star", 1, lambda t, now: "★" if t.starred else "", lambda t: not t.starred, {}),
    ("id", 6, lambda t, now: str(t.id), _by("id"), _RIGHT),
    ("name", 18, lambda t, now: t.name, _by("name"), {"flex": True}),
    ("user", 9, lambda t, now: t.user, _by("user"), {"drop": 2}),
    ("status", 13, status_cell, cached_status, {}),
    ("priority", 12, _level, lambda t: -t.priority, {"drop": 5}),
    ("nodes", 5, lambda t, now: str(t.node_count), _by("node_count"), _RIGHT),
    ("group", 10, _group, lambda t: (t.group, t.zone), {"drop": 6}),
    ("runs", 4, lambda t, now: str(t.run_count), _by("run_count"), {"drop": 4, **_RIGHT}),
    ("age", 7, _age, lambda t: -t.create_time.seconds, _RIGHT),
    (
        "used",
        7,
        lambda t, now: span(held_seconds(t, now)),
        _by("run_seconds"),
        {"drop": 7, **_RIGHT},
    ),
    ("place", 5, _empty, _position_key, {"drop": 8, **_RIGHT}),
    ("start", 13, _empty, None, {"drop": 10}),
    ("why", 24, _empty, None, {"drop": 3, "flex": True}),
    ("type", 10, lambda t, now: t.task_type, _by("task_type"), _OPTIONAL),
    ("tags", 16, lambda t, now: ",".join(t.tags), lambda t: list(t.tags), _OPTIONAL),
    (
        "life",
        6,
        lambda t, now: str(t.whole_life_state),
        _by("whole_life_state"),
        _OPTIONAL | _RIGHT,
    ),
    ("suspends", 8, lambda t, now: str(t.suspend_count), _by("suspend_count"), _OPTIONAL | _RIGHT),
    (
        "created",
        19,
        lambda t, now: local(t.create_time),
        lambda t: t.create_time.seconds,
        _OPTIONAL,
    ),
    (
        "finished",
        19,
        lambda t, now: local(t.finish_time),
        lambda t: t.finish_time.seconds,
        _OPTIONAL,
    ),
    ("gpu_use", 5, _empty, None, _OPTIONAL | _RIGHT),
    ("gpu_memory", 9, _empty, None, _OPTIONAL | _RIGHT),
    ("cpu_use", 6, _empty, None, _OPTIONAL | _RIGHT),
    ("memory_use", 9, _empty, None, _OPTIONAL | _RIGHT),
    ("hosts", 24, lambda t, now: ",".join(r.node for r in t.run.ranks), None, _OPTIONAL),
)
"""Key, width, cell, sort key, and further options of Column."""
