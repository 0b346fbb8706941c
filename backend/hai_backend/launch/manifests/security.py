"""Security contexts. A pod has no privileges on its node, except those that operators have granted to its user.

Programs run with the uid of their user, never as root. They cannot gain privileges: setuid has no effect, and they have
no service account token, no groups from the /etc/group of an image, and no capabilities except the granted ones.

A granted capability reaches the program as follows. A process that does not run as root keeps only its ambient
capabilities when it calls exec, and only a process that has a capability can make it ambient. Kubernetes adds the
capabilities to the container, but does not make them ambient. So our init container gives the granted ones, as file
capabilities, to a static program: setpriv of busybox. This program is the first in the task's container. It makes them
ambient, sets no_new_privs (except for privileged programs), and executes the agent. Until then, no code of the task's
image runs, not even a loader or a shell, so `allowPrivilegeEscalation` is safe. After that, setuid and file
capabilities have no effect.
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
    """Return the `securityContext` of the pod."""
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
    """Return the fields of the pod's spec for the namespaces that it shares with its node."""
    made: Manifest = {
        key: True for right, key in _NODE_NAMESPACES.items() if right in run.host_rights
    }
    if HostRight.HOST_NETWORK in run.host_rights:
        made["dnsPolicy"] = "ClusterFirstWithHostNet"
    return made


def container_security(run: RunRequest) -> Manifest:
    """Return the `securityContext` of the program's container.

    Kubernetes requires `allowPrivilegeEscalation` for a privileged container. With granted capabilities, it is needed
    until setpriv has run (see the docstring of the module).
    """
    privileged = HostRight.PRIVILEGED in run.host_rights
    capabilities: Manifest = {"drop": ["ALL"]}
    if run.capabilities:
        capabilities["add"] = list(run.capabilities)
    escalates = privileged or bool(run.capabilities)
    made: Manifest = {"allowPrivilegeEscalation": escalates, "capabilities": capabilities}
    return {**made, "privileged": True} if privileged else made


def init_security() -> Manifest:
    """Return the `securityContext` of the agent's init container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _capability_security() -> Manifest:
    """Return the `securityContext` of the init container that grants capabilities."""
    return _root_with("SETFCAP")


def staging_security() -> Manifest:
    """Return the `securityContext` of the init container that gives a task its directory for staged checkpoints."""
    return _root_with("CHOWN")


def _root_with(capability: str) -> Manifest:
    """Return the `securityContext` of an init container that runs as root.

    Such a container runs one command and uses no file of the task's image.
    """
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": [capability]},
    }


def capability_container(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """Return the init container that grants capabilities. It runs after the agent's. Empty if none are granted."""
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
    """Return the command of the task's container, which makes the granted capabilities ambient before `command` runs.

    Only privileged programs may gain further privileges.
    """
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
