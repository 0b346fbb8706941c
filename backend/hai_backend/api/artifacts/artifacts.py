"""The table of artifacts: who may see and change them, and which ones a task may use."""

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
    """The artifacts. One that the caller may not see is reported as not found."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._write_lock = asyncio.Lock()

    async def visible(self, identity: Identity) -> list[Artifact]:
        """Return the artifacts that the caller may see, by space, name and version."""
        return [a for a in await self._store.records(Artifact) if _may_see(identity, a)]

    async def find(self, identity: Identity, space: str, name: str, version: str) -> Artifact:
        """Return an artifact. Raises NotFound."""
        found = await self._find_visible(identity, space, name, version)
        if found is None:
            raise NotFound(
                f"artifact {name}:{version} not found in {space}; `hai artifact list` shows yours"
            )
        return found

    async def _find_visible(
        self, identity: Identity, space: str, name: str, version: str
    ) -> Artifact | None:
        found = await self._store.records(Artifact, space=space, name=name, version=version)
        return found[0] if found and _may_see(identity, found[0]) else None

    async def create(self, identity: Identity, artifact: Artifact) -> Artifact:
        """Create an artifact. Raises Denied or Conflict."""
        if artifact.user_group and not _is_member(identity, artifact.user_group):
            raise Denied(f"{identity.name} is not in the user group {artifact.user_group}")
        async with self._write_lock:
            if not await self._store.add_record(artifact):
                raise Conflict(f"artifact {artifact} already exists", reason="NAME_TAKEN")
        return artifact

    async def update(self, identity: Identity, updated: Artifact) -> Artifact:
        """Update type, location and description. Raises NotFound or Denied."""
        async with self._write_lock:
            existing = await self._get_owned(identity, updated.space, updated.name, updated.version)
            changed = replace(updated, owner=existing.owner, created_at=existing.created_at)
            await self._store.save_record(changed)
        return changed

    async def delete(self, identity: Identity, space: str, name: str, version: str) -> None:
        """Delete an artifact, also from tasks. Raises NotFound or Denied."""
        async with self._write_lock:
            existing = await self._get_owned(identity, space, name, version)
            await self._store.delete_records(TaskArtifact, space=space, name=name, version=version)
            await self._store.delete_record(existing)

    async def _get_owned(self, identity: Identity, space: str, name: str, version: str) -> Artifact:
        artifact = await self.find(identity, space, name, version)
        if artifact.owner != identity.name and not identity.operates:
            raise Denied(f"{artifact} belongs to {artifact.owner}; only its owner may change it")
        require_reach(identity, artifact.owner, str(artifact))
        return artifact

    async def of_task(
        self, identity: Identity, task: Task
    ) -> list[tuple[TaskArtifact, Artifact | None]]:
        """Return the artifacts of a task, input first. An artifact that the caller may not see is None."""
        mappings = await self._store.records(TaskArtifact, task_id=task.id)
        return [
            (m, await self._find_visible(identity, m.space, m.name, m.version)) for m in mappings
        ]

    async def map(self, task: Task, direction: Direction, artifact: Artifact) -> TaskArtifact:
        """Assign an artifact to a task, and replace the present one in that direction. Raises Denied."""
        if not self._may_map(task, artifact):
            raise Denied(
                f"task {task.id} of {task.user} may use artifacts of {task.user}; "
                "those of others in a user group are for tasks that are shared in the group"
            )
        mapping = TaskArtifact(task.id, direction, artifact.space, artifact.name, artifact.version)
        await self._store.save_record(mapping)
        return mapping

    async def unmap(self, task: Task, directions: Iterable[Direction]) -> None:
        """Remove the artifacts of a task. It is not an error if there are none."""
        for direction in directions:
            await self._store.delete_record(TaskArtifact(task.id, direction))

    def _may_map(self, task: Task, artifact: Artifact) -> bool:
        shared = task.spec.options.shared_in_group
        groups = self._directory.groups_of(task.user)
        return artifact.owner == task.user or (shared and artifact.user_group in groups)


def _may_see(identity: Identity, artifact: Artifact) -> bool:
    return artifact.owner == identity.name or _is_member(identity, artifact.user_group)


def _is_member(identity: Identity, user_group: str) -> bool:
    return identity.operates or user_group in identity.user.groups
