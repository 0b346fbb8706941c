"""What a launcher is told of a run: from the task, its owner, and the tables of the operators as they are now."""

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
    """Called with the task for each launch of its run."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        cluster: Cluster,
        clock: Clock,
        shared: SharedDirectories,
        environments: Path,
        pins: WorkspacePins | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._storage = MountRules(store, directory)
        self._cluster = cluster
        self._clock = clock
        self._shared = shared
        self._environments = environments
        self._pins = pins

    async def __call__(self, task: Task) -> RunRequest:
        """Raises Invalid when the mounts that the tables give the task cannot be."""
        owner, resource = self._directory.user(task.user), task.spec.resource
        user = self._directory.as_allowed(owner, self._clock.now())
        mounts, _ = await self._storage.mounts(task.user, task)
        group = self._cluster.groups().get(resource.group)
        terms = Terms(
            mounts=mounts,
            shared=(
                *await self._made(task, owner.uid),
                *await self._pinned(task, owner.uid),
                *await self._lent(task.user, owner.uid),
            ),
            node_ports=await self._node_ports(task),
            pull_secret=await self._pull_secret(resource.image),
            packed=group is not None and group.packed,
        )
        return run_request(task, user, terms, self._cluster.nodes())

    async def _made(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """The platform's directories in the task, which are there before its ranks are."""
        directories = [checkpoints_of(task.id)]
        if task.spec.task_type is TaskType.JUPYTER:
            directories.append(container_of(task.id))
        for directory in directories:
            await asyncio.to_thread(self._shared.make, directory, uid, uid)
        return tuple(directories)

    async def _lent(self, user: str, uid: int) -> tuple[SharedDirectory, ...]:
        """Everybody's environments to read, and the user's own."""
        directories = self._shared.environments(self._environments, user)
        for directory in directories:
            await asyncio.to_thread(self._shared.make, directory, uid, uid)
        return directories

    async def _pinned(self, task: Task, uid: int) -> tuple[SharedDirectory, ...]:
        """The task's own tree of the revision that it runs on."""
        return () if self._pins is None else await self._pins.make_directory(task, uid)

    async def _node_ports(self, task: Task) -> Mapping[str, int]:
        ports = await self._store.records(Port, user=task.user, task_name=task.spec.name)
        return ports_of_task(ports, task.user, task.spec.name)

    async def _pull_secret(self, image: str) -> str:
        """Of the registry whose prefix fits best."""
        if "/" not in image:
            return ""
        return registry_of(parse_image(image), await self._store.records(Registry)).pull_secret
