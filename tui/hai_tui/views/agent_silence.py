"""Silent agents as the command line and the terminal app show them, in the user's language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hai.client.tasks.agent_silence import (
    Silence,
    agent_silence,
    node_silences,
    run_silence,
    silence_text,
    without_rank,
)
from hai_tui.i18n import language, text

if TYPE_CHECKING:
    from hai.v1.node_pb2 import Node, NodeTenant
    from hai.v1.task_pb2 import Rank, Run, Task


def silent_task(task: Task, now: float) -> str:
    """`agent silent for 40 s`; empty while all agents of the task are heard."""
    return silent_run(task.run, now)


def silent_cell(task: Task, now: float) -> str:
    """The same for a cell with little room: it does not name the only silent rank."""
    silence = run_silence(task.run)
    return _phrase(without_rank(silence) if silence else None, now)


def silent_run(run: Run, now: float) -> str:
    """The same of a run."""
    return _phrase(run_silence(run), now)


def silent_rank(holder: Rank | NodeTenant, now: float) -> str:
    """The same of one rank."""
    return _phrase(agent_silence(holder), now)


def silent_node(node: Node, now: float) -> Iterator[str]:
    """One phrase for each task with silent agents on the node: `task 12: agent silent for 40 s`."""
    for task, silence in sorted(node_silences(node).items()):
        yield text("silent.task", id=task, silent=_phrase(silence, now))


def _phrase(silence: Silence | None, now: float) -> str:
    return silence_text(silence, now, chinese=language() == "zh") if silence else ""
