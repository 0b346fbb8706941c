"""Deployments for end-to-end tests: a server with its cluster, of processes or of pods, and an admin's client.

The same tests run on all deployments, also on a real cluster (real_cluster.py). This module hides the differences.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hai.client.client import Client
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.launch import processes
from hai_backend.launch.local_launcher import sweep
from hai_backend.launch.manifests.names import TASK
from tests.support.agent_pods import cluster_settings, process_pod_cluster
from tests.support.servers import running_server

_OURS = "pods,configmaps,secrets,services,ingresses,networkpolicies"
_PATIENCE = "--timeout=90s"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl in the namespace of the tasks' pods."""

    kubeconfig: Path = Path()
    namespace: str = ""

    async def kubectl(self, *words: str) -> str:
        """Run kubectl, and return what it prints. Raises RuntimeError with its error output if it fails."""
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
        """Delete a pod, and do not wait until it is gone."""
        await self.kubectl("delete", "pod", pod, "--wait=false", *more)

    async def node_of(self, pod: str) -> str:
        """Return the name of the node of a pod."""
        return await self.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")

    async def wait_until_empty(self) -> None:
        """Wait until no objects of runs are left. Raises RuntimeError after 90 seconds."""
        await self.kubectl("wait", "--for=delete", _OURS, "-l", TASK, _PATIENCE)


_POD_HOMES = "*/volumes/home/run"


@dataclass
class Deployment:
    """A client, a directory for programs, and the directories in which ranks run."""

    client: Client
    directory: Path
    home: Path
    pods: Path | None = None
    hands: Kubectl = field(default_factory=Kubectl)  # acts on the cluster beside the server

    def spec(
        self,
        name: str,
        code: str,
        *parameters: str,
        nodes: int = 1,
        priority: int = 10,
        **more: Any,
    ) -> TaskSpec:
        """Return a task specification whose program has this text."""
        suffix = ".sh" if code.startswith("#!") else ".py"
        program = self.directory / f"{name}{suffix}"
        program.write_text(code)
        return TaskSpec(
            version=2,
            name=name,
            priority=priority,
            spec=ProgramSpec(
                entrypoint=str(program), parameters=parameters, **more.pop("program", {})
            ),
            resource=ResourceSpec(node_count=nodes),
            options=OptionsSpec(**more),
        )

    async def run(self, spec: TaskSpec) -> Task:
        """Submit a task, and wait until it ends."""
        task = await self.client.tasks.create(spec)
        return await self.client.tasks.wait(task.id, timeout=60)

    async def until_printed(self, task_id: int, text: str) -> None:
        """Wait until the task has printed the text. Raises AssertionError if it ends without."""
        async for answer in self.client.logs.tail(task_id, follow=True):
            if any(text in line.text for line in answer.lines):
                return
        raise AssertionError(f"never printed {text!r}")

    async def lines(self, task_id: int) -> list[str]:
        """Return the lines of the task's log."""
        return [line.text async for a in self.client.logs.tail(task_id) for line in a.lines]

    async def kinds(self, task_id: int) -> list[str]:
        """Return the kinds of the task's events, in order."""
        return [e.kind for e in await self.client.tasks.events(task_id)]

    def rank(self, key: str) -> Path:
        """Return the directory of a live rank."""
        return next(run / key for run in self._runs() if (run / key).exists())

    def marked(self, task_id: int) -> list[int]:
        """Return the process ids of the processes that are marked as processes of this task."""
        return [
            process.pid
            for run in self._runs()
            for process, directory in processes.marked_processes(run)
            if directory.name.startswith(f"{task_id}-")
        ]

    def _runs(self) -> list[Path]:
        """Return the directories that contain the directories of ranks."""
        return [self.home / "run"] if self.pods is None else [*self.pods.glob(_POD_HOMES)]


DeploymentFactory = Callable[..., AbstractAsyncContextManager[Deployment]]
"""Takes a directory, and in `table` what differs in [kubernetes]."""


@asynccontextmanager
async def process_deployment(directory: Path, **settings: Any) -> AsyncIterator[Deployment]:
    """Two nodes, which are this machine."""
    home = directory / "home"
    try:
        async with (
            running_server(home, nodes=2, **settings) as server,
            Client(server.profile) as client,
        ):
            yield Deployment(client, directory, home)
    finally:
        sweep(home)


@asynccontextmanager
async def pod_deployment(
    directory: Path, table: Mapping[str, Any] = MappingProxyType({}), **settings: Any
) -> AsyncIterator[Deployment]:
    """Two nodes of a fake cluster, whose pods are processes."""
    home = directory / "home"
    async with process_pod_cluster(directory, 2) as cluster:
        kubeconfig = cluster.kubeconfig(directory / "kubeconfig")
        chosen = kubernetes_settings(directory, kubeconfig, **table)
        async with (
            running_server(home, kubernetes=chosen, **settings) as server,
            Client(server.profile) as client,
        ):
            hands = Kubectl(kubeconfig, chosen["namespace"])
            yield Deployment(client, directory, home, directory / "pods", hands)


def kubernetes_settings(directory: Path, kubeconfig: Path, **more: Any) -> dict[str, Any]:
    """Return the table [kubernetes] for a server of a fake cluster."""
    settings = asdict(cluster_settings(directory, server_addresses=()))
    kept = {key: settings[key] for key in ("namespace", "agent_path", "images", "default_uid")}
    shared = f"hostPath:{directory / 'home'}"
    own = {"kubeconfig": str(kubeconfig), "kill_grace": 1.0, "shared_volume": shared}
    return {**kept, **own, **more}
