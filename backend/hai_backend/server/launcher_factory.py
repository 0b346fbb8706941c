"""Which launcher makes ranks exist: processes of this machine, or pods of a cluster when the settings name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hai_backend.config import Settings
from hai_backend.launch.base import Launcher
from hai_backend.launch.local_launcher import ProcessLauncher
from hai_backend.server.listen import advertised, told_to_agents


def make_launcher(settings: Settings, address: str) -> Launcher:
    """`address`: where this server listens. Raises Invalid for bad settings of the cluster."""
    if settings.kubernetes:
        return _kubernetes(settings, address)
    return ProcessLauncher(settings.common, settings)


def _kubernetes(settings: Settings, address: str) -> Launcher:
    # Loaded only where it is used: with the client that it needs it takes half a second.
    from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
    from hai_backend.launch.kubernetes.official_client import OfficialTransport
    from hai_backend.launch.kubernetes.options import read

    servers = told_to_agents(settings, advertised(settings, address)).split(",")
    base: dict[str, Any] = {
        "instance": settings.cluster,
        "server_addresses": servers,
        "ca_pem": _ca(settings),
        "shared_path": str(settings.common.resolve()),
        "agent_heartbeat": settings.agent_heartbeat,
    }
    cluster, options = read(settings.kubernetes, base)
    transport = OfficialTransport(options.kubeconfig, options.context)
    return KubernetesLauncher(transport, cluster, options)


def _ca(settings: Settings) -> str:
    return Path(settings.authority).read_text() if settings.authority else ""
