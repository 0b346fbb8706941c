"""The chart grants exactly the rights that the launcher needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from random import Random

from hai_backend.domain.spec import ServiceType
from hai_backend.launch.base import KillRequest, RankKey, RankLaunch, RankList, RankTerminated
from hai_backend.launch.kubernetes.api import Answer, Call
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, ServiceRequest
from hai_backend.testing.kube import Close, FakeCluster
from hai_backend.testing.kube.request_info import parse_request
from tests.support.direct_transport import DirectTransport
from tests.support.virtual_time import LoopTimers, run_virtually

from .conftest import Render, one

Right = tuple[str, str, str]  # API group, resource with subresource, verb

SETTINGS = ClusterSettings(
    namespace="default",
    agent_path="/opt/agent",
    images={"default": "any/image:1"},
    default_uid=1000,
    ingress_class="any",
    ingress_hosts=("example.org",),
)
RUN = RunRequest(
    *(7, 1),
    user="ada",
    services=(
        ServiceRequest("web", ServiceType.HTTP, 8000),
        ServiceRequest("ssh", ServiceType.TCP, 22),
    ),
)


class Noting:
    """A Transport that forwards all calls, and records the right that each call needs."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._inner = DirectTransport(cluster)
        self.needed: set[Right] = set()

    async def ask(self, call: Call, seconds: float) -> Answer:
        self._note(call)
        return await self._inner.ask(call, seconds)

    def lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        self._note(call)
        return self._inner.lines(call)

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, call: Call) -> None:
        request = parse_request(
            self._cluster.api.resources, call.method, call.path, dict(call.query)
        )
        what = f"{request.resource.plural}/{request.subresource}".removesuffix("/")
        self.needed.add((request.resource.group, what, request.verb))


async def _a_life(noting: Noting, cluster: FakeCluster) -> None:
    """Create a run while responses are lost, preempt it, and wait until its objects are deleted."""
    options = Options(relist_seconds=30.0, evict=True)
    launcher = KubernetesLauncher(noting, SETTINGS, options, Random(1))
    events = launcher.events()
    while not isinstance(await anext(events), RankList):
        pass
    for plural in ("configmaps", "secrets", "services", "ingresses", "networkpolicies", "pods"):
        cluster.faults.add(Close(after=True), verb="create", resource=plural, subresource="", nth=1)
    key = RankKey(7, 1, 0)
    await launcher.start([RankLaunch(key, "node0", "token", run=RUN)])
    await launcher.kill(KillRequest(key, "node0", preempted=True))
    while not isinstance(await anext(events), RankTerminated):
        pass
    await asyncio.sleep(100)
    await launcher.close()


async def _needed() -> set[Right]:
    async with FakeCluster(1, timers=LoopTimers()) as cluster:
        noting = Noting(cluster)
        await _a_life(noting, cluster)
        return noting.needed


def _granted(*roles: dict[str, list[dict[str, list[str]]]]) -> set[Right]:
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_chart_grants_what_the_launcher_does(render: Render) -> None:
    manifests = render()
    roles = one(manifests, "Role", "hai-tasks"), one(manifests, "ClusterRole", "hai-lab-nodes")
    granted, needed = _granted(*roles), run_virtually(_needed())
    assert {"missing": needed - granted, "too much": granted - needed} == {
        "missing": set(),
        "too much": set(),
    }


def test_in_the_whole_cluster_servers_see_nodes_and_pods_and_change_nothing(render: Render) -> None:
    role = one(render(), "ClusterRole", "hai-lab-nodes")
    nodes = {("", "nodes", "list"), ("", "nodes", "watch")}
    assert _granted(role) == {*nodes, ("", "pods", "list"), ("", "pods", "watch")}
    role = one(render(foreignPods=False), "ClusterRole", "hai-lab-nodes")
    assert _granted(role) == nodes


def test_rights_are_where_the_tasks_are(render: Render) -> None:
    manifests = render(tasks={"namespace": "lab-tasks"})
    bound = one(manifests, "RoleBinding", "hai-tasks")
    assert one(manifests, "Role", "hai-tasks")["metadata"]["namespace"] == "lab-tasks"
    assert bound["metadata"]["namespace"] == "lab-tasks"
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "hai", "namespace": "lab"}]
    assert one(manifests, "Namespace", "lab-tasks")
