"""Tests of `hai cluster` with real Helm and kubectl against a fake cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hai_backend.testing.kube import FakeCluster, InstantKubelet
from hai_backend.testing.kube.control.statefulsets import STATEFULSETS, StatefulSets
from hai_backend.testing.kube.threaded import ThreadedCluster, threaded_cluster

needs_helm = pytest.mark.skipif(
    shutil.which("helm") is None or shutil.which("kubectl") is None,
    reason="needs helm (scripts/tools) and kubectl",
)
VALUES = {"image": {"repository": "example/hai"}, "postgresql": {"enabled": True}}


@dataclass
class Site:
    """A fake cluster, a values file, and `hai cluster` for both."""

    cluster: ThreadedCluster
    folder: Path
    hai: Callable[..., Any]
    kubelet: InstantKubelet

    def write(self, **values: Any) -> str:
        path = self.folder / "values.yaml"
        path.write_text(json.dumps({**VALUES, **values}))
        return str(path)

    def __call__(self, verb: str, *more: str) -> Any:
        return self.hai("cluster", verb, f"--kubeconfig={self.folder / 'kubeconfig'}", *more)

    def json(self, verb: str, *more: str) -> Any:
        done = self(verb, "--json", *more)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def names(self, plural: str) -> set[str]:
        return {body["metadata"]["name"] for body in self.cluster.objects(plural, "hai")}

    def secret(self, name: str) -> Any:
        found = self.cluster.objects("secrets", "hai")
        return next(body["data"] for body in found if body["metadata"]["name"] == name)


@pytest.fixture
def site(
    tmp_path: Path, hai: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "helm"))
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
    kubelets: list[InstantKubelet] = []

    def kubelet(api: Any) -> InstantKubelet:
        kubelets.append(InstantKubelet(api))
        return kubelets[0]

    def make() -> FakeCluster:
        return FakeCluster(2, kubelet=kubelet, custom=[STATEFULSETS])

    with threaded_cluster(make) as cluster:
        cluster.call(lambda inner: StatefulSets(inner.api))
        cluster.kubeconfig(tmp_path / "kubeconfig")
        yield Site(cluster, tmp_path, hai, kubelets[0])


@needs_helm
def test_servers_come_change_and_go(site: Site) -> None:
    file = site.write()
    planned = site.json("dryrun", "-f", file)
    assert "StatefulSet/hai" in planned["created"]
    assert not site.names("statefulsets")

    done = site("up", "-f", file)
    assert done.code == 0, done.err
    assert "partitioned roll out complete" in done.err or "rolling update complete" in done.err
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["hai-0", "yes", "Running"],
        ["hai-1", "yes", "Running"],
    ]
    assert site.json("dryrun", "-f", file) == {
        "changes": False, "created": [], "deleted": [], "diff": ""
    }  # fmt: skip


@needs_helm
def test_a_dry_run_tells_what_would_change(site: Site) -> None:
    assert site("up", "-f", site.write()).code == 0
    told = site("dryrun", "-f", site.write(networkPolicy={"enabled": False}, replicas=3))
    assert told.code == 0, told.err
    assert "- NetworkPolicy/hai\n" in told.out
    assert "-  replicas: 2\n+  replicas: 3\n" in told.out
    assert len(site.json("status")["servers"]) == 2
    assert site("up", "-f", site.write(networkPolicy={"enabled": False}, replicas=3)).code == 0
    assert len(site.json("status")["servers"]) == 3
    assert not site.names("networkpolicies")


@needs_helm
def test_an_upgrade_replaces_the_servers_and_keeps_the_values(site: Site) -> None:
    assert site("up", "-f", site.write(replicas=3)).code == 0
    key = site.secret("hai-run-token-key")
    done = site.json("upgrade", "--tag", "0.2.0")
    assert {server["image"] for server in done["servers"]} == {"example/hai:0.2.0"}
    assert [server["name"] for server in done["servers"]] == ["hai-0", "hai-1", "hai-2"]
    assert (done["state"], done["revision"]) == ("deployed", 2)
    assert site.secret("hai-run-token-key") == key


@needs_helm
def test_what_is_kept_serves_again_and_purge_leaves_nothing(site: Site) -> None:
    file = site.write()
    assert site("up", "-f", file).code == 0
    kept = {name: site.secret(name) for name in ("hai-run-token-key", "hai-postgresql", "hai-tls")}
    assert site("down", "--yes").code == 0
    assert not site.names("statefulsets")
    assert site.names("persistentvolumeclaims") == {"hai-shared", "data-hai-postgresql-0"}
    assert site("up", "-f", file).code == 0
    assert {name: site.secret(name) for name in kept} == kept
    assert site("down", "--yes", "--purge").code == 0
    left = {p: site.names(p) for p in ("secrets", "persistentvolumeclaims", "services", "pods")}
    assert not any(left.values()), left


@needs_helm
def test_down_asks(site: Site) -> None:
    assert site("up", "-f", site.write()).code == 0
    done = site("down")  # stdin is not a terminal, so the question is refused
    assert done.code != 0
    assert site.names("statefulsets") == {"hai", "hai-postgresql"}


@needs_helm
def test_what_is_not_ready_is_told(site: Site) -> None:
    site.kubelet.starts = False
    done = site("up", "-f", site.write(), "--timeout", "1")
    assert done.code == 124
    assert "hai cluster status" in done.err
    told = site("status")
    assert told.code == 1
    assert [line.split()[1] for line in told.out.splitlines()[1:]] == ["no", "no"]


@needs_helm
@pytest.mark.parametrize(
    ("verb", "code", "says"),
    [
        pytest.param(["status"], 3, "hai cluster up", id="no release"),
        pytest.param(["upgrade"], 3, "hai cluster up", id="nothing to upgrade"),
        pytest.param(["down", "--yes"], 3, "not found", id="nothing to end"),
        pytest.param(["up"], 2, "image.repository is needed", id="no values"),
        pytest.param(["up", "-f", "/no/file.yaml"], 2, "/no/file.yaml", id="no file"),
        pytest.param(["up", "--context", "none"], 2, "none", id="no such context"),
    ],
)
def test_what_goes_wrong_is_told_and_has_its_exit_code(
    site: Site, verb: list[str], code: int, says: str
) -> None:
    done = site(*verb)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


@needs_helm
def test_unknown_values_are_named(site: Site) -> None:
    done = site("up", "-f", site.write(replica=3))
    assert done.code == 2
    assert "replica" in done.err


FORBIDDEN = (
    'Error: query: failed to query with labels: secrets is forbidden: User "ada" cannot list '
    'resource "secrets" in API group "" in the namespace "hai"'
)
TIMED_OUT = "Error: resource PersistentVolumeClaim/hai/x not ready\ncontext deadline exceeded"


@pytest.mark.parametrize(
    ("said", "code", "hint"),
    [
        pytest.param(FORBIDDEN, 4, "rights", id="no rights"),
        pytest.param(TIMED_OUT, 124, "hai cluster status", id="too slow"),
        pytest.param("Error: something else", 1, "", id="any other"),
    ],
)
def test_what_helm_says_has_a_meaning(
    hai: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    said: str,
    code: int,
    hint: str,
) -> None:
    (tmp_path / "said").write_text(said)
    helm = tmp_path / "helm"
    helm.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2; exit 1\n")
    helm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = hai("cluster", "status", "--json")
    facts = json.loads(done.err)["error"]
    assert done.code == code
    assert facts["message"] == "helm: " + said.removeprefix("Error: ")
    assert hint in facts["hint"]


@needs_helm
def test_no_cluster_is_reached(hai: Callable[..., Any], tmp_path: Path) -> None:
    from hai_backend.testing.kube.cluster import write_kubeconfig

    nobody = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    done = hai("cluster", "status", f"--kubeconfig={nobody}", "--json")
    assert done.code == 5
    assert "--kubeconfig" in json.loads(done.err)["error"]["hint"]


@pytest.mark.parametrize("verb", ["up", "status", "dryrun"])
def test_missing_programs_are_named(
    hai: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = hai("cluster", verb)
    assert done.code == 1
    assert "Helm 4 is not installed" in done.err


def test_config_is_the_commented_values(hai: Callable[..., Any], tmp_path: Path) -> None:
    chart = Path(__file__).parents[3] / "backend" / "deploy" / "chart"
    wanted = (chart / "values.yaml").read_text()
    assert hai("cluster", "config").out == wanted
    path = tmp_path / "values.yaml"
    assert hai("cluster", "config", str(path)).code == 0
    assert path.read_text() == wanted
    again = hai("cluster", "config", str(path))
    assert (again.code, path.read_text()) == (1, wanted)
