"""A scripted server to which real agents attach, and real agents whose processes are killed after each test."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.launch import processes
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.local_launcher import sweep
from hai_backend.launch.rank_dirs import agent_variables, make, path_of
from hai_backend.logs.store import LogStore

Key = tuple[int, int, int]
Said = pb.AttachResponse | grpc.Status | None  # a status or None ends the stream


class Rank:
    """The messages that the server has received from one rank, over all its streams, and the answers to them."""

    def __init__(self) -> None:
        self.hellos: list[pb.AgentHello] = []
        self.heard: list[pb.AttachRequest] = []
        self.welcome = pb.AgentWelcome(argv=["true"])
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.refused = 0  # number of refused streams
        self.records_exit = True
        self.answers_heartbeats = True
        self.renews_lease = True
        self._changed = asyncio.Condition()
        self._stream: asyncio.Queue[Said] = asyncio.Queue()

    def tell(self, **message: Any) -> None:
        """Send a message to the agent on its newest stream."""
        self._stream.put_nowait(pb.AttachResponse(**message))

    def go(self, **facts: Any) -> None:
        self.tell(go=pb.Go(**{"master_address": "127.0.0.1", "master_port": 2222, **facts}))

    def cut(self) -> None:
        """Close the stream, as a server does when it stops."""
        self._stream.put_nowait(None)

    def turn_out(self, code: grpc.StatusCode, reason: str) -> None:
        """End the stream with this error."""
        self._stream.put_nowait(_refusal(code, reason))

    def opened(self, hello: pb.AgentHello) -> asyncio.Queue[Said]:
        self._stream = asyncio.Queue()
        self.hellos.append(hello)
        return self._stream

    async def hear(self, request: pb.AttachRequest) -> None:
        async with self._changed:
            self.heard.append(request)
            self._changed.notify_all()

    async def turn_away(self) -> None:
        async with self._changed:
            self.refused += 1
            self._changed.notify_all()

    async def until_refused(self, times: int) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(lambda: self.refused >= times), 20)

    def said(self, kind: str) -> list[Any]:
        """Return the messages of one kind so far."""
        return [getattr(r, kind) for r in self.heard if r.WhichOneof("message") == kind]

    async def until(self, kind: str, count: int = 1) -> Any:
        """Wait for the `count`-th message of a kind, and return it."""
        async with self._changed:
            await asyncio.wait_for(
                self._changed.wait_for(lambda: len(self.said(kind)) >= count), 20
            )
        return self.said(kind)[count - 1]


class Server(rpc.AgentServiceServicer):
    """Implements Attach, and stores logs in a real LogStore."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = LogStore(home / "logs", 1 << 30)
        self.ranks: dict[RankKey, Rank] = defaultdict(Rank)
        self.chunks: list[pb.LogChunk] = []
        self.timing: dict[str, float] = {}
        self.port = 0
        self._grpc: Any = None

    async def start(self, *before: str) -> None:
        self._grpc = grpc.aio.server()
        rpc.add_AgentServiceServicer_to_server(self, self._grpc)
        self.port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        self.write_address(*before)

    def write_address(self, *before: str) -> None:
        """Write server.json with the addresses `before`, followed by that of this server."""
        address = ",".join([*before, f"127.0.0.1:{self.port}"])
        facts = {"address": address, **self.timing}
        part = self.home / "server.json.part"
        part.write_text(json.dumps(facts))
        part.replace(self.home / "server.json")

    async def stop(self) -> None:
        await self._grpc.stop(None)

    async def Attach(self, requests: Any, context: Any) -> AsyncIterator[pb.AttachResponse]:
        hello = (await anext(aiter(requests))).hello
        key = RankKey(hello.task_id, hello.run, hello.rank)
        rank = self.ranks[key]
        if rank.refuse is not None:
            await rank.turn_away()
            await context.abort_with_status(_refusal(*rank.refuse))
        stream = rank.opened(hello)
        reader = asyncio.ensure_future(self._read(key, rank, requests, stream))
        try:
            rank.welcome.log_offset = self.logs.size(key)
            yield pb.AttachResponse(welcome=rank.welcome)
            await rank.hear(pb.AttachRequest(hello=hello))
            while (message := await stream.get()) is not None:
                if isinstance(message, grpc.Status):
                    await context.abort_with_status(message)
                else:
                    yield message
        finally:
            reader.cancel()

    async def _read(self, key: RankKey, rank: Rank, requests: Any, stream: Any) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            if kind == "log":
                self.chunks.append(request.log)
                size = self.logs.append(key, request.log.offset, request.log.data)
                stream.put_nowait(
                    pb.AttachResponse(log_acknowledged=pb.LogAcknowledged(offset=size))
                )
            if kind == "heartbeat" and rank.answers_heartbeats:
                number = request.heartbeat.number
                answer = pb.HeartbeatAnswered(number=number, lease_renewed=rank.renews_lease)
                stream.put_nowait(pb.AttachResponse(heartbeat=answer))
            if kind == "exited" and rank.records_exit:
                stream.put_nowait(pb.AttachResponse(exit_recorded=pb.ExitRecorded()))
            await rank.hear(request)

    def lines(self, task_id: int = 7) -> list[str]:
        """Return all stored lines of a task's log."""
        lines, cursor = self.logs.read(task_id)
        texts = [line.text for line in lines]
        while lines:
            lines, cursor = self.logs.read(task_id, cursor=cursor)
            texts += [line.text for line in lines]
        return texts


