"""Silent agents as the command line and the terminal app show them, in the user's language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hai.client.tasks.silent_agents import (
    SilentAgents,
    silent_agent_of,
    silent_agents_of_run,
    silent_agents_on_node,
    silent_agents_text,
    without_rank_number,
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
    silence = silent_agents_of_run(task.run)
    return _phrase(without_rank_number(silence) if silence else None, now)


def silent_run(run: Run, now: float) -> str:
    """The same of a run."""
    return _phrase(silent_agents_of_run(run), now)


def silent_rank(holder: Rank | NodeTenant, now: float) -> str:
    """The same of one rank."""
    return _phrase(silent_agent_of(holder), now)


def silent_node(node: Node, now: float) -> Iterator[str]:
    """One phrase for each task with silent agents on the node: `task 12: agent silent for 40 s`."""
    for task, silence in sorted(silent_agents_on_node(node).items()):
        yield text("silent.task", id=task, silent=_phrase(silence, now))


def _phrase(silence: SilentAgents | None, now: float) -> str:
    return silent_agents_text(silence, now, chinese=language() == "zh") if silence else ""
