"""Order, owners and secrets of a run's objects, and the script of the init container."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hai_backend.agent.rank_dir import RankDir, ServerAddress
from hai_backend.domain.spec import ServiceType
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources, RunRequest, ServiceRequest

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]
Make = Callable[..., RunRequest]


def test_owner_first_then_what_pods_need_then_pods(
    made: Made, cluster: ClusterSettings, request_of: Make
) -> None:
    services = (
        ServiceRequest("web", ServiceType.HTTP, 80),
        ServiceRequest("s", ServiceType.TCP, 1),
    )
    run = request_of(services=services, resources=(RankResources(),) * 2)
    kinds = [manifest["kind"] for manifest in made(run, cluster)]
    expected = "ConfigMap Secret Service NetworkPolicy Service Ingress Service Pod Pod"
    assert kinds == expected.split()


def test_everything_goes_with_its_owner(
    made: Made, cluster: ClusterSettings, request_of: Make
) -> None:
    owner, *others = made(request_of(), cluster)
    assert "ownerReferences" not in owner["metadata"]
    for manifest in others:
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"]) == ("ConfigMap", owner["metadata"]["name"])


def test_no_ingress_without_a_host(made: Made, cluster: ClusterSettings, request_of: Make) -> None:
    run = request_of(services=(ServiceRequest("web", ServiceType.HTTP, 80),))
    kinds = [m["kind"] for m in made(run, replace(cluster, ingress_hosts=()))]
    assert kinds == ["ConfigMap", "Secret", "Service", "NetworkPolicy", "Pod"]


def test_tokens_are_in_the_secret_only(
    made: Made, cluster: ClusterSettings, request_of: Make
) -> None:
    manifests = made(request_of(resources=(RankResources(),) * 2), cluster)
    secret = next(m for m in manifests if m["kind"] == "Secret")
    for rank in range(2):
        facts = json.loads(base64.b64decode(secret["data"][f"agent-{rank}.json"]))
        assert (facts["rank"], facts["token"]) == (rank, f"token-{rank}")
    rest = json.dumps([m for m in manifests if m is not secret])
    assert "token-" not in rest
    assert not any(value in rest for value in secret["data"].values())


def test_a_pod_is_given_its_own_identity_only(
    made: Made, cluster: ClusterSettings, request_of: Make
) -> None:
    pods = made(request_of(resources=(RankResources(),) * 3), cluster)[-3:]
    for rank, pod in enumerate(pods):
        (given,) = [v for v in pod["spec"]["volumes"] if "projected" in v]
        _, secret = given["projected"]["sources"]
        assert [item["key"] for item in secret["secret"]["items"]] == [f"agent-{rank}.json"]
        (program,) = pod["spec"]["containers"]
        assert "given" not in {mount["name"] for mount in program["volumeMounts"]}


@pytest.mark.parametrize("agent_path", ["", "/opt/hai/agent"])
def test_the_script_leaves_a_home_that_the_agent_reads(
    agent_path: str, made: Made, cluster: ClusterSettings, request_of: Make, tmp_path: Path
) -> None:
    """The kubelet's work, done by hand: files behind links, as it mounts Secrets."""
    addresses = ("hai-0.hai:50051", "hai-1.hai:50051")
    settings = replace(cluster, agent_path=agent_path, server_addresses=addresses)
    owner, secret, *_, pod = made(request_of(), settings)
    hidden = tmp_path / "hai/given/..2026_01_01"
    (hidden / "run/12-1-0").mkdir(parents=True)
    (tmp_path / "hai/home").mkdir()
    (tmp_path / "hai/agent").mkdir()
    (tmp_path / "opt/hai/agent/bin").mkdir(parents=True)
    (tmp_path / "opt/hai/agent/bin/hai-agent").touch(mode=0o755)
    for name, text in owner["data"].items():
        (hidden / name).write_text(text)
    identity = base64.b64decode(secret["data"]["agent-0.json"])
    (hidden / "run/12-1-0/agent.json").write_bytes(identity)
    (tmp_path / "hai/given/..data").symlink_to(hidden.name)
    for name in (*owner["data"], "run"):
        (tmp_path / "hai/given" / name).symlink_to(f"..data/{name}")

    (init,) = pod["spec"]["initContainers"]
    shell, option, script = init["command"]
    moved = re.sub(r" /", f" {tmp_path}/", script)
    subprocess.run([shell, option, moved], check=True)

    directory = RankDir(tmp_path / pod["spec"]["containers"][0]["command"][1].lstrip("/"))
    assert (directory.identity().token, directory.identity().gpu_indices) == ("token-0", None)
    assert directory.servers() == (
        ServerAddress("hai-0.hai:50051", str(tmp_path / "hai/home/ca.pem")),
        ServerAddress("hai-1.hai:50051", str(tmp_path / "hai/home/ca.pem")),
    )
    assert (directory.path / "agent.json").stat().st_mode & 0o777 == 0o600
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert sorted(p.name for p in (tmp_path / "hai/home").iterdir()) == [
        "ca.pem",
        "run",
        "server.json",
    ]
    brought = tmp_path / "hai/agent/bin/hai-agent"
    assert brought.exists() is not bool(agent_path)
    assert agent_path or brought.stat().st_mode & 0o111
