"""Offers a kernel for every environment of haienv; the list is read whenever Jupyter asks for it.

Jupyter has one manager of kernel specs, which it makes before extensions are loaded and whose class the user may
choose. Therefore a class is derived from that class at run time.
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
    """Adds environments to the kernels that a manager knows."""

    environments_root: Path

    def find_kernel_specs(self) -> dict[str, str]:
        """Return the names of kernels with the directories of their logos. An installed kernel takes precedence."""
        return {name: str(RESOURCES) for name in self._environments()} | super().find_kernel_specs()

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the spec of a kernel. Raises NoSuchKernel."""
        try:
            return super().get_kernel_spec(kernel_name)
        except NoSuchKernel:
            environment = self._environments().get(kernel_name.lower())
            if environment is None:
                raise
            return kernel_spec(environment)

    def _environments(self) -> dict[str, Environment]:
        return {f"haienv-{e.owner}-{e.name}".lower(): e for e in ready(self.environments_root)}


def add_environments(manager: Any, root: Path) -> None:
    """Make a manager also offer environments."""
    kind = type(manager)
    manager.__class__ = type(kind.__name__, (EnvironmentKernels, kind), {})
    manager.environments_root = root


def kernel_spec(environment: Environment) -> KernelSpec:
    """Return the spec that starts a kernel through haienv, which sets variables and paths, without a shell."""
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
