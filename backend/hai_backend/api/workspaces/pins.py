"""Tasks that run on a revision of a workspace: what their submission names, and the directory that they run in.

An unfinished task pins its revision. It runs in a directory of its own, made of exactly that revision before its first
run starts; later pushes never change it.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from hai_backend.api.workspaces.access import Workspaces
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict, HaiError, Invalid, Violation
from hai_backend.domain.shared_dirs import PathInRank, SharedDirectory
from hai_backend.domain.spec import TaskSpec
from hai_backend.domain.task import Task
from hai_backend.domain.workspace import Reference, Revision, parse_reference
from hai_backend.workspaces import checkouts, tags
from hai_backend.workspaces.files import Files

_FIELD = "spec.workspace"


class WorkspacePins:
    """`seen` says where ranks see a directory of the platform's. `run_here`: they are processes of this machine."""

    def __init__(self, workspaces: Workspaces, seen: PathInRank, *, run_here: bool = False) -> None:
        self._workspaces = workspaces
        self._run_here = run_here
        self._seen = seen
        self._making: dict[int, asyncio.Task[None]] = {}

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """The task with the revision that it means now, and what its timeline says. Raises Invalid or Conflict."""
        reference = parse_reference(spec.spec.workspace)
        if reference is None:
            await self._require_directory(spec.spec.workspace)
            return spec, ""
        pinned = await self._found(identity, reference)
        return replace(spec, spec=replace(spec.spec, workspace=str(pinned))), f"on {pinned}"

    async def _require_directory(self, path: str) -> None:
        """Of a task that names no workspace of ours. Raises Invalid."""
        if self._run_here and path and not await asyncio.to_thread(os.path.isdir, path):
            problem = f"{path} is not a directory on this machine, where tasks run: check the path"
            raise Invalid((Violation(_FIELD, problem),), reason="NO_SUCH_DIRECTORY")

    async def _found(self, identity: Identity, reference: Reference) -> Reference:
        try:
            async with self._workspaces.open(identity, reference.name) as room:
                work = self._workspaces.rooms.work
                known = await work(room.files.path, _meant, room.files, reference)
        except HaiError as error:
            raise Invalid((Violation(_FIELD, str(error)),)) from error
        if not known.number:
            problem = f"workspace {reference.name} has no revision yet; push first"
            raise Invalid((Violation(_FIELD, problem),))
        if not self._seen(_directory(identity.name, reference.name, 0)):
            raise Conflict(
                "tasks of this cluster do not see workspaces: an operator must set kubernetes.shared_volume",
                reason="WORKSPACES_NOT_SEEN",
            )
        return replace(reference, revision=known.number, tag="")

    def path(self, task: Task) -> str:
        """Where the program of a task begins; what names no workspace of ours is a path already."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is None:
            return task.spec.spec.workspace
        below = self._seen(_directory(task.user, reference.name, task.id))
        return f"{below}/{reference.folder}" if reference.folder else below

    async def make(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """The directory of a task, there before its ranks are; none when it names no workspace. Raises HaiError."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is None:
            return ()
        making = self._making.get(task.id)
        if making is None:
            making = asyncio.ensure_future(self._make(task, reference, uid))
            self._making[task.id] = making
            making.add_done_callback(lambda _: self._making.pop(task.id, None))
        await asyncio.shield(making)  # a launch that was given up is made use of by the next one
        return (_directory(task.user, reference.name, task.id),)

    async def _make(self, task: Task, reference: Reference, uid: int) -> None:
        rooms, number = self._workspaces.rooms, reference.revision
        async with rooms.open((task.user, reference.name)) as room:
            files = room.files
            await rooms.work(files.path, checkouts.make, files, task.id, number, uid)

    def finished(self, task: Task) -> None:
        """The task has ended: what it was given may go, what it wrote stays."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is not None:
            self._workspaces.collect_soon((task.user, reference.name))


def _meant(files: Files, reference: Reference) -> Revision:
    """What it names now. Raises NotFound."""
    if reference.tag:
        return tags.tagged(files, reference.tag)
    return files.revision(reference.revision) if reference.revision else files.index.newest()


def _directory(user: str, name: str, task: int) -> SharedDirectory:
    return SharedDirectory(f"workspaces/{user}/{name}/tasks/{task}")
