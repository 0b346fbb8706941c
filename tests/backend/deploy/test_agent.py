"""The directory of the agent works in images that contain only a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome
from tests.support.agent_pods import process_pod_cluster
from tests.support.deployment import Deployment, kubernetes_settings
from tests.support.environments import layer_of, make_environment, make_image
from tests.support.servers import running_server

from .conftest import DEPLOY

IMPORTS = (
    "import grpc, ssl, asyncio, sys, hai_backend.agent.rank; print(grpc.__file__, sys.executable)"
)
REFUSED = """
import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from hai_backend.agent.server.connection import is_rejected

status = status_pb2.Status()
status.details.add().Pack(error_details_pb2.ErrorInfo(reason="FENCED"))
trailers = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
code = grpc.StatusCode.FAILED_PRECONDITION
print(is_rejected(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers)))
"""
HELLO = (
    "import os, sys\nprint('hello', sys.executable, 'LD_LIBRARY_PATH' in os.environ, flush=True)"
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made in one place, and moved to another."""
    folder = tmp_path_factory.mktemp("agent")
    made = [sys.executable, str(DEPLOY / "agent" / "assemble.py"), str(folder / "made")]
    subprocess.run(made, check=True, capture_output=True, text=True)
    return (folder / "made").rename(folder / "moved")


def alone(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command without environment variables."""
    return subprocess.run(command, env={}, capture_output=True, text=True, check=False)


def test_it_starts_from_any_place_with_an_empty_environment(agent: Path) -> None:
    done = alone(agent / "bin" / "hai-agent")
    assert (done.returncode, "RANK_DIR" in done.stderr) == (2, True)


def test_everything_comes_from_the_directory(agent: Path) -> None:
    program = f"{IMPORTS}\nprint(open('/proc/self/maps').read())"
    done = alone(agent / "bin" / "python3", "-I", "-B", "-c", program)
    assert done.returncode == 0, done.stderr
    first, *maps = done.stdout.splitlines()
    assert first.split(" /")[0].startswith(str(agent))
    code = [line.split(maxsplit=5)[5] for line in maps if " r-xp " in line and " /" in line]
    assert len(code) > 10
    assert {file for file in code if not file.startswith(str(agent))} == set()


def test_it_understands_that_the_server_has_given_it_up(agent: Path) -> None:
    done = alone(agent / "bin" / "python3", "-I", "-B", "-c", REFUSED)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_it_unpacks_environments(agent: Path, tmp_path: Path) -> None:
    make_environment(tmp_path, "ann", "mine")
    layer = layer_of(tmp_path, "ann", "mine")
    make_image(layer, [("lib/paint.py", b"colour = 1")])
    order = {
        "root": str(tmp_path),
        "place": str(tmp_path),
        "limit": 1 << 20,
        "layers": [["ann", layer.name]],
    }
    unpack = ("-I", "-B", "-m", "hai_backend.environments.unpack", json.dumps(order))
    done = alone(agent / "bin" / "python3", *unpack)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    copy = tmp_path / str(os.geteuid()) / "ann" / ".layers" / layer.name
    assert (copy / "lib" / "paint.py").read_text() == "colour = 1"


def test_no_file_of_the_directory_names_where_it_was_made(agent: Path) -> None:
    scripts = [(agent / "bin" / name).read_text() for name in ("python3", "hai-agent")]
    assert not any(re.search(r"\s/(?!bin/sh)\S+", text) for text in scripts)
    assert not [path for path in agent.rglob("*") if path.is_symlink()]


def _static_shell() -> str | None:
    busybox = shutil.which("busybox")
    if busybox is None:
        return None
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False)
    return busybox if linked.returncode else None


@pytest.mark.skipif(_static_shell() is None, reason="needs busybox-static")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for chroot")
def test_it_starts_in_an_image_without_a_c_library(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy2(str(_static_shell()), tmp_path / "bin" / "sh")
    shutil.copytree(agent, tmp_path / "hai" / "agent")
    for command, code in (
        (["/hai/agent/bin/hai-agent"], 2),
        (["/hai/agent/bin/python3", "-I", "-B", "-c", IMPORTS], 0),
    ):
        done = alone(str(shutil.which("chroot")), tmp_path, *command)
        assert done.returncode == code, done.stderr
    grpc, python = done.stdout.split()
    packages = rf"/hai/agent/lib/python3.{sys.version_info[1]}/(site|dist)-packages"
    assert re.fullmatch(rf"{packages}/grpc/__init__\.py", grpc)
    assert python == "/hai/agent/bin/python3"


@pytest.mark.e2e
async def test_a_task_runs_under_it(agent: Path, tmp_path: Path) -> None:
    """The program has the Python of its image, here of this machine, and nothing of the agent's."""
    async with process_pod_cluster(tmp_path, 1) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        table = kubernetes_settings(tmp_path, kubeconfig, agent_path=str(agent))
        async with (
            running_server(tmp_path / "home", kubernetes=table) as server,
            Client(server.profile) as client,
        ):
            here = Deployment(client, tmp_path, tmp_path / "home", tmp_path / "pods")
            task = await here.run(here.spec("hello", HELLO))
            assert task.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED
            (line,) = await here.lines(task.id)
    assert line.startswith("hello /")
    assert str(agent) not in line
    assert line.endswith("False")
