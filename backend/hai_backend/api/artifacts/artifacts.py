"""The table of artifacts: who sees which, who may change them, and which a task may have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_reach
from hai_backend.domain.catalog.artifact import Artifact, Direction, TaskArtifact
from hai_backend.domain.errors import Conflict, Denied, NotFound
from hai_backend.domain.task import Task
from hai_backend.store.base import Store


class Artifacts:
    """What may not be seen does not exist."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._writing = asyncio.Lock()

    async def visible(self, identity: Identity) -> list[Artifact]:
        """Those that the caller may see, by space, name and version."""
        return [a for a in await self._store.records(Artifact) if _sees(identity, a)]

    async def find(self, identity: Identity, space: str, name: str, version: str) -> Artifact:
        """One of them. Raises NotFound."""
        found = await self._seen(identity, space, name, version)
        if found is None:
            raise NotFound(
                f"there is no artifact {name}:{version} in {space}; `hai artifact list` shows yours"
            )
        return found

    async def _seen(
        self, identity: Identity, space: str, name: str, version: str
    ) -> Artifact | None:
        found = await self._store.records(Artifact, space=space, name=name, version=version)
        return found[0] if found and _sees(identity, found[0]) else None

    async def create(self, identity: Identity, artifact: Artifact) -> Artifact:
        """A new one. Raises Denied or Conflict."""
        if artifact.user_group and not _is_in(identity, artifact.user_group):
            raise Denied(f"{identity.name} is not in the user group {artifact.user_group}")
        async with self._writing:
            if not await self._store.add_record(artifact):
                raise Conflict(f"there is an artifact {artifact} already", reason="NAME_TAKEN")
        return artifact

    async def update(self, identity: Identity, wanted: Artifact) -> Artifact:
        """Type, location and description of `wanted`. Raises NotFound or Denied."""
        async with self._writing:
            known = await self._own(identity, wanted.space, wanted.name, wanted.version)
            changed = replace(wanted, owner=known.owner, created_at=known.created_at)
            await self._store.save_record(changed)
        return changed

    async def delete(self, identity: Identity, space: str, name: str, version: str) -> None:
        """Remove one, also from tasks. Raises NotFound or Denied."""
        async with self._writing:
            known = await self._own(identity, space, name, version)
            await self._store.delete_records(TaskArtifact, space=space, name=name, version=version)
            await self._store.delete_record(known)

    async def _own(self, identity: Identity, space: str, name: str, version: str) -> Artifact:
        artifact = await self.find(identity, space, name, version)
        if artifact.owner != identity.name and not identity.operates:
            raise Denied(f"{artifact} belongs to {artifact.owner}; only its owner may change it")
        require_reach(identity, artifact.owner, str(artifact))
        return artifact

    async def of_task(
        self, identity: Identity, task: Task
    ) -> list[tuple[TaskArtifact, Artifact | None]]:
        """The artifacts of a task, input first; None for one that the caller may not see."""
        mapped = await self._store.records(TaskArtifact, task_id=task.id)
        return [(m, await self._seen(identity, m.space, m.name, m.version)) for m in mapped]

    async def map(self, task: Task, direction: Direction, artifact: Artifact) -> TaskArtifact:
        """Give a task an artifact, in place of the one in that direction. Raises Denied."""
        if not self._may_have(task, artifact):
            raise Denied(
                f"task {task.id} of {task.user} may have artifacts of {task.user}; "
                "those of others in a user group are for tasks that are shared in the group"
            )
        mapped = TaskArtifact(task.id, direction, artifact.space, artifact.name, artifact.version)
        await self._store.save_record(mapped)
        return mapped

    async def unmap(self, task: Task, directions: Iterable[Direction]) -> None:
        """Take them away; where there is none nothing changes."""
        for direction in directions:
            await self._store.delete_record(TaskArtifact(task.id, direction))

    def _may_have(self, task: Task, artifact: Artifact) -> bool:
        shared = task.spec.options.shared_in_group
        groups = self._directory.groups_of(task.user)
        return artifact.owner == task.user or (shared and artifact.user_group in groups)


def _sees(identity: Identity, artifact: Artifact) -> bool:
    return artifact.owner == identity.name or _is_in(identity, artifact.user_group)


def _is_in(identity: Identity, user_group: str) -> bool:
    return identity.operates or user_group in identity.user.groups
