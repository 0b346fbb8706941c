"""Pins tasks to a revision of a workspace: resolves it at submission, and creates the directory of the task.

An unfinished task pins its revision. It runs in its own directory, which is created from exactly that revision before
the first run starts. Later pushes never change this directory.
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
from hai_backend.workspaces.files import WorkspaceFiles

_FIELD = "spec.workspace"


class WorkspacePins:
    """The pins of tasks.

    `rank_path` returns the path of a shared directory in ranks. `run_here` says that ranks run on this machine.
    """

    def __init__(
        self, workspaces: Workspaces, rank_path: PathInRank, *, run_here: bool = False
    ) -> None:
        self._workspaces = workspaces
        self._run_here = run_here
        self._rank_path = rank_path
        self._in_progress: dict[int, asyncio.Task[None]] = {}

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """Return the spec with a fixed revision, and a note for the timeline. Raises Invalid or Conflict."""
        reference = parse_reference(spec.spec.workspace)
        if reference is None:
            await self._require_directory(spec.spec.workspace)
            return spec, ""
        pinned = await self._resolve(identity, reference)
        return replace(spec, spec=replace(spec.spec, workspace=str(pinned))), f"on {pinned}"

    async def _require_directory(self, path: str) -> None:
        """Check the directory of a task that does not use a workspace. Raises Invalid."""
        if self._run_here and path and not await asyncio.to_thread(os.path.isdir, path):
            problem = f"{path} is not a directory on this machine, where tasks run: check the path"
            raise Invalid((Violation(_FIELD, problem),), reason="NO_SUCH_DIRECTORY")

    async def _resolve(self, identity: Identity, reference: Reference) -> Reference:
        try:
            async with self._workspaces.open(identity, reference.name) as workspace:
                run = self._workspaces.registry.run
                revision = await run(
                    workspace.files.path, _resolve_revision, workspace.files, reference
                )
        except HaiError as error:
            raise Invalid((Violation(_FIELD, str(error)),)) from error
        if not revision.number:
            problem = f"workspace {reference.name} has no revision yet; push first"
            raise Invalid((Violation(_FIELD, problem),))
        if not self._rank_path(_directory(identity.name, reference.name, 0)):
            raise Conflict(
                "tasks of this cluster do not see workspaces: an operator must set kubernetes.shared_volume",
                reason="WORKSPACES_NOT_SEEN",
            )
        return replace(reference, revision=revision.number, tag="")

    def path(self, task: Task) -> str:
        """Return the working directory of a task. Without a workspace it is the path that the task names."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is None:
            return task.spec.spec.workspace
        directory = self._rank_path(_directory(task.user, reference.name, task.id))
        return f"{directory}/{reference.folder}" if reference.folder else directory

    async def make_directory(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """Create the directory of a task before its ranks start. Return none without a workspace. Raises HaiError."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is None:
            return ()
        in_progress = self._in_progress.get(task.id)
        if in_progress is None:
            in_progress = asyncio.ensure_future(self._make_directory(task, reference, uid))
            self._in_progress[task.id] = in_progress
            in_progress.add_done_callback(lambda _: self._in_progress.pop(task.id, None))
        await asyncio.shield(in_progress)  # the next launch uses the result of a cancelled one
        return (_directory(task.user, reference.name, task.id),)

    async def _make_directory(self, task: Task, reference: Reference, uid: int) -> None:
        registry, number = self._workspaces.registry, reference.revision
        async with registry.open((task.user, reference.name)) as workspace:
            files = workspace.files
            await registry.run(files.path, checkouts.create, files, task.id, number, uid)

    def finished(self, task: Task) -> None:
        """Clean up after the end of a task: unchanged files are removed, and files that it wrote are kept."""
        reference = parse_reference(task.spec.spec.workspace)
        if reference is not None:
            self._workspaces.schedule_collection((task.user, reference.name))


def _resolve_revision(files: WorkspaceFiles, reference: Reference) -> Revision:
    """Return the revision that a reference names now. Raises NotFound."""
    if reference.tag:
        return tags.get_tagged(files, reference.tag)
    return (
        files.get_revision(reference.revision)
        if reference.revision
        else files.index.newest_revision()
    )


def _directory(user: str, name: str, task: int) -> SharedDirectory:
    return SharedDirectory(f"workspaces/{user}/{name}/tasks/{task}")
