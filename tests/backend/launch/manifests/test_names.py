"""For all requests, names and labels are valid in Kubernetes, and no two objects have the same name."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.mounts.mount import Mount, MountKind
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ServiceType
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.manifests.names import key_of, service_name
from hai_backend.launch.manifests.objects import objects, owner
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import HostRight, RankResources, RunRequest, ServiceRequest

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SETTINGS = ClusterSettings(
    agent_image="a/b", images={"default": "a/c"}, ingress_hosts=("x.example",), default_uid=7
)

numbers = st.integers(1, 2**63 - 1)
labels = st.from_regex(DNS_LABEL, fullmatch=True)
services = st.builds(
    ServiceRequest,
    name=labels | st.text(max_size=80),
    type=st.sampled_from(ServiceType),
    port=st.integers(1, 65535),
    node_port=st.integers(0, 65535),
    rewrite_uri=st.booleans(),
)
resources = st.builds(
    RankResources,
    gpus=st.integers(0, 16),
    mig=st.sampled_from(("", "1g.10gb", "3g.40gb.me")),
    cpus=st.integers(0, 512),
    memory_bytes=st.integers(0, 1 << 44),
    rdma=st.integers(0, 2),
    whole_node=st.booleans(),
)
mounts = st.builds(
    Mount,
    mount_path=labels.map(lambda word: f"/data/{word}"),
    source=labels.map(lambda word: f"{word}:a/b"),
    kind=st.sampled_from((MountKind.PVC, MountKind.CONFIG_MAP)),
    read_only=st.booleans(),
)
requests = st.builds(
    RunRequest,
    task_id=numbers,
    run=st.integers(1, 2**31 - 1),
    user=st.text(max_size=80) | labels,
    uid=st.integers(0, 2**31 - 1),
    groups=st.lists(st.integers(1, 2**31 - 1), max_size=3).map(tuple),
    resources=st.lists(resources, min_size=1, max_size=3).map(tuple),
    mounts=st.lists(mounts, max_size=4, unique_by=lambda m: m.mount_path).map(tuple),
    capabilities=st.lists(st.sampled_from(("IPC_LOCK", "NET_RAW")), unique=True).map(tuple),
    host_rights=st.lists(st.sampled_from(HostRight), unique=True).map(tuple),
    services=st.lists(services, max_size=5, unique_by=lambda s: s.name).map(tuple),
    priority=st.sampled_from(Priority),
    spot=st.booleans(),
    grace_seconds=st.floats(0, 4000),
)


def of_run(run: RunRequest) -> list[dict[str, Any]]:
    keys = [RankKey(run.task_id, run.run, i) for i in range(len(run.resources))]
    ranks = [RankLaunch(key, f"node-{key.rank}", "secret", run=run) for key in keys]
    return [owner(run, SETTINGS), *objects(run, ranks, SETTINGS, "uid")]


@given(requests)
def test_names_and_labels_are_those_of_kubernetes(run: RunRequest) -> None:
    for made in of_run(run):
        name, about = made["metadata"]["name"], made["metadata"]
        assert (SERVICE if made["kind"] == "Service" else DNS_LABEL).fullmatch(name)
        for key, value in about["labels"].items():
            assert LABEL_KEY.fullmatch(key)
            assert LABEL_VALUE.fullmatch(value)


@given(requests)
def test_no_two_objects_have_one_name(run: RunRequest) -> None:
    names = [(made["kind"], made["metadata"]["name"]) for made in of_run(run)]
    assert len(set(names)) == len(names)


@given(requests)
def test_pods_hold_together(run: RunRequest) -> None:
    """Every mount has its volume, nothing is named twice, and who asks for a device gets as many."""
    for pod in (made for made in of_run(run) if made["kind"] == "Pod"):
        spec, (program,) = pod["spec"], pod["spec"]["containers"]
        volumes = [volume["name"] for volume in spec["volumes"]]
        assert len(set(volumes)) == len(volumes)
        for container in (*spec["initContainers"], program):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        asked, limits = (program["resources"].get(k, {}) for k in ("requests", "limits"))
        devices = {name for name in asked if "/" in name}
        assert all(asked[name] == limits[name] for name in devices)
        assert key_of(pod["metadata"]["labels"]) is not None


@given(st.lists(labels | st.text(max_size=80), unique=True, max_size=6))
def test_services_keep_apart(names: list[str]) -> None:
    run = RunRequest(task_id=2**63 - 1, run=2**31 - 1)
    assert len({service_name(run, name) for name in names}) == len(names)


def test_labels_of_others_are_no_rank() -> None:
    assert key_of({}) is None
    assert key_of({"hai.dev/task": "x", "hai.dev/run": "1", "hai.dev/rank": "0"}) is None
    ours = {"hai.dev/task": "12", "hai.dev/run": "1", "hai.dev/rank": "3"}
    assert key_of(ours) == RankKey(12, 1, 3)
