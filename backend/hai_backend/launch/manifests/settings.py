"""The operators' settings for pods. Users cannot change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.domain.timing import FENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration as in Kubernetes. An empty `value` tolerates every value of the key."""

    key: str
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings that determine how pods are built.

    The agent is copied from `agent_image`. If `agent_path` is set, that directory of each node is used instead.
    """

    namespace: str = "hai"
    # name of this installation, which distinguishes its objects from those of others
    instance: str = "local"
    server_addresses: tuple[str, ...] = ()  # the addresses at which agents reach the server
    ca_pem: str = ""  # the certificates that agents trust, as PEM; if empty, no TLS
    agent_image: str = ""
    agent_path: str = ""
    images: Mapping[str, str] = field(default_factory=dict)  # name of an image -> reference
    pull_policy: str = "IfNotPresent"
    pull_secret: str = ""  # the pull secret for agent_image and images
    default_uid: int = 0  # the uid for users without one; if 0, their tasks are refused
    group_label: str = "hai.dev/group"  # the label whose value is a node's group
    tolerations: tuple[Toleration, ...] = ()
    # priority level or SPOT -> priority class
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    shared_path: str = ""  # the path of `shared` on the server
    # the volume of `shared` in pods, for example pvc:claim; if empty, it is not mounted
    shared_volume: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    mig_resource: str = "nvidia.com/mig-"  # the prefix of the name; the profile follows
    rdma_resource: str = ""  # for example rdma/hca; if empty, not requested
    reserved_cpus: float = 1.0  # the part of a whole node for other pods
    reserved_memory_bytes: int = 2 << 30
    shm_bytes: int = 8 << 30  # size of /dev/shm for ranks whose memory has no limit
    # a directory of each node, in memory, for checkpoints that are not yet on disk; if empty, they are written directly
    staging_path: str = ""
    staging_bytes: int = (
        0  # limit for the checkpoints of a rank there; if 0, only the memory limits them
    )
    ingress_class: str = ""
    # hosts of http services without a login; if empty, there is no Ingress
    ingress_hosts: tuple[str, ...] = ()
    # confirms that the operators want services without a login
    ingress_without_login: bool = False
    ingress_tls_secret: str = ""
    seccomp: str = "RuntimeDefault"  # or the path of a profile on the nodes; if empty, not set
    apparmor: str = ""  # the same values as for seccomp
    # the /etc/group of an image adds no groups; this requires containerd 2 or CRI-O 1.31
    strict_groups: bool = True
    separate_users: bool = True  # pods of other users cannot connect to a user's pods
    runtime_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # additional labels of every object
    # seconds without a sign of a node until its ranks count as terminated
    fence_after: float = FENCE_SECONDS
    agent_heartbeat: float = 5.0  # seconds between two heartbeats of an agent
