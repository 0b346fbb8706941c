"""Who can connect to a pod, by the network policies of runs and the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.spec import ServiceType
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources, RunRequest, ServiceRequest

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]
SERVICES = (
    ServiceRequest("jupyter", ServiceType.HTTP, 8888),
    ServiceRequest("ssh", ServiceType.TCP, 22),
    ServiceRequest("board", ServiceType.LOCAL, 6006),
)


def chosen(installation_labels: Manifest, pod: Manifest) -> bool:
    labels = pod["metadata"]["labels"]
    return all(
        labels.get(key) == value for key, value in installation_labels["matchLabels"].items()
    )


def reaches(policies: list[Manifest], caller: Manifest, called: Manifest, port: int) -> bool:
    """Return whether the policies allow a connection.

    By the rules of NetworkPolicy, a pod without a policy is open. Otherwise one of its policies must allow it.
    """
    rules = [p["spec"]["ingress"] for p in policies if chosen(p["spec"]["podSelector"], called)]
    return not rules or any(_lets_in(rule, caller, port) for own in rules for rule in own)


def _lets_in(rule: Manifest, caller: Manifest, port: int) -> bool:
    peers, ports = rule.get("from"), rule.get("ports")
    known = peers is None or any(chosen(peer["podSelector"], caller) for peer in peers)
    return known and (ports is None or port in {row["port"] for row in ports})


@pytest.fixture
def everything(
    made: Made, cluster: ClusterSettings, request_of: Callable[..., RunRequest]
) -> Callable[..., list[Manifest]]:
    """Two runs of ada's, of two and one ranks, and one of bob's."""

    def make(**settings: Any) -> list[Manifest]:
        changed = replace(cluster, **settings)
        runs = [
            request_of(services=SERVICES, resources=(RankResources(),) * 2),
            request_of(task_id=13),
            request_of(task_id=14, user="bob"),
        ]
        return [manifest for run in runs for manifest in made(run, changed)]

    return make


CASES = [
    pytest.param("hai-12-1-1", "hai-12-1-0", 9, {}, True, id="ranks of one gang"),
    pytest.param("hai-13-1-0", "hai-12-1-0", 9, {}, True, id="two tasks of one user"),
    pytest.param("hai-14-1-0", "hai-12-1-0", 9, {}, False, id="another user's task"),
    pytest.param("hai-12-1-0", "hai-14-1-0", 9, {}, False, id="and the other way round"),
    pytest.param("hai-14-1-0", "hai-12-1-0", 22, {}, True, id="a published port"),
    pytest.param("hai-14-1-0", "hai-12-1-0", 6006, {}, False, id="a local service"),
    pytest.param("hai-14-1-0", "hai-12-1-0", 8888, {}, True, id="an ingress without login"),
    pytest.param(
        *("hai-14-1-0", "hai-12-1-0", 8888, {"ingress_hosts": ()}, False),
        id="a service behind the servers' login",
    ),
    pytest.param(
        *("hai-14-1-0", "hai-12-1-0", 9, {"separate_users": False}, True), id="an open network"
    ),
]


@pytest.mark.parametrize(("caller", "called", "port", "settings", "let_in"), CASES)
def test_who_reaches_a_pod(
    everything: Callable[..., list[Manifest]],
    caller: str,
    called: str,
    port: int,
    settings: dict[str, Any],
    let_in: bool,
) -> None:
    manifests = everything(**settings)
    pods = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "Pod"}
    policies = [m for m in manifests if m["kind"] == "NetworkPolicy"]
    assert reaches(policies, pods[caller], pods[called], port) is let_in


def test_a_user_of_another_installation_is_another_user(
    everything: Callable[..., list[Manifest]],
) -> None:
    manifests, others = everything(), everything(instance="west")
    policies = [m for m in manifests if m["kind"] == "NetworkPolicy"]
    ours, theirs = ([m for m in of if m["kind"] == "Pod"] for of in (manifests, others))
    assert not reaches(policies, theirs[0], ours[0], 9)
