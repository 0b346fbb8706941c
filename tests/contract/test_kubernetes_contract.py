"""The behaviour of the API server, fake or real: objects, errors, patches, deletion, watches."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException

from tests.contract.kubernetes_client import Kube


def refusal(act: Callable[[], object]) -> tuple[int, str, dict[str, Any]]:
    """Return the code, reason and details of the error that a request raises."""
    with pytest.raises(ApiException) as caught:
        act()
    status = json.loads(caught.value.body)
    assert status["kind"] == "Status"
    assert status["code"] == caught.value.status
    return status["code"], status["reason"], status.get("details", {})


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "data": {"a": "1"}}


def owned_by(owner: Any, blocks: bool = False) -> dict[str, Any]:
    row = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name}
    return {"ownerReferences": [row | {"uid": owner.metadata.uid, "blockOwnerDeletion": blocks}]}


def test_a_created_object_is_filled_in(kube: Kube) -> None:
    pod = kube.create(kube.idle("a"))
    meta = pod.metadata
    assert meta.uid
    assert meta.creation_timestamp
    assert int(meta.resource_version) > 0
    assert (meta.namespace, meta.generation) == (kube.namespace, 1)
    assert (pod.status.phase, pod.status.qos_class) == ("Pending", "BestEffort")
    assert pod.spec.service_account_name == "default"
    assert {t.key for t in pod.spec.tolerations} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_generated_names_differ(kube: Kube) -> None:
    names = {kube.create(kube.idle()).metadata.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("p-") for name in names)


@pytest.mark.parametrize(
    ("act", "code", "reason"),
    [
        pytest.param(lambda k: k.create(k.idle("a")), 409, "AlreadyExists", id="a second create"),
        pytest.param(
            lambda k: k.core.read_namespaced_pod("b", k.namespace),
            404,
            "NotFound",
            id="a missing pod",
        ),
        pytest.param(
            lambda k: k.core.create_namespaced_pod("hai-nowhere", k.idle("a")),
            *(404, "NotFound"),
            id="a missing namespace",
        ),
        pytest.param(
            lambda k: k.create(k.idle("a") | {"metadata": {"name": "a", "namespace": "other"}}),
            *(400, "BadRequest"),
            id="another namespace in the body",
        ),
        pytest.param(
            lambda k: k.core.create_namespaced_secret(
                k.namespace, {"metadata": {"name": "s"}, "data": {"k": "not base64"}}
            ),
            *(400, "BadRequest"),
            id="a secret that is not encoded",
        ),
        pytest.param(
            lambda k: k.core.list_namespaced_pod(k.namespace, field_selector="spec.foo=1"),
            *(400, "BadRequest"),
            id="an unknown field",
        ),
        pytest.param(
            lambda k: k.core.list_namespaced_pod(k.namespace, label_selector="a in"),
            *(400, "BadRequest"),
            id="a broken selector",
        ),
        pytest.param(
            lambda k: k.create(k.idle("b", priorityClassName="hai-nonesuch")),
            *(403, "Forbidden"),
            id="a priority class that is not there",
        ),
    ],
)
def test_refusals_are_typed(
    kube: Kube, act: Callable[[Kube], object], code: int, reason: str
) -> None:
    kube.create(kube.idle("a"))
    assert refusal(lambda: act(kube))[:2] == (code, reason)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(
            {"volumeMounts": [{"name": "x", "mountPath": "/x"}]}, "volumeMounts[0].name", id="mount"
        ),
        pytest.param({"name": "A_b"}, "name", id="name"),
        pytest.param({"resources": {"requests": {"nvidia.com/gpu": "1"}}}, "limits", id="gpus"),
        pytest.param(
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "requests",
            id="too much",
        ),
        pytest.param({"imagePullPolicy": "Perhaps"}, "imagePullPolicy", id="policy"),
    ],
)
def test_an_invalid_pod_is_told_what_is_wrong(
    kube: Kube, change: dict[str, Any], field: str
) -> None:
    body = kube.idle("a", containers=[change])
    code, reason, details = refusal(lambda: kube.create(body))
    assert (code, reason, details["kind"]) == (422, "Invalid", "Pod")
    assert any(c["field"].startswith("spec.containers[0]") for c in details["causes"]), field


@pytest.mark.parametrize(
    "labels",
    [{"a": "b c"}, {"a b": "c"}, {"a": "x" * 64}, {"-a": "c"}],
    ids=["value", "key", "long", "dash"],
)
def test_bad_labels_are_refused(kube: Kube, labels: dict[str, str]) -> None:
    body = kube.idle("a")
    body["metadata"]["labels"] = labels
    assert refusal(lambda: kube.create(body))[:2] == (422, "Invalid")


def test_a_stale_replacement_is_a_conflict(kube: Kube) -> None:
    stale = kube.core.create_namespaced_config_map(kube.namespace, config_map("a"))
    fresh = copy.deepcopy(stale)
    fresh.data = {"a": "2"}
    kube.core.replace_namespaced_config_map("a", kube.namespace, fresh)
    act = lambda: kube.core.replace_namespaced_config_map("a", kube.namespace, stale)  # noqa: E731
    assert refusal(act)[:2] == (409, "Conflict")


def test_a_patch_with_a_stale_version_is_a_conflict_and_one_without_is_not(kube: Kube) -> None:
    old = kube.core.create_namespaced_config_map(kube.namespace, config_map("a"))
    patch = kube.core.patch_namespaced_config_map
    patch("a", kube.namespace, {"data": {"a": "2"}})
    body = {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": {"a": "3"}}
    assert refusal(lambda: patch("a", kube.namespace, body))[:2] == (409, "Conflict")
    assert patch("a", kube.namespace, {"data": {"b": "3"}}).data == {"a": "2", "b": "3"}


def test_a_change_that_changes_nothing_is_not_written(kube: Kube) -> None:
    old = kube.core.create_namespaced_config_map(kube.namespace, config_map("a"))
    same = kube.core.patch_namespaced_config_map("a", kube.namespace, {"data": {"a": "1"}})
    assert same.metadata.resource_version == old.metadata.resource_version


def test_the_status_is_apart_from_the_object(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    kube.core.patch_namespaced_pod("a", kube.namespace, {"status": {"message": "mine"}})
    assert kube.read("a").status.message is None
    body = {"status": {"message": "mine"}, "spec": {"nodeName": "x"}}
    kube.core.patch_namespaced_pod_status("a", kube.namespace, body)
    pod = kube.read("a")
    assert (pod.status.message, pod.spec.node_name) == ("mine", None)


def test_a_pods_spec_is_settled(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    body = {"spec": {"hostname": "other"}}
    act = lambda: kube.core.patch_namespaced_pod("a", kube.namespace, body)  # noqa: E731
    assert refusal(act)[:2] == (422, "Invalid")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param({"label_selector": "k=1"}, ["a"], id="equal"),
        pytest.param({"label_selector": "k!=1"}, ["b", "c"], id="not equal"),
        pytest.param({"label_selector": "k in (1,2)"}, ["a", "b"], id="in"),
        pytest.param({"label_selector": "k notin (1,2)"}, ["c"], id="not in"),
        pytest.param({"label_selector": "k"}, ["a", "b"], id="exists"),
        pytest.param({"label_selector": "!k"}, ["c"], id="not there"),
        pytest.param({"label_selector": "k,k!=1"}, ["b"], id="both"),
        pytest.param({"field_selector": "metadata.name=b"}, ["b"], id="name"),
        pytest.param({"field_selector": "status.phase=Pending"}, ["a", "b", "c"], id="phase"),
        pytest.param({"field_selector": "spec.nodeName!="}, [], id="bound"),
    ],
)
def test_selectors(kube: Kube, selector: dict[str, str], found: list[str]) -> None:
    for name, labels in (("a", {"k": "1"}), ("b", {"k": "2"}), ("c", {})):
        body = kube.idle(name)
        body["metadata"]["labels"] = labels
        kube.create(body)
    pods = kube.core.list_namespaced_pod(kube.namespace, **selector).items
    assert [p.metadata.name for p in pods] == found


def test_pages_show_one_revision(kube: Kube) -> None:
    for name in "abcde":
        kube.core.create_namespaced_secret(kube.namespace, {"metadata": {"name": name}})
    first = kube.core.list_namespaced_secret(kube.namespace, limit=2)
    kube.core.delete_namespaced_secret("d", kube.namespace)
    second = kube.core.list_namespaced_secret(
        kube.namespace, limit=2, _continue=first.metadata._continue
    )
    assert [s.metadata.name for s in second.items] == ["c", "d"]
    assert second.metadata.resource_version == first.metadata.resource_version
    assert (first.metadata.remaining_item_count, second.metadata.remaining_item_count) == (3, 1)


def _deployment() -> dict[str, Any]:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    pod = {"containers": [{"name": "c", "image": "x", "env": env}, {"name": "d", "image": "y"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": "d"}, "spec": spec}


def _patched(kube: Kube, form: str, body: Any) -> Any:
    kube.apps.create_namespaced_deployment(kube.namespace, _deployment())
    path = f"/apis/apps/v1/namespaces/{kube.namespace}/deployments/d"
    return kube.ask("PATCH", path, body, form)["spec"]["template"]["spec"]["containers"]


def test_strategic_merge_goes_by_name(kube: Kube) -> None:
    change = {"name": "c", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
    body = {"spec": {"template": {"spec": {"containers": [change]}}}}
    first, second = _patched(kube, "application/strategic-merge-patch+json", body)
    assert {e["name"]: e["value"] for e in first["env"]} == {"A": "1", "B": "3", "C": "4"}
    assert (first["image"], second["name"]) == ("x", "d")


def test_merge_patch_replaces_lists(kube: Kube) -> None:
    body = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "z"}]}}}}
    (only,) = _patched(kube, "application/merge-patch+json", body)
    assert (only["image"], only.get("env")) == ("z", None)


def test_json_patch_goes_by_place(kube: Kube) -> None:
    at = "/spec/template/spec/containers/0"
    body = [
        {"op": "test", "path": f"{at}/image", "value": "x"},
        {"op": "replace", "path": f"{at}/image", "value": "z"},
        {"op": "remove", "path": f"{at}/env/0"},
        {"op": "add", "path": f"{at}/env/-", "value": {"name": "C", "value": "5"}},
    ]
    first, _ = _patched(kube, "application/json-patch+json", body)
    assert (first["image"], [e["name"] for e in first["env"]]) == ("z", ["B", "C"])


def test_a_dry_run_leaves_nothing(kube: Kube) -> None:
    made = kube.core.create_namespaced_pod(kube.namespace, kube.idle("a"), dry_run="All")
    assert made.metadata.uid
    assert kube.read("a") is None
    kube.create(kube.idle("a"))
    kube.core.delete_namespaced_pod("a", kube.namespace, dry_run="All")
    assert kube.read("a").metadata.deletion_timestamp is None


def test_preconditions_of_a_delete(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    body = {"preconditions": {"uid": "other"}}
    act = lambda: kube.core.delete_namespaced_pod("a", kube.namespace, body=body)  # noqa: E731
    assert refusal(act)[:2] == (409, "Conflict")


def test_a_finalizer_holds_an_object(kube: Kube) -> None:
    body = config_map("a", finalizers=["hai.dev/hold"])
    kube.core.create_namespaced_config_map(kube.namespace, body)
    kube.core.delete_namespaced_config_map("a", kube.namespace)
    held = kube.core.read_namespaced_config_map("a", kube.namespace)
    assert held.metadata.deletion_timestamp
    kube.core.patch_namespaced_config_map("a", kube.namespace, {"metadata": {"finalizers": None}})
    names = [c.metadata.name for c in kube.core.list_namespaced_config_map(kube.namespace).items]
    assert "a" not in names


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_what_is_owned_goes_with_its_owner(kube: Kube, policy: str) -> None:
    owner = kube.core.create_namespaced_config_map(kube.namespace, config_map("owner"))
    body = kube.idle("a")
    body["metadata"] |= owned_by(owner, blocks=True)
    kube.create(body)
    kube.core.delete_namespaced_config_map("owner", kube.namespace, propagation_policy=policy)
    kube.gone("a")


def test_orphans_stay(kube: Kube) -> None:
    owner = kube.core.create_namespaced_config_map(kube.namespace, config_map("owner"))
    body = kube.idle("a")
    body["metadata"] |= owned_by(owner)
    kube.create(body)
    # a garbage collector that deletes this object has also seen the other one
    collect_one_more(kube, "b")
    kube.core.delete_namespaced_config_map("owner", kube.namespace, propagation_policy="Orphan")
    kube.until("a", lambda pod: not pod.metadata.owner_references)


def collect_one_more(kube: Kube, name: str) -> None:
    """Create a pod whose owner was deleted, and wait until it is garbage-collected."""
    owner = kube.core.create_namespaced_config_map(kube.namespace, config_map("dead"))
    kube.core.delete_namespaced_config_map("dead", kube.namespace)
    body = kube.idle(name)
    body["metadata"] |= owned_by(owner)
    kube.create(body)
    kube.gone(name)


def test_what_is_born_to_a_dead_owner_goes(kube: Kube) -> None:
    collect_one_more(kube, "a")


def test_a_collection_is_deleted_by_its_labels(kube: Kube) -> None:
    for name in "abc":
        body = kube.idle(name)
        body["metadata"]["labels"] = {"doomed": str(name != "c")}
        kube.create(body)
    kube.core.delete_collection_namespaced_pod(kube.namespace, label_selector="doomed=True")
    left = kube.core.list_namespaced_pod(kube.namespace).items
    assert [p.metadata.name for p in left] == ["c"]


def test_a_lease_is_taken_once(kube: Kube) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5}}
    lease = kube.leases.create_namespaced_lease(kube.namespace, body)
    lease.spec.holder_identity = "b"
    kube.leases.replace_namespaced_lease("l", kube.namespace, lease)
    lease.spec.holder_identity = "c"
    act = lambda: kube.leases.replace_namespaced_lease("l", kube.namespace, lease)  # noqa: E731
    assert refusal(act)[:2] == (409, "Conflict")


def test_a_new_node_is_not_trusted(kube: Kube) -> None:
    name = f"{kube.namespace}-node"
    try:
        made = kube.core.create_node({"metadata": {"name": name}})
        assert [(t.key, t.effect) for t in made.spec.taints] == [
            ("node.kubernetes.io/not-ready", "NoSchedule")
        ]
    finally:
        kube.core.delete_node(name)


def events(kube: Kube, version: str | None, **query: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the events that a watch of pods sends within a second."""
    more: dict[str, Any] = {"resource_version": version} if version is not None else {}
    stream = watch.Watch().stream(
        kube.core.list_namespaced_pod, kube.namespace, **{"timeout_seconds": 1} | more | query
    )
    seen = [(e["type"], e["raw_object"]) for e in stream]
    return [(t, o["metadata"]["name"], o) for t, o in seen]


