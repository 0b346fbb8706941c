"""Handlers of one task: its details, its executed notebook, and actions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.client.taskfile.spec import to_yaml
from hai.client.tasks.silent_agents import silent_agents_of_run
from hai.v1.task_pb2 import (
    TASK_OUTCOME_FAILED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    Task,
)
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers, to_json_value
from hai_jupyter.live.rows import task_row
from hai_jupyter.notebooks import executed, submission

Body = Mapping[str, Any]
Verb = Callable[[Client, int, Body], Awaitable[Task]]


class TaskHandler(Handler):
    """All details of one task."""

    @answers
    async def get(self, id: str) -> Any:
        """Return the task, its runs, its events, and why it waits, is silent or has failed."""
        client, number = self.client, int(id)
        task, runs, events = await asyncio.gather(
            client.tasks.get(number), client.tasks.runs(number), client.tasks.events(number)
        )
        return {
            "row": task_row(task),
            "task": to_json_value(task),
            "yaml": to_yaml(task.spec),
            "runs": [to_json_value(run) for run in runs],
            "events": [to_json_value(event) for event in events],
            "why": await _explain(client, task),
            "notebook": await asyncio.to_thread(self._notebook_path, task),
            "fetchable": executed.find_notebook(task) is not None,
        }

    def _notebook_path(self, task: Task) -> str:
        """Return the contents path of the executed notebook; empty if there is none, or none below the root."""
        out = submission.output_of(task.id, task.spec.spec.workspace, task.spec.spec.parameters)
        if out is None or not out.is_file():
            return ""
        with suppress(ValueError):  # the file is outside the root
            return self.shared.contents_paths.contents_path(out.resolve())
        return ""


class ExecutedHandler(Handler):
    """The executed notebook of a task that ran on a pushed workspace; it is in a directory of the task."""

    @answers
    async def post(self, id: str) -> Any:
        """Download the notebook, as far as it is written; return its contents path."""
        task = await self.client.tasks.get(int(id))
        return {"path": await executed.download(self.client, task, self.shared.contents_paths)}


class VerbHandler(Handler):
    """An action on a task: stop, suspend, resume, again, priority, move, star or tag."""

    @answers
    async def post(self, id: str, verb: str) -> Any:
        """Return the task after the action; for `again`, the new task."""
        return task_row(await _VERBS[verb](self.client, int(id), self.body()))


async def _explain(client: Client, task: Task) -> Any:
    has_started = task.state in (TASK_STATE_RUNNING, TASK_STATE_FINISHED)
    if (
        has_started
        and silent_agents_of_run(task.run) is None
        and task.outcome != TASK_OUTCOME_FAILED
    ):
        return None
    with suppress(HaiError):  # the task may have started meanwhile
        return to_json_value(await client.tasks.explain(task.id))
    return None


async def _submit_again(client: Client, id: int) -> Task:
    """Submit the spec of a task again. Two requests at once make one task, because its name is the same."""
    return await client.tasks.create((await client.tasks.get(id)).spec)


def _number(body: Body, field: str) -> int:
    value = body.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid((field, "must be a whole number"))
    return value


def _words(body: Body, field: str) -> list[str]:
    value = body.get(field, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise invalid((field, "must be a list of texts"))
    return value


_VERBS: Mapping[str, Verb] = {
    "stop": lambda client, id, body: client.tasks.stop(id),
    "suspend": lambda client, id, body: client.tasks.suspend(id, hold=body.get("hold") is True),
    "resume": lambda client, id, body: client.tasks.resume(id),
    "again": lambda client, id, body: _submit_again(client, id),
    "priority": lambda client, id, body: client.tasks.set_priority(id, _number(body, "priority")),
    "move": lambda client, id, body: client.tasks.move(id, _number(body, "before")),
    "star": lambda client, id, body: client.tasks.star(id, body.get("starred") is True),
    "tag": lambda client, id, body: client.tasks.tag(
        id, add=_words(body, "add"), remove=_words(body, "remove")
    ),
}
VERBS = "|".join(_VERBS)
