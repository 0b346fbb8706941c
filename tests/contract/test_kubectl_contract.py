"""kubectl, an independent client, with the fake cluster and a real one."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import yaml

from tests.contract.kubernetes_client import Kube


def test_a_pod_from_apply_to_delete(kube: Kube) -> None:
    body = kube.pod("a", "trap 'exit 0' TERM; echo hello; while :; do sleep 0.05; done")
    manifest = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **body})
    assert "created" in kube.kubectl("apply", "-f", "-", given=manifest)
    assert "unchanged" in kube.kubectl("apply", "-f", "-", given=manifest)
    kube.kubectl("wait", "pod/a", "--for=condition=Ready", "--timeout=60s")
    kube.kubectl("label", "pod", "a", "colour=red")
    assert kube.kubectl("get", "pods", "-l", "colour=red", "-o", "name").strip() == "pod/a"
    kube.until("a", lambda _: "hello" in kube.log("a"))
    assert kube.kubectl("logs", "a").strip() == "hello"
    assert "Status:" in kube.kubectl("describe", "pod", "a")
    assert "deleted" in kube.kubectl("delete", "pod", "a", "--timeout=60s")
    assert kube.read("a") is None


def test_apply_takes_away_what_the_manifest_no_longer_says(kube: Kube) -> None:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    kube.kubectl("apply", "-f", "-", given=json.dumps(body | {"data": {"a": "1", "b": "2"}}))
    kube.kubectl("apply", "-f", "-", given=json.dumps(body | {"data": {"a": "3"}}))
    assert kube.core.read_namespaced_config_map("c", kube.namespace).data == {"a": "3"}


def test_patches_of_all_three_forms(kube: Kube) -> None:
    kube.core.create_namespaced_config_map(
        kube.namespace, {"metadata": {"name": "c"}, "data": {"a": "1"}}
    )
    for form, patch in (
        ("strategic", {"data": {"b": "2"}}),
        ("merge", {"data": {"a": None}}),
        ("json", [{"op": "add", "path": "/data/c", "value": "3"}]),
    ):
        kube.kubectl("patch", "configmap", "c", f"--type={form}", "-p", json.dumps(patch))
    found = kube.core.read_namespaced_config_map("c", kube.namespace)
    assert found.data == {"b": "2", "c": "3"}


def test_get_watches(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    command = ["kubectl", "--kubeconfig", str(kube.kubeconfig), "-n", kube.namespace]
    with subprocess.Popen(
        [*command, "get", "pods", "-w", "-o", "name"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().strip() == "pod/a"
        kube.create(kube.idle("b"))
        assert watching.stdout.readline().strip() == "pod/b"
        watching.terminate()


def test_a_node_is_cordoned_and_tainted(kube: Kube) -> None:
    name = f"{kube.namespace}-node"
    kube.core.create_node({"metadata": {"name": name}})
    try:
        kube.kubectl("cordon", name)
        assert kube.core.read_node(name).spec.unschedulable
        kube.kubectl("uncordon", name)
        kube.kubectl("taint", "node", name, "hai.dev/broken=gpu:NoSchedule")
        node = kube.core.read_node(name)
        assert not node.spec.unschedulable
        assert ("hai.dev/broken", "gpu") in {(t.key, t.value) for t in node.spec.taints}
    finally:
        kube.kubectl("delete", "node", name)


def test_a_list_of_kubectl_has_no_revision(kube: Kube) -> None:
    """For this reason, the tests read revisions from the API."""
    kube.create(kube.idle("a"))
    printed = json.loads(kube.kubectl("get", "pods", "-o", "json"))
    assert printed["metadata"]["resourceVersion"] == ""
