"""`haienv kernel`: Jupyter kernels that run in environments."""

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
from haienv.layers.installed import versions
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
    _, found = find_environment(name)
    if "ipykernel" not in versions(found.sites):
        raise Refused(
            f"{found} has no ipykernel, so Jupyter cannot run it",
            f"haienv install '{found.name}' ipykernel",
        )
    folder = _folder(found)
    if (other := _environment_of_kernel(folder)) != str(found) and _environment_exists(other):
        raise Exists(
            f"Jupyter's kernel {folder.name} is that of {other}: kernel names ignore case",
            f"haienv kernel remove '{other}', or rename one of them",
        )
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "kernel.json", json.dumps(specification(found), indent=2))
    settings.answer({"path": str(folder)}, str(folder))
    return 0


@kernel.command("remove")
@_NAME
@click.pass_obj
def remove(settings: Settings, name: str) -> int:
    """Remove the kernel; the environment stays."""
    _, found = find_environment(name)
    folder = _folder(found)
    if not folder.is_dir() or _environment_of_kernel(folder) not in ("", str(found)):
        raise NotFound(f"Jupyter has no kernel of {found} here")
    shutil.rmtree(folder)
    settings.answer({"removed": str(folder)}, "")
    return 0


def specification(found: Environment) -> dict[str, Any]:
    """The kernel specification; it starts through haienv, which sets variables and PATH."""
    layer = found.usable
    run = [sys.executable, "-m", "haienv", "run", str(found), "--"]
    return {
        "argv": [*run, "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"{found} (Python {layer.minor})",
        "language": "python",
        "env": {"HAIENV_HOME": str(found.root)},
        "metadata": {"debugger": True, "haienv": str(found)},
    }


def _environment_of_kernel(folder: Path) -> str:
    """The environment of an installed kernel; empty if there is none, or if it does not say."""
    try:
        return str(json.loads((folder / "kernel.json").read_text())["metadata"]["haienv"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _environment_exists(name: str) -> bool:
    try:
        return bool(name and find_environment(name))
    except EnvError:
        return False


def _folder(found: Environment) -> Path:
    """The directory of a kernel in the account's Jupyter data."""
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"
    )
    return Path(data) / "kernels" / f"haienv-{found.owner}-{found.name}".lower()
