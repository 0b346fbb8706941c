"""A task in a notebook: with our extension a card that stays live by itself, elsewhere a table or a line of text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

from hai.client.tasks.silent_agents import silent_agents_of_run, silent_agents_text
from hai.v1.task_pb2 import Task
from hai_jupyter.live.rows import task_row

MIME = "application/vnd.hai.task+json"
_COLUMNS = ("id", "name", "state", "outcome", "nodes", "why")


class TaskView:
    """One task."""

    def __init__(self, task: Task) -> None:
        self.id = task.id
        self._row = _row(task)

    def __repr__(self) -> str:
        row = self._row
        state = row.get("outcome") or row["state"]
        why = f": {row['why']}" if row.get("why") else ""
        return _harmless(f"task {row['id']} {row['name']} {state}{why}")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {
            MIME: {"id": self.id},
            "text/html": _table([self._row]),
            "text/plain": repr(self),
        }


class TaskList:
    """Several."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._rows = [_row(task) for task in tasks]

    def __repr__(self) -> str:
        lines = [_harmless(" ".join(str(row.get(c, "")) for c in _COLUMNS)) for row in self._rows]
        return "\n".join(lines) or "no tasks"

    def _repr_html_(self) -> str:
        return _table(self._rows)


def _row(task: Task) -> dict[str, Any]:
    """As the panel's; a kernel's output stands still, so it says for how long agents were silent when it was made."""
    row, silence = task_row(task), silent_agents_of_run(task.run)
    return {**row, "why": silent_agents_text(silence, time.time())} if silence else row


def _harmless(line: str) -> str:
    """In a terminal, names steer nothing: control characters are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Names and reasons come from others: everything is escaped."""
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(row.get(c, '')))}</td>" for c in _COLUMNS) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
