"""Agents without programs, for a real server. Tests decide what the agents send.

With a clock that does not advance, the same test produces exactly the same state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import grpc

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai.v1.agent_service_pb2_grpc import AgentServiceStub
from hai_backend.domain.node import Node
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.fake import FakeLauncher
from hai_backend.logs.lines import stamp

_HEARTBEAT_SECONDS = 2.0  # no agent looks silent, however long a test takes

Metadata = tuple[tuple[str, str], ...]


class ScriptedAgent:
    """The agent of one rank. It starts, suspends and ends on request of the server. Tests make it print and exit."""

    def __init__(self, rank: RankLaunch, over: Callable[[], None]) -> None:
        self.key = rank.key
        self._token, self._over = rank.token, over
        self._said: asyncio.Queue[pb.AttachRequest] = asyncio.Queue()
        self._printed = 0
        self._yields = False

    async def play(self, address: str) -> None:
        """Run until the server has recorded the exit."""
        key = self.key
        hello = pb.AgentHello(
            task_id=key.task_id, run=key.run, rank=key.rank, address=f"10.0.0.{key.rank + 1}"
        )
        self._say(pb.AttachRequest(hello=hello))
        metadata = (("authorization", f"Bearer {self._token}"),)
        async with grpc.aio.insecure_channel(address) as channel:
            with suppress(grpc.aio.AioRpcError):  # the server stops
                await self._attach(channel, metadata)
        self._over()

    async def _attach(self, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        stub = AgentServiceStub(channel)
        async for answer in StreamCall(stub.Attach(self._requests(), metadata=metadata)):
            if self._hear(answer):
                return

    def print(self, lines: Sequence[str], now: float) -> None:
        """Send lines of the program's output."""
        data = b"".join(stamp(now) + line.encode() + b"\n" for line in lines)
        self._say(pb.AttachRequest(log=pb.LogChunk(offset=self._printed, data=data)))
        self._printed += len(data)

    def exit(self, code: int, last_lines: str = "") -> None:
        """Report that the program has exited."""
        ended = pb.ProgramExited(exit_code=code, last_lines=last_lines, yielded=self._yields)
        self._say(pb.AttachRequest(exited=ended))

    def _hear(self, answer: pb.AttachResponse) -> bool:
        """Answer a message of the server. Return true if the agent has nothing more to send."""
        match answer.WhichOneof("message"):
            case "go":
                self._say(pb.AttachRequest(started=pb.ProgramStarted(pid=1)))
            case "suspend":
                self._yields = True
                self._say(pb.AttachRequest(suspend_acknowledged=pb.SuspendAcknowledged()))
                self._say(pb.AttachRequest(yielded=pb.Yielded()))
            case "end":
                self.exit(143)
        return answer.HasField("exit_recorded")

    def _say(self, message: pb.AttachRequest) -> None:
        self._said.put_nowait(message)

    async def _requests(self) -> AsyncIterator[pb.AttachRequest]:
        for number in itertools.count(1):
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        said = await self._said.get()
                    yield said
            yield pb.AttachRequest(heartbeat=pb.Heartbeat(number=number, unmeasured=True))


class ScriptedLauncher(FakeLauncher):
    """A launcher that runs a scripted agent for each rank. `address` returns the address of the listening server."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.address: Callable[[], str] = str
        self.agents: dict[tuple[int, int], ScriptedAgent] = {}
        self._playing: set[asyncio.Task[None]] = set()

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """Start scripted agents for these ranks. See Launcher."""
        await super().start(ranks)
        for rank in ranks:
            self._play(rank)

    async def close(self) -> None:
        """Stop all agents. See Launcher."""
        for playing in self._playing:
            playing.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        await super().close()

    def _play(self, rank: RankLaunch) -> None:
        player = ScriptedAgent(rank, lambda: self.terminate(rank.key))
        self.agents[rank.key.task_id, rank.key.rank] = player
        playing = asyncio.ensure_future(player.play(self.address()))
        self._playing.add(playing)
        playing.add_done_callback(self._playing.discard)

    def terminate(self, key: RankKey) -> None:
        """End a rank, unless it has ended. See FakeLauncher."""
        if key in self.ranks:
            super().terminate(key)
