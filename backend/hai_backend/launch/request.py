"""What a launcher must know about a run, except on which nodes: built from a task, its owner and the operators' tables.

The image is the only text here that a user writes freely, and it must be a valid reference. The program, its parameters
and variables are not part of it: agents get them from the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_backend.domain.accounts.user import User
from hai_backend.domain.mounts.mount import Mount
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import SharedDirectory
from hai_backend.domain.spec import JUPYTER, ServiceType
from hai_backend.domain.task import Rank, Task

_GB = 1 << 30
_CAPABILITY = "cap:"
_GROUP = "gid:"


class HostRight(StrEnum):
    """What a pod may share with its node, if its user has the right of that name."""

    PRIVILEGED = "privileged"
    HOST_IPC = "host_ipc"
    HOST_PID = "host_pid"
    HOST_NETWORK = "host_network"


@dataclass(frozen=True, slots=True)
class RankResources:
    """Resources of one rank; 0: neither requested nor limited.

    `mig` is the profile of a GPU slice (1g.10gb); `gpus` then counts such slices. With `whole_node`, no other task uses
    the node, and `cpus` and `memory_bytes` are all that the node offers to pods.
    """

    gpus: int = 0
    mig: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    rdma: int = 0
    whole_node: bool = False


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A port of rank 0 that is reachable from outside; `node_port` 0: the cluster chooses."""

    name: str
    type: ServiceType
    port: int
    node_port: int = 0
    rewrite_uri: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The same for all ranks of a run, except `resources`, which has one entry per rank (empty: no requests).

    uid 0: the cluster's default; gid 0: the same as the uid.
    """

    task_id: int = 0
    run: int = 0
    user: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()  # supplementary
    image: str = "default"
    pull_secret: str = ""
    resources: tuple[RankResources, ...] = ()
    shm_bytes: int = 0  # 0: half of the rank's memory
    mounts: tuple[Mount, ...] = ()
    shared: tuple[SharedDirectory, ...] = ()
    capabilities: tuple[str, ...] = ()
    host_rights: tuple[HostRight, ...] = ()
    services: tuple[ServiceRequest, ...] = ()
    priority: Priority = Priority.AUTO
    spot: bool = False
    grace_seconds: float = 10.0  # to acknowledge a suspend and to save


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operators' tables (mounts, ports, images, groups) say about one task."""

    mounts: tuple[Mount, ...] = ()
    node_ports: Mapping[str, int] = field(default_factory=dict)  # by name of a tcp service
    image: str = ""  # what a built-in image's name stands for; empty: as the task says
    pull_secret: str = ""
    packed: bool = False  # nodes of the task's group are shared
    shared: tuple[SharedDirectory, ...] = ()  # the platform's own


def run_request(task: Task, user: User, terms: Terms, nodes: Mapping[str, Node]) -> RunRequest:
    """The request for the current run of a task. `user` has all rights that are valid now, including those of
    groups.
    """
    assert task.run is not None
    options, resource = task.spec.options, task.spec.resource
    return RunRequest(
        task_id=task.id,
        run=task.run.number,
        user=user.name,
        uid=user.uid,
        gid=user.uid,
        groups=_linux_groups(user.rights),
        image=terms.image or resource.image,
        pull_secret=terms.pull_secret,
        resources=tuple(_resources(task, r, nodes.get(r.node), terms) for r in task.run.ranks),
        mounts=terms.mounts,
        shared=terms.shared,
        capabilities=_right_arguments(user.rights, _CAPABILITY),
        host_rights=tuple(right for right in HostRight if right in user.rights),
        services=_services(task, terms.node_ports),
        priority=task.run.priority,
        spot=resource.is_spot,
        grace_seconds=options.ack_within + options.save_within,
    )


def _right_arguments(rights: Iterable[str], prefix: str) -> tuple[str, ...]:
    """The arguments of the rights that begin with `prefix`."""
    return tuple(sorted({r.removeprefix(prefix) for r in rights if r.startswith(prefix)}))


def _linux_groups(rights: Iterable[str]) -> tuple[int, ...]:
    named = _right_arguments(rights, _GROUP)
    return tuple(sorted(int(gid) for gid in named if gid.isascii() and gid.isdecimal()))


def _resources(task: Task, rank: Rank, node: Node | None, terms: Terms) -> RankResources:
    requested = task.spec.resource
    node = node or Node(rank.node)
    if terms.packed and (requested.gpu or requested.cpu or requested.memory):
        mig = node.mig if requested.gpu else ""
        return RankResources(requested.gpu, mig, requested.cpu, requested.memory * _GB)
    gpus = 0 if node.gpus_simulated else node.gpus
    return RankResources(gpus, node.mig, node.cpus, node.memory_bytes, rdma=1, whole_node=True)


def _services(task: Task, node_ports: Mapping[str, int]) -> tuple[ServiceRequest, ...]:
    """Without JupyterLab: it has no password, so only the server's proxy may lead to it."""
    return tuple(
        ServiceRequest(s.name, s.type, s.port, node_ports.get(s.name, 0), s.rewrite_uri)
        for s in task.spec.services
        if s.type is not ServiceType.LOCAL and s.name != JUPYTER
    )
