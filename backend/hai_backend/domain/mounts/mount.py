"""Storage in tasks: the rows that operators write, and the mounts that a rank gets from them.

How rows become mounts: mounts/rules.py. The texts of a row are templates (mounts/template.py), its conditions a small
language (mounts/condition.py); both are checked when the row is written.

What `source` says, by kind:

hostPath    a path of the node; its parents must not be writable by users, for the node follows their links
nfs         server:/path
pvc         claim[:subpath]
configMap   name[:subpath]
csi         driver; `attributes` are its volumeAttributes (Lustre, CephFS, …)
tmpfs       size: 512Mi, 8Gi
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
    """What must exist at a path of the node, as in Kubernetes; ANY: not checked."""

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
    """Storage that a rank sees at `mount_path`; templates are filled in."""

    mount_path: str
    source: str
    kind: MountKind = MountKind.HOST_PATH
    host_type: HostPathType = HostPathType.ANY
    attributes: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class MountRow:
    """A rule of the operators: whose tasks it applies to, under which conditions, and what it adds or removes.

    `owners` are users, user groups, roles, or `public`. A row that removes selects mounts by `mount_path` and,
    unless it is empty, `source`; a `*` at the end of either matches any suffix. `mount_code`: the row applies to
    tasks whose mount code, which users choose, has one of these bits; 0: to all.
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
