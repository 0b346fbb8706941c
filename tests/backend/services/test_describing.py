"""What a launcher is told of a run: the rights of the owner's groups, and what the operators' tables say now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hai_backend.domain.mount import MountRow
from hai_backend.domain.port import Port
from hai_backend.domain.priority import Priority
from hai_backend.domain.registry import Registry
from hai_backend.domain.right import Grant
from hai_backend.domain.spec import ResourceSpec, ServiceSpec, ServiceType
from hai_backend.services.describing import Describing
from hai_backend.tasks import events as ev
from hai_backend.testing import a_spec


async def described(platform: Any) -> Any:
    spec = replace(
        a_spec("notebook"),
        resource=ResourceSpec(image="r.example/lab/a:1"),
        services=(ServiceSpec("ssh", ServiceType.TCP, 22),),
    )
    task = await platform.ledger.submit("ada", spec, "")
    task = await platform.ledger.apply(task.id, ev.RunPlaced(("n0",), Priority.NORMAL, "fits"))
    tell = Describing(platform.store, platform.directory, platform.cluster, platform.clock)
    return await tell(task)


async def test_what_the_tables_say_is_told(platform: Any) -> None:
    for record in (
        MountRow(("vision",), "/ws", "/srv/ws/{user.name}", id=1),
        Port(30_022, "ada", "notebook", "ssh"),
        Port(30_023, "bob", "notebook", "ssh"),
        Registry("r.example", pull_secret="of all"),
        Registry("r.example/lab", pull_secret="of the lab"),
    ):
        await platform.store.save_record(record)
    await platform.directory.grant(Grant("vision", True, "cap:IPC_LOCK"))
    await platform.directory.grant(Grant("ada", False, "host_ipc", platform.clock.now()))
    told = await described(platform)
    assert [(m.mount_path, m.source) for m in told.mounts] == [("/ws", "/srv/ws/ada")]
    assert [service.node_port for service in told.services] == [30_022]
    assert told.pull_secret == "of the lab"
    assert (told.capabilities, told.host_rights) == (("IPC_LOCK",), ())


async def test_without_tables_nothing_is_given(platform: Any) -> None:
    told = await described(platform)
    assert (told.mounts, told.pull_secret, told.capabilities) == ((), "", ())
    assert [service.node_port for service in told.services] == [0]
