"""The terminal app on a real terminal: first paint, keys among 10 000 tasks, keys during 1 000 changes a second.

A small server in this process answers like one with 10 000 unfinished tasks, so that the figures are the app's. The
time of a key ends with the last output that it causes. CPU times are also valid on a machine with other load.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from statistics import median
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from hai.v1 import (
    server_service_pb2,
    server_service_pb2_grpc,
    task_service_pb2,
    task_service_pb2_grpc,
    user_service_pb2,
    user_service_pb2_grpc,
)
from hai.v1.task_pb2 import RUN_STATE_RUNNING, TASK_STATE_RUNNING, Rank, Run, Task
from hai.v1.user_pb2 import ROLE_ADMIN, User
from tests.bench.faces.terminal import Terminal
from tests.bench.figures import Figure, cpu_seconds, percentile

TASKS = 10_000
CHANGES = 1_000  # per second
_BUNDLE_SECONDS = 0.05  # as a real server batches changes
_FILTERS = ("task77", "user:user7 ", "status:running nodes>3 age:<9000d")
Cost = tuple[float, float]  # wall and CPU seconds
_IMPORT = [sys.executable, "-c", "import textual.app, textual.widgets"]
_APP = [sys.executable, "-m", "hai_tui.cli.main", "tui"]


class _Tasks(task_service_pb2_grpc.TaskServiceServicer):
    """The task service. It has 10 000 tasks, and sends 1 000 changes a second once `storm` is set."""

    def __init__(self) -> None:
        self.version = TASKS
        self.storm = asyncio.Event()

    def task(self, id: int) -> Task:
        self.version += 1
        node = Rank(index=0, node=f"node{id}")
        return Task(
            id=id, version=self.version, name=f"task{id}-training-run", user=f"user{id % 50}",
            group="default", node_count=1 + id % 8, state=TASK_STATE_RUNNING, priority=10,
            run_count=1, run=Run(number=1, state=RUN_STATE_RUNNING, ranks=[node]),
            create_time=Timestamp(seconds=1_790_000_000 + id), tags=["sweep", f"t{id % 7}"],
        )  # fmt: skip

    async def WatchTasks(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for first in range(1, TASKS + 1, 500):
            part = [self.task(id) for id in range(first, first + 500)]
            yield task_service_pb2.WatchTasksResponse(tasks=part)
        yield task_service_pb2.WatchTasksResponse(version=self.version)
        await self.storm.wait()
        each, first = int(CHANGES * _BUNDLE_SECONDS), 0
        while True:  # over the whole list: several changes a second are on the screen
            part = [self.task(1 + n * 7919 % TASKS) for n in range(first, first + each)]
            first += each
            yield task_service_pb2.WatchTasksResponse(tasks=part, version=self.version)
            await asyncio.sleep(_BUNDLE_SECONDS)

    async def ListTasks(self, request: Any, context: Any) -> Any:
        return task_service_pb2.ListTasksResponse()

    async def ListQueue(self, request: Any, context: Any) -> Any:
        return task_service_pb2.ListQueueResponse()


class _Users(user_service_pb2_grpc.UserServiceServicer):
    async def WhoAmI(self, request: Any, context: Any) -> Any:
        return user_service_pb2.WhoAmIResponse(user=User(name="ada", role=ROLE_ADMIN))


class _Server(server_service_pb2_grpc.ServerServiceServicer):
    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        now = Timestamp()
        now.GetCurrentTime()
        return server_service_pb2.ServerInfo(version="0", time=now)


async def _serve() -> tuple[grpc.aio.Server, str, _Tasks]:
    server, tasks = grpc.aio.server(), _Tasks()
    task_service_pb2_grpc.add_TaskServiceServicer_to_server(tasks, server)
    user_service_pb2_grpc.add_UserServiceServicer_to_server(_Users(), server)
    server_service_pb2_grpc.add_ServerServiceServicer_to_server(_Server(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}", tasks


def _env(server: str, directory: str) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {
        **own, "HAI_SERVER": server, "HAI_TOKEN": "t", "HAI_CONFIG": f"{directory}/config.toml",
        "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8",
        "PYTHONPYCACHEPREFIX": os.path.join(tempfile.gettempdir(), "hai-bench-bytecode"),
    }  # fmt: skip


async def _first_paint(env: dict[str, str]) -> tuple[float, float]:
    """Return wall and CPU seconds until the first frame is on the terminal."""
    terminal = Terminal(_APP, env, (160, 50))
    painted = await terminal.until("tasks")
    found = painted - terminal.began, terminal.cpu_seconds()
    await terminal.end()
    return found


async def _paints(directory: str) -> dict[str, float]:
    """Return the median CPU seconds of the first paint, less the import of Textual, with and without a server."""
    server, address, _ = await _serve()
    found = {}
    for name, target in (("server up", address), ("server down", "127.0.0.1:1")):
        env = _env(target, directory)
        await _first_paint(env)  # compiles modules
        imports = median([await asyncio.to_thread(cpu_seconds, _IMPORT, env) for _ in range(5)])
        cpu = [(await _first_paint(env))[1] for _ in range(7)]
        found[name] = median(cpu) - imports
    await server.stop(0)
    return found


async def _keys(directory: str) -> tuple[dict[str, list[Cost]], float]:
    """Return the costs of keys by kind, and the memory in MB."""
    server, address, tasks = await _serve()
    terminal = Terminal(_APP, _env(address, directory), (160, 50))
    await terminal.until("10000 tasks")
    await asyncio.sleep(1)
    found = {
        "line": [await terminal.cost("j") for _ in range(60)],
        "screen": [await terminal.cost("\x06") for _ in range(60)],
        "filter": [cost for line in _FILTERS for cost in await _typed(terminal, line)],
    }
    tasks.storm.set()
    await asyncio.sleep(1)
    found["storm"] = [await _marked(terminal) for _ in range(40)]
    memory = terminal.memory_bytes() / 1e6
    await terminal.end()
    await server.stop(0)
    return found, memory


async def _typed(terminal: Terminal, line: str) -> list[Cost]:
    """Return the cost of each key of a filter and of its prompt. Removes the filter afterwards."""
    found = [await terminal.cost(key) for key in ("/", *line)]
    await terminal.answered("\x15")  # empties the line
    await terminal.answered("\r")
    return found


async def _marked(terminal: Terminal) -> Cost:
    """Return the time from `:` to its prompt, while the rest of the screen is painted ten times a second."""
    used = terminal.thread_seconds()
    began = terminal.press(":")
    shown = await terminal.until("go to")
    used = terminal.thread_seconds() - used
    terminal.press("\r")
    await asyncio.sleep(0.6)  # wait until the prompt has disappeared
    return shown - began, used


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="hai-bench-") as directory:
        for name, seconds in asyncio.run(_paints(directory)).items():
            yield Figure(f"hai tui: first paint beyond Textual's import, {name}", seconds, "s", 0.5)
        found, memory = asyncio.run(_keys(directory))
    for name, bar in (("line", 50), ("screen", 50), ("filter", 50), ("storm", 100)):
        told = "1 000 changes/s, a key" if name == "storm" else f"10 000 tasks, key: {name}"
        wall, used = ([each * 1000 for each in times] for times in zip(*found[name], strict=True))
        yield Figure(f"hai tui: {told}, p50", percentile(wall, 50), "ms")
        yield Figure(f"hai tui: {told}, p95", percentile(wall, 95), "ms", bar)
        yield Figure(f"hai tui: {told}, CPU, p95", percentile(used, 95), "ms", bar)
    yield Figure("hai tui: memory with 10 000 tasks", memory, "MB", 300)
