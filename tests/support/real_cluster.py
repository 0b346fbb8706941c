"""A deployment on a real cluster, which KUBECONFIG, HAI_E2E_IMAGE and other variables name (see docs/operate.md).

Its nodes can access the directories of this machine. Only these tests may use the namespace. Each server numbers its
tasks from 1, so a test must leave no object behind for the next one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from hai.client.client import Client
from hai.v1.storage_pb2 import MountKind, MountRule
from hai.v1.task_pb2 import TaskState
from tests.support.agent_pods import agent_directory
from tests.support.deployment import Deployment, Kubectl
from tests.support.servers import running_server

REQUIRED_VARIABLES = ("KUBECONFIG", "HAI_E2E_IMAGE")


def real_cluster_configured() -> bool:
    """Return whether the environment names a real cluster."""
    return all(name in os.environ for name in REQUIRED_VARIABLES)


@asynccontextmanager
async def real_cluster_deployment(
    directory: Path, table: Mapping[str, Any] = MappingProxyType({})
) -> AsyncIterator[Deployment]:
    """At least two nodes. At the end nothing of any run is left, or RuntimeError says what is."""
    directory.chmod(0o755)  # noqa: ASYNC240 - programs run as other users than the tests do
    settings = {**_kubernetes_settings(directory), **table}
    kubectl = Kubectl(Path(settings["kubeconfig"]), settings["namespace"])
    async with (
        running_server(directory / "home", **_settings(), kubernetes=settings) as server,
        Client(server.profile) as client,
    ):
        for path in (str(directory), *_paths_in("HAI_E2E_MOUNTS")):
            await client.storage.create_rule(_host_path(path))
        yield Deployment(client, directory, directory / "home", hands=kubectl)
        await _stop_all(client)
        await kubectl.wait_until_empty()


def _settings() -> dict[str, Any]:
    return {
        "listen": "0.0.0.0:0",
        "advertise": os.environ.get("HAI_E2E_ADDRESS") or _local_address(),
        "insecure": True,
        "build_within": 180.0,
        "cluster": f"e2e-{os.getpid()}",
    }


async def _stop_all(client: Client) -> None:
    for task in (await client.tasks.list()).tasks:
        if task.state != TaskState.TASK_STATE_FINISHED:
            await client.tasks.stop(task.id)
            await client.tasks.wait(task.id, timeout=60)


def _local_address() -> str:
    """Return the address from which this machine reaches the API server. In most networks, pods can reach it there."""
    from kubernetes import config

    api = config.new_client_from_config(os.environ["KUBECONFIG"])  # type: ignore[no-untyped-call]
    api_url = urlsplit(api.configuration.host)
    kind = socket.AF_INET6 if ":" in str(api_url.hostname) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as sock:  # connecting a UDP socket sends nothing
        sock.connect((api_url.hostname, api_url.port or 443))
        return str(sock.getsockname()[0])


def _kubernetes_settings(directory: Path) -> dict[str, Any]:
    return {
        "kubeconfig": os.environ["KUBECONFIG"],
        "namespace": os.environ.get("HAI_E2E_NAMESPACE", "default"),
        "images": {"default": os.environ["HAI_E2E_IMAGE"]},
        "agent_path": os.environ.get("HAI_E2E_AGENT") or str(agent_directory(directory)),
        "default_uid": int(os.environ.get("HAI_E2E_UID", "1000")),
        "strict_groups": False,
        "shared_volume": f"hostPath:{directory / 'home'}",
        "seccomp": "",
    }


def _paths_in(variable: str) -> list[str]:
    return [path for path in os.environ.get(variable, "").split(",") if path]


def _host_path(path: str) -> MountRule:
    return MountRule(
        owners=["public"],
        source=path,
        mount_path=path,
        kind=MountKind.MOUNT_KIND_HOST_PATH,
        writable=True,
    )
