"""Pins the layer of the environment of a task, so that all ranks of a run use the same layer."""

from __future__ import annotations

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.environments.environments import Environments
from hai_backend.domain.environment import EnvironmentName, EnvironmentState, parse_reference
from hai_backend.domain.task import Task


class EnvironmentPinning:
    """Resolves the layer of a run once. Pins are in memory: after a restart, a starting run is resolved again."""

    def __init__(
        self,
        environments: Environments,
        *,
        visible: bool = True,
        copies: str = "",
        copies_bytes: int = 0,
    ) -> None:
        self._environments = environments
        self._visible = visible
        self._copies = copies
        self._copies_bytes = copies_bytes

    async def __call__(self, task: Task) -> pb.AgentEnvironment | None:
        """Return the environment for agents, or None if the task has none."""
        name, owner = parse_reference(task.spec.options.py_venv) or ("", "")
        if not name or task.run is None:
            return None
        full_name = EnvironmentName(owner or task.user, name)
        return pb.AgentEnvironment(
            root=str(self._environments.root),
            owner=full_name.owner,
            name=full_name.name,
            layer=await self._layer(task.id, task.run.number, full_name),
            fallback=task.spec.options.env_fallback,
            copies=self._copies,
            copies_bytes=self._copies_bytes,
        )

    def haienv_variables(self, user: str) -> dict[str, str]:
        """Return the variables for haienv in a task. Empty if ranks do not have the storage of environments."""
        root = str(self._environments.root)
        return {"HAIENV_HOME": root, "HAIENV_USER": user} if self._visible else {}

    async def _layer(self, task_id: int, run: int, full_name: EnvironmentName) -> str:
        """Resolve the layer. Ranks query concurrently, and the first result counts for all."""
        pinned = self._environments.pinned
        pinned_layer = pinned.get(task_id)
        if pinned_layer is not None and pinned_layer[0] == run:
            return pinned_layer[1]
        found = await self._environments.get(full_name)
        ready = found is not None and found.state is EnvironmentState.READY
        pinned_layer = pinned.get(task_id)
        if pinned_layer is None or pinned_layer[0] != run:
            pinned_layer = pinned[task_id] = (run, found.layer if found and ready else "")
        return pinned_layer[1]

    def forget(self, task_id: int) -> None:
        """Drop the pin of an ended task."""
        self._environments.pinned.pop(task_id, None)
