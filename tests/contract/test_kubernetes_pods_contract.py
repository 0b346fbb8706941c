"""The behaviour of the scheduler and the kubelets, fake or real."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException

from tests.contract.kubernetes_client import Kube

SLEEP = "while :; do sleep 0.05; done"
POLITE = f"trap 'exit 143' TERM; echo ready; {SLEEP}"


def state(pod: Any, container: str = "main") -> Any:
    return next(c for c in pod.status.container_statuses if c.name == container).state


@pytest.mark.parametrize(
    ("command", "phase", "code", "reason"),
    [
        pytest.param("exit 0", "Succeeded", 0, "Completed", id="well"),
        pytest.param("exit 3", "Failed", 3, "Error", id="badly"),
    ],
)
def test_a_pod_ends(kube: Kube, command: str, phase: str, code: int, reason: str) -> None:
    kube.create(kube.pod("a", command))
    pod = kube.phase("a", "Succeeded", "Failed")
    ended = state(pod).terminated
    assert (pod.status.phase, ended.exit_code, ended.reason) == (phase, code, reason)
    assert ended.finished_at >= ended.started_at


def test_a_running_pod_is_ready_and_has_an_address(kube: Kube) -> None:
    kube.create(kube.pod("a", SLEEP))
    pod = kube.phase("a", "Running")
    assert pod.status.pod_ip
    assert pod.status.host_ip
    assert pod.status.start_time
    conditions = {c.type: c.status for c in pod.status.conditions}
    wanted = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    assert {conditions[c] for c in wanted} == {"True"}


def test_a_pod_is_bound_by_its_node_name(kube: Kube) -> None:
    node = kube.node()
    kube.create(kube.pod("a", nodeName=node))
    assert kube.phase("a", "Succeeded").spec.node_name == node


def test_a_pod_is_bound_once(kube: Kube) -> None:
    node = kube.node()
    kube.create(kube.idle("a"))
    body = {"metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    bind = kube.core.create_namespaced_pod_binding
    bind("a", kube.namespace, body, _preload_content=False).release_conn()
    assert kube.phase("a", "Succeeded").spec.node_name == node
    with pytest.raises(ApiException) as caught:
        bind("a", kube.namespace, body)
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (409, "Conflict")


def test_a_pod_that_fits_nowhere_is_told_why(kube: Kube) -> None:
    limits = {"limits": {"cpu": "100000"}}
    kube.create(kube.pod("a", containers=[{"resources": limits}]))
    pod = kube.until("a", lambda p: p.status.conditions)
    (condition,) = [c for c in pod.status.conditions if c.type == "PodScheduled"]
    assert (pod.status.phase, condition.status, condition.reason) == (
        "Pending",
        "False",
        "Unschedulable",
    )
    assert "nodes are available" in condition.message
    assert "Insufficient cpu" in condition.message


def test_an_unschedulable_pod_leaves_a_warning(kube: Kube) -> None:
    kube.create(kube.pod("a", nodeSelector={"hai.dev/none": "x"}))
    kube.until("a", lambda p: p.status.conditions)
    stream = watch.Watch().stream(
        kube.core.list_namespaced_event,
        kube.namespace,
        field_selector="involvedObject.name=a,reason=FailedScheduling",
        timeout_seconds=30,
    )
    event = next(iter(stream))["object"]
    assert event.type == "Warning"
    assert "didn't match" in event.message


def test_an_image_that_is_not_there(kube: Kube) -> None:
    kube.create(kube.pod("a", containers=[{"image": "hai.invalid/none:1"}]))
    reasons = ("ErrImagePull", "ImagePullBackOff")

    def pulls(pod: Any) -> bool:
        rows = pod.status.container_statuses or []
        return any(r.state.waiting and r.state.waiting.reason in reasons for r in rows)

    assert kube.until("a", pulls).status.phase == "Pending"


def test_a_pod_without_a_handler_takes_its_grace_and_one_with_it_does_not(kube: Kube) -> None:
    kube.create(kube.pod("deaf", f"echo ready; {SLEEP}", terminationGracePeriodSeconds=3))
    kube.create(kube.pod("polite", POLITE, terminationGracePeriodSeconds=30))
    for name in ("deaf", "polite"):
        kube.phase(name, "Running")
        kube.until(name, lambda p: "ready" in kube.log(p.metadata.name))
    assert kube.core.delete_namespaced_pod("polite", kube.namespace).metadata.deletion_timestamp
    assert kube.gone("polite") < 15
    kube.core.delete_namespaced_pod("deaf", kube.namespace)
    assert kube.gone("deaf") > 1.5


def deletion(kube: Kube, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Delete a pod, and return the events that a watch sends meanwhile."""
    version = kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version
    timer = threading.Timer(0.1, kube.core.delete_namespaced_pod, (name, kube.namespace))
    timer.start()
    stream = watch.Watch()
    seen = []
    for event in stream.stream(
        kube.core.list_namespaced_pod, kube.namespace, resource_version=version, timeout_seconds=60
    ):
        seen.append((event["type"], event["raw_object"]))
        if event["type"] == "DELETED":
            stream.stop()
    timer.join()
    return seen


