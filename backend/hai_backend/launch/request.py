"""Requests to launch a run, which are built from a task, its owner and the operators' tables.

A request does not contain the nodes of the ranks. The image is the only text in it that a user writes freely, and it
must be a valid reference. The program, its parameters and its variables are not part of the request, because agents
get them from the server.
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
from hai_backend.domain.spec import BEFORE_LEAVING, JUPYTER, ServiceType
from hai_backend.domain.task import Rank, Task

_GB = 1 << 30
_CAPABILITY = "cap:"
_GROUP = "gid:"


class HostRight(StrEnum):
    """A privilege that a pod has on its node if its user has the right of the same name."""

    PRIVILEGED = "privileged"
    HOST_IPC = "host_ipc"
    HOST_PID = "host_pid"
    HOST_NETWORK = "host_network"


@dataclass(frozen=True, slots=True)
class RankResources:
    """Resources of one rank. A resource with the value 0 is neither requested nor limited.

    `mig` is the profile of a GPU slice (1g.10gb). If it is set, `gpus` is the number of such slices. If `whole_node` is
    set, no other task uses the node, and `cpus` and `memory_bytes` are all that the node can allocate to pods.
    """

    gpus: int = 0
    mig: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    rdma: int = 0
    whole_node: bool = False


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A port of rank 0 that is reachable from outside. If `node_port` is 0, the cluster chooses one."""

    name: str
    type: ServiceType
    port: int
    node_port: int = 0
    rewrite_uri: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to launch a run. It is the same for all ranks.

    `resources` has one entry per rank, or none if no resources are requested. A `uid` of 0 means the cluster's default,
    and a `gid` of 0 means the same number as the uid.
    """

    task_id: int = 0
    run: int = 0
    user: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()  # supplementary groups
    image: str = "default"
    pull_secret: str = ""
    resources: tuple[RankResources, ...] = ()
    shm_bytes: int = 0  # size of /dev/shm; if 0, half of the rank's memory
    mounts: tuple[Mount, ...] = ()
    shared: tuple[SharedDirectory, ...] = ()
    capabilities: tuple[str, ...] = ()
    host_rights: tuple[HostRight, ...] = ()
    services: tuple[ServiceRequest, ...] = ()
    priority: Priority = Priority.AUTO
    spot: bool = False
    # the longest time to acknowledge a suspend request and to save, if bytes are saved all the time
    grace_seconds: float = 10.0
    durable_before_leaving: bool = False  # checkpoints must not only be staged in memory


@dataclass(frozen=True, slots=True)
class Terms:
    """The data in the operators' tables (mounts, ports, images, groups) for one task."""

    mounts: tuple[Mount, ...] = ()
    node_ports: Mapping[str, int] = field(default_factory=dict)  # by the name of a tcp service
    image: str = ""  # the reference of a built-in image; if empty, that of the task
    pull_secret: str = ""
    packed: bool = False  # tasks share the nodes of the task's group
    durable: str = ""  # for tasks that do not say when their checkpoints must be on disk
    save_within_max: float = 0.0  # seconds for which tasks may save that declare less
    shared: tuple[SharedDirectory, ...] = ()  # directories that the platform itself mounts


def run_request(task: Task, user: User, terms: Terms, nodes: Mapping[str, Node]) -> RunRequest:
    """Return the request for the current run of a task.

    `user` must have all rights that are valid now, including those of its user groups.
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
        grace_seconds=options.ack_within + max(options.save_within, terms.save_within_max),
        durable_before_leaving=(options.durable or terms.durable) == BEFORE_LEAVING,
    )


def _right_arguments(rights: Iterable[str], prefix: str) -> tuple[str, ...]:
    """Return the arguments of the rights that begin with `prefix`."""
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
    """Return the services of a task, except JupyterLab.

    JupyterLab has no password, so it must be reachable only through the server's proxy.
    """
    return tuple(
        ServiceRequest(s.name, s.type, s.port, node_ports.get(s.name, 0), s.rewrite_uri)
        for s in task.spec.services
        if s.type is not ServiceType.LOCAL and s.name != JUPYTER
    )
