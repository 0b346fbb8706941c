"""Where the stories of the main job happen: a server and its cluster, of processes or of pods, and an admin's client.

The same tests run on all of them. What a test must know of the difference stands here: where ranks live on disk.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hai.client.client import Client
from hai.v1.storage_pb2 import MountKind, MountRule
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.launch import processes
from hai_backend.launch.process import sweep
from hai_backend.testing.pods import agent_directory, cluster_settings, pods_as_processes
from hai_backend.testing.server import running_server

_POD_HOMES = "*/volumes/home/run"


@dataclass
class Here:
    """A client, a directory for programs, and where ranks live below it."""

    client: Client
    directory: Path
    home: Path
    pods: Path | None = None

    def spec(
        self,
        name: str,
        code: str,
        *parameters: str,
        nodes: int = 1,
        priority: int = 10,
        **more: Any,
    ) -> TaskSpec:
        """A task whose program is this text."""
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
        """Submit and wait for the end."""
        task = await self.client.tasks.create(spec)
        return await self.client.tasks.wait(task.id, timeout=60)

    async def until_printed(self, task_id: int, text: str) -> None:
        """Raises AssertionError when it never was."""
        async for answer in self.client.logs.tail(task_id, follow=True):
            if any(text in line.text for line in answer.lines):
                return
        raise AssertionError(f"never printed {text!r}")

    async def lines(self, task_id: int) -> list[str]:
        return [line.text async for a in self.client.logs.tail(task_id) for line in a.lines]

    async def kinds(self, task_id: int) -> list[str]:
        return [e.kind for e in await self.client.tasks.events(task_id)]

    def rank(self, key: str) -> Path:
        """The directory of a rank that lives."""
        return next(run / key for run in self._runs() if (run / key).exists())

    def marked(self, task_id: int) -> list[int]:
        """Processes that carry the mark of a rank of this task."""
        return [
            process.pid
            for run in self._runs()
            for process, directory in processes.marks(run)
            if directory.name.startswith(f"{task_id}-")
        ]

    def _runs(self) -> list[Path]:
        return [self.home / "run"] if self.pods is None else [*self.pods.glob(_POD_HOMES)]


Place = Callable[[Path], AbstractAsyncContextManager[Here]]


@asynccontextmanager
async def on_processes(directory: Path, **settings: Any) -> AsyncIterator[Here]:
    """Two nodes, which are this machine."""
    home = directory / "home"
    try:
        async with (
            running_server(home, nodes=2, **settings) as server,
            Client(server.profile) as client,
        ):
            yield Here(client, directory, home)
    finally:
        sweep(home)


@asynccontextmanager
async def on_pods(directory: Path, **settings: Any) -> AsyncIterator[Here]:
    """Two nodes of a fake cluster, whose pods are processes; at the end nothing of any run is left in it."""
    home = directory / "home"
    async with pods_as_processes(directory, 2) as cluster:
        table = pod_table(directory, cluster.kubeconfig(directory / "kubeconfig"))
        async with (
            running_server(home, kubernetes=table, **settings) as server,
            Client(server.profile) as client,
        ):
            yield Here(client, directory, home, directory / "pods")


def pod_table(directory: Path, kubeconfig: Path, **more: Any) -> dict[str, Any]:
    """[kubernetes] of a server of a fake cluster."""
    settings = asdict(cluster_settings(directory, server_addresses=()))
    kept = {key: settings[key] for key in ("namespace", "agent_path", "images", "default_uid")}
    shared = f"hostPath:{directory / 'home'}"
    own = {"kubeconfig": str(kubeconfig), "kill_grace": 1.0, "shared_volume": shared}
    return {**kept, **own, **more}


@asynccontextmanager
async def on_a_real_cluster(directory: Path) -> AsyncIterator[Here]:
    """KUBECONFIG and HAI_E2E_IMAGE, and what else docs/operate.md names. Its nodes see this machine's directories."""
    settings: dict[str, Any] = {
        "kubernetes": _real_table(directory),
        "listen": "0.0.0.0:0",
        "advertise": os.environ.get("HAI_E2E_ADDRESS") or _own_address(),
        "insecure": True,
        "build_within": 180.0,
        "cluster": f"e2e-{os.getpid()}",
    }
    async with (
        running_server(directory / "home", **settings) as server,
        Client(server.profile) as client,
    ):
        for path in (str(directory), *_listed("HAI_E2E_MOUNTS")):
            await client.storage.create_rule(_host_path(path))
        yield Here(client, directory, directory / "home")


def _own_address() -> str:
    """The address of this machine on the way to the API server: pods come back by it, in most networks."""
    from kubernetes import config

    api = config.new_client_from_config(os.environ["KUBECONFIG"])  # type: ignore[no-untyped-call]
    where = urlsplit(api.configuration.host)
    kind = socket.AF_INET6 if ":" in str(where.hostname) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as way:  # nothing is sent
        way.connect((where.hostname, where.port or 443))
        return str(way.getsockname()[0])


def _real_table(directory: Path) -> dict[str, Any]:
    return {
        "kubeconfig": os.environ["KUBECONFIG"],
        "namespace": os.environ.get("HAI_E2E_NAMESPACE", "default"),
        "images": {"default": os.environ["HAI_E2E_IMAGE"]},
        "agent_path": os.environ.get("HAI_E2E_AGENT") or str(agent_directory(directory)),
        "default_uid": int(os.environ.get("HAI_E2E_UID", "1000")),
        "strict_groups": False,
        "shared_volume": f"hostPath:{directory / 'home'}",
        "seccomp": "",
    }


def _listed(variable: str) -> list[str]:
    return [path for path in os.environ.get(variable, "").split(",") if path]


def _host_path(path: str) -> MountRule:
    return MountRule(
        owners=["public"],
        source=path,
        mount_path=path,
        kind=MountKind.MOUNT_KIND_HOST_PATH,
        writable=True,
    )
