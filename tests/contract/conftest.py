"""Clusters for the Kubernetes contract: the fake one, and a real one if KUBECONFIG and HAI_E2E_IMAGE are set.

The import of the official client takes a second, so only the tests that use it import it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_cluster import REQUIRED_VARIABLES, real_cluster_configured


@contextmanager
def _fake(home: Path) -> Iterator[tuple[Path, str]]:
    from hai_backend.testing.kube import FakeCluster, NodeSpec, ProcessKubelet
    from hai_backend.testing.kube.threaded import threaded_cluster

    nodes = [NodeSpec("node0"), NodeSpec("node1", gpus=0)]

    def make() -> FakeCluster:
        return FakeCluster(nodes, kubelet=lambda api: ProcessKubelet(api, home / "pods"))

    with threaded_cluster(make) as cluster:
        yield cluster.kubeconfig(home / "kubeconfig"), "any/image:1"


@contextmanager
def _real(home: Path) -> Iterator[tuple[Path, str]]:
    yield Path(os.environ["KUBECONFIG"]), os.environ["HAI_E2E_IMAGE"]


_REAL = pytest.mark.skipif(
    not real_cluster_configured(), reason=f"{' and '.join(REQUIRED_VARIABLES)} are not set"
)
Maker = Callable[[Path], AbstractContextManager[tuple[Path, str]]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_fake, id="fake"),
        pytest.param(_real, id="real", marks=[pytest.mark.k8s, _REAL]),
    ],
)
def kube_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, str, Path]]:
    """A client, an image with a shell, a kubeconfig."""
    from tests.contract.kubernetes_client import cluster_client

    make: Maker = request.param
    with make(tmp_path_factory.mktemp("kube")) as (path, image), cluster_client(path) as api:
        yield api, image, path


@pytest.fixture
def kube(kube_cluster: tuple[Any, str, Path]) -> Iterator[Any]:
    """A namespace of its own."""
    from tests.contract.kubernetes_client import own_namespace

    with own_namespace(*kube_cluster) as found:
        yield found
