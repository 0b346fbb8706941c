"""Chooses the Python that executes a notebook in a task: that of the environment which the task has activated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir


class TaskKernelSpecs(KernelSpecManager):
    """Maps every Python kernel to the Python of the task. A notebook may name a kernel of its author's computer."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the spec of a kernel. Raises NoSuchKernel for a language that is not installed."""
        try:
            spec = super().get_kernel_spec(kernel_name)
        except NoSuchKernel:
            if not kernel_name.startswith(("python", "haienv", "conda")):
                raise
            spec = KernelSpec(language="python", display_name="Python")
        if spec.language == "python":
            spec.argv = [find_python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return spec


class TaskKernelManager(AsyncKernelManager):
    """A kernel manager with these specs. Its kernel listens on unix sockets, so nobody else on the node can reach it.

    The sockets are in JUPYTER_RUNTIME_DIR. Jupyter would put them into the working directory, with the same names for
    each kernel that is started there.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(transport="ipc", **options)
        self.ip = os.path.join(jupyter_runtime_dir(), "k")  # the prefix of the socket paths

    def _kernel_spec_manager_default(self) -> TaskKernelSpecs:
        return TaskKernelSpecs(parent=self)


def find_python() -> str:
    """Return the first python3 in the PATH of the task if it has ipykernel, else the Python that runs this."""
    python = shutil.which("python3")
    if python is None or os.path.realpath(python) == os.path.realpath(sys.executable):
        return sys.executable
    probe = subprocess.run([python, "-c", "import ipykernel"], capture_output=True, check=False)
    return python if probe.returncode == 0 else sys.executable
