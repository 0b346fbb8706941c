"""Shows tasks in a notebook: with the extension as a card that stays live, elsewhere as a table or a line of text."""

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
    """The display of one task."""

    def __init__(self, task: Task) -> None:
        self.id = task.id
        self._row = _row(task)

    def __repr__(self) -> str:
        row = self._row
        state = row.get("outcome") or row["state"]
        reason = f": {row['why']}" if row.get("why") else ""
        return _escape_controls(f"task {row['id']} {row['name']} {state}{reason}")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {
            MIME: {"id": self.id},
            "text/html": _html_table([self._row]),
            "text/plain": repr(self),
        }


class TaskList:
    """The display of several tasks."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._rows = [_row(task) for task in tasks]

    def __repr__(self) -> str:
        lines = [
            _escape_controls(" ".join(str(row.get(c, "")) for c in _COLUMNS)) for row in self._rows
        ]
        return "\n".join(lines) or "no tasks"

    def _repr_html_(self) -> str:
        return _html_table(self._rows)


def _row(task: Task) -> dict[str, Any]:
    """Return the row of the panel. Outputs of a kernel do not change, so it has the silence at this moment."""
    row, silence = task_row(task), silent_agents_of_run(task.run)
    return {**row, "why": silent_agents_text(silence, time.time())} if silence else row


def _escape_controls(line: str) -> str:
    """Escape control characters, so that names cannot control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _html_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return an HTML table. All texts are escaped, because names and reasons come from other users."""
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(row.get(c, '')))}</td>" for c in _COLUMNS) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
