"""Settings of a cluster, and requests for runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.objects import objects, owner
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources, RunRequest

OWNER_UID = "4d2f8a10-0000-4000-8000-000000000001"


@pytest.fixture
def cluster() -> ClusterSettings:
    return ClusterSettings(
        instance="east",
        shared_path="/var/lib/hai/shared",
        server_addresses=("hai.hai.svc:50051",),
        ca_pem="-----BEGIN CERTIFICATE-----\n",
        agent_image="registry.example/hai/server:1",
        images={"default": "registry.example/hai/base:1", "busybox": "busybox:1.36"},
        rdma_resource="rdma/hca",
        priority_classes={"HIGH": "hai-high", "SPOT": "hai-spot"},
        ingress_class="nginx",
        ingress_hosts=("tasks.example",),
    )


@pytest.fixture
def request_of() -> Callable[..., RunRequest]:
    """A sound request, with what is given."""

    def make(**given: Any) -> RunRequest:
        standard: dict[str, Any] = {
            "task_id": 12,
            "run": 1,
            "user": "ada",
            "uid": 2001,
            "gid": 2001,
            "image": "busybox",
            "resources": (RankResources(cpus=1, memory_bytes=1 << 30),),
        }
        return RunRequest(**{**standard, **given})

    return make


@pytest.fixture
def made() -> Callable[[RunRequest, ClusterSettings], list[Manifest]]:
    """All objects of a run with a rank for each entry of `resources`, the owner first."""

    def make(run: RunRequest, settings: ClusterSettings) -> list[Manifest]:
        ranks = [
            RankLaunch(RankKey(run.task_id, run.run, i), f"node-{i}", f"token-{i}", run=run)
            for i in range(len(run.resources))
        ]
        return [owner(run, settings), *objects(run, ranks, settings, OWNER_UID)]

    return make