def _refusal(code: grpc.StatusCode, reason: str) -> Any:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="hai.dev"))
    number = code_pb2.Code.Value(code.name)
    return rpc_status.to_status(status_pb2.Status(code=number, message=reason, details=[detail]))


class Agents:
    """Starts agents in a home."""

    def __init__(self, home: Path, server: Server) -> None:
        self.home = home
        self._server = server
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(
        self, argv: list[str], *, rank: int = 0, go: bool = True, **welcome: Any
    ) -> tuple[Rank, asyncio.subprocess.Process]:
        """Start an agent, welcome it, and let it start its program if `go` is set."""
        key = RankKey(7, 1, rank)
        heard = self._server.ranks[key]
        heard.welcome = pb.AgentWelcome(argv=argv, **welcome)
        process = await self.spawn(key)
        await heard.until("hello")
        if go:
            heard.go()
        return heard, process

    async def spawn(self, key: RankKey, facts: str = "") -> asyncio.subprocess.Process:
        """Start an agent. If `facts` is not empty, it replaces the content of agent.json."""
        directory = path_of(self.home, key)
        make(directory, RankLaunch(key, "node1", "secret"), ())
        if facts:
            (directory / "agent.json").write_text(facts)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "hai_backend.agent",
            str(directory),
            env=agent_variables(directory, key, os.environ, Path(sys.executable).parent),
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    async def end(self) -> None:
        sweep(self.home)
        for process in self._processes:
            await process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    server = Server(home)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def agents(home: Path, server: Server) -> AsyncIterator[Agents]:
    agents = Agents(home, server)
    yield agents
    await agents.end()


@pytest.fixture
def marked(home: Path) -> Callable[[], list[int]]:
    """Pids of every process of this test's cluster."""
    return lambda: [process.pid for process, _ in processes.marked_processes(home / "run")]


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """argv that runs a few lines of python."""
    return lambda text: [sys.executable, "-u", "-c", text]


@pytest.fixture
def git_repo(tmp_path: Path) -> Path:
    """A repository with one commit that holds run.sh."""
    repo = tmp_path / "origin"
    repo.mkdir()
    (repo / "run.sh").write_text("echo cloned\n")
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for step in (("init", "-q", "-b", "trunk"), ("add", "."), (*identity, "commit", "-qm", "one")):
        subprocess.run(("git", *step), cwd=repo, check=True)
    return repo
