"""Builds the pod of one rank. It is bound to its node and never restarted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hai_backend.launch.base import RankLaunch
from hai_backend.launch.manifests import agent, checkpoints, security
from hai_backend.launch.manifests.checks import image_of
from hai_backend.launch.manifests.names import (
    CONTAINER,
    FENCE_AFTER,
    Manifest,
    metadata,
    owner_name,
    pod_name,
)
from hai_backend.launch.manifests.resources import (
    container_resources,
    init_resources,
    memory_bytes,
)
from hai_backend.launch.manifests.security import capability_container, with_capabilities
from hai_backend.launch.manifests.settings import ClusterSettings, Toleration
from hai_backend.launch.manifests.volumes import shared_volumes, volumes
from hai_backend.launch.request import RankResources, RunRequest

_REPORT_SECONDS = 10  # after the task's time to save, the agent has so long to report the end
_UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MIB = 1 << 20


def pod(run: RunRequest, rank: RankLaunch, settings: ClusterSettings, owner_uid: str) -> Manifest:
    """Return the manifest of a rank's pod."""
    name, number = pod_name(rank.key), rank.key.rank
    meta = metadata(name, run, settings, owner_uid=owner_uid, rank=number)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "annotations": {FENCE_AFTER: f"{settings.fence_after:g}"}},
        "spec": _spec(run, rank, settings),
    }


def _spec(run: RunRequest, rank: RankLaunch, settings: ClusterSettings) -> Manifest:
    mount_volumes, volume_mounts = volumes(run.mounts, _shm_bytes(run, rank, settings))
    shared_volume_list, shared_mounts = shared_volumes(
        run.shared, settings.shared_volume, settings.shared_path
    )
    return {
        "nodeName": rank.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(run.grace_seconds) + _REPORT_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": pod_name(rank.key),
        "subdomain": owner_name(run.task_id, run.run),
        "securityContext": security.pod_security(run, settings),
        **security.node_namespaces(run),
        **_optional_fields(run, settings),
        "tolerations": list(_tolerations(settings)),
        "initContainers": [
            _init_container(run, rank, settings),
            *capability_container(run, settings),
            *checkpoints.staging_container(run, settings),
        ],
        "containers": [
            _container(
                run,
                rank,
                settings,
                [*shared_mounts, *volume_mounts, *checkpoints.staging_mounts(run, settings)],
                [*shared_volume_list, *mount_volumes],
            )
        ],
        "volumes": [
            *agent.agent_volumes(run, rank.key, settings),
            *shared_volume_list,
            *mount_volumes,
            *checkpoints.staging_volumes(run, settings),
        ],
    }


def _optional_fields(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """Return the fields that are set only if the operators have configured them."""
    level = "SPOT" if run.spot else run.priority.name
    secrets = dict.fromkeys(name for name in (settings.pull_secret, run.pull_secret) if name)
    made: Manifest = {
        "priorityClassName": settings.priority_classes.get(level),
        "runtimeClassName": settings.runtime_class,
        "imagePullSecrets": [{"name": name} for name in secrets],
    }
    return {key: value for key, value in made.items() if value}


def _init_container(run: RunRequest, rank: RankLaunch, settings: ClusterSettings) -> Manifest:
    return {
        **agent.init_container(run, settings),
        "imagePullPolicy": settings.pull_policy,
        "resources": init_resources(_resources(run, rank), settings),
        "securityContext": security.init_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _container(
    run: RunRequest,
    rank: RankLaunch,
    settings: ClusterSettings,
    volume_mounts: list[Manifest],
    volumes: list[Manifest],
) -> Manifest:
    return {
        "name": CONTAINER,
        "image": image_of(run, settings),
        "imagePullPolicy": settings.pull_policy,
        "command": with_capabilities(run, agent.command(rank.key)),
        "env": [
            _from_pod("POD_IP", "status.podIP"),
            _from_pod("NODE_NAME", "spec.nodeName"),
            *checkpoints.staging_variables(rank, settings, volumes, volume_mounts),
        ],
        "resources": container_resources(_resources(run, rank), settings),
        "volumeMounts": [*agent.agent_mounts(), *volume_mounts],
        "securityContext": security.container_security(run),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _resources(run: RunRequest, rank: RankLaunch) -> RankResources:
    return run.resources[rank.key.rank] if run.resources else RankResources()


def _shm_bytes(run: RunRequest, rank: RankLaunch, settings: ClusterSettings) -> int:
    half = memory_bytes(_resources(run, rank), settings) // 2 // _MIB * _MIB
    return run.shm_bytes or half or settings.shm_bytes


def _from_pod(name: str, field: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _tolerations(settings: ClusterSettings) -> Iterator[Manifest]:
    """Yield the tolerations of a pod.

    An unreachable node keeps its ranks until they are fenced. The default of Kubernetes is five minutes.
    """
    seconds = math.ceil(settings.fence_after)
    for key in _UNREACHABLE_TAINTS:
        yield _toleration(Toleration(key, effect="NoExecute", seconds=seconds))
    for toleration in settings.tolerations:
        yield _toleration(toleration)


def _toleration(source: Toleration) -> Manifest:
    made: Manifest = {"key": source.key, "operator": "Equal" if source.value else "Exists"}
    if source.value:
        made["value"] = source.value
    if source.effect:
        made["effect"] = source.effect
    if source.seconds is not None:
        made["tolerationSeconds"] = source.seconds
    return made
