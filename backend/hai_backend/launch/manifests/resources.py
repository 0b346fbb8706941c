"""Resource requests and limits of a rank.

For a part of a node, requests and limits are equal. A rank with a whole node requests the allocatable resources of the
node minus a reserve for other pods (DaemonSets), but at least half of them. It has no cpu limit, because no other task
runs on the node.
"""

from __future__ import annotations

from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources

_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def container_resources(rank: RankResources, settings: ClusterSettings) -> Manifest:
    """Return the `resources` of the program's container."""
    devices = _devices(rank, settings)
    base = init_resources(rank, settings)
    return _without_empty(
        requests={**base.get("requests", {}), **devices},
        limits={**base.get("limits", {}), **devices},
    )


def init_resources(rank: RankResources, settings: ClusterSettings) -> Manifest:
    """Return the `resources` of the init container: those of the program's container without devices.

    The two containers never run at the same time, so the pod needs no additional resources.
    """
    cpu = {"cpu": _cpu(rank, settings)} if rank.cpus else {}
    memory = {"memory": quantity(memory_bytes(rank, settings))} if rank.memory_bytes else {}
    return _without_empty(
        requests={**cpu, **memory}, limits=memory if rank.whole_node else {**cpu, **memory}
    )


def memory_bytes(rank: RankResources, settings: ClusterSettings) -> int:
    """Return the memory limit of the rank; 0 if it has none."""
    if not rank.whole_node:
        return rank.memory_bytes
    return max(rank.memory_bytes - settings.reserved_memory_bytes, rank.memory_bytes // 2)


def quantity(count: int) -> str:
    """Return a number of bytes as a Kubernetes quantity."""
    for size, unit in _UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _cpu(rank: RankResources, settings: ClusterSettings) -> str:
    thousandths = 1000 * rank.cpus
    if rank.whole_node:
        remaining = thousandths - round(1000 * settings.reserved_cpus)
        thousandths = max(remaining, thousandths // 2)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _devices(rank: RankResources, settings: ClusterSettings) -> Manifest:
    made: Manifest = {}
    if rank.gpus:
        name = settings.mig_resource + rank.mig if rank.mig else settings.gpu_resource
        made[name] = str(rank.gpus)
    if rank.rdma and settings.rdma_resource:
        made[settings.rdma_resource] = str(rank.rdma)
    return made


def _without_empty(**parts: Manifest) -> Manifest:
    return {name: part for name, part in parts.items() if part}
