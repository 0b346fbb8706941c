"""Builds what checkpoints in the memory of nodes need: a directory for each task, and the pods that write them to disk.

A rank puts a checkpoint into memory and ends, so that its node is free. Another pod, the writer, runs on the node until
the checkpoint is on disk. It has the user and the volumes of the rank, but no GPUs and no requests.

The directory `staging_path` of a node has one directory for each task: HAI_STAGING_DIR is in it. An init container
creates it, and gives it to the user of the task. It is mounted as a subpath, so a task sees no directory of another.
"""

from __future__ import annotations

from typing import Any

from hai.task import env
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.manifests.checks import user_id
from hai_backend.launch.manifests.names import (
    CHECKPOINT_WRITER,
    CONTAINER,
    INSTANCE,
    NAME,
    Manifest,
    installation_labels,
    labels_of,
    writer_name,
)
from hai_backend.launch.manifests.security import init_security, staging_security
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest

_VOLUME, _PATH = "staging", "/hai/staging"
_KINDS_ON_DISK = ("hostPath", "nfs", "persistentVolumeClaim", "csi")
# A writer frees memory, so a node that is short of it must accept it.
_UNDER_PRESSURE = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}
_WRITE_SECONDS = 300  # after a drain has begun
# A user who can see the node's /dev/shm could have created the directory before. Directories that no task has used for
# a day are removed, because nothing else does that.
_CREATE = (
    f'test "$(stat -c %u {_PATH})" = 0 || {{ echo "staging_path does not belong to root" >&2; exit 1; }}; '
    f"find {_PATH} -mindepth 1 -maxdepth 1 -mmin +1440 -exec rmdir {{}} + 2>/dev/null; "
    'mkdir -p -m 700 "$1" && chown "$2" "$1"'
)


def is_staged(run: RunRequest, settings: ClusterSettings) -> bool:
    """Return whether the run puts checkpoints into the memory of its nodes."""
    return bool(settings.staging_path) and not run.durable_before_leaving


def staging_volumes(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """Return the volumes of a rank for staged checkpoints; empty if it stages none."""
    if not is_staged(run, settings):
        return []
    path = f"{settings.staging_path}/{installation_labels(settings)[INSTANCE]}"
    return [{"name": _VOLUME, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}]


def staging_mounts(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """Return the mounts of the program's container for staged checkpoints."""
    if not is_staged(run, settings):
        return []
    return [{"name": _VOLUME, "mountPath": _PATH, "subPath": str(run.task_id)}]


def staging_variables(
    rank: RankLaunch, settings: ClusterSettings, volumes: list[Manifest], mounts: list[Manifest]
) -> list[Manifest]:
    """Return the variables of the program's container, which has these mounts, for staged checkpoints."""
    if not is_staged(rank.run, settings):
        return []
    task = str(rank.key.task_id)
    variables = {
        env.STAGING_DIR: f"{_PATH}/{task}",
        env.STAGING_BYTES: str(settings.staging_bytes),
        env.STAGING_MACHINE: f"{rank.node}/{task}",
        env.STAGING_TARGETS: ":".join(_targets(volumes, mounts)),
    }
    return [{"name": name, "value": value} for name, value in variables.items()]


def staging_container(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """Return the init container that creates the directory of the task on the node; empty if it stages none."""
    if not is_staged(run, settings):
        return []
    uid = user_id(run, settings)
    container: Manifest = {
        "name": "staging",
        "image": settings.agent_image,
        "command": [
            *("/bin/sh", "-c", _CREATE, "staging"),
            *(f"{_PATH}/{run.task_id}", f"{uid}:{run.gid or uid}"),
        ],
        "volumeMounts": [{"name": _VOLUME, "mountPath": _PATH}],
        "imagePullPolicy": settings.pull_policy,
        "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
        "securityContext": staging_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [container]


def writer_pod(
    pod: Manifest, key: RankKey, settings: ClusterSettings, node_uid: str
) -> Manifest | None:
    """Return the manifest of the pod that writes the checkpoints of a rank, from the pod of the rank.

    Return None if the rank stages no checkpoints. The writer outlives all objects of the run. Its owner is the node,
    which has the checkpoints: `kubectl drain` refuses to evict pods without an owner.
    """
    spec = pod["spec"]
    if all(volume["name"] != _VOLUME for volume in spec["volumes"]):
        return None
    (container,) = [each for each in spec["containers"] if each["name"] == CONTAINER]
    volumes = [each for each in spec["volumes"] if each["name"] == _VOLUME or _is_on_disk(each)]
    names = {volume["name"] for volume in volumes}
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] in names]
    machine = [each for each in container["env"] if each["name"] == env.STAGING_MACHINE]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": writer_name(key),
            "namespace": settings.namespace,
            "labels": {**labels_of(pod), NAME: CHECKPOINT_WRITER},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": spec["nodeName"],
                    "uid": node_uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": spec["nodeName"],
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": _WRITE_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": spec["securityContext"],
            "tolerations": [*spec["tolerations"], _UNDER_PRESSURE],
            **_pull_secrets(settings),
            "containers": [_writer(mounts, machine, settings)],
            "volumes": volumes,
        },
    }


def _writer(
    mounts: list[Manifest], variables: list[Manifest], settings: ClusterSettings
) -> Manifest:
    return {
        "name": "writer",
        "image": settings.agent_image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["hai-checkpoint-writer", "--until-released", _PATH],
        "env": variables,
        "volumeMounts": mounts,
        "securityContext": init_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _pull_secrets(settings: ClusterSettings) -> Manifest:
    return {"imagePullSecrets": [{"name": settings.pull_secret}]} if settings.pull_secret else {}


def _targets(volumes: list[Manifest], mounts: list[Manifest]) -> list[str]:
    """Return the paths where a writer sees the same files as the program."""
    names = {volume["name"] for volume in volumes if _is_on_disk(volume)}
    return [m["mountPath"] for m in mounts if m["name"] in names and not m.get("readOnly")]


def _is_on_disk(volume: dict[str, Any]) -> bool:
    """Return whether a volume of a rank, which was mounted for the task, outlives the pod."""
    is_task_volume = volume["name"] == "shared" or volume["name"].startswith("mount-")
    return is_task_volume and any(kind in volume for kind in _KINDS_ON_DISK)
