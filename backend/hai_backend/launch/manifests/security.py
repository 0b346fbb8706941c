"""Security contexts: a pod has no privileges on its node, except those that operators granted to its user by name.

Programs run as their user's uid, never as root, and cannot gain privileges: no setuid, no token of the cluster, no
group from the /etc/group of an image, and no capability but the granted ones.

How a granted capability reaches the program: Kubernetes allows it, but a process of a normal user keeps only
ambient capabilities over exec, and only a process that has a capability can make it ambient. So an init container
of ours gives the granted ones to a static program, setpriv of busybox, as file capabilities. That program is the
first of the task's container. It makes them ambient, forbids new privileges, and becomes the agent. Before that,
nothing of the task's image has run, no loader and no shell, so `allowPrivilegeEscalation` is safe; after that,
setuid and file capabilities have no effect.
"""

from __future__ import annotations

from hai_backend.launch.manifests.checks import user_id
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import HostRight, RunRequest

_NODE_NAMESPACES = {
    HostRight.HOST_IPC: "hostIPC",
    HostRight.HOST_PID: "hostPID",
    HostRight.HOST_NETWORK: "hostNetwork",
}
_RUNTIME_DEFAULT = "RuntimeDefault"
_SETCAP = "/usr/sbin/setcap"
_BUSYBOX = "/hai/agent/bin/busybox"


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


def node_namespaces(run: RunRequest) -> Manifest:
    """Namespaces that the pod shares with its node, as keys of its spec."""
    made: Manifest = {
        key: True for right, key in _NODE_NAMESPACES.items() if right in run.host_rights
    }
    if HostRight.HOST_NETWORK in run.host_rights:
        made["dnsPolicy"] = "ClusterFirstWithHostNet"
    return made


def container_security(run: RunRequest) -> Manifest:
    """`securityContext` of the program's container.

    Kubernetes requires `allowPrivilegeEscalation` for a privileged container. With granted capabilities, it is needed
    until setpriv has run (see above).
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


def _capability_security() -> Manifest:
    """`securityContext` of our only container that runs as root: for one command, with nothing of the task's image."""
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SETFCAP"]},
    }


def capability_container(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """The init container that follows the agent's; none if nothing is granted."""
    if not run.capabilities:
        return []
    names = ",".join(f"cap_{name.lower()}" for name in run.capabilities)
    container: Manifest = {
        "name": "capabilities",
        "image": settings.agent_image,
        "command": [_SETCAP, f"{names}=ep", _BUSYBOX],
        "volumeMounts": [{"name": "agent", "mountPath": "/hai/agent"}],
        "imagePullPolicy": settings.pull_policy,
        "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
        "securityContext": _capability_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [container]


def with_capabilities(run: RunRequest, command: list[str]) -> list[str]:
    """The command of the task's container. Only privileged programs may gain further privileges."""
    if not run.capabilities:
        return command
    names = ",".join(f"+{name.lower()}" for name in run.capabilities)
    granted = [f"--inh-caps={names}", f"--ambient-caps={names}"]
    no_new_privileges = [] if HostRight.PRIVILEGED in run.host_rights else ["--nnp"]
    return [_BUSYBOX, "setpriv", *granted, *no_new_privileges, "--", *command]


def _profile(text: str) -> Manifest:
    if text == _RUNTIME_DEFAULT:
        return {"type": _RUNTIME_DEFAULT}
    return {"type": "Localhost", "localhostProfile": text}
