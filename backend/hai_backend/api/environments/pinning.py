"""What agents are told of an environment: all ranks of a run take one layer, whatever its owner does meanwhile."""

from __future__ import annotations

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.environments.environments import Environments
from hai_backend.domain.environment import EnvironmentName, EnvironmentState, parse_reference
from hai_backend.domain.task import Task


class EnvironmentPinning:
    """Remembered in memory: after a restart of the server a run whose ranks still come looks again."""

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
        """None: the task names no environment."""
        name, owner = parse_reference(task.spec.options.py_venv) or ("", "")
        if not name or task.run is None:
            return None
        called = EnvironmentName(owner or task.user, name)
        return pb.AgentEnvironment(
            root=str(self._environments.root),
            owner=called.owner,
            name=called.name,
            layer=await self._layer(task.id, task.run.number, called),
            fallback=task.spec.options.env_fallback,
            copies=self._copies,
            copies_bytes=self._copies_bytes,
        )

    def home(self, user: str) -> dict[str, str]:
        """What haienv itself must know in a task; nothing where ranks do not see the storage."""
        root = str(self._environments.root)
        return {"HAIENV_HOME": root, "HAIENV_USER": user} if self._visible else {}

    async def _layer(self, task_id: int, run: int, called: EnvironmentName) -> str:
        """Ranks ask side by side: whose answer is there first counts for all."""
        pinned = self._environments.pinned
        known = pinned.get(task_id)
        if known is not None and known[0] == run:
            return known[1]
        found = await self._environments.one(called)
        ready = found is not None and found.state is EnvironmentState.READY
        known = pinned.get(task_id)
        if known is None or known[0] != run:
            known = pinned[task_id] = (run, found.layer if found and ready else "")
        return known[1]

    def forget(self, task_id: int) -> None:
        """The task has ended."""
        self._environments.pinned.pop(task_id, None)
