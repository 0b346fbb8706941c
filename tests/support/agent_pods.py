"""A fake Kubernetes cluster whose pods are local processes that run real agents, and launchers for that cluster."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.official_client import OfficialTransport
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.testing.kube import FakeCluster, NodeSpec, ProcessKubelet


def agent_directory(home: Path) -> Path:
    """Create the directory that an operator installs on each node, and return it: the agent and its Python."""
    program = home / "agent" / "bin" / "hai-agent"
    program.parent.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable)
    program.write_text(
        f'#!/bin/sh\nPATH="{python.parent}:$PATH" exec {python} -P -m hai_backend.agent "$@"\n'
    )
    program.chmod(0o755)
    return home / "agent"


@asynccontextmanager
async def process_pod_cluster(home: Path, nodes: int, **more: Any) -> AsyncIterator[FakeCluster]:
    """Nodes are called node1, node2 … as those of a divided machine are."""
    specs = [NodeSpec(f"node{i + 1}", gpus=0) for i in range(nodes)]
    async with FakeCluster(
        specs, kubelet=lambda api: ProcessKubelet(api, home / "pods"), **more
    ) as cluster:
        yield cluster


def cluster_settings(home: Path, **more: Any) -> ClusterSettings:
    """Return settings for a cluster whose only image is `default`, which tasks without an image use."""
    made = ClusterSettings(
        namespace="default",
        instance="test",
        server_addresses=("127.0.0.1:1",),  # nothing listens there: agents retry
        agent_path=str(agent_directory(home)),
        images={"default": "any/image:1"},
        default_uid=1000,
    )
    return replace(made, **more)


def make_launcher(
    cluster: FakeCluster, home: Path, options: Options | None = None, **settings: Any
) -> KubernetesLauncher:
    """Return a launcher that sends its requests to the fake cluster over HTTP, with the official client."""
    transport = OfficialTransport(str(cluster.kubeconfig(home / "kubeconfig")))
    chosen = options or Options(kill_grace=1.0)
    return KubernetesLauncher(transport, cluster_settings(home, **settings), chosen, Random(1))
