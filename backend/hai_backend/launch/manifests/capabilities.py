"""Capabilities that a program really has, although it is not root: Kubernetes allows them, and gives them to nobody.

A process of a plain user keeps no capability over exec but ambient ones, and only who has a capability can make it
ambient. So an init container of ours gives a static program, setpriv of busybox, exactly the granted ones as file
capabilities. It is the first program of the task's container: it makes them ambient, forbids new privileges for ever,
and becomes the agent. Before that nothing of the task's image has run, no loader, no shell and no variable of it, so
that `allowPrivilegeEscalation` opens no door; afterwards setuid and file capabilities are worth nothing.
"""

from __future__ import annotations

from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.security import granting_security
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import HostRight, RunRequest

_SETCAP = "/usr/sbin/setcap"
_BUSYBOX = "/hai/agent/bin/busybox"


def granting(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
    """The init container, behind the one that brings the agent; none without a grant."""
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
        "securityContext": granting_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [container]


def with_capabilities(run: RunRequest, command: list[str]) -> list[str]:
    """The command of the task's container. Who is privileged may rise further; nobody else."""
    if not run.capabilities:
        return command
    names = ",".join(f"+{name.lower()}" for name in run.capabilities)
    given = [f"--inh-caps={names}", f"--ambient-caps={names}"]
    for_ever = [] if HostRight.PRIVILEGED in run.host_rights else ["--nnp"]
    return [_BUSYBOX, "setpriv", *given, *for_ever, "--", *command]
