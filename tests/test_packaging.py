"""The wheel contains generated and packaged files, without which a build would also succeed."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WANTED = [
    "hai/py.typed",
    "hai/v1/task_service_pb2.py",
    "hai/v1/task_service_pb2.pyi",
    "hai/v1/task_service_pb2_grpc.py",
    "hai/v1/task_service_pb2_grpc.pyi",
    "hai/v1/task.proto",
    "hai/client/taskfile/task.schema.json",
    "hai/task/control_file.py",
    "hai_backend/main.py",
    "hai_backend/store/migrations/env.py",
    "hai_tui/cli/main.py",
    "hai_tui/examples/train_numpy.py",
    "hai_tui/chart/Chart.yaml",
    "hai_tui/chart/.helmignore",
    "hai_tui/chart/templates/server.yaml",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    less = {} if shutil.which("node") else {"HAI_WITHOUT_LABEXTENSION": "1"}
    environment = {**os.environ, **less}
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_licence_of_the_package_is_the_one_in_the_repository(wheel: zipfile.ZipFile) -> None:
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "License-Expression: Apache-2.0" in wheel.read(f"{folder}/METADATA").decode()
    text = wheel.read(f"{folder}/licenses/LICENSE").decode()
    assert text == (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]


@pytest.mark.parametrize("name", WANTED)
def test_the_wheel_holds(wheel: zipfile.ZipFile, name: str) -> None:
    assert name in wheel.namelist()


def test_every_module_of_the_checkout_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    folders = ("proto", "backend", "tui", "jupyter_ext", "haienv", "workspace_sync")
    roots = [ROOT / folder for folder in folders]
    ours = {
        str(path.relative_to(root))
        for root in roots
        for package in root.iterdir()
        if package.is_dir() and (package / "__init__.py").exists()
        for path in package.rglob("*.py")
    }
    assert ours <= set(wheel.namelist())


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    ours = {"hai", "hfai", "hai_backend", "hai_tui", "hai_jupyter", "haienv", "hai_sync"}
    assert {t for t in tops if not t.endswith((".dist-info", ".data"))} == ours


@pytest.mark.parametrize("name", ["haienv", "haienv.fish"])
def test_shell_scripts_are_installed_as_they_are(wheel: zipfile.ZipFile, name: str) -> None:
    found = [n for n in wheel.namelist() if n.endswith(f".data/scripts/{name}")]
    assert wheel.read(found[0]) == (ROOT / "haienv" / "bin" / name).read_bytes()


def test_an_installation_enables_the_jupyter_server_extension(wheel: zipfile.ZipFile) -> None:
    place = ".data/data/etc/jupyter/jupyter_server_config.d/hai_jupyter.json"
    [found] = [n for n in wheel.namelist() if n.endswith(place)]
    enabled = json.loads(wheel.read(found))["ServerApp"]["jpserver_extensions"]
    assert enabled == {"hai_jupyter": True}


@pytest.mark.skipif(not shutil.which("node"), reason="without node the panel is not built")
def test_an_installation_brings_the_panel_of_jupyterlab(wheel: zipfile.ZipFile) -> None:
    place = ".data/data/share/jupyter/labextensions/hai-jupyter/"
    panel = {n.partition(place)[2]: n for n in wheel.namelist() if place in n}
    described = json.loads(wheel.read(panel["package.json"]))
    assert described["jupyterlab"]["_build"]["load"] in panel
    assert "schemas/hai-jupyter/plugin.json" in panel
    compressed = sum(wheel.getinfo(n).compress_size for n in panel.values())
    assert compressed < 1_000_000


def test_a_wheel_without_the_panel_is_refused_where_there_is_no_node(tmp_path: Path) -> None:
    lab = tmp_path / "jupyter_ext"
    shutil.copytree(
        ROOT / "jupyter_ext", lab, ignore=shutil.ignore_patterns("node_modules", "labextension")
    )
    module = runpy.run_path(str(lab / "labextension.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.delenv("HAI_WITHOUT_LABEXTENSION", raising=False)
        with pytest.raises(RuntimeError, match="needs node"):
            module["shared_data"](editable=False)
        assert len(module["shared_data"](editable=True)) == 1


def test_the_commands_are_declared(wheel: zipfile.ZipFile) -> None:
    metadata = next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))
    text = wheel.read(metadata).decode()
    assert {line.split(" = ")[0] for line in text.splitlines() if " = " in line} == {
        "hai",
        "hai-checkpoint-writer",
        "hai-cli",
        "hai-server",
        "haiworkspace",
    }
