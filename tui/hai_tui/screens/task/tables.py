"""Columns of the ranks, the runs and the events of one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hai.client.text.state_style import state_style
from hai_tui.formatting.cells import Cell, Column
from hai_tui.formatting.values import local, priority_name, span
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Rank, Run, TaskEvent


def _column(key: str, width: int, cell: Callable[[Any, float], Cell | str], **more: Any) -> Column:
    return Column(key, text(f"col.{key}"), width, cell, **more)


def rank_columns() -> tuple[Column, ...]:
    return (
        _column("rank", 4, lambda r, now: str(r.index), right=True),
        _column("node", 12, lambda r, now: r.node or "-"),
        _column("state", 23, _rank_state),
        _column("exit", 20, _exit_cell, flex=True),
        _column("role", 10, lambda r, now: r.role or "-", drop=3),
        _column("began", 19, lambda r, now: local(r.start_time), drop=2),
        _column("lasted", 7, _rank_duration, right=True),
        _column("lines", 30, _last_line, drop=4, flex=True),
    )


def _rank_state(rank: Rank, now: float) -> Cell:
    from hai_tui.screens.task.text import rank_state_name, rank_style

    style = rank_style(rank)
    return Cell(f"{style.glyph} {rank_state_name(rank.state)}", style.tone)


def _exit_cell(rank: Rank, now: float) -> Cell:
    """Return how the program ended, or for how long its agent has been silent."""
    from hai_tui.views.silent_agents import rank_silence_text

    if silent := rank_silence_text(rank, now):
        return Cell(silent, "bad")
    if not rank.HasField("exit_code"):
        return Cell(rank.exit_meaning or "-")
    meaning = "" if rank.exit_meaning.startswith("exit code") else rank.exit_meaning
    content = f"{rank.exit_code} {meaning if rank.exit_code else ''}".strip()
    return Cell(content, "bad" if rank.exit_code else "plain")


def _rank_duration(rank: Rank, now: float) -> str:
    return _duration(rank.start_time.seconds, rank.end_time.seconds, now)


def _duration(begin: int, end: int, now: float) -> str:
    return span((end or now) - begin) if begin else "-"


def _last_line(rank: Rank, now: float) -> str:
    return (rank.last_lines.rstrip().splitlines() or [""])[-1]


def run_columns() -> tuple[Column, ...]:
    return (
        _column("run", 4, lambda r, now: str(r.number), right=True),
        _column("state", 13, _run_state),
        _column("priority", 12, lambda r, now: priority_name(r.priority), drop=3),
        _column("nodes", 5, lambda r, now: str(len(r.ranks)), right=True),
        _column("began", 19, lambda r, now: local(r.create_time)),
        _column("lasted", 7, _run_duration, right=True),
        _column("ended", 24, _run_end, flex=True),
        _column("hosts", 20, lambda r, now: ",".join(x.node for x in r.ranks), drop=4),
    )


def _run_state(run: Run, now: float) -> Cell:
    from hai_tui.screens.task.text import run_state_name

    state = run_state_name(run)
    return Cell(f"{state_style(state).glyph} {state}", state_style(state).tone)


def _run_duration(run: Run, now: float) -> str:
    return _duration(run.create_time.seconds, run.end_time.seconds, now)


def _run_end(run: Run, now: float) -> str:
    from hai_tui.screens.task.text import run_end_text

    return run_end_text(run)


def event_columns() -> tuple[Column, ...]:
    return (
        _column("time", 19, lambda e, now: local(e.time)),
        _column("actor", 10, lambda e, now: e.actor),
        _column("event", 18, lambda e, now: e.kind),
        _column("run", 4, lambda e, now: str(e.run or "-"), right=True),
        _column("rank", 4, _event_rank, right=True, drop=2),
        _column("reason", 20, lambda e, now: e.reason, flex=True),
    )


def _event_rank(event: TaskEvent, now: float) -> str:
    return str(event.rank) if event.run and event.rank >= 0 else "-"
