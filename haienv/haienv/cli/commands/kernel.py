"""Implements `haienv kernel`: Jupyter kernels that run in environments."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from haienv.cli.common import EnvGroup, Settings, complete_names, find_environment
from haienv.errors import EnvError, Exists, NotFound, Refused
from haienv.layers.installed import read_versions
from haienv.store.registry import Environment
from haienv.store.transaction import replace_text

_NAME = click.argument("name", default=".", shell_complete=complete_names)


@click.group("kernel", cls=EnvGroup)
def kernel() -> None:
    """Install or remove kernels for Jupyter."""


@kernel.command("install")
@_NAME
@click.pass_obj
def install(settings: Settings, name: str) -> int:
    """Install a Jupyter kernel for an environment, which needs ipykernel (or a parent has it)."""
    _, environment = find_environment(name)
    if "ipykernel" not in read_versions(environment.sites):
        raise Refused(
            f"{environment} has no ipykernel, so Jupyter cannot run it",
            f"haienv install '{environment.name}' ipykernel",
        )
    folder = _kernel_directory(environment)
    if (other := _environment_of_kernel(folder)) != str(environment) and _environment_exists(other):
        raise Exists(
            f"Jupyter's kernel {folder.name} is that of {other}: kernel names ignore case",
            f"haienv kernel remove '{other}', or rename one of them",
        )
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "kernel.json", json.dumps(specification(environment), indent=2))
    settings.print_result({"path": str(folder)}, str(folder))
    return 0


@kernel.command("remove")
@_NAME
@click.pass_obj
def remove(settings: Settings, name: str) -> int:
    """Remove the kernel; the environment stays."""
    _, environment = find_environment(name)
    folder = _kernel_directory(environment)
    if not folder.is_dir() or _environment_of_kernel(folder) not in ("", str(environment)):
        raise NotFound(f"Jupyter has no kernel of {environment} here")
    shutil.rmtree(folder)
    settings.print_result({"removed": str(folder)}, "")
    return 0


def specification(environment: Environment) -> dict[str, Any]:
    """Return the specification of a kernel. The kernel starts through haienv, which sets variables and PATH."""
    layer = environment.usable_layer
    launcher = [sys.executable, "-m", "haienv", "run", str(environment), "--"]
    return {
        "argv": [*launcher, "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"{environment} (Python {layer.minor_version})",
        "language": "python",
        "env": {"HAIENV_HOME": str(environment.root)},
        "metadata": {"debugger": True, "haienv": str(environment)},
    }


def _environment_of_kernel(folder: Path) -> str:
    """Return the environment of an installed kernel; empty if there is no kernel, or if it does not name one."""
    try:
        return str(json.loads((folder / "kernel.json").read_text())["metadata"]["haienv"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _environment_exists(name: str) -> bool:
    try:
        return bool(name and find_environment(name))
    except EnvError:
        return False


def _kernel_directory(environment: Environment) -> Path:
    """Return the directory of an environment's kernel in the Jupyter data of the account."""
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"
    )
    return Path(data) / "kernels" / f"haienv-{environment.owner}-{environment.name}".lower()