def test_the_exit_code_is_told_before_a_pod_is_gone(kube: Kube) -> None:
    kube.create(kube.pod("a", POLITE))
    kube.until("a", lambda p: p.status.phase == "Running" and "ready" in kube.log("a"))
    seen = deletion(kube, "a")
    assert [t for t, _ in seen[:-1]] == ["MODIFIED"] * (len(seen) - 1)
    assert "deletionTimestamp" in seen[0][1]["metadata"]
    told = [o for _, o in seen if o["status"]["phase"] == "Failed"]
    assert len(told) >= 2  # the kubelet's report, and the end of the grace period
    ended = told[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 143


def test_containers_that_are_restarted(kube: Kube) -> None:
    kube.create(kube.pod("a", "exit 1", restartPolicy="OnFailure"))
    pod = kube.until("a", lambda p: any(r.restart_count for r in p.status.container_statuses or ()))
    row = pod.status.container_statuses[0]
    assert row.last_state.terminated.exit_code == 1
    assert pod.status.phase in ("Running", "Pending")


def test_init_containers_come_first_and_in_order(kube: Kube) -> None:
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work-hai"}]}
    inits = [
        {"name": "one", "command": ["/bin/sh", "-c", "echo one > /work-hai/said"], **mount},
        {"name": "two", "command": ["/bin/sh", "-c", "echo two >> /work-hai/said"], **mount},
    ]
    main = {"command": ["/bin/sh", "-c", "cat /work-hai/said"], **mount}
    volumes = [{"name": "work", "emptyDir": {}}]
    kube.create(kube.pod("a", initContainers=inits, containers=[main], volumes=volumes))
    kube.phase("a", "Succeeded")
    assert kube.log("a", container="main").split() == ["one", "two"]


def test_a_failed_init_container_fails_the_pod(kube: Kube) -> None:
    inits = [{"name": "one", "command": ["/bin/sh", "-c", "exit 4"]}]
    kube.create(kube.pod("a", initContainers=inits))
    pod = kube.phase("a", "Failed")
    assert pod.status.init_container_statuses[0].state.terminated.exit_code == 4
    assert state(pod).waiting.reason == "PodInitializing"


def test_variables_from_the_pod_a_secret_and_a_config_map(kube: Kube) -> None:
    kube.core.create_namespaced_secret(
        kube.namespace, {"metadata": {"name": "s"}, "stringData": {"token": "hush"}}
    )
    kube.core.create_namespaced_config_map(
        kube.namespace, {"metadata": {"name": "c"}, "data": {"k": "v"}}
    )
    sources = {
        "IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        "RANK": {"fieldRef": {"fieldPath": "metadata.labels['rank']"}},
        "TOKEN": {"secretKeyRef": {"name": "s", "key": "token"}},
        "VALUE": {"configMapKeyRef": {"name": "c", "key": "k"}},
        "NOTHING": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}},
    }
    env = [{"name": n, "valueFrom": s} for n, s in sources.items()]
    env.append({"name": "BOTH", "value": "$(NAME)-$(VALUE)-$(OTHER)-$$(NAME)"})
    words = "$IP $NAME $NODE $RANK $TOKEN $VALUE ${NOTHING-none}"
    body = kube.pod("a", f'echo "{words} $BOTH"', containers=[{"env": env}])
    body["metadata"]["labels"] = {"rank": "3"}
    kube.create(body)
    pod = kube.phase("a", "Succeeded")
    ip, node = pod.status.pod_ip, pod.spec.node_name
    assert kube.log("a").split() == [
        ip,
        "a",
        node,
        "3",
        "hush",
        "v",
        "none",
        "a-v-$(OTHER)-$(NAME)",
    ]


