"""A scripted server for real agents. It renews leases, stores logs, and decides when a rank counts as ended.

It follows the rule of the real server (docs/contributing/fencing.md): a rank has ended `fence_after` seconds after the
last answer that let it run on. From then on, it renews no lease of the rank and refuses the rank as FENCED.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.domain.timing import Timing
from hai_backend.launch.base import RankKey
from hai_backend.logs.store import LogStore

_GRACE_SECONDS = 0.3
_STARTS = 2  # how many agents start at a time: with more, a short lease expires before its agent has attached


class Rank:
    """What the server knows of one rank, over all its streams."""

    def __init__(self, argv: Sequence[str], timing: Timing) -> None:
        self.argv = argv
        self._timing = timing
        self.started = asyncio.Event()
        self.exited = asyncio.Event()
        self.exit_code: int | None = None
        self.awake = asyncio.Event()  # cleared while the server is stopped
        self.awake.set()
        self.leads = True  # whether the server is sure that it is the leader
        self.superseded = False
        self.ending = False
        self.attached = 0  # how many times
        self.renewed_at = 0.0
        """When the last word went out that lets the rank run on: go, or a renewed lease."""
        self._stream: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue()

    def tell(self, **message: Any) -> None:
        """Send a message to the agent."""
        self._stream.put_nowait(pb.AttachResponse(**message))

    def end(self) -> None:
        """End the run: SIGTERM, a short grace, SIGKILL. From now on, the lease is not renewed."""
        self.ending = True
        self.tell(end=pb.EndProgram(grace_seconds=_GRACE_SECONDS, reason="test"))

    def opened(self) -> asyncio.Queue[pb.AttachResponse | None]:
        """Return the queue of a new stream, and end the older stream."""
        self._stream.put_nowait(None)  # ends an older stream
        self._stream = asyncio.Queue()
        self.attached += 1
        return self._stream

    async def until_ended_by_time(self) -> None:
        """Wait until no process of the rank can run any more by the rule. The rank is superseded from then on."""
        while True:
            await self.started.wait()
            left = self.renewed_at + self._timing.fence_after - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
            elif not self.awake.is_set():
                await self.awake.wait()
            else:
                self.superseded = True
                return


class LeaseServer(rpc.AgentServiceServicer):
    """Serves any number of tasks at once. Use `lease_server`."""

    def __init__(self, directory: Path, timing: Timing) -> None:
        self.logs = LogStore(directory / "logs", 1 << 30)
        self.timing = timing
        self.ranks: dict[RankKey, Rank] = {}
        self.starts = asyncio.Semaphore(_STARTS)  # held by agents that are starting
        self.address = ""

    def expect(self, key: RankKey, argv: Sequence[str]) -> Rank:
        """Return a new rank, which may now attach."""
        self.ranks[key] = Rank(argv, self.timing)
        return self.ranks[key]

    def write_address(self, home: Path, address: str = "") -> None:
        """Write server.json into a home directory, whose agents then reach this server by `address`."""
        facts = {
            "address": address or self.address,
            "heartbeat": self.timing.heartbeat,
            "fence_after": self.timing.fence_after,
        }
        home.mkdir(parents=True, exist_ok=True)
        (home / "server.json").write_text(json.dumps(facts))

    def lines(self, key: RankKey) -> list[str]:
        """Return the stored log of a rank."""
        lines, cursor = self.logs.read(key.task_id)
        texts = list(lines)
        while lines:
            lines, cursor = self.logs.read(key.task_id, cursor=cursor)
            texts += lines
        return [line.text for line in texts if line.run == key.run]

    async def Attach(self, requests: Any, context: Any) -> AsyncIterator[pb.AttachResponse]:
        hello = (await anext(aiter(requests))).hello
        key = RankKey(hello.task_id, hello.run, hello.rank)
        rank = self.ranks[key]
        await rank.awake.wait()
        if rank.superseded:
            await context.abort_with_status(_fenced())
        stream = rank.opened()
        reader = asyncio.ensure_future(self._read(key, rank, requests, stream))
        try:
            for message in self._greeting(key, rank, hello):
                yield message
            while (said := await stream.get()) is not None:
                await rank.awake.wait()
                yield said
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    def _greeting(self, key: RankKey, rank: Rank, hello: pb.AgentHello) -> list[pb.AttachResponse]:
        """Return the first messages of a stream."""
        size = self.logs.size(key)
        said = [pb.AttachResponse(welcome=pb.AgentWelcome(argv=rank.argv, log_offset=size))]
        if rank.ending:
            rank.end()
        elif not hello.started:
            rank.renewed_at = time.monotonic()
            said.append(pb.AttachResponse(go=pb.Go(master_address="127.0.0.1", master_port=2222)))
        return said

    async def _read(self, key: RankKey, rank: Rank, requests: Any, stream: Any) -> None:
        async for request in requests:
            await rank.awake.wait()
            if rank.superseded:
                stream.put_nowait(None)
                return
            if (answer := self._answer(key, rank, request)) is not None:
                stream.put_nowait(answer)

    def _answer(
        self, key: RankKey, rank: Rank, request: pb.AttachRequest
    ) -> pb.AttachResponse | None:
        """Handle a message of the agent, and return the answer, or None."""
        match request.WhichOneof("message"):
            case "started":
                rank.started.set()
            case "heartbeat":
                return self._renew(rank, request.heartbeat)
            case "log":
                size = self.logs.append(key, request.log.offset, request.log.data)
                return pb.AttachResponse(log_acknowledged=pb.LogAcknowledged(offset=size))
            case "exited":
                rank.exit_code = request.exited.exit_code
                rank.exited.set()
                return pb.AttachResponse(exit_recorded=pb.ExitRecorded())
        return None

    def _renew(self, rank: Rank, beat: pb.Heartbeat) -> pb.AttachResponse:
        renewed = rank.leads and not rank.ending
        if renewed:
            rank.renewed_at = time.monotonic()
        answer = pb.HeartbeatAnswered(number=beat.number, lease_renewed=renewed)
        return pb.AttachResponse(heartbeat=answer)


def _fenced() -> Any:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="FENCED", domain="hai.dev"))
    number = code_pb2.Code.Value("FAILED_PRECONDITION")
    return rpc_status.to_status(
        status_pb2.Status(code=number, message="another run has this rank", details=[detail])
    )


@asynccontextmanager
async def lease_server(
    directory: Path, timing: Timing, listen: str = "127.0.0.1:0"
) -> AsyncIterator[LeaseServer]:
    """A listening one."""
    server, made = grpc.aio.server(), LeaseServer(directory, timing)
    rpc.add_AgentServiceServicer_to_server(made, server)
    port = server.add_insecure_port(listen)
    made.address = f"{listen.rpartition(':')[0]}:{port}"
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)
