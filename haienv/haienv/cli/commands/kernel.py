"""`haienv kernel`: environments as kernels of Jupyter."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from haienv.cli.common import EnvGroup, Settings, complete_names, environment
from haienv.errors import EnvError, Exists, NotFound, Refused
from haienv.layers.installed import versions
from haienv.store.registry import Environment
from haienv.store.transaction import replace_text

_NAME = click.argument("name", default=".", shell_complete=complete_names)


@click.group("kernel", cls=EnvGroup)
def kernel() -> None:
    """Kernels for Jupyter."""


@kernel.command("install")
@_NAME
@click.pass_obj
def install(settings: Settings, name: str) -> int:
    """Let Jupyter of this account offer an environment; it needs ipykernel, its own or a parent's."""
    _, found = environment(name)
    if "ipykernel" not in versions(found.sites):
        raise Refused(
            f"{found} has no ipykernel, so Jupyter cannot run it",
            f"haienv install '{found.name}' ipykernel",
        )
    folder = _folder(found)
    if (other := _environment_of_kernel(folder)) != str(found) and _environment_exists(other):
        raise Exists(
            f"Jupyter's kernel {folder.name} is that of {other}: to it, capitals are small letters",
            f"haienv kernel remove '{other}', or give one of them another name",
        )
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "kernel.json", json.dumps(specification(found), indent=2))
    settings.answer({"path": str(folder)}, str(folder))
    return 0


@kernel.command("remove")
@_NAME
@click.pass_obj
def remove(settings: Settings, name: str) -> int:
    """Take it away again; the environment stays."""
    _, found = environment(name)
    folder = _folder(found)
    if not folder.is_dir() or _environment_of_kernel(folder) not in ("", str(found)):
        raise NotFound(f"Jupyter has no kernel of {found} here")
    shutil.rmtree(folder)
    settings.answer({"removed": str(folder)}, "")
    return 0


def specification(found: Environment) -> dict[str, Any]:
    """What Jupyter runs: through haienv, so that variables and parents' programs are there."""
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
    """The environment of a kernel that is there; empty: it does not say, or there is none."""
    try:
        return str(json.loads((folder / "kernel.json").read_text())["metadata"]["haienv"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _environment_exists(name: str) -> bool:
    try:
        return bool(name and environment(name))
    except EnvError:
        return False


def _folder(found: Environment) -> Path:
    """Where Jupyter looks for the kernels of an account."""
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"
    )
    return Path(data) / "kernels" / f"haienv-{found.owner}-{found.name}".lower()
