"""One task: look at it closely, and steer it."""

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
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live.rows import task_row
from hai_jupyter.notebooks import executed, submission
from hai_jupyter.proto_json import to_json_value

Body = Mapping[str, Any]
Verb = Callable[[Client, int, Body], Awaitable[Task]]


class TaskHandler(Handler):
    """Everything about one task, in one answer."""

    @answers
    async def get(self, id: str) -> Any:
        """The task, its runs, its timeline, and why it waits or is silent if it is."""
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
            "why": await _why(client, task),
            "notebook": await asyncio.to_thread(self._notebook, task),
            "fetchable": executed.of(task) is not None,
        }

    def _notebook(self, task: Task) -> str:
        """The executed notebook, as the file browser knows it; empty: there is none, or not here."""
        out = submission.output_of(task.id, task.spec.spec.workspace, task.spec.spec.parameters)
        if out is None or not out.is_file():
            return ""
        with suppress(ValueError):  # it lies elsewhere
            return self.backend.contents_paths.contents_path(out.resolve())
        return ""


class ExecutedHandler(Handler):
    """The executed notebook of a task that ran on a pushed workspace: it lies in the task's own directory."""

    @answers
    async def post(self, id: str) -> Any:
        """Brought here, as far as it is; its path as the file browser knows it."""
        task = await self.client.tasks.get(int(id))
        return {"path": await executed.download(self.client, task, self.backend.contents_paths)}


class VerbHandler(Handler):
    """stop, suspend, resume, again, priority, move, star, tag."""

    @answers
    async def post(self, id: str, verb: str) -> Any:
        """The task afterwards; of `again` the new one."""
        return task_row(await _VERBS[verb](self.client, int(id), self.body()))


async def _why(client: Client, task: Task) -> Any:
    settled = task.state in (TASK_STATE_RUNNING, TASK_STATE_FINISHED)
    if settled and silent_agents_of_run(task.run) is None and task.outcome != TASK_OUTCOME_FAILED:
        return None
    with suppress(HaiError):  # it may have started in between
        return to_json_value(await client.tasks.explain(task.id))
    return None


async def _again(client: Client, id: int) -> Task:
    """Submit the same once more. Two that do it at once get one task, for it has the same name."""
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
    "again": lambda client, id, body: _again(client, id),
    "priority": lambda client, id, body: client.tasks.set_priority(id, _number(body, "priority")),
    "move": lambda client, id, body: client.tasks.move(id, _number(body, "before")),
    "star": lambda client, id, body: client.tasks.star(id, body.get("starred") is True),
    "tag": lambda client, id, body: client.tasks.tag(
        id, add=_words(body, "add"), remove=_words(body, "remove")
    ),
}
VERBS = "|".join(_VERBS)
