"""Somebody else at a cluster, the fake one or a real one: what people see and do with kubectl."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from hai_backend.launch.manifests.names import TASK

_OURS = "pods,configmaps,secrets,services,ingresses,networkpolicies"
_PATIENCE = "--timeout=90s"


@dataclass(frozen=True, slots=True)
class Hands:
    """Everything happens in the one namespace that pods of tasks are in."""

    kubeconfig: Path = Path()
    namespace: str = ""

    async def kubectl(self, *words: str) -> str:
        """What it prints. Raises RuntimeError with its last words when it fails."""
        command = ("kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *words)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.kubeconfig.parent)}
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=pipe, env=environment
        )
        said, complained = await child.communicate()
        if child.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {complained.decode()}")
        return said.decode()

    async def delete(self, pod: str, *more: str) -> None:
        """Take a pod away, and do not wait until it is gone."""
        await self.kubectl("delete", "pod", pod, "--wait=false", *more)

    async def node_of(self, pod: str) -> str:
        """Where a pod is."""
        return await self.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")

    async def nothing_left(self) -> None:
        """Wait until no object of any run is there. Raises RuntimeError when it takes long."""
        await self.kubectl("wait", "--for=delete", _OURS, "-l", TASK, _PATIENCE)
