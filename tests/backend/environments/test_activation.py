"""An agent sets the variables of a program as the table in docs/contributing/environments.md specifies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.activation import resolve_activation
from hai_backend.environments.records import BrokenEnvironment
from tests.support.environments import as_parent, layer_of, lock_of, make_environment

TORCH = EnvironmentName("ada", "torch")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """torch[ada] extends base[system], which extends core[system]."""
    make_environment(tmp_path, "system", "core", config={"variables": {"A": "core", "B": "core"}})
    core = as_parent(tmp_path, "system", "core")
    make_environment(
        tmp_path,
        "system",
        "base",
        parents=[core],
        config={"bin_dirs": ["/opt/base"], "variables": {"B": "base", "C": "a = b:c"}},
    )
    base = as_parent(tmp_path, "system", "base")
    make_environment(
        tmp_path,
        "ada",
        "torch",
        parents=[base, core],
        config={"search_dirs": ["/my code"], "bin_dirs": ["/my bin"], "variables": {"D": "ada"}},
    )
    return tmp_path


def test_nearer_layers_precede_their_parents(root: Path) -> None:
    ours = {"PATH": "/usr/bin", "PYTHONPATH": "/old", "PYTHONHOME": "/x", "HOME": "/h", "D": "old"}
    active = resolve_activation(root, TORCH)
    layers = [
        str(layer_of(root, o, n))
        for o, n in (("ada", "torch"), ("system", "base"), ("system", "core"))
    ]
    assert active.apply_to(ours) == {
        "PATH": f"{layers[0]}/bin:/my bin:{layers[1]}/bin:/opt/base:{layers[2]}/bin:/usr/bin",
        "PYTHONPATH": "/my code:/old",
        "HOME": "/h",
        "A": "core",
        "B": "base",
        "C": "a = b:c",
        "D": "ada",
        "HF_ENV_NAME": "torch",
        "HF_ENV_OWNER": "ada",
        "HF_ENV_LOCK": active.lock_hash,
        "VIRTUAL_ENV": layers[0],
    }


def test_jupyter_finds_files_of_parents(root: Path, tmp_path: Path) -> None:
    assert "JUPYTER_PATH" not in resolve_activation(root, TORCH).apply_to({})
    (layer_of(root, "system", "core") / "share" / "jupyter").mkdir(parents=True)
    active = resolve_activation(root, TORCH)
    for relocated_activation, layers_root in (
        (active, root),
        (active.relocate(root, Path("/copy")), Path("/copy")),
    ):
        layers = [
            layers_root / layer_of(root, owner, name).relative_to(root)
            for owner, name in (("ada", "torch"), ("system", "core"))
        ]
        variables_set = relocated_activation.apply_to({"JUPYTER_CONFIG_PATH": "/was"})
        assert variables_set["JUPYTER_PATH"] == ":".join(
            f"{layer}/share/jupyter" for layer in layers
        )
        config = ":".join(f"{layer}/etc/jupyter" for layer in layers)
        assert variables_set["JUPYTER_CONFIG_PATH"] == f"{config}:/was"
    assert "JUPYTER_PATH" not in resolve_activation(
        root, EnvironmentName("system", "core")
    ).apply_to({})


def test_jupyter_finds_files_of_an_extended_python(tmp_path: Path) -> None:
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (tmp_path / "venv" / "etc" / "jupyter").mkdir(parents=True)
    make_environment(tmp_path, "ada", "torch", facts={"sites": [str(site), "/lib"]})
    layer = layer_of(tmp_path, "ada", "torch")
    variables_set = resolve_activation(tmp_path, TORCH).apply_to({})["JUPYTER_CONFIG_PATH"]
    assert variables_set == f"{layer}/etc/jupyter:{tmp_path}/venv/etc/jupyter"


def test_without_search_directories_pythonpath_is_not_set(root: Path) -> None:
    assert "PYTHONPATH" not in resolve_activation(root, EnvironmentName("system", "core")).apply_to(
        {}
    )


def test_a_run_keeps_its_layer_after_an_upgrade(root: Path) -> None:
    before = resolve_activation(root, TORCH)
    after = make_environment(root, "ada", "torch", lock=lock_of("# other"))
    assert resolve_activation(root, TORCH).lock_hash == after
    assert resolve_activation(root, TORCH, before.layers[0].name).lock_hash == before.lock_hash


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(shutil.rmtree, id="gone"),
        pytest.param(lambda layers_root: (layers_root / "env.toml").write_text("x"), id="no label"),
    ],
)
def test_a_parent_without_metadata_can_be_used(
    root: Path, change: Callable[[Path], object]
) -> None:
    change(root / "system" / "base")
    made = resolve_activation(root, TORCH).apply_to({})
    assert "/opt/base" not in made["PATH"]
    assert (made["A"], made["B"]) == ("core", "core")


BREAKING = {
    "no such environment": lambda root: shutil.rmtree(root / "ada" / "torch"),
    "no such user": lambda root: shutil.rmtree(root / "ada"),
    "another lock": lambda root: (layer_of(root, "ada", "torch") / "lock.txt").write_text("x"),
    "no lock": lambda root: (layer_of(root, "ada", "torch") / "lock.txt").unlink(),
    "no python": lambda root: (layer_of(root, "ada", "torch") / "bin" / "python").unlink(),
    "parent gone": lambda root: shutil.rmtree(layer_of(root, "system", "base")),
    "label is broken": lambda root: (root / "ada" / "torch" / "env.toml").write_text("x"),
}


@pytest.mark.parametrize("change", [pytest.param(c, id=i) for i, c in BREAKING.items()])
def test_an_incomplete_environment_is_not_activated(root: Path, change: object) -> None:
    change(root)  # type: ignore[operator]
    with pytest.raises(BrokenEnvironment):
        resolve_activation(root, TORCH)


def test_a_python_of_another_version_on_this_node_is_reported(root: Path, tmp_path: Path) -> None:
    python, another = layer_of(root, "ada", "torch") / "bin" / "python", tmp_path / "python3.2"
    another.write_text("#!/bin/sh\n")
    another.chmod(0o755)
    python.unlink()
    python.symlink_to(another)
    with pytest.raises(
        BrokenEnvironment, match=rf"made for Python 3\..*, but its Python here is {another}"
    ):
        resolve_activation(root, TORCH)


def test_a_python_that_is_missing_on_this_node_is_reported(root: Path) -> None:
    python = layer_of(root, "ada", "torch") / "bin" / "python"
    python.unlink()
    python.symlink_to("/opt/python9/bin/python")
    with pytest.raises(
        BrokenEnvironment, match="leads to /opt/python9/bin/python, which does not exist"
    ):
        resolve_activation(root, TORCH)


def test_an_environment_for_another_platform_is_reported(root: Path) -> None:
    record = layer_of(root, "ada", "torch") / "layer.toml"
    record.write_text('platform = "linux-riscv64"\n' + record.read_text())
    with pytest.raises(BrokenEnvironment, match=r"it is for linux-riscv64, but this node is"):
        resolve_activation(root, TORCH)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
def test_a_hidden_parent_is_reported(root: Path) -> None:
    for layers_root in (root, *root.parents[:-2]):
        layers_root.chmod(layers_root.stat().st_mode | 0o055)
    layer_of(root, "system", "base").chmod(0o700)
    child = os.fork()
    if child == 0:
        os._exit(_activated_as_another(root))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _activated_as_another(root: Path) -> int:
    os.setuid(54321)
    try:
        resolve_activation(root, TORCH)
    except BrokenEnvironment as error:
        return 0 if "does not exist or cannot be read" in str(error) else 1
    return 2
