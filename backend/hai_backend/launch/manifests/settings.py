"""The operators' settings for pods; users cannot change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.domain.timing import FENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration as in Kubernetes; an empty `value` tolerates every value of the key."""

    key: str
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The agent comes from `agent_image`, or, when `agent_path` is set, from that directory of each node."""

    namespace: str = "hai"
    instance: str = "local"  # name of this installation; tells its objects from others
    server_addresses: tuple[str, ...] = ()  # where agents find the server
    ca_pem: str = ""  # text of the certificates that agents trust; empty: no TLS
    agent_image: str = ""
    agent_path: str = ""
    images: Mapping[str, str] = field(default_factory=dict)  # name -> reference
    pull_policy: str = "IfNotPresent"
    pull_secret: str = ""  # for agent_image and images
    default_uid: int = 0  # for users without a uid; 0: their tasks are refused
    group_label: str = "hai.dev/group"  # label of nodes that names their node group
    tolerations: tuple[Toleration, ...] = ()
    priority_classes: Mapping[str, str] = field(default_factory=dict)  # level, or SPOT -> class
    shared_path: str = ""  # of `shared` on the server
    shared_volume: str = ""  # its volume in pods, as pvc:claim; empty: pods do not mount it
    gpu_resource: str = "nvidia.com/gpu"
    mig_resource: str = "nvidia.com/mig-"  # the profile follows
    rdma_resource: str = ""  # as rdma/hca; empty: not requested
    reserved_cpus: float = 1.0  # of a whole node, for other pods
    reserved_memory_bytes: int = 2 << 30
    shm_bytes: int = 8 << 30  # /dev/shm of ranks whose memory has no limit
    ingress_class: str = ""
    # hosts of http services without a login; empty: no ingress
    ingress_hosts: tuple[str, ...] = ()
    # confirms that services without a login are wanted
    ingress_without_login: bool = False
    ingress_tls_secret: str = ""
    seccomp: str = "RuntimeDefault"  # or the path of a profile on the nodes; empty: not set
    apparmor: str = ""  # as seccomp
    # /etc/group of an image adds no groups; needs containerd 2 or CRI-O 1.31
    strict_groups: bool = True
    separate_users: bool = True  # pods of other users cannot connect to a user's pods
    runtime_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # additional labels of every object
    fence_after: float = (
        FENCE_SECONDS  # seconds without a sign of a node until its ranks count as gone
    )
    agent_heartbeat: float = 5.0  # seconds between two heartbeats of an agent
