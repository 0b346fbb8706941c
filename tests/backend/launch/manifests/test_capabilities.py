"""Capabilities in a real kernel. The commands of the two containers are run as a container runtime starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir

import pytest

from hai_backend.domain.errors import Invalid
from hai_backend.launch.manifests.names import Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import HostRight, RunRequest

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]
RequestOf = Callable[..., RunRequest]
GRANTED = ("IPC_LOCK", "NET_RAW")
BITS = 1 << 14 | 1 << 13


def _static_busybox() -> str:
    found = shutil.which("busybox") or ""
    linked = subprocess.run(["ldd", found or "/"], capture_output=True, check=False)
    return found if found and linked.returncode else ""


needs_root = pytest.mark.skipif(
    os.geteuid() != 0
    or not (_static_busybox() and shutil.which("setcap") and shutil.which("setpriv")),
    reason="needs root, busybox-static, setcap and setpriv",
)


@pytest.fixture
def spec(made: Made, request_of: RequestOf, cluster: ClusterSettings) -> Manifest:
    found: Manifest = made(request_of(capabilities=GRANTED), cluster)[-1]["spec"]
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """/hai/agent, whose agent says what it may."""
    tmp_path.chmod(0o755)
    for above in takewhile(lambda path: path != Path(gettempdir()), tmp_path.parents):
        above.chmod(0o755)
    directory = tmp_path / "agent"
    (directory / "bin").mkdir(parents=True)
    shutil.copy2(_static_busybox(), directory / "bin" / "busybox")
    script = directory / "bin" / "hai-agent"
    script.write_text("#!/bin/sh\ngrep -E '^(Uid|Cap|NoNew)' /proc/self/status\n")
    script.chmod(0o755)
    return directory


def as_a_runtime(spec: Manifest) -> list[str]:
    """Return a command prefix that sets the uid and the allowed capabilities, of which the process holds none."""
    container = spec["containers"][0]["securityContext"]
    allowed = ",".join(f"+{name.lower()}" for name in container["capabilities"]["add"])
    uid, gid = (spec["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
    stuck = [] if container["allowPrivilegeEscalation"] else ["--no-new-privs"]
    ids = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", f"--bounding-set=-all,{allowed}", *stuck, "env"]


def run_here(command: list[str], agent: Path, *before: str) -> str:
    moved = [word.replace("/hai/agent", str(agent)) for word in command]
    return subprocess.run([*before, *moved], check=True, capture_output=True, text=True).stdout


@needs_root
def test_the_program_has_what_was_granted_and_can_gain_nothing(spec: Manifest, agent: Path) -> None:
    run_here(spec["initContainers"][1]["command"], agent)
    said = run_here(spec["containers"][0]["command"], agent, *as_a_runtime(spec))
    found = dict(line.split(":\t", 1) for line in said.splitlines())
    assert found["Uid"].split() == ["2001"] * 4
    assert {int(found[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Amb", "Bnd")} == {BITS}
    assert found["NoNewPrivs"] == "1"


@needs_root
def test_what_kubernetes_alone_adds_gives_the_program_nothing(spec: Manifest, agent: Path) -> None:
    """What Kubernetes alone does with `capabilities.add`."""
    agents = spec["containers"][0]["command"][-2:]
    said = run_here(agents, agent, *as_a_runtime(spec))
    assert "CapEff:\t0000000000000000" in said


def test_only_who_was_granted_some_has_them_and_only_one_container_is_root(
    made: Made, request_of: RequestOf, cluster: ClusterSettings, spec: Manifest
) -> None:
    without = made(request_of(), cluster)[-1]["spec"]
    assert len(without["initContainers"]) == 1
    _, ours = spec["initContainers"]
    assert ours["image"] == cluster.agent_image
    assert [mount["name"] for mount in ours["volumeMounts"]] == ["agent"]
    assert ours["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SETFCAP"]}
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "agent"]
    assert mount["readOnly"]
    assert "--nnp" in spec["containers"][0]["command"]
    assert "runAsUser" not in spec["containers"][0]["securityContext"]


def test_who_is_privileged_may_rise(
    made: Made, request_of: RequestOf, cluster: ClusterSettings
) -> None:
    run = request_of(capabilities=GRANTED, host_rights=(HostRight.PRIVILEGED,))
    assert "--nnp" not in made(run, cluster)[-1]["spec"]["containers"][0]["command"]


def test_an_agent_of_the_node_cannot_give_them(
    made: Made, request_of: RequestOf, cluster: ClusterSettings
) -> None:
    with pytest.raises(Invalid, match="take the right cap:IPC_LOCK back"):
        made(request_of(capabilities=GRANTED), replace(cluster, agent_path="/opt/agent"))