def test_a_watch_goes_on_from_a_revision(kube: Kube) -> None:
    kube.create(kube.idle("before"))
    version = kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version
    kube.create(kube.idle("a"))
    kube.core.patch_namespaced_pod("a", kube.namespace, {"metadata": {"labels": {"x": "y"}}})
    kube.core.delete_namespaced_pod("a", kube.namespace)
    seen = events(kube, version)
    assert [(t, n) for t, n, _ in seen] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("MODIFIED", "a"),  # deletionTimestamp is set, even for a pod that was never scheduled
        ("DELETED", "a"),
    ]
    assert "deletionTimestamp" in seen[2][2]["metadata"]
    versions = [int(o["metadata"]["resourceVersion"]) for _, _, o in seen]
    assert versions == sorted(versions)


def test_a_watch_without_a_revision_begins_with_what_is_there(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    assert [(t, n) for t, n, _ in events(kube, None)] == [("ADDED", "a")]


def test_what_leaves_the_selection_is_deleted_for_the_watch(kube: Kube) -> None:
    version = kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version
    kube.create(kube.idle("a"))
    for labels in ({"k": "1"}, {"k": "2"}, {"k": "1"}):
        kube.core.patch_namespaced_pod("a", kube.namespace, {"metadata": {"labels": labels}})
    seen = events(kube, version, label_selector="k=1")
    assert [t for t, _, _ in seen] == ["ADDED", "DELETED", "ADDED"]
    assert seen[1][2]["metadata"]["labels"] == {"k": "1"}


def test_a_watch_ahead_of_the_server_gets_an_error_in_the_stream_or_nothing(kube: Kube) -> None:
    version = int(kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version)
    kube.create(kube.idle("a"))
    try:
        seen: object = events(kube, str(version + 1_000_000), timeout_seconds=8)
    except ApiException as error:
        seen = (error.status, "Too large resource version" in str(error))
    assert seen in ([], (504, True))  # version 1.36 with etcd 3.6 sends no events


def test_a_watch_says_bookmarks(kube: Kube) -> None:
    version = kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version
    stream = kube.core.list_namespaced_pod(
        kube.namespace,
        watch=True,
        allow_watch_bookmarks=True,
        timeout_seconds=2,
        resource_version=version,
        _preload_content=False,
    )
    text = stream.read().decode()
    stream.release_conn()
    assert all('"BOOKMARK"' in line for line in text.splitlines())


def test_a_namespace_takes_everything_along(kube: Kube) -> None:
    name = f"{kube.namespace}-b"
    kube.core.create_namespace({"metadata": {"name": name}})
    kube.core.create_namespaced_secret(name, {"metadata": {"name": "s"}})
    kube.delete_namespace(name)
    found = kube.core.list_namespace(field_selector=f"metadata.name={name}")
    stream = watch.Watch().stream(
        kube.core.list_namespace,
        field_selector=f"metadata.name={name}",
        resource_version=found.metadata.resource_version,
        timeout_seconds=60,
    )
    if found.items:
        assert any(e["type"] == "DELETED" for e in stream)
