"""A fake Kubernetes cluster for tests: an API server with real HTTP, controllers, and kubelets.

It behaves as a real cluster does. The tests in tests/contract/test_kubernetes_contract.py run with both.

Not implemented: server-side apply, exec, attach and port-forward, aggregated discovery, Tables, probes and lifecycle
hooks, sidecars, preemption, pod affinity, admission by quotas and rights, and pruning of unknown fields.
"""

from __future__ import annotations

from hai_backend.testing.kube.cluster import FakeCluster
from hai_backend.testing.kube.faults.chaos import Chaos
from hai_backend.testing.kube.faults.requests import Answer, Close, Delay, Truncate
from hai_backend.testing.kube.kubelet.container_config import Images
from hai_backend.testing.kube.kubelet.instant import InstantKubelet
from hai_backend.testing.kube.kubelet.nodes import NodeSpec
from hai_backend.testing.kube.kubelet.process import ProcessKubelet
from hai_backend.testing.kube.resources import custom

__all__ = [
    "Answer",
    "Chaos",
    "Close",
    "Delay",
    "FakeCluster",
    "Images",
    "InstantKubelet",
    "NodeSpec",
    "ProcessKubelet",
    "Truncate",
    "custom",
]
