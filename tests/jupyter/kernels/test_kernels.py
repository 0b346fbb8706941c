"""Environments as kernels: which environments are listed, and how a kernel starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from hai_jupyter.kernels.environments import ready
from hai_jupyter.kernels.kernels import add_environments

LAYER = "0123456789abcdef01234567"
BASE = "a" * 24


def make(
    root: Path, owner: str, name: str, layer: str = LAYER, more: str = "", kernel: bool = False
) -> Path:
    """Write an environment in the format of docs/contributing/environments.md."""
    folder = root / owner / ".layers" / layer
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "layer.toml").write_text(f'schema = 1\npython = "3.11.9"\n{more}')
    if kernel:
        (folder / "lib" / "python3.11" / "site-packages" / "ipykernel").mkdir(parents=True)
    (root / owner / name).mkdir()
    (root / owner / name / "env.toml").write_text("schema = 1\n")
    (root / owner / name / "current").symlink_to(f"../.layers/{layer}")
    return root / owner / name


def names(root: Path) -> list[str]:
    return [str(environment) for environment in ready(root)]


def manager(root: Path) -> KernelSpecManager:
    made = KernelSpecManager()
    add_environments(made, root)
    return made


def test_each_environment_is_a_kernel_started_by_arguments(tmp_path: Path) -> None:
    make(tmp_path, "Alice", "Torch", kernel=True)
    kernels = manager(tmp_path)
    specs = kernels.get_all_specs()
    spec = specs["haienv-alice-torch"]["spec"]
    assert spec["display_name"] == "Torch[Alice] (Python 3.11.9)"
    assert spec["argv"][:6] == [sys.executable, "-m", "haienv", "run", "Torch[Alice]", "--"]
    assert spec["env"] == {"HAIENV_HOME": str(tmp_path)}
    assert Path(kernels.get_kernel_spec("haienv-alice-torch").resource_dir, "logo-svg.svg").exists()
    assert "python3" in specs


def test_a_new_environment_appears_and_a_removed_one_is_no_kernel(tmp_path: Path) -> None:
    kernels = manager(tmp_path)
    with pytest.raises(NoSuchKernel):
        kernels.get_kernel_spec("haienv-alice-torch")
    folder = make(tmp_path, "alice", "torch")
    assert (
        "needs `haienv install torch ipykernel`"
        in kernels.get_kernel_spec("haienv-alice-torch").display_name
    )
    (folder / "env.toml").unlink()
    assert "haienv-alice-torch" not in kernels.find_kernel_specs()


def test_ipykernel_may_be_a_parents(tmp_path: Path) -> None:
    make(tmp_path, "system", "base", BASE, kernel=True)
    make(tmp_path, "alice", "mine", more=f'[[parents]]\nowner = "system"\nlayer = "{BASE}"\n')
    assert [environment.has_kernel for environment in ready(tmp_path)] == [True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda e: (e / "current").unlink(), id="no current"),
        pytest.param(lambda e: relink(e, "/etc"), id="current leads away"),
        pytest.param(lambda e: relink(e, "../../bob/.layers/" + LAYER), id="another's layer"),
        pytest.param(lambda e: layer(e).write_text("x = [" * 9), id="layer does not parse"),
        pytest.param(lambda e: layer(e).write_text("python = 3"), id="wrong type"),
        pytest.param(lambda e: (e / "env.toml").write_text("x = ["), id="label does not parse"),
        pytest.param(lambda e: (e / "env.toml").write_text("schema = 2\n"), id="a newer schema"),
        pytest.param(
            lambda e: add(layer(e), f"[[parents]]\nowner='x'\nlayer='{BASE}'"),
            id="its parent is gone",
        ),
        pytest.param(lambda e: add(layer(e), "platform = 'linux-riscv64'"), id="another machine"),
        pytest.param(lambda e: add(layer(e), "x = " + "9" * 5000), id="an endless number"),
        pytest.param(lambda e: add(layer(e), "a." * 4000 + "a = 1"), id="a key of many parts"),
        pytest.param(lambda e: layer(e).write_text("#" * 300_000), id="too large"),
        pytest.param(lambda e: (layer(e).unlink(), layer(e).symlink_to("/dev/zero")), id="a link"),
        pytest.param(lambda e: e.rename(e.with_name("-x")), id="a name that looks like an option"),
    ],
)
def test_what_is_broken_or_hostile_is_left_out(tmp_path: Path, spoil: object) -> None:
    make(tmp_path, "alice", "good", BASE)
    spoil(make(tmp_path, "bob", "bad"))  # type: ignore[operator]
    assert names(tmp_path) == ["good[alice]"]


def test_who_has_endless_labels_keeps_nobody_waiting(tmp_path: Path) -> None:
    for number in range(20):
        label = make(tmp_path, "alice", f"e{number:02}", f"{number:024x}") / "env.toml"
        label.write_text("schema = 1\n" + ("#" + "x" * 998 + "\n") * 250)
    make(tmp_path, "bob", "mine", BASE)
    assert names(tmp_path) == [*(f"e{number:02}[alice]" for number in range(8)), "mine[bob]"]


def test_nothing_there_is_nothing_listed(tmp_path: Path) -> None:
    assert names(tmp_path / "missing") == []


def test_parents_of_a_wrong_type_do_no_harm(tmp_path: Path) -> None:
    make(tmp_path, "alice", "odd", more='parents = "x"\nsites = [1]\n')
    assert names(tmp_path) == ["odd[alice]"]


def add(file: Path, line: str) -> None:
    file.write_text(file.read_text() + line)


def layer(environment: Path) -> Path:
    return environment.parent / ".layers" / LAYER / "layer.toml"


def relink(environment: Path, target: str) -> None:
    (environment / "current").unlink()
    (environment / "current").symlink_to(target)
