"""Checks nodes: submits a task that runs the health check of the SDK on them."""

from __future__ import annotations

from typing import Any

from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live.rows import task_row
from hai_jupyter.submission import runner_python

_PROGRAM = (
    "import json, sys; from hai.task.health import self_health_check; found = self_health_check(); "
    "print(json.dumps(found.as_dict(), indent=2)); sys.exit(not found.healthy)"
)


class NodeCheckHandler(Handler):
    """A check of some nodes. The platform decides who may name nodes."""

    @answers
    async def post(self) -> Any:
        """Return the task that runs the check."""
        nodes, group = self.body().get("nodes"), self.body().get("group", "")
        if not isinstance(nodes, list) or not nodes or not all(isinstance(n, str) for n in nodes):
            raise invalid(("nodes", "must be names of nodes"))
        if not isinstance(group, str):
            raise invalid(("group", "must be a text"))
        python = await runner_python(self.client)
        return task_row(await self.client.tasks.create(_spec(nodes, group, python)))


def _spec(nodes: list[str], group: str, python: str) -> TaskSpec:
    return TaskSpec(
        version=2,
        name=f"check of {', '.join(nodes)}"[:100],
        resource=ResourceSpec(node_count=len(nodes), group=group),
        spec=ProgramSpec(
            entrypoint=python, entrypoint_executable=True, parameters=["-c", _PROGRAM]
        ),
        options=OptionsSpec(assigned_nodes=nodes),
    )
