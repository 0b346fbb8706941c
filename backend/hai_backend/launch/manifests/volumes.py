"""Builds the volumes and mounts of a pod. Volumes are named by number, so that no text of a user becomes a name.

The volume `shared` is never mounted completely: each directory of it is a subpath.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hai_backend.domain.mounts.mount import HostPathType, Mount, MountKind
from hai_backend.domain.mounts.paths import SHARED_MEMORY
from hai_backend.domain.mounts.sources import parse_size, split_source
from hai_backend.domain.shared_dirs import SharedDirectory, parse_volume
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.resources import quantity

_SHARED = "shared"
_SUBPATHS = (MountKind.PVC, MountKind.CONFIG_MAP)


def volumes(mounts: Sequence[Mount], shm_bytes: int) -> tuple[list[Manifest], list[Manifest]]:
    """Return the `volumes` of the pod and the `volumeMounts` of its program, for the mounts and for /dev/shm.

    `shm_bytes` is the size of /dev/shm.
    """
    made = [{"name": f"mount-{i}", **_SOURCES[m.kind](m)} for i, m in enumerate(mounts)]
    mounts_of_container = [_volume_mount(f"mount-{i}", mount) for i, mount in enumerate(mounts)]
    if all(mount.mount_path != SHARED_MEMORY for mount in mounts):
        made.append({"name": "shm", **_memory(shm_bytes)})
        mounts_of_container.append({"name": "shm", "mountPath": SHARED_MEMORY})
    return made, mounts_of_container


def shared_volumes(
    directories: Sequence[SharedDirectory], volume: str, path: str
) -> tuple[list[Manifest], list[Manifest]]:
    """Return the `volumes` and `volumeMounts` for directories of `shared`. `path` is that of `shared` on the server.

    Both are empty if there is no volume or no directory.
    """
    if not volume or not directories:
        return [], []
    kind, source = parse_volume(volume)
    mount = Mount(_SHARED, source, kind, read_only=False)
    subpath = _volume_mount(_SHARED, mount).get("subPath", "")
    mounts_of_container = [_shared_mount(directory, path, subpath) for directory in directories]
    return [{"name": _SHARED, **_SOURCES[kind](mount)}], mounts_of_container


def _shared_mount(directory: SharedDirectory, path: str, subpath: str) -> Manifest:
    below = f"{subpath}/{directory.below}" if subpath else directory.below
    made: Manifest = {"name": _SHARED, "mountPath": f"{path}/{directory.below}", "subPath": below}
    return {**made, "readOnly": True} if directory.read_only else made


def _volume_mount(name: str, mount: Mount) -> Manifest:
    made: Manifest = {"name": name, "mountPath": mount.mount_path}
    if mount.kind in _SUBPATHS and (path := split_source(mount.source)[1]):
        made["subPath"] = path
    if mount.read_only:
        made["readOnly"] = True
    return made


def _host_path(mount: Mount) -> Manifest:
    kind = {} if mount.host_type is HostPathType.ANY else {"type": mount.host_type.value}
    return {"hostPath": {"path": mount.source, **kind}}


def _nfs(mount: Mount) -> Manifest:
    server, path = split_source(mount.source)
    return {"nfs": {"server": server, "path": path, **_read_only(mount)}}


def _claim(mount: Mount) -> Manifest:
    claim = split_source(mount.source)[0]
    return {"persistentVolumeClaim": {"claimName": claim, **_read_only(mount)}}


def _config_map(mount: Mount) -> Manifest:
    return {"configMap": {"name": split_source(mount.source)[0]}}


def _csi(mount: Mount) -> Manifest:
    made: Manifest = {"driver": mount.source, **_read_only(mount)}
    if mount.attributes:
        made["volumeAttributes"] = dict(mount.attributes)
    return {"csi": made}


def _tmpfs(mount: Mount) -> Manifest:
    return _memory(parse_size(mount.source))


def _memory(size: int) -> Manifest:
    return {"emptyDir": {"medium": "Memory", "sizeLimit": quantity(size)}}


def _read_only(mount: Mount) -> Manifest:
    return {"readOnly": True} if mount.read_only else {}


_SOURCES: Mapping[MountKind, Callable[[Mount], Manifest]] = {
    MountKind.HOST_PATH: _host_path,
    MountKind.NFS: _nfs,
    MountKind.PVC: _claim,
    MountKind.CONFIG_MAP: _config_map,
    MountKind.CSI: _csi,
    MountKind.TMPFS: _tmpfs,
}
