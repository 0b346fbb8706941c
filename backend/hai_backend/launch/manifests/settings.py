"""What the operators of a cluster decide about pods; no user can change any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.domain.timing import FENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Toleration:
    """Of a taint, as in Kubernetes; an empty `value` tolerates every value of the key."""

    key: str
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The agent comes from `agent_image`, or, when `agent_path` is set, from that directory of each node."""

    namespace: str = "hai"
    instance: str = "local"  # name of this installation; pods of others are not ours
    server_addresses: tuple[str, ...] = ()  # where agents find the server
    ca_pem: str = ""  # text of the certificates that agents trust; empty: no TLS
    agent_image: str = ""
    agent_path: str = ""
    images: Mapping[str, str] = field(default_factory=dict)  # name -> reference
    pull_policy: str = "IfNotPresent"
    pull_secret: str = ""  # for agent_image and images
    default_uid: int = 0  # for users that have none; 0: their tasks are refused
    group_label: str = "hai.dev/group"  # of nodes; says their node group
    tolerations: tuple[Toleration, ...] = ()
    priority_classes: Mapping[str, str] = field(default_factory=dict)  # level, or SPOT -> class
    shared_path: str = ""  # of `shared` on the server
    shared_volume: str = ""  # what it is to pods, as pvc:claim; empty: they see nothing of it
    gpu_resource: str = "nvidia.com/gpu"
    mig_resource: str = "nvidia.com/mig-"  # the profile follows
    rdma_resource: str = ""  # as rdma/hca; empty: none is asked for
    reserved_cpus: float = 1.0  # of a whole node, left to what else runs there
    reserved_memory_bytes: int = 2 << 30
    shm_bytes: int = 8 << 30  # /dev/shm of ranks whose memory has no limit
    ingress_class: str = ""
    # of http services that nobody needs a login for; empty: none
    ingress_hosts: tuple[str, ...] = ()
    # that this is what operators want; else the proxy serves them
    ingress_without_login: bool = False
    ingress_tls_secret: str = ""
    seccomp: str = "RuntimeDefault"  # or the path of a profile on the nodes; empty: not set
    apparmor: str = ""  # as seccomp
    # /etc/group of an image adds no groups; needs containerd 2 or CRI-O 1.31
    strict_groups: bool = True
    separate_users: bool = True  # pods of one user are not reached from those of others
    runtime_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # more of them, for every object
    fence_after: float = (
        FENCE_SECONDS  # seconds without a sign of a node until its ranks count as gone
    )
    agent_heartbeat: float = 5.0  # seconds between two heartbeats of an agent
