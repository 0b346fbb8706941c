"""The launch request of a task: the resources of its ranks, and the effects of rights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.accounts.user import User
from hai_backend.domain.mounts.mount import Mount
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import (
    OptionsSpec,
    ProgramSpec,
    ResourceSpec,
    ServiceSpec,
    ServiceType,
    TaskSpec,
)
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.launch.manifests.resources import container_resources
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import (
    HostRight,
    RankResources,
    ServiceRequest,
    Terms,
    run_request,
)

GIB = 1 << 30
NODES = {
    "a": Node("a", gpus=8, cpus=64, memory_bytes=256 * GIB),
    "b": Node("b", gpus=4, cpus=32, memory_bytes=128 * GIB),
    "s": Node("s", gpus=4, gpus_simulated=True, cpus=2, memory_bytes=4 * GIB),
}
ADA = User("ada", uid=2001)


def task(*nodes: str, **spec: Any) -> Task:
    ranks = tuple(Rank(i, name) for i, name in enumerate(nodes))
    run = Run(3, RunState.CREATED, ranks, 0.0, Priority.HIGH)
    wanted = TaskSpec("t", ProgramSpec("t.py"), **spec)
    return Task(12, "ada", wanted, TaskState.RUNNING, Priority.AUTO, 0.0, run=run)


def test_each_rank_has_its_whole_node() -> None:
    request = run_request(task("a", "b"), ADA, Terms(), NODES)
    assert request.resources == (
        RankResources(8, "", 64, 256 * GIB, rdma=1, whole_node=True),
        RankResources(4, "", 32, 128 * GIB, rdma=1, whole_node=True),
    )


PARTS = [
    ("share", ResourceSpec(gpu=2, cpu=8, memory=64), True, RankResources(2, "", 8, 64 * GIB)),
    ("cpu only", ResourceSpec(cpu=8), True, RankResources(0, "", 8, 0)),
    ("whole of a packed group", ResourceSpec(), True, RankResources(8, "", 64, 256 * GIB, 1, True)),
    ("not packed", ResourceSpec(gpu=2), False, RankResources(8, "", 64, 256 * GIB, 1, True)),
]


@pytest.mark.parametrize(
    ("resource", "packed", "expected"), [pytest.param(*case, id=ident) for ident, *case in PARTS]
)
def test_parts_of_nodes(resource: ResourceSpec, packed: bool, expected: RankResources) -> None:
    request = run_request(task("a", resource=resource), ADA, Terms(packed=packed), NODES)
    assert request.resources == (expected,)


@pytest.mark.parametrize(
    ("resource", "packed", "gpus"),
    [
        pytest.param(ResourceSpec(gpu=2, cpu=1), True, 2, id="some of a node"),
        pytest.param(ResourceSpec(), False, 14, id="all of a node"),
    ],
)
def test_slices_of_gpus_are_asked_for_by_profile(
    resource: ResourceSpec, packed: bool, gpus: int
) -> None:
    sliced = {"a": Node("a", gpus=14, mig="1g.10gb")}
    (found,) = run_request(
        task("a", resource=resource), ADA, Terms(packed=packed), sliced
    ).resources
    assert (found.gpus, found.mig) == (gpus, "1g.10gb")


def test_simulated_gpus_and_unknown_nodes_ask_for_no_device() -> None:
    found = run_request(task("s", "gone"), ADA, Terms(), NODES).resources
    assert [rank.gpus for rank in found] == [0, 0]


def test_a_built_in_image_is_what_the_table_says() -> None:
    asked = task("a", resource=ResourceSpec("torch"))
    assert run_request(asked, ADA, Terms(image="r.example/t:1"), NODES).image == "r.example/t:1"


@pytest.mark.parametrize(("declared", "most", "expected"), [(60.0, 0.0, 67.0), (5.0, 120.0, 127.0)])
def test_the_node_waits_as_long_as_the_server_may(
    declared: float, most: float, expected: float
) -> None:
    options = OptionsSpec(ack_within=7.0, save_within=declared)
    found = run_request(task("a", options=options), ADA, Terms(save_within_max=most), NODES)
    assert found.grace_seconds == expected


def test_the_rest_comes_from_task_user_and_terms() -> None:
    services = (
        ServiceSpec("web", ServiceType.HTTP, 80, rewrite_uri=True),
        ServiceSpec("ssh", ServiceType.TCP, 22),
        ServiceSpec("helper", ServiceType.LOCAL, startup_script="x"),
    )
    asked = task(
        "a",
        services=services,
        resource=ResourceSpec("r.example/a", is_spot=True),
        options=OptionsSpec(ack_within=7.0, save_within=60.0),
    )
    rights = ("cap:SYS_PTRACE", "host_ipc", "gid:3001", "cap:IPC_LOCK", "gid:3000", "assign_nodes")
    terms = Terms((Mount("/a", "/b"),), {"ssh": 30022}, pull_secret="team")
    found = run_request(asked, replace(ADA, rights=rights), terms, NODES)
    assert (found.task_id, found.run, found.user, found.uid, found.gid) == (
        12,
        3,
        "ada",
        2001,
        2001,
    )
    assert (found.image, found.pull_secret, found.mounts) == ("r.example/a", "team", terms.mounts)
    assert (found.priority, found.spot, found.grace_seconds) == (Priority.HIGH, True, 67.0)
    assert found.capabilities == ("IPC_LOCK", "SYS_PTRACE")
    assert (found.groups, found.host_rights) == ((3000, 3001), (HostRight.HOST_IPC,))
    assert found.services == (
        ServiceRequest("web", ServiceType.HTTP, 80, rewrite_uri=True),
        ServiceRequest("ssh", ServiceType.TCP, 22, node_port=30022),
    )


WHOLE = [
    ("reserve", 64, 256 * GIB, "63", "254Gi"),
    ("at least half", 1, 2 * GIB, "500m", "1Gi"),
    ("odd", 3, 5 * GIB, "2", "3Gi"),
]


@pytest.mark.parametrize(
    ("cpus", "memory", "cpu_left", "memory_left"),
    [pytest.param(*case, id=ident) for ident, *case in WHOLE],
)
def test_a_whole_node_leaves_a_reserve(
    cpus: int, memory: int, cpu_left: str, memory_left: str
) -> None:
    rank = RankResources(cpus=cpus, memory_bytes=memory, whole_node=True)
    assert container_resources(rank, ClusterSettings()) == {
        "requests": {"cpu": cpu_left, "memory": memory_left},
        "limits": {"memory": memory_left},
    }


def test_what_is_not_asked_for_is_not_limited() -> None:
    assert container_resources(RankResources(), ClusterSettings()) == {}
    rank = RankResources(gpus=1, memory_bytes=1500, rdma=1)
    asked = {"memory": "1500", "nvidia.com/gpu": "1"}
    assert container_resources(rank, ClusterSettings()) == {"requests": asked, "limits": asked}
