"""What a pod may do to its node: nothing, but for what operators granted to its user by name.

Programs run as their user's uid, never as root, and can gain nothing over it: no capability but those granted (see
capabilities.py), no setuid, no token of the cluster, no group that an image's /etc/group names.
"""

from __future__ import annotations

from hai_backend.launch.manifests.checks import user_id
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import HostRight, RunRequest

_SHARED = {
    HostRight.HOST_IPC: "hostIPC",
    HostRight.HOST_PID: "hostPID",
    HostRight.HOST_NETWORK: "hostNetwork",
}
_RUNTIME_DEFAULT = "RuntimeDefault"


def pod_security(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """`securityContext` of the pod."""
    uid = user_id(run, settings)
    made: Manifest = {
        "runAsUser": uid,
        "runAsGroup": run.gid or uid,
        "runAsNonRoot": True,
        "supplementalGroups": list(run.groups),
    }
    if settings.strict_groups:
        made["supplementalGroupsPolicy"] = "Strict"
    if settings.seccomp:
        made["seccompProfile"] = _profile(settings.seccomp)
    if settings.apparmor:
        made["appArmorProfile"] = _profile(settings.apparmor)
    return made


def shared_with_node(run: RunRequest) -> Manifest:
    """Namespaces of the node that the pod is in, as keys of its spec."""
    made: Manifest = {key: True for right, key in _SHARED.items() if right in run.host_rights}
    if HostRight.HOST_NETWORK in run.host_rights:
        made["dnsPolicy"] = "ClusterFirstWithHostNet"
    return made


def container_security(run: RunRequest) -> Manifest:
    """`securityContext` of the program's container; Kubernetes wants a privileged one to be able to escalate.

    So must one with capabilities, for a moment: capabilities.py says why, and ends it.
    """
    privileged = HostRight.PRIVILEGED in run.host_rights
    capabilities: Manifest = {"drop": ["ALL"]}
    if run.capabilities:
        capabilities["add"] = list(run.capabilities)
    escalates = privileged or bool(run.capabilities)
    made: Manifest = {"allowPrivilegeEscalation": escalates, "capabilities": capabilities}
    return {**made, "privileged": True} if privileged else made


def init_security() -> Manifest:
    """`securityContext` of the init container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def granting_security() -> Manifest:
    """`securityContext` of the one container that is root: ours, without anything of the task's, for one command."""
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SETFCAP"]},
    }


def _profile(text: str) -> Manifest:
    if text == _RUNTIME_DEFAULT:
        return {"type": _RUNTIME_DEFAULT}
    return {"type": "Localhost", "localhostProfile": text}
