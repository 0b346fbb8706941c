"""Builds the request for a launcher from a task, its owner, and the mounts, registries and ports of operators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from hai_backend.api.protocols import Cluster
from hai_backend.api.storage.storage import MountRules
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.catalog.image import Registry, parse_image, registry_of
from hai_backend.domain.catalog.port import Port, ports_of_task
from hai_backend.domain.shared_dirs import SharedDirectory, checkpoints_of, container_of
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task
from hai_backend.launch.request import RunRequest, Terms, run_request
from hai_backend.launch.shared_dirs import SharedDirectories
from hai_backend.store.base import Store


class LaunchContext:
    """Makes the request for each launch of a run, from the state at that time."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        cluster: Cluster,
        clock: Clock,
        shared: SharedDirectories,
        environments: Path,
        workspace_pins: WorkspacePins | None = None,
        durable: str = "",
        save_within_max: float = 0.0,
    ) -> None:
        self._store = store
        self._directory = directory
        self._storage = MountRules(store, directory)
        self._cluster = cluster
        self._clock = clock
        self._shared = shared
        self._environments = environments
        self._workspace_pins = workspace_pins
        self._durable = durable
        self._save_within_max = save_within_max

    async def __call__(self, task: Task) -> RunRequest:
        """Return the request for the run of a task. Raises Invalid for contradictory mounts."""
        owner, resource = self._directory.user(task.user), task.spec.resource
        user = self._directory.with_current_rights(owner, self._clock.now())
        mounts, _ = await self._storage.mounts(task.user, task)
        group = self._cluster.groups().get(resource.group)
        terms = Terms(
            mounts=mounts,
            shared=(
                *await self._make_task_directories(task, owner.uid),
                *await self._make_workspace(task, owner.uid),
                *await self._make_environments(task.user, owner.uid),
            ),
            node_ports=await self._node_ports(task),
            pull_secret=await self._pull_secret(resource.image),
            packed=group is not None and group.packed,
            durable=self._durable,
            save_within_max=self._save_within_max,
        )
        return run_request(task, user, terms, self._cluster.nodes())

    async def _make_task_directories(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """Make the directories of checkpoints and of the dev container before the ranks start."""
        directories = [checkpoints_of(task.id)]
        if task.spec.task_type is TaskType.JUPYTER:
            directories.append(container_of(task.id))
        for directory in directories:
            await asyncio.to_thread(self._shared.make, directory, uid, uid)
        return tuple(directories)

    async def _make_environments(self, user: str, uid: int) -> tuple[SharedDirectory, ...]:
        """Make the directories of all environments, which are read-only, and of those of the user."""
        directories = self._shared.environments(self._environments, user)
        for directory in directories:
            await asyncio.to_thread(self._shared.make, directory, uid, uid)
        return directories

    async def _make_workspace(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """Make the directory with the workspace revision that the task is pinned to."""
        return (
            ()
            if self._workspace_pins is None
            else await self._workspace_pins.make_directory(task, uid)
        )

    async def _node_ports(self, task: Task) -> Mapping[str, int]:
        ports = await self._store.records(Port, user=task.user, task_name=task.spec.name)
        return ports_of_task(ports, task.user, task.spec.name)

    async def _pull_secret(self, image: str) -> str:
        """Return the secret of the registry with the longest prefix of the image."""
        if "/" not in image:
            return ""
        return registry_of(parse_image(image), await self._store.records(Registry)).pull_secret
