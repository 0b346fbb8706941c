"""What a rank asks of its node, truly: what it gets is what it asked for, and nothing else is promised to others.

A part of a node is promised and limited alike. A whole node is what it offers to pods less a reserve for what else
runs there (DaemonSets), and at least half of it; cpu then has no limit, for there is nobody to protect from it.
"""

from __future__ import annotations

from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources

_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def container_resources(rank: RankResources, settings: ClusterSettings) -> Manifest:
    """`resources` of the program's container."""
    devices = _devices(rank, settings)
    usual = init_resources(rank, settings)
    return _without_empty(
        requests={**usual.get("requests", {}), **devices},
        limits={**usual.get("limits", {}), **devices},
    )


def init_resources(rank: RankResources, settings: ClusterSettings) -> Manifest:
    """`resources` of the init container: the same without devices; the two never run together, so it costs nothing."""
    cpu = {"cpu": _cpu(rank, settings)} if rank.cpus else {}
    memory = {"memory": amount(memory_bytes(rank, settings))} if rank.memory_bytes else {}
    return _without_empty(
        requests={**cpu, **memory}, limits=memory if rank.whole else {**cpu, **memory}
    )


def memory_bytes(rank: RankResources, settings: ClusterSettings) -> int:
    """What the rank may use; 0: no limit."""
    if not rank.whole:
        return rank.memory_bytes
    return max(rank.memory_bytes - settings.reserved_memory_bytes, rank.memory_bytes // 2)


def amount(count: int) -> str:
    """Bytes as Kubernetes writes them."""
    for size, unit in _UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _cpu(rank: RankResources, settings: ClusterSettings) -> str:
    thousandths = 1000 * rank.cpus
    if rank.whole:
        left = thousandths - round(1000 * settings.reserved_cpus)
        thousandths = max(left, thousandths // 2)
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
