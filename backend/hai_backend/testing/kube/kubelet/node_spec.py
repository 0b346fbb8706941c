"""A node as tests describe it, and as it describes itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.body import Body


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to be made."""

    name: str
    cpu: str = "64"
    memory: str = "256Gi"
    gpus: int = 8
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)  # other resources, such as rdma/hca

    def capacity(self) -> Body:
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), **gpus, **self.more}


def first_status(name: str, capacity: Body) -> Body:
    """What a node says of itself when it registers."""
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": name},
    ]
    info = dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), "")
    info |= {"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "fake://1", "osImage": "fake"}
    info |= {"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "fake"}
    return {"capacity": capacity, "allocatable": capacity, "addresses": addresses, "nodeInfo": info}


def pressure(kind: str) -> Body:
    """A condition that is well."""
    return {"type": kind, "status": "False", "reason": "KubeletHasSufficient", "message": "enough"}
