"""The directory in memory that a rank gets on its node, and the pod that writes what is in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kubernetes.client as kube
import pytest

from hai_backend.domain.mounts.mount import Mount, MountKind
from hai_backend.domain.shared_dirs import checkpoints_of
from hai_backend.launch.base import RankKey
from hai_backend.launch.manifests.checkpoints import writer_pod
from hai_backend.launch.manifests.names import Manifest, installation_labels
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]
RequestOf = Callable[..., RunRequest]
KEY = RankKey(12, 1, 0)
MOUNTS = (
    Mount("/home", "nfs.example:/export/home", MountKind.NFS, read_only=False),
    Mount("/settings", "site", MountKind.CONFIG_MAP),
    Mount("/fast", "4Gi", MountKind.TMPFS, read_only=False),
)


@pytest.fixture
def staging(cluster: ClusterSettings) -> ClusterSettings:
    return replace(cluster, staging_path="/dev/shm/hai", shared_volume="pvc:hai-shared")


@pytest.fixture
def pod(made: Made, request_of: RequestOf, staging: ClusterSettings) -> Manifest:
    """The pod of a rank whose user has a capability."""
    run = request_of(mounts=MOUNTS, shared=(checkpoints_of(12),), capabilities=("IPC_LOCK",))
    return made(run, staging)[-1]


@pytest.fixture
def writer(pod: Manifest, staging: ClusterSettings) -> Manifest:
    found = writer_pod(pod, KEY, staging, "uid-of-node-0")
    assert found is not None
    return found


def test_the_official_client_knows_every_word_of_a_writer(writer: Manifest) -> None:
    assert kube.ApiClient().sanitize_for_serialization(kube.V1Pod.from_dict(writer)) == writer


def test_a_writer_has_the_user_and_the_storage_of_the_rank_and_nothing_else(
    writer: Manifest, pod: Manifest
) -> None:
    spec, (container,) = writer["spec"], writer["spec"]["containers"]
    for key in ("nodeName", "securityContext"):
        assert spec[key] == pod["spec"][key]
    pressure = spec["tolerations"][-1]
    assert spec["tolerations"] == [*pod["spec"]["tolerations"], pressure]
    assert (pressure["key"], pressure["effect"]) == (
        "node.kubernetes.io/memory-pressure",
        "NoSchedule",
    )
    assert "initContainers" not in spec
    assert "resources" not in container
    assert container["env"] == [{"name": "HAI_STAGING_MACHINE", "value": "node-0/12"}]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/hai/staging", "/home", "/var/lib/hai/shared/checkpoints/12"}
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}


def test_no_watch_of_ranks_sees_a_writer_and_no_collector_deletes_it(
    writer: Manifest, staging: ClusterSettings
) -> None:
    labels = writer["metadata"]["labels"]
    assert not installation_labels(staging).items() <= labels.items()
    (owner,) = writer["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "node-0", "uid-of-node-0")


def test_only_what_the_writer_sees_is_staged(pod: Manifest) -> None:
    (container,) = pod["spec"]["containers"]
    (roots,) = [e["value"] for e in container["env"] if e["name"] == "HAI_STAGING_TARGETS"]
    assert roots == "/var/lib/hai/shared/checkpoints/12:/home"


def test_a_task_sees_only_its_own_directory(pod: Manifest) -> None:
    (container,) = pod["spec"]["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "staging"]
    assert mount == {"name": "staging", "mountPath": "/hai/staging", "subPath": "12"}


@pytest.mark.parametrize("settings", [{}, {"staging_path": "/dev/shm/hai"}])
def test_a_rank_that_stages_nothing_has_no_writer(
    made: Made, request_of: RequestOf, cluster: ClusterSettings, settings: dict[str, str]
) -> None:
    run = request_of(durable_before_leaving=bool(settings))
    chosen = replace(cluster, **settings)  # type: ignore[arg-type]
    assert writer_pod(made(run, chosen)[-1], KEY, chosen, "uid") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_directory_belongs_to_the_user_and_old_empty_ones_are_removed(
    pod: Manifest, tmp_path: Path
) -> None:
    for name, is_empty, age in [("1", True, 2), ("2", False, 2), ("3", True, 0)]:
        (tmp_path / name).mkdir()
        if not is_empty:
            (tmp_path / name / "12").mkdir()
        seconds = (tmp_path / name).stat().st_mtime - age * 86400
        os.utime(tmp_path / name, (seconds, seconds))
    (container,) = [c for c in pod["spec"]["initContainers"] if c["name"] == "staging"]
    command = [word.replace("/hai/staging", str(tmp_path)) for word in container["command"]]
    for _ in range(2):  # the next run of the task
        subprocess.run(command, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["12", "2", "3"]
    status = (tmp_path / "12").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (2001, 2001, 0o700)
