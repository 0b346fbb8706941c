"""Phrases about silent agents for the command line and the terminal app, in the user's language.

Each function returns an empty text if the server hears all agents.
"""

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


def task_silence_text(task: Task, now: float) -> str:
    """Return a phrase about the silent agents of a task, such as `agent silent for 40 s`."""
    return run_silence_text(task.run, now)


def task_silence_cell(task: Task, now: float) -> str:
    """Return a shorter phrase for a table cell; it does not name the only silent rank."""
    silence = silent_agents_of_run(task.run)
    return _phrase(without_rank_number(silence) if silence else None, now)


def run_silence_text(run: Run, now: float) -> str:
    """Return a phrase about the silent agents of a run."""
    return _phrase(silent_agents_of_run(run), now)


def rank_silence_text(rank: Rank | NodeTenant, now: float) -> str:
    """Return a phrase about the agent of one rank."""
    return _phrase(silent_agent_of(rank), now)


def node_silence_texts(node: Node, now: float) -> Iterator[str]:
    """Yield one phrase for each task with silent agents on the node: `task 12: agent silent for 40 s`."""
    for task, silence in sorted(silent_agents_on_node(node).items()):
        yield text("silent.task", id=task, silent=_phrase(silence, now))


def _phrase(silence: SilentAgents | None, now: float) -> str:
    return silent_agents_text(silence, now, chinese=language() == "zh") if silence else ""
