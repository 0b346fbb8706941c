"""The request for a launcher follows the current mounts, ports and registries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hai_backend.api.tasks.launch_context import LaunchContext
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import User
from hai_backend.domain.catalog.image import Registry
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.mounts.mount import MountKind, MountRow
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import SharedDirectory
from hai_backend.domain.spec import ServiceSpec, ServiceType
from hai_backend.launch.request import RankResources
from hai_backend.launch.shared_dirs import SharedDirectories
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from hai_backend.store.memory.store import MemoryStore
from hai_backend.testing import ManualClock
from tests.support.builders import a_task


class Two:
    """A cluster with a packed group."""

    def nodes(self) -> dict[str, Node]:
        return {"n0": Node("n0", gpus=8, cpus=64, memory_bytes=256 << 30)}

    def groups(self) -> dict[str, Group]:
        return {"default": Group("default", packed=True)}


async def test_run_has_the_mounts_ports_and_secrets_of_its_owner(tmp_path: Path) -> None:
    store = MemoryStore()
    directory = Directory(store)
    await store.save_user(User("ada", uid=1234, rights=("cap:IPC_LOCK",)))
    await directory.load()
    rule = MountRow(("public",), "/data", source="/srv/data", kind=MountKind.HOST_PATH, id=1)
    for record in (
        rule,
        Port(30_001, "ada", "t", "ssh"),
        Port(30_002, "bob", "t", "ssh"),
        Registry("r.io", pull_secret="all"),
        Registry("r.io/team", pull_secret="team"),
    ):
        await store.save_record(record)
    task = a_task()
    resource = replace(task.spec.resource, image="r.io/team/train:1", gpu=2, cpu=4, memory=16)
    services = (ServiceSpec("ssh", ServiceType.TCP, 22),)
    task = replace(task, spec=replace(task.spec, resource=resource, services=services))
    placed = step(task, ev.RunPlaced(("n0",), Priority.NORMAL, "free"), 1.0).task
    shared = SharedDirectories(tmp_path, {})
    describing = LaunchContext(
        store,
        directory,
        Two(),  # type: ignore[arg-type]
        ManualClock(),
        shared,
        tmp_path / "environments",
    )
    request = await describing(placed)
    assert [mount.mount_path for mount in request.mounts] == ["/data"]
    assert request.shared == (SharedDirectory(f"checkpoints/{task.id}"),)
    assert (tmp_path / "checkpoints" / str(task.id)).is_dir()
    assert [service.node_port for service in request.services] == [30_001]
    assert (request.uid, request.capabilities) == (1234, ("IPC_LOCK",))
    assert (request.image, request.pull_secret) == ("r.io/team/train:1", "team")
    assert request.resources == (RankResources(2, "", 4, 16 << 30),)