def test_secrets_and_config_maps_as_files(kube: Kube) -> None:
    kube.core.create_namespaced_secret(
        kube.namespace, {"metadata": {"name": "s"}, "stringData": {"token": "hush", "other": "x"}}
    )
    volumes = [
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "token", "path": "t/a"}]}}
    ]
    mounts = [{"name": "s", "mountPath": "/secret-hai", "readOnly": True}]
    main = {
        "command": ["/bin/sh", "-c", "cat /secret-hai/t/a; ls /secret-hai"],
        "volumeMounts": mounts,
    }
    kube.create(kube.pod("a", containers=[main], volumes=volumes))
    kube.phase("a", "Succeeded")
    assert kube.log("a").split() == ["husht"]


def test_a_pod_waits_for_its_secret(kube: Kube) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "late", "key": "token"}}}]
    kube.create(kube.pod("a", "echo $TOKEN", containers=[{"env": env}]))

    def waits(pod: Any) -> bool:
        rows = pod.status.container_statuses or []
        return any(
            r.state.waiting and r.state.waiting.reason == "CreateContainerConfigError" for r in rows
        )

    kube.until("a", waits)
    body = {"metadata": {"name": "late"}, "stringData": {"token": "hush"}}
    kube.core.create_namespaced_secret(kube.namespace, body)
    kube.phase("a", "Succeeded")
    assert kube.log("a").strip() == "hush"


def test_the_log_of_a_pod_that_nobody_scheduled_is_empty(kube: Kube) -> None:
    kube.create(kube.idle("a"))
    assert kube.log("a") == ""


def test_the_log_of_a_container_that_waits_is_refused(kube: Kube) -> None:
    volumes = [{"name": "s", "secret": {"secretName": "none"}}]
    kube.create(kube.pod("a", volumes=volumes))
    kube.until("a", lambda p: p.spec.node_name and p.status.container_statuses)
    with pytest.raises(ApiException) as caught:
        kube.log("a")
    assert caught.value.status == 400
    assert "ContainerCreating" in str(caught.value)


def test_parts_of_a_log(kube: Kube) -> None:
    kube.create(kube.pod("a", "for i in 1 2 3; do echo line $i; done"))
    kube.phase("a", "Succeeded")
    assert kube.log("a") == "line 1\nline 2\nline 3\n"
    assert kube.log("a", tail_lines=1) == "line 3\n"
    assert kube.log("a", limit_bytes=4) == "line"
    stamp, _, rest = kube.log("a", timestamps=True, tail_lines=1).partition(" ")
    assert (stamp[-1], rest) == ("Z", "line 3\n")


def test_a_log_is_followed_to_its_end(kube: Kube) -> None:
    kube.create(kube.pod("a", "echo one; sleep 0.5; echo two"))
    kube.phase("a", "Running", "Succeeded")
    said = kube.core.read_namespaced_pod_log(
        "a", kube.namespace, follow=True, _preload_content=False
    )
    assert said.read().decode().split() == ["one", "two"]
    said.release_conn()


def test_a_budget_holds_back_an_eviction(kube: Kube) -> None:
    body = kube.pod("a", POLITE)
    body["metadata"]["labels"] = {"app": "x"}
    kube.create(body)
    kube.phase("a", "Running")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    kube.policy.create_namespaced_pod_disruption_budget(
        kube.namespace, {"metadata": {"name": "b"}, "spec": spec}
    )
    evict = kube.core.create_namespaced_pod_eviction
    with pytest.raises(ApiException) as caught:
        evict("a", kube.namespace, {"metadata": {"name": "a"}})
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (
        429,
        "TooManyRequests",
    )
    kube.policy.delete_namespaced_pod_disruption_budget("b", kube.namespace)
    evict("a", kube.namespace, {"metadata": {"name": "a"}}, _preload_content=False).release_conn()
    assert kube.gone("a") < 20


def test_more_than_a_node_has_is_refused_by_its_kubelet(kube: Kube) -> None:
    limits = {"resources": {"limits": {"cpu": "100000"}}}
    kube.create(kube.pod("a", containers=[limits], nodeName=kube.node()))
    pod = kube.phase("a", "Failed")
    assert pod.status.reason == "OutOfcpu"


def test_a_deadline_ends_a_pod(kube: Kube) -> None:
    kube.create(kube.pod("a", POLITE, activeDeadlineSeconds=1))
    assert kube.phase("a", "Failed").status.reason == "DeadlineExceeded"
