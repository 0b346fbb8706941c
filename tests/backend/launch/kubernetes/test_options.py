"""The table [kubernetes] of the server's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hai_backend.config import Settings, load
from hai_backend.domain.errors import Invalid
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.options import read
from hai_backend.launch.manifests.settings import Toleration
from hai_backend.server.launcher_factory import make_launcher

GOOD: dict[str, Any] = {
    "namespace": "jobs",
    "agent_image": "r.io/hai:1",
    "images": {"default": "r.io/train:1"},
    "tolerations": [{"key": "gpu", "effect": "NoSchedule"}],
    "topology_labels": ["leaf", "room"],
    "fence_after": 300,
    "evict": True,
}


def test_a_table_says_what_pods_are_like_and_how_the_cluster_is_asked() -> None:
    cluster, options = read(GOOD, {"instance": "local", "server_addresses": ["a:1", "b:2"]})
    assert (cluster.namespace, cluster.instance) == ("jobs", "local")
    assert cluster.server_addresses == ("a:1", "b:2")
    assert cluster.tolerations == (Toleration("gpu", effect="NoSchedule"),)
    assert (cluster.fence_after, options.evict) == (300.0, True)
    assert options.topology_labels == ("leaf", "room")


def test_what_the_table_says_counts_more_than_other_settings() -> None:
    cluster, _ = read({**GOOD, "server_addresses": ["svc:1"]}, {"server_addresses": ["a:1"]})
    assert cluster.server_addresses == ("svc:1",)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        pytest.param({"namespce": "x"}, "namespce", "did you mean namespace", id="a typing error"),
        pytest.param({"evict": "yes"}, "evict", "true or false", id="no switch"),
        pytest.param({"fence_after": -1}, "fence_after", "a number from 0", id="a negative time"),
        pytest.param({"images": {"a": 1}}, "images", "a table of texts", id="no text"),
        pytest.param({"tolerations": [{"effect": "x"}]}, "tolerations", "key", id="no key"),
        pytest.param({"topology_labels": "leaf"}, "topology_labels", "a list", id="no list"),
        pytest.param({"shared_volume": "tmpfs:1Gi"}, "shared_volume", "pvc:…", id="no volume"),
        pytest.param({"shared_volume": "pvc:a/b"}, "shared_volume", "no name", id="no claim"),
        pytest.param({"shared_volume": "nfs:x:/a/../b"}, "shared_volume", "dots", id="climbs"),
        *(
            pytest.param({key: "x"}, key, f"follows from '{source}'", id=f"derived: {key}")
            for key, source in (("instance", "cluster"), ("shared_path", "shared"))
        ),
        pytest.param({"agent_image": ""}, "agent_image", "or agent_path", id="no agent"),
        pytest.param({"staging_path": "shm"}, "staging_path", "", id="a relative directory"),
        pytest.param(
            {"agent_image": "", "agent_path": "/opt/hai", "staging_path": "/dev/shm/hai"},
            "agent_image",
            "needed for staging_path",
            id="no image that prepares the memory",
        ),
        pytest.param(
            {"ingress_hosts": ["a.b"]}, "ingress_hosts", "ingress_without_login", id="open"
        ),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        read({**GOOD, **change}, {})
    (violation,) = refused.value.violations
    assert violation.field == f"kubernetes.{field}"
    assert words in violation.message


def test_services_are_open_to_all_only_where_operators_say_so() -> None:
    cluster, _ = read({**GOOD, "ingress_hosts": ["a.b"], "ingress_without_login": True}, {})
    assert cluster.ingress_hosts == ("a.b",)


def test_every_violation_is_told_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        read({**GOOD, "evict": 1, "pull_policy": 2, "what": 3}, {})
    assert len(refused.value.violations) == 3
    with pytest.raises(Invalid) as refused:
        read({"ingress_hosts": ["a.b"], "shared_volume": "pvc:a/b"}, {})
    assert len(refused.value.violations) == 3


def test_a_server_with_such_a_table_launches_pods(tmp_path: Path) -> None:
    (tmp_path / "hai.toml").write_text('[kubernetes]\nagent_path = "/opt/agent"\n')
    settings = load(tmp_path, {}, {})
    assert isinstance(make_launcher(settings, "127.0.0.1:1"), KubernetesLauncher)
    assert make_launcher(Settings(tmp_path), "127.0.0.1:1").name == "process"


def test_the_table_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "hai.toml").write_text("kubernetes = 3\n")
    with pytest.raises(Invalid):
        load(tmp_path, {}, {})
