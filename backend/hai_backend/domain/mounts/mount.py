"""Storage in tasks: the rows that operators write, and the mounts that a rank gets from them.

mounts/mount_rules.py computes mounts from rows. The texts of a row are templates (mounts/template.py), and its
conditions are written in a small language (mounts/condition.py). Both are checked when the row is written.

The meaning of `source` depends on the kind:

hostPath    a path of the node; users must not be able to write to its parents, because the node follows links
nfs         server:/path
pvc         claim[:subpath]
configMap   name[:subpath]
csi         the driver; `attributes` are its volumeAttributes (Lustre, CephFS, …)
tmpfs       the size: 512Mi, 8Gi
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MountKind(StrEnum):
    HOST_PATH = "hostPath"
    NFS = "nfs"
    PVC = "pvc"
    CONFIG_MAP = "configMap"
    CSI = "csi"
    TMPFS = "tmpfs"


class HostPathType(StrEnum):
    """What must exist at a path of the node, as in Kubernetes. ANY means that the node does not check the path."""

    ANY = ""
    DIRECTORY = "Directory"
    DIRECTORY_OR_CREATE = "DirectoryOrCreate"
    FILE = "File"
    FILE_OR_CREATE = "FileOrCreate"
    SOCKET = "Socket"


class MountAction(StrEnum):
    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Mount:
    """Storage that a rank sees at `mount_path`. All texts are without placeholders."""

    mount_path: str
    source: str
    kind: MountKind = MountKind.HOST_PATH
    host_type: HostPathType = HostPathType.ANY
    attributes: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class MountRow:
    """A rule of the operators: whose tasks it applies to, under which conditions, and what it adds or removes.

    `owners` are users, user groups, roles, or `public`. A row that removes mounts selects them by `mount_path` and,
    unless it is empty, by `source`; a `*` at the end of either matches any suffix. The row applies to tasks whose
    mount code, which users choose, has one of the bits of `mount_code`, or to all tasks if it is 0.
    """

    owners: tuple[str, ...]
    mount_path: str
    source: str = ""
    id: int = 0
    action: MountAction = MountAction.ADD
    kind: MountKind = MountKind.HOST_PATH
    host_type: HostPathType = HostPathType.ANY
    attributes: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    read_only: bool = True
    mount_code: int = 0
