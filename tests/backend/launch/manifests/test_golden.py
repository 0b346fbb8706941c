"""The exact manifests of runs, with one file in testdata/manifests for each case.

`HAI_REWRITE_GOLDEN=1 pytest tests/backend/launch/manifests` writes the files again. Every object is also converted to
the official client's types and back, which detects misspelt keys and wrong types.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes.client as kube
import pytest
import yaml

from hai_backend.domain.mounts.mount import HostPathType, Mount, MountKind
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import SharedDirectory, checkpoints_of
from hai_backend.domain.spec import ServiceType
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings, Toleration
from hai_backend.launch.request import HostRight, RankResources, RunRequest, ServiceRequest

GOLDEN = Path(__file__).parents[3] / "testdata" / "manifests"
TYPES: dict[str, Any] = {
    "ConfigMap": kube.V1ConfigMap,
    "Secret": kube.V1Secret,
    "Service": kube.V1Service,
    "Ingress": kube.V1Ingress,
    "NetworkPolicy": kube.V1NetworkPolicy,
    "Pod": kube.V1Pod,
}
GPU_NODE = RankResources(gpus=8, cpus=128, memory_bytes=1024 << 30, rdma=1, whole_node=True)
MOUNTS = (
    Mount("/data/raw", "/mnt/raw", host_type=HostPathType.DIRECTORY),
    Mount("/data/plain", "/mnt/plain", read_only=False),
    Mount("/opt/tool.conf", "/mnt/tool.conf", host_type=HostPathType.FILE),
    Mount("/scratch", "/mnt/scratch/ada", host_type=HostPathType.DIRECTORY_OR_CREATE),
    Mount("/scratch.log", "/mnt/ada.log", host_type=HostPathType.FILE_OR_CREATE, read_only=False),
    Mount("/run/cache.sock", "/run/cache.sock", host_type=HostPathType.SOCKET),
    Mount("/home", "nfs.example:/export/home", MountKind.NFS, read_only=False),
    Mount("/models", "models:public/v1", MountKind.PVC),
    Mount("/work", "work-ada", MountKind.PVC, read_only=False),
    Mount("/settings", "site", MountKind.CONFIG_MAP),
    Mount("/settings.d/site.ini", "site:site.ini", MountKind.CONFIG_MAP),
    Mount(
        "/lustre",
        "lustre.csi.example",
        MountKind.CSI,
        attributes={"volumeHandle": "fs-1", "mountName": "lustre"},
        read_only=False,
    ),
    Mount("/ceph", "cephfs.csi.ceph.com", MountKind.CSI, attributes={"fsName": "a"}),
    Mount("/fast", "4Gi", MountKind.TMPFS, read_only=False),
    Mount("/dev/shm", "16Gi", MountKind.TMPFS, read_only=False),
)
SHARED = (checkpoints_of(12), SharedDirectory("environments", read_only=True))
CASES: dict[str, dict[str, Any]] = {
    "cpu": {},
    "gang-rdma": {
        "image": "registry.example/team/train:2@sha256:" + "0" * 64,
        "pull_secret": "team",
        "resources": (GPU_NODE, GPU_NODE),
        "groups": (3000, 3001),
        "priority": Priority.HIGH,
        "grace_seconds": 65.0,
    },
    "packed-share": {
        "resources": (RankResources(gpus=2, cpus=8, memory_bytes=64 << 30),),
        "shm_bytes": 4 << 30,
    },
    "mig": {
        "resources": (RankResources(gpus=1, mig="1g.10gb", cpus=4, memory_bytes=16 << 30),),
    },
    "dev-container": {
        "services": (
            ServiceRequest("jupyter", ServiceType.HTTP, 8888),
            ServiceRequest("board", ServiceType.HTTP, 6006, rewrite_uri=True),
            ServiceRequest("ssh", ServiceType.TCP, 22, node_port=30022),
            ServiceRequest("vnc", ServiceType.TCP, 5900),
        ),
    },
    "mounts": {"mounts": MOUNTS},
    "shared-claim": {"shared": SHARED},
    "shared-part-of-a-claim": {"shared": SHARED},
    "shared-nfs": {"shared": SHARED},
    "shared-of-the-node": {"shared": SHARED},
    "shared-nowhere": {"shared": SHARED},
    "capabilities": {"capabilities": ("IPC_LOCK", "SYS_PTRACE")},
    "host-rights": {"host_rights": tuple(HostRight)},
    "spot": {"spot": True, "priority": Priority.HIGH},
    "agent-by-path": {},
    "open-network": {},
    "staging": {"shared": SHARED, "mounts": MOUNTS},
    "staging-durable": {"durable_before_leaving": True},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "shared-claim": {"shared_volume": "pvc:hai-shared"},
    "shared-part-of-a-claim": {"shared_volume": "pvc:site:hai/shared"},
    "shared-nfs": {"shared_volume": "nfs:nfs.example:/export/hai"},
    "shared-of-the-node": {"shared_volume": "hostPath:/srv/hai"},
    "open-network": {"separate_users": False},
    "staging": {
        "staging_path": "/dev/shm/hai",
        "staging_bytes": 1 << 36,
        "shared_volume": "pvc:hai-shared",
        "pull_secret": "site",
    },
    "staging-durable": {"staging_path": "/dev/shm/hai"},
    "agent-by-path": {
        "agent_path": "/opt/hai/agent",
        "agent_image": "",
        "ca_pem": "",
        "strict_groups": False,
        "seccomp": "profiles/hai.json",
        "apparmor": "RuntimeDefault",
        "runtime_class": "kata",
        "pull_secret": "site",
        "labels": {"cost-centre": "42"},
        "tolerations": (Toleration("gpu", "yes", "NoSchedule"), Toleration("maintenance")),
    },
}

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest,
    cluster: ClusterSettings,
    request_of: Callable[..., RunRequest],
    made: Made,
) -> tuple[str, list[Manifest]]:
    name = request.param
    settings = replace(cluster, **SETTINGS.get(name, {}))
    return name, made(request_of(**CASES[name]), settings)


def test_manifests_are_as_written(case: tuple[str, list[Manifest]]) -> None:
    name, manifests = case
    path, text = GOLDEN / f"{name}.yaml", yaml.safe_dump_all(manifests, sort_keys=False)
    if os.environ.get("HAI_REWRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_official_client_knows_every_word(case: tuple[str, list[Manifest]]) -> None:
    client = kube.ApiClient()
    for manifest in case[1]:
        typed = TYPES[manifest["kind"]].from_dict(manifest)
        assert client.sanitize_for_serialization(typed) == manifest


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)
