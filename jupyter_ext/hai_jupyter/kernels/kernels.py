"""A kernel for every environment of haienv, without anybody installing one: the list is read when Jupyter asks for it.

Jupyter has one manager of kernel specs, made before extensions are loaded and often chosen by the user. Ours is
therefore put in front of whatever class it has.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipykernel.kernelspec import RESOURCES
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

from hai_jupyter.kernels.environments import Environment, ready

if TYPE_CHECKING:
    Manager = KernelSpecManager
else:
    Manager = object


class EnvironmentKernels(Manager):
    """What a manager of kernel specs knows, and environments."""

    environments_root: Path

    def find_kernel_specs(self) -> dict[str, str]:
        """Names with the directory of their logos; what is installed wins."""
        return {name: str(RESOURCES) for name in self._environments()} | super().find_kernel_specs()

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The spec of a kernel. Raises NoSuchKernel."""
        try:
            return super().get_kernel_spec(kernel_name)
        except NoSuchKernel:
            found = self._environments().get(kernel_name.lower())
            if found is None:
                raise
            return specification(found)

    def _environments(self) -> dict[str, Environment]:
        return {f"haienv-{e.owner}-{e.name}".lower(): e for e in ready(self.environments_root)}


def add_environments(manager: Any, root: Path) -> None:
    """Let a manager offer environments too."""
    kind = type(manager)
    manager.__class__ = type(kind.__name__, (EnvironmentKernels, kind), {})
    manager.environments_root = root


def specification(environment: Environment) -> KernelSpec:
    """Started through haienv, by arguments and not by a shell, so that variables and parents' programs are there."""
    run = [sys.executable, "-m", "haienv", "run", str(environment), "--"]
    name = f"{environment} (Python {environment.python})"
    if not environment.has_kernel:
        name += f": needs `haienv install {environment.name} ipykernel`"
    return KernelSpec(
        argv=[*run, "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name=name,
        language="python",
        resource_dir=str(RESOURCES),
        env={"HAIENV_HOME": str(environment.root)},
        metadata={"debugger": True, "haienv": str(environment)},
    )
