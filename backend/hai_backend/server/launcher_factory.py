"""Creates the launcher: for pods if the settings name a Kubernetes cluster, otherwise for local processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hai_backend.config import Settings
from hai_backend.launch.base import Launcher
from hai_backend.launch.local_launcher import ProcessLauncher
from hai_backend.launch.staging import CheckpointStaging, default_root
from hai_backend.server.listen import advertised_address, agent_addresses


def make_launcher(settings: Settings, address: str) -> Launcher:
    """Create the launcher of a server that listens at `address`. Raises Invalid for bad settings of the cluster."""
    if settings.kubernetes:
        return _make_kubernetes_launcher(settings, address)
    return ProcessLauncher(settings.common, settings, make_staging(settings))


def make_staging(settings: Settings) -> CheckpointStaging:
    """Create the memory for the checkpoints of this machine."""
    root = Path(settings.staging) if settings.staging else default_root(settings.common)
    return CheckpointStaging(root, settings.staging_bytes)


def _make_kubernetes_launcher(settings: Settings, address: str) -> Launcher:
    # Imported only where it is used, because the import takes half a second.
    from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
    from hai_backend.launch.kubernetes.official_client import OfficialTransport
    from hai_backend.launch.kubernetes.options import read

    servers = agent_addresses(settings, advertised_address(settings, address)).split(",")
    base: dict[str, Any] = {
        "instance": settings.cluster,
        "server_addresses": servers,
        "ca_pem": Path(settings.authority).read_text() if settings.authority else "",
        "shared_path": str(settings.common.resolve()),
        "agent_heartbeat": settings.agent_heartbeat,
    }
    cluster, options = read(settings.kubernetes, base)
    transport = OfficialTransport(options.kubeconfig, options.context)
    return KubernetesLauncher(transport, cluster, options)
