"""Which Python executes a notebook in a task: that of the environment which the task has activated, if it can."""

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
    """Every Python kernel is the task's own Python; a notebook may name one that exists only on its author's laptop."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The spec of a kernel. Raises NoSuchKernel for a language that is not there."""
        try:
            spec = super().get_kernel_spec(kernel_name)
        except NoSuchKernel:
            if not kernel_name.startswith(("python", "haienv", "conda")):
                raise
            spec = KernelSpec(language="python", display_name="Python")
        if spec.language == "python":
            spec.argv = [python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return spec


class TaskKernelManager(AsyncKernelManager):
    """A kernel manager that finds those. Nobody else on the node can reach the kernel: it listens on unix sockets.

    They lie in the directory of JUPYTER_RUNTIME_DIR: Jupyter's own choice is the working directory, with the same names
    for each kernel that is started there.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(transport="ipc", **options)
        self.ip = os.path.join(jupyter_runtime_dir(), "k")  # the beginning of their paths

    def _kernel_spec_manager_default(self) -> TaskKernelSpecs:
        return TaskKernelSpecs(parent=self)


def python() -> str:
    """The first python3 of the task's PATH where it has ipykernel; else the one that runs this."""
    found = shutil.which("python3")
    if found is None or os.path.realpath(found) == os.path.realpath(sys.executable):
        return sys.executable
    probe = subprocess.run([found, "-c", "import ipykernel"], capture_output=True, check=False)
    return found if probe.returncode == 0 else sys.executable
