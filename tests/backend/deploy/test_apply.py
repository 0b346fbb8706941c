"""kubectl applies all manifests of the chart, applies them again without a change, and deletes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_backend.testing.kube import FakeCluster
from hai_backend.testing.kube.control.statefulsets import STATEFULSETS
from hai_backend.testing.kube.threaded import ThreadedCluster, threaded_cluster

from .conftest import Body, Render
from .test_chart import CASES

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
FOREIGN = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""Of operators that a cluster may lack."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with threaded_cluster(lambda: FakeCluster(1, custom=[STATEFULSETS])) as made:
        yield made


@pytest.mark.parametrize("values", CASES)
def test_manifests_are_applied_and_deleted(
    cluster: ThreadedCluster, render: Render, tmp_path: Path, values: Body
) -> None:
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    before = cluster.call(lambda inner: inner.counts())

    def kubectl(verb: str, bodies: list[Body], *more: str) -> str:
        command = ["kubectl", verb, f"--kubeconfig={kubeconfig}", "-f", "-"]
        given = "\n---\n".join(map(json.dumps, bodies))
        done = subprocess.run(
            [*command, *more], input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    manifests = [body for body in render(**values) if body["apiVersion"] not in FOREIGN]
    for body in manifests:
        # the release namespace does not exist in this cluster
        if body["metadata"].get("namespace") == "lab":
            body["metadata"]["namespace"] = "default"
    manifests.sort(key=lambda body: body["kind"] != "Namespace")
    said = kubectl("apply", manifests).splitlines()
    assert [line.rsplit(" ", 1)[1] for line in said] == ["created"] * len(manifests)
    revision = cluster.call(lambda inner: inner.api.store.revision)
    kubectl("apply", manifests)
    assert cluster.call(lambda inner: inner.api.store.revision) == revision
    kubectl("delete", manifests[::-1], "--wait=false")
    cluster.run(cluster.cluster.settle())
    assert cluster.call(lambda inner: inner.counts()) == before
